// Trees that grow with a stream: rows are sent down to the leaves, and what a leaf sees there is counted.
#pragma once
#include <cstdint>

#include "uncommon.hpp"

namespace undirected {

// Nodes of all trees one after another, laid out as in trees.hpp.
struct Forest {
    std::int64_t n_trees;
    const std::int32_t* targets;  // [n_trees]
    const std::int64_t* start;    // [n_trees + 1]
    const std::int32_t *test, *yes, *no;
    const std::int64_t* count_start;  // [n_nodes + 1]
    const std::int64_t* block;        // [n_nodes] where the counts of a leaf begin, or -1 where none are kept
};

// Adds the weight of each row to the counts of every node that it passes, by state of the target; and at the leaf that it comes to, to
// those of all literals of `rows` that hold, by state of the target: `seen` holds a block [n_literals][states of the target] for each such
// leaf. Literals of the states that `rows` calls common are left out: the others and the node's own counts tell theirs.
void count_at_leaves(const Uncommon& rows, const Forest& forest, double* count, double* seen, int n_threads);

}  // namespace undirected
