// The contexts of the pseudo-likelihood: found, counted, and listed as far as memory allows.
#include <algorithm>
#include <numeric>
#include <utility>

#include "dispatch.hpp"
#include "hash.hpp"
#include "pll_parts.hpp"
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

// Every (feature, variable) looks up its context and notes where its weight goes.
std::vector<PseudoLikelihoodTables::Place> PseudoLikelihoodTables::find_contexts(const Features& features) {
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
            const auto variable_at = [&](std::int64_t k) { return numbers_.variable(features.literals[k]); };
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
            const bool positive = !numbers_.negated(features.literals[a]);
            allowed.assign(k, positive ? 0 : 1);
            for (std::int64_t i = a; i < b; ++i) allowed[numbers_.state(features.literals[i])] = !numbers_.negated(features.literals[i]);
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
void PseudoLikelihoodTables::for_contexts(const Features& features, int n_threads, const Visit& visit) const {
    const std::int64_t n_words = plan_.n_words, step = 256, n_tasks = (features.n + step - 1) / step;
    const auto one = [&](std::int64_t j) {
        static thread_local std::vector<std::uint64_t> suffix, words;
        const std::int32_t* literals = features.literals + features.start[j];
        const std::int64_t n = features.start[j + 1] - features.start[j];
        words.resize(2 * n_words);
        std::uint64_t *prefix = words.data(), *both = prefix + n_words;
        suffix.resize((n + 1) * n_words);
        UNDIRECTED_DISPATCH(and_columns(plan_, literals, 0, 0, n_words, suffix.data() + n * n_words));
        for (std::int64_t k = n - 1; k > 0; --k) {
            std::uint64_t* at = suffix.data() + k * n_words;
            UNDIRECTED_DISPATCH(and_columns(plan_, literals + k, 1, 0, n_words, at));
            for (std::int64_t w = 0; w < n_words; ++w) at[w] &= at[w + n_words];
        }
        UNDIRECTED_DISPATCH(and_columns(plan_, literals, 0, 0, n_words, prefix));
        std::int64_t done = 0;
        for (std::int64_t c = owner_start_[j]; c < owner_start_[j + 1]; ++c) {
            for (; done < skip_from_[c]; ++done) {
                UNDIRECTED_DISPATCH(and_columns(plan_, literals + done, 1, 0, n_words, both));
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

void PseudoLikelihoodTables::for_each_context(int n_threads, const std::function<void(std::int32_t, const std::uint64_t*)>& visit) const {
    Features features{};
    features.n = n_features_;
    features.start = start_.data();
    features.literals = feature_literals_.data();
    for_contexts(features, n_threads, [&](std::int64_t c, const std::uint64_t* words) { visit(std::int32_t(c), words); });
}

void PseudoLikelihoodTables::count_rows(const Features& features, int n_threads) {
    const std::int64_t n_words = plan_.n_words, chunk_words = plan_.chunk_rows / 64;
    complement_.assign(plan_.n_contexts, 0);
    list_start_.assign(plan_.n_contexts * plan_.n_chunks + 1, 0);
    count_.assign(plan_.n_contexts, 0);
    for_contexts(features, n_threads, [&](std::int64_t c, const std::uint64_t* words) {
        const auto count = [&](std::int32_t chunk) -> std::uint64_t& { return list_start_[chunk * plan_.n_contexts + c]; };
        for (std::int32_t chunk = 0; chunk < plan_.n_chunks; ++chunk) {
            const std::int64_t first = chunk * chunk_words;
            count(chunk) = std::uint64_t(UNDIRECTED_DISPATCH(count_bits(words + first, std::min(chunk_words, n_words - first))));
            count_[c] += std::int64_t(count(chunk));
        }
        if (2 * count_[c] <= plan_.n_rows) return;
        complement_[c] = 1;
        for (std::int32_t chunk = 0; chunk < plan_.n_chunks; ++chunk)
            count(chunk) = std::uint64_t(std::min<std::int64_t>(plan_.chunk_rows, plan_.n_rows - std::int64_t(chunk) * plan_.chunk_rows)) -
                           count(chunk);
    });
}

// How many rows the list of a context has: those in which it holds, or the others if they are fewer.
std::int64_t PseudoLikelihoodTables::list_length(std::int64_t context) const {
    return complement_[context] ? plan_.n_rows - count_[context] : count_[context];
}

std::int64_t PseudoLikelihoodTables::n_groups() const {
    std::int64_t n = 0;
    for (const std::int64_t count : count_) n += std::min(count, (plan_.n_rows + 7) / 8);
    return n;
}

// Which contexts get a row list: those that are worked by list, as many as the budget allows, those that serve most cells first.
std::vector<std::uint8_t> PseudoLikelihoodTables::choose_listed(std::int64_t memory) {
    std::vector<std::int32_t> by_list(plan_.n_contexts, 0), order;
    for (std::int64_t cell = 0; cell < n_cells_; ++cell) {
        const std::int64_t length = list_length(cell_context_[cell]);
        if (cell_way_[cell] == COLUMN_BITS) {
            work_ += __builtin_popcount(cell_lanes_[cell]) * plan_.n_rows / 8;
            continue;
        }
        ++by_list[cell_context_[cell]];
        n_entries_ += length;
        work_ += length + 16;
    }
    const auto bytes = [&](std::int64_t c) { return 2 * (list_length(c) + (LIST_STEP - 1) * plan_.n_chunks); };  // at most
    const std::int64_t index = std::int64_t(list_start_.size() * sizeof(list_start_[0]));                        // counts too
    std::int64_t needed = index, used = index;
    for (std::int32_t c = 0; c < plan_.n_contexts; ++c)
        if (by_list[c]) {
            order.push_back(c);
            needed += bytes(c);
        }
    if (needed > memory) std::stable_sort(order.begin(), order.end(), [&](auto x, auto y) { return by_list[x] > by_list[y]; });
    std::vector<std::uint8_t> listed(plan_.n_contexts, 0);
    for (const std::int32_t c : order) {
        if (used + bytes(c) > memory) continue;
        listed[c] = 1;
        used += bytes(c);
    }
    n_listed_ = std::accumulate(listed.begin(), listed.end(), std::int64_t(0));
    return listed;
}

// The literals of the contexts whose rows are found on the fly.
void PseudoLikelihoodTables::note_literals(const Features& features, const std::vector<std::uint8_t>& listed) {
    std::vector<std::uint8_t> by_bits(plan_.n_contexts, 0), by_list(plan_.n_contexts, 0);
    for (std::int64_t cell = 0; cell < n_cells_; ++cell) (cell_way_[cell] == COLUMN_BITS ? by_bits : by_list)[cell_context_[cell]] = 1;
    std::vector<std::int64_t> owner(plan_.n_contexts), found(plan_.n_contexts);  // by number: feature, and place of discovery
    for (std::int64_t j = 0; j < features.n; ++j)
        for (std::int64_t k = owner_start_[j]; k < owner_start_[j + 1]; ++k) {
            owner[number_[k]] = j;
            found[number_[k]] = k;
        }
    unlisted_.assign(plan_.n_contexts, 0);
    literal_start_.assign(plan_.n_contexts + 1, 0);
    for (std::int64_t c = 0; c < plan_.n_contexts; ++c) {
        unlisted_[c] = !listed[c];
        const std::int64_t from = features.start[owner[c]], to = features.start[owner[c] + 1];
        if (by_bits[c] || (by_list[c] && !listed[c]))
            for (std::int64_t k = from; k < to; ++k)
                if (k - from < skip_from_[found[c]] || k - from >= skip_to_[found[c]]) literals_.push_back(features.literals[k]);
        literal_start_[c + 1] = std::int64_t(literals_.size());
    }
}

void PseudoLikelihoodTables::list_rows(const Features& features, const std::vector<std::uint8_t>& listed, int n_threads) {
    const std::int64_t n_words = plan_.n_words, chunk_words = plan_.chunk_rows / 64;
    std::uint64_t at = 0;
    for (std::int64_t k = 0; k < plan_.n_contexts * plan_.n_chunks; ++k)
        at += (std::exchange(list_start_[k], at) + LIST_STEP - 1) / LIST_STEP * LIST_STEP * listed[k % plan_.n_contexts];
    list_start_.back() = at;
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
            std::int64_t n = UNDIRECTED_DISPATCH(list_bits(words + first, std::min(chunk_words, n_words - first), list));
            for (; n % LIST_STEP != 0; ++n) list[n] = std::uint16_t(plan_.chunk_rows);
        }
    });
}

}  // namespace undirected
