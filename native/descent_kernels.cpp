// The innermost loops of coordinate descent, compiled once per instruction set (KERNEL_NAMESPACE names the copy).
#include "descent_kernels.hpp"

#include <algorithm>

#include "simd.hpp"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace undirected {
namespace KERNEL_NAMESPACE {
namespace {

typedef Real<float> Eight;
typedef Int<float> Marks;

constexpr float LEAST_ODDS = 1e-30f, MOST_ODDS = 1e30f;
constexpr float LEAST_PROBABILITY = 1e-30f;
constexpr int FLUSH = 32;  // groups between sums in single precision and in double

inline Marks rows_of(Group group) {
    const Marks bits = {1, 2, 4, 8, 16, 32, 64, 128};
    return ((Marks{} + std::int32_t(group)) & bits) == bits;
}

inline std::int64_t place_of(Group group) { return std::int64_t(group >> 8) * GROUP_ROWS; }

inline Eight keep(Marks marks, Eight x) { return (Eight)(marks & (Marks)x); }

inline double sum(Eight v) {
    v += shuffle<4, 5, 6, 7, 0, 1, 2, 3>(v, v);
    v += shuffle<2, 3, 0, 1, 6, 7, 4, 5>(v, v);
    return double(v[0]) + double(v[1]);
}

inline void add_to(Eight values, bool minus, float* sums) {
    const Eight before = load<Eight>(sums);
    store(minus ? before - values : before + values, sums);
}

inline Eight at_least(Eight x, float least) {
#if defined(__AVX2__)
    return _mm256_max_ps(x, _mm256_set1_ps(least));
#else
    return x > fill<float>(least) ? x : fill<float>(least);
#endif
}

inline Eight at_most(Eight x, float most) {
#if defined(__AVX2__)
    return _mm256_min_ps(x, _mm256_set1_ps(most));
#else
    return x < fill<float>(most) ? x : fill<float>(most);
#endif
}

// 1 / x to the last digit or two. A step of Newton's method on the machine's guess is faster than a division.
inline Eight invert(Eight x) {
#if defined(__AVX2__)
    const Eight guess = _mm256_rcp_ps(x);
    return guess * (2.0f - x * guess);
#else
    return 1.0f / x;
#endif
}

// Calls visit(k, place of the group's first row, its group with the bits of its rows) for groups of a context that hold a row, and perhaps
// for some that do not; k counts from 0 to GROUP_STEP - 1 over and over.
template <class Visit>
inline void for_groups(GroupList rows, std::int64_t from, std::int64_t to, const Visit& visit) {
    if (rows.bits != nullptr) {
        for (std::int64_t g = from; g < to; g += GROUP_STEP)
            for (int i = 0; i < GROUP_STEP; ++i) visit(i, (g + i) * GROUP_ROWS, Group(rows.bits[g + i]));
        return;
    }
    for (std::int64_t k = from; k < to; k += GROUP_STEP)
        for (int i = 0; i < GROUP_STEP; ++i) visit(i, place_of(rows.groups[k + i]), rows.groups[k + i]);
}

template <class Visit>
inline void for_groups(GroupList rows, const Visit& visit) {
    for_groups(rows, 0, rows.n, visit);
}

#if defined(__BMI2__)
inline std::uint64_t extract(std::uint64_t word, std::uint64_t mask) { return _pext_u64(word, mask); }
#else
inline std::uint64_t extract(std::uint64_t word, std::uint64_t mask) {
    std::uint64_t out = 0;
    for (int at = 0; mask != 0; mask &= mask - 1, ++at) out |= (word >> __builtin_ctzll(mask) & 1) << at;
    return out;
}
#endif

// Writes bits one after the other.
struct BitWriter {
    std::uint64_t* to;
    std::int64_t at;
    void add(std::uint64_t bits, int n) {
        if (n == 0) return;
        const int shift = int(at % 64);
        to[at / 64] |= bits << shift;
        if (shift + n > 64) to[at / 64 + 1] |= bits >> (64 - shift);
        at += n;
    }
};

inline Eight exponential(Eight x) {  // clamped, so that odds stay within their limits
    const Marks positive = x > 0.0f;
    const Eight t = exp_negative<float>(at_least(choose<float>(positive, -x, x), -69.0f));
    return choose<float>(positive, 1.0f / t, t);
}

inline Eight logarithm(Eight x) {  // of positive normal numbers
    const Marks bits = (Marks)x;
    const Marks exponent = ((bits >> 23) & 255) - 127;
    const Eight mantissa = (Eight)((bits & 0x7fffff) | 0x3f800000);
    return __builtin_convertvector(exponent, Eight) * 0.69314718056f + log1p_unit<float>(mantissa - 1.0f);
}

#if defined(__AVX512VL__)

// Two groups at a time, with a bit of a mask for each row.
template <class Visit>
inline void for_pairs(GroupList rows, std::int64_t from, std::int64_t to, const Visit& visit) {
    if (rows.bits != nullptr) {
        for (std::int64_t g = from; g < to; g += GROUP_STEP)
            for (int i = 0; i < GROUP_STEP; i += 2) {
                std::uint16_t mask;
                std::memcpy(&mask, rows.bits + g + i, sizeof mask);
                visit(i / 2, __mmask16(mask), [&](const float* values) { return _mm512_loadu_ps(values + (g + i) * GROUP_ROWS); });
            }
        return;
    }
    for (std::int64_t k = from; k < to; k += GROUP_STEP)
        for (int i = 0; i < GROUP_STEP; i += 2) {
            const Group a = rows.groups[k + i], b = rows.groups[k + i + 1];
            visit(i / 2, __mmask16((a & 255) | (b & 255) << 8), [&](const float* values) {
                const __m512 low = _mm512_castps256_ps512(_mm256_loadu_ps(values + place_of(a)));
                return _mm512_insertf32x8(low, _mm256_loadu_ps(values + place_of(b)), 1);
            });
        }
}

template <bool Curvature>
void gather_binary(GroupList rows, const float* odds, RowWeights weights, bool minus, Sums& sums) {
    const __m512 one = _mm512_set1_ps(1.0f), two = _mm512_set1_ps(2.0f), common = _mm512_set1_ps(weights.common);
    __m512 first[GROUP_STEP / 2] = {}, second[GROUP_STEP / 2] = {};
    const auto find_inverse = [&](__m512 x) {
        const __m512 guess = _mm512_rcp14_ps(x);
        return _mm512_mul_ps(guess, _mm512_fnmadd_ps(x, guess, two));
    };
    for_pairs(rows, 0, rows.n_common, [&](int i, __mmask16 mask, const auto& load_rows) {
        const __m512 o = load_rows(odds), p = _mm512_maskz_mul_ps(mask, o, find_inverse(_mm512_add_ps(o, one)));
        first[i] = _mm512_add_ps(first[i], p);
        if (Curvature) second[i] = _mm512_add_ps(second[i], _mm512_fnmadd_ps(p, p, p));
    });
    for (int i = 0; i < GROUP_STEP / 2; ++i) {
        first[i] = _mm512_mul_ps(first[i], common);
        if (Curvature) second[i] = _mm512_mul_ps(second[i], common);
    }
    for_pairs(rows, rows.n_common, rows.n, [&](int i, __mmask16 mask, const auto& load_rows) {
        const __m512 o = load_rows(odds), p = _mm512_mul_ps(o, find_inverse(_mm512_add_ps(o, one)));
        const __m512 mass = _mm512_maskz_mul_ps(mask, p, load_rows(weights.of_row));
        first[i] = _mm512_add_ps(first[i], mass);
        if (Curvature) second[i] = _mm512_add_ps(second[i], _mm512_fnmadd_ps(mass, p, mass));
    });
    const __m512 total = _mm512_add_ps(first[0], first[1]), before = _mm512_load_ps(sums.first);
    _mm512_store_ps(sums.first, minus ? _mm512_sub_ps(before, total) : _mm512_add_ps(before, total));
    if (Curvature) _mm512_store_ps(sums.second, _mm512_add_ps(_mm512_load_ps(sums.second), _mm512_add_ps(second[0], second[1])));
}

void multiply_binary(GroupList rows, float* odds, float factor) {
    if (rows.bits == nullptr) {
        const __m256 by = _mm256_set1_ps(factor), least = _mm256_set1_ps(LEAST_ODDS), most = _mm256_set1_ps(MOST_ODDS);
        for (std::int64_t k = 0; k < rows.n; ++k) {
            float* at = odds + place_of(rows.groups[k]);
            const __m256 o = _mm256_loadu_ps(at), moved = _mm256_mask_mul_ps(o, __mmask8(rows.groups[k]), o, by);
            _mm256_storeu_ps(at, _mm256_min_ps(_mm256_max_ps(moved, least), most));
        }
        return;
    }
    const __m512 by = _mm512_set1_ps(factor), least = _mm512_set1_ps(LEAST_ODDS), most = _mm512_set1_ps(MOST_ODDS);
    for (std::int64_t g = 0; g < rows.n; g += 2) {
        std::uint16_t mask;
        std::memcpy(&mask, rows.bits + g, sizeof mask);
        float* at = odds + g * GROUP_ROWS;
        const __m512 o = _mm512_loadu_ps(at), moved = _mm512_mask_mul_ps(o, __mmask16(mask), o, by);
        _mm512_storeu_ps(at, _mm512_min_ps(_mm512_max_ps(moved, least), most));
    }
}

#else

template <bool Curvature>
void gather_binary(GroupList rows, const float* odds, RowWeights weights, bool minus, Sums& sums) {
    Eight first[GROUP_STEP] = {}, second[GROUP_STEP] = {};
    for_groups(rows, 0, rows.n_common, [&](int i, std::int64_t place, Group group) {
        const Eight o = load<Eight>(odds + place), p = keep(rows_of(group), o * invert(o + 1.0f));
        first[i] += p;
        if (Curvature) second[i] += p - p * p;
    });
    for (int i = 0; i < GROUP_STEP; ++i) {
        first[i] *= weights.common;
        if (Curvature) second[i] *= weights.common;
    }
    for_groups(rows, rows.n_common, rows.n, [&](int i, std::int64_t place, Group group) {
        const Eight o = load<Eight>(odds + place), p = o * invert(o + 1.0f);
        const Eight mass = keep(rows_of(group), p * load<Eight>(weights.of_row + place));
        first[i] += mass;
        if (Curvature) second[i] += mass - mass * p;
    });
    add_to((first[0] + first[1]) + (first[2] + first[3]), minus, sums.first);
    if (Curvature) add_to((second[0] + second[1]) + (second[2] + second[3]), false, sums.second);
}

void multiply_binary(GroupList rows, float* odds, float factor) {
    const Eight one = fill<float>(1.0f), by = fill<float>(factor);
    for_groups(rows, [&](int, std::int64_t place, Group group) {
        const Eight o = load<Eight>(odds + place) * choose<float>(rows_of(group), by, one);
        store(at_most(at_least(o, LEAST_ODDS), MOST_ODDS), odds + place);
    });
}

#endif

void gather_states(const Piece& piece, std::int64_t stride, const float* weight, Sums& sums) {
    Eight first{}, second{};
    for_groups(piece.rows, [&](int, std::int64_t place, Group group) {
        Eight p{};
        for (int s = 0; s < piece.n_states; ++s) p += load<Eight>(piece.odds + piece.states[s] * stride + place);
        const Eight mass = keep(rows_of(group), p * load<Eight>(weight + place));
        first += mass;
        second += mass - mass * p;
    });
    add_to(first, piece.minus, sums.first);
    add_to(second, false, sums.second);
}

void multiply_states(const Piece& piece, std::int64_t stride, float factor) {
    for_groups(piece.rows, [&](int, std::int64_t place, Group group) {
        const Eight by = choose<float>(rows_of(group), fill<float>(factor), fill<float>(1.0f));
        for (int s = 0; s < piece.n_states; ++s) {
            float* at = piece.odds + piece.states[s] * stride + place;
            store(load<Eight>(at) * by, at);
        }
        Eight total{};
        for (std::int32_t s = 0; s < piece.n_columns; ++s) total += load<Eight>(piece.odds + s * stride + place);
        const Eight scale = 1.0f / total;
        for (std::int32_t s = 0; s < piece.n_columns; ++s) {
            float* at = piece.odds + s * stride + place;
            store(at_least(load<Eight>(at) * scale, LEAST_PROBABILITY), at);
        }
    });
}

// Logits of one group, moved along the directions.
template <int N>
inline Eight moved(const float* logits, std::int64_t at, const Directions& d, Eight* images) {
    Eight x = load<Eight>(logits + at);
    for (int k = 0; k < N; ++k) {
        images[k] = load<Eight>(d.images[k] + at);
        x += images[k] * d.amounts[k];
    }
    return x;
}

template <int N>
struct Tally {
    Eight value{}, first[N + 1] = {}, second[N * (N + 1) / 2 + 1] = {};
    void flush(Along& out) {
        out.value += sum(value);
        for (int k = 0; k < N; ++k) out.first[k] += sum(first[k]);
        for (int k = 0; k < N * (N + 1) / 2; ++k) out.second[k] += sum(second[k]);
        *this = Tally();
    }
};

template <int N>
Along measure_binary(const Columns& columns, const float* logits, std::int64_t n_groups, const float* weight, const Directions& d) {
    Along out;
    Tally<N> tally;
    for (std::int64_t g = 0; g < n_groups; ++g) {
        Eight images[N + 1];
        const Eight x = moved<N>(logits, g * GROUP_ROWS, d, images), c = load<Eight>(weight + g * GROUP_ROWS);
        const Marks positive = x > 0.0f;
        const Eight t = exp_negative<float>(choose<float>(positive, -x, x)), larger = 1.0f / (t + 1.0f), smaller = t * larger;
        const Marks truth = rows_of(columns.truth[g]);
        // log(1 + exp(x)) - truth * x: zero, or |x| where x and the truth disagree, and a rest
        tally.value += c * (log1p_unit<float>(t) + keep(positive ^ truth, choose<float>(positive, x, -x)));
        const Eight residual = c * choose<float>(positive ^ truth, larger, smaller), variance = c * larger * smaller;
        const Eight slope = choose<float>(truth, -residual, residual);
        for (int k = 0, at = 0; k < N; ++k) {
            tally.first[k] += slope * images[k];
            const Eight v = variance * images[k];
            for (int l = 0; l <= k; ++l) tally.second[at++] += v * images[l];
        }
        if (g % FLUSH == FLUSH - 1) tally.flush(out);
    }
    tally.flush(out);
    return out;
}

template <int N>
Along measure_states(const Columns& columns, const float* logits, std::int64_t n_groups, const float* weight, const Directions& d) {
    Along out;
    Tally<N> tally;
    for (std::int64_t g = 0; g < n_groups; ++g) {
        Eight images[N + 1], mean[N + 1] = {}, product[N * (N + 1) / 2 + 1] = {}, total{};
        Eight highest = moved<N>(logits, g * GROUP_ROWS, d, images);
        for (std::int32_t s = 1; s < columns.n; ++s) {
            const Eight x = moved<N>(logits, s * columns.stride + g * GROUP_ROWS, d, images);
            highest = choose<float>(x > highest, x, highest);
        }
        Eight seen{}, seen_images[N + 1] = {};  // of the row's own state
        for (std::int32_t s = 0; s < columns.n; ++s) {
            const Eight x = moved<N>(logits, s * columns.stride + g * GROUP_ROWS, d, images);
            const Eight e = exp_negative<float>(x - highest);
            const Marks truth = rows_of(columns.truth[s * columns.truth_stride + g]);
            seen += keep(truth, x);
            total += e;
            for (int k = 0, at = 0; k < N; ++k) {
                const Eight v = e * images[k];
                mean[k] += v;
                seen_images[k] += keep(truth, images[k]);
                for (int l = 0; l <= k; ++l) product[at++] += v * images[l];
            }
        }
        const Eight c = load<Eight>(weight + g * GROUP_ROWS), scale = 1.0f / total;
        tally.value += c * (logarithm(total) + highest - seen);
        for (int k = 0, at = 0; k < N; ++k) {
            mean[k] *= scale;
            tally.first[k] += c * (mean[k] - seen_images[k]);
            for (int l = 0; l <= k; ++l, ++at) tally.second[at] += c * (product[at] * scale - mean[k] * mean[l]);
        }
        if (g % FLUSH == FLUSH - 1) tally.flush(out);
    }
    tally.flush(out);
    return out;
}

template <int N>
Along measure_term(const Columns& columns, const float* logits, std::int64_t n_groups, const float* weight, const Directions& d) {
    return columns.n == 1 ? measure_binary<N>(columns, logits, n_groups, weight, d)
                          : measure_states<N>(columns, logits, n_groups, weight, d);
}

}  // namespace

void part_rows(const std::uint64_t* words, const std::uint64_t* chosen, std::int64_t n_rows, std::int64_t others_from, std::uint64_t* out,
               std::int64_t n_out) {
    std::fill_n(out, n_out, std::uint64_t(0));
    BitWriter first{out, 0}, second{out, others_from};
    for (std::int64_t w = 0; 64 * w < n_rows; ++w) {
        const std::int64_t left = n_rows - 64 * w;
        const std::uint64_t others = ~chosen[w] & (left >= 64 ? ~std::uint64_t(0) : (std::uint64_t(1) << left) - 1);
        first.add(extract(words[w], chosen[w]), __builtin_popcountll(chosen[w]));
        second.add(extract(words[w], others), __builtin_popcountll(others));
    }
}

void gather(const Piece* pieces, std::int64_t n, std::int64_t stride, RowWeights weights, bool curvature, Sums& sums) {
    for (const Piece* piece = pieces; piece < pieces + n; ++piece)
        if (piece->n_columns > 1)
            gather_states(*piece, stride, weights.of_row, sums);
        else if (curvature)
            gather_binary<true>(piece->rows, piece->odds, weights, piece->minus, sums);
        else
            gather_binary<false>(piece->rows, piece->odds, weights, piece->minus, sums);
}

void multiply(const Piece* pieces, std::int64_t n, std::int64_t stride, float factor, float inverse) {
    for (const Piece* piece = pieces; piece < pieces + n; ++piece) {
        const float by = piece->minus ? inverse : factor;
        if (piece->n_columns > 1)
            multiply_states(*piece, stride, by);
        else
            multiply_binary(piece->rows, piece->odds, by);
    }
}

double count_truth(GroupList list, const Columns& columns, std::int32_t state, const float* row_weight) {
    const std::uint8_t* truth = columns.truth + state * columns.truth_stride;
    Eight total{};
    for_groups(list, [&](int, std::int64_t place, Group group) {
        total += keep(rows_of(group & truth[place / GROUP_ROWS]), load<Eight>(row_weight + place));
    });
    return sum(total);
}

void add_amount(GroupList rows, float amount, float* values) {
    const Eight by = fill<float>(amount);
    for_groups(
        rows, [&](int, std::int64_t place, Group group) { store(load<Eight>(values + place) + keep(rows_of(group), by), values + place); });
}

void set_odds(const Columns& columns, const float* logits, std::int64_t n_groups) {
    for (std::int64_t at = 0; at < n_groups * GROUP_ROWS; at += GROUP_ROWS) {
        if (columns.n == 1) {
            store(exponential(load<Eight>(logits + at)), columns.odds + at);
            continue;
        }
        Eight highest = load<Eight>(logits + at), total{};
        for (std::int32_t s = 1; s < columns.n; ++s) {
            const Eight x = load<Eight>(logits + s * columns.stride + at);
            highest = choose<float>(x > highest, x, highest);
        }
        for (std::int32_t s = 0; s < columns.n; ++s) {
            const Eight e = exp_negative<float>(at_least(load<Eight>(logits + s * columns.stride + at) - highest, -69.0f));
            store(e, columns.odds + s * columns.stride + at);
            total += e;
        }
        const Eight scale = 1.0f / total;
        for (std::int32_t s = 0; s < columns.n; ++s) {
            float* to = columns.odds + s * columns.stride + at;
            store(load<Eight>(to) * scale, to);
        }
    }
}

void find_logits(const Columns& columns, std::int64_t n_groups, float* logits, float* change) {
    for (std::int32_t s = 0; s < columns.n; ++s)
        for (std::int64_t at = s * columns.stride; at < s * columns.stride + n_groups * GROUP_ROWS; at += GROUP_ROWS) {
            const Eight x = logarithm(load<Eight>(columns.odds + at));
            if (change != nullptr) store(x - load<Eight>(logits + at), change + at);
            store(x, logits + at);
        }
}

Along measure(const Columns& columns, const float* logits, std::int64_t n_groups, const float* row_weight, const Directions& d) {
    switch (d.n) {
        case 0: return measure_term<0>(columns, logits, n_groups, row_weight, d);
        case 1: return measure_term<1>(columns, logits, n_groups, row_weight, d);
        case 2: return measure_term<2>(columns, logits, n_groups, row_weight, d);
        case 3: return measure_term<3>(columns, logits, n_groups, row_weight, d);
        default: return measure_term<4>(columns, logits, n_groups, row_weight, d);
    }
}

void move_logits(const Columns& columns, float* logits, std::int64_t n_groups, const Directions& d, float* image) {
    for (std::int32_t s = 0; s < columns.n; ++s)
        for (std::int64_t at = s * columns.stride; at < s * columns.stride + n_groups * GROUP_ROWS; at += GROUP_ROWS) {
            Eight change{};
            for (std::int32_t k = 0; k < d.n; ++k) change += load<Eight>(d.images[k] + at) * d.amounts[k];
            store(load<Eight>(logits + at) + change, logits + at);
            store(load<Eight>(image + at) + change, image + at);
        }
}

}  // namespace KERNEL_NAMESPACE
}  // namespace undirected
