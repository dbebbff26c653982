// What is left of a feature when it must also match the rows nearest to it.
#include <algorithm>
#include <cmath>

#include "dispatch.hpp"
#include "pool.hpp"
#include "search_kernels.hpp"
#include "search_parts.hpp"

namespace undirected {

struct Search::Neighbours {
    std::vector<float> distance;     // by row
    std::vector<std::int32_t> rows;  // those that do not match; the first `sorted` of them are the nearest, in order
    std::int64_t sorted = 0;

    // The k-th nearest row. As many are sorted as have been asked for, `least` or more.
    std::int32_t row_at(std::int64_t k, double least) {
        if (k >= sorted) {
            const auto nearer = [&](std::int32_t a, std::int32_t b) {
                return distance[a] < distance[b] || (distance[a] == distance[b] && a < b);
            };
            const std::int64_t n = std::int64_t(rows.size()), wanted = least < double(n) ? std::int64_t(least) + 1 : n;
            const std::int64_t goal = std::min(n, std::max(2 * sorted, wanted));
            if (goal < n) std::nth_element(rows.begin() + sorted, rows.begin() + goal, rows.end(), nearer);
            std::sort(rows.begin() + sorted, rows.begin() + goal, nearer);
            sorted = goal;
        }
        return rows[k];
    }
};

// How far a state is from those that a feature allows its p-th variable, seen from its other variables.
float Search::apart(const Spot& spot, const std::vector<std::vector<std::uint8_t>>& states, std::size_t p, std::int32_t state,
                    const double* together, int power) const {
    const std::int32_t own = spot.parts[p].variable, other = numbers_.number(own, state), n = n_literals();
    const auto count = [&](std::int32_t a, std::int32_t b) { return together[std::int64_t(a) * n + b]; };
    double sum = 0;
    for (std::size_t q = 0; q < spot.parts.size(); ++q) {
        if (q == p) continue;
        const std::int32_t v = spot.parts[q].variable;
        double total[2] = {1, 1};  // a prior of weight one, spread evenly
        for (std::int32_t s = 0; s < n_states_[own]; ++s)
            if (states[p][s]) total[0] += count(numbers_.number(own, s), numbers_.number(own, s));
        total[1] += count(other, other);
        for (std::int32_t h = numbers_.first(v); h < numbers_.end(v); ++h) {
            double seen[2] = {1.0 / n_states_[v], 1.0 / n_states_[v]};
            for (std::int32_t s = 0; s < n_states_[own]; ++s)
                if (states[p][s]) seen[0] += count(numbers_.number(own, s), h);
            seen[1] += count(other, h);
            const double difference = std::abs(seen[0] / total[0] - seen[1] / total[1]);
            sum += power == 1 ? difference : std::pow(difference, power);
        }
    }
    return float(sum);
}

void Search::measure(const Spot& spot, const std::int32_t* literals, const double* together, int power, Neighbours& out) const {
    std::vector<std::vector<std::uint8_t>> states;
    for (const Part& part : spot.parts) states.push_back(allowed(part, literals));
    out.distance.assign(stride_, 0.0f);
    for (std::size_t p = 0; p < spot.parts.size(); ++p)
        for (std::int32_t s = 0; s < n_states_[spot.parts[p].variable]; ++s)
            if (!states[p][s]) {
                const float amount = together ? apart(spot, states, p, s, together, power) : 1.0f;
                const std::uint64_t* column = columns_.data() + std::int64_t(numbers_.number(spot.parts[p].variable, s)) * n_words_;
                UNDIRECTED_DISPATCH(add_where(column, n_words_, amount, out.distance.data()));
            }
    out.rows.clear();
    out.sorted = 0;
    for (std::int64_t w = 0; w < n_words_; ++w)
        for_bits(everywhere_[w] & ~spot.match[w], w * 64, [&](std::int64_t r) { out.rows.push_back(std::int32_t(r)); });
}

void Search::shorten(const Spot& spot, const std::int32_t* literals, const std::vector<double>& sizes, Neighbours& near,
                     Generalised& out) const {
    const std::size_t n_parts = spot.parts.size();
    std::vector<std::uint8_t> kept(n_parts, 1);
    std::size_t n_kept = n_parts, n_told = n_parts;
    double weight = 0;
    std::int64_t at = 0;
    for (const double size : sizes) {
        for (; weight < size && at < std::int64_t(near.rows.size()) && n_kept > 1; ++at) {
            const std::int32_t r = near.row_at(at, sizes.back());
            weight += row_weight_[r];
            for (std::size_t p = 0; p < n_parts; ++p)
                if (kept[p] && spot.miss[p * spot.n_words + r / 64] >> (r % 64) & 1) {
                    kept[p] = 0;
                    --n_kept;
                }
        }
        if (n_kept < 2) break;
        if (n_kept == n_told) continue;
        n_told = n_kept;
        for (std::size_t p = 0; p < n_parts; ++p)
            if (kept[p]) out.literals.insert(out.literals.end(), literals + spot.parts[p].first, literals + spot.parts[p].last);
        out.start.push_back(std::int64_t(out.literals.size()));
    }
}

Generalised Search::generalise(const Features& features, const double* together, int power, const std::vector<double>& sizes,
                               int n_threads) const {
    std::vector<Generalised> found(features.n);
    parallel_for(features.n, n_threads, [&](std::int64_t j) {
        thread_local Spot spot;
        thread_local Neighbours near;
        const std::int32_t* literals = features.literals + features.start[j];
        find(literals, features.start[j + 1] - features.start[j], 0, n_words_, spot);
        if (spot.parts.size() < 3) return;  // two variables less one are an atomic feature
        measure(spot, literals, together, power, near);
        shorten(spot, literals, sizes, near, found[j]);
    });
    Generalised out;
    for (std::int64_t j = 0; j < features.n; ++j) {
        const std::int64_t offset = std::int64_t(out.literals.size());
        for (std::size_t k = 1; k < found[j].start.size(); ++k) {
            out.start.push_back(offset + found[j].start[k]);
            out.owner.push_back(std::int32_t(j));
        }
        out.literals.insert(out.literals.end(), found[j].literals.begin(), found[j].literals.end());
    }
    return out;
}

}  // namespace undirected
