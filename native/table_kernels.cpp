// Loops over tables of logarithms, compiled once per instruction set.
#include "table_kernels.hpp"

#include <cmath>

#include "simd.hpp"

namespace undirected::KERNEL_NAMESPACE {

void sum_out(const double* table, std::int32_t k, std::int64_t n, double* out) {
    std::int64_t i = 0;
    if (k == 2) {
        for (; i + 4 <= n; i += 4) {
            const Real<double> a = load<Real<double>>(table + i), b = load<Real<double>>(table + n + i);
            const Real<double> high = choose<double>(a > b, a, b), low = choose<double>(a > b, b, a);
            store(high + log1p_unit<double>(exp_negative<double>(low - high)), out + i);
        }
    }
    for (; i < n; ++i) {
        double high = table[i];
        for (std::int32_t s = 1; s < k; ++s) high = std::fmax(high, table[s * n + i]);
        double sum = 0;
        for (std::int32_t s = 0; s < k; ++s) sum += std::exp(table[s * n + i] - high);
        out[i] = high + std::log(sum);
    }
}

void max_out(const double* table, std::int32_t k, std::int64_t n, double* out) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = table[i];
    for (std::int32_t s = 1; s < k; ++s)
        for (std::int64_t i = 0; i < n; ++i) out[i] = out[i] > table[s * n + i] ? out[i] : table[s * n + i];
}

double exponentials(const double* table, std::int64_t n, double* out) {
    double high = table[0];
    for (std::int64_t i = 1; i < n; ++i) high = high > table[i] ? high : table[i];
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const Real<double> x = load<Real<double>>(table + i) - high;
        store(choose<double>(x < fill<double>(-700.0), fill<double>(0.0), exp_negative<double>(x)), out + i);
    }
    for (; i < n; ++i) out[i] = std::exp(table[i] - high);
    return high;
}

void add(double* to, const double* from, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}

void add_one(double* to, double value, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) to[i] += value;
}

double sum(const double* from, std::int64_t n) {
    double parts[8] = {};
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; ++k) parts[k] += from[i + k];
    double total = ((parts[0] + parts[4]) + (parts[1] + parts[5])) + ((parts[2] + parts[6]) + (parts[3] + parts[7]));
    for (; i < n; ++i) total += from[i];
    return total;
}

}  // namespace undirected::KERNEL_NAMESPACE
