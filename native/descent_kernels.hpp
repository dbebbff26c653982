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

// The groups of a context in a strip of rows. Rows of the first `n_common` all have the common weight. Both numbers are multiples of
// GROUP_STEP.
struct GroupList {
    const Group* groups;
    const std::uint8_t* bits;  // in place of the list, where not null: a byte for each group of the strip
    std::uint32_t n_common, n;
};

// What a feature does to one variable in a strip of rows: its weight enters the scores of some states in the rows of a context.
struct Piece {
    GroupList rows;
    float* odds;                 // of the variable's first column
    const std::int32_t* states;  // of a variable with more than two states: those that the feature speaks of
    std::int32_t n_columns;
    std::int16_t n_states;
    bool minus;
};

// The rows' weights, and the common one: the smallest, which most rows have where weights are counts.
struct RowWeights {
    const float* of_row;
    float common;
};

// What the rows of a feature's contexts say about its weight, in several sums side by side: weighted probabilities, weighted variances.
struct alignas(64) Sums {
    float first[16], second[16];
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

#define UNDIRECTED_DESCENT_KERNELS(NAME)                                                                                       \
    namespace NAME {                                                                                                           \
    /* Bits of rows in another order: first those of the chosen rows, then, from bit `others_from` on, those of the others. */ \
    void part_rows(const std::uint64_t* words, const std::uint64_t* chosen, std::int64_t n_rows, std::int64_t others_from,     \
                   std::uint64_t* out, std::int64_t n_out);                                                                    \
    /* Adds up the probability that a feature's states have in the rows of its contexts, over its pieces in a strip. */        \
    void gather(const Piece* pieces, std::int64_t n, std::int64_t stride, RowWeights, bool curvature, Sums& sums);             \
    /* Multiplies the odds of a feature's states in the rows of its contexts, or divides them where the sign is minus. */      \
    void multiply(const Piece* pieces, std::int64_t n, std::int64_t stride, float factor, float inverse);                      \
    /* The weight of the rows of a context in which a state is the row's. */                                                   \
    double count_truth(GroupList, const Columns&, std::int32_t state, const float* row_weight);                                \
    /* Adds an amount in the rows of a context. */                                                                             \
    void add_amount(GroupList, float amount, float* values);                                                                   \
    /* Odds from logits, for `n_groups` groups; and logits from odds. Columns of logits are as far apart as those of odds. */  \
    void set_odds(const Columns&, const float* logits, std::int64_t n_groups);                                                 \
    void find_logits(const Columns&, std::int64_t n_groups, float* logits, float* change);                                     \
    /* The term at logits moved along the directions by their amounts; the move itself. */                                     \
    Along measure(const Columns&, const float* logits, std::int64_t n_groups, const float* row_weight, const Directions&);     \
    void move_logits(const Columns&, float* logits, std::int64_t n_groups, const Directions&, float* image);                   \
    }

UNDIRECTED_FOR_EACH_INSTRUCTION_SET(UNDIRECTED_DESCENT_KERNELS)

}  // namespace undirected
