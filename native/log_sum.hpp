#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace undirected {

// The logarithm of the sum of the exponentials of n values (one or more) that stand `stride` apart.
inline double log_sum(const double* x, std::int64_t n, std::int64_t stride = 1) {
    double high = x[0], sum = 0;
    for (std::int64_t k = 1; k < n; ++k) high = std::max(high, x[k * stride]);
    for (std::int64_t k = 0; k < n; ++k) sum += std::exp(x[k * stride] - high);
    return high + std::log(sum);
}

}  // namespace undirected
