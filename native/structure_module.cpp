// The Python face of the kernels that propose structure: trees, GSSL's generation, tests of independence.
#include <limits>
#include <utility>

#include "arrays.hpp"
#include "checks.hpp"
#include "clusternet.hpp"
#include "gssl.hpp"
#include "modules.hpp"
#include "slopes.hpp"
#include "strata.hpp"
#include "stream_trees.hpp"
#include "trees.hpp"

namespace nb = nanobind;
using namespace undirected;

namespace {

nb::object generate(In<std::int64_t> start, In<std::int32_t> literals, std::int64_t n_generated, std::int64_t threshold, std::uint64_t seed,
                    int n_threads) {
    const std::int64_t n = check_offsets(start, std::int64_t(literals.shape(0)), "conjunctions");
    expect(n_generated <= std::numeric_limits<std::int32_t>::max(), "no more than 2^31 - 1 conjunctions can be generated");
    Generated g;
    {
        nb::gil_scoped_release released;
        g = gssl_generate(n, start.data(), literals.data(), n_generated, threshold, seed, n_threads);
    }
    return nb::make_tuple(owned(std::move(g.start)), owned(std::move(g.literals)), owned(std::move(g.count)), g.n_listed, g.n_unique);
}

Clustered check_clustered(In<std::int32_t> cluster, In<std::int64_t> start, In<std::int32_t> literals, std::int32_t n_clusters,
                          std::int32_t n_literals) {
    const std::int64_t n = check_offsets(start, std::int64_t(literals.shape(0)), "conjunctions");
    expect(std::int64_t(cluster.shape(0)) == n, "there must be one cluster per conjunction");
    check_range(cluster, 0, n_clusters, "cluster");
    check_range(literals, 0, n_literals, "literal");
    return {n, cluster.data(), start.data(), literals.data()};
}

nb::object generate_in_clusters(std::int32_t n_clusters, std::int32_t n_literals, In<std::int32_t> row_cluster, In<std::int64_t> row_start,
                                In<std::int32_t> row_literals, In<std::int32_t> cluster, In<std::int64_t> start, In<std::int32_t> literals,
                                std::int64_t rounds, std::int64_t alpha, std::int32_t support, std::uint64_t seed) {
    expect(n_clusters >= 0 && n_literals >= 0, "there cannot be fewer than no clusters or literals");
    expect(rounds >= 0 && rounds < 1 << 30, "no such number of rounds");
    expect(alpha >= 0 && alpha <= std::numeric_limits<std::int32_t>::max(), "no more than 2^31 - 1 can be drawn in a round");
    expect(support >= 0 && support <= 2, "no such kind of support");
    const Clustered rows = check_clustered(row_cluster, row_start, row_literals, n_clusters, n_literals);
    const Clustered fresh = check_clustered(cluster, start, literals, n_clusters, n_literals);
    NewInClusters found;
    {
        nb::gil_scoped_release released;
        found = clusternet_generate(n_clusters, rows, fresh, n_literals, rounds, alpha, Support(support), seed);
    }
    return nb::make_tuple(owned(std::move(found.cluster)), owned(std::move(found.start)), owned(std::move(found.literals)));
}

nb::object grow(In<std::int16_t, 2> codes, In<std::int32_t> n_states, In<double> row_weight, In<std::int32_t> targets, double min_rows,
                double min_gain, int n_threads, nb::callable go_on) {
    const CodeTable table = check_codes(codes, n_states, row_weight);
    check_range(targets, 0, table.n_variables, "target");
    expect(min_rows > 0 || min_gain >= 0, "splits that neither need rows nor gain anything would never end: raise min_rows or min_gain");
    const auto asked = [&](std::int64_t done) {
        nb::gil_scoped_acquire locked;
        return nb::cast<bool>(go_on(done));
    };
    Trees trees;
    {
        nb::gil_scoped_release released;
        trees = grow_trees(table, targets.data(), std::int64_t(targets.shape(0)), min_rows, min_gain, n_threads, asked);
    }
    return nb::make_tuple(owned(std::move(trees.start)), owned(std::move(trees.test)), owned(std::move(trees.yes)),
                          owned(std::move(trees.no)), owned(std::move(trees.gain)), owned(std::move(trees.count_start)),
                          owned(std::move(trees.count)));
}

// Every tree has a root, every node a count for each state of its target, and children that come after it.
void check_nodes(const CodeTable& table, std::int32_t n_literals, const std::int32_t* targets, std::int64_t n_trees,
                 const std::int64_t* start, const std::int32_t* test, const std::int32_t* yes, const std::int32_t* no,
                 const std::int64_t* count_start) {
    for (std::int64_t t = 0; t < n_trees; ++t) {
        const std::int64_t root = start[t], size = start[t + 1] - root;
        expect(size > 0, "a tree has no root");
        for (std::int64_t k = root; k < root + size; ++k) {
            expect(count_start[k + 1] - count_start[k] == table.n_states[targets[t]], "a node needs one count per state of its target");
            if (test[k] < 0) continue;
            expect(test[k] < n_literals, "a node tests a literal that does not exist");
            for (const std::int32_t child : {yes[k], no[k]})
                expect(child > k - root && child < size, "a node's children come after it, within its tree");
        }
    }
}

nb::object walk(In<std::int16_t, 2> codes, In<std::int32_t> n_states, In<double> row_weight, In<std::int32_t> targets,
                In<std::int64_t> start, In<std::int32_t> test, In<std::int32_t> yes, In<std::int32_t> no, In<std::int64_t> count_start,
                In<double> value, int n_threads) {
    const CodeTable table = check_codes(codes, n_states, row_weight);
    const std::int32_t n_literals = LiteralNumbers(table.n_states, table.n_variables).count();
    const std::int64_t n_nodes = std::int64_t(test.shape(0)), n_trees = check_offsets(start, n_nodes, "trees");
    check_range(targets, 0, table.n_variables, "target");
    expect(std::int64_t(targets.shape(0)) == n_trees, "there must be one target per tree");
    expect(std::int64_t(yes.shape(0)) == n_nodes && std::int64_t(no.shape(0)) == n_nodes, "there must be two children per node");
    expect(check_offsets(count_start, std::int64_t(value.shape(0)), "counts of nodes") == n_nodes, "there must be one offset per node");
    check_nodes(table, n_literals, targets.data(), n_trees, start.data(), test.data(), yes.data(), no.data(), count_start.data());
    Walk out;
    {
        nb::gil_scoped_release released;
        out = walk_trees(table, targets.data(), n_trees, start.data(), test.data(), yes.data(), no.data(), count_start.data(), value.data(),
                         n_threads);
    }
    return nb::make_tuple(owned(std::move(out.through)), owned(std::move(out.by_row)));
}

void count_rows_at_leaves(In<std::int16_t, 2> codes, In<std::int32_t> n_states, In<double> row_weight, In<std::int32_t> common,
                          In<std::int32_t> targets, In<std::int64_t> start, In<std::int32_t> test, In<std::int32_t> yes,
                          In<std::int32_t> no, In<std::int64_t> count_start, In<std::int64_t> block, Changed count, Changed seen,
                          int n_threads) {
    const CodeTable table = check_codes(codes, n_states, row_weight);
    const std::int32_t n_literals = LiteralNumbers(table.n_states, table.n_variables).count();
    const std::int64_t n_nodes = std::int64_t(test.shape(0)), n_trees = check_offsets(start, n_nodes, "trees");
    check_range(targets, 0, table.n_variables, "target");
    expect(std::int64_t(targets.shape(0)) == n_trees, "there must be one target per tree");
    expect(std::int64_t(yes.shape(0)) == n_nodes && std::int64_t(no.shape(0)) == n_nodes, "there must be two children per node");
    expect(std::int64_t(common.shape(0)) == table.n_variables, "there must be one common state per variable");
    for (std::int32_t v = 0; v < table.n_variables; ++v)
        expect(common.data()[v] >= 0 && common.data()[v] < table.n_states[v], "a common state does not exist");
    expect(check_offsets(count_start, std::int64_t(count.shape(0)), "counts of nodes") == n_nodes, "there must be one offset per node");
    check_nodes(table, n_literals, targets.data(), n_trees, start.data(), test.data(), yes.data(), no.data(), count_start.data());
    expect(std::int64_t(block.shape(0)) == n_nodes, "there must be one block or none per node");
    for (std::int64_t t = 0; t < n_trees; ++t)
        for (std::int64_t k = start.data()[t]; k < start.data()[t + 1]; ++k)
            expect(block.data()[k] < 0 ||
                       (test.data()[k] < 0 &&
                        block.data()[k] <= std::int64_t(seen.shape(0)) - std::int64_t(n_literals) * table.n_states[targets.data()[t]]),
                   "the counts of a leaf do not fit");
    nb::gil_scoped_release released;
    count_at_leaves(Uncommon(table, common.data()),
                    {n_trees, targets.data(), start.data(), test.data(), yes.data(), no.data(), count_start.data(), block.data()},
                    count.data(), seen.data(), n_threads);
}

nb::object slopes(In<std::uint64_t, 2> columns, In<std::int32_t> n_states, In<double> row_weight, In<std::int64_t> start,
                  In<std::int32_t> literals, In<double, 2> residual, int n_threads) {
    const Table table = check_table(columns, n_states, row_weight);
    const LiteralNumbers numbers(table.n_states, table.n_variables);
    const Features features = check_features(start, literals, numbers);
    expect(residual.shape(0) == std::size_t(numbers.count()) && std::int64_t(residual.shape(1)) == table.n_rows,
           "there must be one residual per literal and row");
    std::vector<double> slope(features.n), square(features.n);
    {
        nb::gil_scoped_release released;
        find_slopes(table, features, residual.data(), slope.data(), square.data(), n_threads);
    }
    return nb::make_tuple(owned(std::move(slope)), owned(std::move(square)));
}

nb::object support(In<std::uint64_t, 2> columns, In<std::int32_t> n_states, In<double> row_weight, In<std::int64_t> start,
                   In<std::int32_t> literals, int n_threads) {
    const Table table = check_table(columns, n_states, row_weight);
    const Features features = check_features(start, literals, LiteralNumbers(table.n_states, table.n_variables));
    std::vector<double> out(features.n);
    {
        nb::gil_scoped_release released;
        find_support(table, features, out.data(), n_threads);
    }
    return owned(std::move(out));
}

nb::object combine_strata(In<std::int32_t> a, std::int32_t n_a, In<std::int32_t> b, std::int32_t n_b) {
    expect(a.shape(0) == b.shape(0), "there must be two numbers per row");
    expect(n_a >= 0 && n_b >= 0, "there cannot be fewer than no strata");
    check_range(a, 0, n_a, "stratum");
    check_range(b, 0, n_b, "stratum");
    std::vector<std::int32_t> out(a.shape(0));
    std::int32_t n;
    {
        nb::gil_scoped_release released;
        n = combine(a.data(), n_a, b.data(), n_b, std::int64_t(a.shape(0)), out.data());
    }
    return nb::make_tuple(owned(std::move(out)), n);
}

// Never changes after it was made: it needs no lock. The table is copied, because the caller's may change.
class PyStrata {
public:
    PyStrata(In<std::int16_t, 2> codes, In<std::int32_t> n_states, In<double> row_weight)
        : checked_(check_codes(codes, n_states, row_weight)),
          codes_(checked_.codes, checked_.codes + checked_.n_rows * checked_.n_variables),
          n_states_(checked_.n_states, checked_.n_states + checked_.n_variables),
          row_weight_(checked_.row_weight, checked_.row_weight + checked_.n_rows),
          strata_({checked_.n_rows, checked_.n_variables, n_states_.data(), codes_.data(), row_weight_.data()}) {}

    nb::object test(In<std::int32_t> stratum, std::int32_t n_strata, std::int32_t target, In<std::int32_t> others, double least_expected,
                    double enough_seen) const {
        const CodeTable& table = strata_.table();
        expect(std::int64_t(stratum.shape(0)) == table.n_rows, "there must be one stratum per row");
        expect(n_strata >= 0, "there cannot be fewer than no strata");
        check_range(stratum, 0, n_strata, "stratum");
        expect(target >= 0 && target < table.n_variables, "no such target");
        check_range(others, 0, table.n_variables, "variable");
        Dependence found;
        {
            nb::gil_scoped_release released;
            found =
                strata_.test(stratum.data(), n_strata, target, others.data(), std::int64_t(others.shape(0)), least_expected, enough_seen);
        }
        return nb::make_tuple(owned(std::move(found.chi)), owned(std::move(found.free)));
    }

private:
    CodeTable checked_;  // the caller's, used only while this object is made
    std::vector<std::int16_t> codes_;
    std::vector<std::int32_t> n_states_;
    std::vector<double> row_weight_;
    Strata strata_;
};

}  // namespace

void bind_structure(nb::module_& m) {
    m.def("gssl_generate", &generate, nb::arg("start"), nb::arg("literals"), nb::arg("n_generated"), nb::arg("threshold"), nb::arg("seed"),
          nb::arg("threads"));
    m.def("clusternet_generate", &generate_in_clusters, nb::arg("n_clusters"), nb::arg("n_literals"), nb::arg("row_cluster"),
          nb::arg("row_start"), nb::arg("row_literals"), nb::arg("cluster"), nb::arg("start"), nb::arg("literals"), nb::arg("rounds"),
          nb::arg("alpha"), nb::arg("support"), nb::arg("seed"));
    m.def("find_slopes", &slopes, nb::arg("columns"), nb::arg("n_states"), nb::arg("row_weight"), nb::arg("start"), nb::arg("literals"),
          nb::arg("residual"), nb::arg("threads"));
    m.def("find_support", &support, nb::arg("columns"), nb::arg("n_states"), nb::arg("row_weight"), nb::arg("start"), nb::arg("literals"),
          nb::arg("threads"));
    m.def("count_at_leaves", &count_rows_at_leaves, nb::arg("codes"), nb::arg("n_states"), nb::arg("row_weight"), nb::arg("common"),
          nb::arg("targets"), nb::arg("start"), nb::arg("test"), nb::arg("yes"), nb::arg("no"), nb::arg("count_start"), nb::arg("block"),
          nb::arg("count"), nb::arg("seen"), nb::arg("threads"));
    m.def("grow_trees", &grow, nb::arg("codes"), nb::arg("n_states"), nb::arg("row_weight"), nb::arg("targets"), nb::arg("min_rows"),
          nb::arg("min_gain"), nb::arg("threads"), nb::arg("go_on"));
    m.def("walk_trees", &walk, nb::arg("codes"), nb::arg("n_states"), nb::arg("row_weight"), nb::arg("targets"), nb::arg("start"),
          nb::arg("test"), nb::arg("yes"), nb::arg("no"), nb::arg("count_start"), nb::arg("value"), nb::arg("threads"));
    m.def("combine", &combine_strata, nb::arg("a"), nb::arg("n_a"), nb::arg("b"), nb::arg("n_b"));
    nb::class_<PyStrata>(m, "Strata")
        .def(nb::init<In<std::int16_t, 2>, In<std::int32_t>, In<double>>(), nb::arg("codes"), nb::arg("n_states"), nb::arg("row_weight"))
        .def("test", &PyStrata::test, nb::arg("stratum"), nb::arg("n_strata"), nb::arg("target"), nb::arg("others"),
             nb::arg("least_expected"), nb::arg("enough_seen"));
}
