// Building the tables of the pseudo-likelihood, step by step; here the layout of columns and the chunks of rows.
#include <algorithm>

#include "pll_parts.hpp"

namespace undirected {

PseudoLikelihoodTables::PseudoLikelihoodTables(const Table& table, const Features& features, std::int64_t memory, int n_threads)
    : n_features_(features.n),
      numbers_(table.n_states, table.n_variables),
      n_states_(table.n_states, table.n_states + table.n_variables),
      row_weight_(table.row_weight, table.row_weight + table.n_rows),
      row_weight_single_(table.row_weight, table.row_weight + table.n_rows),
      start_(features.start, features.start + features.n + 1),
      feature_literals_(features.literals, features.literals + features.start[features.n]) {
    plan_.n_literals = numbers_.count();
    plan_.n_rows = table.n_rows;
    plan_.n_words = table.n_words;
    columns_.assign(table.columns, table.columns + std::int64_t(plan_.n_literals) * table.n_words);
    plan_.columns = columns_.data();
    plan_.row_weight = row_weight_.data();
    plan_.row_weight_single = row_weight_single_.data();
    lay_out_columns();
    cut_rows();
    std::vector<Place> places = find_contexts(features);
    count_rows(features, n_threads);
    make_cells(std::move(places), n_threads);
    renumber();
    const std::vector<std::uint8_t> listed = choose_listed(memory);
    note_literals(features, listed);
    list_rows(features, listed, n_threads);
    plan_.lists = lists_.data();
    plan_.list_start = list_start_.data();
    plan_.unlisted = unlisted_.data();
    plan_.complement = complement_.data();
    plan_.literal_start = literal_start_.data();
    plan_.literals = literals_.data();
    plan_.block_cells = block_cells_.data();
    plan_.cell_context = cell_context_.data();
    plan_.cell_unit = cell_unit_.data();
    plan_.cell_way = cell_way_.data();
    plan_.cell_lanes = cell_lanes_.data();
    set_active(nullptr);
}

// Binary variables first, eight to a panel; then the others, each within one panel.
void PseudoLikelihoodTables::lay_out_columns() {
    const std::int32_t n_variables = std::int32_t(n_states_.size());
    first_lane_.assign(n_variables, -1);
    std::int32_t blocks = 0, lane = LANES;
    const auto open_panel = [&](bool binary, std::int32_t width) {
        panel_blocks_.push_back(blocks);
        panel_variables_.push_back(std::int32_t(variables_.size()));
        panel_binary_.push_back(binary);
        blocks += (width + LANES - 1) / LANES;
        lane = 0;
    };
    const auto place = [&](std::int32_t v, std::int32_t width) {
        first_lane_[v] = panel_blocks_.back() * LANES + lane;
        variables_.push_back({v, lane, n_states_[v]});
        lane += width;
    };
    for (std::int32_t v = 0; v < n_variables; ++v)
        if (n_states_[v] == 2) {
            if (lane == LANES) open_panel(true, 1);
            place(v, 1);
        }
    lane = LANES;
    for (std::int32_t v = 0; v < n_variables; ++v)
        if (n_states_[v] > 2) {
            if (lane + n_states_[v] > LANES) open_panel(false, n_states_[v]);
            place(v, n_states_[v]);
        }
    panel_blocks_.push_back(blocks);
    panel_variables_.push_back(std::int32_t(variables_.size()));
    plan_.n_panels = std::int32_t(panel_binary_.size());
    plan_.n_blocks = blocks;
    lane_variable_.assign(std::int64_t(blocks) * LANES, -1);
    for (std::int32_t v = 0; v < n_variables; ++v)
        if (first_lane_[v] >= 0) std::fill_n(lane_variable_.begin() + first_lane_[v], n_states_[v] == 2 ? 1 : n_states_[v], v);
    truth_.assign(std::int64_t(blocks) * plan_.n_rows, 0);
    for (std::int32_t literal = 0; literal < plan_.n_literals; ++literal) {
        const std::int32_t v = numbers_.variable(literal);
        if (first_lane_[v] < 0 || (n_states_[v] == 2 && numbers_.state(literal) == 0)) continue;
        const std::int32_t at = first_lane_[v] + (n_states_[v] == 2 ? 0 : numbers_.state(literal));
        std::uint8_t* truth = truth_.data() + std::int64_t(at / LANES) * plan_.n_rows;
        const std::uint64_t* column = plan_.columns + std::int64_t(literal) * plan_.n_words;
        for (std::int64_t w = 0; w < plan_.n_words; ++w)
            for (std::uint64_t bits = column[w]; bits != 0; bits &= bits - 1)
                truth[w * 64 + __builtin_ctzll(bits)] |= std::uint8_t(1u << (at % LANES));
    }
    plan_.truth = truth_.data();
    plan_.panel_blocks = panel_blocks_.data();
    plan_.panel_variables = panel_variables_.data();
    plan_.variables = variables_.data();
    plan_.panel_binary = panel_binary_.data();
}

// Chunks keep a block's logits in the second-level cache; groups of chunks are what threads share when there are few panels.
// Short tables and wide panels (variables of many states) take smaller ones, so that buffers stay small.
void PseudoLikelihoodTables::cut_rows() {
    std::int64_t widest = 1;
    for (std::int32_t panel = 0; panel < plan_.n_panels; ++panel)
        widest = std::max<std::int64_t>(widest, panel_blocks_[panel + 1] - panel_blocks_[panel]);
    std::int64_t chunk = plan_.n_panels >= 8 || plan_.n_rows <= 8192 ? 8192 : 2048;
    chunk = std::min({chunk, (plan_.n_rows + 63) / 64 * 64, std::max<std::int64_t>(64, (std::int64_t(1) << 18) / widest / 64 * 64)});
    plan_.chunk_rows = std::int32_t(chunk);
    plan_.buffer_rows = plan_.chunk_rows + LANES;
    plan_.n_chunks = std::int32_t((plan_.n_rows + plan_.chunk_rows - 1) / plan_.chunk_rows);
    plan_.n_groups = std::max(1, std::min(plan_.n_chunks, (16 + plan_.n_panels - 1) / std::max(1, plan_.n_panels)));
}

}  // namespace undirected
