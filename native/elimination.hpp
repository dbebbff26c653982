// Exact answers under one row of evidence: what it leaves of a model, and the plan by which that is summed out. The plan is made once,
// since looking for a good order can take longer than the work itself, and then serves every question under the same evidence.
#pragma once
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace undirected {

class PlannedElimination {
public:
    // The model must outlive this. Expectations need `want_decided`.
    PlannedElimination(const Model& model, const std::uint8_t* evidence, double max_cells, int tries, std::uint64_t seed,
                       bool want_decided = false);

    const std::vector<Component>& parts() const { return plan_.parts; }
    std::vector<std::int32_t> part_of_variables() const;  // by variable of the model; -1: its state is known

    // In all of these a part is left out where it is not solvable or has more than `max_cells` cells.
    // Marginals by literal, NaN where a part is left out; returns the log partition function, NaN if any is.
    double solve(double max_cells, double* marginals) const;
    // The best state of each variable, -1 where its part is left out; returns the score, NaN if any is.
    double maximise(double max_cells, std::int16_t* states) const;
    // Exact samples, a row each, -1 where a part is left out.
    void draw(double max_cells, std::uint64_t seed, std::int64_t n_samples, int n_threads, std::int16_t* states) const;
    // The probability of each feature, NaN where its part is left out.
    void expectations(double max_cells, double* out) const;

private:
    void put(std::int16_t* states, const Component& part, const std::int32_t* found) const;
    bool is_done(const Component& part, double max_cells) const { return part.solvable() && part.cells <= max_cells; }

    const Model& model_;
    std::vector<std::uint8_t> evidence_;
    std::vector<std::int16_t> known_;  // by variable its state, -1 where it is open
    Reduced left_;
    Elimination plan_;
};

}  // namespace undirected
