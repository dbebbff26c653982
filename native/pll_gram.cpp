// The Hessian of one variable's term of the pseudo-likelihood, estimated on the sample.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "dispatch.hpp"
#include "pll_tables.hpp"

namespace undirected {
namespace {

constexpr double SCATTERED = 30;          // a scattered addition costs as much as so many of the dense product's
constexpr std::int64_t STRIP_ROWS = 512;  // of the dense product

}  // namespace

// For feature i and row r the term has a vector of one value (two states) or one per state, zero where the context does not hold;
// the Gram matrix sums their products over the rows.
struct PseudoLikelihoodTables::Term {
    std::int64_t n_states, width, n_words, n_rows;
    const float* probability;          // [n_states][n_rows]; of two states the second alone
    std::vector<float> scale;          // [n_rows]
    std::vector<std::uint64_t> words;  // [features][n_words]: where the context holds
    std::vector<float> allowed;        // [features][n_states]
    std::vector<std::int32_t> start;   // start[r + 1]: how many contexts hold in row r

    // Calls visit(r) for every row from word `from` to word `to` in which feature i's context holds.
    template <class Visit>
    void for_rows(std::int64_t i, std::int64_t from, std::int64_t to, const Visit& visit) const {
        for (std::int64_t w = from; w < to; ++w)
            for (std::uint64_t bits = words[i * n_words + w]; bits != 0; bits &= bits - 1) visit(w * 64 + __builtin_ctzll(bits));
    }

    // Feature i's vector in row r.
    void value(std::int64_t i, std::int64_t r, float* to) const {
        const float* states = allowed.data() + i * n_states;
        if (n_states == 2) {
            *to = scale[r] * (states[1] - states[0]);
            return;
        }
        float mean = 0;
        for (std::int64_t s = 0; s < n_states; ++s) mean += probability[s * n_rows + r] * states[s];
        for (std::int64_t s = 0; s < n_states; ++s) to[s] = std::sqrt(probability[s * n_rows + r]) * (states[s] - mean) * scale[r];
    }
};

PseudoLikelihoodTables::Term PseudoLikelihoodTables::prepare_term(std::int32_t variable, const std::int32_t* features,
                                                                  std::int64_t n) const {
    const std::int64_t k = n_states_[variable], n_words = n_sampled_ / 64;
    const float* p = sample_.data() + std::int64_t(first_lane_[variable]) * n_sampled_;
    Term out{k, k == 2 ? 1 : k, n_words, n_sampled_, p, {}, {}, {}, {}};
    out.scale.assign(n_sampled_, 0.0f);  // rows past the end keep zero
    for (std::int64_t r = 0; r < n_sampled_; ++r) {
        const std::int64_t row = r / 64 * stride_ * 64 + r % 64;
        if (row < plan_.n_rows) out.scale[r] = std::sqrt(row_weight_single_[row] * float(stride_) * (k == 2 ? p[r] * (1 - p[r]) : 1.0f));
    }
    out.words.assign(n * n_words, ~std::uint64_t(0));
    out.allowed.assign(n * k, 0.0f);
    out.start.assign(n_sampled_ + 1, 0);
    for (std::int64_t i = 0; i < n; ++i) {
        std::uint64_t* mine = out.words.data() + i * n_words;
        float* states = out.allowed.data() + i * k;
        bool first = true;
        for (std::int64_t l = start_[features[i]]; l < start_[features[i] + 1]; ++l) {
            const std::int32_t literal = feature_literals_[l];
            const bool positive = !numbers_.negated(literal);
            if (numbers_.variable(literal) == variable) {
                if (std::exchange(first, false)) std::fill_n(states, k, positive ? 0.0f : 1.0f);
                states[numbers_.state(literal)] = positive ? 1.0f : 0.0f;
                continue;
            }
            const std::uint64_t* column = plan_.columns + std::int64_t(numbers_.positive(literal)) * plan_.n_words;
            for (std::int64_t w = 0; w < n_words; ++w) mine[w] &= positive ? column[w * stride_] : ~column[w * stride_];
        }
        out.for_rows(i, 0, n_words, [&](std::int64_t r) { ++out.start[r + 1]; });
    }
    return out;
}

// Row by row over the features whose contexts hold.
void PseudoLikelihoodTables::add_row_by_row(const Term& term, std::int64_t n, float* out) const {
    std::vector<std::int32_t> start = term.start;
    std::partial_sum(start.begin(), start.end(), start.begin());
    std::vector<std::int32_t> holds(start.back());
    auto next = start;
    for (std::int64_t i = 0; i < n; ++i) term.for_rows(i, 0, term.n_words, [&](std::int64_t r) { holds[next[r]++] = std::int32_t(i); });
    std::vector<float> values(n * term.width);
    for (std::int64_t r = 0; r < term.n_rows; ++r) {
        const std::int32_t* which = holds.data() + start[r];
        const std::int64_t m = start[r + 1] - start[r];
        for (std::int64_t a = 0; a < m; ++a) term.value(which[a], r, values.data() + a * term.width);
        for (std::int64_t a = 0; a < m; ++a) {
            float* row = out + which[a] * n;
            for (std::int64_t s = 0; s < term.width; ++s) {
                const float mine = values[a * term.width + s];
                for (std::int64_t b = 0; b <= a; ++b) row[which[b]] += mine * values[b * term.width + s];
            }
        }
    }
}

// In strips of rows, as a dense product.
void PseudoLikelihoodTables::add_in_strips(const Term& term, std::int64_t n, float* out) const {
    std::vector<float> design(n * term.width * STRIP_ROWS), vector(term.width);
    for (std::int64_t from = 0; from < term.n_rows; from += STRIP_ROWS) {
        const std::int64_t here = std::min(STRIP_ROWS, term.n_rows - from);
        std::fill(design.begin(), design.end(), 0.0f);
        for (std::int64_t i = 0; i < n; ++i)
            term.for_rows(i, from / 64, (from + here) / 64, [&](std::int64_t r) {
                term.value(i, r, vector.data());
                for (std::int64_t s = 0; s < term.width; ++s) design[(i * term.width + s) * STRIP_ROWS + r - from] = vector[s];
            });
        UNDIRECTED_DISPATCH(add_gram(design.data(), n, term.width * STRIP_ROWS, out));
    }
}

// Row by row where few contexts hold in a row; otherwise as a dense product.
void PseudoLikelihoodTables::gram(std::int32_t variable, const std::int32_t* features, std::int64_t n, float* out) const {
    const Term term = prepare_term(variable, features, n);
    std::fill_n(out, n * n, 0.0f);
    double pairs = 0;
    for (std::int64_t r = 0; r < n_sampled_; ++r) pairs += double(term.start[r + 1]) * double(term.start[r + 1]);
    if (SCATTERED * pairs < double(n) * double(n) * double(n_sampled_))
        add_row_by_row(term, n, out);
    else
        add_in_strips(term, n, out);
    for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < i; ++j) out[j * n + i] = out[i * n + j];
}

}  // namespace undirected
