// Exact answers by summing out variables one after the other (a bucket tree), in logarithms.
#pragma once
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace undirected {

class JunctionTree {
public:
    JunctionTree(const Model& model, const Component& component);

    // Upwards: the log partition function of the component, or the score of its best state.
    double collect(bool maximum);
    // Downwards, after collect(false): marginals by literal; expectations by feature, unless null.
    void distribute(double* marginals, double* expectations);
    // One exact sample after collect(false), number `index` of a stream; states by variable.
    void draw(std::uint64_t seed, std::uint64_t index, std::int32_t* state) const;
    // A best state after collect(true).
    void best(std::int32_t* state) const;

private:
    struct Literal {
        std::int32_t place, state;
        bool negated;
    };
    struct Item {  // a feature inside a bucket, from one of its literals on
        const Literal* at;
        const Literal* end;
        double weight;
    };
    struct Bucket {
        std::vector<std::int32_t> clique;  // places in the order, the bucket's own first
        std::vector<std::int32_t> sizes;
        std::int64_t cells, table, message;  // offsets into tables_ and messages_
        std::int32_t parent = -1;
        std::vector<std::int64_t> small;  // strides of the message in the dimensions of the parent's clique
        std::vector<std::int64_t> features;
    };

    void fill(double* table, const Bucket& bucket, std::size_t d, std::int64_t cells, std::vector<Item>& items);
    void put(double* table, const Bucket& bucket, std::size_t d, std::int64_t cells, Item item);
    double mass(const double* table, const Bucket& bucket, std::size_t d, std::int64_t cells, Item item) const;
    std::vector<Literal> literals_of(std::int64_t feature, const Bucket& bucket) const;
    template <class Choose>
    void descend(std::int32_t* state, Choose&& choose) const;

    const Model& model_;
    std::vector<std::int32_t> order_, place_;  // variable at a place, place of a variable
    std::vector<Bucket> buckets_;
    std::vector<double> tables_, messages_;
};

}  // namespace undirected
