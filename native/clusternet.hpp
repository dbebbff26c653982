#pragma once
#include <cstdint>
#include <vector>

namespace undirected {

// Conjunctions one after another, each in a cluster.
struct Clustered {
    std::int64_t n;
    const std::int32_t* cluster;   // [n]
    const std::int64_t* start;     // [n + 1]
    const std::int32_t* literals;  // each conjunction's rise
};

struct NewInClusters {
    std::vector<std::int32_t> cluster, literals;
    std::vector<std::int64_t> start;
};

// Where literals are counted for their support: in all conjunctions of the cluster; in the initial ones; or there, too, but each
// conjunction then has its own best and worst literal.
enum class Support { whole, initial, own };

// ClusterNet's generation: in each of `rounds` rounds, each cluster draws members, about `alpha` in all by its share of all members, from
// its initial conjunctions at first and from the new ones later, and gains those that come of leaving out the literal of largest, or of
// smallest, support. Returns the new ones that were not there before, in the order in which they came.
NewInClusters clusternet_generate(std::int32_t n_clusters, const Clustered& initial, const Clustered& fresh, std::int32_t n_literals,
                                  std::int64_t rounds, std::int64_t alpha, Support support, std::uint64_t seed);

}  // namespace undirected
