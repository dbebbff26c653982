#include "strata.hpp"

namespace undirected {
namespace {

constexpr double NOTHING = 1e-9;  // of a count, after rounding

std::vector<std::int64_t> by_stratum(const std::int32_t* stratum, std::int64_t n_rows, std::int32_t n_strata,
                                     std::vector<std::int64_t>& start) {
    start.assign(std::size_t(n_strata) + 1, 0);
    for (std::int64_t r = 0; r < n_rows; ++r) ++start[stratum[r] + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    std::vector<std::int64_t> at(start.begin(), start.end() - 1), rows(n_rows);
    for (std::int64_t r = 0; r < n_rows; ++r) rows[at[stratum[r]]++] = r;
    return rows;
}

// Pearson's statistic of one table, `own.size()` cells a literal, and its degrees of freedom, less those of cells too rare to tell
// anything.
std::pair<double, std::int64_t> chi_square(const double* cells, std::int64_t n_literals, const std::vector<double>& own, double total,
                                           double least_expected, double enough_seen) {
    const auto k = std::int64_t(own.size());
    std::int64_t seen = 0, mute = 0;
    double chi = 0;
    for (const double* cell = cells; cell < cells + n_literals * k; cell += k) {
        const double sum = std::accumulate(cell, cell + k, 0.0);
        if (sum <= NOTHING) continue;
        ++seen;
        for (std::int64_t x = 0; x < k; ++x) {
            if (own[x] <= NOTHING) continue;
            const double expected = own[x] * sum / total;
            if (expected < least_expected && cell[x] < enough_seen)
                ++mute;
            else
                chi += (cell[x] - expected) * (cell[x] - expected) / expected;
        }
    }
    const std::int64_t own_states = std::count_if(own.begin(), own.end(), [](double n) { return n > NOTHING; });
    return {chi, (seen - 1) * (own_states - 1) - mute};
}

// The counts of a variable's common state, which are what its other literals leave of the stratum.
void count_common(const std::vector<double>& own, std::int64_t first, std::int64_t last, std::int64_t common, std::vector<double>& counts) {
    const auto k = std::int64_t(own.size());
    for (std::int64_t x = 0; x < k; ++x) {
        double rest = own[x];
        for (std::int64_t literal = first; literal < last; ++literal)
            if (literal != common) rest -= counts[literal * k + x];
        counts[common * k + x] = rest > NOTHING * std::max(1.0, own[x]) ? rest : 0.0;
    }
}

}  // namespace

std::int32_t combine(const std::int32_t* a, std::int32_t n_a, const std::int32_t* b, std::int32_t n_b, std::int64_t n_rows,
                     std::int32_t* out) {
    std::vector<std::int64_t> start;
    const std::vector<std::int64_t> rows = by_stratum(b, n_rows, n_b, start);
    std::vector<std::int32_t> bucket(n_a, -1), number(n_a);  // where each of the first numbers was last seen, and what it became there
    std::int32_t n = 0;
    for (std::int32_t k = 0; k < n_b; ++k)
        for (std::int64_t i = start[k]; i < start[k + 1]; ++i) {
            const std::int32_t own = a[rows[i]];
            if (bucket[own] != k) {
                bucket[own] = k;
                number[own] = n++;
            }
            out[rows[i]] = number[own];
        }
    return n;
}

Dependence Strata::test(const std::int32_t* stratum, std::int32_t n_strata, std::int32_t target, const std::int32_t* others,
                        std::int64_t n_others, double least_expected, double enough_seen) const {
    const CodeTable& t = rows_.table;
    const std::int32_t k = t.n_states[target];
    const std::int16_t* state = t.codes + target * t.n_rows;
    Dependence out{std::vector<double>(n_others, 0.0), std::vector<std::int64_t>(n_others, 0)};
    std::vector<std::int64_t> place(t.n_variables, -1);  // among the others
    for (std::int64_t i = 0; i < n_others; ++i) place[others[i]] = i;
    const bool by_column = n_others * t.n_rows < std::int64_t(rows_.literals.size());
    std::vector<std::int64_t> start;
    const std::vector<std::int64_t> rows = by_stratum(stratum, t.n_rows, n_strata, start);
    // By literal and state of the target; of the stratum at hand.
    std::vector<double> counts(std::size_t(rows_.numbers.count()) * k, 0.0), own(k);
    std::vector<char> touched(t.n_variables, 0);
    std::vector<std::int32_t> variables;
    for (std::int32_t s = 0; s < n_strata; ++s) {
        std::fill(own.begin(), own.end(), 0.0);
        for (std::int64_t i = start[s]; i < start[s + 1]; ++i) own[state[rows[i]]] += t.row_weight[rows[i]];
        if (std::count_if(own.begin(), own.end(), [&](double n) { return n >= 2 * least_expected; }) < 2) continue;
        const double total = std::accumulate(own.begin(), own.end(), 0.0);
        const auto add = [&](std::int64_t r, std::int32_t literal, std::int32_t v) {
            counts[std::int64_t(literal) * k + state[r]] += t.row_weight[r];
            if (!touched[v]) {
                touched[v] = 1;
                variables.push_back(v);
            }
        };
        for (std::int64_t i = start[s]; i < start[s + 1]; ++i) {
            const std::int64_t r = rows[i];
            if (by_column) {
                for (std::int64_t o = 0; o < n_others; ++o) {
                    const std::int32_t v = others[o], code = t.codes[v * t.n_rows + r];
                    if (code != rows_.common[v]) add(r, rows_.numbers.number(v, code), v);
                }
                continue;
            }
            for (std::int64_t j = rows_.start[r]; j < rows_.start[r + 1]; ++j) {
                const std::int32_t literal = rows_.literals[j], v = rows_.numbers.variable(literal);
                if (place[v] >= 0) add(r, literal, v);
            }
        }
        // A variable that has its common state in all rows of a stratum has no freedom there.
        for (const std::int32_t v : variables) {
            const std::int64_t first = rows_.numbers.first(v), last = rows_.numbers.end(v), common = first + rows_.common[v];
            count_common(own, first, last, common, counts);
            const auto [chi, free] = chi_square(counts.data() + first * k, last - first, own, total, least_expected, enough_seen);
            if (free > 0) {
                out.chi[place[v]] += chi;
                out.free[place[v]] += free;
            }
            std::fill(counts.begin() + first * k, counts.begin() + last * k, 0.0);
            touched[v] = 0;
        }
        variables.clear();
    }
    return out;
}

}  // namespace undirected
