#include "model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "hash.hpp"

namespace undirected {

Reduced::Reduced(const Model& whole, const std::uint8_t* evidence, bool want_decided) {
    const std::int32_t n = whole.n_literals();
    std::vector<std::int32_t> place(n, -1);  // where a literal of the whole model is among the remaining ones
    std::vector<std::uint8_t> truth(2 * std::size_t(n));
    for (std::int32_t v = 0; v < whole.n_variables(); ++v) {
        std::int32_t allowed = 0;
        for (std::int32_t l = whole.numbers.first(v); l < whole.numbers.end(v); ++l) allowed += evidence[l] != 0;
        for (std::int32_t l = whole.numbers.first(v); l < whole.numbers.end(v); ++l) {
            truth[l] = !evidence[l] ? FALSE : allowed == 1 ? TRUE : OPEN;
            truth[whole.numbers.negation(l)] = truth[l] == OPEN ? OPEN : std::uint8_t(1 - truth[l]);
        }
        if (allowed < 2) continue;
        variable.push_back(v);
        model.n_states.push_back(allowed);
        for (std::int32_t l = whole.numbers.first(v); l < whole.numbers.end(v); ++l)
            if (evidence[l]) {
                place[l] = std::int32_t(literal.size());
                literal.push_back(l);
            }
    }
    model.number_literals();
    const auto place_of = [&](std::int32_t l) {
        const std::int32_t positive = place[whole.numbers.positive(l)];
        return whole.numbers.negated(l) ? model.numbers.negation(positive) : positive;
    };
    if (want_decided) decided.assign(whole.n_features(), FALSE);
    model.start.push_back(0);
    for (std::int64_t j = 0; j < whole.n_features(); ++j) {
        const std::size_t before = model.literals.size();
        bool possible = true;
        for (std::int64_t k = whole.start[j]; k < whole.start[j + 1] && possible; ++k) {
            const std::int32_t l = whole.literals[k];
            if (truth[l] == FALSE) possible = false;
            if (truth[l] == OPEN) model.literals.push_back(place_of(l));
        }
        if (!possible) {
            model.literals.resize(before);
            continue;
        }
        if (want_decided) decided[j] = model.literals.size() > before ? OPEN : TRUE;
        if (model.literals.size() == before) {
            constant += whole.weights[j];
        } else {
            feature.push_back(j);
            model.weights.push_back(whole.weights[j]);
            model.start.push_back(std::int64_t(model.literals.size()));
        }
    }
}

namespace {

// The graph of variables that share a feature, as rows of bits.
struct Graph {
    std::int32_t n;
    std::size_t words;
    std::vector<std::uint64_t> bits;

    explicit Graph(const Model& model) : n(model.n_variables()), words((std::size_t(n) + 63) / 64), bits(std::size_t(n) * words) {
        std::vector<std::int32_t> scope;
        for (std::int64_t j = 0; j < model.n_features(); ++j) {
            scope.clear();
            for (std::int64_t k = model.start[j]; k < model.start[j + 1]; ++k) scope.push_back(model.numbers.variable(model.literals[k]));
            for (const std::int32_t a : scope)
                for (const std::int32_t b : scope)
                    if (a != b) join(a, b);
        }
    }
    std::uint64_t* row(std::int32_t v) { return bits.data() + std::size_t(v) * words; }
    const std::uint64_t* row(std::int32_t v) const { return bits.data() + std::size_t(v) * words; }
    void join(std::int32_t a, std::int32_t b) { row(a)[b / 64] |= std::uint64_t(1) << (b % 64); }
    bool joined(std::int32_t a, std::int32_t b) const { return row(a)[b / 64] >> (b % 64) & 1; }
    template <class F>
    void each(std::int32_t v, F&& visit) const {
        for (std::size_t w = 0; w < words; ++w)
            for (std::uint64_t left = row(v)[w]; left; left &= left - 1) visit(std::int32_t(w * 64 + std::countr_zero(left)));
    }
};

struct Greedy {
    const Model& model;
    Graph graph;
    bool fill;  // least fill, else least weight
    bool shuffle;
    std::uint64_t seed;
    std::vector<double> score;

    Greedy(const Model& m, const Graph& g, bool least_fill, bool random_ties, std::uint64_t s)
        : model(m), graph(g), fill(least_fill), shuffle(random_ties), seed(s), score(m.n_variables()) {}

    double weight(std::int32_t v) const {
        double cells = model.n_states[v];
        graph.each(v, [&](std::int32_t u) { cells *= model.n_states[u]; });
        return cells;
    }

    double rate(std::int32_t v) const {
        if (!fill) return weight(v);
        std::int64_t missing = 0;
        graph.each(v, [&](std::int32_t u) {
            for (std::size_t w = 0; w < graph.words; ++w) missing += std::popcount(graph.row(v)[w] & ~graph.row(u)[w]);
            --missing;  // u is no neighbour of its own
        });
        return double(missing) + 1e-6 * std::log2(weight(v));
    }

    // Fills in the order of a component; false if it costs more than the limit.
    bool run(Component& out, double limit) {
        std::vector<std::int32_t> left = out.members;
        for (const std::int32_t v : left) score[v] = rate(v);
        std::vector<std::int32_t> near;
        out.order.clear();
        out.cells = out.largest = 0;
        out.width = 0;
        while (!left.empty()) {
            std::size_t best = 0;
            double best_score = std::numeric_limits<double>::infinity();
            for (std::size_t k = 0; k < left.size(); ++k) {
                const double noise =
                    shuffle ? 1e-3 * double(mix(seed ^ mix(std::uint64_t(left[k]) * 977 + left.size())) >> 11) * 0x1p-53 : 0;
                const double s = score[left[k]] * (1 + noise) + noise;
                if (s < best_score) best_score = s, best = k;
            }
            const std::int32_t v = left[best];
            left.erase(left.begin() + std::ptrdiff_t(best));
            const double cells = weight(v);
            near.clear();
            graph.each(v, [&](std::int32_t u) { near.push_back(u); });
            out.order.push_back(v);
            out.cells += cells;
            out.largest = std::max(out.largest, cells);
            out.width = std::max(out.width, std::int32_t(near.size()));
            if (out.cells > limit) return false;
            std::vector<std::uint8_t> touched(model.n_variables());
            bool filled = false;
            for (const std::int32_t u : near) {
                graph.row(u)[v / 64] &= ~(std::uint64_t(1) << (v % 64));
                touched[u] = 1;
            }
            for (const std::int32_t a : near)
                for (const std::int32_t b : near)
                    if (a != b && !graph.joined(a, b)) {
                        graph.join(a, b);
                        filled = true;
                    }
            if (filled && fill)
                for (const std::int32_t u : near) graph.each(u, [&](std::int32_t t) { touched[t] = 1; });
            for (const std::int32_t u : left)
                if (touched[u]) score[u] = rate(u);
        }
        return true;
    }
};

}  // namespace

std::vector<Component> components_of(const Model& model, double max_cells, int tries, std::uint64_t seed) {
    const Graph graph(model);
    std::vector<Component> out;
    std::vector<std::uint8_t> seen(model.n_variables());
    std::vector<std::int32_t> stack;
    for (std::int32_t v = 0; v < model.n_variables(); ++v) {
        if (seen[v]) continue;
        Component part;
        seen[v] = 1;
        stack.assign(1, v);
        while (!stack.empty()) {
            const std::int32_t u = stack.back();
            stack.pop_back();
            part.members.push_back(u);
            graph.each(u, [&](std::int32_t t) {
                if (!seen[t]) seen[t] = 1, stack.push_back(t);
            });
        }
        std::sort(part.members.begin(), part.members.end());
        double limit = max_cells;
        bool found = false;
        for (int k = 0; k < std::max(1, tries); ++k) {
            Component attempt;
            attempt.members = part.members;
            Greedy greedy(model, graph, k % 2 == 0, k > 1, mix(seed + std::uint64_t(k)));
            if (!greedy.run(attempt, limit)) {
                if (!found && attempt.cells > part.cells)
                    part.cells = attempt.cells, part.largest = attempt.largest, part.width = attempt.width;
                continue;
            }
            found = true;
            limit = attempt.cells;
            part = attempt;
            if (part.width <= 1) break;
        }
        out.push_back(std::move(part));
    }
    return out;
}

namespace {

constexpr std::int64_t LONG = 6;       // literals of a conjunction that may be taken apart
constexpr std::int64_t FEW_LONG = 64;  // with more of them, a further variable for each costs more than it saves
constexpr double CHEAP = 1 << 14;      // cells for which no other way is looked for

double total_cells(const std::vector<Component>& parts) {
    double sum = 0;
    for (const Component& part : parts) sum += part.solvable() ? part.cells : std::numeric_limits<double>::infinity();
    return sum;
}

Model taken_apart(const Model& given) {
    Model out;
    double never = -1e4;  // the weight of what cannot be: worse than all other features together
    for (const double w : given.weights) never -= 4 * std::fabs(w);
    out.n_states = given.n_states;
    std::vector<std::int64_t> apart;
    for (std::int64_t j = 0; j < given.n_features(); ++j)
        if (given.start[j + 1] - given.start[j] >= LONG) {
            apart.push_back(j);
            out.n_states.push_back(std::int32_t(given.start[j + 1] - given.start[j]) + 1);
        }
    out.number_literals();
    const auto renumbered = [&](std::int32_t l) {
        const std::int32_t positive = given.numbers.positive(l);  // the variables of before come first
        return given.numbers.negated(l) ? out.numbers.negation(positive) : positive;
    };
    const auto negated = [&](std::int32_t l) { return out.numbers.negation(l); };
    const auto add = [&](std::initializer_list<std::int32_t> literals, double weight) {
        out.literals.insert(out.literals.end(), literals);
        out.start.push_back(std::int64_t(out.literals.size()));
        out.weights.push_back(weight);
    };
    out.start.push_back(0);
    std::size_t next = 0;
    for (std::int64_t j = 0; j < given.n_features(); ++j) {
        if (next < apart.size() && apart[next] == j) {
            add({out.numbers.first(given.n_variables() + std::int32_t(next++))}, given.weights[j]);  // the first state: none fails
            continue;
        }
        for (std::int64_t k = given.start[j]; k < given.start[j + 1]; ++k) out.literals.push_back(renumbered(given.literals[k]));
        out.start.push_back(std::int64_t(out.literals.size()));
        out.weights.push_back(given.weights[j]);
    }
    for (std::size_t a = 0; a < apart.size(); ++a) {
        const std::int32_t first = out.numbers.first(given.n_variables() + std::int32_t(a));
        const std::int64_t length = given.start[apart[a] + 1] - given.start[apart[a]];
        for (std::int64_t k = 0; k < length; ++k) {
            const std::int32_t literal = renumbered(given.literals[given.start[apart[a]] + k]);
            add({literal, first + 1 + std::int32_t(k)}, never);  // it is said to fail
            add({negated(literal), first}, never);               // it is said to hold
            for (std::int64_t later = k + 1; later < length; ++later) add({negated(literal), first + 1 + std::int32_t(later)}, never);
        }
    }
    return out;
}

}  // namespace

Elimination planned(const Model& model, double max_cells, int tries, std::uint64_t seed) {
    Elimination plain{model, components_of(model, max_cells, tries, seed)};
    const double cost = total_cells(plain.parts);
    std::int64_t n_long = 0;
    for (std::int64_t j = 0; j < model.n_features(); ++j) n_long += model.start[j + 1] - model.start[j] >= LONG;
    if (tries < 2 || n_long == 0 || n_long > FEW_LONG || cost <= CHEAP) return plain;
    Elimination other;
    other.model = taken_apart(model);
    other.parts = components_of(other.model, std::min(max_cells, cost), tries, seed);
    return total_cells(other.parts) < cost ? other : plain;
}

}  // namespace undirected
