#include "gssl.hpp"

#include <algorithm>
#include <numeric>

#include "hash.hpp"
#include "pool.hpp"

namespace undirected {
namespace {

std::uint64_t hash_of(const std::int32_t* literals, std::int64_t n) {
    std::uint64_t h = std::uint64_t(n);
    for (std::int64_t k = 0; k < n; ++k) h += mix(std::uint64_t(literals[k]));
    return mix(h);
}

// Parents and lengths of all conjunctions, those given first. They need no literals, so that one quick loop settles them.
struct Family {
    std::vector<std::int32_t> length, parent, depth;
    std::int32_t max_depth = 0;

    std::int64_t size() const { return std::int64_t(length.size()); }
};

Family draw_family(std::int64_t n_initial, const std::int64_t* start, std::int64_t n_generated, std::uint64_t seed) {
    Family out;
    out.length.resize(n_initial);
    out.parent.assign(n_initial, -1);
    out.depth.assign(n_initial, 0);
    std::vector<std::int32_t> splittable;
    for (std::int64_t k = 0; k < n_initial; ++k) {
        out.length[k] = std::int32_t(start[k + 1] - start[k]);
        if (out.length[k] >= 3) splittable.push_back(std::int32_t(k));
    }
    if (splittable.empty() || n_generated <= n_initial) return out;
    for (auto* v : {&out.length, &out.parent, &out.depth}) v->reserve(n_generated);
    for (std::int64_t k = n_initial; k < n_generated; ++k) {
        const RandomStream stream(seed, std::uint64_t(k));
        const std::int32_t from = splittable[stream.below(0, std::int64_t(splittable.size()))];
        const std::int32_t dropped = 1 + std::int32_t(stream.below(1, out.length[from] - 2));
        out.parent.push_back(from);
        out.length.push_back(out.length[from] - dropped);
        out.depth.push_back(out.depth[from] + 1);
        out.max_depth = std::max(out.max_depth, out.depth.back());
        if (out.length.back() >= 3) splittable.push_back(std::int32_t(k));
    }
    return out;
}

// The literals of all conjunctions and their hashes.
struct Listed {
    std::vector<std::int64_t> start;
    std::vector<std::int32_t> literals;
    std::vector<std::uint64_t> hash;

    // The parent's literals, each kept with probability wanted / left.
    void thin_out(const Family& family, std::int64_t k, std::uint64_t seed) {
        const RandomStream stream(seed, std::uint64_t(k));
        const std::int32_t* in = literals.data() + start[family.parent[k]];
        std::int32_t* out = literals.data() + start[k];
        const std::int32_t length = family.length[family.parent[k]];
        std::int32_t wanted = family.length[k];
        for (std::int32_t i = 0; wanted > 0; ++i)
            if (stream.below(2 + std::uint64_t(i), length - i) < wanted) {
                *out++ = in[i];
                --wanted;
            }
    }
};

// Generation by generation, since children take from their parents.
Listed list_literals(const Family& family, std::int64_t n_given, const std::int32_t* given, std::uint64_t seed, int n_threads) {
    const std::int64_t n = family.size();
    Listed out;
    out.start.assign(n + 1, 0);
    for (std::int64_t k = 0; k < n; ++k) out.start[k + 1] = out.start[k] + family.length[k];
    out.literals.resize(out.start[n]);
    std::copy(given, given + n_given, out.literals.begin());
    out.hash.resize(n);
    std::vector<std::int64_t> level_start(family.max_depth + 2, 0);
    for (std::int64_t k = 0; k < n; ++k) ++level_start[family.depth[k] + 1];
    std::partial_sum(level_start.begin(), level_start.end(), level_start.begin());
    std::vector<std::int32_t> by_level(n);
    auto next = level_start;
    for (std::int64_t k = 0; k < n; ++k) by_level[next[family.depth[k]]++] = std::int32_t(k);
    constexpr std::int64_t step = 512;
    for (std::int32_t level = 0; level <= family.max_depth; ++level) {
        const std::int64_t from = level_start[level], to = level_start[level + 1];
        parallel_for((to - from + step - 1) / step, n_threads, [&](std::int64_t task) {
            for (std::int64_t i = from + task * step; i < std::min(to, from + (task + 1) * step); ++i) {
                const std::int64_t k = by_level[i];
                if (level > 0) out.thin_out(family, k, seed);
                out.hash[k] = hash_of(out.literals.data() + out.start[k], family.length[k]);
            }
        });
    }
    return out;
}

}  // namespace

Generated gssl_generate(std::int64_t n_initial, const std::int64_t* start, const std::int32_t* literals, std::int64_t n_generated,
                        std::int64_t threshold, std::uint64_t seed, int n_threads) {
    const Family family = draw_family(n_initial, start, n_generated, seed);
    const Listed all = list_literals(family, start[n_initial], literals, seed, n_threads);
    const std::int64_t n = family.size();
    const auto equal = [&](std::int64_t j, std::int64_t k) {
        const auto at = all.literals.begin();
        return all.hash[j] == all.hash[k] && std::equal(at + all.start[j], at + all.start[j + 1], at + all.start[k], at + all.start[k + 1]);
    };
    // Equal conjunctions are counted by open addressing.
    std::size_t size = 64;
    while (size < 2 * std::size_t(n)) size *= 2;
    std::vector<std::int32_t> slot(size, -1), first;
    std::vector<std::int64_t> count;
    for (std::int64_t k = 0; k < n; ++k) {
        std::size_t place = all.hash[k] & (size - 1);
        while (slot[place] >= 0 && !equal(first[slot[place]], k)) place = (place + 1) & (size - 1);
        if (slot[place] < 0) {
            slot[place] = std::int32_t(first.size());
            first.push_back(std::int32_t(k));
            count.push_back(0);
        }
        ++count[slot[place]];
    }
    Generated result;
    result.n_listed = n;
    result.n_unique = std::int64_t(first.size());
    result.start.push_back(0);
    for (std::size_t u = 0; u < first.size(); ++u) {
        if (count[u] <= threshold) continue;
        const std::int64_t k = first[u];
        result.literals.insert(result.literals.end(), all.literals.begin() + all.start[k], all.literals.begin() + all.start[k + 1]);
        result.start.push_back(std::int64_t(result.literals.size()));
        result.count.push_back(count[u]);
    }
    return result;
}

}  // namespace undirected
