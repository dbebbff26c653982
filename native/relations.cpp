// Beliefs about the attributes of linked entities, changed one attribute at a time.
#include "relations.hpp"

#include <algorithm>
#include <cmath>

namespace undirected {
namespace {

double plog(double p) { return p > 0 ? p * std::log(p) : 0.0; }

}  // namespace

std::int32_t RelationField::add_type(Type type) {
    types_.push_back(std::move(type));
    of_source_.emplace_back();
    return std::int32_t(types_.size()) - 1;
}

std::int32_t RelationField::add_reach(Reach reach) {
    of_source_[reach.source].push_back(std::int32_t(reaches_.size()));
    reaches_.push_back(std::move(reach));
    return std::int32_t(reaches_.size()) - 1;
}

void RelationField::add_block(std::int32_t type, Block block) {
    types_[type].blocks.push_back(std::int32_t(blocks_.size()));
    blocks_.push_back(std::move(block));
}

void RelationField::set_weights(std::int32_t type, const double* weights) {
    std::copy(weights, weights + types_[type].weights.size(), types_[type].weights.begin());
}

// The logit of one active state.
double RelationField::look_up(const Type& type, std::int32_t entity, const double* weights) const {
    double logit = weights[0];
    for (const std::int32_t b : type.blocks) {
        const Block& block = blocks_[b];
        const Type& end = types_[block.end];
        const std::int64_t row = block.rows.empty() ? entity : block.rows[entity];
        const double* w = weights + block.at - block.first;
        if (row >= 0) {
            const double* sums =
                block.reach < 0 ? end.values.data() + row * end.width : reaches_[block.reach].sums.data() + row * end.width;
            for (std::int32_t j = block.first; j < block.last; ++j) logit += w[j] * sums[j];
        }
        if (!block.own.empty() && block.own[entity]) {
            const double* mine = end.values.data() + std::int64_t(entity) * end.width;
            for (std::int32_t j = block.first; j < block.last; ++j) logit -= w[j] * mine[j];
        }
    }
    return logit;
}

// The probabilities of the active states `from` to `to`, which are those of one attribute.
void RelationField::find_chances(const Type& type, std::int32_t entity, std::int32_t from, std::int32_t to) {
    const std::int32_t k = to - from;
    logits_.resize(k);
    chances_.resize(k);
    double top = 0;
    for (std::int32_t a = 0; a < k; ++a) {
        logits_[a] = look_up(type, entity, type.weights.data() + (from + a) * type.design);
        top = std::max(top, logits_[a]);
    }
    double total = std::exp(-top);
    for (std::int32_t a = 0; a < k; ++a) total += chances_[a] = std::exp(logits_[a] - top);
    for (double& p : chances_) p /= total;
}

void RelationField::set_value(std::int32_t number, std::int32_t entity, std::int32_t column, double value) {
    Type& type = types_[number];
    double& old = type.values[std::int64_t(entity) * type.width + column];
    const double change = value - old;
    if (change == 0) return;
    old = value;
    for (const std::int32_t r : of_source_[number]) {
        Reach& reach = reaches_[r];
        for (std::int64_t k = reach.start[entity]; k < reach.start[entity + 1]; ++k)
            reach.sums[reach.rows[k] * type.width + column] += change;
    }
}

RelationField::Change RelationField::sweep(const std::int32_t* cells, std::int64_t n) {
    Change out{0, 0};
    for (std::int64_t c = 0; c < n; ++c, cells += 3) {
        const Type& type = types_[cells[0]];
        const std::int32_t entity = cells[1], from = type.starts[cells[2]], to = type.starts[cells[2] + 1];
        find_chances(type, entity, from, to);
        const double* old = type.values.data() + std::int64_t(entity) * type.width + from;
        double rest_old = 1, rest_new = 1;
        for (std::int32_t a = 0; a < to - from; ++a) {
            const double change = chances_[a] - old[a];
            out.largest = std::max(out.largest, std::abs(change));
            out.energy += plog(chances_[a]) - plog(old[a]) - logits_[a] * change;
            rest_old -= old[a];
            rest_new -= chances_[a];
        }
        out.energy += plog(std::max(rest_new, 0.0)) - plog(std::max(rest_old, 0.0));
        for (std::int32_t a = 0; a < to - from; ++a) set_value(cells[0], entity, from + a, chances_[a]);
    }
    return out;
}

void RelationField::draw(const std::int32_t* cells, std::int64_t n, const double* uniform, double* chances) {
    for (std::int64_t c = 0; c < n; ++c, cells += 3) {
        const Type& type = types_[cells[0]];
        const std::int32_t entity = cells[1], from = type.starts[cells[2]], to = type.starts[cells[2] + 1];
        find_chances(type, entity, from, to);
        double below = 0;
        std::int32_t drawn = -1;  // the first state, which is not active
        for (std::int32_t a = 0; a < to - from; ++a) {
            *chances++ = chances_[a];
            below += chances_[a];
            if (drawn < 0 && uniform[c] < below) drawn = a;
        }
        for (std::int32_t a = 0; a < to - from; ++a) set_value(cells[0], entity, from + a, a == drawn ? 1.0 : 0.0);
    }
}

}  // namespace undirected
