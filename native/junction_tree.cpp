#include "junction_tree.hpp"
#include "dispatch.hpp"

#include <algorithm>
#include <cmath>

#include "hash.hpp"
#include "table_kernels.hpp"

namespace undirected {
namespace {

constexpr std::size_t FEW = 3;  // features that are put into a table one by one

// Calls visit(big, small, run, shared) for runs of cells of a table: `small` is where they are in a table over some of its
// dimensions, which has the run too if it is shared and one cell for all of it if not. Strides of 0 mark missing dimensions.
template <class F>
void walk(const std::vector<std::int32_t>& sizes, const std::vector<std::int64_t>& small, F&& visit) {
    std::size_t outer = sizes.size();
    std::int64_t run = 1;
    const bool shared = outer == 0 || small[outer - 1] != 0;
    while (outer > 0 && (small[outer - 1] != 0) == shared) run *= sizes[--outer];
    std::vector<std::int32_t> at(outer, 0);
    std::int64_t big = 0, offset = 0;
    for (;;) {
        visit(big, offset, run, shared);
        big += run;
        std::size_t d = outer;
        while (d > 0 && ++at[d - 1] == sizes[d - 1]) {
            offset -= small[d - 1] * (sizes[d - 1] - 1);
            at[--d] = 0;
        }
        if (d == 0) return;
        offset += small[d - 1];
    }
}

}  // namespace

JunctionTree::JunctionTree(const Model& model, const Component& component)
    : model_(model), order_(component.order), place_(model.n_variables(), -1), buckets_(component.order.size()) {
    for (std::size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = std::int32_t(i);
    for (std::size_t i = 0; i < order_.size(); ++i) buckets_[i].clique.push_back(std::int32_t(i));
    for (std::int64_t j = 0; j < model.n_features(); ++j) {
        std::int32_t first = -1;
        for (std::int64_t k = model.start[j]; k < model.start[j + 1]; ++k) {
            const std::int32_t p = place_[model.numbers.variable(model.literals[k])];
            if (first < 0 || p < first) first = p;
        }
        if (first < 0) continue;  // of another component
        buckets_[first].features.push_back(j);
        for (std::int64_t k = model.start[j]; k < model.start[j + 1]; ++k)
            buckets_[first].clique.push_back(place_[model.numbers.variable(model.literals[k])]);
    }
    std::int64_t table = 0, message = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
        Bucket& b = buckets_[i];
        std::sort(b.clique.begin(), b.clique.end());
        b.clique.erase(std::unique(b.clique.begin(), b.clique.end()), b.clique.end());
        b.cells = 1;
        for (const std::int32_t p : b.clique) {
            b.sizes.push_back(model.n_states[order_[p]]);
            b.cells *= b.sizes.back();
        }
        b.table = table;
        b.message = message;
        table += b.cells;
        message += b.cells / b.sizes[0];
        if (b.clique.size() > 1) {
            b.parent = b.clique[1];
            auto& up = buckets_[b.parent].clique;
            up.insert(up.end(), b.clique.begin() + 1, b.clique.end());
        }
    }
    for (Bucket& b : buckets_) {
        if (b.parent < 0) continue;
        const auto& up = buckets_[b.parent].clique;
        b.small.assign(up.size(), 0);
        std::int64_t stride = 1;
        std::size_t mine = b.clique.size();
        for (std::size_t d = up.size(); d-- > 0;)
            if (mine > 1 && up[d] == b.clique[mine - 1]) {
                b.small[d] = stride;
                stride *= b.sizes[--mine];
            }
    }
    tables_.assign(table, 0.0);
    messages_.assign(message, 0.0);
}

std::vector<JunctionTree::Literal> JunctionTree::literals_of(std::int64_t feature, const Bucket& bucket) const {
    std::vector<Literal> out;
    for (std::int64_t k = model_.start[feature]; k < model_.start[feature + 1]; ++k) {
        const std::int32_t l = model_.literals[k], v = model_.numbers.variable(l);
        const auto at = std::lower_bound(bucket.clique.begin(), bucket.clique.end(), place_[v]) - bucket.clique.begin();
        out.push_back({std::int32_t(at), model_.numbers.state(l), model_.numbers.negated(l)});
    }
    std::sort(out.begin(), out.end(), [](const Literal& a, const Literal& b) { return a.place < b.place; });
    return out;
}

namespace {

template <class L>
bool allows(const L* at, const L* end, std::int32_t s) {
    for (; at != end; ++at)
        if ((at->state == s) == at->negated) return false;
    return true;
}

template <class L>
const L* past(const L* at, const L* end) {
    const L* next = at;
    while (next != end && next->place == at->place) ++next;
    return next;
}

}  // namespace

// One feature: its weight in every cell in which it holds.
void JunctionTree::put(double* table, const Bucket& bucket, std::size_t d, std::int64_t cells, Item item) {
    if (item.at == item.end) return UNDIRECTED_DISPATCH(add_one(table, item.weight, cells));
    const std::int64_t below = cells / bucket.sizes[d];
    const bool bound = item.at->place == std::int32_t(d);
    const Literal* next = bound ? past(item.at, item.end) : item.at;
    for (std::int32_t s = 0; s < bucket.sizes[d]; ++s)
        if (!bound || allows(item.at, next, s)) put(table + s * below, bucket, d + 1, below, {next, item.end, item.weight});
}

// Many features: those that do not care about dimension d are worked once for all its states.
void JunctionTree::fill(double* table, const Bucket& bucket, std::size_t d, std::int64_t cells, std::vector<Item>& items) {
    if (items.size() <= FEW || d == bucket.sizes.size()) {
        for (const Item& item : items) put(table, bucket, d, cells, item);
        return;
    }
    const std::int64_t below = cells / bucket.sizes[d];
    std::vector<Item> part;
    for (std::int32_t s = 0; s < bucket.sizes[d]; ++s) {
        part.clear();
        for (const Item& item : items)
            if (item.at != item.end && item.at->place == std::int32_t(d)) {
                const Literal* next = past(item.at, item.end);
                if (allows(item.at, next, s)) part.push_back({next, item.end, item.weight});
            }
        if (!part.empty()) fill(table + s * below, bucket, d + 1, below, part);
    }
    part.clear();
    for (const Item& item : items)
        if (item.at == item.end || item.at->place != std::int32_t(d)) part.push_back(item);
    if (part.empty()) return;
    std::vector<double> common(below, 0.0);
    fill(common.data(), bucket, d + 1, below, part);
    for (std::int32_t s = 0; s < bucket.sizes[d]; ++s) UNDIRECTED_DISPATCH(add(table + s * below, common.data(), below));
}

double JunctionTree::collect(bool maximum) {
    double total = 0;
    std::fill(tables_.begin(), tables_.end(), 0.0);
    for (Bucket& b : buckets_) {
        double* table = tables_.data() + b.table;
        std::vector<std::vector<Literal>> literals;
        for (const std::int64_t j : b.features) literals.push_back(literals_of(j, b));
        std::vector<Item> items;
        for (std::size_t k = 0; k < literals.size(); ++k)
            items.push_back({literals[k].data(), literals[k].data() + literals[k].size(), model_.weights[b.features[k]]});
        fill(table, b, 0, b.cells, items);
        // Messages of buckets before this one have been added already.
        double* message = messages_.data() + b.message;
        const std::int64_t below = b.cells / b.sizes[0];
        if (maximum)
            UNDIRECTED_DISPATCH(max_out(table, b.sizes[0], below, message));
        else
            UNDIRECTED_DISPATCH(sum_out(table, b.sizes[0], below, message));
        if (b.parent < 0) {
            total += message[0];
            continue;
        }
        double* up = tables_.data() + buckets_[b.parent].table;
        walk(buckets_[b.parent].sizes, b.small, [&](std::int64_t big, std::int64_t small, std::int64_t run, bool shared) {
            if (shared)
                UNDIRECTED_DISPATCH(add(up + big, message + small, run));
            else
                UNDIRECTED_DISPATCH(add_one(up + big, message[small], run));
        });
    }
    return total;
}

double JunctionTree::mass(const double* table, const Bucket& bucket, std::size_t d, std::int64_t cells, Item item) const {
    if (item.at == item.end) return UNDIRECTED_DISPATCH(sum(table, cells));
    const std::int64_t below = cells / bucket.sizes[d];
    const bool bound = item.at->place == std::int32_t(d);
    const Literal* next = bound ? past(item.at, item.end) : item.at;
    double total = 0;
    for (std::int32_t s = 0; s < bucket.sizes[d]; ++s)
        if (!bound || allows(item.at, next, s)) total += mass(table + s * below, bucket, d + 1, below, {next, item.end, item.weight});
    return total;
}

void JunctionTree::distribute(double* marginals, double* expectations) {
    std::vector<std::vector<std::int32_t>> children(buckets_.size());
    for (std::size_t i = 0; i < buckets_.size(); ++i)
        if (buckets_[i].parent >= 0) children[buckets_[i].parent].push_back(std::int32_t(i));
    std::vector<double> mass_of, onto;
    for (std::size_t i = buckets_.size(); i-- > 0;) {
        const Bucket& b = buckets_[i];
        const std::int64_t below = b.cells / b.sizes[0];
        mass_of.resize(b.cells);
        const double high = UNDIRECTED_DISPATCH(exponentials(tables_.data() + b.table, b.cells, mass_of.data()));
        double total = 0;
        double* mine = marginals + model_.numbers.first(order_[i]);
        for (std::int32_t s = 0; s < b.sizes[0]; ++s) total += mine[s] = UNDIRECTED_DISPATCH(sum(mass_of.data() + s * below, below));
        for (std::int32_t s = 0; s < b.sizes[0]; ++s) mine[s] /= total;
        if (expectations != nullptr)
            for (const std::int64_t j : b.features) {
                const auto literals = literals_of(j, b);
                expectations[j] = mass(mass_of.data(), b, 0, b.cells, {literals.data(), literals.data() + literals.size(), 0.0}) / total;
            }
        for (const std::int32_t c : children[i]) {
            const Bucket& child = buckets_[c];
            const std::int64_t n = child.cells / child.sizes[0];
            onto.assign(n, 0.0);
            walk(b.sizes, child.small, [&](std::int64_t big, std::int64_t small, std::int64_t run, bool shared) {
                if (shared)
                    UNDIRECTED_DISPATCH(add(onto.data() + small, mass_of.data() + big, run));
                else
                    onto[small] += UNDIRECTED_DISPATCH(sum(mass_of.data() + big, run));
            });
            const double* message = messages_.data() + child.message;
            for (std::int64_t k = 0; k < n; ++k) onto[k] = std::log(onto[k]) + high - message[k];
            for (std::int32_t s = 0; s < child.sizes[0]; ++s)
                UNDIRECTED_DISPATCH(add(tables_.data() + child.table + s * n, onto.data(), n));
        }
    }
}

template <class Choose>
void JunctionTree::descend(std::int32_t* state, Choose&& choose) const {
    for (std::size_t i = buckets_.size(); i-- > 0;) {
        const Bucket& b = buckets_[i];
        const std::int64_t below = b.cells / b.sizes[0];
        std::int64_t at = 0;
        for (std::size_t d = 1; d < b.clique.size(); ++d) at = at * b.sizes[d] + state[order_[b.clique[d]]];
        state[order_[i]] = choose(i, b.sizes[0], tables_.data() + b.table + at, below);
    }
}

void JunctionTree::draw(std::uint64_t seed, std::uint64_t index, std::int32_t* state) const {
    const std::uint64_t stream = mix(seed ^ mix(index));
    descend(state, [&](std::size_t i, std::int32_t k, const double* cell, std::int64_t stride) {
        double high = cell[0], total = 0;
        for (std::int32_t s = 1; s < k; ++s) high = std::max(high, cell[s * stride]);
        for (std::int32_t s = 0; s < k; ++s) total += std::exp(cell[s * stride] - high);
        double left = double(mix(stream + std::uint64_t(order_[i])) >> 11) * 0x1p-53 * total;
        for (std::int32_t s = 0; s + 1 < k; ++s) {
            left -= std::exp(cell[s * stride] - high);
            if (left < 0) return s;
        }
        return k - 1;
    });
}

void JunctionTree::best(std::int32_t* state) const {
    descend(state, [&](std::size_t, std::int32_t k, const double* cell, std::int64_t stride) {
        std::int32_t top = 0;
        for (std::int32_t s = 1; s < k; ++s)
            if (cell[s * stride] > cell[top * stride]) top = s;
        return top;
    });
}

}  // namespace undirected
