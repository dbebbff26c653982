// Loops over tables of logarithms; a table of k states and n cells below each is [k][n].
#pragma once
#include <cstdint>

namespace undirected {

bool has_avx2();

#define UNDIRECTED_TABLE_KERNELS(NAME)                                                                             \
    namespace NAME {                                                                                               \
    void sum_out(const double* table, std::int32_t k, std::int64_t n, double* out); /* log of sums */              \
    void max_out(const double* table, std::int32_t k, std::int64_t n, double* out);                                \
    double exponentials(const double* table, std::int64_t n, double* out); /* relative to the largest, returned */ \
    void add(double* to, const double* from, std::int64_t n);                                                      \
    void add_one(double* to, double value, std::int64_t n);                                                        \
    double sum(const double* from, std::int64_t n);                                                                \
    }

UNDIRECTED_TABLE_KERNELS(baseline)
UNDIRECTED_TABLE_KERNELS(avx2)

}  // namespace undirected

// The kernels for this machine's instructions.
#if defined(HAVE_AVX2_KERNELS)
#define UNDIRECTED_DISPATCH(call) (undirected::has_avx2() ? undirected::avx2::call : undirected::baseline::call)
#else
#define UNDIRECTED_DISPATCH(call) (undirected::baseline::call)
#endif
