// What the parts of the pseudo-likelihood's tables share while they are built.
#pragma once
#include "pll_tables.hpp"

namespace undirected {

// Where the weight of a feature goes.
struct PseudoLikelihoodTables::Place {
    std::int32_t block, context, feature;
    std::uint8_t lane, minus;
};

}  // namespace undirected
