#include "elimination.hpp"

#include <algorithm>
#include <limits>

#include "junction_tree.hpp"
#include "pool.hpp"

namespace undirected {

namespace {

constexpr double UNKNOWN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t SAMPLES_PER_TASK = 256;
constexpr double MOST_CELLS = 0x1p50;  // of a component: more could not be numbered, let alone held

}  // namespace

PlannedElimination::PlannedElimination(const Model& model, const std::uint8_t* evidence, double max_cells, int tries, std::uint64_t seed,
                                       bool want_decided)
    : model_(model),
      evidence_(evidence, evidence + model.n_literals()),
      known_(model.n_variables(), -1),
      left_(model, evidence, want_decided),
      plan_(planned(left_.model, std::min(max_cells, MOST_CELLS), tries, seed)) {
    for (std::int32_t l = 0; l < model.n_literals(); ++l)
        if (evidence_[l]) known_[model.numbers.variable(l)] = std::int16_t(model.numbers.state(l));
    for (const std::int32_t v : left_.variable) known_[v] = -1;
}

std::vector<std::int32_t> PlannedElimination::part_of_variables() const {
    std::vector<std::int32_t> out(model_.n_variables(), -1);
    for (std::size_t p = 0; p < plan_.parts.size(); ++p)
        for (const std::int32_t v : plan_.parts[p].members)
            if (v < left_.model.n_variables()) out[left_.variable[v]] = std::int32_t(p);
    return out;
}

double PlannedElimination::solve(double max_cells, double* marginals) const {
    for (std::size_t l = 0; l < evidence_.size(); ++l) marginals[l] = evidence_[l] ? 1.0 : 0.0;
    double log_z = left_.constant;
    std::vector<double> mine(plan_.model.n_literals(), UNKNOWN);
    for (const Component& part : plan_.parts) {
        if (!is_done(part, max_cells)) {
            log_z = UNKNOWN;
            continue;
        }
        JunctionTree tree(plan_.model, part);
        log_z += tree.collect(false);
        tree.distribute(mine.data(), nullptr);
    }
    for (std::size_t l = 0; l < left_.literal.size(); ++l) marginals[left_.literal[l]] = mine[l];
    return log_z;
}

double PlannedElimination::maximise(double max_cells, std::int16_t* states) const {
    std::copy(known_.begin(), known_.end(), states);
    double score = left_.constant;
    std::vector<std::int32_t> mine(plan_.model.n_variables());
    for (const Component& part : plan_.parts) {
        if (!is_done(part, max_cells)) {
            score = UNKNOWN;
            continue;
        }
        JunctionTree tree(plan_.model, part);
        score += tree.collect(true);
        tree.best(mine.data());
        put(states, part, mine.data());
    }
    return score;
}

void PlannedElimination::draw(double max_cells, std::uint64_t seed, std::int64_t n_samples, int n_threads, std::int16_t* states) const {
    const std::int64_t width = model_.n_variables();
    for (std::int64_t i = 0; i < n_samples; ++i) std::copy(known_.begin(), known_.end(), states + i * width);
    for (const Component& part : plan_.parts) {
        if (!is_done(part, max_cells)) continue;
        JunctionTree tree(plan_.model, part);
        tree.collect(false);
        parallel_for((n_samples + SAMPLES_PER_TASK - 1) / SAMPLES_PER_TASK, n_threads, [&](std::int64_t task) {
            std::vector<std::int32_t> mine(plan_.model.n_variables());
            for (std::int64_t i = task * SAMPLES_PER_TASK; i < std::min(n_samples, (task + 1) * SAMPLES_PER_TASK); ++i) {
                tree.draw(seed, std::uint64_t(i), mine.data());
                put(states + i * width, part, mine.data());
            }
        });
    }
}

void PlannedElimination::expectations(double max_cells, double* out) const {
    for (std::int64_t j = 0; j < model_.n_features(); ++j) out[j] = left_.decided[j];
    std::vector<double> marginals(plan_.model.n_literals()), mine(plan_.model.n_features(), UNKNOWN);
    for (const Component& part : plan_.parts) {
        if (!is_done(part, max_cells)) continue;
        JunctionTree tree(plan_.model, part);
        tree.collect(false);
        tree.distribute(marginals.data(), mine.data());
    }
    for (std::size_t k = 0; k < left_.feature.size(); ++k) out[left_.feature[k]] = mine[k];
}

void PlannedElimination::put(std::int16_t* states, const Component& part, const std::int32_t* found) const {
    for (const std::int32_t v : part.members) {
        if (v >= left_.model.n_variables()) continue;  // made by taking a long conjunction apart
        const std::int32_t whole = left_.variable[v];
        states[whole] = std::int16_t(model_.numbers.state(left_.literal[left_.model.numbers.number(v, found[v])]));
    }
}

}  // namespace undirected
