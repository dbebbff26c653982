#include "blocks.hpp"

#include <algorithm>
#include <cmath>

#include "dispatch.hpp"
#include "plan.hpp"
#include "pool.hpp"

namespace undirected {
namespace {

std::int64_t padded(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

std::vector<std::int64_t> offsets(std::int64_t n_blocks, const std::int64_t* start) {
    std::vector<std::int64_t> out(n_blocks + 1, 0);
    for (std::int64_t b = 0; b < n_blocks; ++b) out[b + 1] = out[b] + factor_size(start[b + 1] - start[b]);
    return out;
}

}  // namespace

std::int64_t factor_size(std::int64_t n) {
    const std::int64_t whole = n / 8, rest = n % 8;
    return 64 * (whole * (whole + 1) / 2) + rest * 8 * (whole + 1);
}

void fit_diagonal(float* matrix, std::int64_t n, const double* diagonal, double ridge) {
    std::vector<float> scale(n);
    for (std::int64_t i = 0; i < n; ++i) {
        const float own = matrix[i * n + i], full = float(diagonal[i]);
        scale[i] = own > 1e-3f * full ? std::sqrt(std::max(full - float(ridge), 0.0f) / own) : 0.0f;
    }
    for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < n; ++j) matrix[i * n + j] *= scale[i] * scale[j];
        matrix[i * n + i] = float(diagonal[i]) * (1 + 1e-4f);
    }
}

std::vector<float> block_factors(const PseudoLikelihoodTables& tables, std::int64_t n_blocks, const std::int32_t* variables,
                                 const std::int64_t* start, const std::int32_t* members, const double* diagonal, double ridge,
                                 int n_threads) {
    const auto offset = offsets(n_blocks, start);
    std::vector<float> out(offset[n_blocks]);
    parallel_for(n_blocks, n_threads, [&](std::int64_t b) {
        const std::int64_t n = start[b + 1] - start[b], side = padded(n, TILE);
        const std::int32_t* mine = members + start[b];
        std::vector<float> gram(n * n), square(side * side, 0.0f), inverse(side * side);
        std::vector<double> wanted(n);
        for (std::int64_t i = 0; i < n; ++i) wanted[i] = diagonal[mine[i]];
        tables.gram(variables[b], mine, n, gram.data());
        fit_diagonal(gram.data(), n, wanted.data(), ridge);
        for (std::int64_t i = 0; i < n; ++i) std::copy_n(gram.data() + i * n, i + 1, square.data() + i * side);
        for (std::int64_t i = n; i < side; ++i) square[i * side + i] = 1;
        UNDIRECTED_DISPATCH(inverse_factor(square.data(), side, inverse.data()));
        float* to = out.data() + offset[b];
        for (std::int64_t i = 0; i < n; ++i) to = std::copy_n(inverse.data() + i * side, padded(i + 1, 8), to);
    });
    return out;
}

std::vector<double> block_steps(const PseudoLikelihoodTables& tables, std::int64_t n_blocks, const std::int32_t* variables,
                                const std::int64_t* start, const std::int32_t* members, const double* gradient, const double* weights,
                                const double* penalty, int n_threads) {
    std::vector<double> out(start[n_blocks], 0.0);
    parallel_for(n_blocks, n_threads, [&](std::int64_t b) {
        const std::int64_t n = start[b + 1] - start[b];
        const std::int32_t* mine = members + start[b];
        std::vector<float> hessian(n * n);
        tables.gram(variables[b], mine, n, hessian.data());
        std::vector<float> allowed(n), slope(n), at(n);
        for (std::int64_t i = 0; i < n; ++i) {
            allowed[i] = float(penalty[mine[i]]);
            slope[i] = float(gradient[mine[i]]);
            at[i] = float(weights[mine[i]]);
        }
        UNDIRECTED_DISPATCH(descend(hessian.data(), n, allowed.data(), slope.data(), at.data()));
        // Exactly zero where the descent ended at zero, and no step where it did not move.
        for (std::int64_t i = 0; i < n; ++i) {
            const double old = weights[mine[i]];
            out[start[b] + i] = at[i] == 0 ? -old : at[i] == float(old) ? 0.0 : double(at[i]) - old;
        }
    });
    return out;
}

void times_blocks(std::int64_t n, std::int64_t n_blocks, const std::int64_t* start, const std::int32_t* members, const float* factors,
                  const float* x, const float* y, float* out_x, float* out_y, int n_threads) {
    const auto offset = offsets(n_blocks, start);
    std::vector<float> parts(2 * start[n_blocks]);
    float *part_x = parts.data(), *part_y = part_x + start[n_blocks];
    parallel_for(n_blocks, n_threads, [&](std::int64_t b) {
        static thread_local std::vector<float> buffer;
        const std::int64_t from = start[b], size = start[b + 1] - from, side = padded(size, 8);
        buffer.assign(4 * side, 0.0f);
        float* in = buffer.data();
        for (std::int64_t k = 0; k < size; ++k) {
            in[k] = x[members[from + k]];
            in[side + k] = y[members[from + k]];
        }
        UNDIRECTED_DISPATCH(times_factor(factors + offset[b], size, in, in + side, in + 2 * side, in + 3 * side));
        std::copy_n(in + 2 * side, size, part_x + from);
        std::copy_n(in + 3 * side, size, part_y + from);
    });
    std::fill_n(out_x, n, 0.0f);
    std::fill_n(out_y, n, 0.0f);
    for (std::int64_t k = 0; k < start[n_blocks]; ++k) {
        out_x[members[k]] += part_x[k];
        out_y[members[k]] += part_y[k];
    }
}

}  // namespace undirected
