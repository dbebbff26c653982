// A network as the inference kernels see it, and what evidence leaves of it.
#pragma once
#include <cstdint>
#include <vector>

#include "literals.hpp"

namespace undirected {

struct Model {
    std::vector<std::int32_t> n_states;
    LiteralNumbers numbers;
    std::vector<std::int64_t> start;
    std::vector<std::int32_t> literals;
    std::vector<double> weights;

    std::int32_t n_variables() const { return std::int32_t(n_states.size()); }
    std::int32_t n_literals() const { return numbers.count(); }
    std::int64_t n_features() const { return std::int64_t(weights.size()); }
    void number_literals() { numbers = LiteralNumbers(n_states); }
};

enum Truth : std::uint8_t { FALSE = 0, TRUE = 1, OPEN = 2 };

// What evidence leaves of a model: its hidden variables, their allowed states, and the features that are still open, all
// numbered anew. `evidence` marks the allowed states, a byte a literal; every variable needs at least one.
struct Reduced {
    Model model;
    double constant = 0;                 // weights of the features that evidence makes true
    std::vector<std::int32_t> variable;  // of each hidden variable, its number in the whole model
    std::vector<std::int32_t> literal;   // of each remaining state, its literal in the whole model
    std::vector<std::int64_t> feature;   // of each open feature, its number in the whole model
    std::vector<std::uint8_t> decided;   // a Truth per feature of the whole model, if asked for

    Reduced(const Model& whole, const std::uint8_t* evidence, bool want_decided = false);
};

// The order in which to sum out a component's variables, and what that costs.
struct Component {
    std::vector<std::int32_t> order;  // variables of the reduced model; empty if every order tried was too expensive
    std::vector<std::int32_t> members;
    double cells = 0;        // table cells of all cliques
    double largest = 0;      // cells of the largest clique
    std::int32_t width = 0;  // variables of the largest clique, less one

    bool solvable() const { return order.size() == members.size(); }
};

// The parts that share no feature, each with the cheapest of several greedy orders (least fill and least weight by turns,
// ties at random after the first two). Orders that need more than max_cells cells are given up.
std::vector<Component> components_of(const Model& model, double max_cells, int tries, std::uint64_t seed);

// A model with its parts, made for elimination. Variables, literals and features of the given model keep their numbers; if it is
// cheaper, long conjunctions are taken apart: a further variable tells which of its literals is the first that fails, or that none
// does, and meets each of the conjunction's variables in pairs, so that no table has to hold them all.
struct Elimination {
    Model model;
    std::vector<Component> parts;
};
Elimination planned(const Model& model, double max_cells, int tries, std::uint64_t seed);

}  // namespace undirected
