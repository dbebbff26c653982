// The pseudo-likelihood of a feature set on a table: built once, evaluated many times.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "literals.hpp"
#include "plan.hpp"
#include "table.hpp"

namespace undirected {

class PseudoLikelihoodTables {
public:
    PseudoLikelihoodTables(const Table& table, const Features& features, std::int64_t memory, int n_threads);

    std::int64_t n_features() const { return n_features_; }
    std::int64_t n_rows() const { return plan_.n_rows; }
    std::int64_t n_words() const { return plan_.n_words; }
    double row_weight(std::int64_t row) const { return row_weight_[row]; }
    const std::vector<std::uint64_t>& literal_columns() const { return columns_; }  // [n_literals][n_words], positive literals
    std::int32_t first_literal(std::int32_t variable) const { return numbers_.first(variable); }
    std::int32_t n_literals() const { return plan_.n_literals; }
    std::int32_t n_variables() const { return std::int32_t(n_states_.size()); }
    std::int32_t n_states(std::int32_t variable) const { return n_states_[variable]; }
    std::int64_t n_sampled() const { return n_sampled_; }
    std::int64_t n_cells() const { return n_cells_; }
    std::int64_t n_contexts() const { return plan_.n_contexts; }
    std::int64_t n_listed() const { return n_listed_; }
    std::int64_t list_bytes() const { return std::int64_t(lists_.size()) * 2; }
    std::int64_t n_entries() const { return n_entries_; }
    std::int64_t n_held() const { return n_held_; }  // (feature, column, row) with the context holding
    std::int64_t n_groups() const;                   // of eight rows in which contexts hold, at most
    std::int64_t work() const { return work_; }      // vector operations of one pass over all cells

    // Restricts gradients to the features with a non-zero mark; null lifts the restriction.
    void set_active(const std::uint8_t* marks);

    // Negative log pseudo-likelihood; gradient and curvature (diagonal of the Hessian) where not null.
    double evaluate(const double* weights, double* gradient, double* curvature, bool single, int n_threads);
    // Log-probability of each row (summed over variables) and of each variable (summed over rows, weighted).
    void terms(const double* weights, double* by_row, double* by_variable, int n_threads);
    // Conditional probability of every (variable, state), [n_rows][n_literals].
    void probabilities(const double* weights, double* out, int n_threads);

    // For second-order information: the rows of every `stride`-th word of 64 are kept as a sample, with their conditional
    // probabilities under `weights`; returns how many rows.
    std::int64_t sample(const double* weights, std::int64_t stride, int n_threads);
    // The Hessian of one variable's term between some features, estimated from the sample: [n][n]. The variable has two states or more.
    void gram(std::int32_t variable, const std::int32_t* features, std::int64_t n, float* out) const;

    // For each state of each variable that a feature speaks of: its context, whether the weight enters the state's logit with a minus. Of
    // a variable with two states that is the second, of another with more than half of its states allowed those that are not. Contexts
    // that hold in no row are left out.
    using UnitVisitor = std::function<void(std::int32_t variable, std::int32_t state, std::int32_t context, bool minus)>;
    void for_units(std::int64_t feature, const UnitVisitor& visit) const;
    // Every context with the bits of its rows, in several threads at once.
    void for_each_context(int n_threads, const std::function<void(std::int32_t context, const std::uint64_t* words)>& visit) const;

private:
    struct Link {  // feature -> one unit of a cell
        std::uint32_t unit;
        std::int32_t feature;  // ~feature: with the opposite sign
    };

    void lay_out_columns();
    void cut_rows();
    struct Place;
    std::vector<Place> find_contexts(const Features& features);
    template <class Visit>
    void for_contexts(const Features& features, int n_threads, const Visit& visit) const;
    void count_rows(const Features& features, int n_threads);
    std::int64_t list_length(std::int64_t context) const;
    std::vector<std::int64_t> sort_by_block(std::vector<Place>& places);
    struct Cell;
    std::vector<Cell> find_cells(std::vector<Place>& places, std::int64_t from, std::int64_t to) const;
    Way cheapest_way(const Cell& cell) const;
    void make_cells(std::vector<Place> places, int n_threads);
    void number_units(const std::vector<std::vector<Cell>>& cells, const std::vector<Place>& places);
    void link_features();
    void renumber();
    std::vector<std::uint8_t> choose_listed(std::int64_t memory);
    void note_literals(const Features& features, const std::vector<std::uint8_t>& listed);
    void list_rows(const Features& features, const std::vector<std::uint8_t>& listed, int n_threads);
    template <class T>
    void spread_block(std::int64_t block, const double* weights, std::vector<T>& by_unit);
    template <class T>
    void run(Evaluation<T>& e, const double* weights, std::vector<T>& by_unit, int n_threads);
    // Waking threads costs more than a short walk over the links.
    int light_threads(int n_threads) const { return links_.size() < (std::size_t(1) << 14) ? 1 : n_threads; }
    void gather(const std::vector<double>& cells, bool square, double* out, int n_threads);
    template <class T>
    Evaluation<T> prepare(int pass, std::vector<T>& by_unit);
    struct Term;  // one variable's, on the sample
    Term prepare_term(std::int32_t variable, const std::int32_t* features, std::int64_t n) const;
    void add_row_by_row(const Term& term, std::int64_t n, float* out) const;
    void add_in_strips(const Term& term, std::int64_t n, float* out) const;

    Plan plan_{};
    std::int64_t n_features_, n_cells_ = 0, n_listed_ = 0, n_entries_ = 0, n_held_ = 0, work_ = 0;
    LiteralNumbers numbers_;
    std::vector<std::int32_t> n_states_, first_lane_;  // first column of a variable; -1 where it has one state only
    std::vector<std::int32_t> lane_variable_;          // the variable of each column
    std::vector<std::uint64_t> columns_;
    std::vector<double> row_weight_;
    std::vector<float> row_weight_single_;
    std::vector<std::uint16_t> lists_;
    std::vector<std::uint64_t> list_start_;
    std::vector<std::int64_t> count_;  // rows in which a context holds
    std::vector<std::uint8_t> complement_, unlisted_, truth_, panel_binary_, cell_way_, cell_lanes_;
    std::vector<std::int64_t> literal_start_, block_cells_, block_links_, cell_unit_;
    std::vector<std::int32_t> literals_, cell_context_, unit_cell_, panel_blocks_, panel_variables_;
    std::vector<PanelVariable> variables_;
    // contexts by their first feature: the literals [skip_from, skip_to) of that feature are left out
    std::vector<std::int64_t> owner_start_;  // [n_features + 1] contexts owned, in order of discovery
    std::vector<std::int32_t> skip_from_, skip_to_;
    std::vector<std::int32_t> number_;  // of each context, by discovery; made the order of first use by `renumber`
    std::vector<Link> links_;           // by block, then unit
    std::vector<std::int64_t> feature_start_;
    std::vector<std::uint32_t> feature_units_;  // 2 * unit + (sign is minus)
    std::vector<std::uint8_t> active_;
    std::vector<std::int64_t> forward_end_, backward_start_;
    std::vector<std::int32_t> forward_cells_, backward_cells_;
    std::vector<double> gradient_, curvature_, loss_;
    std::vector<float> sample_;
    std::int64_t stride_ = 1, n_sampled_ = 0;
    std::vector<std::int64_t> start_;
    std::vector<std::int32_t> feature_literals_;
    std::vector<float> single_;  // weights by unit
    std::vector<double> double_;
};

}  // namespace undirected
