// The flat arrays that the hot loops read. Plain pointers only: pll_kernels.cpp is compiled once per instruction set,
// and nothing it shares with other files may hold code of its own.
//
// Words. A *context* is the set of rows in which all literals of a feature but those on one variable hold. A *column*
// is a logit: one for a binary variable (state 1 against state 0), one per state otherwise. Eight columns make a
// *block*, the width of a vector. A *cell* is a context that matters to at least one column of a block: eight weights,
// added to the block's logits in the context's rows. A *panel* is a run of blocks that hold whole variables.
//
// A cell is worked in the way that is cheapest for it. Many columns: a list of the context's rows (or of the others, if
// those are fewer), one vector operation a row for all eight columns. One or two columns: column by column, by row list
// where the context is rare, by the bits of its literals, eight rows at a time, where it is common.
#pragma once
#include <cstdint>

#include "dispatch.hpp"

namespace undirected {

constexpr int LANES = 8;
constexpr int LIST_STEP = 4;
constexpr int TILE = 16;  // sides of dense matrices are multiples of this

enum Way : std::uint8_t { TOGETHER = 0, COLUMN_LIST = 1, COLUMN_BITS = 2 };

struct PanelVariable {
    std::int32_t variable;
    std::int32_t lane;      // first column, counted from the panel's first
    std::int32_t n_states;  // 2: one column; more: one per state
};

struct Plan {
    std::int64_t n_rows, n_words, n_contexts;
    std::int32_t chunk_rows;   // rows are worked in chunks of so many
    std::int32_t buffer_rows;  // rows of a buffer: a chunk's, and a spare one (number chunk_rows) that fills lists up
    std::int32_t n_chunks, n_groups, n_panels, n_blocks, n_literals;
    const double* row_weight;
    const float* row_weight_single;
    const std::uint64_t* columns;  // [n_literals][n_words], positive literals
    // contexts
    const std::uint16_t* lists;         // row numbers inside a chunk, filled up to multiples of LIST_STEP
    const std::uint64_t* list_start;    // [n_chunks][n_contexts] and one more: a list ends where the next begins
    const std::uint8_t* unlisted;       // the rows are found on the fly
    const std::uint8_t* complement;     // the rows given are those where the context does not hold
    const std::int64_t* literal_start;  // literals of contexts on the fly
    const std::int32_t* literals;
    // blocks and panels
    const std::int64_t* block_cells;  // [n_blocks + 1]
    const std::int32_t* cell_context;
    const std::int64_t* cell_unit;  // [n_cells + 1]; a cell's units: eight if worked together, else one per used column
    const std::uint8_t* cell_way;
    const std::uint8_t* cell_lanes;       // bit k: column k is used
    const std::uint8_t* truth;            // [n_blocks][n_rows], bit k: column k's state is the row's
    const std::int32_t* panel_blocks;     // [n_panels + 1]
    const std::int32_t* panel_variables;  // [n_panels + 1]
    const PanelVariable* variables;
    const std::uint8_t* panel_binary;
};

enum Pass : int {
    LOSS = 1,          // negative log pseudo-likelihood
    GRADIENT = 2,      // and its gradient by cell
    CURVATURE = 4,     // and the diagonal of the Hessian by cell
    TERMS = 8,         // log-probabilities by row and by variable
    PROBABILITY = 16,  // conditional probability of every column, by row
};

template <class T>
struct Evaluation {
    int pass;
    const T* weights;                    // [n_units]
    const std::int64_t* forward_end;     // [n_blocks]: from block_cells[block] to here in forward_cells
    const std::int32_t* forward_cells;   // cells with a weight that is not zero
    const std::int64_t* backward_start;  // cells whose sums are wanted
    const std::int32_t* backward_cells;
    double* loss;            // [n_panels][n_groups]
    double* gradient;        // [n_groups][n_units]
    double* curvature;       // same shape
    double* row_terms;       // [n_panels][n_rows]
    double* variable_terms;  // [n_groups][V]
    T* probability;          // [n_blocks * LANES][n_sampled], the rows of every `stride`-th word
    std::int64_t stride, n_sampled;
    std::int64_t n_units;
    std::int32_t n_variables;
};

// Scratch of one task: buffers of buffer_rows * LANES values (the first two once per block of the panel), one row list.
template <class T>
struct Scratch {
    T* logits;
    T* extra;
    T* by_column;  // [LANES][buffer_rows]
    std::uint16_t* list;
    std::uint64_t* words;
};

#define UNDIRECTED_PLL_KERNELS(NAME)                                                                                      \
    namespace NAME {                                                                                                      \
    void run(const Plan&, const Evaluation<float>&, const Scratch<float>&, int panel, int group);                         \
    void run(const Plan&, const Evaluation<double>&, const Scratch<double>&, int panel, int group);                       \
    void and_columns(const Plan&, const std::int32_t* literals, std::int64_t n, std::int64_t first, std::int64_t n_words, \
                     std::uint64_t* out);                                                                                 \
    std::int64_t count_bits(const std::uint64_t* words, std::int64_t n);                                                  \
    std::int32_t list_bits(const std::uint64_t* words, std::int64_t n, std::uint16_t* out);                               \
    void add_gram(const float* rows, std::int64_t n, std::int64_t width, float* out);                                     \
    void inverse_factor(float* a, std::int64_t n, float* inverse);                                                        \
    void times_factor(const float* factor, std::int64_t n, const float* x, const float* y, float* out_x, float* out_y);   \
    void descend(const float* hessian, std::int64_t n, const float* penalty, float* slope, float* at);                    \
    }

UNDIRECTED_FOR_EACH_INSTRUCTION_SET(UNDIRECTED_PLL_KERNELS)

}  // namespace undirected
