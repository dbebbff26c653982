// All extensions of features by one literal, screened in one pass over the features' rows.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "dispatch.hpp"
#include "pool.hpp"
#include "search_kernels.hpp"
#include "search_parts.hpp"

namespace undirected {

namespace {

constexpr std::int64_t SCREEN_A_TASK = 128, SCREEN_LEAST = 16;

}  // namespace

// The residual of a literal in each of these rows, at most MOST_ROWS: 1 - p where it holds, -p elsewhere; small ones keep their digits.
void Search::residual(std::int32_t literal, const std::int32_t* rows, std::int64_t n, float* out) const {
    const Part part{numbers_.variable(literal), 0, 1};
    const std::uint64_t* column = columns_.data() + std::int64_t(literal) * n_words_;
    float sign[MOST_ROWS], against[MOST_ROWS];  // log-odds against the row's own state
    for (std::int64_t i = 0; i < n; ++i) sign[i] = column[rows[i] / 64] >> (rows[i] % 64) & 1 ? 1.0f : -1.0f;
    if (n_states_[part.variable] == 2) {
        const double* logit = logits_.data() + first_lane_[part.variable] * stride_;
        const float towards = literal == numbers_.first(part.variable) ? 1.0f : -1.0f;
        for (std::int64_t i = 0; i < n; ++i) against[i] = towards * sign[i] * float(logit[rows[i]]);
    } else {
        const auto states = allowed(part, &literal);
        for (std::int64_t i = 0; i < n; ++i) against[i] = -sign[i] * float(odds(part, states, rows[i]));
    }
    UNDIRECTED_DISPATCH(chances(against, n, out));
    for (std::int64_t i = 0; i < n; ++i) out[i] *= sign[i];
}

// Residuals and variances of the extra literals in these rows of a word, times the rows' weights: [row][n_extra].
void Search::residuals(std::int64_t word, std::uint64_t rows, const std::int32_t* extra, std::int64_t n_extra, float* residuals,
                       float* variances) const {
    std::int32_t row[64];
    std::int64_t n = 0;
    float value[64];
    for_bits(rows, word * 64, [&](std::int64_t r) { row[n++] = std::int32_t(r); });
    for (std::int64_t k = 0; k < n_extra; ++k) {
        residual(extra[k], row, n, value);
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t at = (row[i] & 63) * n_extra + k;
            residuals[at] = row_weight_single_[row[i]] * value[i];
            variances[at] = row_weight_single_[row[i]] * variance_of(value[i]);
        }
    }
}

// The extra literals that hold in each of these rows of a word: start[r] to start[r + 1] are those of row r.
void Search::list_held(std::int64_t word, std::uint64_t rows, const std::int32_t* extra, std::int64_t n_extra,
                       std::vector<std::int32_t>& held, std::vector<std::int32_t>& start) const {
    const auto for_rows = [&](std::int64_t k, const auto& visit) {
        for_bits(columns_[std::int64_t(extra[k]) * n_words_ + word] & rows, 0, visit);
    };
    start.assign(65, 0);
    for (std::int64_t k = 0; k < n_extra; ++k) for_rows(k, [&](std::int64_t r) { ++start[r + 1]; });
    std::partial_sum(start.begin(), start.end(), start.begin());
    held.resize(start[64]);
    std::int32_t next[64];
    std::copy_n(start.begin(), 64, next);
    for (std::int64_t k = 0; k < n_extra; ++k) for_rows(k, [&](std::int64_t r) { held[next[r]++] = std::int32_t(k); });
}

// Some of the features, and some of the extra literals: those from `at` on.
void Search::screen_some(const Features& features, std::int64_t first, std::int64_t last, const std::int32_t* extra, std::int64_t n_extra,
                         std::int64_t at, std::int64_t n_all, Screened& out) const {
    std::vector<Spot> spots(last - first);
    std::vector<std::vector<std::vector<std::uint8_t>>> states(last - first);
    for (std::int64_t j = first; j < last; ++j) {
        const std::int32_t* literals = features.literals + features.start[j];
        find(literals, features.start[j + 1] - features.start[j], 0, n_words_, spots[j - first]);
        for (const Part& part : spots[j - first].parts) states[j - first].push_back(allowed(part, literals));
    }
    std::vector<float> residual(64 * n_extra), variance(64 * n_extra), sum(n_extra), square(n_extra);
    std::vector<std::int32_t> held, held_start;
    for (std::int64_t w = 0; w < n_words_; ++w) {
        std::uint64_t matched = 0, any = 0;
        for (const Spot& spot : spots) {
            matched |= spot.match[w];
            any |= spot.near[w];
        }
        any |= matched;
        if (!any) continue;
        list_held(w, any, extra, n_extra, held, held_start);
        residuals(w, matched, extra, n_extra, residual.data(), variance.data());
        for (std::int64_t j = first; j < last; ++j) {
            const Spot& spot = spots[j - first];
            double *gradient = out.gradient.data() + j * n_all + at, *curvature = out.curvature.data() + j * n_all + at,
                   *support = out.support.data() + j * n_all + at;
            double pull[64] = {}, stiff[64] = {};
            for (std::size_t q = 0; q < spot.parts.size(); ++q) {
                const auto& own = states[j - first][q];
                if (std::count(own.begin(), own.end(), 1) == std::int64_t(own.size())) continue;
                const std::uint64_t context = spot.match[w] | (spot.near[w] & spot.miss[q * spot.n_words + w]);
                for_bits(context, 0, [&](std::int64_t r) {
                    const double p = 1 / (1 + std::exp(-odds(spot.parts[q], own, w * 64 + r)));
                    pull[r] += ((spot.match[w] >> r & 1) ? 1.0 : 0.0) - p;
                    stiff[r] += p * (1 - p);
                });
            }
            for_bits(spot.match[w] | spot.near[w], 0, [&](std::int64_t r) {
                const double c = row_weight_[w * 64 + r], u = c * pull[r], h = c * stiff[r], matched = (spot.match[w] >> r & 1) ? c : 0.0;
                for (std::int32_t k = held_start[r]; k < held_start[r + 1]; ++k) {
                    gradient[held[k]] += u;
                    curvature[held[k]] += h;
                    support[held[k]] += matched;
                }
            });
            if (!spot.match[w]) continue;
            std::fill(sum.begin(), sum.end(), 0.0f);
            std::fill(square.begin(), square.end(), 0.0f);
            for_bits(spot.match[w], 0, [&](std::int64_t r) {
                UNDIRECTED_DISPATCH(
                    add_two(residual.data() + r * n_extra, variance.data() + r * n_extra, n_extra, sum.data(), square.data()));
            });
            for (std::int64_t k = 0; k < n_extra; ++k) {
                gradient[k] += sum[k];
                curvature[k] += square[k];
            }
        }
    }
}

Screened Search::screen(const Features& features, const std::int32_t* extra, std::int64_t n_extra, int n_threads) const {
    Screened out;
    out.gradient.assign(features.n * n_extra, 0.0);
    out.curvature.assign(features.n * n_extra, 0.0);
    out.support.assign(features.n * n_extra, 0.0);
    // Few features are too little for all threads: then each takes a part of the literals.
    const std::int64_t n_blocks = (features.n + SCREEN_A_TASK - 1) / SCREEN_A_TASK;
    const std::int64_t n_parts = n_blocks < n_threads ? std::clamp<std::int64_t>(n_extra / SCREEN_LEAST, 1, n_threads) : 1;
    parallel_for(n_blocks * n_parts, n_threads, [&](std::int64_t t) {
        const std::int64_t first = t / n_parts * SCREEN_A_TASK, from = t % n_parts * n_extra / n_parts,
                           to = (t % n_parts + 1) * n_extra / n_parts;
        screen_some(features, first, std::min(features.n, first + SCREEN_A_TASK), extra + from, to - from, from, n_extra, out);
    });
    return out;
}

}  // namespace undirected
