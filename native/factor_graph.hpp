// A network as factors: tables over few variables, and conjunctions that are too long for a table.
#pragma once
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace undirected {

// Either a table of logarithms over a few variables, or one long conjunction.
struct Factor {
    std::vector<std::int32_t> scope;
    std::vector<double> table;                     // last variable fastest; empty for a conjunction
    double weight = 0;                             // of the conjunction
    std::vector<std::vector<std::uint8_t>> holds;  // of the conjunction: by variable and state
    double share = 1;                              // of the trees that hold it
    std::vector<std::int64_t> message;             // where its messages to its variables are
};

struct FactorGraph {
    const Model& model;
    std::vector<double> unary;  // by literal
    std::vector<Factor> factors;
    std::vector<std::vector<std::int32_t>> of;  // factors of a variable

    explicit FactorGraph(const Model& m);

    // Shares of factors in random forests that together hold every factor.
    void share_out(std::uint64_t seed);

    // Calls visit(cell, states) for every cell of a factor's table.
    template <class F>
    void each_cell(const Factor& f, F&& visit) const {
        std::vector<std::int32_t> at(f.scope.size(), 0);
        for (std::int64_t cell = 0;; ++cell) {
            visit(cell, at);
            std::size_t d = at.size();
            while (d > 0 && ++at[d - 1] == model.n_states[f.scope[d - 1]]) at[--d] = 0;
            if (d == 0) return;
        }
    }

private:
    bool holds_at(std::int64_t j, std::int32_t v, std::int32_t s) const;
    std::int32_t enter(const std::vector<std::int32_t>& scope);
    void conjunction(std::int64_t j, const std::vector<std::int32_t>& scope);
    void add(Factor& f, std::int64_t j);
};

}  // namespace undirected
