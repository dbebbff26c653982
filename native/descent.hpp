// Coordinate descent for the pseudo-likelihood: the state that a sweep over features keeps up to date, and the sweep.
//
// The state is the odds of every variable in every row, in single precision. A feature looks at the rows of its contexts, takes the
// Newton-like step of its own weight, and multiplies the odds of those rows.
#pragma once
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "descent_kernels.hpp"
#include "pll_tables.hpp"

namespace undirected {

// One number per feature each.
struct SweepPenalty {
    const double *l1, *ridge, *centre;
};

// One number per feature each; a sweep writes those of the features that it visits.
struct SweepResult {
    double* weights;
    double* curvature;  // of the loss; read where it is not refreshed
    double* slope;      // the smallest subgradient before the step
    double* gain;       // how much the step should lower the objective
};

// Steps that are worth taking gain as much, or have such a slope.
struct Least {
    double gain, slope;
};

class Descent {
public:
    Descent(const PseudoLikelihoodTables& tables, int n_threads);

    std::int64_t n_features() const { return std::int64_t(part_start_.size()) - 1; }
    // How many groups of rows a visit to each feature goes through.
    const std::vector<std::int64_t>& costs() const { return costs_; }

    // The state from weights.
    void set_weights(const double* weights, int n_threads);
    // The features in an order in which those that are near to each other have no variable in common, as far as possible.
    std::vector<std::int32_t> spread_out(const std::int32_t* order, std::int64_t n) const;
    // Visits features in this order. Steps that are small, by gain and by slope, are not taken.
    // The result is the same for any number of threads.
    void sweep(const std::int32_t* order, std::int64_t n, const SweepPenalty& penalty, const SweepResult& result, bool refresh, Least least,
               int n_threads);
    // The logits from the state; their change since the last call is kept as the image of a direction.
    void keep_image(std::int32_t direction, int n_threads);
    // The image of a direction from the steps of weights that it stands for, without the rounding of many sweeps.
    void set_image(std::int32_t direction, const double* steps, int n_threads);
    // Takes these steps of weights out of the image of a direction.
    void correct_image(std::int32_t direction, const double* steps, int n_threads);
    // The loss at amounts of the first `n` directions.
    Along measure(std::int32_t n, const double* amounts, int n_threads) const;
    // Moves the state along the directions and by further steps of weights, and adds the move to the image of one direction.
    void move(std::int32_t n, const double* amounts, std::int32_t direction, const double* steps, int n_threads);

private:
    struct Part {  // what a feature does to one variable
        std::int32_t context, term, states_from, states_to;
        bool minus;
    };
    struct Strip {  // some of the rows: groups [from, from + n), those of the common weight first
        std::int64_t from, n_common, n;
    };
    struct Decision {  // of a visit
        double slope, gain, step, curvature;
    };
    void order_rows(const PseudoLikelihoodTables& tables);
    std::vector<std::uint64_t> reorder(const std::uint64_t* words) const;
    std::vector<Part> find_parts(const PseudoLikelihoodTables& tables);
    std::vector<GroupList> list_groups(const PseudoLikelihoodTables& tables, int n_threads);
    void make_pieces(const std::vector<Part>& parts, const std::vector<GroupList>& lists);
    void set_constants(int n_threads);
    void add_term_images(std::int32_t term, int strip, const double* steps, float factor, float* images) const;
    void for_terms(int n_threads, const std::function<void(std::int32_t term, int strip)>& visit) const;
    void gather_strips(std::int32_t feature, int from, int to, bool refresh, Sums* sums) const;
    Decision decide(std::int32_t feature, const Sums* sums, const SweepPenalty& penalty, const SweepResult& result, bool refresh,
                    Least least) const;
    static void write(const Decision& decision, std::int32_t feature, const SweepResult& result);
    void multiply_strips(std::int32_t feature, int from, int to, double step);
    void fetch_early(const std::int32_t* order, std::int64_t n, int from, int to) const;
    void sweep_alone(const std::int32_t* order, std::int64_t n, const SweepPenalty& penalty, const SweepResult& result, bool refresh,
                     Least least);
    void sweep_together(const std::int32_t* order, std::int64_t n, const SweepPenalty& penalty, const SweepResult& result, bool refresh,
                        Least least, int n_threads);
    std::vector<std::int64_t> cut_batches(const std::int32_t* order, std::int64_t n) const;
    int n_strips() const { return int(strips_.size()); }
    std::int64_t n_parts() const { return std::int64_t(part_term_.size()); }
    // What a feature does in a strip, for each of its parts.
    const Piece* pieces_of(std::int32_t feature, int strip) const { return pieces_.data() + strip * n_parts() + part_start_[feature]; }
    std::int64_t stride(int strip) const { return strips_[strip].n * GROUP_ROWS; }  // from column to column
    // Where the numbers of a column's rows in a strip begin.
    std::int64_t place_of(std::int32_t column, int strip) const {
        return (strips_[strip].from * n_columns_ + strips_[strip].n * column) * GROUP_ROWS;
    }
    Columns columns_of(std::int32_t term, int strip) const;
    const float* weights_of(int strip) const { return row_weight_.data() + strips_[strip].from * GROUP_ROWS; }
    std::int32_t n_terms() const { return std::int32_t(term_states_.size()); }
    Directions directions(std::int32_t n, const double* amounts, std::int64_t place) const;

    std::int64_t n_rows_, n_groups_, n_columns_;
    double total_weight_;
    // Rows of the common weight come first, so that sums over them need not read weights. Words of 64 rows are then dealt out to strips,
    // and threads share out the strips. What belongs to a strip lies together, column by column: machines fetch memory ahead, and what
    // another thread is about to write to would go to and fro.
    double common_weight_;
    std::vector<std::uint64_t> is_common_;  // of the tables' rows
    std::int64_t others_from_;              // the first row of another weight, before words are dealt out
    std::vector<std::int64_t> word_place_;  // where the words then go
    std::vector<Strip> strips_;
    std::vector<std::int32_t> term_column_, term_states_;  // the first column of each variable's term, and how many columns it has
    std::vector<std::int32_t> term_literal_;               // the literal of its first column
    std::vector<std::uint64_t> columns_;                   // bits of literals, in this order of rows
    std::vector<float> row_weight_;
    std::vector<std::int64_t> part_start_, costs_;
    std::vector<std::int32_t> part_term_;    // of each feature's parts one after another: the variable's term
    std::vector<std::uint64_t> term_marks_;  // of each feature: bits of its terms, modulo 64
    std::vector<Piece> pieces_;              // by strip and part
    std::vector<std::int32_t> states_;
    std::vector<std::int64_t> term_start_;                           // by term: the parts of all features, for sums over features
    std::vector<std::pair<std::int32_t, std::int32_t>> term_parts_;  // feature, part
    std::vector<double> constant_;                                   // what the rows' own states add to a feature's slope
    std::vector<Group> groups_;                                      // lists of contexts, and bytes of those that hold in many groups
    std::vector<float> odds_, logits_, images_[MOST_DIRECTIONS];     // by strip, column and row
};

}  // namespace undirected
