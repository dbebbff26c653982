// Mean field: the best of several distributions under which all variables are independent.
#include <algorithm>
#include <cmath>
#include <limits>

#include "hash.hpp"
#include "log_sum.hpp"
#include "messages.hpp"

namespace undirected {
namespace {

class MeanField {
public:
    explicit MeanField(const Model& model) : m_(model), of_(model.n_variables()), q_(model.n_literals()) {
        for (std::int64_t j = 0; j < m_.n_features(); ++j)
            for (std::int64_t k = m_.start[j]; k < m_.start[j + 1]; ++k) {
                auto& mine = of_[m_.numbers.variable(m_.literals[k])];
                if (mine.empty() || mine.back() != j) mine.push_back(j);
            }
    }

    // From even marginals in the first attempt, from random ones in the others.
    Approximation run(int attempt, double tol, std::int64_t max_rounds, std::uint64_t seed) {
        Approximation out;
        begin(attempt, seed);
        for (std::int64_t round = 0; round < max_rounds && !out.converged; ++round) {
            out.residual = 0;
            for (std::int32_t v = 0; v < m_.n_variables(); ++v) out.residual = std::max(out.residual, update(v));
            out.updates += m_.n_variables();
            out.converged = out.residual < tol;
        }
        out.log_z = 0;
        for (std::int64_t j = 0; j < m_.n_features(); ++j) out.log_z += m_.weights[j] * apart(j, -1, nullptr);
        for (const double p : q_) out.log_z -= p > 0 ? p * std::log(p) : 0;
        out.marginals = q_;
        return out;
    }

private:
    void begin(int attempt, std::uint64_t seed) {
        const std::uint64_t turn = mix(seed + std::uint64_t(attempt));
        for (std::int32_t v = 0; v < m_.n_variables(); ++v) {
            double total = 0;
            for (std::int32_t l = m_.numbers.first(v); l < m_.numbers.end(v); ++l)
                total += q_[l] = attempt == 0 ? 1.0 : 0.01 + double(mix(turn ^ std::uint64_t(l)) >> 11) * 0x1p-53;
            for (std::int32_t l = m_.numbers.first(v); l < m_.numbers.end(v); ++l) q_[l] /= total;
        }
    }

    // A variable's marginals from those of all others; returns the largest change.
    double update(std::int32_t v) {
        logit_.assign(m_.n_states[v], 0.0);
        for (const std::int64_t j : of_[v]) {
            allowed_.assign(m_.n_states[v], 1);
            const double p = apart(j, v, &allowed_);
            for (std::int32_t s = 0; s < m_.n_states[v]; ++s)
                if (allowed_[s]) logit_[s] += m_.weights[j] * p;
        }
        const double z = log_sum(logit_.data(), m_.n_states[v]);
        double change = 0;
        for (std::int32_t s = 0; s < m_.n_states[v]; ++s) {
            const double p = std::exp(logit_[s] - z);
            change = std::max(change, std::fabs(p - q_[m_.numbers.number(v, s)]));
            q_[m_.numbers.number(v, s)] = p;
        }
        return change;
    }

    // The probability that a feature's literals hold, those on one variable left out; and which of its states they allow.
    double apart(std::int64_t j, std::int32_t v, std::vector<std::uint8_t>* allowed) const {
        double product = 1;
        for (std::int64_t k = m_.start[j]; k < m_.start[j + 1];) {
            const std::int32_t u = m_.numbers.variable(m_.literals[k]);
            double p = m_.numbers.negated(m_.literals[k]) ? 1 : 0;
            for (; k < m_.start[j + 1] && m_.numbers.variable(m_.literals[k]) == u; ++k) {
                const std::int32_t l = m_.literals[k];
                p = m_.numbers.negated(l) ? p - q_[m_.numbers.positive(l)] : q_[l];
                if (u == v && allowed != nullptr)
                    for (std::int32_t s = 0; s < m_.n_states[v]; ++s)
                        if (!m_.numbers.holds(l, s)) (*allowed)[s] = 0;
            }
            if (u != v) product *= p;
        }
        return product;
    }

    const Model& m_;
    std::vector<std::vector<std::int64_t>> of_;  // features of a variable
    std::vector<double> q_, logit_;              // marginals by literal; one variable's logits
    std::vector<std::uint8_t> allowed_;
};

}  // namespace

Approximation mean_field(const Model& model, double tol, std::int64_t max_rounds, int tries, std::uint64_t seed) {
    MeanField field(model);
    Approximation best = field.run(0, tol, max_rounds, seed);
    for (int attempt = 1; attempt < tries; ++attempt) {
        Approximation other = field.run(attempt, tol, max_rounds, seed);
        if (other.log_z > best.log_z) best = std::move(other);
    }
    return best;
}

}  // namespace undirected
