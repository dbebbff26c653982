#include "gibbs_program.hpp"

#include <algorithm>
#include <unordered_map>

#include "hash.hpp"

namespace undirected {
namespace {

constexpr float IMPOSSIBLE = -1e30f;
constexpr float SHUN = -2.0f;  // the weight of a pair from which on its variables are moved together

std::uint64_t hash_of(const std::vector<std::int32_t>& literals) {
    std::uint64_t h = literals.size();
    for (const std::int32_t l : literals) h = mix(h ^ std::uint64_t(l));
    return h;
}

// Puts together the program of one block of chains.
class Compiler {
public:
    Compiler(const Model& model, const std::uint8_t* const* evidence, const std::int16_t* const* states, int n,
             const std::vector<std::int32_t>& order)
        : model_(model),
          evidence_(evidence),
          states_(states),
          n_(n),
          out_(std::make_shared<Compiled>()),
          hidden_(model.n_variables(), -1),
          words_(2 * std::size_t(model.n_literals())),
          active_(n == CHAINS ? ~std::uint64_t(0) : (std::uint64_t(1) << n) - 1) {
        find_hidden(order);
        gather();
        contexts();
        groups();
        out_->finish();
    }
    std::shared_ptr<const Compiled> result() const { return out_; }

private:
    void find_hidden(const std::vector<std::int32_t>& order) {
        for (const std::int32_t v : order) {
            std::uint64_t free = 0;
            for (int k = 0; k < n_; ++k) {
                int allowed = 0;
                for (std::int32_t l = model_.numbers.first(v); l < model_.numbers.end(v); ++l) allowed += evidence_[k][l] != 0;
                if (allowed > 1) free |= std::uint64_t(1) << k;
                const std::uint64_t bit = std::uint64_t(1) << k;
                words_[model_.numbers.number(v, states_[k][v])] |= bit;
            }
            for (std::int32_t l = model_.numbers.first(v); l < model_.numbers.end(v); ++l) words_[model_.numbers.negation(l)] = ~words_[l];
            if (!free) continue;
            hidden_[v] = std::int32_t(out_->variable.size());
            out_->variable.push_back(v);
            out_->n_states.push_back(model_.n_states[v]);
            out_->free.push_back(free);
            out_->numbers.add_variable(model_.n_states[v]);
        }
        out_->unary.assign(std::size_t(out_->numbers.count()) * CHAINS, 0.0f);
        out_->constant.assign(CHAINS, 0.0);
        for (std::size_t h = 0; h < out_->variable.size(); ++h) {
            const std::int32_t v = out_->variable[h];
            for (std::int32_t s = 0; s < model_.n_states[v]; ++s)
                for (int k = 0; k < n_; ++k)
                    if (out_->free[h] >> k & 1 && !evidence_[k][model_.numbers.number(v, s)])
                        out_->unary[std::size_t(out_->numbers.number(std::int32_t(h), s)) * CHAINS + std::size_t(k)] = IMPOSSIBLE;
        }
    }

    void gather() {
        std::vector<std::int32_t> rest;
        std::unordered_multimap<std::uint64_t, std::int32_t> known;
        out_->part_start.push_back(0);
        for (std::int64_t j = 0; j < model_.n_features(); ++j) {
            std::uint64_t alive = active_;
            rest.clear();
            for (std::int64_t k = model_.start[j]; k < model_.start[j + 1] && alive; ++k) {
                const std::int32_t l = model_.literals[k], h = hidden_[model_.numbers.variable(l)];
                if (h < 0) {
                    alive &= words_[l];
                    continue;
                }
                const std::int32_t local = out_->numbers.number(h, model_.numbers.state(l));
                rest.push_back(model_.numbers.negated(l) ? out_->numbers.negation(local) : local);
            }
            if (!alive) continue;
            const float weight = float(model_.weights[j]);
            if (rest.empty()) {
                each(alive, [&](int k) { out_->constant[k] += model_.weights[j]; });
            } else if (rest.size() == 1 && !out_->numbers.negated(rest[0])) {
                each(alive, [&](int k) { out_->unary[std::size_t(rest[0]) * CHAINS + std::size_t(k)] += weight; });
            } else {
                std::sort(rest.begin(), rest.end());
                add(part(rest, known), alive, weight);
            }
        }
    }

    std::int32_t part(const std::vector<std::int32_t>& rest, std::unordered_multimap<std::uint64_t, std::int32_t>& known) {
        const std::uint64_t h = hash_of(rest);
        const auto range = known.equal_range(h);
        for (auto at = range.first; at != range.second; ++at) {
            const auto first = out_->part_literals.begin() + out_->part_start[at->second];
            const auto last = out_->part_literals.begin() + out_->part_start[at->second + 1];
            if (std::equal(rest.begin(), rest.end(), first, last)) return at->second;
        }
        const std::int32_t made = std::int32_t(out_->weight.size());
        known.emplace(h, made);
        out_->part_literals.insert(out_->part_literals.end(), rest.begin(), rest.end());
        out_->part_start.push_back(std::int64_t(out_->part_literals.size()));
        out_->weight.push_back(0.0f);
        out_->vector.push_back(-1);
        out_->alive.push_back(0);
        return made;
    }

    void add(std::int32_t j, std::uint64_t alive, float weight) {
        if (alive == active_) alive = ~std::uint64_t(0);
        out_->alive[j] |= alive;
        if (out_->vector[j] < 0 && alive == ~std::uint64_t(0)) {
            out_->weight[j] += weight;
            return;
        }
        if (out_->vector[j] < 0) {
            out_->vector[j] = std::int32_t(out_->vectors.size() / CHAINS);
            out_->vectors.insert(out_->vectors.end(), CHAINS, out_->weight[j]);
        }
        float* to = out_->vectors.data() + std::size_t(out_->vector[j]) * CHAINS;
        each(alive, [&](int k) { to[k] += weight; });
    }

    void contexts() {
        std::vector<std::vector<Context>> by_variable(out_->variable.size());
        for (std::int32_t j = 0; j < std::int32_t(out_->weight.size()); ++j) {
            const std::int32_t* first = out_->part_literals.data() + out_->part_start[j];
            const std::int64_t length = out_->part_start[j + 1] - out_->part_start[j];
            for (std::int64_t a = 0; a < length; ++a) {
                const std::int32_t h = out_->numbers.variable(first[a]), state = out_->numbers.state(first[a]);
                const std::int64_t at = std::int64_t(out_->literals.size());
                for (std::int64_t b = 0; b < length; ++b)
                    if (out_->numbers.variable(first[b]) != h) out_->literals.push_back(first[b]);
                // "is not s" for everyone is the same as taking the weight from s.
                float sign = out_->numbers.negated(first[a]) ? -1.0f : 1.0f;
                if (out_->n_states[h] == 2 && state == 0) sign = -sign;
                by_variable[h].push_back({at, std::int32_t(std::int64_t(out_->literals.size()) - at), state, sign, j});
            }
        }
        out_->context_start.push_back(0);
        for (auto& mine : by_variable) {
            // Alike ones together, so that the processor can foresee its way through them.
            std::stable_sort(mine.begin(), mine.end(), [&](const Context& a, const Context& b) {
                return std::pair(out_->vector[a.part] >= 0, a.count) < std::pair(out_->vector[b.part] >= 0, b.count);
            });
            out_->contexts.insert(out_->contexts.end(), mine.begin(), mine.end());
            out_->context_start.push_back(std::int64_t(out_->contexts.size()));
        }
    }

    // Cliques of pairs that shun each other's second states, found greedily.
    void groups() {
        const std::size_t n = out_->variable.size();
        const std::int32_t n_literals = out_->numbers.count();
        std::vector<std::int32_t> second(n_literals, -1);
        for (std::size_t h = 0; h < n; ++h)
            if (out_->n_states[h] == 2) second[out_->numbers.number(std::int32_t(h), 1)] = std::int32_t(h);
        std::vector<std::vector<std::int32_t>> near(n);
        for (std::size_t j = 0; j < out_->weight.size(); ++j) {
            const std::int64_t first = out_->part_start[j];
            if (out_->part_start[j + 1] - first != 2 || out_->vector[j] >= 0 || out_->weight[j] > SHUN) continue;
            const std::int32_t a = out_->part_literals[first], b = out_->part_literals[first + 1];
            if (out_->numbers.negated(a) || out_->numbers.negated(b) || second[a] < 0 || second[b] < 0) continue;
            near[second[a]].push_back(second[b]);
            near[second[b]].push_back(second[a]);
        }
        for (auto& list : near) std::sort(list.begin(), list.end());
        out_->group_of.assign(n, -1);
        out_->group_start.push_back(0);
        std::vector<std::int32_t> order(n);
        for (std::size_t h = 0; h < n; ++h) order[h] = std::int32_t(h);
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return near[a].size() > near[b].size(); });
        for (const std::int32_t h : order) {
            if (out_->group_of[h] >= 0) continue;
            std::vector<std::int32_t> members{h};
            for (const std::int32_t u : near[h]) {
                const bool all = std::all_of(members.begin(), members.end(),
                                             [&](std::int32_t m) { return std::binary_search(near[m].begin(), near[m].end(), u); });
                if (all && out_->group_of[u] < 0) members.push_back(u);
            }
            if (members.size() < 2) continue;
            for (const std::int32_t m : members) out_->group_of[m] = std::int32_t(out_->group_start.size()) - 1;
            out_->group_members.insert(out_->group_members.end(), members.begin(), members.end());
            out_->group_start.push_back(std::int32_t(out_->group_members.size()));
        }
    }

    template <class F>
    void each(std::uint64_t mask, F&& visit) const {
        for (; mask; mask &= mask - 1) visit(__builtin_ctzll(mask));
    }

    const Model& model_;
    const std::uint8_t* const* evidence_;
    const std::int16_t* const* states_;
    const int n_;
    std::shared_ptr<Compiled> out_;
    std::vector<std::int32_t> hidden_;
    std::vector<std::uint64_t> words_;
    const std::uint64_t active_;
};

}  // namespace

std::shared_ptr<const Compiled> compile(const Model& model, const std::uint8_t* const* evidence, const std::int16_t* const* states, int n,
                                        const std::vector<std::int32_t>& order) {
    return Compiler(model, evidence, states, n, order).result();
}

}  // namespace undirected
