#pragma once
#include <cstdint>

namespace undirected {

// Sums of small square matrices acting on overlapping parts of two vectors of length n:
// out = sum over blocks b of  scatter_b(matrix_b * gather_b(vector)). Blocks are laid one after another.
void times_blocks(std::int64_t n, std::int64_t n_blocks, const std::int64_t* start, const std::int32_t* members, const float* matrices,
                  const float* x, const float* y, float* out_x, float* out_y, int n_threads);

}  // namespace undirected
