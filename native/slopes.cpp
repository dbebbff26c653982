#include "slopes.hpp"

#include <bit>
#include <vector>

#include "literals.hpp"
#include "pool.hpp"

namespace undirected {
namespace {

constexpr std::int64_t FEATURES_A_TASK = 256;

template <class Visit>
void for_rows(const std::uint64_t* bits, std::int64_t n_words, const Visit& visit) {
    for (std::int64_t k = 0; k < n_words; ++k)
        for (std::uint64_t word = bits[k]; word; word &= word - 1) visit(k * 64 + std::countr_zero(word));
}

std::vector<std::uint64_t> mark_everywhere(const Table& table) {
    std::vector<std::uint64_t> out(table.n_words, 0);
    for (std::int64_t r = 0; r < table.n_rows; ++r) out[r / 64] |= std::uint64_t(1) << (r % 64);
    return out;
}

// Leaves the rows in which the literals [from, to) hold, too.
void narrow(const Table& table, const LiteralNumbers& numbers, const std::int32_t* from, const std::int32_t* to, std::uint64_t* rows) {
    for (const std::int32_t* x = from; x != to; ++x) {
        const std::uint64_t* column = table.columns + std::int64_t(numbers.positive(*x)) * table.n_words;
        const std::uint64_t flip = numbers.negated(*x) ? ~std::uint64_t(0) : 0;
        for (std::int64_t k = 0; k < table.n_words; ++k) rows[k] &= column[k] ^ flip;
    }
}

// Of one feature after the other.
class Slopes {
public:
    Slopes(const Table& table, const LiteralNumbers& numbers, const double* residual)
        : table_(table),
          numbers_(numbers),
          residual_(residual),
          n_words_(table.n_words),
          everywhere_(mark_everywhere(table)),
          by_row_(table.n_rows, 0.0) {}

    void find(const std::int32_t* literals, std::int64_t n, double& slope, double& square) {
        split(literals, n);
        // Before each part, the rows in which all literals up to there hold.
        before_.resize(parts_.size() * n_words_);
        for (std::size_t p = 0; p < parts_.size(); ++p) {
            std::uint64_t* next = before_.data() + p * n_words_;
            if (p == 0) {
                std::copy(everywhere_.begin(), everywhere_.end(), next);
            } else {
                std::copy_n(next - n_words_, n_words_, next);
                narrow(table_, numbers_, parts_[p - 1].from, parts_[p - 1].to, next);
            }
        }
        after_ = everywhere_;
        context_.resize(n_words_);
        touched_.assign(n_words_, 0);
        for (std::size_t p = parts_.size(); p-- > 0;) {
            const std::uint64_t* earlier = before_.data() + p * n_words_;
            for (std::int64_t k = 0; k < n_words_; ++k) {
                context_[k] = earlier[k] & after_[k];
                touched_[k] |= context_[k];
            }
            for (const std::int32_t* x = parts_[p].from; x != parts_[p].to; ++x) {
                const double* own = residual_ + std::int64_t(numbers_.positive(*x)) * table_.n_rows;
                const double sign = numbers_.negated(*x) ? -1 : 1;
                for_rows(context_.data(), n_words_, [&](std::int64_t r) { by_row_[r] += sign * own[r]; });
            }
            narrow(table_, numbers_, parts_[p].from, parts_[p].to, after_.data());
        }
        slope = square = 0;
        for_rows(touched_.data(), n_words_, [&](std::int64_t r) {
            slope += by_row_[r];
            square += by_row_[r] * by_row_[r] / table_.row_weight[r];
            by_row_[r] = 0;
        });
    }

private:
    struct Part {
        const std::int32_t *from, *to;  // literals of one variable
    };

    void split(const std::int32_t* literals, std::int64_t n) {
        parts_.clear();
        for (std::int64_t k = 0; k < n; ++k)
            if (k > 0 && numbers_.variable(literals[k]) == numbers_.variable(literals[k - 1]))
                ++parts_.back().to;
            else
                parts_.push_back({literals + k, literals + k + 1});
    }

    const Table& table_;
    const LiteralNumbers& numbers_;
    const double* residual_;
    const std::int64_t n_words_;
    std::vector<std::uint64_t> everywhere_, before_, after_, context_, touched_;
    std::vector<double> by_row_;  // what each row adds to the slope; zero between two features
    std::vector<Part> parts_;
};

}  // namespace

void find_slopes(const Table& table, const Features& features, const double* residual, double* slope, double* square, int n_threads) {
    const LiteralNumbers numbers(table.n_states, table.n_variables);
    parallel_for((features.n + FEATURES_A_TASK - 1) / FEATURES_A_TASK, n_threads, [&](std::int64_t task) {
        Slopes slopes(table, numbers, residual);
        for (std::int64_t j = task * FEATURES_A_TASK; j < std::min(features.n, (task + 1) * FEATURES_A_TASK); ++j)
            slopes.find(features.literals + features.start[j], features.start[j + 1] - features.start[j], slope[j], square[j]);
    });
}

void find_support(const Table& table, const Features& features, double* support, int n_threads) {
    const LiteralNumbers numbers(table.n_states, table.n_variables);
    const std::vector<std::uint64_t> everywhere = mark_everywhere(table);
    parallel_for((features.n + FEATURES_A_TASK - 1) / FEATURES_A_TASK, n_threads, [&](std::int64_t task) {
        std::vector<std::uint64_t> rows;
        for (std::int64_t j = task * FEATURES_A_TASK; j < std::min(features.n, (task + 1) * FEATURES_A_TASK); ++j) {
            rows = everywhere;
            narrow(table, numbers, features.literals + features.start[j], features.literals + features.start[j + 1], rows.data());
            double sum = 0;
            for_rows(rows.data(), table.n_words, [&](std::int64_t r) { sum += table.row_weight[r]; });
            support[j] = sum;
        }
    });
}

}  // namespace undirected
