// The cells of the pseudo-likelihood: a context and a block of columns, and the way in which the two are worked.
#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "pll_parts.hpp"
#include "pool.hpp"

namespace undirected {

struct PseudoLikelihoodTables::Cell {
    Way way;
    std::uint8_t lanes;  // bit k: column k is used
    std::int32_t context;
    std::int64_t from, to;  // its places

    // The order of work: together first, then by the first column.
    int order() const { return way == TOGETHER ? 0 : 1 << 8 | __builtin_ctz(lanes) << 4 | way; }
};

// The offsets of the blocks among the places, which are sorted by block; those whose context never holds are left out.
std::vector<std::int64_t> PseudoLikelihoodTables::sort_by_block(std::vector<Place>& places) {
    std::vector<std::int64_t> start(plan_.n_blocks + 1, 0);
    std::erase_if(places, [&](const Place& p) { return count_[p.context] == 0; });
    for (const Place& p : places) {
        ++start[p.block + 1];
        n_held_ += count_[p.context];
    }
    std::partial_sum(start.begin(), start.end(), start.begin());
    std::vector<Place> sorted(places.size());
    auto next = start;
    for (const Place& p : places) sorted[next[p.block]++] = p;
    places = std::move(sorted);
    return start;
}

// Costs in vector operations a row, measured: about 2 for a listed row, 0.3 a row and column by bits.
Way PseudoLikelihoodTables::cheapest_way(const Cell& cell) const {
    const double density = double(count_[cell.context]) / double(plan_.n_rows);
    const int used = __builtin_popcount(cell.lanes);
    const double together = 2.0 * std::min(density, 1 - density), bits = 0.3 * used, list = 2.0 * used * density;
    return bits < std::min(together, list) ? COLUMN_BITS : used == 1 && list <= together ? COLUMN_LIST : TOGETHER;
}

// The cells of a block, whose places are sorted by context on the way.
std::vector<PseudoLikelihoodTables::Cell> PseudoLikelihoodTables::find_cells(std::vector<Place>& places, std::int64_t from,
                                                                             std::int64_t to) const {
    std::sort(places.begin() + from, places.begin() + to, [](const Place& x, const Place& y) {
        return x.context != y.context ? x.context < y.context : x.lane != y.lane ? x.lane < y.lane : x.feature < y.feature;
    });
    std::vector<Cell> out;
    for (std::int64_t k = from; k < to; ++k) {
        if (k == from || places[k].context != places[k - 1].context) out.push_back({TOGETHER, 0, places[k].context, k, k});
        out.back().to = k + 1;
        out.back().lanes |= std::uint8_t(1u << places[k].lane);
    }
    for (Cell& cell : out) cell.way = cheapest_way(cell);
    std::stable_sort(out.begin(), out.end(), [](const Cell& x, const Cell& y) { return x.order() < y.order(); });
    return out;
}

void PseudoLikelihoodTables::make_cells(std::vector<Place> places, int n_threads) {
    const std::vector<std::int64_t> start = sort_by_block(places);
    std::vector<std::vector<Cell>> cells(plan_.n_blocks);
    parallel_for(plan_.n_blocks, n_threads, [&](std::int64_t block) { cells[block] = find_cells(places, start[block], start[block + 1]); });
    number_units(cells, places);
    link_features();
}

// Numbers the cells and their units, block by block, and notes which feature's weight goes to which unit.
void PseudoLikelihoodTables::number_units(const std::vector<std::vector<Cell>>& cells, const std::vector<Place>& places) {
    links_.reserve(places.size());
    block_links_.assign(1, 0);
    block_cells_.assign(1, 0);
    for (const std::vector<Cell>& block : cells) {
        for (const Cell& cell : block) {
            const bool together = cell.way == TOGETHER;
            for (std::int64_t k = cell.from; k < cell.to; ++k) {
                const Place& p = places[k];
                const int slot = together ? p.lane : __builtin_popcount(cell.lanes & ((1u << p.lane) - 1));
                links_.push_back({std::uint32_t(unit_cell_.size() + slot), p.minus ? ~p.feature : p.feature});
            }
            cell_unit_.push_back(std::int64_t(unit_cell_.size()));
            unit_cell_.resize(unit_cell_.size() + (together ? LANES : __builtin_popcount(cell.lanes)), std::int32_t(cell_context_.size()));
            cell_context_.push_back(cell.context);
            cell_way_.push_back(std::uint8_t(cell.way));
            cell_lanes_.push_back(cell.lanes);
        }
        block_cells_.push_back(std::int64_t(cell_context_.size()));
        block_links_.push_back(std::int64_t(links_.size()));
    }
    n_cells_ = std::int64_t(cell_context_.size());
    cell_unit_.push_back(std::int64_t(unit_cell_.size()));
    if (unit_cell_.size() >= (std::size_t(1) << 31))
        throw std::length_error("too many contexts for one pseudo-likelihood: use fewer or shorter features");
}

// The links from the features' side: the units to which each feature's weight goes.
void PseudoLikelihoodTables::link_features() {
    feature_start_.assign(n_features_ + 1, 0);
    for (const Link& link : links_) ++feature_start_[(link.feature < 0 ? ~link.feature : link.feature) + 1];
    std::partial_sum(feature_start_.begin(), feature_start_.end(), feature_start_.begin());
    feature_units_.resize(links_.size());
    std::vector<std::int64_t> place(feature_start_.begin(), feature_start_.end() - 1);
    for (const Link& link : links_) {
        const bool minus = link.feature < 0;
        feature_units_[place[minus ? ~link.feature : link.feature]++] = 2 * link.unit + minus;
    }
}

void PseudoLikelihoodTables::for_units(std::int64_t feature, const UnitVisitor& visit) const {
    for (std::int64_t k = feature_start_[feature]; k < feature_start_[feature + 1]; ++k) {
        const std::int64_t unit = feature_units_[k] / 2, cell = unit_cell_[unit];
        std::int64_t lane = unit - cell_unit_[cell];
        if (cell_way_[cell] != TOGETHER) {  // the unit of the n-th column that is used
            unsigned lanes = cell_lanes_[cell];
            for (; lane > 0; --lane) lanes &= lanes - 1;
            lane = __builtin_ctz(lanes);
        }
        const auto block = std::upper_bound(block_cells_.begin(), block_cells_.end(), cell) - block_cells_.begin() - 1;
        const std::int32_t column = std::int32_t(block * LANES + lane), v = lane_variable_[column];
        visit(v, n_states_[v] == 2 ? 1 : column - first_lane_[v], cell_context_[cell], feature_units_[k] % 2 != 0);
    }
}

// Contexts numbered in the order in which cells come to them, so that their lists are read one after another.
void PseudoLikelihoodTables::renumber() {
    std::vector<std::int32_t> to(plan_.n_contexts, -1);
    std::int32_t next = 0;
    for (std::int32_t& context : cell_context_) {
        if (to[context] < 0) to[context] = next++;
        context = to[context];
    }
    for (std::int32_t& number : to)
        if (number < 0) number = next++;
    const auto count = count_;
    const auto complement = complement_;
    for (std::int64_t c = 0; c < plan_.n_contexts; ++c) {
        count_[to[c]] = count[c];
        complement_[to[c]] = complement[c];
    }
    std::vector<std::uint64_t> counts(plan_.n_contexts);
    for (std::int64_t chunk = 0; chunk < plan_.n_chunks; ++chunk) {
        std::uint64_t* at = list_start_.data() + chunk * plan_.n_contexts;
        std::copy_n(at, plan_.n_contexts, counts.begin());
        for (std::int64_t c = 0; c < plan_.n_contexts; ++c) at[to[c]] = counts[c];
    }
    number_ = std::move(to);
}

}  // namespace undirected
