#include "descent.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <thread>

#include "dispatch.hpp"
#include "large.hpp"
#include "pool.hpp"

namespace undirected {
namespace {

constexpr double LONGEST_STEP = 8.0;
constexpr int BATCH = 8;    // as many features in a row have no variable in common, where that can be had
constexpr int WINDOW = 96;  // features among which the next one is looked for
constexpr std::int64_t FETCHED_BYTES = 4096;
constexpr int SPINS = 2000;  // before a thread that waits lets others run

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

double add_up(const float (&lanes)[16]) {
    double out = 0;
    for (const float lane : lanes) out += lane;
    return out;
}

}  // namespace

// Calls visit for every term in every strip, on several threads.
void Descent::for_terms(int n_threads, const std::function<void(std::int32_t term, int strip)>& visit) const {
    parallel_for(std::int64_t(n_terms()) * n_strips(), n_threads,
                 [&](std::int64_t task) { visit(std::int32_t(task / n_strips()), int(task % n_strips())); });
}

// Adds a multiple of what these steps of weights do to the logits of one variable.
void Descent::add_term_images(std::int32_t term, int strip, const double* steps, float factor, float* images) const {
    float* const first = images + place_of(term_column_[term], strip);
    for (std::int64_t k = term_start_[term]; k < term_start_[term + 1]; ++k) {
        const auto [feature, at] = term_parts_[k];
        if (steps[feature] == 0) continue;
        const Piece& piece = pieces_[strip * n_parts() + at];
        const float amount = factor * float(piece.minus ? -steps[feature] : steps[feature]);
        for (int s = 0; s < piece.n_states; ++s)
            UNDIRECTED_DISPATCH(add_amount(piece.rows, amount, first + piece.states[s] * stride(strip)));
    }
}

void Descent::set_weights(const double* weights, int n_threads) {
    std::fill(logits_.begin(), logits_.end(), 0.0f);
    for_terms(n_threads, [&](std::int32_t term, int strip) {
        const Columns columns = columns_of(term, strip);
        float* logits = logits_.data() + place_of(term_column_[term], strip);
        add_term_images(term, strip, weights, 1.0f, logits_.data());
        UNDIRECTED_DISPATCH(set_odds(columns, logits, strips_[strip].n));
        UNDIRECTED_DISPATCH(find_logits(columns, strips_[strip].n, logits, nullptr));
    });
}

std::vector<std::int32_t> Descent::spread_out(const std::int32_t* order, std::int64_t n) const {
    std::vector<std::int32_t> out, window(order, order + std::min<std::int64_t>(n, WINDOW));
    out.reserve(n);
    std::uint64_t recent[BATCH - 1] = {}, busy = 0;
    std::int64_t read = std::int64_t(window.size());
    for (std::int64_t at = 0, from = 0; at < n; ++at) {
        std::size_t chosen = std::size_t(from) % window.size();
        for (std::size_t i = 0; i < window.size(); ++i) {
            const std::size_t k = (std::size_t(from) + i) % window.size();
            if (term_marks_[window[k]] & busy) continue;
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
        recent[at % (BATCH - 1)] = term_marks_[feature];
        busy = 0;
        for (const std::uint64_t mark : recent) busy |= mark;
    }
    return out;
}

// Adds up, for each of these strips, what a feature's rows say.
void Descent::gather_strips(std::int32_t feature, int from, int to, bool refresh, Sums* sums) const {
    for (int strip = from; strip < to; ++strip) {
        sums[strip] = {};
        UNDIRECTED_DISPATCH(gather(pieces_of(feature, strip), part_start_[feature + 1] - part_start_[feature], stride(strip),
                                   {weights_of(strip), float(common_weight_)}, refresh, sums[strip]));
    }
}

// The step of a feature from the sums of all strips; zero where it is not worth taking.
Descent::Decision Descent::decide(std::int32_t feature, const Sums* sums, const SweepPenalty& penalty, const SweepResult& result,
                                  bool refresh, Least least) const {
    Decision out{constant_[feature], 0, 0, refresh ? 0.0 : result.curvature[feature]};
    for (int strip = 0; strip < n_strips(); ++strip) {
        out.slope += add_up(sums[strip].first);
        if (refresh) out.curvature += add_up(sums[strip].second);
    }
    const double weight = result.weights[feature];
    out.slope += penalty.ridge[feature] * (weight - penalty.centre[feature]);
    const double total = std::max(out.curvature + penalty.ridge[feature], 1e-9 * total_weight_);
    out.step = find_step(weight, out.slope, total, penalty.l1[feature]);
    out.gain = 0.5 * std::abs(out.slope * out.step);
    if (out.gain < least.gain && std::abs(out.slope) < least.slope) out.step = 0;
    return out;
}

void Descent::multiply_strips(std::int32_t feature, int from, int to, double step) {
    if (step == 0) return;
    for (int strip = from; strip < to; ++strip)
        UNDIRECTED_DISPATCH(multiply(pieces_of(feature, strip), part_start_[feature + 1] - part_start_[feature], stride(strip),
                                     float(std::exp(step)), float(std::exp(-step))));
}

void Descent::write(const Decision& decision, std::int32_t feature, const SweepResult& result) {
    result.weights[feature] += decision.step;
    result.slope[feature] = decision.slope;
    result.gain[feature] = decision.gain;
    result.curvature[feature] = decision.curvature;
}

void Descent::sweep(const std::int32_t* order, std::int64_t n, const SweepPenalty& penalty, const SweepResult& result, bool refresh,
                    Least least, int n_threads) {
    n_threads = std::min(available_threads(n_threads), n_strips());
    if (n_threads > 1)
        sweep_together(order, n, penalty, result, refresh, least, n_threads);
    else
        sweep_alone(order, n, penalty, result, refresh, least);
}

void Descent::sweep_alone(const std::int32_t* order, std::int64_t n, const SweepPenalty& penalty, const SweepResult& result, bool refresh,
                          Least least) {
    std::vector<Sums> sums(n_strips());
    for (std::int64_t i = 0; i < n; ++i) {
        fetch_early(order + i, n - i, 0, n_strips());
        gather_strips(order[i], 0, n_strips(), refresh, sums.data());
        const Decision decision = decide(order[i], sums.data(), penalty, result, refresh, least);
        multiply_strips(order[i], 0, n_strips(), decision.step);
        write(decision, order[i], result);
    }
}

// The order in batches of features that have no variable in common: visiting them side by side or one after another is the same.
std::vector<std::int64_t> Descent::cut_batches(const std::int32_t* order, std::int64_t n) const {
    std::vector<std::int64_t> start{0}, seen(n_terms(), -1);
    for (std::int64_t i = 0; i < n; ++i) {
        bool fits = i - start.back() < BATCH;
        for (std::int64_t k = part_start_[order[i]]; k < part_start_[order[i] + 1]; ++k) fits &= seen[part_term_[k]] < start.back();
        if (!fits) start.push_back(i);
        for (std::int64_t k = part_start_[order[i]]; k < part_start_[order[i] + 1]; ++k) seen[part_term_[k]] = i;
    }
    start.push_back(n);
    return start;
}

// Each thread has strips of its own, and works on them alone; once for every batch of features the threads meet and exchange their sums.
// All of them come to the same decisions. The one that writes these down waits until all have met again: then nobody reads the old ones.
void Descent::sweep_together(const std::int32_t* order, std::int64_t n, const SweepPenalty& penalty, const SweepResult& result,
                             bool refresh, Least least, int n_threads) {
    struct alignas(64) Counter {
        std::atomic<std::int64_t> met{0};
    };
    const auto counters = std::make_unique<Counter[]>(n_threads);
    const std::vector<std::int64_t> start = cut_batches(order, n);
    std::vector<Sums> sums(2 * BATCH * n_strips());  // of this batch and of the last
    parallel_for(n_threads, n_threads, [&](std::int64_t thread) {
        const int from = int(thread * n_strips() / n_threads), to = int((thread + 1) * n_strips() / n_threads);
        const auto meet = [&](std::int64_t number) {
            counters[thread].met.store(number, std::memory_order_release);
            for (int k = 0; k < n_threads; ++k)
                for (int spins = 0; counters[k].met.load(std::memory_order_acquire) < number; ++spins)
                    if (spins >= SPINS) std::this_thread::yield();
        };
        Decision decisions[BATCH];
        const auto write_down = [&](std::int64_t batch) {
            if (thread != 0 || batch < 0) return;
            for (std::int64_t i = start[batch]; i < start[batch + 1]; ++i) write(decisions[i - start[batch]], order[i], result);
        };
        const std::int64_t n_batches = std::int64_t(start.size()) - 1;
        for (std::int64_t batch = 0; batch < n_batches; ++batch) {
            Sums* const mine = sums.data() + batch % 2 * BATCH * n_strips();
            for (std::int64_t i = start[batch]; i < start[batch + 1]; ++i) {
                fetch_early(order + i, n - i, from, to);
                gather_strips(order[i], from, to, refresh, mine + (i - start[batch]) * n_strips());
            }
            meet(batch + 1);
            write_down(batch - 1);
            for (std::int64_t i = start[batch]; i < start[batch + 1]; ++i) {
                Decision& decision = decisions[i - start[batch]];
                decision = decide(order[i], mine + (i - start[batch]) * n_strips(), penalty, result, refresh, least);
                multiply_strips(order[i], from, to, decision.step);
            }
        }
        meet(n_batches + 1);
        write_down(n_batches - 1);
    });
}

// Asks the memory for the lists of the next feature, and for the pieces of the one after it, before they are needed.
void Descent::fetch_early(const std::int32_t* order, std::int64_t n, int from, int to) const {
    for (int strip = from; strip < to && n > 1; ++strip) {
        const Piece* const pieces = pieces_of(order[1], strip);
        for (std::int64_t k = 0; k < part_start_[order[1] + 1] - part_start_[order[1]]; ++k) {
            const GroupList& rows = pieces[k].rows;
            const bool dense = rows.bits != nullptr;
            const char* data = dense ? reinterpret_cast<const char*>(rows.bits) : reinterpret_cast<const char*>(rows.groups);
            const std::int64_t bytes = dense ? rows.n : rows.n * std::int64_t(sizeof(Group));
            for (std::int64_t at = 0; at < std::min(bytes, FETCHED_BYTES); at += 64) __builtin_prefetch(data + at);
        }
        if (n <= 2) continue;
        const char* next = reinterpret_cast<const char*>(pieces_of(order[2], strip));
        for (std::size_t at = 0; at < (part_start_[order[2] + 1] - part_start_[order[2]]) * sizeof(Piece); at += 64)
            __builtin_prefetch(next + at);
    }
}

void Descent::keep_image(std::int32_t direction, int n_threads) {
    std::vector<float>& image = images_[direction];
    if (image.empty()) resize_large(image, logits_.size());
    for_terms(n_threads, [&](std::int32_t term, int strip) {
        const std::int64_t at = place_of(term_column_[term], strip);
        UNDIRECTED_DISPATCH(find_logits(columns_of(term, strip), strips_[strip].n, logits_.data() + at, image.data() + at));
    });
}

void Descent::correct_image(std::int32_t direction, const double* steps, int n_threads) {
    for_terms(n_threads, [&](std::int32_t term, int strip) { add_term_images(term, strip, steps, -1.0f, images_[direction].data()); });
}

void Descent::set_image(std::int32_t direction, const double* steps, int n_threads) {
    std::vector<float>& image = images_[direction];
    std::fill(image.begin(), image.end(), 0.0f);
    for_terms(n_threads, [&](std::int32_t term, int strip) { add_term_images(term, strip, steps, 1.0f, image.data()); });
}

Directions Descent::directions(std::int32_t n, const double* amounts, std::int64_t place) const {
    Directions out{};
    out.n = n;
    for (std::int32_t k = 0; k < n; ++k) {
        out.images[k] = images_[k].data() + place;
        out.amounts[k] = float(amounts[k]);
    }
    return out;
}

Along Descent::measure(std::int32_t n, const double* amounts, int n_threads) const {
    std::vector<Along> terms(std::int64_t(n_terms()) * n_strips());
    for_terms(n_threads, [&](std::int32_t term, int strip) {
        const std::int64_t at = place_of(term_column_[term], strip);
        terms[std::int64_t(term) * n_strips() + strip] = UNDIRECTED_DISPATCH(
            measure(columns_of(term, strip), logits_.data() + at, strips_[strip].n, weights_of(strip), directions(n, amounts, at)));
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
    for_terms(n_threads, [&](std::int32_t term, int strip) {
        const Columns columns = columns_of(term, strip);
        const std::int64_t at = place_of(term_column_[term], strip);
        float* logits = logits_.data() + at;
        UNDIRECTED_DISPATCH(move_logits(columns, logits, strips_[strip].n, directions(n, amounts, at), images_[direction].data() + at));
        add_term_images(term, strip, steps, 1.0f, logits_.data());
        add_term_images(term, strip, steps, 1.0f, images_[direction].data());
        UNDIRECTED_DISPATCH(set_odds(columns, logits, strips_[strip].n));
    });
}

}  // namespace undirected
