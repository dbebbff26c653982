// The Python face of the kernels: arrays in, arrays out, the interpreter's lock released while they work.
#include "arrays.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <utility>

#include "blocks.hpp"
#include "dispatch.hpp"
#include "gssl.hpp"
#include "inference_module.hpp"
#include "pll_tables.hpp"
#include "pool.hpp"
#include "search_module.hpp"
#include "trees.hpp"

namespace nb = nanobind;
using namespace undirected;

namespace {

void check_targets(const In<std::int32_t>& targets, std::int32_t n_variables) {
    for (std::size_t t = 0; t < targets.shape(0); ++t) expect(targets.data()[t] >= 0 && targets.data()[t] < n_variables, "no such target");
}

struct PyTables {
    std::unique_ptr<PseudoLikelihoodTables> tables;
    // A problem keeps its buffers, so that only one thread may evaluate it at a time; Gram matrices only read.
    mutable std::shared_mutex busy;

    PyTables(In<std::uint64_t, 2> columns, In<std::int32_t> n_states, In<double> row_weight, In<std::int64_t> start,
             In<std::int32_t> literals, std::int64_t memory, int n_threads, nb::object targets) {
        const Table table{std::int64_t(row_weight.shape(0)),
                          std::int64_t(columns.shape(1)),
                          std::int32_t(n_states.shape(0)),
                          n_states.data(),
                          columns.data(),
                          row_weight.data()};
        In<std::int32_t> target;
        if (!targets.is_none()) {
            target = nb::cast<In<std::int32_t>>(targets);
            expect(target.shape(0) + 1 == start.shape(0), "one target per feature");
        }
        const Features features{std::int64_t(start.shape(0)) - 1, start.data(), literals.data(),
                                targets.is_none() ? nullptr : target.data()};
        std::int64_t n_literals = 0;
        for (std::int32_t v = 0; v < table.n_variables; ++v) n_literals += table.n_states[v];
        expect(table.n_rows > 0, "a table needs at least one row");
        expect(n_literals == std::int64_t(columns.shape(0)), "one bit column per literal");
        expect(table.n_words == (table.n_rows + 63) / 64, "bit columns do not fit the rows");
        expect(features.n >= 0 && features.start[features.n] <= std::int64_t(literals.shape(0)), "feature offsets");
        for (std::int64_t j = 0; j < features.n; ++j)
            expect(features.start[j] >= 0 && features.start[j] <= features.start[j + 1], "feature offsets");
        for (std::size_t k = 0; k < literals.shape(0); ++k)
            expect(features.literals[k] >= 0 && features.literals[k] < 2 * n_literals, "literal out of range");
        nb::gil_scoped_release unlocked;
        tables = std::make_unique<PseudoLikelihoodTables>(table, features, memory, n_threads);
    }

    void check(const In<double>& weights) const {
        expect(std::int64_t(weights.shape(0)) == tables->n_features(), "one weight per feature");
    }

    void set_active(nb::object marks) {
        In<std::uint8_t> array;
        if (!marks.is_none()) {
            array = nb::cast<In<std::uint8_t>>(marks);
            expect(std::int64_t(array.shape(0)) == tables->n_features(), "one mark per feature");
        }
        const std::uint8_t* data = marks.is_none() ? nullptr : array.data();
        nb::gil_scoped_release unlocked;
        const std::unique_lock lock(busy);
        tables->set_active(data);
    }

    nb::object evaluate(In<double> weights, bool want_gradient, bool want_curvature, bool single, int n_threads) {
        check(weights);
        std::vector<double> gradient(want_gradient ? tables->n_features() : 0), curvature(want_curvature ? tables->n_features() : 0);
        double loss;
        {
            nb::gil_scoped_release unlocked;
            const std::unique_lock lock(busy);
            loss = tables->evaluate(weights.data(), want_gradient ? gradient.data() : nullptr, want_curvature ? curvature.data() : nullptr,
                                    single, n_threads);
        }
        return nb::make_tuple(loss, want_gradient ? owned(std::move(gradient)) : nb::none(),
                              want_curvature ? owned(std::move(curvature)) : nb::none());
    }

    nb::object terms(In<double> weights, int n_threads) {
        check(weights);
        std::vector<double> rows(tables->n_rows()), variables(tables->n_variables());
        {
            nb::gil_scoped_release unlocked;
            const std::unique_lock lock(busy);
            tables->terms(weights.data(), rows.data(), variables.data(), n_threads);
        }
        return nb::make_tuple(owned(std::move(rows)), owned(std::move(variables)));
    }

    nb::object probabilities(In<double> weights, std::int64_t n_literals, int n_threads) {
        check(weights);
        expect(n_literals == tables->n_literals(), "one probability per literal");
        std::vector<double> out(tables->n_rows() * n_literals);
        {
            nb::gil_scoped_release unlocked;
            const std::unique_lock lock(busy);
            tables->probabilities(weights.data(), out.data(), n_threads);
        }
        return owned(std::move(out), {std::size_t(tables->n_rows()), std::size_t(n_literals)});
    }

    std::int64_t sample(In<double> weights, std::int64_t stride, int n_threads) {
        check(weights);
        expect(stride > 0, "stride");
        nb::gil_scoped_release unlocked;
        const std::unique_lock lock(busy);
        return tables->sample(weights.data(), stride, n_threads);
    }

    nb::object gram(std::int32_t variable, In<std::int32_t> features) const {
        expect(variable >= 0 && variable < tables->n_variables(), "no such variable");
        const std::int64_t n = std::int64_t(features.shape(0));
        for (std::int64_t k = 0; k < n; ++k)
            expect(features.data()[k] >= 0 && features.data()[k] < tables->n_features(), "no such feature");
        std::vector<float> out(n * n);
        {
            nb::gil_scoped_release unlocked;
            const std::shared_lock lock(busy);
            tables->gram(variable, features.data(), n, out.data());
        }
        return owned(std::move(out), {std::size_t(n), std::size_t(n)});
    }

    void check_blocks(const In<std::int32_t>& variables, const In<std::int64_t>& start, const In<std::int32_t>& members) const {
        const std::int64_t n_blocks = std::int64_t(variables.shape(0));
        expect(std::int64_t(start.shape(0)) == n_blocks + 1 && start.data()[0] == 0 &&
                   start.data()[n_blocks] == std::int64_t(members.shape(0)),
               "offsets");
        for (std::int64_t b = 0; b < n_blocks; ++b)
            expect(start.data()[b] <= start.data()[b + 1] && variables.data()[b] >= 0 && variables.data()[b] < tables->n_variables(),
                   "blocks");
        for (std::size_t k = 0; k < members.shape(0); ++k)
            expect(members.data()[k] >= 0 && members.data()[k] < tables->n_features(), "no such feature");
    }

    nb::object factors(In<std::int32_t> variables, In<std::int64_t> start, In<std::int32_t> members, In<double> diagonal, double ridge,
                       int n_threads) const {
        check(diagonal);
        check_blocks(variables, start, members);
        std::vector<float> out;
        {
            nb::gil_scoped_release unlocked;
            const std::shared_lock lock(busy);
            out = block_factors(*tables, std::int64_t(variables.shape(0)), variables.data(), start.data(), members.data(), diagonal.data(),
                                ridge, n_threads);
        }
        return owned(std::move(out));
    }

    nb::object steps(In<std::int32_t> variables, In<std::int64_t> start, In<std::int32_t> members, In<double> gradient, In<double> weights,
                     In<double> penalty, int n_threads) const {
        check(gradient);
        check(weights);
        check(penalty);
        check_blocks(variables, start, members);
        std::vector<double> out;
        {
            nb::gil_scoped_release unlocked;
            const std::shared_lock lock(busy);
            out = block_steps(*tables, std::int64_t(variables.shape(0)), variables.data(), start.data(), members.data(), gradient.data(),
                              weights.data(), penalty.data(), n_threads);
        }
        return owned(std::move(out));
    }

    nb::dict sizes() const {
        nb::dict d;
        d["contexts"] = tables->n_contexts();
        d["listed"] = tables->n_listed();
        d["list_bytes"] = tables->list_bytes();
        d["cells"] = tables->n_cells();
        d["entries"] = tables->n_entries();
        d["held"] = tables->n_held();
        d["work"] = tables->work();
        return d;
    }
};

}  // namespace

NB_MODULE(_native, m) {
    nb::class_<PyTables>(m, "PseudoLikelihoodTables")
        .def(nb::init<In<std::uint64_t, 2>, In<std::int32_t>, In<double>, In<std::int64_t>, In<std::int32_t>, std::int64_t, int,
                      nb::object>(),
             nb::arg("columns"), nb::arg("n_states"), nb::arg("row_weight"), nb::arg("start"), nb::arg("literals"), nb::arg("memory"),
             nb::arg("threads"), nb::arg("targets") = nb::none())
        .def("set_active", &PyTables::set_active, nb::arg("marks").none())
        .def("evaluate", &PyTables::evaluate, nb::arg("weights"), nb::arg("gradient"), nb::arg("curvature"), nb::arg("single"),
             nb::arg("threads"))
        .def("terms", &PyTables::terms, nb::arg("weights"), nb::arg("threads"))
        .def("probabilities", &PyTables::probabilities, nb::arg("weights"), nb::arg("n_literals"), nb::arg("threads"))
        .def("sample", &PyTables::sample, nb::arg("weights"), nb::arg("stride"), nb::arg("threads"))
        .def("gram", &PyTables::gram, nb::arg("variable"), nb::arg("features"))
        .def("factors", &PyTables::factors, nb::arg("variables"), nb::arg("start"), nb::arg("members"), nb::arg("diagonal"),
             nb::arg("ridge"), nb::arg("threads"))
        .def("steps", &PyTables::steps, nb::arg("variables"), nb::arg("start"), nb::arg("members"), nb::arg("gradient"), nb::arg("weights"),
             nb::arg("penalty"), nb::arg("threads"))
        .def("sizes", &PyTables::sizes);
    m.def(
        "gssl_generate",
        [](In<std::int64_t> start, In<std::int32_t> literals, std::int64_t n_generated, std::int64_t threshold, std::uint64_t seed,
           int n_threads) {
            for (std::size_t k = 0; k + 1 < start.shape(0); ++k)
                expect(start.data()[k] >= 0 && start.data()[k] <= start.data()[k + 1], "offsets");
            expect(start.shape(0) > 0 && start.data()[start.shape(0) - 1] <= std::int64_t(literals.shape(0)), "offsets");
            Generated g;
            {
                nb::gil_scoped_release unlocked;
                g = gssl_generate(std::int64_t(start.shape(0)) - 1, start.data(), literals.data(), n_generated, threshold, seed, n_threads);
            }
            return nb::make_tuple(owned(std::move(g.start)), owned(std::move(g.literals)), owned(std::move(g.count)), g.n_listed,
                                  g.n_unique);
        },
        nb::arg("start"), nb::arg("literals"), nb::arg("n_generated"), nb::arg("threshold"), nb::arg("seed"), nb::arg("threads"));
    m.def(
        "grow_trees",
        [](In<std::int16_t, 2> codes, In<std::int32_t> n_states, In<double> row_weight, In<std::int32_t> targets, double min_rows,
           double min_gain, int n_threads, nb::callable go_on) {
            const CodeTable table = code_table(codes, n_states, row_weight);
            check_targets(targets, table.n_variables);
            const auto asked = [&](std::int64_t done) {
                nb::gil_scoped_acquire locked;
                return nb::cast<bool>(go_on(done));
            };
            Trees trees;
            {
                nb::gil_scoped_release unlocked;
                trees = grow_trees(table, targets.data(), std::int64_t(targets.shape(0)), min_rows, min_gain, n_threads, asked);
            }
            return nb::make_tuple(owned(std::move(trees.start)), owned(std::move(trees.test)), owned(std::move(trees.yes)),
                                  owned(std::move(trees.no)), owned(std::move(trees.gain)), owned(std::move(trees.count_start)),
                                  owned(std::move(trees.count)));
        },
        nb::arg("codes"), nb::arg("n_states"), nb::arg("row_weight"), nb::arg("targets"), nb::arg("min_rows"), nb::arg("min_gain"),
        nb::arg("threads"), nb::arg("go_on"));
    m.def(
        "walk_trees",
        [](In<std::int16_t, 2> codes, In<std::int32_t> n_states, In<double> row_weight, In<std::int32_t> targets, In<std::int64_t> start,
           In<std::int32_t> test, In<std::int32_t> yes, In<std::int32_t> no, In<std::int64_t> count_start, In<double> value,
           int n_threads) {
            const CodeTable table = code_table(codes, n_states, row_weight);
            check_targets(targets, table.n_variables);
            const std::int64_t n_trees = std::int64_t(targets.shape(0)), n_nodes = std::int64_t(test.shape(0));
            std::int64_t n_literals = 0;
            for (std::size_t v = 0; v < n_states.shape(0); ++v) n_literals += n_states.data()[v];
            expect(std::int64_t(start.shape(0)) == n_trees + 1 && start.data()[n_trees] == n_nodes &&
                       std::int64_t(count_start.shape(0)) == n_nodes + 1 && std::int64_t(yes.shape(0)) == n_nodes &&
                       std::int64_t(no.shape(0)) == n_nodes && count_start.data()[n_nodes] == std::int64_t(value.shape(0)),
                   "trees");
            for (std::int64_t t = 0; t < n_trees; ++t) {
                expect(start.data()[t] < start.data()[t + 1], "a tree without a root");
                for (std::int64_t k = start.data()[t]; k < start.data()[t + 1]; ++k) {
                    expect(count_start.data()[k + 1] - count_start.data()[k] == n_states.data()[targets.data()[t]], "one count a state");
                    if (test.data()[k] < 0) continue;
                    const std::int64_t size = start.data()[t + 1] - start.data()[t], own = k - start.data()[t];
                    expect(test.data()[k] < n_literals && yes.data()[k] > own && no.data()[k] > own && yes.data()[k] < size &&
                               no.data()[k] < size,
                           "nodes");
                }
            }
            Walk walk;
            {
                nb::gil_scoped_release unlocked;
                walk = walk_trees(table, targets.data(), n_trees, start.data(), test.data(), yes.data(), no.data(), count_start.data(),
                                  value.data(), n_threads);
            }
            return nb::make_tuple(owned(std::move(walk.through)), owned(std::move(walk.by_row)));
        },
        nb::arg("codes"), nb::arg("n_states"), nb::arg("row_weight"), nb::arg("targets"), nb::arg("start"), nb::arg("test"), nb::arg("yes"),
        nb::arg("no"), nb::arg("count_start"), nb::arg("value"), nb::arg("threads"));
    m.def(
        "add_block",
        [](nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu> total, In<std::int64_t> places, In<float, 2> block) {
            const std::size_t n = places.shape(0), width = total.shape(1);
            expect(block.shape(0) == n && block.shape(1) == n, "a block does not fit its places");
            for (std::size_t i = 0; i < n; ++i)
                expect(places.data()[i] >= 0 && std::size_t(places.data()[i]) < std::min(width, total.shape(0)),
                       "a place outside the matrix");
            for (std::size_t i = 0; i < n; ++i) {
                float* row = total.data() + std::size_t(places.data()[i]) * width;
                for (std::size_t k = 0; k < n; ++k) row[places.data()[k]] += block.data()[i * n + k];
            }
        },
        nb::arg("total"), nb::arg("places"), nb::arg("block"));
    m.def(
        "fit_diagonal",
        [](nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu> matrix, In<double> diagonal, double ridge) {
            const std::size_t n = diagonal.shape(0);
            expect(matrix.shape(0) == n && matrix.shape(1) == n, "one diagonal entry per row");
            fit_diagonal(matrix.data(), std::int64_t(n), diagonal.data(), ridge);
        },
        nb::arg("matrix"), nb::arg("diagonal"), nb::arg("ridge"));
    m.def(
        "times_blocks",
        [](In<std::int64_t> start, In<std::int32_t> members, In<float> factors, In<float> x, In<float> y, int n_threads) {
            const std::int64_t n = std::int64_t(x.shape(0)), n_blocks = std::int64_t(start.shape(0)) - 1;
            std::int64_t entries = 0;
            for (std::int64_t b = 0; b < n_blocks; ++b) entries += factor_size(start.data()[b + 1] - start.data()[b]);
            for (std::size_t k = 0; k < members.shape(0); ++k)
                expect(members.data()[k] >= 0 && members.data()[k] < n, "a member outside the vector");
            expect(start.data()[n_blocks] <= std::int64_t(members.shape(0)), "blocks do not fit");
            expect(x.shape(0) == y.shape(0) && entries == std::int64_t(factors.shape(0)), "blocks do not fit");
            std::vector<float> out_x(n), out_y(n);
            {
                nb::gil_scoped_release unlocked;
                times_blocks(n, n_blocks, start.data(), members.data(), factors.data(), x.data(), y.data(), out_x.data(), out_y.data(),
                             n_threads);
            }
            return nb::make_tuple(owned(std::move(out_x)), owned(std::move(out_y)));
        },
        nb::arg("start"), nb::arg("members"), nb::arg("factors"), nb::arg("x"), nb::arg("y"), nb::arg("threads"));
    bind_inference(m);
    bind_search(m);
    m.def("instruction_set", &instruction_set);
    m.def("instruction_sets", &instruction_sets);
    m.def("set_instruction_set", &set_instruction_set, nb::arg("name"));
}
