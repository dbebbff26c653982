// Probability trees, one per target variable, grown greedily.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "uncommon.hpp"

namespace undirected {

// Nodes of all trees one after another; a tree's first node is its root. Children count from the tree's root.
struct Trees {
    std::vector<std::int64_t> start;        // [n_targets + 1]
    std::vector<std::int32_t> test;         // literal, or -1 at a leaf
    std::vector<std::int32_t> yes, no;      // children
    std::vector<double> gain;               // of the best split, even where it was not made; minus infinity where there is none
    std::vector<std::int64_t> count_start;  // [n_nodes + 1]
    std::vector<double> count;              // weight of the rows by state of the target
};

// A split needs at least min_rows of weight on both sides and a gain above min_gain for each parameter that it adds. go_on is called at the
// start and after every few trees, with the number of those done, and may throw; once it says no, the trees that are left stay single
// leaves.
Trees grow_trees(const CodeTable& table, const std::int32_t* targets, std::int64_t n_targets, double min_rows, double min_gain,
                 int n_threads, const std::function<bool(std::int64_t)>& go_on);

struct Walk {
    std::vector<double> through;  // as `count`: weight of the table's rows that pass a node, by state of the target
    std::vector<double> by_row;   // sum over trees of the leaf's value for the row's state
};

// Sends every row down every tree; `value` is laid out like `count`.
Walk walk_trees(const CodeTable& table, const std::int32_t* targets, std::int64_t n_targets, const std::int64_t* start,
                const std::int32_t* test, const std::int32_t* yes, const std::int32_t* no, const std::int64_t* count_start,
                const double* value, int n_threads);

}  // namespace undirected
