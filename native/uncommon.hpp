// Tables as codes, and the cells of their rows that are out of the ordinary.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "literals.hpp"

namespace undirected {

struct CodeTable {
    std::int64_t n_rows;
    std::int32_t n_variables;
    const std::int32_t* n_states;  // [n_variables]
    const std::int16_t* codes;     // [n_variables][n_rows]
    const double* row_weight;      // [n_rows]
};

// For each row the literals that hold, but for each variable's most frequent state (or another one that is named), whose counts are what
// the others leave over.
struct Uncommon {
    const CodeTable table;
    const LiteralNumbers numbers;
    std::vector<std::int32_t> common;  // most frequent state by variable
    std::vector<std::int64_t> start;
    std::vector<std::int32_t> literals;
    bool whole = true;  // whole-number weights

    explicit Uncommon(const CodeTable& t, const std::int32_t* named = nullptr)
        : table(t), numbers(t.n_states, t.n_variables), common(t.n_variables) {
        std::vector<std::int64_t> length(t.n_rows + 1, 0);
        for (std::int32_t v = 0; v < t.n_variables; ++v) {
            std::vector<double> count(t.n_states[v], 0.0);
            for (std::int64_t r = 0; r < t.n_rows; ++r) ++count[t.codes[v * t.n_rows + r]];
            common[v] = named ? named[v] : std::int32_t(std::max_element(count.begin(), count.end()) - count.begin());
            for (std::int64_t r = 0; r < t.n_rows; ++r) length[r + 1] += t.codes[v * t.n_rows + r] != common[v];
        }
        std::partial_sum(length.begin(), length.end(), length.begin());
        start = length;
        literals.resize(length.back());
        for (std::int32_t v = 0; v < t.n_variables; ++v)
            for (std::int64_t r = 0; r < t.n_rows; ++r)
                if (t.codes[v * t.n_rows + r] != common[v]) literals[length[r]++] = numbers.number(v, t.codes[v * t.n_rows + r]);
        for (std::int64_t r = 0; r < t.n_rows; ++r) whole = whole && t.row_weight[r] == std::floor(t.row_weight[r]);
    }
};

}  // namespace undirected
