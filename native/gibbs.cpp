#include "gibbs.hpp"

#include <algorithm>
#include <cstdlib>
#include <unordered_map>

#include "hash.hpp"
#include "pool.hpp"
#include "table_kernels.hpp"

namespace undirected {

// The arrays of a program.
struct Compiled {
    std::vector<std::int32_t> variable;  // hidden variables, in the order of the sweep
    std::vector<std::int32_t> n_states, base, literals, part_literals, vector;
    std::vector<std::uint64_t> free, alive;
    std::vector<std::int64_t> context_start, part_start;
    std::vector<Context> contexts;
    std::vector<float> weight, vectors, unary;
    std::vector<double> constant;
    std::vector<std::int32_t> group_start, group_members, group_of;
    Program program;

    void finish() {
        program = {std::int32_t(variable.size()),
                   base.back(),
                   n_states.data(),
                   base.data(),
                   free.data(),
                   context_start.data(),
                   contexts.data(),
                   literals.data(),
                   std::int64_t(weight.size()),
                   part_start.data(),
                   part_literals.data(),
                   weight.data(),
                   vector.data(),
                   vectors.data(),
                   alive.data(),
                   unary.data(),
                   constant.data(),
                   std::int32_t(group_start.size()) - 1,
                   group_start.data(),
                   group_members.data(),
                   group_of.data()};
    }
};

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
        out_->base.push_back(0);
        for (const std::int32_t v : order) {
            std::uint64_t free = 0;
            for (int k = 0; k < n_; ++k) {
                int allowed = 0;
                for (std::int32_t l = model_.base[v]; l < model_.base[v + 1]; ++l) allowed += evidence_[k][l] != 0;
                if (allowed > 1) free |= std::uint64_t(1) << k;
                const std::uint64_t bit = std::uint64_t(1) << k;
                words_[model_.base[v] + states_[k][v]] |= bit;
            }
            for (std::int32_t l = model_.base[v]; l < model_.base[v + 1]; ++l) words_[model_.n_literals() + l] = ~words_[l];
            if (!free) continue;
            hidden_[v] = std::int32_t(out_->variable.size());
            out_->variable.push_back(v);
            out_->n_states.push_back(model_.n_states[v]);
            out_->free.push_back(free);
            out_->base.push_back(out_->base.back() + model_.n_states[v]);
        }
        out_->unary.assign(std::size_t(out_->base.back()) * CHAINS, 0.0f);
        out_->constant.assign(CHAINS, 0.0);
        for (std::size_t h = 0; h < out_->variable.size(); ++h) {
            const std::int32_t v = out_->variable[h];
            for (std::int32_t s = 0; s < model_.n_states[v]; ++s)
                for (int k = 0; k < n_; ++k)
                    if (out_->free[h] >> k & 1 && !evidence_[k][model_.base[v] + s])
                        out_->unary[std::size_t(out_->base[h] + s) * CHAINS + std::size_t(k)] = IMPOSSIBLE;
        }
    }

    void gather() {
        const std::int32_t n = model_.n_literals();
        std::vector<std::int32_t> rest;
        std::unordered_multimap<std::uint64_t, std::int32_t> known;
        out_->part_start.push_back(0);
        for (std::int64_t j = 0; j < model_.n_features(); ++j) {
            std::uint64_t alive = active_;
            rest.clear();
            for (std::int64_t k = model_.start[j]; k < model_.start[j + 1] && alive; ++k) {
                const std::int32_t l = model_.literals[k], v = model_.literal_variable[l % n], h = hidden_[v];
                if (h < 0) {
                    alive &= words_[l];
                    continue;
                }
                const std::int32_t local = out_->base[h] + l % n - model_.base[v];
                rest.push_back(l < n ? local : out_->base.back() + local);
            }
            if (!alive) continue;
            const float weight = float(model_.weights[j]);
            if (rest.empty()) {
                each(alive, [&](int k) { out_->constant[k] += model_.weights[j]; });
            } else if (rest.size() == 1 && rest[0] < out_->base.back()) {
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
        const std::int32_t n = out_->base.back();
        std::vector<std::int32_t> owner(n);
        for (std::size_t h = 0; h < out_->variable.size(); ++h)
            std::fill(owner.begin() + out_->base[h], owner.begin() + out_->base[h + 1], std::int32_t(h));
        std::vector<std::vector<Context>> by_variable(out_->variable.size());
        for (std::int32_t j = 0; j < std::int32_t(out_->weight.size()); ++j) {
            const std::int32_t* first = out_->part_literals.data() + out_->part_start[j];
            const std::int64_t length = out_->part_start[j + 1] - out_->part_start[j];
            for (std::int64_t a = 0; a < length; ++a) {
                const std::int32_t h = owner[first[a] % n], state = first[a] % n - out_->base[h];
                const std::int64_t at = std::int64_t(out_->literals.size());
                for (std::int64_t b = 0; b < length; ++b)
                    if (owner[first[b] % n] != h) out_->literals.push_back(first[b]);
                // "is not s" for everyone is the same as taking the weight from s.
                float sign = first[a] < n ? 1.0f : -1.0f;
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
        const std::int32_t n_literals = out_->base.back();
        std::vector<std::int32_t> second(n_literals, -1);
        for (std::size_t h = 0; h < n; ++h)
            if (out_->n_states[h] == 2) second[out_->base[h] + 1] = std::int32_t(h);
        std::vector<std::vector<std::int32_t>> near(n);
        for (std::size_t j = 0; j < out_->weight.size(); ++j) {
            const std::int64_t first = out_->part_start[j];
            if (out_->part_start[j + 1] - first != 2 || out_->vector[j] >= 0 || out_->weight[j] > SHUN) continue;
            const std::int32_t a = out_->part_literals[first], b = out_->part_literals[first + 1];
            if (a >= n_literals || b >= n_literals || second[a] < 0 || second[b] < 0) continue;
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

struct Aligned {
    float* data;
    explicit Aligned(std::size_t n) : data(static_cast<float*>(std::aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64))) {
        if (data == nullptr) throw std::bad_alloc();
    }
    ~Aligned() { std::free(data); }
    Aligned(const Aligned&) = delete;
    Aligned& operator=(const Aligned&) = delete;
};

}  // namespace

Sampler::Sampler(const Model& model, std::vector<std::uint8_t> evidence, std::vector<std::int32_t> row_of, std::vector<std::int16_t> states,
                 std::vector<std::int32_t> order, std::uint64_t seed)
    : model_(model), evidence_(std::move(evidence)), row_of_(std::move(row_of)), order_(std::move(order)), states_(std::move(states)) {
    const std::size_t blocks = (row_of_.size() + CHAINS - 1) / CHAINS;
    random_.resize(blocks * 32);
    for (std::size_t k = 0; k < random_.size(); k += 2) {
        const std::uint64_t word = mix(mix(seed) ^ mix(k + 1));
        random_[k] = std::uint32_t(word);
        random_[k + 1] = std::uint32_t(word >> 32) | 1;  // never all zero
    }
    beta_.assign(blocks, 0.0f);
    log_weight_.assign(row_of_.size(), 0.0);
}

Sampler::~Sampler() = default;

void Sampler::reset() {
    std::fill(sums_.begin(), sums_.end(), 0.0f);
    std::fill(squares_.begin(), squares_.end(), 0.0f);
}

std::shared_ptr<const Compiled> Sampler::compiled(std::int64_t block) {
    if (shared_) return shared_;
    const std::int64_t first = block * CHAINS;
    const int n = int(std::min<std::int64_t>(CHAINS, n_chains() - first));
    std::vector<const std::uint8_t*> evidence(n);
    std::vector<const std::int16_t*> states(n);
    for (int k = 0; k < n; ++k) {
        evidence[k] = evidence_.data() + std::size_t(row_of_[first + k]) * std::size_t(model_.n_literals());
        states[k] = states_.data() + std::size_t(first + k) * std::size_t(model_.n_variables());
    }
    return Compiler(model_, evidence.data(), states.data(), n, order_).result();
}

constexpr std::int64_t RUN = 256;  // sweeps whose probabilities are added up in single precision before they join the others

void Sampler::run(std::int64_t n_sweeps, const float* beta, const float* reference, bool collect, bool anneal, bool greedy, int n_threads) {
    const std::int64_t blocks = (n_chains() + CHAINS - 1) / CHAINS;
    if (!shared_ && n_chains() >= CHAINS && std::all_of(row_of_.begin(), row_of_.end(), [&](std::int32_t r) { return r == row_of_[0]; })) {
        // The first block is full, so that its program fits every other one.
        shared_ = compiled(0);
    }
    if (collect && sums_.empty()) {
        sums_.assign(row_of_.size() * std::size_t(model_.n_literals()), 0.0f);
        squares_.assign(sums_.size(), 0.0f);
    }
    parallel_for(blocks, n_threads, [&](std::int64_t block) {
        const auto made = compiled(block);
        const Program& p = made->program;
        const std::size_t n = std::size_t(p.n_literals), width = std::size_t(model_.n_literals());
        std::vector<std::uint64_t> words(2 * n);
        const std::int64_t first = block * CHAINS;
        const int chains = int(std::min<std::int64_t>(CHAINS, n_chains() - first));
        std::int32_t most = 2;
        for (int k = 0; k < CHAINS; ++k) {  // lanes beyond the last chain repeat it
            const std::int16_t* state = states_.data() + std::size_t(first + std::min(k, chains - 1)) * std::size_t(model_.n_variables());
            for (std::int32_t h = 0; h < p.n_hidden; ++h) words[p.base[h] + state[made->variable[h]]] |= std::uint64_t(1) << k;
        }
        for (std::int32_t h = 0; h < p.n_hidden; ++h) most = std::max(most, p.n_states[h]);
        for (std::int32_t k = 0; k < p.n_groups; ++k) most = std::max(most, p.group_start[k + 1] - p.group_start[k]);
        for (std::size_t l = 0; l < n; ++l) words[n + l] = ~words[l];
        std::vector<float> mine;
        std::vector<float> local(collect ? 2 * n * CHAINS : 0, 0.0f);
        if (reference != nullptr) {
            mine.resize(n);
            for (std::int32_t h = 0; h < p.n_hidden; ++h)
                for (std::int32_t s = 0; s < p.n_states[h]; ++s) mine[p.base[h] + s] = reference[model_.base[made->variable[h]] + s];
        }
        std::vector<double> log_weight(CHAINS, 0.0);
        Aligned scratch(std::size_t(most) * CHAINS);
        Chains c{words.data(), random_.data() + 32 * block, local.data(), local.data() + (collect ? n * CHAINS : 0), log_weight.data(),
                 beta_[block]};
        std::vector<float> summed(local.size(), 0.0f);
        for (std::int64_t done = 0; done < n_sweeps; done += RUN) {
            const Schedule s{std::min(RUN, n_sweeps - done),
                             beta == nullptr ? nullptr : beta + done,
                             reference == nullptr ? nullptr : mine.data(),
                             collect,
                             anneal,
                             greedy};
            UNDIRECTED_DISPATCH(sweep(p, s, c, scratch.data));
            for (std::size_t k = 0; k < local.size(); ++k) summed[k] += local[k], local[k] = 0;
        }
        std::swap(summed, local);
        c.sums = local.data();
        c.squares = local.data() + (collect ? n * CHAINS : 0);
        beta_[block] = c.beta;
        for (int k = 0; k < chains; ++k) {
            std::int16_t* state = states_.data() + std::size_t(first + k) * std::size_t(model_.n_variables());
            float* sum = collect ? sums_.data() + std::size_t(first + k) * width : nullptr;
            float* square = collect ? squares_.data() + std::size_t(first + k) * width : nullptr;
            log_weight_[first + k] += log_weight[k];
            for (std::int32_t h = 0; h < p.n_hidden; ++h) {
                const std::int32_t v = made->variable[h];
                for (std::int32_t t = 0; t < p.n_states[h]; ++t)
                    if (words[p.base[h] + t] >> k & 1) state[v] = std::int16_t(t);
                if (!collect) continue;
                for (std::int32_t t = 0; t < p.n_states[h]; ++t) {
                    const std::size_t at = std::size_t(p.base[h] + t) * CHAINS + std::size_t(k);
                    if (p.n_states[h] == 2 && t == 0) {  // only the second state's was added up
                        const float high = c.sums[at + CHAINS], n_all = float(n_sweeps);
                        sum[model_.base[v]] += n_all - high;
                        square[model_.base[v]] += n_all - 2 * high + c.squares[at + CHAINS];
                    } else {
                        sum[model_.base[v] + t] += c.sums[at];
                        square[model_.base[v] + t] += c.squares[at];
                    }
                }
            }
        }
    });
}

void Sampler::scores(double* out, int n_threads) {
    const std::int64_t blocks = (n_chains() + CHAINS - 1) / CHAINS;
    parallel_for(blocks, n_threads, [&](std::int64_t block) {
        const auto made = compiled(block);
        const Program& p = made->program;
        std::vector<std::uint64_t> words(2 * std::size_t(p.n_literals));
        const std::int64_t first = block * CHAINS;
        const int chains = int(std::min<std::int64_t>(CHAINS, n_chains() - first));
        for (int k = 0; k < chains; ++k) {
            const std::int16_t* state = states_.data() + std::size_t(first + k) * std::size_t(model_.n_variables());
            for (std::int32_t h = 0; h < p.n_hidden; ++h) words[p.base[h] + state[made->variable[h]]] |= std::uint64_t(1) << k;
        }
        for (std::size_t l = 0; l < std::size_t(p.n_literals); ++l) words[std::size_t(p.n_literals) + l] = ~words[l];
        double found[CHAINS];
        UNDIRECTED_DISPATCH(score(p, words.data(), found));
        std::copy(found, found + chains, out + first);
    });
}

}  // namespace undirected
