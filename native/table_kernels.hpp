// Loops over tables of logarithms; a table of k states and n cells below each is [k][n].
#pragma once
#include <cstdint>

#include "dispatch.hpp"

namespace undirected {

#define UNDIRECTED_TABLE_KERNELS(NAME)                                                                             \
    namespace NAME {                                                                                               \
    void sum_out(const double* table, std::int32_t k, std::int64_t n, double* out); /* log of sums */              \
    void max_out(const double* table, std::int32_t k, std::int64_t n, double* out);                                \
    double exponentials(const double* table, std::int64_t n, double* out); /* relative to the largest, returned */ \
    void add(double* to, const double* from, std::int64_t n);                                                      \
    void add_one(double* to, double value, std::int64_t n);                                                        \
    double sum(const double* from, std::int64_t n);                                                                \
    }

UNDIRECTED_FOR_EACH_INSTRUCTION_SET(UNDIRECTED_TABLE_KERNELS)

}  // namespace undirected
