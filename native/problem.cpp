#include "problem.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "hash.hpp"
#include "pool.hpp"

namespace undirected {
namespace {

struct Key {  // of a set of literals: sums of random words, so that leaving some out is a subtraction
    std::uint64_t a = 0, b = 0;
    void add(std::int32_t literal) {
        a += mix(2 * std::uint64_t(literal));
        b += mix(2 * std::uint64_t(literal) + 1);
    }
    Key operator-(const Key& other) const { return {a - other.a, b - other.b}; }
    bool operator==(const Key& other) const { return a == other.a && b == other.b; }
};

class KeyTable {  // open addressing, from key to the order of first appearance
public:
    explicit KeyTable(std::size_t expected) {
        std::size_t size = 64;
        while (size < 2 * expected) size *= 2;
        slots_.assign(size, {Key{}, -1});
    }
    std::pair<std::int32_t, bool> find_or_add(const Key& key) {
        if (2 * std::size_t(count_) >= slots_.size()) grow();
        for (std::size_t at = key.a & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
            if (slots_[at].id < 0) {
                slots_[at] = {key, count_};
                return {count_++, true};
            }
            if (slots_[at].key == key) return {slots_[at].id, false};
        }
    }
    std::int32_t size() const { return count_; }

private:
    struct Slot {
        Key key;
        std::int32_t id;
    };
    void grow() {
        std::vector<Slot> old(slots_.size() * 2, {Key{}, -1});
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (slot.id < 0) continue;
            std::size_t at = slot.key.a & (slots_.size() - 1);
            while (slots_[at].id >= 0) at = (at + 1) & (slots_.size() - 1);
            slots_[at] = slot;
        }
    }
    std::vector<Slot> slots_;
    std::int32_t count_ = 0;
};

}  // namespace

// Where the weight of a feature goes.
struct Problem::Place {
    std::int32_t block, context, feature;
    std::uint8_t lane, minus;
};

bool has_avx2() {
#if defined(__x86_64__) && defined(HAVE_AVX2_KERNELS)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi");
#else
    return false;
#endif
}

#if defined(HAVE_AVX2_KERNELS)
#define DISPATCH(call) (avx2_ ? avx2::call : baseline::call)
#else
#define DISPATCH(call) (baseline::call)
#endif

Problem::Problem(const Table& table, const Features& features, std::int64_t memory, int n_threads)
    : n_features_(features.n),
      n_states_(table.n_states, table.n_states + table.n_variables),
      row_weight_(table.row_weight, table.row_weight + table.n_rows),
      row_weight_single_(table.row_weight, table.row_weight + table.n_rows),
      start_(features.start, features.start + features.n + 1),
      feature_literals_(features.literals, features.literals + features.start[features.n]),
      avx2_(has_avx2()) {
    for (std::int32_t v = 0; v < table.n_variables; ++v) {
        literal_base_.push_back(std::int32_t(literal_variable_.size()));
        for (std::int32_t s = 0; s < n_states_[v]; ++s) {
            literal_variable_.push_back(v);
            literal_state_.push_back(s);
        }
    }
    plan_.n_literals = std::int32_t(literal_variable_.size());
    plan_.n_rows = table.n_rows;
    plan_.n_words = table.n_words;
    columns_.assign(table.columns, table.columns + std::int64_t(plan_.n_literals) * table.n_words);
    plan_.columns = columns_.data();
    plan_.row_weight = row_weight_.data();
    plan_.row_weight_single = row_weight_single_.data();
    lay_out_columns();
    // Chunks keep a block's logits in the second-level cache; groups of chunks are what threads share when there are few panels.
    // Short tables and wide panels (variables of many states) take smaller ones, so that buffers stay small.
    std::int64_t widest = 1;
    for (std::int32_t panel = 0; panel < plan_.n_panels; ++panel)
        widest = std::max<std::int64_t>(widest, panel_blocks_[panel + 1] - panel_blocks_[panel]);
    std::int64_t chunk = plan_.n_panels >= 8 || plan_.n_rows <= 8192 ? 8192 : 2048;
    chunk = std::min({chunk, (plan_.n_rows + 63) / 64 * 64, std::max<std::int64_t>(64, (std::int64_t(1) << 18) / widest / 64 * 64)});
    plan_.chunk_rows = std::int32_t(chunk);
    plan_.buffer_rows = plan_.chunk_rows + LANES;
    plan_.n_chunks = std::int32_t((plan_.n_rows + plan_.chunk_rows - 1) / plan_.chunk_rows);
    plan_.n_groups = std::max(1, std::min(plan_.n_chunks, (16 + plan_.n_panels - 1) / std::max(1, plan_.n_panels)));
    std::vector<Place> places = find_contexts(features);
    count_rows(features, n_threads);
    make_cells(std::move(places), n_threads);
    renumber();
    list_rows(features, memory, n_threads);
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
void Problem::lay_out_columns() {
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
    truth_.assign(std::int64_t(blocks) * plan_.n_rows, 0);
    for (std::int32_t literal = 0; literal < plan_.n_literals; ++literal) {
        const std::int32_t v = literal_variable_[literal];
        if (first_lane_[v] < 0 || (n_states_[v] == 2 && literal_state_[literal] == 0)) continue;
        const std::int32_t at = first_lane_[v] + (n_states_[v] == 2 ? 0 : literal_state_[literal]);
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

// Every (feature, variable) looks up its context and notes where its weight goes.
std::vector<Problem::Place> Problem::find_contexts(const Features& features) {
    std::vector<Place> places;
    KeyTable table(std::size_t(features.n));
    owner_start_.assign(features.n + 1, 0);
    std::vector<std::uint8_t> allowed;
    for (std::int64_t j = 0; j < features.n; ++j) {
        owner_start_[j] = table.size();
        const std::int64_t from = features.start[j], to = features.start[j + 1];
        Key whole;
        for (std::int64_t k = from; k < to; ++k) whole.add(features.literals[k]);
        for (std::int64_t a = from, b; a < to; a = b) {
            const auto variable_at = [&](std::int64_t k) { return literal_variable_[features.literals[k] % plan_.n_literals]; };
            const std::int32_t v = variable_at(a);
            Key own;
            for (b = a; b < to && variable_at(b) == v; ++b) own.add(features.literals[b]);
            if (first_lane_[v] < 0 || (features.target != nullptr && features.target[j] >= 0 && features.target[j] != v)) continue;
            const auto found = table.find_or_add(whole - own);
            const std::int32_t context = found.first;
            if (found.second) {
                skip_from_.push_back(std::int32_t(a - from));
                skip_to_.push_back(std::int32_t(b - from));
            }
            // The states the feature allows; where those are the majority, the others with the opposite sign.
            const std::int32_t k = n_states_[v];
            const bool positive = features.literals[a] < plan_.n_literals;
            allowed.assign(k, positive ? 0 : 1);
            for (std::int64_t i = a; i < b; ++i)
                allowed[literal_state_[features.literals[i] % plan_.n_literals]] = features.literals[i] < plan_.n_literals;
            const auto note = [&](std::int32_t lane, bool minus) {
                places.push_back({lane / LANES, context, std::int32_t(j), std::uint8_t(lane % LANES), std::uint8_t(minus)});
            };
            if (k == 2) {
                if (allowed[0] != allowed[1]) note(first_lane_[v], allowed[1] == 0);
                continue;
            }
            const std::int32_t n_allowed = std::accumulate(allowed.begin(), allowed.end(), 0);
            const bool minus = 2 * n_allowed > k;
            for (std::int32_t s = 0; s < k; ++s)
                if ((allowed[s] != 0) != minus) note(first_lane_[v] + s, minus);
        }
    }
    owner_start_[features.n] = plan_.n_contexts = table.size();
    number_.resize(plan_.n_contexts);
    std::iota(number_.begin(), number_.end(), 0);
    return places;
}

// Calls visit(context, words) for every context, each from the first feature that has it; the words come from the ANDs of
// the literals before and after the gap.
template <class Visit>
void Problem::for_contexts(const Features& features, int n_threads, const Visit& visit) {
    const std::int64_t n_words = plan_.n_words, step = 256, n_tasks = (features.n + step - 1) / step;
    const auto one = [&](std::int64_t j) {
        static thread_local std::vector<std::uint64_t> suffix, words;
        const std::int32_t* literals = features.literals + features.start[j];
        const std::int64_t n = features.start[j + 1] - features.start[j];
        words.resize(2 * n_words);
        std::uint64_t *prefix = words.data(), *both = prefix + n_words;
        suffix.resize((n + 1) * n_words);
        DISPATCH(and_columns(plan_, literals, 0, 0, n_words, suffix.data() + n * n_words));
        for (std::int64_t k = n - 1; k > 0; --k) {
            std::uint64_t* at = suffix.data() + k * n_words;
            DISPATCH(and_columns(plan_, literals + k, 1, 0, n_words, at));
            for (std::int64_t w = 0; w < n_words; ++w) at[w] &= at[w + n_words];
        }
        DISPATCH(and_columns(plan_, literals, 0, 0, n_words, prefix));
        std::int64_t done = 0;
        for (std::int64_t c = owner_start_[j]; c < owner_start_[j + 1]; ++c) {
            for (; done < skip_from_[c]; ++done) {
                DISPATCH(and_columns(plan_, literals + done, 1, 0, n_words, both));
                for (std::int64_t w = 0; w < n_words; ++w) prefix[w] &= both[w];
            }
            const std::uint64_t* rest = suffix.data() + skip_to_[c] * n_words;
            for (std::int64_t w = 0; w < n_words; ++w) both[w] = prefix[w] & rest[w];
            visit(number_[c], both);
        }
    };
    parallel_for(n_tasks, n_threads, [&](std::int64_t task) {
        for (std::int64_t j = task * step; j < std::min(features.n, (task + 1) * step); ++j)
            if (owner_start_[j] < owner_start_[j + 1]) one(j);
    });
}

void Problem::count_rows(const Features& features, int n_threads) {
    const std::int64_t n_words = plan_.n_words, chunk_words = plan_.chunk_rows / 64;
    complement_.assign(plan_.n_contexts, 0);
    list_start_.assign(plan_.n_contexts * plan_.n_chunks + 1, 0);
    count_.assign(plan_.n_contexts, 0);
    for_contexts(features, n_threads, [&](std::int64_t c, const std::uint64_t* words) {
        const auto count = [&](std::int32_t chunk) -> std::uint64_t& { return list_start_[chunk * plan_.n_contexts + c]; };
        for (std::int32_t chunk = 0; chunk < plan_.n_chunks; ++chunk) {
            const std::int64_t first = chunk * chunk_words;
            count(chunk) = std::uint64_t(DISPATCH(count_bits(words + first, std::min(chunk_words, n_words - first))));
            count_[c] += std::int64_t(count(chunk));
        }
        if (2 * count_[c] <= plan_.n_rows) return;
        complement_[c] = 1;
        for (std::int32_t chunk = 0; chunk < plan_.n_chunks; ++chunk)
            count(chunk) = std::uint64_t(std::min<std::int64_t>(plan_.chunk_rows, plan_.n_rows - std::int64_t(chunk) * plan_.chunk_rows)) -
                           count(chunk);
    });
}

// Groups places into cells, leaving out contexts that never hold, and chooses each cell's way (costs in vector
// operations a row, measured: about 2 for a listed row, 0.3 a row and column by bits).
void Problem::make_cells(std::vector<Place> places, int n_threads) {
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
    std::vector<Place>().swap(places);
    struct Cell {
        std::uint32_t key;  // way and first column: the order of work
        std::int32_t context;
        std::int64_t from, to;
        std::uint8_t lanes;
    };
    std::vector<std::vector<Cell>> cells(plan_.n_blocks);
    parallel_for(plan_.n_blocks, n_threads, [&](std::int64_t block) {
        const auto begin = sorted.begin() + start[block], end = sorted.begin() + start[block + 1];
        std::sort(begin, end, [](const Place& x, const Place& y) {
            return x.context != y.context ? x.context < y.context : x.lane != y.lane ? x.lane < y.lane : x.feature < y.feature;
        });
        auto& mine = cells[block];
        for (std::int64_t k = start[block]; k < start[block + 1]; ++k) {
            if (k == start[block] || sorted[k].context != sorted[k - 1].context) mine.push_back({0, sorted[k].context, k, k, 0});
            mine.back().to = k + 1;
            mine.back().lanes |= std::uint8_t(1u << sorted[k].lane);
        }
        for (Cell& cell : mine) {
            const double density = double(count_[cell.context]) / double(plan_.n_rows);
            const int used = __builtin_popcount(cell.lanes);
            const double together = 2.0 * std::min(density, 1 - density), bits = 0.3 * used, list = 2.0 * used * density;
            const Way way = bits < std::min(together, list) ? COLUMN_BITS : used == 1 && list <= together ? COLUMN_LIST : TOGETHER;
            cell.key = std::uint32_t(way != TOGETHER) << 8 | std::uint32_t(way == TOGETHER ? 0 : __builtin_ctz(cell.lanes)) << 4 | way;
        }
        std::stable_sort(mine.begin(), mine.end(), [](const Cell& x, const Cell& y) { return x.key < y.key; });
    });
    links_.reserve(sorted.size());
    block_links_.assign(1, 0);
    block_cells_.assign(1, 0);
    for (std::int32_t block = 0; block < plan_.n_blocks; ++block) {
        for (const Cell& cell : cells[block]) {
            const bool together = (cell.key & 15) == TOGETHER;
            for (std::int64_t k = cell.from; k < cell.to; ++k) {
                const int slot = together ? sorted[k].lane : __builtin_popcount(cell.lanes & ((1u << sorted[k].lane) - 1));
                links_.push_back({std::uint32_t(unit_cell_.size() + slot), sorted[k].minus ? ~sorted[k].feature : sorted[k].feature});
            }
            cell_unit_.push_back(std::int64_t(unit_cell_.size()));
            unit_cell_.resize(unit_cell_.size() + (together ? LANES : __builtin_popcount(cell.lanes)), std::int32_t(cell_context_.size()));
            cell_context_.push_back(cell.context);
            cell_way_.push_back(std::uint8_t(cell.key & 15));
            cell_lanes_.push_back(cell.lanes);
        }
        block_cells_.push_back(std::int64_t(cell_context_.size()));
        block_links_.push_back(std::int64_t(links_.size()));
    }
    n_cells_ = std::int64_t(cell_context_.size());
    cell_unit_.push_back(std::int64_t(unit_cell_.size()));
    if (unit_cell_.size() >= (std::size_t(1) << 31))
        throw std::length_error("too many contexts for one problem: use fewer or shorter features");
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

// Contexts numbered in the order in which cells come to them, so that their lists are read one after another.
void Problem::renumber() {
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

// Row lists for the contexts that are worked by list, as many as the budget allows, those that serve most cells first;
// the literals of the others, whose rows are found on the fly.
void Problem::list_rows(const Features& features, std::int64_t memory, int n_threads) {
    const std::int64_t n_words = plan_.n_words, chunk_words = plan_.chunk_rows / 64;
    const auto length = [&](std::int64_t c) { return complement_[c] ? plan_.n_rows - count_[c] : count_[c]; };
    std::vector<std::int32_t> by_list(plan_.n_contexts, 0), order;
    std::vector<std::uint8_t> by_bits(plan_.n_contexts, 0), listed(plan_.n_contexts, 0);
    for (std::int64_t cell = 0; cell < n_cells_; ++cell) {
        if (cell_way_[cell] == COLUMN_BITS)
            by_bits[cell_context_[cell]] = 1;
        else {
            ++by_list[cell_context_[cell]];
            n_entries_ += length(cell_context_[cell]);
        }
    }
    for (std::int64_t cell = 0; cell < n_cells_; ++cell)
        work_ +=
            cell_way_[cell] == COLUMN_BITS ? __builtin_popcount(cell_lanes_[cell]) * plan_.n_rows / 8 : length(cell_context_[cell]) + 16;
    const auto bytes = [&](std::int64_t c) { return 2 * (length(c) + (LIST_STEP - 1) * plan_.n_chunks); };  // at most
    std::int64_t needed = std::int64_t(list_start_.size() * sizeof(list_start_[0]));
    for (std::int32_t c = 0; c < plan_.n_contexts; ++c)
        if (by_list[c]) {
            order.push_back(c);
            needed += bytes(c);
        }
    if (needed > memory) std::stable_sort(order.begin(), order.end(), [&](auto x, auto y) { return by_list[x] > by_list[y]; });
    std::int64_t used = std::int64_t(list_start_.size() * sizeof(list_start_[0]));  // the index counts too
    for (std::int32_t c : order) {
        if (used + bytes(c) > memory) continue;
        listed[c] = 1;
        used += bytes(c);
    }
    n_listed_ = std::accumulate(listed.begin(), listed.end(), std::int64_t(0));
    std::uint64_t at = 0;
    for (std::int64_t k = 0; k < plan_.n_contexts * plan_.n_chunks; ++k)
        at += (std::exchange(list_start_[k], at) + LIST_STEP - 1) / LIST_STEP * LIST_STEP * listed[k % plan_.n_contexts];
    list_start_.back() = at;
    unlisted_.assign(plan_.n_contexts, 0);
    std::vector<std::int64_t> owner(plan_.n_contexts), found(plan_.n_contexts);  // by number: feature, and place of discovery
    for (std::int64_t j = 0; j < features.n; ++j)
        for (std::int64_t k = owner_start_[j]; k < owner_start_[j + 1]; ++k) {
            owner[number_[k]] = j;
            found[number_[k]] = k;
        }
    literal_start_.assign(plan_.n_contexts + 1, 0);
    for (std::int64_t c = 0; c < plan_.n_contexts; ++c) {
        unlisted_[c] = !listed[c];
        const std::int64_t from = features.start[owner[c]], to = features.start[owner[c] + 1];
        if (by_bits[c] || (by_list[c] && !listed[c]))
            for (std::int64_t k = from; k < to; ++k)
                if (k - from < skip_from_[found[c]] || k - from >= skip_to_[found[c]]) literals_.push_back(features.literals[k]);
        literal_start_[c + 1] = std::int64_t(literals_.size());
    }
    lists_.resize(at);
    for_contexts(features, n_threads, [&](std::int64_t c, std::uint64_t* words) {
        if (!listed[c]) return;
        if (complement_[c]) {
            for (std::int64_t w = 0; w < n_words; ++w) words[w] = ~words[w];
            const std::int64_t tail = plan_.n_rows - (n_words - 1) * 64;
            words[n_words - 1] &= ~std::uint64_t(0) >> (64 - tail);
        }
        for (std::int32_t chunk = 0; chunk < plan_.n_chunks; ++chunk) {
            const std::int64_t first = chunk * chunk_words;
            std::uint16_t* list = lists_.data() + list_start_[chunk * plan_.n_contexts + c];
            std::int64_t n = DISPATCH(list_bits(words + first, std::min(chunk_words, n_words - first), list));
            for (; n % LIST_STEP != 0; ++n) list[n] = std::uint16_t(plan_.chunk_rows);
        }
    });
}

void Problem::set_active(const std::uint8_t* marks) {
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

// A block's weights by cell, and the cells in which one of the two vectors (the second may be null) is not zero.
template <class T>
void Problem::spread_block(std::int64_t block, const double* weights, const double* direction, Buffers<T>& buffers) {
    const std::int64_t from = cell_unit_[block_cells_[block]], n = cell_unit_[block_cells_[block + 1]] - from;
    std::fill_n(buffers.weights.data() + from, n, T(0));
    if (direction != nullptr) std::fill_n(buffers.direction.data() + from, n, T(0));
    std::int64_t last = -1, end = block_cells_[block];
    double sum = 0, sum_direction = 0;
    for (std::int64_t k = block_links_[block]; k < block_links_[block + 1]; ++k) {
        const Link& link = links_[k];
        if (k > block_links_[block] && link.unit != links_[k - 1].unit) sum = sum_direction = 0;
        const std::int32_t j = link.feature < 0 ? ~link.feature : link.feature;
        sum += link.feature < 0 ? -weights[j] : weights[j];
        buffers.weights[link.unit] = T(sum);
        if (direction != nullptr) {
            sum_direction += link.feature < 0 ? -direction[j] : direction[j];
            buffers.direction[link.unit] = T(sum_direction);
        }
        const std::int64_t cell = unit_cell_[link.unit];
        if (cell == last || (weights[j] == 0 && (direction == nullptr || direction[j] == 0))) continue;
        forward_cells_[end++] = std::int32_t(cell);
        last = cell;
    }
    forward_end_[block] = end;
}

template <class T>
void Problem::run(Evaluation<T>& e, const double* weights, const double* direction, Buffers<T>& buffers, int n_threads) {
    if (plan_.n_groups > 1)  // several tasks share a block
        parallel_for(plan_.n_blocks, n_threads, [&](std::int64_t block) { spread_block(block, weights, direction, buffers); });
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
        values.resize(3 * size + block_size);
        list.resize(plan_.buffer_rows);
        words.resize(plan_.chunk_rows / 64);
        const Scratch<T> scratch{values.data(), values.data() + size, values.data() + 2 * size, values.data() + 3 * size,
                                 list.data(),   words.data()};
        for (int block = plan_.panel_blocks[panel]; block < plan_.panel_blocks[panel + 1]; ++block) {
            if (plan_.n_groups == 1) spread_block(block, weights, direction, buffers);
            for (std::int64_t k = e.backward_start[block]; k < e.backward_start[block + 1]; ++k) {
                const std::int64_t at = cell_unit_[e.backward_cells[k]], n = cell_unit_[e.backward_cells[k] + 1] - at;
                if (e.gradient != nullptr) std::fill_n(e.gradient + group * e.n_units + at, n, 0.0);
                if (e.curvature != nullptr) std::fill_n(e.curvature + group * e.n_units + at, n, 0.0);
            }
        }
        DISPATCH(run(plan_, e, scratch, panel, group));
    });
}

void Problem::gather(const std::vector<double>& cells, bool square, double* out, int n_threads) {
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
Evaluation<T> Problem::prepare(int pass, Buffers<T>& buffers) {
    buffers.weights.resize(unit_cell_.size());
    if (pass & PRODUCT) buffers.direction.resize(unit_cell_.size());
    forward_cells_.resize(n_cells_);
    forward_end_.resize(plan_.n_blocks);
    Evaluation<T> e{};
    e.pass = pass;
    e.weights = buffers.weights.data();
    e.direction = buffers.direction.data();
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
    if (pass & (GRADIENT | PRODUCT)) e.gradient = room(gradient_);
    if (pass & CURVATURE) e.curvature = room(curvature_);
    return e;
}

double Problem::evaluate(const double* weights, double* gradient, double* curvature, bool single, int n_threads) {
    const int pass = LOSS | (gradient ? GRADIENT : 0) | (curvature ? CURVATURE : 0);
    if (single) {
        auto e = prepare(pass, single_);
        run(e, weights, nullptr, single_, n_threads);
    } else {
        auto e = prepare(pass, double_);
        run(e, weights, nullptr, double_, n_threads);
    }
    if (gradient) gather(gradient_, false, gradient, n_threads);
    if (curvature) gather(curvature_, true, curvature, n_threads);
    return std::accumulate(loss_.begin(), loss_.end(), 0.0);
}

void Problem::product(const double* weights, const double* direction, double* out, bool single, int n_threads) {
    if (single) {
        auto e = prepare(PRODUCT, single_);
        run(e, weights, direction, single_, n_threads);
    } else {
        auto e = prepare(PRODUCT, double_);
        run(e, weights, direction, double_, n_threads);
    }
    gather(gradient_, false, out, n_threads);
}

void Problem::terms(const double* weights, double* by_row, double* by_variable, int n_threads) {
    auto e = prepare(LOSS | TERMS, double_);
    std::vector<double> rows(std::int64_t(plan_.n_panels) * plan_.n_rows, 0.0),
        variables(std::int64_t(plan_.n_groups) * n_variables(), 0.0);
    e.row_terms = rows.data();
    e.variable_terms = variables.data();
    run(e, weights, nullptr, double_, n_threads);
    std::fill_n(by_row, plan_.n_rows, 0.0);
    for (std::int32_t panel = 0; panel < plan_.n_panels; ++panel)
        for (std::int64_t r = 0; r < plan_.n_rows; ++r) by_row[r] += rows[panel * plan_.n_rows + r];
    std::fill_n(by_variable, n_variables(), 0.0);
    for (std::int32_t group = 0; group < plan_.n_groups; ++group)
        for (std::int32_t v = 0; v < n_variables(); ++v) by_variable[v] += variables[std::int64_t(group) * n_variables() + v];
}

void Problem::probabilities(const double* weights, double* out, int n_threads) {
    auto e = prepare(PROBABILITY, double_);
    const std::int64_t n = plan_.n_rows;
    std::vector<double> columns(std::int64_t(plan_.n_blocks) * LANES * n);
    e.probability = columns.data();
    e.stride = 1;
    e.n_sampled = n;
    run(e, weights, nullptr, double_, n_threads);
    for (std::int32_t literal = 0; literal < plan_.n_literals; ++literal) {
        const std::int32_t v = literal_variable_[literal], s = literal_state_[literal];
        const double* column = columns.data() + std::int64_t(first_lane_[v] + (n_states_[v] == 2 ? 0 : s)) * n;
        for (std::int64_t r = 0; r < n; ++r)
            out[r * plan_.n_literals + literal] = n_states_[v] == 1 ? 1.0 : n_states_[v] == 2 && s == 0 ? 1 - column[r] : column[r];
    }
}

std::int64_t Problem::sample(const double* weights, std::int64_t stride, int n_threads) {
    auto e = prepare(PROBABILITY, single_);
    stride_ = stride;
    n_sampled_ = (plan_.n_words + stride - 1) / stride * 64;
    sample_.assign(std::int64_t(plan_.n_blocks) * LANES * n_sampled_, 0.0f);
    e.probability = sample_.data();
    e.stride = stride;
    e.n_sampled = n_sampled_;
    run(e, weights, nullptr, single_, n_threads);
    return n_sampled_;
}

// One variable's term, on the sample: for feature i and row r a vector of one value (two states) or one per state, zero
// where the context does not hold; the Gram matrix sums their products over the rows. Row by row over the features whose
// contexts hold, where those are few; otherwise in strips of rows, as a dense product.
void Problem::gram(std::int32_t variable, const std::int32_t* features, std::int64_t n, float* out) const {
    const std::int64_t k = n_states_[variable], width = k == 2 ? 1 : k, n_words = n_sampled_ / 64;
    const float* p = sample_.data() + std::int64_t(first_lane_[variable]) * n_sampled_;
    std::vector<float> scale(n_sampled_, 0.0f);  // rows past the end keep zero
    for (std::int64_t r = 0; r < n_sampled_; ++r) {
        const std::int64_t row = r / 64 * stride_ * 64 + r % 64;
        if (row < plan_.n_rows) scale[r] = std::sqrt(row_weight_single_[row] * float(stride_) * (k == 2 ? p[r] * (1 - p[r]) : 1.0f));
    }
    std::vector<std::uint64_t> words(n * n_words, ~std::uint64_t(0));
    std::vector<float> allowed(n * k, 0.0f);
    std::vector<std::int32_t> start(n_sampled_ + 1, 0);
    for (std::int64_t i = 0; i < n; ++i) {
        std::uint64_t* mine = words.data() + i * n_words;
        float* states = allowed.data() + i * k;
        bool first = true;
        for (std::int64_t l = start_[features[i]]; l < start_[features[i] + 1]; ++l) {
            const std::int32_t literal = feature_literals_[l] % plan_.n_literals;
            const bool positive = feature_literals_[l] < plan_.n_literals;
            if (literal_variable_[literal] == variable) {
                if (std::exchange(first, false)) std::fill_n(states, k, positive ? 0.0f : 1.0f);
                states[literal_state_[literal]] = positive ? 1.0f : 0.0f;
                continue;
            }
            const std::uint64_t* column = plan_.columns + std::int64_t(literal) * plan_.n_words;
            for (std::int64_t w = 0; w < n_words; ++w) mine[w] &= positive ? column[w * stride_] : ~column[w * stride_];
        }
        for (std::int64_t w = 0; w < n_words; ++w)
            for (std::uint64_t bits = mine[w]; bits != 0; bits &= bits - 1) ++start[w * 64 + __builtin_ctzll(bits) + 1];
    }
    const auto value = [&](std::int64_t i, std::int64_t r, float* to) {  // feature i's vector in row r
        const float* states = allowed.data() + i * k;
        if (k == 2) {
            *to = scale[r] * (states[1] - states[0]);
            return;
        }
        float mean = 0;
        for (std::int64_t s = 0; s < k; ++s) mean += p[s * n_sampled_ + r] * states[s];
        for (std::int64_t s = 0; s < k; ++s) to[s] = std::sqrt(p[s * n_sampled_ + r]) * (states[s] - mean) * scale[r];
    };
    std::fill_n(out, n * n, 0.0f);
    double pairs = 0;
    for (std::int64_t r = 0; r < n_sampled_; ++r) pairs += double(start[r + 1]) * double(start[r + 1]);
    constexpr double SCATTERED = 30;  // a scattered addition costs as much as so many of the dense product's
    if (SCATTERED * pairs < double(n) * double(n) * double(n_sampled_)) {
        std::partial_sum(start.begin(), start.end(), start.begin());
        std::vector<std::int32_t> holds(start.back());
        auto next = start;
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t w = 0; w < n_words; ++w)
                for (std::uint64_t bits = words[i * n_words + w]; bits != 0; bits &= bits - 1)
                    holds[next[w * 64 + __builtin_ctzll(bits)]++] = std::int32_t(i);
        std::vector<float> values(n * width);
        for (std::int64_t r = 0; r < n_sampled_; ++r) {
            const std::int32_t* which = holds.data() + start[r];
            const std::int64_t m = start[r + 1] - start[r];
            for (std::int64_t a = 0; a < m; ++a) value(which[a], r, values.data() + a * width);
            for (std::int64_t a = 0; a < m; ++a) {
                float* row = out + which[a] * n;
                for (std::int64_t s = 0; s < width; ++s) {
                    const float mine = values[a * width + s];
                    for (std::int64_t b = 0; b <= a; ++b) row[which[b]] += mine * values[b * width + s];
                }
            }
        }
    } else {
        constexpr std::int64_t strip = 512;
        std::vector<float> design(n * width * strip), vector(width);
        for (std::int64_t from = 0; from < n_sampled_; from += strip) {
            const std::int64_t here = std::min(strip, n_sampled_ - from);
            std::fill(design.begin(), design.end(), 0.0f);
            for (std::int64_t i = 0; i < n; ++i)
                for (std::int64_t w = from / 64; w < (from + here) / 64; ++w)
                    for (std::uint64_t bits = words[i * n_words + w]; bits != 0; bits &= bits - 1) {
                        const std::int64_t r = w * 64 + __builtin_ctzll(bits);
                        value(i, r, vector.data());
                        for (std::int64_t s = 0; s < width; ++s) design[(i * width + s) * strip + r - from] = vector[s];
                    }
            DISPATCH(add_gram(design.data(), n, width * strip, out));
        }
    }
    for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < i; ++j) out[j * n + i] = out[i * n + j];
}

}  // namespace undirected
