#include "gibbs.hpp"

#include <algorithm>
#include <cstdlib>

#include "dispatch.hpp"
#include "gibbs_program.hpp"
#include "hash.hpp"
#include "pool.hpp"

namespace undirected {

namespace {

constexpr std::int64_t SWEEPS_IN_SINGLE = 256;  // added up in single precision before they join the others

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

std::shared_ptr<const Compiled> Sampler::compiled(std::int64_t block) const {
    if (shared_) return shared_;
    const std::int64_t first = block * CHAINS;
    const int n = int(std::min<std::int64_t>(CHAINS, n_chains() - first));
    std::vector<const std::uint8_t*> evidence(n);
    std::vector<const std::int16_t*> states(n);
    for (int k = 0; k < n; ++k) {
        evidence[k] = evidence_.data() + std::size_t(row_of_[first + k]) * std::size_t(model_.n_literals());
        states[k] = states_.data() + std::size_t(first + k) * std::size_t(model_.n_variables());
    }
    return compile(model_, evidence.data(), states.data(), n, order_);
}

// In which of a block's chains each literal holds, then the negations. Lanes beyond the last chain repeat it.
std::vector<std::uint64_t> Sampler::pack(const Compiled& made, std::int64_t block) const {
    const Program& p = made.program;
    const std::size_t n = std::size_t(p.n_literals);
    std::vector<std::uint64_t> words(2 * n);
    const std::int64_t first = block * CHAINS, last = std::min(n_chains(), first + CHAINS) - 1;
    for (int k = 0; k < CHAINS; ++k) {
        const std::int16_t* state = states_.data() + std::size_t(std::min(first + k, last)) * std::size_t(model_.n_variables());
        for (std::int32_t h = 0; h < p.n_hidden; ++h) words[p.base[h] + state[made.variable[h]]] |= std::uint64_t(1) << k;
    }
    for (std::size_t l = 0; l < n; ++l) words[n + l] = ~words[l];
    return words;
}

// The states and the sums of a block's chains, after so many sweeps.
void Sampler::unpack(const Compiled& made, std::int64_t block, const Chains& c, bool collect, std::int64_t n_sweeps) {
    const Program& p = made.program;
    const std::int64_t first = block * CHAINS;
    const int chains = int(std::min<std::int64_t>(CHAINS, n_chains() - first));
    for (int k = 0; k < chains; ++k) {
        std::int16_t* state = states_.data() + std::size_t(first + k) * std::size_t(model_.n_variables());
        float* sum = collect ? sums_.data() + std::size_t(first + k) * std::size_t(model_.n_literals()) : nullptr;
        float* square = collect ? squares_.data() + std::size_t(first + k) * std::size_t(model_.n_literals()) : nullptr;
        log_weight_[first + k] += c.log_weight[k];
        for (std::int32_t h = 0; h < p.n_hidden; ++h) {
            const std::int32_t v = made.variable[h];
            for (std::int32_t t = 0; t < p.n_states[h]; ++t)
                if (c.words[p.base[h] + t] >> k & 1) state[v] = std::int16_t(t);
            if (!collect) continue;
            for (std::int32_t t = 0; t < p.n_states[h]; ++t) {
                const std::int32_t literal = model_.numbers.number(v, t);
                const std::size_t at = std::size_t(p.base[h] + t) * CHAINS + std::size_t(k);
                if (p.n_states[h] == 2 && t == 0) {  // only the second state's was added up
                    const float high = c.sums[at + CHAINS], n_all = float(n_sweeps);
                    sum[literal] += n_all - high;
                    square[literal] += n_all - 2 * high + c.squares[at + CHAINS];
                } else {
                    sum[literal] += c.sums[at];
                    square[literal] += c.squares[at];
                }
            }
        }
    }
}

void Sampler::run_block(std::int64_t block, const Schedule& schedule) {
    const auto made = compiled(block);
    const Program& p = made->program;
    const std::size_t n = std::size_t(p.n_literals);
    std::vector<std::uint64_t> words = pack(*made, block);
    std::int32_t most = 2;
    for (std::int32_t h = 0; h < p.n_hidden; ++h) most = std::max(most, p.n_states[h]);
    for (std::int32_t k = 0; k < p.n_groups; ++k) most = std::max(most, p.group_start[k + 1] - p.group_start[k]);
    std::vector<float> reference;
    if (schedule.reference != nullptr) {
        reference.resize(n);
        for (std::int32_t h = 0; h < p.n_hidden; ++h)
            for (std::int32_t s = 0; s < p.n_states[h]; ++s)
                reference[p.base[h] + s] = schedule.reference[model_.numbers.number(made->variable[h], s)];
    }
    std::vector<float> local(schedule.collect ? 2 * n * CHAINS : 0, 0.0f), summed(local.size(), 0.0f);  // sums, then squares
    const std::size_t squares = schedule.collect ? n * CHAINS : 0;
    std::vector<double> log_weight(CHAINS, 0.0);
    const Aligned scratch(std::size_t(most) * CHAINS);
    Chains c{words.data(), random_.data() + 32 * block, local.data(), local.data() + squares, log_weight.data(), beta_[block]};
    for (std::int64_t done = 0; done < schedule.n_sweeps; done += SWEEPS_IN_SINGLE) {
        Schedule part = schedule;
        part.n_sweeps = std::min(SWEEPS_IN_SINGLE, schedule.n_sweeps - done);
        part.beta = schedule.beta == nullptr ? nullptr : schedule.beta + done;
        part.reference = schedule.reference == nullptr ? nullptr : reference.data();
        UNDIRECTED_DISPATCH(sweep(p, part, c, scratch.data));
        for (std::size_t k = 0; k < local.size(); ++k) summed[k] += local[k], local[k] = 0;
    }
    c.sums = summed.data();
    c.squares = summed.data() + squares;
    beta_[block] = c.beta;
    unpack(*made, block, c, schedule.collect, schedule.n_sweeps);
}

void Sampler::run(std::int64_t n_sweeps, const float* beta, const float* reference, bool collect, bool anneal, bool greedy, int n_threads) {
    if (!shared_ && n_chains() >= CHAINS && std::all_of(row_of_.begin(), row_of_.end(), [&](std::int32_t r) { return r == row_of_[0]; })) {
        // The first block is full, so that its program fits every other one.
        shared_ = compiled(0);
    }
    if (collect && sums_.empty()) {
        sums_.assign(row_of_.size() * std::size_t(model_.n_literals()), 0.0f);
        squares_.assign(sums_.size(), 0.0f);
    }
    const Schedule schedule{n_sweeps, beta, reference, collect, anneal, greedy};  // the reference by literal of the whole model
    parallel_for((n_chains() + CHAINS - 1) / CHAINS, n_threads, [&](std::int64_t block) { run_block(block, schedule); });
}

void Sampler::scores(double* out, int n_threads) const {
    parallel_for((n_chains() + CHAINS - 1) / CHAINS, n_threads, [&](std::int64_t block) {
        const auto made = compiled(block);
        const std::vector<std::uint64_t> words = pack(*made, block);
        double found[CHAINS];
        UNDIRECTED_DISPATCH(score(made->program, words.data(), found));
        std::copy_n(found, std::min<std::int64_t>(CHAINS, n_chains() - block * CHAINS), out + block * CHAINS);
    });
}

}  // namespace undirected
