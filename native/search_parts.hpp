// What the parts of the search for features share.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "search.hpp"

namespace undirected {

template <class Visit>
void for_bits(std::uint64_t word, std::int64_t first_row, const Visit& visit) {
    for (; word; word &= word - 1) visit(first_row + std::countr_zero(word));
}

// Of a literal with this residual.
inline float variance_of(float residual) { return std::abs(residual) * (1 - std::abs(residual)); }

struct Search::Spot {
    std::vector<Part> parts;
    std::vector<std::uint64_t> match, near, miss;  // near: exactly one part fails; miss: [parts][words]
    std::int64_t n_words = 0;
};

// The rows of all contexts: first where the feature would be lost, then where it holds.
struct Search::Entries {
    std::vector<double> margin[2], weight[2];
    std::vector<float> single[2], single_weight[2];
    std::int64_t n[2];

    void make_room(int hit, std::int64_t room, bool weighted) {
        if (std::int64_t(margin[hit].size()) < room) {
            margin[hit].resize(room + room / 2);
            single[hit].resize(room + room / 2);
        }
        if (weighted && std::int64_t(weight[hit].size()) < room) {
            weight[hit].resize(room + room / 2);
            single_weight[hit].resize(room + room / 2);
        }
    }
};

}  // namespace undirected
