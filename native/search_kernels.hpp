// The innermost loops of the search for features, compiled once per instruction set.
#pragma once
#include <cstdint>

#include "dispatch.hpp"

namespace undirected {

// What the rows that a feature's contexts touch say about moving its weight.
struct Slope {
    double first = 0, second = 0;
};

#define UNDIRECTED_SEARCH_KERNELS(NAME)                                                                                         \
    namespace NAME {                                                                                                            \
    /* Sums of c * p and c * p * (1 - p), where p is the probability of not being in the row's state, at margins moved by `by`; \
       null weights count one each. */                                                                                          \
    Slope slope(const float* margin, const float* weight, std::int64_t n, float by);                                            \
    /* The sum of c * (log-probability at a margin moved by `by` minus that at the margin itself). */                           \
    double moved(const double* margin, const double* weight, std::int64_t n, double by);                                        \
    /* Rows (as bits) that fail at least one, and at least two, of the literals whose misses are given in turn. */              \
    void count_misses(const std::uint64_t* miss, std::int64_t n_words, std::uint64_t* once, std::uint64_t* twice);              \
    /* value[r] += amount for the rows whose bit is set; a multiple of 64 values. */                                            \
    void add_where(const std::uint64_t* bits, std::int64_t n_words, float amount, float* value);                                \
    /* The probabilities that these log-odds stand for. */                                                                      \
    void chances(const float* odds, std::int64_t n, float* out);                                                                \
    /* a += x, b += y */                                                                                                        \
    void add_two(const float* x, const float* y, std::int64_t n, float* a, float* b);                                           \
    /* The sum of these rows of a matrix; its width is a multiple of 64. */                                                     \
    void add_rows(const float* matrix, std::int64_t width, const std::int32_t* rows, std::int64_t n, float* sum);               \
    }

UNDIRECTED_FOR_EACH_INSTRUCTION_SET(UNDIRECTED_SEARCH_KERNELS)

}  // namespace undirected
