#include "gssl.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "hash.hpp"
#include "pool.hpp"

namespace undirected {
namespace {

// Draw number t of element k: a hash of (seed, k, t), so that any thread can make it at any time.
struct Stream {
    std::uint64_t base;
    Stream(std::uint64_t seed, std::uint64_t k) : base(mix(seed ^ mix(k))) {}
    std::int64_t below(std::uint64_t t, std::int64_t n) const { return std::int64_t(double(mix(base + t) >> 11) * 0x1p-53 * double(n)); }
};

std::uint64_t hash_of(const std::int32_t* literals, std::int64_t n) {
    std::uint64_t h = std::uint64_t(n);
    for (std::int64_t k = 0; k < n; ++k) h += mix(std::uint64_t(literals[k]));
    return mix(h);
}

}  // namespace

Generated gssl_generate(std::int64_t n_initial, const std::int64_t* start, const std::int32_t* literals, std::int64_t n_generated,
                        std::int64_t threshold, std::uint64_t seed, int n_threads) {
    // 1. The family tree: parents and lengths need no literals, so one quick loop settles them for the whole list.
    std::vector<std::int32_t> length(n_initial), parent(n_initial, -1), depth(n_initial, 0), splittable;
    for (std::int64_t k = 0; k < n_initial; ++k) {
        length[k] = std::int32_t(start[k + 1] - start[k]);
        if (length[k] >= 3) splittable.push_back(std::int32_t(k));
    }
    std::int32_t max_depth = 0;
    if (!splittable.empty() && n_generated > n_initial) {
        for (auto* v : {&length, &parent, &depth}) v->reserve(n_generated);
        for (std::int64_t k = n_initial; k < n_generated; ++k) {
            const Stream stream(seed, std::uint64_t(k));
            const std::int32_t from = splittable[stream.below(0, std::int64_t(splittable.size()))];
            const std::int32_t dropped = 1 + std::int32_t(stream.below(1, length[from] - 2));
            parent.push_back(from);
            length.push_back(length[from] - dropped);
            depth.push_back(depth[from] + 1);
            max_depth = std::max(max_depth, depth.back());
            if (length.back() >= 3) splittable.push_back(std::int32_t(k));
        }
    }
    const std::int64_t n = std::int64_t(length.size());
    // 2. The literals, generation by generation.
    std::vector<std::int64_t> at(n + 1, 0);
    for (std::int64_t k = 0; k < n; ++k) at[k + 1] = at[k] + length[k];
    std::vector<std::int32_t> all(at[n]);
    std::copy(literals + start[0], literals + start[n_initial], all.begin());
    std::vector<std::uint64_t> hash(n);
    std::vector<std::int64_t> level_start(max_depth + 2, 0);
    for (std::int64_t k = 0; k < n; ++k) ++level_start[depth[k] + 1];
    std::partial_sum(level_start.begin(), level_start.end(), level_start.begin());
    std::vector<std::int32_t> by_level(n);
    {
        auto next = level_start;
        for (std::int64_t k = 0; k < n; ++k) by_level[next[depth[k]]++] = std::int32_t(k);
    }
    const std::int64_t step = 512;
    for (std::int32_t level = 0; level <= max_depth; ++level) {
        const std::int64_t from = level_start[level], to = level_start[level + 1];
        parallel_for((to - from + step - 1) / step, n_threads, [&](std::int64_t task) {
            for (std::int64_t i = from + task * step; i < std::min(to, from + (task + 1) * step); ++i) {
                const std::int64_t k = by_level[i];
                std::int32_t* out = all.data() + at[k];
                if (level > 0) {
                    const Stream stream(seed, std::uint64_t(k));
                    const std::int32_t* in = all.data() + at[parent[k]];
                    const std::int32_t l = length[parent[k]];
                    std::int32_t wanted = length[k], written = 0;
                    for (std::int32_t i_lit = 0; wanted > 0; ++i_lit)  // keep each with probability wanted / left
                        if (stream.below(2 + std::uint64_t(i_lit), l - i_lit) < wanted) {
                            out[written++] = in[i_lit];
                            --wanted;
                        }
                }
                hash[k] = hash_of(out, length[k]);
            }
        });
    }
    // 3. Equal conjunctions counted.
    std::size_t size = 64;
    while (size < 2 * std::size_t(n)) size *= 2;
    std::vector<std::int32_t> slot(size, -1), first;
    std::vector<std::int64_t> count;
    for (std::int64_t k = 0; k < n; ++k) {
        for (std::size_t place = hash[k] & (size - 1);; place = (place + 1) & (size - 1)) {
            const std::int32_t u = slot[place];
            if (u < 0) {
                slot[place] = std::int32_t(first.size());
                first.push_back(std::int32_t(k));
                count.push_back(1);
                break;
            }
            const std::int64_t other = first[u];
            if (hash[other] == hash[k] && length[other] == length[k] &&
                std::memcmp(all.data() + at[other], all.data() + at[k], sizeof(std::int32_t) * length[k]) == 0) {
                ++count[u];
                break;
            }
        }
    }
    Generated result;
    result.n_listed = n;
    result.n_unique = std::int64_t(first.size());
    result.start.push_back(0);
    for (std::size_t u = 0; u < first.size(); ++u) {
        if (count[u] <= threshold) continue;
        const std::int64_t k = first[u];
        result.literals.insert(result.literals.end(), all.begin() + at[k], all.begin() + at[k + 1]);
        result.start.push_back(std::int64_t(result.literals.size()));
        result.count.push_back(count[u]);
    }
    return result;
}

}  // namespace undirected
