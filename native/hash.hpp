#pragma once
#include <cstdint>

namespace undirected {

// A well-mixed word from any other (the finaliser of splitmix64).
inline std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

// Draw number t of element k: a hash of (seed, k, t), so that any thread can make it at any time.
struct RandomStream {
    std::uint64_t base;
    RandomStream(std::uint64_t seed, std::uint64_t k) : base(mix(seed ^ mix(k))) {}
    std::int64_t below(std::uint64_t t, std::int64_t n) const { return std::int64_t(double(mix(base + t) >> 11) * 0x1p-53 * double(n)); }
};

}  // namespace undirected
