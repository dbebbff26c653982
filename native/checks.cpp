#include "checks.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>

using namespace undirected;

namespace {

constexpr std::int64_t MOST_LITERALS = std::int64_t(1) << 30;  // with their negations they fit into 32 bits
constexpr std::int64_t MOST_FEATURES = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

std::string at(std::int64_t position) { return " at position " + std::to_string(position); }

}  // namespace

void expect(bool condition, const char* what) {
    if (!condition) refuse(what);
}

std::int64_t check_offsets(const In<std::int64_t>& start, std::int64_t end, const char* what) {
    const std::int64_t n = std::int64_t(start.shape(0)) - 1;
    if (n < 0) refuse(std::string(what) + ": no offset at all; they begin with 0");
    if (n > MOST_FEATURES) refuse(std::string(what) + ": more than 2^31 - 1");
    if (start.data()[0] != 0) refuse(std::string(what) + ": the first offset is " + std::to_string(start.data()[0]) + ", not 0");
    for (std::int64_t k = 0; k < n; ++k)
        if (start.data()[k] > start.data()[k + 1])
            refuse(std::string(what) + ": offsets fall from " + std::to_string(start.data()[k]) + " to " +
                   std::to_string(start.data()[k + 1]) + at(k + 1));
    if (start.data()[n] != end)
        refuse(std::string(what) + ": the last offset is " + std::to_string(start.data()[n]) + ", but there are " + std::to_string(end) +
               " entries");
    return n;
}

void check_range(const In<std::int32_t>& values, std::int64_t lowest, std::int64_t limit, const char* what) {
    for (std::size_t k = 0; k < values.shape(0); ++k)
        if (values.data()[k] < lowest || values.data()[k] >= limit)
            refuse("no such " + std::string(what) + ": " + std::to_string(values.data()[k]) + at(std::int64_t(k)) + ", expected " +
                   std::to_string(lowest) + " to " + std::to_string(limit - 1));
}

LiteralNumbers check_states(const In<std::int32_t>& n_states) {
    std::int64_t total = 0;
    for (std::size_t v = 0; v < n_states.shape(0); ++v) {
        const std::int32_t k = n_states.data()[v];
        if (k < 1) refuse("variable " + std::to_string(v) + " has " + std::to_string(k) + " states: it needs at least one");
        if (k > std::numeric_limits<std::int16_t>::max())
            refuse("variable " + std::to_string(v) + " has " + std::to_string(k) + " states: at most 32,767 can be coded");
        total += k;
    }
    if (total > MOST_LITERALS) refuse("the variables have more than 2^30 states together");
    return LiteralNumbers(n_states.data(), std::int64_t(n_states.shape(0)));
}

void check_row_weights(const In<double>& row_weight) {
    for (std::size_t r = 0; r < row_weight.shape(0); ++r)
        if (!(row_weight.data()[r] >= 0) || std::isinf(row_weight.data()[r]))
            refuse("row " + std::to_string(r) + " has weight " + std::to_string(row_weight.data()[r]) +
                   ": weights are finite and not below zero");
}

Table check_table(const In<std::uint64_t, 2>& columns, const In<std::int32_t>& n_states, const In<double>& row_weight) {
    const LiteralNumbers numbers = check_states(n_states);
    const Table table{std::int64_t(row_weight.shape(0)),
                      std::int64_t(columns.shape(1)),
                      std::int32_t(n_states.shape(0)),
                      n_states.data(),
                      columns.data(),
                      row_weight.data()};
    expect(table.n_rows > 0, "a table needs at least one row");
    expect(numbers.count() == std::int64_t(columns.shape(0)), "there must be one bit column per literal");
    expect(table.n_words == (table.n_rows + 63) / 64, "bit columns have one bit per row, filled up to words of 64");
    check_row_weights(row_weight);
    if (table.n_rows % 64 != 0)
        for (std::int64_t l = 0; l < numbers.count(); ++l)
            if (columns.data()[(l + 1) * table.n_words - 1] >> (table.n_rows % 64))
                refuse("the bit column of literal " + std::to_string(l) + " has bits beyond the last row");
    return table;
}

CodeTable check_codes(const In<std::int16_t, 2>& codes, const In<std::int32_t>& n_states, const In<double>& row_weight) {
    check_states(n_states);
    expect(n_states.shape(0) == codes.shape(0), "there must be one number of states per variable");
    expect(row_weight.shape(0) == codes.shape(1), "there must be one weight per row");
    check_row_weights(row_weight);
    const CodeTable table{std::int64_t(codes.shape(1)), std::int32_t(codes.shape(0)), n_states.data(), codes.data(), row_weight.data()};
    for (std::int64_t v = 0; v < table.n_variables; ++v)
        for (std::int64_t r = 0; r < table.n_rows; ++r) {
            const std::int16_t code = table.codes[v * table.n_rows + r];
            if (code < 0 || code >= table.n_states[v])
                refuse("code " + std::to_string(code) + " of variable " + std::to_string(v) + " in row " + std::to_string(r) +
                       " is none of its " + std::to_string(table.n_states[v]) + " states");
        }
    return table;
}

Features check_features(const In<std::int64_t>& start, const In<std::int32_t>& literals, const LiteralNumbers& numbers) {
    const std::int64_t n = check_offsets(start, std::int64_t(literals.shape(0)), "features");
    check_range(literals, 0, 2 * std::int64_t(numbers.count()), "literal");
    for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t k = start.data()[j] + 1; k < start.data()[j + 1]; ++k)
            if (numbers.variable(literals.data()[k - 1]) > numbers.variable(literals.data()[k]))
                refuse("the literals of feature " + std::to_string(j) + " are not sorted by variable");
    return {n, start.data(), literals.data(), nullptr};
}
