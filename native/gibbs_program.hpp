// The program of a block of chains: the network as 64 chains see it, each with evidence of its own.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "gibbs_kernels.hpp"
#include "model.hpp"

namespace undirected {

// The arrays of a program.
struct Compiled {
    std::vector<std::int32_t> variable;  // hidden variables, in the order of the sweep
    LiteralNumbers numbers;              // of their states
    std::vector<std::int32_t> n_states, literals, part_literals, vector;
    std::vector<std::uint64_t> free, alive;
    std::vector<std::int64_t> context_start, part_start;
    std::vector<Context> contexts;
    std::vector<float> weight, vectors, unary;
    std::vector<double> constant;
    std::vector<std::int32_t> group_start, group_members, group_of;
    Program program;

    void finish() {
        program = {std::int32_t(variable.size()),
                   numbers.count(),
                   n_states.data(),
                   numbers.firsts(),
                   free.data(),
                   context_start.data(),
                   contexts.data(),
                   literals.data(),
                   std::int64_t(weight.size()),
                   part_start.data(),
                   part_literals.data(),
                   weight.data(),
                   vector.data(),
                   vectors.data(),
                   alive.data(),
                   unary.data(),
                   constant.data(),
                   std::int32_t(group_start.size()) - 1,
                   group_start.data(),
                   group_members.data(),
                   group_of.data()};
    }
};

// Puts together the program of n chains; evidence and states by chain. Variables are visited in the order given.
std::shared_ptr<const Compiled> compile(const Model& model, const std::uint8_t* const* evidence, const std::int16_t* const* states, int n,
                                        const std::vector<std::int32_t>& order);

}  // namespace undirected
