// MC-SAT: slice sampling over logical constraints, for hard and nearly hard features.
#pragma once
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace undirected {

struct SatOptions {
    std::int64_t burn_in = 100, samples = 1000;
    double max_cells = 4096;  // components of a slice up to this size are sampled exactly
    double walk = 0.5;        // SampleSAT: share of WalkSAT steps
    double temperature = 0.5;
    std::int64_t max_steps = 10000;
    double hard = 1e4;  // weights of this size count as constraints
    std::uint64_t seed = 0;
    std::vector<std::int32_t> first;  // the state to start from; empty for one that is searched for
};

struct SatSums {
    std::vector<double> sums;         // how often each literal held, by literal
    std::vector<std::int16_t> state;  // the last state
    std::int64_t failed = 0;          // slices in which no other state was found
    bool feasible = true;             // a state that meets all hard features was found
};

// One chain over all variables of the model, from the state given or from one that meets all hard features.
SatSums mcsat(const Model& model, const SatOptions& options);

}  // namespace undirected
