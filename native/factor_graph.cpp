#include "factor_graph.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "hash.hpp"

namespace undirected {
namespace {

constexpr double MAX_TABLE = 1 << 10;  // scopes with more cells keep their features one by one

}  // namespace

FactorGraph::FactorGraph(const Model& m) : model(m), unary(m.n_literals(), 0.0), of(m.n_variables()) {
    std::map<std::vector<std::int32_t>, std::vector<std::int64_t>> scopes;
    for (std::int64_t j = 0; j < m.n_features(); ++j) {
        std::vector<std::int32_t> scope;
        for (std::int64_t k = m.start[j]; k < m.start[j + 1]; ++k) scope.push_back(m.numbers.variable(m.literals[k]));
        std::sort(scope.begin(), scope.end());
        scope.erase(std::unique(scope.begin(), scope.end()), scope.end());
        if (scope.size() == 1)
            for (std::int32_t s = 0; s < m.n_states[scope[0]]; ++s)
                unary[m.numbers.number(scope[0], s)] += holds_at(j, scope[0], s) ? m.weights[j] : 0;
        else
            scopes[scope].push_back(j);
    }
    std::vector<const std::pair<const std::vector<std::int32_t>, std::vector<std::int64_t>>*> sorted;
    for (const auto& entry : scopes) sorted.push_back(&entry);
    std::stable_sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->first.size() > b->first.size(); });
    for (const auto* entry : sorted) {
        double cells = 1;
        for (const std::int32_t v : entry->first) cells *= m.n_states[v];
        if (cells > MAX_TABLE) {
            for (const std::int64_t j : entry->second) conjunction(j, entry->first);
            continue;
        }
        std::int32_t home = -1;  // a table over more variables
        for (const std::int32_t f : of[entry->first[0]])
            if (!factors[f].table.empty() &&
                std::includes(factors[f].scope.begin(), factors[f].scope.end(), entry->first.begin(), entry->first.end()))
                home = f;
        if (home < 0) {
            home = enter(entry->first);
            factors[home].table.assign(std::size_t(cells), 0.0);
        }
        for (const std::int64_t j : entry->second) add(factors[home], j);
    }
}

// Whether feature j holds as far as variable v is concerned, if that is in state s.
bool FactorGraph::holds_at(std::int64_t j, std::int32_t v, std::int32_t s) const {
    for (std::int64_t k = model.start[j]; k < model.start[j + 1]; ++k) {
        const std::int32_t l = model.literals[k];
        if (model.numbers.variable(l) == v && !model.numbers.holds(l, s)) return false;
    }
    return true;
}

std::int32_t FactorGraph::enter(const std::vector<std::int32_t>& scope) {
    const std::int32_t f = std::int32_t(factors.size());
    factors.emplace_back();
    factors[f].scope = scope;
    for (const std::int32_t v : scope) of[v].push_back(f);
    return f;
}

void FactorGraph::conjunction(std::int64_t j, const std::vector<std::int32_t>& scope) {
    Factor& f = factors[enter(scope)];
    f.weight = model.weights[j];
    for (const std::int32_t v : scope) {
        f.holds.emplace_back();
        for (std::int32_t s = 0; s < model.n_states[v]; ++s) f.holds.back().push_back(holds_at(j, v, s));
    }
}

void FactorGraph::add(Factor& f, std::int64_t j) {
    std::vector<std::vector<std::uint8_t>> holds;
    for (const std::int32_t v : f.scope) {
        holds.emplace_back();
        for (std::int32_t s = 0; s < model.n_states[v]; ++s) holds.back().push_back(holds_at(j, v, s));
    }
    each_cell(f, [&](std::int64_t cell, const std::vector<std::int32_t>& at) {
        for (std::size_t d = 0; d < at.size(); ++d)
            if (!holds[d][at[d]]) return;
        f.table[cell] += model.weights[j];
    });
}

void FactorGraph::share_out(std::uint64_t seed) {
    std::vector<std::int32_t> order(factors.size()), root(model.n_variables());
    std::vector<double> held(factors.size(), 0);
    std::iota(order.begin(), order.end(), 0);
    const auto find = [&](std::int32_t v) {
        while (root[v] != v) v = root[v] = root[root[v]];
        return v;
    };
    double forests = 0;
    for (bool all = factors.empty(); !all;) {
        const std::uint64_t turn = mix(seed + std::uint64_t(forests));
        std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
            return std::pair(held[a] > 0, mix(turn ^ std::uint64_t(a))) < std::pair(held[b] > 0, mix(turn ^ std::uint64_t(b)));
        });
        std::iota(root.begin(), root.end(), 0);
        for (const std::int32_t f : order) {
            std::vector<std::int32_t> roots;
            for (const std::int32_t v : factors[f].scope) roots.push_back(find(v));
            std::sort(roots.begin(), roots.end());
            if (std::adjacent_find(roots.begin(), roots.end()) != roots.end()) continue;
            for (const std::int32_t r : roots) root[r] = roots[0];
            ++held[f];
        }
        ++forests;
        all = std::all_of(held.begin(), held.end(), [](double h) { return h > 0; });
    }
    for (std::size_t f = 0; f < factors.size(); ++f) factors[f].share = held[f] / forests;
}

}  // namespace undirected
