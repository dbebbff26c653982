// Evaluating the pseudo-likelihood: weights by cell, the pass over rows, sums by feature.
#include <algorithm>
#include <numeric>

#include "dispatch.hpp"
#include "pll_tables.hpp"
#include "pool.hpp"

namespace undirected {

void PseudoLikelihoodTables::set_active(const std::uint8_t* marks) {
    if (marks == nullptr)
        active_.clear();
    else
        active_.assign(marks, marks + n_features_);
    backward_start_.assign(plan_.n_blocks + 1, 0);
    backward_cells_.clear();
    for (std::int32_t block = 0; block < plan_.n_blocks; ++block) {
        std::int64_t last = -1;
        for (std::int64_t k = block_links_[block]; k < block_links_[block + 1]; ++k) {
            const Link& link = links_[k];
            const std::int64_t cell = unit_cell_[link.unit];
            if (cell == last || (marks != nullptr && !marks[link.feature < 0 ? ~link.feature : link.feature])) continue;
            backward_cells_.push_back(std::int32_t(cell));
            last = cell;
        }
        backward_start_[block + 1] = std::int64_t(backward_cells_.size());
    }
}

// A block's weights by unit, and the cells in which one of them is not zero.
template <class T>
void PseudoLikelihoodTables::spread_block(std::int64_t block, const double* weights, std::vector<T>& by_unit) {
    const std::int64_t from = cell_unit_[block_cells_[block]], n = cell_unit_[block_cells_[block + 1]] - from;
    std::fill_n(by_unit.data() + from, n, T(0));
    std::int64_t last = -1, end = block_cells_[block];
    double sum = 0;
    for (std::int64_t k = block_links_[block]; k < block_links_[block + 1]; ++k) {
        const Link& link = links_[k];
        if (k > block_links_[block] && link.unit != links_[k - 1].unit) sum = 0;
        const std::int32_t j = link.feature < 0 ? ~link.feature : link.feature;
        sum += link.feature < 0 ? -weights[j] : weights[j];
        by_unit[link.unit] = T(sum);
        const std::int64_t cell = unit_cell_[link.unit];
        if (cell == last || weights[j] == 0) continue;
        forward_cells_[end++] = std::int32_t(cell);
        last = cell;
    }
    forward_end_[block] = end;
}

template <class T>
void PseudoLikelihoodTables::run(Evaluation<T>& e, const double* weights, std::vector<T>& by_unit, int n_threads) {
    if (plan_.n_groups > 1)  // several tasks share a block
        parallel_for(plan_.n_blocks, n_threads, [&](std::int64_t block) { spread_block(block, weights, by_unit); });
    const std::int64_t n_tasks = std::int64_t(plan_.n_panels) * plan_.n_groups;
    loss_.assign(n_tasks, 0.0);
    e.loss = loss_.data();
    parallel_for(n_tasks, n_threads, [&](std::int64_t task) {
        static thread_local std::vector<T> values;
        static thread_local std::vector<std::uint16_t> list;
        static thread_local std::vector<std::uint64_t> words;
        const int panel = int(task / plan_.n_groups), group = int(task % plan_.n_groups);
        const std::int64_t size = std::int64_t(plan_.buffer_rows) * LANES * (plan_.panel_blocks[panel + 1] - plan_.panel_blocks[panel]);
        const std::int64_t block_size = std::int64_t(plan_.buffer_rows) * LANES;
        values.resize(2 * size + block_size);
        list.resize(plan_.buffer_rows);
        words.resize(plan_.chunk_rows / 64);
        const Scratch<T> scratch{values.data(), values.data() + size, values.data() + 2 * size, list.data(), words.data()};
        for (int block = plan_.panel_blocks[panel]; block < plan_.panel_blocks[panel + 1]; ++block) {
            if (plan_.n_groups == 1) spread_block(block, weights, by_unit);
            for (std::int64_t k = e.backward_start[block]; k < e.backward_start[block + 1]; ++k) {
                const std::int64_t at = cell_unit_[e.backward_cells[k]], n = cell_unit_[e.backward_cells[k] + 1] - at;
                if (e.gradient != nullptr) std::fill_n(e.gradient + group * e.n_units + at, n, 0.0);
                if (e.curvature != nullptr) std::fill_n(e.curvature + group * e.n_units + at, n, 0.0);
            }
        }
        UNDIRECTED_DISPATCH(run(plan_, e, scratch, panel, group));
    });
}

void PseudoLikelihoodTables::gather(const std::vector<double>& cells, bool square, double* out, int n_threads) {
    n_threads = light_threads(n_threads);
    const std::int64_t step = 4096, n_tasks = (n_features_ + step - 1) / step;
    parallel_for(n_tasks, n_threads, [&](std::int64_t task) {
        for (std::int64_t j = task * step; j < std::min(n_features_, (task + 1) * step); ++j) {
            double sum = 0;
            if (active_.empty() || active_[j])
                for (std::int64_t k = feature_start_[j]; k < feature_start_[j + 1]; ++k) {
                    double unit = 0;
                    for (std::int32_t group = 0; group < plan_.n_groups; ++group)
                        unit += cells[group * std::int64_t(unit_cell_.size()) + feature_units_[k] / 2];
                    sum += feature_units_[k] % 2 && !square ? -unit : unit;
                }
            out[j] = sum;
        }
    });
}

template <class T>
Evaluation<T> PseudoLikelihoodTables::prepare(int pass, std::vector<T>& by_unit) {
    by_unit.resize(unit_cell_.size());
    forward_cells_.resize(n_cells_);
    forward_end_.resize(plan_.n_blocks);
    Evaluation<T> e{};
    e.pass = pass;
    e.weights = by_unit.data();
    e.forward_end = forward_end_.data();
    e.forward_cells = forward_cells_.data();
    e.backward_start = backward_start_.data();
    e.backward_cells = backward_cells_.data();
    e.n_units = std::int64_t(unit_cell_.size());
    e.n_variables = n_variables();
    const auto room = [&](std::vector<double>& cells) {
        cells.resize(plan_.n_groups * unit_cell_.size());
        return cells.data();
    };
    if (pass & GRADIENT) e.gradient = room(gradient_);
    if (pass & CURVATURE) e.curvature = room(curvature_);
    return e;
}

double PseudoLikelihoodTables::evaluate(const double* weights, double* gradient, double* curvature, bool single, int n_threads) {
    const int pass = LOSS | (gradient ? GRADIENT : 0) | (curvature ? CURVATURE : 0);
    if (single) {
        auto e = prepare(pass, single_);
        run(e, weights, single_, n_threads);
    } else {
        auto e = prepare(pass, double_);
        run(e, weights, double_, n_threads);
    }
    if (gradient) gather(gradient_, false, gradient, n_threads);
    if (curvature) gather(curvature_, true, curvature, n_threads);
    return std::accumulate(loss_.begin(), loss_.end(), 0.0);
}

void PseudoLikelihoodTables::terms(const double* weights, double* by_row, double* by_variable, int n_threads) {
    auto e = prepare(LOSS | TERMS, double_);
    std::vector<double> rows(std::int64_t(plan_.n_panels) * plan_.n_rows, 0.0),
        variables(std::int64_t(plan_.n_groups) * n_variables(), 0.0);
    e.row_terms = rows.data();
    e.variable_terms = variables.data();
    run(e, weights, double_, n_threads);
    std::fill_n(by_row, plan_.n_rows, 0.0);
    for (std::int32_t panel = 0; panel < plan_.n_panels; ++panel)
        for (std::int64_t r = 0; r < plan_.n_rows; ++r) by_row[r] += rows[panel * plan_.n_rows + r];
    std::fill_n(by_variable, n_variables(), 0.0);
    for (std::int32_t group = 0; group < plan_.n_groups; ++group)
        for (std::int32_t v = 0; v < n_variables(); ++v) by_variable[v] += variables[std::int64_t(group) * n_variables() + v];
}

void PseudoLikelihoodTables::probabilities(const double* weights, double* out, int n_threads) {
    auto e = prepare(PROBABILITY, double_);
    const std::int64_t n = plan_.n_rows;
    std::vector<double> columns(std::int64_t(plan_.n_blocks) * LANES * n);
    e.probability = columns.data();
    e.stride = 1;
    e.n_sampled = n;
    run(e, weights, double_, n_threads);
    for (std::int32_t literal = 0; literal < plan_.n_literals; ++literal) {
        const std::int32_t v = numbers_.variable(literal), s = numbers_.state(literal);
        if (first_lane_[v] < 0) {  // one state: nothing else can be
            for (std::int64_t r = 0; r < n; ++r) out[r * plan_.n_literals + literal] = 1.0;
            continue;
        }
        const double* column = columns.data() + std::int64_t(first_lane_[v] + (n_states_[v] == 2 ? 0 : s)) * n;
        const bool other = n_states_[v] == 2 && s == 0;  // the column is that of the second state
        for (std::int64_t r = 0; r < n; ++r) out[r * plan_.n_literals + literal] = other ? 1 - column[r] : column[r];
    }
}

std::int64_t PseudoLikelihoodTables::sample(const double* weights, std::int64_t stride, int n_threads) {
    auto e = prepare(PROBABILITY, single_);
    stride_ = stride;
    n_sampled_ = (plan_.n_words + stride - 1) / stride * 64;
    sample_.assign(std::int64_t(plan_.n_blocks) * LANES * n_sampled_, 0.0f);
    e.probability = sample_.data();
    e.stride = stride;
    e.n_sampled = n_sampled_;
    run(e, weights, single_, n_threads);
    return n_sampled_;
}

}  // namespace undirected
