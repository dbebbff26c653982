// The Python face of the kernels that propose structure: trees, GSSL's generation, tests of independence.
#include <limits>
#include <utility>

#include "arrays.hpp"
#include "checks.hpp"
#include "gssl.hpp"
#include "modules.hpp"
#include "strata.hpp"
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
    for (std::int64_t t = 0; t < n_trees; ++t) {
        const std::int64_t root = start.data()[t], size = start.data()[t + 1] - root;
        expect(size > 0, "a tree has no root");
        for (std::int64_t k = root; k < root + size; ++k) {
            expect(count_start.data()[k + 1] - count_start.data()[k] == table.n_states[targets.data()[t]],
                   "a node needs one count per state of its target");
            if (test.data()[k] < 0) continue;
            expect(test.data()[k] < n_literals, "a node tests a literal that does not exist");
            for (const std::int32_t child : {yes.data()[k], no.data()[k]})
                expect(child > k - root && child < size, "a node's children come after it, within its tree");
        }
    }
    Walk out;
    {
        nb::gil_scoped_release released;
        out = walk_trees(table, targets.data(), n_trees, start.data(), test.data(), yes.data(), no.data(), count_start.data(), value.data(),
                         n_threads);
    }
    return nb::make_tuple(owned(std::move(out.through)), owned(std::move(out.by_row)));
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
