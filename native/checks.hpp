// What the kernels take for granted of their arrays, checked: whatever Python hands over that is not so raises a ValueError.
#pragma once
#include <cstdint>
#include <string>

#include "arrays.hpp"
#include "literals.hpp"
#include "table.hpp"
#include "uncommon.hpp"

// Throws std::invalid_argument, which becomes a ValueError.
void expect(bool condition, const char* what);

// One entry more than things; from 0, never falling, to `end`. Returns how many things there are.
std::int64_t check_offsets(const In<std::int64_t>& start, std::int64_t end, const char* what);

// Every entry from `lowest` to below `limit`.
void check_range(const In<std::int32_t>& values, std::int64_t lowest, std::int64_t limit, const char* what);

// One state or more for each variable, and no more literals than can be numbered.
undirected::LiteralNumbers check_states(const In<std::int32_t>& n_states);

// Finite, and none below zero.
void check_row_weights(const In<double>& row_weight);

// A table as bit columns.
undirected::Table check_table(const In<std::uint64_t, 2>& columns, const In<std::int32_t>& n_states, const In<double>& row_weight);

// A table as codes, without missing cells.
undirected::CodeTable check_codes(const In<std::int16_t, 2>& codes, const In<std::int32_t>& n_states, const In<double>& row_weight);

// Literals that exist, each feature's sorted by variable.
undirected::Features check_features(const In<std::int64_t>& start, const In<std::int32_t>& literals,
                                    const undirected::LiteralNumbers& numbers);
