// A table and features as the kernels see them: flat arrays that belong to the caller.
#pragma once
#include <cstdint>

namespace undirected {

struct Table {
    std::int64_t n_rows, n_words;
    std::int32_t n_variables;
    const std::int32_t* n_states;  // [n_variables]
    const std::uint64_t* columns;  // [n_literals][n_words], the bits of rows in which a literal holds; none beyond the last row
    const double* row_weight;      // [n_rows]
};

struct Features {
    std::int64_t n;
    const std::int64_t* start;     // [n + 1]
    const std::int32_t* literals;  // each feature's sorted by variable
    const std::int32_t* target;    // [n] or null: the one variable whose logit a feature enters; -1: every variable it mentions
};

}  // namespace undirected
