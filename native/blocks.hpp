// One small matrix per block of features, kept as the inverse of its Cholesky factor: rows packed one after another, each
// padded to eight.
#pragma once
#include <cstdint>
#include <vector>

#include "pll_tables.hpp"

namespace undirected {

// Scales an estimated Hessian so that its diagonal, the ridge apart, is the true one; the diagonal is then raised by 1e-4 of
// itself. Features that the sample hardly saw keep their diagonal alone.
void fit_diagonal(float* matrix, std::int64_t n, const double* diagonal, double ridge);

// Block b: the features members[start[b]..start[b + 1]), the term of variables[b], on the tables' sample.
std::vector<float> block_factors(const PseudoLikelihoodTables& tables, std::int64_t n_blocks, const std::int32_t* variables,
                                 const std::int64_t* start, const std::int32_t* members, const double* diagonal, double ridge,
                                 int n_threads);

// For each block the step d that minimises, with its term's Hessian on the tables' sample, the quadratic model with an L1
// penalty:  gradient . d + d' H d / 2 + sum penalty |weight + d|,  by coordinate descent; [start[n_blocks]].
std::vector<double> block_steps(const PseudoLikelihoodTables& tables, std::int64_t n_blocks, const std::int32_t* variables,
                                const std::int64_t* start, const std::int32_t* members, const double* gradient, const double* weights,
                                const double* penalty, int n_threads);

std::int64_t factor_size(std::int64_t n);

// Two vectors of length n: out = sum over blocks of scatter(inverse matrix * gather(vector)).
void times_blocks(std::int64_t n, std::int64_t n_blocks, const std::int64_t* start, const std::int32_t* members, const float* factors,
                  const float* x, const float* y, float* out_x, float* out_y, int n_threads);

}  // namespace undirected
