// The inner loops of Gibbs sampling: 64 chains side by side, one bit each.
//
// A program is the network as 64 chains see it. A *part* is what is left of features when the literals that evidence decides
// are taken away; features with the same rest are one part, whose weight may differ from chain to chain. A *context* is a part
// without its literals on one variable: where it holds, the part's weight counts for that variable's states.
#pragma once
#include <cstdint>

#include "dispatch.hpp"

namespace undirected {

constexpr int CHAINS = 64;

struct Context {
    std::int64_t first;  // literals, in Program::literals
    std::int32_t count;
    std::int32_t state;  // of the variable: gains the weight times sign
    float sign;
    std::int32_t part;
};

struct Program {
    std::int32_t n_hidden, n_literals;  // variables that are free in some chain, and their states
    const std::int32_t* n_states;       // [n_hidden]
    const std::int32_t* base;           // [n_hidden + 1]
    const std::uint64_t* free;          // [n_hidden], chains in which the variable is free
    const std::int64_t* context_start;  // [n_hidden + 1]
    const Context* contexts;
    const std::int32_t* literals;  // n_literals more for the negation
    std::int64_t n_parts;
    const std::int64_t* part_start;  // [n_parts + 1], in part_literals
    const std::int32_t* part_literals;
    const float* weight;         // [n_parts], the same for all chains, or
    const std::int32_t* vector;  // [n_parts], -1 or where the chains' weights are
    const float* vectors;        // [n][CHAINS]
    const std::uint64_t* alive;  // [n_parts], chains in which the part counts
    const float* unary;          // [n_literals][CHAINS]
    const double* constant;      // [CHAINS]
    // Groups of binary variables of which two are hardly ever in their second state together; they are also moved as one.
    std::int32_t n_groups;
    const std::int32_t* group_start;  // [n_groups + 1]
    const std::int32_t* group_members;
    const std::int32_t* group_of;  // [n_hidden], -1 for none
};

struct Schedule {
    std::int64_t n_sweeps;
    const float* beta;       // [n_sweeps]: logits are beta times the network's and (1 - beta) times the reference's
    const float* reference;  // [n_literals], or null
    bool collect;            // add up conditional probabilities and their squares
    bool anneal;             // add up importance weights
    bool greedy;             // the most probable state instead of a draw
};

struct Chains {
    std::uint64_t* words;   // [2 * n_literals]: in which chains a literal holds, then the negations
    std::uint32_t* random;  // [4][8], state of the generator
    float* sums;            // [n_literals][CHAINS]
    float* squares;
    double* log_weight;  // [CHAINS]
    float beta;          // of the last sweep, for annealing
};

#define UNDIRECTED_GIBBS_KERNELS(NAME)                                                            \
    namespace NAME {                                                                              \
    void sweep(const Program& program, const Schedule& schedule, Chains& chains, float* scratch); \
    void score(const Program& program, const std::uint64_t* words, double* out);                  \
    }

UNDIRECTED_FOR_EACH_INSTRUCTION_SET(UNDIRECTED_GIBBS_KERNELS)

}  // namespace undirected
