#include "messages.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <queue>

#include "hash.hpp"

namespace undirected {
namespace {

constexpr double MAX_TABLE = 1 << 10;  // scopes with more cells keep their features one by one
constexpr double LOWEST = -1e300;

// Either a table of logarithms over a few variables, or one long conjunction.
struct Factor {
    std::vector<std::int32_t> scope;
    std::vector<double> table;                     // last variable fastest; empty for a conjunction
    double weight = 0;                             // of the conjunction
    std::vector<std::vector<std::uint8_t>> holds;  // of the conjunction: by variable and state
    double share = 1;                              // of the trees that hold it
    std::vector<std::int64_t> message;             // where its messages to its variables are
};

double log_sum(const double* x, std::int64_t n) {
    double high = *std::max_element(x, x + n), sum = 0;
    for (std::int64_t k = 0; k < n; ++k) sum += std::exp(x[k] - high);
    return high + std::log(sum);
}

struct FactorGraph {
    const Model& model;
    std::vector<double> unary;  // by literal
    std::vector<Factor> factors;
    std::vector<std::vector<std::int32_t>> of;  // factors of a variable

    explicit FactorGraph(const Model& m) : model(m), unary(m.n_literals(), 0.0), of(m.n_variables()) {
        const std::int32_t n = m.n_literals();
        std::map<std::vector<std::int32_t>, std::vector<std::int64_t>> scopes;
        for (std::int64_t j = 0; j < m.n_features(); ++j) {
            std::vector<std::int32_t> scope;
            for (std::int64_t k = m.start[j]; k < m.start[j + 1]; ++k) scope.push_back(m.literal_variable[m.literals[k] % n]);
            std::sort(scope.begin(), scope.end());
            scope.erase(std::unique(scope.begin(), scope.end()), scope.end());
            if (scope.size() == 1)
                for (std::int32_t s = 0; s < m.n_states[scope[0]]; ++s)
                    unary[m.base[scope[0]] + s] += holds_at(j, scope[0], s) ? m.weights[j] : 0;
            else
                scopes[scope].push_back(j);
        }
        std::vector<const std::pair<const std::vector<std::int32_t>, std::vector<std::int64_t>>*> sorted;
        for (const auto& entry : scopes) sorted.push_back(&entry);
        std::stable_sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->first.size() > b->first.size(); });
        for (const auto* entry : sorted) {
            double cells = 1;
            for (const std::int32_t v : entry->first) cells *= m.n_states[v];
            if (cells > MAX_TABLE) {
                for (const std::int64_t j : entry->second) conjunction(j, entry->first);
                continue;
            }
            std::int32_t home = -1;  // a table over more variables
            for (const std::int32_t f : of[entry->first[0]])
                if (!factors[f].table.empty() &&
                    std::includes(factors[f].scope.begin(), factors[f].scope.end(), entry->first.begin(), entry->first.end()))
                    home = f;
            if (home < 0) {
                home = enter(entry->first);
                factors[home].table.assign(std::size_t(cells), 0.0);
            }
            for (const std::int64_t j : entry->second) add(factors[home], j);
        }
    }

    bool holds_at(std::int64_t j, std::int32_t v, std::int32_t s) const {
        const std::int32_t n = model.n_literals();
        for (std::int64_t k = model.start[j]; k < model.start[j + 1]; ++k) {
            const std::int32_t l = model.literals[k];
            if (model.literal_variable[l % n] == v && (l % n == model.base[v] + s) == (l >= n)) return false;
        }
        return true;
    }

    std::int32_t enter(const std::vector<std::int32_t>& scope) {
        const std::int32_t f = std::int32_t(factors.size());
        factors.emplace_back();
        factors[f].scope = scope;
        for (const std::int32_t v : scope) of[v].push_back(f);
        return f;
    }

    void conjunction(std::int64_t j, const std::vector<std::int32_t>& scope) {
        Factor& f = factors[enter(scope)];
        f.weight = model.weights[j];
        for (const std::int32_t v : scope) {
            f.holds.emplace_back();
            for (std::int32_t s = 0; s < model.n_states[v]; ++s) f.holds.back().push_back(holds_at(j, v, s));
        }
    }

    void add(Factor& f, std::int64_t j) {
        std::vector<std::vector<std::uint8_t>> holds;
        for (const std::int32_t v : f.scope) {
            holds.emplace_back();
            for (std::int32_t s = 0; s < model.n_states[v]; ++s) holds.back().push_back(holds_at(j, v, s));
        }
        each_cell(f, [&](std::int64_t cell, const std::vector<std::int32_t>& at) {
            for (std::size_t d = 0; d < at.size(); ++d)
                if (!holds[d][at[d]]) return;
            f.table[cell] += model.weights[j];
        });
    }

    template <class F>
    void each_cell(const Factor& f, F&& visit) const {
        std::vector<std::int32_t> at(f.scope.size(), 0);
        for (std::int64_t cell = 0;; ++cell) {
            visit(cell, at);
            std::size_t d = at.size();
            while (d > 0 && ++at[d - 1] == model.n_states[f.scope[d - 1]]) at[--d] = 0;
            if (d == 0) return;
        }
    }

    // Shares of factors in random forests that together hold every factor.
    void share_out(std::uint64_t seed) {
        std::vector<std::int32_t> order(factors.size()), root(model.n_variables());
        std::vector<double> held(factors.size(), 0);
        std::iota(order.begin(), order.end(), 0);
        const auto find = [&](std::int32_t v) {
            while (root[v] != v) v = root[v] = root[root[v]];
            return v;
        };
        double forests = 0;
        for (bool all = factors.empty(); !all;) {
            const std::uint64_t turn = mix(seed + std::uint64_t(forests));
            std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
                return std::pair(held[a] > 0, mix(turn ^ std::uint64_t(a))) < std::pair(held[b] > 0, mix(turn ^ std::uint64_t(b)));
            });
            std::iota(root.begin(), root.end(), 0);
            for (const std::int32_t f : order) {
                std::vector<std::int32_t> roots;
                for (const std::int32_t v : factors[f].scope) roots.push_back(find(v));
                std::sort(roots.begin(), roots.end());
                if (std::adjacent_find(roots.begin(), roots.end()) != roots.end()) continue;
                for (const std::int32_t r : roots) root[r] = roots[0];
                ++held[f];
            }
            ++forests;
            all = std::all_of(held.begin(), held.end(), [](double h) { return h > 0; });
        }
        for (std::size_t f = 0; f < factors.size(); ++f) factors[f].share = held[f] / forests;
    }
};

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
            const double total = log_sum(belief_.data() + m_.base[v], m_.n_states[v]);
            for (std::int32_t l = m_.base[v]; l < m_.base[v + 1]; ++l) out.marginals[l] = std::exp(belief_[l] - total);
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
                out[d].push_back(belief_[m_.base[f.scope[d]] + s] - message_[f.message[d] + s]);
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
                belief_[m_.base[v] + s] += f.share * step;
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
            total += h[v] = entropy(marginals.data() + m_.base[v], m_.n_states[v]);
            for (std::int32_t l = m_.base[v]; l < m_.base[v + 1]; ++l) total += marginals[l] > 0 ? marginals[l] * g_.unary[l] : 0;
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

Approximation mean_field(const Model& m, double tol, std::int64_t max_rounds, int tries, std::uint64_t seed) {
    const std::int32_t n = m.n_literals();
    std::vector<std::vector<std::int64_t>> of(m.n_variables());
    for (std::int64_t j = 0; j < m.n_features(); ++j)
        for (std::int64_t k = m.start[j]; k < m.start[j + 1]; ++k) {
            auto& mine = of[m.literal_variable[m.literals[k] % n]];
            if (mine.empty() || mine.back() != j) mine.push_back(j);
        }
    // The probability that a feature's literals hold, those on one variable left out; and which of its states they allow.
    std::vector<double> q(n);
    const auto apart = [&](std::int64_t j, std::int32_t v, std::vector<std::uint8_t>* allowed) {
        double product = 1;
        for (std::int64_t k = m.start[j]; k < m.start[j + 1];) {
            const std::int32_t u = m.literal_variable[m.literals[k] % n];
            double p = m.literals[k] < n ? 0 : 1;
            for (; k < m.start[j + 1] && m.literal_variable[m.literals[k] % n] == u; ++k) {
                const std::int32_t l = m.literals[k];
                p = l < n ? q[l] : p - q[l - n];
                if (u == v && allowed != nullptr)
                    for (std::int32_t s = 0; s < m.n_states[v]; ++s)
                        if ((l % n == m.base[v] + s) == (l >= n)) (*allowed)[s] = 0;
            }
            if (u != v) product *= p;
        }
        return product;
    };
    Approximation best;
    best.log_z = LOWEST;
    for (int attempt = 0; attempt < std::max(1, tries); ++attempt) {
        Approximation now;
        for (std::int32_t v = 0; v < m.n_variables(); ++v) {
            double total = 0;
            for (std::int32_t l = m.base[v]; l < m.base[v + 1]; ++l)
                total += q[l] =
                    attempt == 0 ? 1.0 : 0.01 + double(mix(mix(seed + std::uint64_t(attempt)) ^ std::uint64_t(l)) >> 11) * 0x1p-53;
            for (std::int32_t l = m.base[v]; l < m.base[v + 1]; ++l) q[l] /= total;
        }
        std::vector<double> logit;
        std::vector<std::uint8_t> allowed;
        for (std::int64_t round = 0; round < max_rounds && !now.converged; ++round) {
            now.residual = 0;
            for (std::int32_t v = 0; v < m.n_variables(); ++v) {
                logit.assign(m.n_states[v], 0.0);
                for (const std::int64_t j : of[v]) {
                    allowed.assign(m.n_states[v], 1);
                    const double p = apart(j, v, &allowed);
                    for (std::int32_t s = 0; s < m.n_states[v]; ++s)
                        if (allowed[s]) logit[s] += m.weights[j] * p;
                }
                const double z = log_sum(logit.data(), m.n_states[v]);
                for (std::int32_t s = 0; s < m.n_states[v]; ++s) {
                    const double p = std::exp(logit[s] - z);
                    now.residual = std::max(now.residual, std::fabs(p - q[m.base[v] + s]));
                    q[m.base[v] + s] = p;
                }
                ++now.updates;
            }
            now.converged = now.residual < tol;
        }
        now.log_z = 0;
        for (std::int64_t j = 0; j < m.n_features(); ++j) now.log_z += m.weights[j] * apart(j, -1, nullptr);
        for (const double p : q) now.log_z -= p > 0 ? p * std::log(p) : 0;
        now.marginals = q;
        if (now.log_z > best.log_z) best = now;
    }
    return best;
}

}  // namespace undirected
