// Small dense matrices in single precision, compiled once per instruction set like pll_kernels.cpp. A well-kept BLAS would
// do, but its threads fight with ours, and numpy inverts in double precision; blocks of a few hundred are ours to gain.
#include "plan.hpp"
#include "simd.hpp"

namespace undirected {
namespace KERNEL_NAMESPACE {
namespace {

typedef Real<float> Eight;

inline float sum(Eight v) {
    v += shuffle<4, 5, 6, 7, 0, 1, 2, 3>(v, v);
    v += shuffle<2, 3, 0, 1, 6, 7, 4, 5>(v, v);
    v += shuffle<1, 0, 3, 2, 5, 4, 7, 6>(v, v);
    return v[0];
}

// out[i + a][j + b] += factor * (row i + a) . (row j + b), over the first `width` entries.
template <int A, int B>
inline void add_products(const float* rows, std::int64_t stride, std::int64_t i, std::int64_t j, std::int64_t width, float factor,
                         float* out, std::int64_t out_stride) {
    Eight sums[A][B] = {};
    for (std::int64_t k = 0; k < width; k += 8) {
        Eight right[B];
        for (int b = 0; b < B; ++b) right[b] = load<Eight>(rows + (j + b) * stride + k);
        for (int a = 0; a < A; ++a) {
            const Eight left = load<Eight>(rows + (i + a) * stride + k);
            for (int b = 0; b < B; ++b) sums[a][b] += left * right[b];
        }
    }
    for (int a = 0; a < A; ++a)
        for (int b = 0; b < B; ++b) out[(i + a) * out_stride + j + b] += factor * sum(sums[a][b]);
}

// The same for all rows from `from` on against the rows [from, to).
inline void add_panel(const float* rows, std::int64_t stride, std::int64_t from, std::int64_t to, std::int64_t n, std::int64_t width,
                      float factor, float* out, std::int64_t out_stride) {
    std::int64_t i = from;
    for (; i + 6 <= n; i += 6) {
        std::int64_t j = from;
        for (; j + 2 <= to; j += 2) add_products<6, 2>(rows, stride, i, j, width, factor, out, out_stride);
        for (; j < to; ++j) add_products<6, 1>(rows, stride, i, j, width, factor, out, out_stride);
    }
    for (; i < n; ++i)
        for (std::int64_t j = from; j < to; ++j) add_products<1, 1>(rows, stride, i, j, width, factor, out, out_stride);
}

}  // namespace

// Adds the products of all pairs of rows (width a multiple of eight) to the lower triangle of a square matrix; entries
// above the diagonal may be touched. A run of rows on the right stays in the cache while those on the left pass.
void add_gram(const float* rows, std::int64_t n, std::int64_t width, float* out) {
    constexpr std::int64_t run = 48;
    for (std::int64_t from = 0; from < n; from += run) {
        const std::int64_t to = from + run < n ? from + run : n;
        add_panel(rows, width, from, to, n, width, 1.0f, out, n);
    }
}

// `inverse`: the inverse of the Cholesky factor of `a` (lower triangle, overwritten); n a multiple of TILE. Pivots are kept
// away from zero, so that the result is always usable.
void inverse_factor(float* a, std::int64_t n, float* inverse) {
    for (std::int64_t k = 0; k < n * n; ++k) inverse[k] = 0;
    float pivot[TILE];
    alignas(32) float across[TILE][TILE];  // the diagonal block, transposed, zero up to its diagonal
    for (std::int64_t j0 = 0; j0 < n; j0 += TILE) {
        for (int k = 0; k < TILE; ++k) pivot[k] = 1e-5f * a[(j0 + k) * n + j0 + k];
        if (j0 > 0) add_panel(a, n, j0, j0 + TILE, n, j0, -1.0f, a, n);
        for (int j = 0; j < TILE; ++j) {
            float* row = a + (j0 + j) * n + j0;
            for (int k = 0; k < j; ++k) {
                float s = row[k];
                for (int m = 0; m < k; ++m) s -= row[m] * a[(j0 + k) * n + j0 + m];
                row[k] = s * inverse[(j0 + k) * n + j0 + k];
            }
            float d = row[j];
            for (int k = 0; k < j; ++k) d -= row[k] * row[k];
            row[j] = __builtin_sqrtf(d > pivot[j] ? d : pivot[j]);
            inverse[(j0 + j) * n + j0 + j] = 1 / row[j];
            for (int k = 0; k < TILE; ++k) across[k][j] = k < j ? row[k] : 0;
        }
        for (std::int64_t i = j0 + TILE; i < n; ++i) {
            float* row = a + i * n + j0;
            Eight x0 = load<Eight>(row), x1 = load<Eight>(row + 8);
            for (int k = 0; k < TILE; ++k) {
                const float x = (k < 8 ? x0[k & 7] : x1[k & 7]) * inverse[(j0 + k) * n + j0 + k];
                row[k] = x;
                x0 -= x * load<Eight>(across[k]);
                x1 -= x * load<Eight>(across[k] + 8);
            }
        }
    }
    for (std::int64_t i0 = 0; i0 < n; i0 += TILE) {
        for (std::int64_t c = 0; c < i0; c += TILE)
            for (std::int64_t i = i0; i < i0 + TILE; i += 4) {
                Eight sums[4][2] = {};
                for (std::int64_t k = c; k < i0; ++k) {
                    const Eight w0 = load<Eight>(inverse + k * n + c), w1 = load<Eight>(inverse + k * n + c + 8);
                    for (int m = 0; m < 4; ++m) {
                        const float l = a[(i + m) * n + k];
                        sums[m][0] += l * w0;
                        sums[m][1] += l * w1;
                    }
                }
                for (int m = 0; m < 4; ++m) {
                    store(-sums[m][0], inverse + (i + m) * n + c);
                    store(-sums[m][1], inverse + (i + m) * n + c + 8);
                }
            }
        for (std::int64_t i = i0; i < i0 + TILE; ++i) {
            float* row = inverse + i * n;
            const float scale = row[i];
            row[i] = 0;
            for (std::int64_t k = i0; k < i; ++k) {
                const float l = a[i * n + k];
                for (std::int64_t c = 0; c <= k; c += 8) store(load<Eight>(row + c) - l * load<Eight>(inverse + k * n + c), row + c);
            }
            for (std::int64_t c = 0; c <= i; c += 8) store(load<Eight>(row + c) * scale, row + c);
            row[i] = scale;
        }
    }
}

// The inverse that the factor stands for, times two vectors: factor' (factor x). Rows are packed, padded to eight; so are x, y.
void times_factor(const float* factor, std::int64_t n, const float* x, const float* y, float* out_x, float* out_y) {
    for (std::int64_t k = 0; k < n; ++k) out_x[k] = out_y[k] = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t length = (i / 8 + 1) * 8;
        Eight sx{}, sy{};
        for (std::int64_t k = 0; k < length; k += 8) {
            const Eight f = load<Eight>(factor + k);
            sx += f * load<Eight>(x + k);
            sy += f * load<Eight>(y + k);
        }
        const float ax = sum(sx), ay = sum(sy);
        for (std::int64_t k = 0; k < length; k += 8) {
            const Eight f = load<Eight>(factor + k);
            store(load<Eight>(out_x + k) + ax * f, out_x + k);
            store(load<Eight>(out_y + k) + ay * f, out_y + k);
        }
        factor += length;
    }
}

// Coordinate descent for  slope . d + d' H d / 2 + sum penalty |at + d|: changes `at` and `slope` (which becomes that of the
// smooth part) until the moves are small against the first ones. The diagonal is raised a little where columns are alike.
void descend(const float* hessian, std::int64_t n, const float* penalty, float* slope, float* at) {
    float largest = 0;
    for (std::int64_t i = 0; i < n; ++i) largest = hessian[i * n + i] > largest ? hessian[i * n + i] : largest;
    float first = 0;
    for (int sweep = 0; sweep < 100; ++sweep) {
        float change = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            const float* row = hessian + i * n;
            const float h = row[i] * (1 + 1e-5f) + 1e-6f * largest + 1e-12f, z = at[i] - slope[i] / h;
            const float shrunk = __builtin_fabsf(z) - penalty[i] / h, to = shrunk > 0 ? __builtin_copysignf(shrunk, z) : 0.0f;
            const float move = to - at[i];
            if (move == 0) continue;
            at[i] = to;
            for (std::int64_t j = 0; j < n; ++j) slope[j] += move * row[j];
            slope[i] += move * (h - row[i]);
            const float size = h * move * move;
            if (size > change) change = size;
        }
        if (sweep == 0) first = change;
        if (change <= 1e-6f * first) break;
    }
}

}  // namespace KERNEL_NAMESPACE
}  // namespace undirected
