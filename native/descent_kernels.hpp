// The innermost loops of coordinate descent, compiled once per instruction set.
//
// Rows are worked in groups of eight, the width of a vector. Tables keep equal rows together and sort them, so that the rows of a context
// come in bunches: a context is a list of the groups in which it holds at all, each with a bit for each of its rows. Where it holds in
// many groups, the bits of all groups one after the other are shorter and faster to read.
#pragma once
#include <cstdint>

#include "dispatch.hpp"

namespace undirected {

constexpr int GROUP_ROWS = 8;
constexpr int GROUP_STEP = 4;       // groups come in multiples of this; lists are filled up with groups of no row
constexpr int MOST_DIRECTIONS = 4;  // along which a step is taken at once

// Bit k of the low byte: the context holds in row k of the group; the rest is the number of the group.
using Group = std::uint32_t;

// The rows in which a context holds.
struct GroupList {
    const Group* groups;
    std::int64_t n;
    const std::uint8_t* bits;  // where not null: a byte for each group of the table, `n` of them, in place of the list
};

// What the rows of a context say about one weight: the sum of weighted probabilities, and of weighted variances.
struct Sums {
    double first = 0, second = 0;
};

// The columns of one variable: `n` of them, `stride` rows apart. One column is that of a binary variable.
struct Columns {
    float* odds;                // of a variable with more than two states: the states' probabilities
    const std::uint8_t* truth;  // for each state and group a bit for each row that is in that state
    std::int64_t truth_stride;
    std::int64_t stride;
    std::int32_t n;
};

// The value, slopes and curvatures of a variable's term along some directions; curvatures row by row, the lower half.
struct Along {
    double value = 0, first[MOST_DIRECTIONS] = {}, second[MOST_DIRECTIONS * (MOST_DIRECTIONS + 1) / 2] = {};
};

struct Directions {
    std::int32_t n;
    const float* images[MOST_DIRECTIONS];  // what one unit of the direction adds to the logits
    float amounts[MOST_DIRECTIONS];
};

#define UNDIRECTED_DESCENT_KERNELS(NAME)                                                                                                \
    namespace NAME {                                                                                                                    \
    /* Sums over the rows of a context of the probability of some states (of a binary variable: of its second). */                      \
    Sums gather(GroupList, const Columns&, const std::int32_t* states, std::int32_t n_states, const float* row_weight, bool curvature); \
    /* Multiplies the odds of these states by a factor in the rows of a context. */                                                     \
    void multiply(GroupList, const Columns&, const std::int32_t* states, std::int32_t n_states, float factor);                          \
    /* The weight of the rows of a context in which a state is the row's. */                                                            \
    double count_truth(GroupList, const Columns&, std::int32_t state, const float* row_weight);                                         \
    /* Adds an amount in the rows of a context. */                                                                                      \
    void add_amount(GroupList, float amount, float* values);                                                                            \
    /* Odds from logits, for `n_groups` groups; and logits from odds. Columns of logits are as far apart as those of odds. */           \
    void set_odds(const Columns&, const float* logits, std::int64_t n_groups);                                                          \
    void find_logits(const Columns&, std::int64_t n_groups, float* logits, float* change);                                              \
    /* The term at logits moved along the directions by their amounts; the move itself. */                                              \
    Along measure(const Columns&, const float* logits, std::int64_t n_groups, const float* row_weight, const Directions&);              \
    void move_logits(const Columns&, float* logits, std::int64_t n_groups, const Directions&, float* image);                            \
    }

UNDIRECTED_FOR_EACH_INSTRUCTION_SET(UNDIRECTED_DESCENT_KERNELS)

}  // namespace undirected
