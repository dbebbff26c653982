#include "search.hpp"
#include "dispatch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "log_sum.hpp"
#include "pool.hpp"
#include "search_kernels.hpp"
#include "search_parts.hpp"

namespace undirected {

namespace {

constexpr double FARTHEST = 30;  // weights stay within, where neither prior nor data hold them back
constexpr int NEWTON_STEPS = 60;
constexpr std::int64_t WORDS_A_TASK = 64;

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

}  // namespace

Search::Search(const Table& table)
    : n_rows_(table.n_rows),
      n_words_(table.n_words),
      stride_(table.n_words * 64),
      n_variables_(table.n_variables),
      numbers_(table.n_states, table.n_variables),
      n_states_(table.n_states, table.n_states + table.n_variables),
      first_lane_{0},
      everywhere_(table.n_words, ~std::uint64_t(0)),
      row_weight_(table.n_words * 64, 0.0) {
    for (std::int32_t v = 0; v < n_variables_; ++v) {
        first_lane_.push_back(first_lane_.back() + (n_states_[v] == 2 ? 1 : n_states_[v]));
    }
    columns_.assign(table.columns, table.columns + std::int64_t(n_literals()) * n_words_);
    if (n_rows_ % 64) everywhere_.back() = (std::uint64_t(1) << (n_rows_ % 64)) - 1;
    std::copy_n(table.row_weight, n_rows_, row_weight_.begin());
    row_weight_single_.assign(row_weight_.begin(), row_weight_.end());
    plain_ = std::all_of(table.row_weight, table.row_weight + n_rows_, [](double c) { return c == 1; });
    logits_.assign(std::int64_t(n_lanes()) * stride_, 0.0);
}

std::vector<Search::Part> Search::parts(const std::int32_t* literals, std::int64_t n) const {
    std::vector<Part> out;
    for (std::int64_t k = 0; k < n; ++k) {
        const std::int32_t v = numbers_.variable(literals[k]);
        if (out.empty() || out.back().variable != v) out.push_back({v, k, k});
        out.back().last = k + 1;
    }
    return out;
}

void Search::misses(const Part& part, const std::int32_t* literals, std::int64_t from, std::int64_t to, std::uint64_t* out) const {
    std::fill_n(out, to - from, 0);
    for (std::int64_t k = part.first; k < part.last; ++k) {
        const bool negated = numbers_.negated(literals[k]);
        const std::uint64_t* column = columns_.data() + std::int64_t(numbers_.positive(literals[k])) * n_words_;
        for (std::int64_t w = from; w < to; ++w) out[w - from] |= (negated ? column[w] : ~column[w]) & everywhere_[w];
    }
}

void Search::find(const std::int32_t* literals, std::int64_t n, std::int64_t from, std::int64_t to, Spot& spot) const {
    spot.parts = parts(literals, n);
    const std::int64_t n_words = spot.n_words = to - from, n_parts = std::int64_t(spot.parts.size());
    spot.miss.resize(n_parts * n_words);
    spot.match.assign(n_words, 0);  // for now: rows that fail once or more
    spot.near.assign(n_words, 0);   // and twice or more
    for (std::int64_t p = 0; p < n_parts; ++p) {
        std::uint64_t* miss = spot.miss.data() + p * n_words;
        misses(spot.parts[p], literals, from, to, miss);
        UNDIRECTED_DISPATCH(count_misses(miss, n_words, spot.match.data(), spot.near.data()));
    }
    for (std::int64_t w = 0; w < n_words; ++w) {
        const std::uint64_t once = spot.match[w], twice = spot.near[w];
        spot.near[w] = once & ~twice;
        spot.match[w] = ~once & everywhere_[from + w];
    }
}

std::vector<std::uint8_t> Search::allowed(const Part& part, const std::int32_t* literals) const {
    std::vector<std::uint8_t> out(n_states_[part.variable], 1);
    for (std::int64_t k = part.first; k < part.last; ++k) {
        for (std::int32_t s = 0; s < n_states_[part.variable]; ++s)
            if (!numbers_.holds(literals[k], s)) out[s] = 0;
    }
    return out;
}

void Search::apply(const std::int32_t* literals, std::int64_t n, double by, std::int64_t from, std::int64_t to, Spot& spot) {
    find(literals, n, from, to, spot);
    for (std::size_t p = 0; p < spot.parts.size(); ++p) {
        const Part& part = spot.parts[p];
        const auto states = allowed(part, literals);
        const std::uint64_t* miss = spot.miss.data() + p * spot.n_words;
        const bool binary = n_states_[part.variable] == 2;
        for (std::int32_t lane = 0; lane < (binary ? 1 : n_states_[part.variable]); ++lane) {
            const double amount = by * (binary ? double(states[1]) - double(states[0]) : double(states[lane]));
            if (amount == 0) continue;
            double* logit = logits_.data() + (first_lane_[part.variable] + lane) * stride_;
            for (std::int64_t w = from; w < to; ++w)
                for_bits(spot.match[w - from] | (spot.near[w - from] & miss[w - from]), w * 64,
                         [&](std::int64_t r) { logit[r] += amount; });
        }
    }
}

void Search::load(const Features& features, const double* weights, int n_threads) {
    std::fill(logits_.begin(), logits_.end(), 0.0);
    const std::int64_t n_tasks = (n_words_ + WORDS_A_TASK - 1) / WORDS_A_TASK;
    parallel_for(n_tasks, n_threads, [&](std::int64_t task) {
        Spot spot;
        for (std::int64_t j = 0; j < features.n; ++j)
            if (weights[j] != 0)
                apply(features.literals + features.start[j], features.start[j + 1] - features.start[j], weights[j], task * WORDS_A_TASK,
                      std::min(n_words_, (task + 1) * WORDS_A_TASK), spot);
    });
}

void Search::change(const std::int32_t* literals, std::int64_t n, double by) {
    Spot spot;
    apply(literals, n, by, 0, n_words_, spot);
}

std::vector<double> Search::logits() const {
    std::vector<double> out(n_rows_ * n_lanes());
    for (std::int32_t lane = 0; lane < n_lanes(); ++lane)
        for (std::int64_t r = 0; r < n_rows_; ++r) out[r * n_lanes() + lane] = logits_[lane * stride_ + r];
    return out;
}

double Search::loss(int n_threads) const {
    std::vector<double> by_variable(n_variables_, 0.0);
    parallel_for(n_variables_, n_threads, [&](std::int64_t v) {
        const double* logit = logits_.data() + first_lane_[v] * stride_;
        for (std::int32_t s = 0; s < n_states_[v]; ++s)
            for (std::int64_t w = 0; w < n_words_; ++w)
                for_bits(columns_[std::int64_t(numbers_.number(std::int32_t(v), s)) * n_words_ + w], w * 64, [&](std::int64_t r) {
                    const double value = n_states_[v] == 2 ? softplus(s ? -logit[r] : logit[r])
                                                           : log_sum(logit + r, n_states_[v], stride_) - logit[s * stride_ + r];
                    by_variable[v] += row_weight_[r] * value;
                });
    });
    return std::accumulate(by_variable.begin(), by_variable.end(), 0.0);
}

// Log-odds of a variable's allowed states against the others.
double Search::odds(const Part& part, const std::vector<std::uint8_t>& states, std::int64_t row) const {
    const double* logit = logits_.data() + first_lane_[part.variable] * stride_ + row;
    if (states.size() == 2) return states[1] ? logit[0] : -logit[0];
    double high[2] = {-std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}, sum[2] = {0, 0};
    for (std::size_t s = 0; s < states.size(); ++s) high[states[s]] = std::max(high[states[s]], logit[s * stride_]);
    for (std::size_t s = 0; s < states.size(); ++s) sum[states[s]] += std::exp(logit[s * stride_] - high[states[s]]);
    return high[1] - high[0] + std::log(sum[1] / sum[0]);
}

void Search::gather(const std::int32_t* literals, const Spot& spot, const Spot* without, double weight, Entries& entries) const {
    entries.n[0] = entries.n[1] = 0;
    std::int64_t near = 0, match = 0;
    for (std::int64_t w = 0; w < n_words_; ++w) {
        near += std::popcount(spot.near[w]);
        match += std::popcount(spot.match[w]);
    }
    entries.make_room(0, near, !plain_);
    entries.make_room(1, match * std::int64_t(spot.parts.size()), !plain_);
    for (std::size_t p = 0; p < spot.parts.size(); ++p) {
        const auto states = allowed(spot.parts[p], literals);
        if (std::count(states.begin(), states.end(), 1) == std::int64_t(states.size())) continue;  // nothing to choose between
        const bool flat = states.size() == 2;
        const double sign = flat && states[1] ? 1.0 : -1.0;
        const double* logit = logits_.data() + first_lane_[spot.parts[p].variable] * stride_;
        const std::uint64_t* miss = spot.miss.data() + p * spot.n_words;
        for (int hit = 0; hit < 2; ++hit) {
            double *margin = entries.margin[hit].data(), *counts = entries.weight[hit].data();
            float *single = entries.single[hit].data(), *single_counts = entries.single_weight[hit].data();
            std::int64_t n = entries.n[hit];
            for (std::int64_t w = 0; w < n_words_; ++w) {
                const std::uint64_t word = hit ? spot.match[w] : spot.near[w] & miss[w];
                if (!word) continue;
                const std::uint64_t shared = without ? (hit ? without->match[w] : without->near[w]) : 0;
                for_bits(word, w * 64, [&](std::int64_t r) {
                    double q = flat ? sign * logit[r] : odds(spot.parts[p], states, r);
                    if (shared >> (r & 63) & 1) q -= weight;
                    margin[n] = hit ? q : -q;
                    single[n] = float(margin[n]);
                    if (!plain_) {
                        counts[n] = row_weight_[r];
                        single_counts[n] = row_weight_single_[r];
                    }
                    ++n;
                });
            }
            entries.n[hit] = n;
        }
    }
}

// Bounds the gain of moving a weight from zero, from the slope there and the curvature of the data: the latter falls by a factor of e at
// most for each unit that the weight moves.
double Search::most_gain(double pull, double curvature, double ridge) {
    return std::min(pull < curvature ? (pull - curvature) * -std::log1p(-pull / curvature) + pull : std::numeric_limits<double>::infinity(),
                    ridge > 0 ? 0.5 * pull * pull / ridge : std::numeric_limits<double>::infinity());
}

// The best weight, or NaN where no weight can gain as much as `least`.
double Search::best_weight(const Entries& entries, double l1, double ridge, double least) const {
    double second = 0;
    const auto slope = [&](double w) {
        const auto at = [&](int hit) {
            const float* weight = plain_ ? nullptr : entries.single_weight[hit].data();
            return UNDIRECTED_DISPATCH(slope(entries.single[hit].data(), weight, entries.n[hit], float(hit ? w : -w)));
        };
        const Slope lost = at(0), gained = at(1);
        second = lost.second + gained.second + ridge;
        return gained.first - lost.first - ridge * w;
    };
    double first = slope(0);
    const double pull = std::abs(first) - l1;
    if (pull <= 0) return least > 0 ? std::nan("") : 0.0;
    if (most_gain(pull, second - ridge, ridge) < least) return std::nan("");
    const double side = first > 0 ? 1 : -1;
    double low = side > 0 ? 0 : -FARTHEST, high = side > 0 ? FARTHEST : 0, w = 0;
    double last = std::numeric_limits<double>::infinity(), before = last;  // lengths of the two last steps
    for (int k = 0; k < NEWTON_STEPS; ++k) {
        if (k) first = slope(w);
        const double uphill = first - l1 * side;
        (uphill > 0 ? low : high) = w;
        double step = uphill / std::max(second, 1e-12);
        const bool inside = w + step > low && w + step < high, close = inside && std::abs(step) < 1e-3 * (1 + std::abs(w));
        // Steps that do not shrink go to and fro.
        if (!close && (!inside || std::abs(step) > before / 2)) step = (uphill > 0 ? high : low) * 0.5 - w * 0.5;
        before = last;
        last = std::abs(step);
        w += step;
        if (close || high - low < 1e-9) break;  // Newton squares the error
    }
    return w;
}

double Search::gain_at(const Entries& entries, double weight, double l1, double ridge) const {
    double out = -l1 * std::abs(weight) - 0.5 * ridge * weight * weight;
    for (int hit = 0; hit < 2; ++hit)
        out += UNDIRECTED_DISPATCH(
            moved(entries.margin[hit].data(), plain_ ? nullptr : entries.weight[hit].data(), entries.n[hit], hit ? weight : -weight));
    return out;
}

Gains Search::gains(const Features& candidates, const std::int32_t* owner, const Features& owners, const double* owner_weight,
                    double min_rows, double l1, double ridge, const double* price, bool all, int n_threads) const {
    Gains out;
    out.weight.resize(candidates.n);
    out.gain.resize(candidates.n);
    out.present.resize(owners.n);
    // Candidates of one owner stand together, so that a task finds its rows once.
    std::vector<std::int64_t> task{0};
    for (std::int64_t c = 1; c <= candidates.n; ++c)
        if (c == candidates.n || owner[c] < 0 || owner[c] != owner[c - 1]) task.push_back(c);
    std::vector<std::uint8_t> seen(owners.n, 0);
    for (std::int64_t c = 0; c < candidates.n; ++c)
        if (owner[c] >= 0) seen[owner[c]] = 1;
    const std::int64_t n_tasks = std::int64_t(task.size()) - 1;
    const auto literals_of = [](const Features& f, std::int64_t j) { return f.literals + f.start[j]; };
    const auto length_of = [](const Features& f, std::int64_t j) { return f.start[j + 1] - f.start[j]; };
    const auto present = [&](std::int64_t o, Spot& spot, Entries& entries) {
        find(literals_of(owners, o), length_of(owners, o), 0, n_words_, spot);
        gather(literals_of(owners, o), spot, &spot, owner_weight[o], entries);
        out.present[o] = gain_at(entries, owner_weight[o], l1, ridge) - price[length_of(owners, o)];
    };
    parallel_for(n_tasks, n_threads, [&](std::int64_t t) {
        thread_local Spot mine, spot;
        thread_local Entries entries;
        const std::int32_t o = owner[task[t]];
        if (o >= 0) present(o, mine, entries);
        const double rival = o >= 0 ? std::max(0.0, out.present[o]) : 0.0;  // what stays without a candidate
        for (std::int64_t c = task[t]; c < task[t + 1]; ++c) {
            find(literals_of(candidates, c), length_of(candidates, c), 0, n_words_, spot);
            if (min_rows > 0 && matched_weight(spot) < min_rows) {
                out.gain[c] = -std::numeric_limits<double>::infinity();
                continue;
            }
            gather(literals_of(candidates, c), spot, o >= 0 ? &mine : nullptr, o >= 0 ? owner_weight[o] : 0.0, entries);
            const double own = price[length_of(candidates, c)];
            const double w = best_weight(entries, l1, ridge, all ? -std::numeric_limits<double>::infinity() : own + rival);
            out.weight[c] = std::isnan(w) ? 0.0 : w;
            out.gain[c] = std::isnan(w) ? -std::numeric_limits<double>::infinity() : gain_at(entries, w, l1, ridge) - own;
        }
    });
    parallel_for(owners.n, n_threads, [&](std::int64_t o) {
        if (seen[o]) return;
        thread_local Spot mine;
        thread_local Entries entries;
        present(o, mine, entries);
    });
    return out;
}

double Search::matched_weight(const Spot& spot) const {
    double sum = 0;
    for (std::int64_t w = 0; w < spot.n_words; ++w)
        if (plain_)
            sum += std::popcount(spot.match[w]);
        else
            for_bits(spot.match[w], w * 64, [&](std::int64_t r) { sum += row_weight_[r]; });
    return sum;
}

}  // namespace undirected
