// Coordinate descent for the pseudo-likelihood: the state that a sweep over features keeps up to date, and the sweep.
//
// The state is the odds of every variable in every row, in single precision. A feature looks at the rows of its contexts, takes the
// Newton-like step of its own weight, and multiplies the odds of those rows.
#pragma once
#include <cstdint>
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
    void find_parts(const PseudoLikelihoodTables& tables);
    void list_groups(const PseudoLikelihoodTables& tables, int n_threads);
    void set_constants(int n_threads);
    void add_term_images(std::int32_t term, const double* steps, float factor, float* images) const;
    void visit(std::int32_t feature, const SweepPenalty& penalty, const SweepResult& result, bool refresh, Least least);
    void fetch_early(std::int32_t feature) const;
    void sweep_together(const std::int32_t* order, std::int64_t n, const SweepPenalty& penalty, const SweepResult& result, bool refresh,
                        Least least, int n_threads);
    GroupList rows_of(const Part& part) const {
        const Group* groups = groups_.data() + list_start_[part.context];
        if (dense_[part.context]) return {nullptr, n_groups_, reinterpret_cast<const std::uint8_t*>(groups)};
        return {groups, list_start_[part.context + 1] - list_start_[part.context], nullptr};
    }
    Columns columns_of(std::int32_t term) const;
    std::int32_t n_terms() const { return std::int32_t(term_states_.size()); }
    Directions directions(std::int32_t n, const double* amounts, std::int32_t term) const;

    std::int64_t n_groups_, stride_, truth_stride_;
    double total_weight_;
    std::vector<std::int32_t> term_column_, term_states_;  // the first column of each variable's term, and how many columns it has
    std::vector<std::int32_t> term_literal_;               // the literal of its first column
    std::vector<std::uint64_t> columns_;
    std::vector<float> row_weight_;
    std::vector<std::int64_t> part_start_, costs_;
    std::vector<Part> parts_;
    std::vector<std::int32_t> states_;
    std::vector<std::int64_t> term_start_;                           // by term: the parts of all features, for sums over features
    std::vector<std::pair<std::int32_t, std::int32_t>> term_parts_;  // feature, part
    std::vector<double> constant_;                                   // what the rows' own states add to a feature's slope
    std::vector<std::int64_t> list_start_;
    std::vector<std::uint8_t> dense_;  // contexts of which all groups have a byte each
    std::vector<Group> groups_;        // lists, and those bytes
    std::vector<float> odds_, logits_, images_[MOST_DIRECTIONS];
};

}  // namespace undirected
