#include "trees.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "pool.hpp"

namespace undirected {
namespace {

constexpr double NONE = -std::numeric_limits<double>::infinity();

// x * log(x + prior), from a table where all weights are whole numbers.
class Logs {
public:
    Logs(double prior, std::int64_t table_size) : prior_(prior) {
        table_.resize(table_size);
        for (std::int64_t x = 0; x < table_size; ++x) table_[x] = double(x) * std::log(double(x) + prior);
    }
    double operator()(double x) const {
        // Differences of weights may fall below zero by rounding.
        if (!table_.empty() && x < double(table_.size())) return table_[std::size_t(std::max(x, 0.0))];
        return x * std::log(x + prior_);
    }

private:
    double prior_;
    std::vector<double> table_;
};

class Grower {
public:
    Grower(const Uncommon& shared, std::int32_t target, double min_rows, double min_gain)
        : shared_(shared),
          table_(shared.table),
          target_(target),
          k_(table_.n_states[target]),
          state_(table_.codes + target * table_.n_rows),
          min_rows_(min_rows),
          min_gain_(min_gain * std::max(0, k_ - 1)),
          part_(1.0 / k_, shared.whole ? SMALL : 0),
          whole_(1.0, shared.whole ? SMALL : 0),
          rows_(table_.n_rows),
          held_(k_) {
        std::iota(rows_.begin(), rows_.end(), 0);
    }

    Trees grow() {
        std::vector<double> total(k_, 0.0);
        for (std::int64_t r = 0; r < table_.n_rows; ++r) total[state_[r]] += table_.row_weight[r];
        std::vector<double> counts;
        if (splittable(total.data())) count(0, table_.n_rows, counts);
        subtree(0, table_.n_rows, std::move(total), std::move(counts));
        return std::move(out_);
    }

private:
    static constexpr std::int64_t SMALL = 4096;

    bool splittable(const double* total) const {
        return k_ > 1 && std::accumulate(total, total + k_, 0.0) >= 2 * min_rows_ &&
               std::count_if(total, total + k_, [](double x) { return x > 0; }) > 1;
    }

    void count(std::int64_t from, std::int64_t to, std::vector<double>& counts) const {
        counts.assign(std::size_t(shared_.numbers.count()) * k_, 0.0);
        for (std::int64_t i = from; i < to; ++i) {
            const std::int64_t r = rows_[i];
            const double weight = table_.row_weight[r];
            double* at = counts.data() + state_[r];
            for (std::int64_t k = shared_.start[r]; k < shared_.start[r + 1]; ++k) at[std::int64_t(shared_.literals[k]) * k_] += weight;
        }
    }

    double likelihood(const double* count, double sum) const {
        double value = -whole_(sum);
        for (std::int32_t s = 0; s < k_; ++s) value += part_(count[s]);
        return value;
    }

    struct Split {
        std::int32_t literal = -1;
        double gain = NONE;
    };

    Split best(const std::vector<double>& total, double sum, const std::vector<double>& counts) {
        Split found;
        const double own = likelihood(total.data(), sum);
        std::vector<double> rest(k_);
        const auto consider = [&](std::int32_t literal, const double* yes) {
            double n = 0;
            for (std::int32_t s = 0; s < k_; ++s) n += yes[s];
            if (n < min_rows_ || sum - n < min_rows_) return;
            for (std::int32_t s = 0; s < k_; ++s) rest[s] = total[s] - yes[s];
            const double gain = likelihood(yes, n) + likelihood(rest.data(), sum - n) - own;
            if (found.literal < 0 || gain > found.gain + 1e-9 * (1 + std::abs(found.gain))) found = {literal, gain};
        };
        for (std::int32_t v = 0; v < table_.n_variables; ++v) {
            if (v == target_) continue;
            const std::int32_t states = table_.n_states[v], first = shared_.numbers.first(v), common = shared_.common[v];
            if (states == 2) {  // one test: the second state
                const double* seen = counts.data() + std::int64_t(first + 1 - common) * k_;
                if (common == 0) {
                    consider(first + 1, seen);
                } else {
                    for (std::int32_t s = 0; s < k_; ++s) held_[s] = total[s] - seen[s];
                    consider(first + 1, held_.data());
                }
                continue;
            }
            for (std::int32_t t = 0; t < states && states > 1; ++t) {
                if (t != common) {
                    consider(first + t, counts.data() + std::int64_t(first + t) * k_);
                    continue;
                }
                for (std::int32_t s = 0; s < k_; ++s) {
                    held_[s] = total[s];
                    for (std::int32_t u = 0; u < states; ++u)
                        if (u != common) held_[s] -= counts[std::int64_t(first + u) * k_ + s];
                }
                consider(first + t, held_.data());
            }
        }
        return found;
    }

    // Adds the subtree of the rows [from, to); `counts` is used up. Returns the number of its root. The larger side of a split is
    // worked in the same loop, so that calls nest no deeper than the logarithm of the rows.
    std::int32_t subtree(std::int64_t from, std::int64_t to, std::vector<double> total, std::vector<double> counts) {
        const std::int32_t root = std::int32_t(out_.test.size());
        for (std::int32_t* parent_slot = nullptr;;) {
            const std::int32_t number = std::int32_t(out_.test.size());
            if (parent_slot != nullptr) *parent_slot = number;
            out_.test.push_back(-1);
            out_.yes.push_back(-1);
            out_.no.push_back(-1);
            out_.gain.push_back(NONE);
            out_.count.insert(out_.count.end(), total.begin(), total.end());
            if (counts.empty()) return root;
            const Split split = best(total, std::accumulate(total.begin(), total.end(), 0.0), counts);
            out_.gain[number] = split.gain;
            if (split.literal < 0 || !(split.gain > min_gain_)) return root;
            const std::int32_t v = shared_.numbers.variable(split.literal), state = shared_.numbers.state(split.literal);
            const std::int16_t* codes = table_.codes + v * table_.n_rows;
            const auto holds = [&](std::int32_t r) { return codes[r] == state; };
            const std::int64_t middle = std::stable_partition(rows_.begin() + from, rows_.begin() + to, holds) - rows_.begin();
            std::vector<double> yes(k_, 0.0), no(k_);
            for (std::int64_t i = from; i < middle; ++i) yes[state_[rows_[i]]] += table_.row_weight[rows_[i]];
            for (std::int32_t s = 0; s < k_; ++s) no[s] = total[s] - yes[s];
            out_.test[number] = split.literal;
            // The counts of the larger side are what the smaller one leaves.
            const bool yes_smaller = 2 * (middle - from) <= to - from;
            auto& small_total = yes_smaller ? yes : no;
            auto& large_total = yes_smaller ? no : yes;
            const bool grow_small = splittable(small_total.data()), grow_large = splittable(large_total.data());
            std::vector<double> small;
            if (grow_small || grow_large) count(yes_smaller ? from : middle, yes_smaller ? middle : to, small);
            if (grow_large)
                for (std::size_t i = 0; i < counts.size(); ++i) counts[i] -= small[i];
            else
                counts.clear();
            if (!grow_small) small.clear();
            const std::int32_t child = yes_smaller ? subtree(from, middle, std::move(small_total), std::move(small))
                                                   : subtree(middle, to, std::move(small_total), std::move(small));
            (yes_smaller ? out_.yes : out_.no)[number] = child;
            parent_slot = &(yes_smaller ? out_.no : out_.yes)[number];  // the next turn writes it before the vectors grow
            (yes_smaller ? from : to) = middle;
            total = std::move(large_total);
        }
    }

    const Uncommon& shared_;
    const CodeTable& table_;
    std::int32_t target_, k_;
    const std::int16_t* state_;
    double min_rows_, min_gain_;
    Logs part_, whole_;
    std::vector<std::int32_t> rows_;
    std::vector<double> held_;
    Trees out_;
};

}  // namespace

Trees grow_trees(const CodeTable& table, const std::int32_t* targets, std::int64_t n_targets, double min_rows, double min_gain,
                 int n_threads, const std::function<bool(std::int64_t)>& go_on) {
    using Clock = std::chrono::steady_clock;
    const Uncommon shared(table);
    std::vector<Trees> grown(n_targets);
    std::int64_t piece = 2 * std::max(1, n_threads);  // doubled while it takes less than half a second
    for (std::int64_t from = 0, to; from < n_targets; from = to) {
        const bool going = go_on(from);
        to = going ? std::min(from + piece, n_targets) : n_targets;
        const auto began = Clock::now();
        parallel_for(to - from, n_threads, [&](std::int64_t t) {
            grown[from + t] =
                Grower(shared, targets[from + t], going ? min_rows : std::numeric_limits<double>::infinity(), min_gain).grow();
        });
        if (Clock::now() - began < std::chrono::milliseconds(500)) piece *= 2;
    }
    Trees out;
    out.start.push_back(0);
    out.count_start.push_back(0);
    for (std::int64_t t = 0; t < n_targets; ++t) {
        const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
        append(out.test, grown[t].test);
        append(out.yes, grown[t].yes);
        append(out.no, grown[t].no);
        append(out.gain, grown[t].gain);
        append(out.count, grown[t].count);
        for (std::size_t k = 0; k < grown[t].test.size(); ++k)
            out.count_start.push_back(out.count_start.back() + table.n_states[targets[t]]);
        out.start.push_back(std::int64_t(out.test.size()));
        grown[t] = {};
    }
    return out;
}

Walk walk_trees(const CodeTable& table, const std::int32_t* targets, std::int64_t n_targets, const std::int64_t* start,
                const std::int32_t* test, const std::int32_t* yes, const std::int32_t* no, const std::int64_t* count_start,
                const double* value, int n_threads) {
    const LiteralNumbers numbers(table.n_states, table.n_variables);
    Walk out;
    out.through.assign(count_start[start[n_targets]], 0.0);
    out.by_row.assign(table.n_rows, 0.0);
    constexpr std::int64_t group = 16;  // trees at a time: their sums by row are added in the order of the groups
    for (std::int64_t from = 0; from < n_targets; from += group) {
        const std::int64_t n = std::min(group, n_targets - from);
        std::vector<double> terms(n * table.n_rows);
        parallel_for(n, n_threads, [&](std::int64_t k) {
            const std::int64_t t = from + k, root = start[t];
            const std::int16_t* target = table.codes + targets[t] * table.n_rows;
            for (std::int64_t r = 0; r < table.n_rows; ++r) {
                std::int64_t node = root;
                for (;;) {
                    out.through[count_start[node] + target[r]] += table.row_weight[r];
                    if (test[node] < 0) break;
                    const bool holds = table.codes[numbers.variable(test[node]) * table.n_rows + r] == numbers.state(test[node]);
                    node = root + (holds ? yes[node] : no[node]);
                }
                terms[k * table.n_rows + r] = value[count_start[node] + target[r]];
            }
        });
        for (std::int64_t k = 0; k < n; ++k)
            for (std::int64_t r = 0; r < table.n_rows; ++r) out.by_row[r] += terms[k * table.n_rows + r];
    }
    return out;
}

}  // namespace undirected
