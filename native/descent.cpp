#include "descent.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>

#include "dispatch.hpp"
#include "large.hpp"
#include "pool.hpp"

namespace undirected {
namespace {

constexpr double LONGEST_STEP = 8.0;
constexpr int WORKERS = 8;  // as many features in a row have no variable in common, where that can be had
constexpr int WINDOW = 96;  // features among which the next one is looked for
constexpr int FETCHED_GROUPS = 1024;
constexpr double DENSE = 0.4;  // share of the groups from which on a context has a byte for each of them
constexpr int SPINS = 2000;    // before a thread that waits lets others run

// The step of one weight, given the slope of the smooth part and a curvature that the objective has here. The curvature of a logistic
// loss grows by at most a factor exp(|step|), so that this step never goes too far; under L1 it stops at zero, or goes on where the other
// side pays, too. `slope` becomes the smallest subgradient.
double find_step(double weight, double& slope, double curvature, double l1) {
    const double smooth = slope;
    if (weight != 0)
        slope += weight > 0 ? l1 : -l1;
    else
        slope = smooth > l1 ? smooth - l1 : smooth < -l1 ? smooth + l1 : 0.0;
    if (slope == 0) return 0;
    const auto reach = [&](double s) { return std::min(LONGEST_STEP, std::log1p(std::abs(s) / curvature)); };
    const double step = slope > 0 ? -reach(slope) : reach(slope);
    if (l1 == 0 || weight == 0 || (weight > 0) == (weight + step > 0)) return step;
    const double beyond = weight > 0 ? smooth - l1 : smooth + l1;  // the slope on the other side, if nothing changed on the way
    const double further = (beyond > 0) == (weight > 0) && beyond != 0 ? (weight > 0 ? -reach(beyond) : reach(beyond)) : 0.0;
    return std::abs(further) > std::abs(weight) ? further : -weight;
}

}  // namespace

Descent::Descent(const PseudoLikelihoodTables& tables, int n_threads) {
    const std::int64_t n_rows = tables.n_rows();
    truth_stride_ = tables.n_words() * 8;
    n_groups_ = (n_rows + GROUP_STEP * GROUP_ROWS - 1) / (GROUP_STEP * GROUP_ROWS) * GROUP_STEP;
    stride_ = n_groups_ * GROUP_ROWS;
    columns_ = tables.literal_columns();
    row_weight_.assign(stride_, 0.0f);
    total_weight_ = 0;
    for (std::int64_t r = 0; r < n_rows; ++r) {
        row_weight_[r] = float(tables.row_weight(r));
        total_weight_ += tables.row_weight(r);
    }
    find_parts(tables);
    list_groups(tables, n_threads);
    std::int64_t n_columns = 0;
    for (const std::int32_t n : term_states_) n_columns += n;
    resize_large(odds_, n_columns * stride_);
    resize_large(logits_, n_columns * stride_);
    set_constants(n_threads);
}

// The variables of each feature with their contexts, from the units of the tables.
void Descent::find_parts(const PseudoLikelihoodTables& tables) {
    std::vector<std::int32_t> term_of(tables.n_variables(), -1);
    std::int32_t column = 0;
    for (std::int32_t v = 0; v < tables.n_variables(); ++v) {
        const std::int32_t k = tables.n_states(v);
        if (k < 2) continue;
        term_of[v] = n_terms();
        term_column_.push_back(column);
        term_states_.push_back(k == 2 ? 1 : k);
        term_literal_.push_back(tables.first_literal(v) + (k == 2 ? 1 : 0));
        column += k == 2 ? 1 : k;
    }
    part_start_.assign(1, 0);
    for (std::int64_t j = 0; j < tables.n_features(); ++j) {
        const std::int64_t first = std::int64_t(parts_.size());
        tables.for_units(j, [&](std::int32_t variable, std::int32_t state, std::int32_t context, bool minus) {
            const std::int32_t term = term_of[variable], at = std::int32_t(states_.size());
            if (std::int64_t(parts_.size()) == first || parts_.back().term != term) parts_.push_back({context, term, at, at, minus});
            states_.push_back(state);
            parts_.back().states_to = at + 1;
        });
        part_start_.push_back(std::int64_t(parts_.size()));
    }
    term_start_.assign(n_terms() + 1, 0);
    for (const Part& part : parts_) ++term_start_[part.term + 1];
    std::partial_sum(term_start_.begin(), term_start_.end(), term_start_.begin());
    term_parts_.resize(parts_.size());
    auto next = term_start_;
    for (std::int64_t j = 0; j < n_features(); ++j)
        for (std::int64_t k = part_start_[j]; k < part_start_[j + 1]; ++k)
            term_parts_[next[parts_[k].term]++] = {std::int32_t(j), std::int32_t(k)};
}

void Descent::list_groups(const PseudoLikelihoodTables& tables, int n_threads) {
    const auto mark = [](std::uint64_t word) {  // the lowest bit of each byte that is not zero
        word |= word >> 4 & 0x0f0f0f0f0f0f0f0fULL;
        word |= word >> 2 & 0x0303030303030303ULL;
        return (word | (word >> 1 & 0x0101010101010101ULL)) & 0x0101010101010101ULL;
    };
    const auto count = [&](const std::uint64_t* words) {
        std::int64_t n = 0;
        for (std::int64_t w = 0; w < tables.n_words(); ++w) n += __builtin_popcountll(mark(words[w]));
        return n;
    };
    list_start_.assign(tables.n_contexts() + 1, 0);
    dense_.assign(tables.n_contexts(), 0);
    tables.for_each_context(n_threads, [&](std::int32_t context, const std::uint64_t* words) {
        const std::int64_t n = count(words);
        dense_[context] = n > DENSE * double(n_groups_);
        list_start_[context + 1] =
            dense_[context] ? n_groups_ / std::int64_t(sizeof(Group)) : (n + GROUP_STEP - 1) / GROUP_STEP * GROUP_STEP;
    });
    std::partial_sum(list_start_.begin(), list_start_.end(), list_start_.begin());
    resize_large(groups_, list_start_.back());
    tables.for_each_context(n_threads, [&](std::int32_t context, const std::uint64_t* words) {
        Group* to = groups_.data() + list_start_[context];
        if (dense_[context]) {
            std::memcpy(to, words, n_groups_);
            return;
        }
        for (std::int64_t w = 0; w < tables.n_words(); ++w)
            for (std::uint64_t marks = mark(words[w]); marks != 0; marks &= marks - 1) {
                const int bit = __builtin_ctzll(marks);  // of the byte's lowest row
                *to++ = Group(8 * w + bit / 8) << 8 | Group(words[w] >> bit & 255);
            }
    });
}

Columns Descent::columns_of(std::int32_t term) const {
    const std::int64_t at = term_column_[term] * stride_;
    const auto* truth = reinterpret_cast<const std::uint8_t*>(columns_.data()) + term_literal_[term] * truth_stride_;
    return {const_cast<float*>(odds_.data()) + at, truth, truth_stride_, stride_, term_states_[term]};
}

void Descent::set_constants(int n_threads) {
    constant_.resize(n_features());
    costs_.resize(n_features());
    const std::int64_t step = 256;
    parallel_for((n_features() + step - 1) / step, n_threads, [&](std::int64_t task) {
        for (std::int64_t j = task * step; j < std::min(n_features(), (task + 1) * step); ++j) {
            double sum = 0;
            std::int64_t cost = 0;
            for (std::int64_t k = part_start_[j]; k < part_start_[j + 1]; ++k) {
                const Part& part = parts_[k];
                const Columns columns = columns_of(part.term);
                cost += rows_of(part).n * columns.n;
                for (std::int32_t s = part.states_from; s < part.states_to; ++s) {
                    const double count =
                        UNDIRECTED_DISPATCH(count_truth(rows_of(part), columns, columns.n == 1 ? 0 : states_[s], row_weight_.data()));
                    sum += part.minus ? count : -count;
                }
            }
            constant_[j] = sum;
            costs_[j] = cost;
        }
    });
}

// Adds a multiple of what these steps of weights do to the logits of one variable.
void Descent::add_term_images(std::int32_t term, const double* steps, float factor, float* images) const {
    const bool binary = term_states_[term] == 1;
    for (std::int64_t k = term_start_[term]; k < term_start_[term + 1]; ++k) {
        const auto [feature, at] = term_parts_[k];
        if (steps[feature] == 0) continue;
        const Part& part = parts_[at];
        const float amount = factor * float(part.minus ? -steps[feature] : steps[feature]);
        for (std::int32_t s = part.states_from; s < part.states_to; ++s) {
            float* column = images + (term_column_[term] + (binary ? 0 : states_[s])) * stride_;
            UNDIRECTED_DISPATCH(add_amount(rows_of(part), amount, column));
        }
    }
}

void Descent::set_weights(const double* weights, int n_threads) {
    std::fill(logits_.begin(), logits_.end(), 0.0f);
    parallel_for(n_terms(), n_threads, [&](std::int64_t task) {
        const std::int32_t term = std::int32_t(task);
        const Columns columns = columns_of(term);
        const std::int64_t at = term_column_[term] * stride_;
        add_term_images(term, weights, 1.0f, logits_.data());
        UNDIRECTED_DISPATCH(set_odds(columns, logits_.data() + at, n_groups_));
        UNDIRECTED_DISPATCH(find_logits(columns, n_groups_, logits_.data() + at, nullptr));
    });
}

std::vector<std::int32_t> Descent::spread_out(const std::int32_t* order, std::int64_t n) const {
    std::vector<std::uint64_t> marks(n_features());
    for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t k = part_start_[order[i]]; k < part_start_[order[i] + 1]; ++k)
            marks[order[i]] |= std::uint64_t(1) << (parts_[k].term % 64);
    std::vector<std::int32_t> out, window(order, order + std::min<std::int64_t>(n, WINDOW));
    out.reserve(n);
    std::uint64_t recent[WORKERS - 1] = {}, busy = 0;
    std::int64_t read = std::int64_t(window.size());
    for (std::int64_t at = 0, from = 0; at < n; ++at) {
        std::size_t chosen = std::size_t(from) % window.size();
        for (std::size_t i = 0; i < window.size(); ++i) {
            const std::size_t k = (std::size_t(from) + i) % window.size();
            if (marks[window[k]] & busy) continue;
            chosen = k;
            break;
        }
        const std::int32_t feature = window[chosen];
        out.push_back(feature);
        from = std::int64_t(chosen) + 1;
        if (read < n)
            window[chosen] = order[read++];
        else
            window.erase(window.begin() + std::int64_t(chosen));
        recent[at % (WORKERS - 1)] = marks[feature];
        busy = 0;
        for (const std::uint64_t mark : recent) busy |= mark;
    }
    return out;
}

void Descent::visit(std::int32_t feature, const SweepPenalty& penalty, const SweepResult& result, bool refresh, Least least) {
    double slope = constant_[feature], curvature = 0;
    const std::int64_t from = part_start_[feature], to = part_start_[feature + 1];
    for (std::int64_t k = from; k < to; ++k) {
        const Part& part = parts_[k];
        const Sums sums = UNDIRECTED_DISPATCH(gather(rows_of(part), columns_of(part.term), states_.data() + part.states_from,
                                                     part.states_to - part.states_from, row_weight_.data(), refresh));
        slope += part.minus ? -sums.first : sums.first;
        curvature += sums.second;
    }
    if (refresh)
        result.curvature[feature] = curvature;
    else
        curvature = result.curvature[feature];
    double& weight = result.weights[feature];
    slope += penalty.ridge[feature] * (weight - penalty.centre[feature]);
    const double total = std::max(curvature + penalty.ridge[feature], 1e-9 * total_weight_);
    const double step = find_step(weight, slope, total, penalty.l1[feature]);
    result.slope[feature] = slope;
    result.gain[feature] = 0.5 * std::abs(slope * step);
    const bool small = result.gain[feature] < least.gain && std::abs(slope) < least.slope;
    if (step == 0 || small) return;
    weight += step;
    const float up = float(std::exp(step)), down = float(std::exp(-step));
    for (std::int64_t k = from; k < to; ++k) {
        const Part& part = parts_[k];
        UNDIRECTED_DISPATCH(multiply(rows_of(part), columns_of(part.term), states_.data() + part.states_from,
                                     part.states_to - part.states_from, part.minus ? down : up));
    }
}

// Features that share a variable are visited in the order given, whichever thread visits them; the others commute.
void Descent::sweep_together(const std::int32_t* order, std::int64_t n, const SweepPenalty& penalty, const SweepResult& result,
                             bool refresh, Least least, int n_threads) {
    struct alignas(64) Counter {
        std::atomic<std::int64_t> done{0};
    };
    const auto done = std::make_unique<Counter[]>(n_terms());
    std::vector<std::int64_t> ticket_start(n + 1, 0), given(n_terms(), 0), tickets;
    for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t k = part_start_[order[i]]; k < part_start_[order[i] + 1]; ++k) tickets.push_back(given[parts_[k].term]++);
        ticket_start[i + 1] = std::int64_t(tickets.size());
    }
    std::atomic<std::int64_t> next{0};
    parallel_for(n_threads, n_threads, [&](std::int64_t) {
        for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
            const std::int64_t from = part_start_[order[i]], n_parts = part_start_[order[i] + 1] - from;
            for (std::int64_t k = 0; k < n_parts; ++k) {
                const std::atomic<std::int64_t>& counter = done[parts_[from + k].term].done;
                for (int spins = 0; counter.load(std::memory_order_acquire) != tickets[ticket_start[i] + k]; ++spins)
                    if (spins >= SPINS) std::this_thread::yield();
            }
            if (i + n_threads < n) fetch_early(order[i + n_threads]);
            visit(order[i], penalty, result, refresh, least);
            for (std::int64_t k = 0; k < n_parts; ++k) done[parts_[from + k].term].done.fetch_add(1, std::memory_order_release);
        }
    });
}

void Descent::sweep(const std::int32_t* order, std::int64_t n, const SweepPenalty& penalty, const SweepResult& result, bool refresh,
                    Least least, int n_threads) {
    if (n_threads > 1) return sweep_together(order, n, penalty, result, refresh, least, n_threads);
    for (std::int64_t i = 0; i < n; ++i) {
        if (i + 1 < n) fetch_early(order[i + 1]);
        visit(order[i], penalty, result, refresh, least);
    }
}

// Asks the memory for a feature's lists before they are needed.
void Descent::fetch_early(std::int32_t feature) const {
    for (std::int64_t k = part_start_[feature]; k < part_start_[feature + 1]; ++k) {
        const GroupList list = rows_of(parts_[k]);
        if (list.bits != nullptr)
            for (std::int64_t at = 0; at < std::min<std::int64_t>(list.n, 4 * FETCHED_GROUPS); at += 64) __builtin_prefetch(list.bits + at);
        else
            for (std::int64_t at = 0; at < std::min<std::int64_t>(list.n, FETCHED_GROUPS); at += 16) __builtin_prefetch(list.groups + at);
    }
}

void Descent::keep_image(std::int32_t direction, int n_threads) {
    std::vector<float>& image = images_[direction];
    if (image.empty()) resize_large(image, logits_.size());
    parallel_for(n_terms(), n_threads, [&](std::int64_t term) {
        const std::int64_t at = term_column_[term] * stride_;
        UNDIRECTED_DISPATCH(find_logits(columns_of(std::int32_t(term)), n_groups_, logits_.data() + at, image.data() + at));
    });
}

void Descent::correct_image(std::int32_t direction, const double* steps, int n_threads) {
    parallel_for(n_terms(), n_threads,
                 [&](std::int64_t term) { add_term_images(std::int32_t(term), steps, -1.0f, images_[direction].data()); });
}

void Descent::set_image(std::int32_t direction, const double* steps, int n_threads) {
    parallel_for(n_terms(), n_threads, [&](std::int64_t term) {
        float* image = images_[direction].data();
        std::fill_n(image + term_column_[term] * stride_, term_states_[term] * stride_, 0.0f);
        add_term_images(std::int32_t(term), steps, 1.0f, image);
    });
}

Directions Descent::directions(std::int32_t n, const double* amounts, std::int32_t term) const {
    Directions out{};
    out.n = n;
    for (std::int32_t k = 0; k < n; ++k) {
        out.images[k] = images_[k].data() + term_column_[term] * stride_;
        out.amounts[k] = float(amounts[k]);
    }
    return out;
}

Along Descent::measure(std::int32_t n, const double* amounts, int n_threads) const {
    std::vector<Along> terms(n_terms());
    parallel_for(n_terms(), n_threads, [&](std::int64_t term) {
        terms[term] = UNDIRECTED_DISPATCH(measure(columns_of(std::int32_t(term)), logits_.data() + term_column_[term] * stride_, n_groups_,
                                                  row_weight_.data(), directions(n, amounts, std::int32_t(term))));
    });
    Along out;
    for (const Along& term : terms) {
        out.value += term.value;
        for (int k = 0; k < MOST_DIRECTIONS; ++k) out.first[k] += term.first[k];
        for (int k = 0; k < MOST_DIRECTIONS * (MOST_DIRECTIONS + 1) / 2; ++k) out.second[k] += term.second[k];
    }
    return out;
}

void Descent::move(std::int32_t n, const double* amounts, std::int32_t direction, const double* steps, int n_threads) {
    parallel_for(n_terms(), n_threads, [&](std::int64_t task) {
        const std::int32_t term = std::int32_t(task);
        const Columns columns = columns_of(term);
        const std::int64_t at = term_column_[term] * stride_;
        float *logits = logits_.data() + at, *image = images_[direction].data() + at;
        UNDIRECTED_DISPATCH(move_logits(columns, logits, n_groups_, directions(n, amounts, term), image));
        add_term_images(term, steps, 1.0f, logits_.data());
        add_term_images(term, steps, 1.0f, images_[direction].data());
        UNDIRECTED_DISPATCH(set_odds(columns, logits, n_groups_));
    });
}

}  // namespace undirected
