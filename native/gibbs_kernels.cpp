// Compiled once per instruction set.
#include "gibbs_kernels.hpp"

#include <bit>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "simd.hpp"

namespace undirected::KERNEL_NAMESPACE {
namespace {

typedef std::uint32_t Words __attribute__((vector_size(32)));
using Floats = Real<float>;

inline std::uint32_t bits_of(Int<float> mask) {
#if defined(__AVX2__)
    return std::uint32_t(_mm256_movemask_ps((__m256)mask));
#else
    std::uint32_t out = 0;
    for (int k = 0; k < 8; ++k) out |= std::uint32_t(mask[k] & 1) << k;
    return out;
#endif
}

// xoshiro128+, eight at a time.
struct Random {
    Words s[4];
    explicit Random(const std::uint32_t* from) {
        for (int k = 0; k < 4; ++k) s[k] = load<Words>(from + 8 * k);
    }
    void keep(std::uint32_t* to) const {
        for (int k = 0; k < 4; ++k) store(s[k], to + 8 * k);
    }
    inline Floats uniform() {  // between 0 and 1 and neither, by the upper 24 bits; what is less likely than 3e-8 is never drawn
        const Words sum = s[0] + s[3];
        const Words t = s[1] << 9;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = (s[3] << 11) | (s[3] >> 21);
        return __builtin_convertvector((Int<float>)(sum >> 8), Floats) * 0x1p-24f + 0x1p-25f;
    }
};

inline std::uint64_t holds(const Program& p, const Context& c, const std::uint64_t* words) {
    std::uint64_t mask = p.alive[c.part];
    const std::int32_t* literal = p.literals + c.first;
    switch (c.count) {  // contexts come sorted by this
        case 0: return mask;
        case 1: return mask & words[literal[0]];
        case 2: return mask & words[literal[0]] & words[literal[1]];
        case 3: return mask & words[literal[0]] & words[literal[1]] & words[literal[2]];
        default:
#pragma GCC unroll 1
            for (std::int32_t k = 0; k < c.count; ++k) mask &= words[literal[k]];
            return mask;
    }
}

constexpr int SCATTERED = 5;  // so many chains or fewer are worked by the byte

inline void add_weight(const Program& p, const Context& c, std::uint64_t mask, Floats* to) {
    if (p.vector[c.part] < 0) {
        const Floats w = fill<float>(p.weight[c.part] * c.sign);
        for (int g = 0; g < 8; ++g) to[g] += (Floats)(spread<float>(std::uint32_t(mask >> (8 * g)) & 255, 0) & (Int<float>)w);
        return;
    }
    const float* w = p.vectors + std::int64_t(p.vector[c.part]) * CHAINS;
    const Int<float> turn = (Int<float>)(fill<float>(c.sign)) & std::int32_t(0x80000000);
    const auto group = [&](int g) {
        to[g] += (Floats)(spread<float>(std::uint32_t(mask >> (8 * g)) & 255, 0) & ((Int<float>)load<Floats>(w + 8 * g) ^ turn));
    };
    if (std::popcount(mask) > SCATTERED) {
        for (int g = 0; g < 8; ++g) group(g);
    } else {
        while (mask) {
            const int g = std::countr_zero(mask) / 8;
            group(g);
            mask &= ~(std::uint64_t(255) << (8 * g));
        }
    }
}

inline void set(Chains& c, const Program& p, std::int32_t literal, std::uint64_t word) {
    c.words[literal] = word;
    c.words[p.n_literals + literal] = ~word;
}

inline void collect(Chains& c, std::int32_t literal, int g, Floats p) {
    float* sum = c.sums + std::int64_t(literal) * CHAINS + 8 * g;
    float* square = c.squares + std::int64_t(literal) * CHAINS + 8 * g;
    store(load<Floats>(sum) + p, sum);
    store(load<Floats>(square) + p * p, square);
}

// The logits of a binary variable's second state.
inline void binary_logits(const Program& p, const Schedule& s, const Chains& c, std::int32_t h, float beta, Floats* logit) {
    const std::int32_t low = p.base[h], high = low + 1;
    for (int g = 0; g < 8; ++g)
        logit[g] = load<Floats>(p.unary + std::int64_t(high) * CHAINS + 8 * g) - load<Floats>(p.unary + std::int64_t(low) * CHAINS + 8 * g);
    for (std::int64_t k = p.context_start[h]; k < p.context_start[h + 1]; ++k) {
        const std::uint64_t mask = holds(p, p.contexts[k], c.words);
        if (mask) add_weight(p, p.contexts[k], mask, logit);  // signs are those of the second state
    }
    const float shift = s.reference == nullptr ? 0 : (1 - beta) * (s.reference[high] - s.reference[low]);
    for (int g = 0; g < 8; ++g) logit[g] = logit[g] * beta + shift;
}

void resample_binary(const Program& p, const Schedule& s, Chains& c, Random& random, std::int32_t h, float beta) {
    const std::int32_t low = p.base[h], high = low + 1;
    Floats logit[8];
    binary_logits(p, s, c, h, beta, logit);
    std::uint64_t drawn = 0;
    const Floats one = fill<float>(1);
    for (int g = 0; g < 8; ++g) {
        const Floats x = logit[g];
        if (s.greedy) {
            const std::uint32_t now = std::uint32_t(c.words[high] >> (8 * g)) & 255;
            drawn |= std::uint64_t(bits_of(x > 0.0f) | (bits_of(x == 0.0f) & now)) << (8 * g);
            continue;
        }
        const Int<float> positive = x > 0.0f;
        const Floats e = exp_negative<float>(choose<float>(positive, -x, x));
        const Floats probability = choose<float>(positive, one, e) / (one + e);
        drawn |= std::uint64_t(bits_of(random.uniform() < probability)) << (8 * g);
        if (s.collect && p.group_of[h] < 0) collect(c, high, g, probability);  // members of groups have been collected
    }
    const std::uint64_t word = (drawn & p.free[h]) | (c.words[high] & ~p.free[h]);
    set(c, p, high, word);
    set(c, p, low, ~word);
}

// Where at most one of a group's variables is in its second state, draws anew which one, or none. What is collected is the
// probability of that draw, and in the other chains the state itself: which chains these are depends on the state, so that a
// probability from another moment would be biased.
void resample_group(const Program& p, const Schedule& s, Chains& c, Random& random, std::int32_t group, float beta, float* scratch) {
    const std::int32_t* members = p.group_members + p.group_start[group];
    const std::int32_t n = p.group_start[group + 1] - p.group_start[group];
    std::uint64_t some = 0, several = 0, open = ~std::uint64_t(0);
    for (std::int32_t k = 0; k < n; ++k) {
        const std::uint64_t word = c.words[p.base[members[k]] + 1];
        several |= some & word;
        some |= word;
        open &= p.free[members[k]];
    }
    open &= ~several;
    for (std::int32_t k = 0; k < n; ++k) {
        const std::int32_t high = p.base[members[k]] + 1;
        set(c, p, high, c.words[high] & ~open);
        set(c, p, high - 1, ~c.words[high]);
    }
    Floats* logit = reinterpret_cast<Floats*>(scratch);  // [n][8]
    for (std::int32_t k = 0; k < n; ++k) binary_logits(p, s, c, members[k], beta, logit + 8 * k);
    for (int g = 0; g < 8; ++g) {
        Floats top{};
        for (std::int32_t k = 0; k < n; ++k) top = choose<float>(logit[8 * k + g] > top, logit[8 * k + g], top);
        Floats total = exp_negative<float>(-top);
        for (std::int32_t k = 0; k < n; ++k) total += logit[8 * k + g] = exp_negative<float>(logit[8 * k + g] - top);
        Floats left = random.uniform() * total - exp_negative<float>(-top);
        std::uint32_t waiting = bits_of(left >= 0.0f) & std::uint32_t(open >> (8 * g)) & 255;
        for (std::int32_t k = 0; k < n; ++k) {
            const Floats e = logit[8 * k + g];
            left -= e;
            const std::uint32_t here = waiting & bits_of(left < 0.0f);  // what rounding leaves over becomes none
            waiting &= ~here;
            const std::int32_t high = p.base[members[k]] + 1;
            if (s.collect) {
                const Int<float> now = spread<float>(std::uint32_t(c.words[high] >> (8 * g)) & 255, 0);
                const Int<float> moved = spread<float>(std::uint32_t(open >> (8 * g)) & 255, 0);
                collect(c, high, g, choose<float>(moved, e / total, (Floats)(now & (Int<float>)fill<float>(1))));
            }
            const std::uint64_t word = c.words[high] | std::uint64_t(here) << (8 * g);
            set(c, p, high, word);
            set(c, p, high - 1, ~word);
        }
    }
}

void resample_many(const Program& p, const Schedule& s, Chains& c, Random& random, std::int32_t h, float beta, float* scratch) {
    const std::int32_t first = p.base[h], n = p.n_states[h];
    Floats* logit = reinterpret_cast<Floats*>(scratch);  // [n][8], aligned by the caller
    for (std::int32_t t = 0; t < n; ++t)
        for (int g = 0; g < 8; ++g) logit[8 * t + g] = load<Floats>(p.unary + std::int64_t(first + t) * CHAINS + 8 * g);
    for (std::int64_t k = p.context_start[h]; k < p.context_start[h + 1]; ++k) {
        const std::uint64_t mask = holds(p, p.contexts[k], c.words);
        if (mask) add_weight(p, p.contexts[k], mask, logit + 8 * p.contexts[k].state);
    }
    for (int g = 0; g < 8; ++g) {
        Floats top = fill<float>(-3e38f);
        for (std::int32_t t = 0; t < n; ++t) {
            Floats& x = logit[8 * t + g];
            x = x * beta + (s.reference == nullptr ? 0 : (1 - beta) * s.reference[first + t]);
            top = choose<float>(x > top, x, top);
        }
        Floats total{};
        for (std::int32_t t = 0; t < n; ++t) total += logit[8 * t + g] = exp_negative<float>(logit[8 * t + g] - top);
        Floats left = random.uniform() * total;
        std::uint32_t open = 255;
        for (std::int32_t t = 0; t < n; ++t) {
            const Floats e = logit[8 * t + g];
            std::uint32_t here;
            if (s.greedy) {
                here = open & bits_of(e == 1.0f);  // the largest
            } else {
                left -= e;
                here = open & bits_of(left < 0.0f);
            }
            open &= ~here;
            const std::uint64_t lanes = std::uint64_t(255) << (8 * g) & p.free[h];
            const std::uint64_t word = (c.words[first + t] & ~lanes) | ((std::uint64_t(here) << (8 * g)) & lanes);
            set(c, p, first + t, word);
            if (s.collect) collect(c, first + t, g, e / total);
        }
        for (std::int32_t t = 0; open && t < n; ++t) {  // rounding left them without a state: the most probable one
            const std::uint32_t here = open & bits_of(logit[8 * t + g] == 1.0f);
            open &= ~here;
            set(c, p, first + t, c.words[first + t] | ((std::uint64_t(here) << (8 * g)) & p.free[h]));
        }
    }
}

}  // namespace

void score(const Program& p, const std::uint64_t* words, double* out) {
    for (int k = 0; k < CHAINS; ++k) out[k] = p.constant[k];
    const auto add = [&](std::uint64_t mask, const float* weights, float weight) {
        for (; mask; mask &= mask - 1) {
            const int k = std::countr_zero(mask);
            out[k] += weights == nullptr ? weight : weights[k];
        }
    };
    for (std::int32_t l = 0; l < p.n_literals; ++l) add(words[l], p.unary + std::int64_t(l) * CHAINS, 0);
    for (std::int64_t j = 0; j < p.n_parts; ++j) {
        std::uint64_t mask = p.alive[j];
        for (std::int64_t k = p.part_start[j]; k < p.part_start[j + 1]; ++k) mask &= words[p.part_literals[k]];
        add(mask, p.vector[j] < 0 ? nullptr : p.vectors + std::int64_t(p.vector[j]) * CHAINS, p.weight[j]);
    }
}

namespace {

// The score without the reference's share, vector by vector: what a step of annealing needs.
void energy(const Program& p, const float* reference, const std::uint64_t* words, double* out) {
    Real<double> sum[CHAINS / 4] = {};
    const auto add = [&](std::uint64_t mask, const float* weights, double weight) {
        if (!mask) return;
        for (int g = 0; g < CHAINS / 4; ++g) {
            Real<double> w = fill<double>(weight);
            if (weights != nullptr)
                for (int k = 0; k < 4; ++k) w[k] += weights[4 * g + k];
            sum[g] += (Real<double>)(spread<double>(std::uint32_t(mask >> (4 * g)) & 15, 0) & (Int<double>)w);
        }
    };
    for (std::int32_t l = 0; l < p.n_literals; ++l) add(words[l], p.unary + std::int64_t(l) * CHAINS, -double(reference[l]));
    for (std::int64_t j = 0; j < p.n_parts; ++j) {
        std::uint64_t mask = p.alive[j];
        for (std::int64_t k = p.part_start[j]; k < p.part_start[j + 1]; ++k) mask &= words[p.part_literals[k]];
        const bool same = p.vector[j] < 0;
        add(mask, same ? nullptr : p.vectors + std::int64_t(p.vector[j]) * CHAINS, same ? double(p.weight[j]) : 0.0);
    }
    for (int k = 0; k < CHAINS; ++k) out[k] = p.constant[k] + sum[k / 4][k % 4];
}

}  // namespace

void sweep(const Program& p, const Schedule& s, Chains& c, float* scratch) {
    Random random(c.random);
    double scores[CHAINS];
    for (std::int64_t k = 0; k < s.n_sweeps; ++k) {
        const float beta = s.beta == nullptr ? 1.0f : s.beta[k];
        if (s.anneal) {
            energy(p, s.reference, c.words, scores);
            for (int lane = 0; lane < CHAINS; ++lane) c.log_weight[lane] += (double(beta) - double(c.beta)) * scores[lane];
            c.beta = beta;
        }
        for (std::int32_t group = 0; group < p.n_groups && !s.greedy; ++group) resample_group(p, s, c, random, group, beta, scratch);
        for (std::int32_t h = 0; h < p.n_hidden; ++h) {
            if (p.n_states[h] == 2)
                resample_binary(p, s, c, random, h, beta);
            else
                resample_many(p, s, c, random, h, beta, scratch);
        }
    }
    random.keep(c.random);
}

}  // namespace undirected::KERNEL_NAMESPACE
