// Joins of features with each other, thousands with thousands. Whether a join could pay its price follows from the slope and the curvature
// of the score at weight zero, and these are had for all pairs of two blocks of features at once. Let x_a(r) be the sum, over the variables
// of feature a in whose context row r is, of the residual of the literal. A row is in the context of a variable of the join of a and b if
// it is in that of a and matches b, or the other way round, so that the slope is the sum of x_b over the rows that match a, plus that of
// x_a over those that match b. Only literals that both have are counted twice, or not at all, and are put right pair by pair. Variances
// make the curvature in the same way.
#include <algorithm>
#include <cmath>
#include <utility>

#include "dispatch.hpp"
#include "pool.hpp"
#include "search_kernels.hpp"
#include "search_parts.hpp"

namespace undirected {

namespace {

constexpr std::int64_t SIDE = 128;  // features a block
constexpr double SLACK = 1e-3;      // slopes are added up in single precision

}  // namespace

struct Search::Side {
    const Features* features;
    std::int64_t first, last;
    std::vector<std::uint64_t> match, near;  // [features][words]
    std::vector<float> laid;                 // of some rows: residuals, then variances: [row][2][SIDE]
};

void Search::take(const Features& features, std::int64_t first, std::int64_t last, Spot& spot, Side& side) const {
    side.features = &features;
    side.first = first;
    side.last = last;
    side.match.resize((last - first) * n_words_);
    side.near.resize((last - first) * n_words_);
    side.laid.resize(MOST_ROWS * 2 * SIDE);
    for (std::int64_t j = first; j < last; ++j) {
        find(features.literals + features.start[j], features.start[j + 1] - features.start[j], 0, n_words_, spot);
        std::copy_n(spot.match.begin(), n_words_, side.match.begin() + (j - first) * n_words_);
        std::copy_n(spot.near.begin(), n_words_, side.near.begin() + (j - first) * n_words_);
    }
}

// Each feature's residuals and variances in the rows of these words.
void Search::lay_out(Side& side, std::int64_t from, std::int64_t to) const {
    std::fill_n(side.laid.begin(), (to - from) * 64 * 2 * SIDE, 0.0f);
    std::int32_t row[MOST_ROWS];
    float value[MOST_ROWS];
    for (std::int64_t j = side.first; j < side.last; ++j) {
        const std::uint64_t *match = side.match.data() + (j - side.first) * n_words_,
                            *near = side.near.data() + (j - side.first) * n_words_;
        for (std::int64_t k = side.features->start[j]; k < side.features->start[j + 1]; ++k) {
            const std::int32_t literal = side.features->literals[k];
            const std::uint64_t* column = columns_.data() + std::int64_t(literal) * n_words_;
            std::int64_t n = 0;
            for (std::int64_t w = from; w < to; ++w)
                for_bits(match[w] | (near[w] & ~column[w]), w * 64, [&](std::int64_t r) { row[n++] = std::int32_t(r); });
            residual(literal, row, n, value);
            for (std::int64_t i = 0; i < n; ++i) {
                float* at = side.laid.data() + (row[i] - from * 64) * 2 * SIDE + (j - side.first);
                at[0] += row_weight_single_[row[i]] * value[i];
                at[SIDE] += row_weight_single_[row[i]] * variance_of(value[i]);
            }
        }
    }
}

// Slope and curvature of every join of a feature of one side with one of the other, as if they had no literal in common: [one][other][2].
void Search::add_slopes(Side& one, Side& other, std::vector<double>& slope) const {
    slope.assign(SIDE * SIDE * 2, 0.0);
    std::int32_t row[MOST_ROWS];
    float sum[2 * SIDE];
    for (std::int64_t from = 0; from < n_words_; from += MOST_ROWS / 64) {
        const std::int64_t to = std::min(n_words_, from + MOST_ROWS / 64);
        const auto add = [&](const Side& matching, Side& side, std::int64_t step, std::int64_t step_across) {
            lay_out(side, from, to);
            for (std::int64_t j = 0; j < matching.last - matching.first; ++j) {
                std::int64_t n = 0;
                for (std::int64_t w = from; w < to; ++w)
                    for_bits(matching.match[j * n_words_ + w], (w - from) * 64, [&](std::int64_t r) { row[n++] = std::int32_t(r); });
                if (!n) continue;
                UNDIRECTED_DISPATCH(add_rows(side.laid.data(), 2 * SIDE, row, n, sum));
                for (std::int64_t i = 0; i < side.last - side.first; ++i) {
                    double* at = slope.data() + j * step + i * step_across;
                    at[0] += sum[i];
                    at[1] += sum[SIDE + i];
                }
            }
        };
        add(one, other, 2 * SIDE, 2);
        add(other, one, 2, 2 * SIDE);
    }
}

// Puts slope and curvature right for a literal that both features have: where the join matches it was counted twice, where it alone fails
// not at all.
void Search::count_once(std::int32_t literal, const Side& one, std::int64_t j, const Side& other, std::int64_t i, double* slope) const {
    const std::uint64_t* column = columns_.data() + std::int64_t(literal) * n_words_;
    std::int32_t row[MOST_ROWS];
    float value[MOST_ROWS];
    for (std::int64_t from = 0; from < n_words_; from += MOST_ROWS / 64) {
        std::int64_t n = 0;
        for (std::int64_t w = from; w < std::min(n_words_, from + MOST_ROWS / 64); ++w) {
            const std::int64_t a = j * n_words_ + w, b = i * n_words_ + w;
            for_bits((one.match[a] & other.match[b]) | (one.near[a] & other.near[b] & ~column[w]), w * 64,
                     [&](std::int64_t r) { row[n++] = std::int32_t(r); });
        }
        residual(literal, row, n, value);
        for (std::int64_t k = 0; k < n; ++k) {
            const double sign = value[k] > 0 ? -1 : 1, c = sign * row_weight_[row[k]];  // above zero where the join matches
            slope[0] += c * value[k];
            slope[1] += c * variance_of(value[k]);
        }
    }
}

// The literals of both, in order, and those they share; false where a variable would have to be in two states, where one adds less than two
// literals to the other, and where there are more than `most`.
bool Search::unite(const Features& features, std::int64_t i, std::int64_t j, std::int64_t most, std::vector<std::int32_t>& both,
                   std::vector<std::int32_t>& shared) const {
    const std::int32_t *a = features.literals + features.start[i], *a_end = features.literals + features.start[i + 1];
    const std::int32_t *b = features.literals + features.start[j], *b_end = features.literals + features.start[j + 1];
    const std::int64_t alone = std::min(a_end - a, b_end - b);
    both.clear();
    shared.clear();
    while (a < a_end || b < b_end) {
        const bool same = a < a_end && b < b_end && *a == *b, from_a = b == b_end || (a < a_end && *a <= *b);
        const std::int32_t next = from_a ? *a : *b;
        if (!both.empty() && numbers_.variable(both.back()) == numbers_.variable(next)) return false;
        both.push_back(next);
        if (same) shared.push_back(next);
        a += from_a;
        b += !from_a || same;
    }
    return alone - std::int64_t(shared.size()) >= 2 && std::int64_t(both.size()) <= most;
}

Joined Search::join(const Features& features, std::int64_t first, std::int64_t last, std::int64_t most, double min_rows, double l1,
                    double ridge, const double* price, int n_threads) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> tasks;  // the first of some features, and of those they are joined with
    for (std::int64_t j = first; j < last; j += SIDE)
        for (std::int64_t i = 0; i < std::min(last, j + SIDE); i += SIDE) tasks.emplace_back(j, i);
    std::vector<Joined> found(tasks.size());
    parallel_for(std::int64_t(tasks.size()), n_threads, [&](std::int64_t t) {
        struct Scratch {
            Side one, other;
            Spot spot;
            Entries entries;
            std::vector<double> slope;
            std::vector<std::int32_t> both, shared;
        };
        thread_local Scratch scratch;
        auto& [one, other, spot, entries, slopes, both, shared] = scratch;
        take(features, tasks[t].first, std::min(last, tasks[t].first + SIDE), spot, one);
        take(features, tasks[t].second, std::min(last, tasks[t].second + SIDE), spot, other);
        add_slopes(one, other, slopes);
        Joined& mine = found[t];
        for (std::int64_t j = one.first; j < one.last; ++j)
            for (std::int64_t i = other.first; i < std::min(j, other.last); ++i) {
                if (!unite(features, i, j, most, both, shared)) continue;
                ++mine.n_scored;
                double* slope = slopes.data() + ((j - one.first) * SIDE + (i - other.first)) * 2;
                for (const std::int32_t literal : shared) count_once(literal, one, j - one.first, other, i - other.first, slope);
                const double own = price[both.size()], pull = (1 + SLACK) * std::abs(slope[0]) + SLACK - l1;
                if (pull <= 0 || most_gain(pull, (1 - SLACK) * slope[1], ridge) < own) continue;
                find(both.data(), std::int64_t(both.size()), 0, n_words_, spot);
                if (min_rows > 0 && matched_weight(spot) < min_rows) continue;
                gather(both.data(), spot, nullptr, 0.0, entries);
                const double w = best_weight(entries, l1, ridge, own);
                if (std::isnan(w)) continue;
                const double gain = gain_at(entries, w, l1, ridge) - own;
                if (gain <= 0) continue;
                mine.literals.insert(mine.literals.end(), both.begin(), both.end());
                mine.start.push_back(std::int64_t(mine.literals.size()));
                mine.weight.push_back(w);
                mine.gain.push_back(gain);
            }
    });
    Joined out;
    for (const Joined& mine : found) {
        const std::int64_t offset = std::int64_t(out.literals.size());
        for (std::size_t k = 1; k < mine.start.size(); ++k) out.start.push_back(offset + mine.start[k]);
        out.literals.insert(out.literals.end(), mine.literals.begin(), mine.literals.end());
        out.weight.insert(out.weight.end(), mine.weight.begin(), mine.weight.end());
        out.gain.insert(out.gain.end(), mine.gain.begin(), mine.gain.end());
        out.n_scored += mine.n_scored;
    }
    return out;
}

}  // namespace undirected
