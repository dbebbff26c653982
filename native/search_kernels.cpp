#include "search_kernels.hpp"

#include <cmath>

#include "simd.hpp"

namespace undirected::KERNEL_NAMESPACE {

namespace {

constexpr std::int64_t FLUSH = 512;  // single-precision sums are short

inline double total(const Real<float>& v) {
    double sum = 0;
    for (int k = 0; k < 8; ++k) sum += v[k];
    return sum;
}

template <bool WEIGHTED>
Slope slope_of(const float* margin, const float* weight, std::int64_t n, float by) {
    Slope out;
    const Real<float> one = fill<float>(1.0f), zero = fill<float>(0.0f);
    for (std::int64_t from = 0; from < n; from += FLUSH) {
        const std::int64_t to = from + FLUSH < n ? from + FLUSH : n;
        Real<float> first = zero, second = zero;
        for (std::int64_t k = from; k < to; k += 8) {
            Real<float> m, c = one;
            if (k + 8 <= to) {
                m = load<Real<float>>(margin + k) + by;
                if (WEIGHTED) c = load<Real<float>>(weight + k);
            } else {
                m = c = zero;
                for (std::int64_t i = k; i < to; ++i) {
                    m[i - k] = margin[i] + by;
                    c[i - k] = WEIGHTED ? weight[i] : 1.0f;
                }
            }
            const Real<float> e = exp_negative<float>(choose<float>(m > zero, -m, m));
            const Real<float> r = one / (one + e);
            const Real<float> p = choose<float>(m > zero, e * r, r);
            first += c * p;
            second += c * (e * r * r);
        }
        out.first += total(first);
        out.second += total(second);
    }
    return out;
}

}  // namespace

Slope slope(const float* margin, const float* weight, std::int64_t n, float by) {
    return weight ? slope_of<true>(margin, weight, n, by) : slope_of<false>(margin, weight, n, by);
}

double moved(const double* margin, const double* weight, std::int64_t n, double by) {
    // With t = exp(-|m|), exp of the difference is (1 + t) / (1 + t e^-by) above zero and (1 + t) / (t + e^-by) below.
    const Real<double> zero = fill<double>(0.0), one = fill<double>(1.0), k = fill<double>(std::exp(-by));
    const auto log_of = [](Real<double> x) {  // x = 2^e y with y in [1, 2)
        const Int<double> bits = (Int<double>)x, exponent = (bits >> 52) - 1023;
        const Real<double> y = (Real<double>)((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000);
        const Real<double> e = __builtin_convertvector(exponent, Real<double>);
        return e * 0.69314718055994530942 + log1p_unit<double>(y - 1.0);
    };
    Real<double> sum = zero;
    for (std::int64_t i = 0; i < n; i += 4) {
        Real<double> m = zero, c = zero;
        if (i + 4 <= n) {
            m = load<Real<double>>(margin + i);
            c = weight ? load<Real<double>>(weight + i) : one;
        } else {
            for (std::int64_t r = i; r < n; ++r) {
                m[r - i] = margin[r];
                c[r - i] = weight ? weight[r] : 1.0;
            }
        }
        const Real<double> t = exp_negative<double>(choose<double>(m > zero, -m, m));
        sum += c * log_of((one + t) / choose<double>(m > zero, one + t * k, t + k));
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

void count_misses(const std::uint64_t* miss, std::int64_t n_words, std::uint64_t* once, std::uint64_t* twice) {
    for (std::int64_t w = 0; w < n_words; ++w) {
        twice[w] |= once[w] & miss[w];
        once[w] |= miss[w];
    }
}

void add_where(const std::uint64_t* bits, std::int64_t n_words, float amount, float* value) {
    const Real<float> all = fill<float>(amount), none = fill<float>(0.0f);
    for (std::int64_t w = 0; w < n_words; ++w) {
        const std::uint64_t word = bits[w];
        if (!word) continue;
        for (int k = 0; k < 64; k += 8) {
            float* at = value + w * 64 + k;
            store(load<Real<float>>(at) + choose<float>(spread<float>(std::uint32_t(word >> k) & 255u, 0), all, none), at);
        }
    }
}

void chances(const float* odds, std::int64_t n, float* out) {
    const Real<float> one = fill<float>(1.0f), zero = fill<float>(0.0f);
    for (std::int64_t k = 0; k < n; k += 8) {
        Real<float> m = zero;
        if (k + 8 <= n)
            m = load<Real<float>>(odds + k);
        else
            for (std::int64_t i = k; i < n; ++i) m[i - k] = odds[i];
        const Real<float> e = exp_negative<float>(choose<float>(m > zero, -m, m)), r = one / (one + e);
        const Real<float> p = choose<float>(m > zero, r, e * r);
        if (k + 8 <= n)
            store(p, out + k);
        else
            for (std::int64_t i = k; i < n; ++i) out[i] = p[i - k];
    }
}

void add_two(const float* x, const float* y, std::int64_t n, float* a, float* b) {
    for (std::int64_t k = 0; k < n; ++k) {
        a[k] += x[k];
        b[k] += y[k];
    }
}

void add_rows(const float* matrix, std::int64_t width, const std::int32_t* rows, std::int64_t n, float* sum) {
    for (std::int64_t at = 0; at < width; at += 64) {
        Real<float> part[8];
        for (auto& some : part) some = fill<float>(0.0f);
        for (std::int64_t i = 0; i < n; ++i) {
            const float* row = matrix + rows[i] * width + at;
            for (int k = 0; k < 8; ++k) part[k] += load<Real<float>>(row + 8 * k);
        }
        for (int k = 0; k < 8; ++k) store(part[k], sum + at + 8 * k);
    }
}

}  // namespace undirected::KERNEL_NAMESPACE
