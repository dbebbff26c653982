// How coordinate descent lays out its rows and contexts; built once.
#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "descent.hpp"
#include "dispatch.hpp"
#include "large.hpp"
#include "pool.hpp"

namespace undirected {
namespace {

constexpr double DENSE = 0.4;  // share of the groups from which on a context has a byte for each of them
constexpr int WORD_ROWS = 64;  // rows of a word
constexpr int WORD_GROUPS = WORD_ROWS / GROUP_ROWS;
constexpr std::uint64_t STRIP_WORDS = 64;  // a strip has at least as many, so that threads have something to do between two meetings
constexpr std::uint64_t MOST_STRIPS = 16;

// The lowest bit of each byte that is not zero.
std::uint64_t mark_bytes(std::uint64_t word) {
    word |= word >> 4 & 0x0f0f0f0f0f0f0f0fULL;
    word |= word >> 2 & 0x0303030303030303ULL;
    return (word | (word >> 1 & 0x0101010101010101ULL)) & 0x0101010101010101ULL;
}

std::int64_t fill_up(std::int64_t n) { return (n + GROUP_STEP - 1) / GROUP_STEP * GROUP_STEP; }

}  // namespace

Descent::Descent(const PseudoLikelihoodTables& tables, int n_threads) {
    order_rows(tables);
    const std::vector<Part> parts = find_parts(tables);
    const std::vector<GroupList> lists = list_groups(tables, n_threads);
    resize_large(odds_, n_columns_ * n_groups_ * GROUP_ROWS);
    resize_large(logits_, odds_.size());
    make_pieces(parts, lists);
    set_constants(n_threads);
}

void Descent::order_rows(const PseudoLikelihoodTables& tables) {
    n_rows_ = tables.n_rows();
    common_weight_ = n_rows_ > 0 ? tables.row_weight(0) : 1.0;
    total_weight_ = 0;
    for (std::int64_t r = 0; r < n_rows_; ++r) {
        total_weight_ += tables.row_weight(r);
        common_weight_ = std::min(common_weight_, tables.row_weight(r));  // of counts that is one
    }
    is_common_.assign(tables.n_words(), 0);
    std::int64_t n_common = 0;
    for (std::int64_t r = 0; r < n_rows_; ++r)
        if (tables.row_weight(r) == common_weight_) {
            is_common_[r / WORD_ROWS] |= std::uint64_t(1) << (r % WORD_ROWS);
            ++n_common;
        }
    const auto count_words = [](std::int64_t rows) { return (rows + WORD_ROWS - 1) / WORD_ROWS; };
    const std::int64_t common_words = count_words(n_common), n_words = common_words + count_words(n_rows_ - n_common);
    others_from_ = common_words * WORD_ROWS;
    n_groups_ = n_words * WORD_GROUPS;
    const std::int64_t n_strips =
        std::int64_t(std::clamp<std::uint64_t>(std::bit_floor(std::uint64_t(n_words) / STRIP_WORDS), 1, MOST_STRIPS));
    word_place_.resize(n_words);
    for (std::int64_t strip = 0, place = 0; strip < n_strips; ++strip) {
        strips_.push_back({place * WORD_GROUPS, 0, 0});
        for (std::int64_t w = strip; w < n_words; w += n_strips) {
            word_place_[w] = place++;
            strips_.back().n += WORD_GROUPS;
            if (w < common_words) strips_.back().n_common += WORD_GROUPS;
        }
    }
    row_weight_.assign(n_words * WORD_ROWS, 0.0f);
    for (std::int64_t r = 0, common = 0, other = others_from_; r < n_rows_; ++r) {
        const std::int64_t at = is_common_[r / WORD_ROWS] >> (r % WORD_ROWS) & 1 ? common++ : other++;
        row_weight_[word_place_[at / WORD_ROWS] * WORD_ROWS + at % WORD_ROWS] = float(tables.row_weight(r));
    }
    columns_.reserve(tables.n_literals() * n_words);
    for (std::int64_t k = 0; k < std::int64_t(tables.literal_columns().size()); k += tables.n_words()) {
        const std::vector<std::uint64_t> column = reorder(tables.literal_columns().data() + k);
        columns_.insert(columns_.end(), column.begin(), column.end());
    }
}

// Bits of the tables' rows in the order that rows have here.
std::vector<std::uint64_t> Descent::reorder(const std::uint64_t* words) const {
    std::vector<std::uint64_t> parted(word_place_.size()), out(word_place_.size());
    UNDIRECTED_DISPATCH(part_rows(words, is_common_.data(), n_rows_, others_from_, parted.data(), std::int64_t(parted.size())));
    for (std::size_t w = 0; w < parted.size(); ++w) out[word_place_[w]] = parted[w];
    return out;
}

// The variables of each feature with their contexts, from the units of the tables.
std::vector<Descent::Part> Descent::find_parts(const PseudoLikelihoodTables& tables) {
    std::vector<std::int32_t> term_of(tables.n_variables(), -1);
    n_columns_ = 0;
    for (std::int32_t v = 0; v < tables.n_variables(); ++v) {
        const std::int32_t k = tables.n_states(v);
        if (k < 2) continue;
        term_of[v] = n_terms();
        term_column_.push_back(std::int32_t(n_columns_));
        term_states_.push_back(k == 2 ? 1 : k);
        term_literal_.push_back(tables.first_literal(v) + (k == 2 ? 1 : 0));
        n_columns_ += term_states_.back();
    }
    std::vector<Part> parts;
    part_start_.assign(1, 0);
    for (std::int64_t j = 0; j < tables.n_features(); ++j) {
        const std::size_t first = parts.size();
        tables.for_units(j, [&](std::int32_t variable, std::int32_t state, std::int32_t context, bool minus) {
            const std::int32_t term = term_of[variable], at = std::int32_t(states_.size());
            if (parts.size() == first || parts.back().term != term) parts.push_back({context, term, at, at, minus});
            states_.push_back(term_states_[term] == 1 ? 0 : state);
            parts.back().states_to = at + 1;
        });
        part_start_.push_back(std::int64_t(parts.size()));
    }
    for (const Part& part : parts) part_term_.push_back(part.term);
    term_marks_.assign(n_features(), 0);
    for (std::int64_t j = 0; j < n_features(); ++j)
        for (std::int64_t k = part_start_[j]; k < part_start_[j + 1]; ++k) term_marks_[j] |= std::uint64_t(1) << (part_term_[k] % 64);
    term_start_.assign(n_terms() + 1, 0);
    for (const std::int32_t term : part_term_) ++term_start_[term + 1];
    std::partial_sum(term_start_.begin(), term_start_.end(), term_start_.begin());
    term_parts_.resize(parts.size());
    auto next = term_start_;
    for (std::int64_t j = 0; j < n_features(); ++j)
        for (std::int64_t k = part_start_[j]; k < part_start_[j + 1]; ++k)
            term_parts_[next[part_term_[k]]++] = {std::int32_t(j), std::int32_t(k)};
    return parts;
}

// The groups of each context in each strip.
std::vector<GroupList> Descent::list_groups(const PseudoLikelihoodTables& tables, int n_threads) {
    std::vector<GroupList> lists(tables.n_contexts() * n_strips());
    std::vector<std::int64_t> start(tables.n_contexts() + 1, 0);
    std::vector<std::uint8_t> dense(tables.n_contexts(), 0);
    const auto count = [](const std::vector<std::uint64_t>& words, std::int64_t from, std::int64_t n) {
        std::int64_t held = 0;
        for (std::int64_t w = from / WORD_GROUPS; w < (from + n) / WORD_GROUPS; ++w) held += std::popcount(mark_bytes(words[w]));
        return held;
    };
    tables.for_each_context(n_threads, [&](std::int32_t context, const std::uint64_t* given) {
        const std::vector<std::uint64_t> words = reorder(given);
        GroupList* const mine = lists.data() + std::int64_t(context) * n_strips();
        std::int64_t held = 0, n = 0;
        for (int k = 0; k < n_strips(); ++k) {
            const Strip& strip = strips_[k];
            const std::int64_t common = count(words, strip.from, strip.n_common);
            const std::int64_t others = count(words, strip.from + strip.n_common, strip.n - strip.n_common);
            mine[k].n_common = std::uint32_t(fill_up(common));
            mine[k].n = std::uint32_t(fill_up(common) + fill_up(others));
            held += common + others;
            n += mine[k].n;
        }
        dense[context] = double(held) > DENSE * double(n_groups_);
        start[context + 1] = dense[context] ? n_groups_ / std::int64_t(sizeof(Group)) : n;
    });
    std::partial_sum(start.begin(), start.end(), start.begin());
    resize_large(groups_, start.back());
    tables.for_each_context(n_threads, [&](std::int32_t context, const std::uint64_t* given) {
        const std::vector<std::uint64_t> words = reorder(given);
        Group* to = groups_.data() + start[context];
        if (dense[context]) std::memcpy(to, words.data(), n_groups_);
        for (int k = 0; k < n_strips(); ++k) {
            GroupList& list = lists[std::int64_t(context) * n_strips() + k];
            const Strip& strip = strips_[k];
            if (dense[context]) {
                const auto* bits = reinterpret_cast<const std::uint8_t*>(to) + strip.from;
                list = {nullptr, bits, std::uint32_t(strip.n_common), std::uint32_t(strip.n)};
                continue;
            }
            list.groups = to;
            const std::uint64_t* mine = words.data() + strip.from / WORD_GROUPS;
            const auto write = [&](std::int64_t from, std::int64_t until, const Group* end) {
                for (std::int64_t w = from / WORD_GROUPS; w < until / WORD_GROUPS; ++w)
                    for (std::uint64_t marks = mark_bytes(mine[w]); marks != 0; marks &= marks - 1) {
                        const int bit = std::countr_zero(marks);  // of the byte's lowest row
                        *to++ = Group(WORD_GROUPS * w + bit / 8) << 8 | Group(mine[w] >> bit & 255);
                    }
                while (to < end) *to++ = 0;
            };
            write(0, strip.n_common, list.groups + list.n_common);
            write(strip.n_common, strip.n, list.groups + list.n);
        }
    });
    return lists;
}

void Descent::make_pieces(const std::vector<Part>& parts, const std::vector<GroupList>& lists) {
    resize_large(pieces_, n_strips() * parts.size());
    for (int strip = 0; strip < n_strips(); ++strip)
        for (std::size_t k = 0; k < parts.size(); ++k) {
            const Part& part = parts[k];
            float* odds = odds_.data() + place_of(term_column_[part.term], strip);
            pieces_[strip * parts.size() + k] = {lists[std::int64_t(part.context) * n_strips() + strip],
                                                 odds,
                                                 states_.data() + part.states_from,
                                                 term_states_[part.term],
                                                 std::int16_t(part.states_to - part.states_from),
                                                 part.minus};
        }
}

Columns Descent::columns_of(std::int32_t term, int strip) const {
    const auto* truth = reinterpret_cast<const std::uint8_t*>(columns_.data()) + term_literal_[term] * n_groups_ + strips_[strip].from;
    return {const_cast<float*>(odds_.data()) + place_of(term_column_[term], strip), truth, n_groups_, stride(strip), term_states_[term]};
}

void Descent::set_constants(int n_threads) {
    constant_.resize(n_features());
    costs_.resize(n_features());
    const std::int64_t step = 256;
    parallel_for((n_features() + step - 1) / step, n_threads, [&](std::int64_t task) {
        for (std::int64_t j = task * step; j < std::min(n_features(), (task + 1) * step); ++j) {
            double sum = 0;
            std::int64_t cost = 0;
            for (int strip = 0; strip < n_strips(); ++strip)
                for (std::int64_t k = 0; k < part_start_[j + 1] - part_start_[j]; ++k) {
                    const Piece& piece = pieces_of(std::int32_t(j), strip)[k];
                    cost += std::int64_t(piece.rows.n) * piece.n_columns;
                    const Columns columns = columns_of(part_term_[part_start_[j] + k], strip);
                    for (int s = 0; s < piece.n_states; ++s) {
                        const double count = UNDIRECTED_DISPATCH(count_truth(piece.rows, columns, piece.states[s], weights_of(strip)));
                        sum += piece.minus ? count : -count;
                    }
                }
            constant_[j] = sum;
            costs_[j] = cost;
        }
    });
}

}  // namespace undirected
