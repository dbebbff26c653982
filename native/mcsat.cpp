#include "mcsat.hpp"

#include <algorithm>
#include <cmath>

#include "hash.hpp"
#include "junction_tree.hpp"

namespace undirected {
namespace {

struct Random {
    std::uint64_t state;
    std::uint64_t word() { return mix(state++); }
    double uniform() { return double(word() >> 11) * 0x1p-53; }
    std::int64_t below(std::int64_t n) { return std::int64_t(uniform() * double(n)); }
};

bool literal_holds(const Model& m, std::int32_t l, const std::int32_t* state) { return m.numbers.holds(l, state[m.numbers.variable(l)]); }

// States in which no feature of a model holds: found by a mixture of WalkSAT and annealing steps at a fixed temperature
// (Wei, Erenrich and Selman 2004), or moved about by steps that keep every feature false and leave the even distribution as it is.
class SampleSat {
public:
    SampleSat(const Model& model, const std::vector<std::int32_t>& members, const SatOptions& options, Random& random)
        : m_(model),
          members_(members),
          o_(options),
          random_(random),
          of_(model.n_variables()),
          missing_(model.n_features(), 0),
          at_(model.n_features(), -1) {
        std::vector<std::uint8_t> mine(model.n_variables(), 0);
        for (const std::int32_t v : members) mine[v] = 1;
        for (std::int64_t j = 0; j < model.n_features(); ++j)
            for (std::int64_t k = model.start[j]; k < model.start[j + 1]; ++k) {
                const std::int32_t v = model.numbers.variable(model.literals[k]);
                if (mine[v] && (of_[v].empty() || of_[v].back() != j)) of_[v].push_back(j);
            }
    }

    bool run(std::vector<std::int32_t>& state) {
        for (const std::int32_t v : members_) state[v] = std::int32_t(random_.below(m_.n_states[v]));
        count(state);
        for (std::int64_t step = 0; step < o_.max_steps && !true_.empty(); ++step) {
            if (random_.uniform() < o_.walk)
                walk(state);
            else
                anneal(state);
        }
        if (!true_.empty()) return false;
        stir(state);
        return true;
    }

    // From a state in which no feature holds to another one.
    void move_on(std::vector<std::int32_t>& state) {
        count(state);
        stir(state);
    }

private:
    void stir(std::vector<std::int32_t>& state) {
        for (int round = 0; round < 3; ++round)
            for (const std::int32_t v : members_) resample(state, v);
    }

    void count(const std::vector<std::int32_t>& state) {
        true_.clear();
        for (const std::int32_t v : members_)
            for (const std::int64_t j : of_[v]) {
                if (first_variable(j) != v) continue;
                missing_[j] = 0;
                at_[j] = -1;
                for (std::int64_t k = m_.start[j]; k < m_.start[j + 1]; ++k)
                    missing_[j] += !literal_holds(m_, m_.literals[k], state.data());
                if (missing_[j] == 0) enter(j);
            }
    }

    std::int32_t first_variable(std::int64_t j) const { return m_.numbers.variable(m_.literals[m_.start[j]]); }

    void enter(std::int64_t j) {
        at_[j] = std::int64_t(true_.size());
        true_.push_back(j);
    }
    void leave(std::int64_t j) {
        true_[at_[j]] = true_.back();
        at_[true_[at_[j]]] = at_[j];
        true_.pop_back();
        at_[j] = -1;
    }

    std::int32_t missing_after(std::int64_t j, const std::vector<std::int32_t>& state, std::int32_t v, std::int32_t s) const {
        std::int32_t out = missing_[j];
        for (std::int64_t k = m_.start[j]; k < m_.start[j + 1]; ++k) {
            const std::int32_t l = m_.literals[k];
            if (m_.numbers.variable(l) != v) continue;
            out += literal_holds(m_, l, state.data());
            out -= m_.numbers.holds(l, s);
        }
        return out;
    }

    // How many more features would hold.
    std::int32_t cost(const std::vector<std::int32_t>& state, std::int32_t v, std::int32_t s) const {
        std::int32_t change = 0;
        for (const std::int64_t j : of_[v]) change += (missing_after(j, state, v, s) == 0) - (missing_[j] == 0);
        return change;
    }

    void move(std::vector<std::int32_t>& state, std::int32_t v, std::int32_t s) {
        for (const std::int64_t j : of_[v]) {
            const std::int32_t after = missing_after(j, state, v, s);
            if (missing_[j] == 0 && after != 0) leave(j);
            if (missing_[j] != 0 && after == 0) enter(j);
            missing_[j] = after;
        }
        state[v] = s;
    }

    void walk(std::vector<std::int32_t>& state) {
        const std::int64_t j = true_[random_.below(std::int64_t(true_.size()))];
        const std::int64_t length = m_.start[j + 1] - m_.start[j];
        const bool noise = random_.uniform() < 0.5;
        std::int32_t best_v = -1, best_s = 0, best = 1 << 30;
        const std::int64_t pick = random_.below(length);
        for (std::int64_t k = 0; k < length; ++k) {
            if (noise && k != pick) continue;
            const std::int32_t v = m_.numbers.variable(m_.literals[m_.start[j] + k]);
            for (std::int32_t s = 0; s < m_.n_states[v]; ++s) {
                if (s == state[v] || missing_after(j, state, v, s) == 0) continue;
                const std::int32_t c = noise ? std::int32_t(random_.below(1 << 20)) : cost(state, v, s);
                if (c < best) best = c, best_v = v, best_s = s;
            }
        }
        if (best_v >= 0) move(state, best_v, best_s);
    }

    void anneal(std::vector<std::int32_t>& state) {
        const std::int32_t v = members_[random_.below(std::int64_t(members_.size()))];
        std::int32_t s = std::int32_t(random_.below(m_.n_states[v] - 1));
        s += s >= state[v];
        const std::int32_t change = cost(state, v, s);
        if (change <= 0 || random_.uniform() < std::exp(-change / o_.temperature)) move(state, v, s);
    }

    void resample(std::vector<std::int32_t>& state, std::int32_t v) {
        std::vector<std::int32_t> open;
        for (std::int32_t s = 0; s < m_.n_states[v]; ++s)
            if (s == state[v] || cost(state, v, s) == 0) open.push_back(s);
        const std::int32_t s = open[random_.below(std::int64_t(open.size()))];
        if (s != state[v]) move(state, v, s);
    }

    const Model& m_;
    const std::vector<std::int32_t>& members_;
    const SatOptions& o_;
    Random& random_;
    std::vector<std::vector<std::int64_t>> of_;
    std::vector<std::int32_t> missing_;    // literals that do not hold, by feature
    std::vector<std::int64_t> at_, true_;  // features that hold, and where they are in that list
};

class Chain {
public:
    Chain(const Model& model, const SatOptions& options)
        : m_(model), o_(options), random_{mix(options.seed)}, state_(model.n_variables()) {}

    SatSums run() {
        SatSums out;
        out.sums.assign(m_.n_literals(), 0.0);
        for (std::int32_t v = 0; v < m_.n_variables(); ++v) state_[v] = std::int32_t(random_.below(m_.n_states[v]));
        if (!o_.first.empty()) state_ = o_.first;
        out.feasible = o_.first.empty() ? first_state() : meets_rules();
        for (std::int64_t k = 0; out.feasible && k < o_.burn_in + o_.samples; ++k) {
            out.failed += !slice();
            if (k < o_.burn_in) continue;
            for (std::int32_t v = 0; v < m_.n_variables(); ++v) out.sums[m_.numbers.number(v, state_[v])] += 1;
        }
        out.state.assign(state_.begin(), state_.end());
        return out;
    }

private:
    bool holds(std::int64_t j) const {
        for (std::int64_t k = m_.start[j]; k < m_.start[j + 1]; ++k)
            if (!literal_holds(m_, m_.literals[k], state_.data())) return false;
        return true;
    }

    bool meets_rules() const {
        for (std::int64_t j = 0; j < m_.n_features(); ++j)
            if (std::fabs(m_.weights[j]) >= o_.hard && (m_.weights[j] > 0) != holds(j)) return false;
        return true;
    }

    // A state that meets every hard feature; the features asked to hold come as evidence, the others as constraints.
    bool first_state() {
        std::vector<std::uint8_t> kept(m_.n_features());
        bool any = false;
        for (std::int64_t j = 0; j < m_.n_features(); ++j) any |= kept[j] = std::fabs(m_.weights[j]) >= o_.hard;
        return !any || find(kept, true);
    }

    bool slice() {
        std::vector<std::uint8_t> kept(m_.n_features());
        for (std::int64_t j = 0; j < m_.n_features(); ++j) {
            const double w = m_.weights[j];
            kept[j] = (w > 0) == holds(j) && random_.uniform() < -std::expm1(-std::fabs(w));
        }
        return find(kept, false);
    }

    // A random state among those that keep the marked features as their weights want them. From scratch, the state need not keep them
    // yet, and it is false if none was found. Otherwise parts too large to be drawn evenly are moved about: that leaves the even
    // distribution over the slice as it is, which drawing anew by SampleSAT would not.
    bool find(const std::vector<std::uint8_t>& kept, bool scratch) {
        std::vector<std::uint8_t> open(m_.n_literals(), 1);
        Model rules;
        rules.n_states = m_.n_states;
        rules.number_literals();
        rules.start.push_back(0);
        for (std::int64_t j = 0; j < m_.n_features(); ++j) {
            if (!kept[j]) continue;
            if (m_.weights[j] > 0) {
                for (std::int64_t k = m_.start[j]; k < m_.start[j + 1]; ++k) {
                    const std::int32_t l = m_.literals[k], v = m_.numbers.variable(l);
                    for (std::int32_t t = m_.numbers.first(v); t < m_.numbers.end(v); ++t)
                        if (!m_.numbers.holds(l, m_.numbers.state(t))) open[t] = 0;
                }
            } else {
                rules.literals.insert(rules.literals.end(), m_.literals.begin() + m_.start[j], m_.literals.begin() + m_.start[j + 1]);
                rules.start.push_back(std::int64_t(rules.literals.size()));
                rules.weights.push_back(-RULE);
            }
        }
        if (scratch)
            for (std::int32_t v = 0; v < m_.n_variables(); ++v)
                if (std::none_of(open.begin() + m_.numbers.first(v), open.begin() + m_.numbers.end(v), [](std::uint8_t o) { return o; }))
                    return false;
        const Reduced left(rules, open.data());
        if (scratch && left.constant < 0) return false;
        std::vector<std::int32_t> local(left.model.n_variables());
        bool all = true;
        for (const Component& part : components_of(left.model, o_.max_cells, 1, 0)) {
            bool found = true;
            if (part.solvable()) {
                JunctionTree tree(left.model, part);
                found = tree.collect(false) > -RULE / 2;
                tree.draw(random_.word(), 0, local.data());
            } else if (scratch) {
                found = SampleSat(left.model, part.members, o_, random_).run(local);
            } else {
                for (const std::int32_t v : part.members) local[v] = here(left, v);
                SampleSat(left.model, part.members, o_, random_).move_on(local);
            }
            all = all && found;
            if (found)
                for (const std::int32_t v : part.members) set(left, v, local[v]);
        }
        if (scratch || all)
            for (std::int32_t v = 0; v < m_.n_variables(); ++v)
                if (std::count(open.begin() + m_.numbers.first(v), open.begin() + m_.numbers.end(v), 1) == 1)
                    state_[v] =
                        std::int32_t(std::find(open.begin() + m_.numbers.first(v), open.begin() + m_.numbers.end(v), 1) - open.begin()) -
                        m_.numbers.first(v);
        return all;
    }

    void set(const Reduced& left, std::int32_t v, std::int32_t s) {
        state_[left.variable[v]] = left.literal[left.model.numbers.number(v, s)] - m_.numbers.first(left.variable[v]);
    }

    std::int32_t here(const Reduced& left, std::int32_t v) const {
        const std::int32_t whole = left.variable[v], literal = m_.numbers.number(whole, state_[whole]);
        const auto first = left.literal.begin() + left.model.numbers.first(v);
        return std::int32_t(std::find(first, left.literal.begin() + left.model.numbers.end(v), literal) - first);
    }

    static constexpr double RULE = 1e5;
    const Model& m_;
    const SatOptions o_;
    Random random_;
    std::vector<std::int32_t> state_;
};

}  // namespace

SatSums mcsat(const Model& model, const SatOptions& options) { return Chain(model, options).run(); }

}  // namespace undirected
