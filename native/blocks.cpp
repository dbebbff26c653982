#include "blocks.hpp"

#include <algorithm>
#include <vector>

#include "plan.hpp"
#include "pool.hpp"
#include "problem.hpp"

namespace undirected {

void times_blocks(std::int64_t n, std::int64_t n_blocks, const std::int64_t* start, const std::int32_t* members, const float* matrices,
                  const float* x, const float* y, float* out_x, float* out_y, int n_threads) {
    std::vector<std::int64_t> offset(n_blocks + 1, 0);
    for (std::int64_t b = 0; b < n_blocks; ++b) offset[b + 1] = offset[b] + (start[b + 1] - start[b]) * (start[b + 1] - start[b]);
    std::vector<float> parts(4 * start[n_blocks]);
    float *in_x = parts.data(), *in_y = in_x + start[n_blocks], *part_x = in_y + start[n_blocks], *part_y = part_x + start[n_blocks];
    parallel_for(n_blocks, n_threads, [&](std::int64_t b) {
        const std::int64_t from = start[b], size = start[b + 1] - from;
        for (std::int64_t k = from; k < from + size; ++k) {
            in_x[k] = x[members[k]];
            in_y[k] = y[members[k]];
        }
#if defined(HAVE_AVX2_KERNELS)
        (has_avx2() ? avx2::times_rows : baseline::times_rows)
#else
        baseline::times_rows
#endif
            (matrices + offset[b], size, in_x + from, in_y + from, part_x + from, part_y + from);
    });
    std::fill_n(out_x, n, 0.0f);
    std::fill_n(out_y, n, 0.0f);
    for (std::int64_t k = 0; k < start[n_blocks]; ++k) {
        out_x[members[k]] += part_x[k];
        out_y[members[k]] += part_y[k];
    }
}

}  // namespace undirected
