// Approximate answers without sampling: belief propagation (sum and maximum, plain or tree-reweighted) and mean field.
#pragma once
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace undirected {

struct Approximation {
    std::vector<double> marginals;  // by literal
    double log_z = 0;               // Bethe's estimate, the tree-reweighted upper bound, or mean field's lower bound
    double residual = 0;            // the largest change still waiting
    std::int64_t updates = 0;
    bool converged = false;
};

struct MessageOptions {
    bool maximum = false, reweighted = false;
    double damping = 0, tol = 1e-8;
    std::int64_t max_rounds = 1000;  // updates per factor
    std::uint64_t seed = 0;
};

Approximation propagate(const Model& model, const MessageOptions& options);
Approximation mean_field(const Model& model, double tol, std::int64_t max_rounds, int tries, std::uint64_t seed);

}  // namespace undirected
