// Chi-square tests of one variable against others, within strata of the rows.
#pragma once
#include <cstdint>
#include <vector>

#include "uncommon.hpp"

namespace undirected {

struct Dependence {
    std::vector<double> chi;         // of each of the others
    std::vector<std::int64_t> free;  // degrees of freedom
};

// Rows with the same pair of numbers get the same number, from 0 on. Returns how many there are.
std::int32_t combine(const std::int32_t* a, std::int32_t n_a, const std::int32_t* b, std::int32_t n_b, std::int64_t n_rows,
                     std::int32_t* out);

class Strata {
public:
    explicit Strata(const CodeTable& table) : rows_(table) {}
    const CodeTable& table() const { return rows_.table; }

    // Strata in which fewer than two states of the target have twice least_expected rows are passed over. Degrees of freedom count the
    // states seen in each stratum; cells with fewer rows expected than least_expected and fewer seen than enough_seen say nothing and cost
    // one.
    Dependence test(const std::int32_t* stratum, std::int32_t n_strata, std::int32_t target, const std::int32_t* others,
                    std::int64_t n_others, double least_expected, double enough_seen) const;

private:
    Uncommon rows_;
};

}  // namespace undirected
