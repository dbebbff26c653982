#pragma once
#include <cstdint>
#include <vector>

namespace undirected {

struct Generated {
    std::vector<std::int64_t> start, count;
    std::vector<std::int32_t> literals;
    std::int64_t n_listed = 0, n_unique = 0;
};

// Randomised feature generation (GSSL): starting from the given conjunctions, draws a parent with at least three literals
// uniformly from the list so far, drops some of its literals, appends the result, until the list holds n_generated. Returns
// the distinct conjunctions that occur more than `threshold` times, in order of first appearance.
Generated gssl_generate(std::int64_t n_initial, const std::int64_t* start, const std::int32_t* literals, std::int64_t n_generated,
                        std::int64_t threshold, std::uint64_t seed, int n_threads);

}  // namespace undirected
