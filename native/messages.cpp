// Belief propagation, the factor that waits for the largest change first.
#include "messages.hpp"

#include <algorithm>
#include <cmath>
#include <queue>

#include "factor_graph.hpp"
#include "log_sum.hpp"

namespace undirected {
namespace {

constexpr double LOWEST = -1e300;

class Propagation {
public:
    Propagation(FactorGraph& graph, const MessageOptions& options) : g_(graph), m_(graph.model), o_(options), belief_(graph.unary) {
        std::int64_t n = 0;
        for (Factor& f : g_.factors)
            for (const std::int32_t v : f.scope) {
                f.message.push_back(n);
                n += m_.n_states[v];
            }
        message_.assign(n, 0.0);
    }

    Approximation run() {
        Approximation out;
        std::vector<double> waiting(g_.factors.size(), 1e9);
        std::priority_queue<std::pair<double, std::int32_t>> queue;
        for (std::size_t f = g_.factors.size(); f-- > 0;) queue.emplace(waiting[f], -std::int32_t(f));
        const std::int64_t limit = o_.max_rounds * std::int64_t(g_.factors.size());
        while (!queue.empty() && out.updates < limit) {
            const auto [priority, negative] = queue.top();
            const std::int32_t f = -negative;
            if (priority != waiting[f]) {  // an older entry
                queue.pop();
                continue;
            }
            if (priority < o_.tol) break;
            queue.pop();
            ++out.updates;
            waiting[f] = 0;
            const std::vector<double> change = update(g_.factors[f]);
            double own = 0;
            for (std::size_t d = 0; d < change.size(); ++d) {
                own = std::max(own, change[d]);
                if (change[d] < o_.tol / 10) continue;
                for (const std::int32_t other : g_.of[g_.factors[f].scope[d]])
                    if (other != f) {
                        waiting[other] += change[d];
                        queue.emplace(waiting[other], -other);
                    }
            }
            // Not yet where it wants to be: damped, or heard anew because only a share of its message entered the beliefs.
            const double again = own * (o_.damping / (1 - o_.damping) + (1 - g_.factors[f].share));
            if (again >= o_.tol / 10) waiting[f] += again;
            queue.emplace(waiting[f], -f);
        }
        out.residual = 0;
        for (const double w : waiting) out.residual = w <= out.residual ? out.residual : w;  // also if it is not a number
        out.converged = out.residual < o_.tol * 10;
        out.marginals.resize(m_.n_literals());
        for (std::int32_t v = 0; v < m_.n_variables(); ++v) {
            const double total = log_sum(belief_.data() + m_.numbers.first(v), m_.n_states[v]);
            for (std::int32_t l = m_.numbers.first(v); l < m_.numbers.end(v); ++l) out.marginals[l] = std::exp(belief_[l] - total);
        }
        out.log_z = o_.maximum ? std::nan("") : free_energy(out.marginals);
        if (!o_.maximum && !std::isfinite(out.log_z)) out.converged = false;
        return out;
    }

private:
    // What the factor hears from its variables, not normalised: by variable and state.
    std::vector<std::vector<double>> heard(const Factor& f) const {
        std::vector<std::vector<double>> out(f.scope.size());
        for (std::size_t d = 0; d < f.scope.size(); ++d)
            for (std::int32_t s = 0; s < m_.n_states[f.scope[d]]; ++s)
                out[d].push_back(belief_[m_.numbers.number(f.scope[d], s)] - message_[f.message[d] + s]);
        return out;
    }

    std::vector<double> joint(const Factor& f, const std::vector<std::vector<double>>& from) const {
        std::vector<double> out(f.table.size());
        g_.each_cell(f, [&](std::int64_t cell, const std::vector<std::int32_t>& at) {
            double x = f.table[cell] / f.share;
            for (std::size_t d = 0; d < at.size(); ++d) x += from[d][at[d]];
            out[cell] = x;
        });
        return out;
    }

    // New messages to all variables of the factor; how much each belief moved.
    std::vector<double> update(const Factor& f) {
        const auto from = heard(f);
        std::vector<std::vector<double>> fresh(f.scope.size());
        if (!f.table.empty()) {
            const std::vector<double> all = joint(f, from);
            for (std::size_t d = 0; d < f.scope.size(); ++d) {
                const std::int32_t k = m_.n_states[f.scope[d]];
                std::vector<double> high(k, LOWEST), sum(k, 0.0);
                g_.each_cell(
                    f, [&](std::int64_t cell, const std::vector<std::int32_t>& at) { high[at[d]] = std::max(high[at[d]], all[cell]); });
                if (!o_.maximum)
                    g_.each_cell(f, [&](std::int64_t cell, const std::vector<std::int32_t>& at) {
                        sum[at[d]] += std::exp(all[cell] - high[at[d]]);
                    });
                for (std::int32_t s = 0; s < k; ++s) fresh[d].push_back(high[s] + (o_.maximum ? 0.0 : std::log(sum[s])) - from[d][s]);
            }
        } else {
            for (std::size_t d = 0; d < f.scope.size(); ++d) fresh[d] = from_conjunction(f, from, d);
        }
        std::vector<double> change(f.scope.size(), 0.0);
        for (std::size_t d = 0; d < f.scope.size(); ++d) {
            const std::int32_t v = f.scope[d], k = m_.n_states[v];
            const double top = *std::max_element(fresh[d].begin(), fresh[d].end());
            for (std::int32_t s = 0; s < k; ++s) {
                double& old = message_[f.message[d] + s];
                const double next = o_.damping * old + (1 - o_.damping) * (fresh[d][s] - top);
                const double step = next - old;
                change[d] = std::max(change[d], std::fabs(step));
                belief_[m_.numbers.number(v, s)] += f.share * step;
                old = next;
            }
        }
        return change;
    }

    // log of the probability that the literals on one variable hold, by what is heard from it
    double log_share(const Factor& f, const std::vector<std::vector<double>>& from, std::size_t d) const {
        std::vector<double> yes;
        for (std::size_t s = 0; s < from[d].size(); ++s)
            if (f.holds[d][s]) yes.push_back(from[d][s]);
        if (yes.empty()) return LOWEST;
        if (o_.maximum) return *std::max_element(yes.begin(), yes.end()) - *std::max_element(from[d].begin(), from[d].end());
        return log_sum(yes.data(), std::int64_t(yes.size())) - log_sum(from[d].data(), std::int64_t(from[d].size()));
    }

    // log(1 - q + q exp(w)), by the logarithm of q.
    static double lifted(double w, double log_q) {
        if (log_q >= 0) return w;
        const double rest = log_q > -0.6931471805599453 ? std::log(-std::expm1(log_q)) : std::log1p(-std::exp(log_q));
        const double high = std::max(rest, log_q + w), low = std::min(rest, log_q + w);
        return high + std::log1p(std::exp(low - high));
    }

    std::vector<double> from_conjunction(const Factor& f, const std::vector<std::vector<double>>& from, std::size_t d) const {
        double others = 0;  // log of the probability that all other literals hold
        for (std::size_t e = 0; e < from.size(); ++e)
            if (e != d) others += log_share(f, from, e);
        const double w = f.weight / f.share, q = std::exp(others);
        const double gain = !o_.maximum ? lifted(w, others) : w > 0 ? std::max(0.0, w + others) : q < 1 ? 0.0 : w;
        std::vector<double> out;
        for (const std::uint8_t yes : f.holds[d]) out.push_back(yes ? gain : 0.0);
        return out;
    }

    double free_energy(const std::vector<double>& marginals) const {
        const auto entropy = [](const double* p, std::int64_t n) {
            double h = 0;
            for (std::int64_t k = 0; k < n; ++k)
                if (p[k] > 0) h -= p[k] * std::log(p[k]);
            return h;
        };
        double total = 0;
        std::vector<double> h(m_.n_variables());
        for (std::int32_t v = 0; v < m_.n_variables(); ++v) {
            total += h[v] = entropy(marginals.data() + m_.numbers.first(v), m_.n_states[v]);
            for (std::int32_t l = m_.numbers.first(v); l < m_.numbers.end(v); ++l)
                total += marginals[l] > 0 ? marginals[l] * g_.unary[l] : 0;
        }
        for (const Factor& f : g_.factors) {
            const auto from = heard(f);
            double inside = 0, energy = 0;
            if (!f.table.empty()) {
                std::vector<double> b = joint(f, from);
                const double z = log_sum(b.data(), std::int64_t(b.size()));
                for (double& x : b) x = std::exp(x - z);
                inside = entropy(b.data(), std::int64_t(b.size()));
                for (std::size_t c = 0; c < b.size(); ++c) energy += b[c] > 0 ? b[c] * f.table[c] : 0;
            } else {
                double all = 0, z = 0, expected = 0;
                for (std::size_t d = 0; d < from.size(); ++d) all += log_share(f, from, d);
                const double w = f.weight / f.share;
                const double lift = lifted(w, std::min(0.0, all));
                const double yes = std::exp(std::min(0.0, w + all - lift));
                for (std::size_t d = 0; d < from.size(); ++d) {
                    const auto message = from_conjunction(f, from, d);
                    const double zd = log_sum(from[d].data(), std::int64_t(from[d].size()));
                    z += zd;
                    for (std::size_t s = 0; s < from[d].size(); ++s) {
                        const double p = std::exp(from[d][s] - zd + message[s] - lift);
                        expected += p > 0 ? p * from[d][s] : 0;
                    }
                }
                inside = z + lift - w * yes - expected;
                energy = f.weight * yes;
            }
            double apart = 0;
            for (const std::int32_t v : f.scope) apart += h[v];
            total += energy - f.share * (apart - inside);
        }
        return total;
    }

    FactorGraph& g_;
    const Model& m_;
    const MessageOptions o_;
    std::vector<double> belief_, message_;
};

}  // namespace

Approximation propagate(const Model& model, const MessageOptions& options) {
    FactorGraph graph(model);
    if (options.reweighted) graph.share_out(options.seed);
    return Propagation(graph, options).run();
}

}  // namespace undirected
