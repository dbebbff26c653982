// The numbers of literals: the only place that knows how they are laid out.
//
// The literals "variable v is in state s" are numbered variable by variable, state by state, from 0 to n - 1. Number n more is the
// negation: "variable v is not in state s".
#pragma once
#include <cstdint>
#include <vector>

namespace undirected {

// For those who only know how many positive literals there are. Functions of this file alone (static): kernels are compiled once per
// instruction set, and the linker must not mix the copies.
static inline bool is_negated(std::int32_t literal, std::int32_t n) { return literal >= n; }
static inline std::int32_t positive_of(std::int32_t literal, std::int32_t n) { return literal >= n ? literal - n : literal; }
static inline std::int32_t negation_of(std::int32_t literal, std::int32_t n) { return literal >= n ? literal - n : literal + n; }

// The numbers of all literals of some variables.
class LiteralNumbers {
public:
    LiteralNumbers() = default;
    LiteralNumbers(const std::int32_t* n_states, std::int64_t n_variables) {
        for (std::int64_t v = 0; v < n_variables; ++v) add_variable(n_states[v]);
    }
    explicit LiteralNumbers(const std::vector<std::int32_t>& n_states) : LiteralNumbers(n_states.data(), std::int64_t(n_states.size())) {}

    void add_variable(std::int32_t n_states) {
        variable_.insert(variable_.end(), n_states, n_variables());
        first_.push_back(std::int32_t(variable_.size()));
    }

    std::int32_t n_variables() const { return std::int32_t(first_.size()) - 1; }
    std::int32_t n_states(std::int32_t variable) const { return first_[variable + 1] - first_[variable]; }
    // How many positive literals there are.
    std::int32_t count() const { return first_.back(); }
    // A variable's positive literals are those from its first to its end, one per state.
    std::int32_t first(std::int32_t variable) const { return first_[variable]; }
    std::int32_t end(std::int32_t variable) const { return first_[variable + 1]; }
    std::int32_t number(std::int32_t variable, std::int32_t state) const { return first_[variable] + state; }
    // The first literals of all variables, and one more entry: how many literals there are.
    const std::int32_t* firsts() const { return first_.data(); }

    bool negated(std::int32_t literal) const { return is_negated(literal, count()); }
    std::int32_t positive(std::int32_t literal) const { return positive_of(literal, count()); }
    std::int32_t negation(std::int32_t literal) const { return negation_of(literal, count()); }
    std::int32_t variable(std::int32_t literal) const { return variable_[positive(literal)]; }
    std::int32_t state(std::int32_t literal) const { return positive(literal) - first_[variable(literal)]; }
    // Whether a literal holds where its variable is in this state.
    bool holds(std::int32_t literal, std::int32_t its_state) const { return (state(literal) == its_state) != negated(literal); }

private:
    std::vector<std::int32_t> first_{0}, variable_;
};

}  // namespace undirected
