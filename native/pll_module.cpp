// The Python face of the pseudo-likelihood and of the blocks of its Hessian.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "arrays.hpp"
#include "blocks.hpp"
#include "checks.hpp"
#include "descent.hpp"
#include "locks.hpp"
#include "modules.hpp"
#include "pll_tables.hpp"
#include "pool.hpp"

namespace nb = nanobind;
using namespace undirected;

namespace {

// Raises what Python's signal handlers raise (KeyboardInterrupt, as a rule) or what the caller's own function does, if there is one. To be
// called with the interpreter's lock given back.
std::function<void()> look_around(nb::handle watch) {
    return [watch] {
        const nb::gil_scoped_acquire locked;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        if (!watch.is_none()) watch();
    };
}

using Matrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

class PyTables {
public:
    PyTables(In<std::uint64_t, 2> columns, In<std::int32_t> n_states, In<double> row_weight, In<std::int64_t> start,
             In<std::int32_t> literals, std::int64_t memory, int n_threads, MaybeIn<std::int32_t> targets, nb::object watch) {
        const Table table = check_table(columns, n_states, row_weight);
        Features features = check_features(start, literals, LiteralNumbers(table.n_states, table.n_variables));
        if (targets) {
            expect(std::int64_t(targets->shape(0)) == features.n, "there must be one target per feature");
            check_range(*targets, -1, table.n_variables, "target");
        }
        features.target = data_of(targets);
        nb::gil_scoped_release released;
        const Watch watching(look_around(watch));  // very many features take long
        tables_ = std::make_unique<PseudoLikelihoodTables>(table, features, memory, n_threads);
    }

    void set_active(MaybeIn<std::uint8_t> marks) {
        expect(!marks || std::int64_t(marks->shape(0)) == tables_->n_features(), "there must be one mark per feature");
        lock_.change([&] { tables_->set_active(data_of(marks)); });
    }

    nb::object evaluate(In<double> weights, bool want_gradient, bool want_curvature, bool single, int n_threads) {
        check(weights);
        std::vector<double> gradient(want_gradient ? tables_->n_features() : 0), curvature(want_curvature ? tables_->n_features() : 0);
        const double loss = lock_.change([&] {
            return tables_->evaluate(weights.data(), want_gradient ? gradient.data() : nullptr, want_curvature ? curvature.data() : nullptr,
                                     single, n_threads);
        });
        return nb::make_tuple(loss, want_gradient ? owned(std::move(gradient)) : nb::none(),
                              want_curvature ? owned(std::move(curvature)) : nb::none());
    }

    nb::object terms(In<double> weights, int n_threads) {
        check(weights);
        std::vector<double> rows(tables_->n_rows()), variables(tables_->n_variables());
        lock_.change([&] { tables_->terms(weights.data(), rows.data(), variables.data(), n_threads); });
        return nb::make_tuple(owned(std::move(rows)), owned(std::move(variables)));
    }

    nb::object probabilities(In<double> weights, std::int64_t n_literals, int n_threads) {
        check(weights);
        expect(n_literals == tables_->n_literals(), "n_literals is not the number of this table's literals");
        std::vector<double> out(tables_->n_rows() * n_literals);
        lock_.change([&] { tables_->probabilities(weights.data(), out.data(), n_threads); });
        return owned(std::move(out), {std::size_t(tables_->n_rows()), std::size_t(n_literals)});
    }

    std::int64_t sample(In<double> weights, std::int64_t stride, int n_threads) {
        check(weights);
        expect(stride > 0 && stride <= std::numeric_limits<std::int32_t>::max(), "the stride must be at least one");
        return lock_.change([&] { return tables_->sample(weights.data(), stride, n_threads); });
    }

    nb::object gram(std::int32_t variable, In<std::int32_t> features) const {
        check_term(variable);
        check_range(features, 0, tables_->n_features(), "feature");
        const std::int64_t n = std::int64_t(features.shape(0));
        std::vector<float> out(n * n);
        lock_.read([&] {
            check_sample();
            tables_->gram(variable, features.data(), n, out.data());
        });
        return owned(std::move(out), {std::size_t(n), std::size_t(n)});
    }

    nb::object factors(In<std::int32_t> variables, In<std::int64_t> start, In<std::int32_t> members, In<double> diagonal, double ridge,
                       int n_threads) const {
        check(diagonal);
        const std::int64_t n = check_blocks(variables, start, members);
        return owned(lock_.read([&] {
            check_sample();
            return block_factors(*tables_, n, variables.data(), start.data(), members.data(), diagonal.data(), ridge, n_threads);
        }));
    }

    nb::object steps(In<std::int32_t> variables, In<std::int64_t> start, In<std::int32_t> members, In<double> gradient, In<double> weights,
                     In<double> penalty, int n_threads) const {
        check(gradient);
        check(weights);
        check(penalty);
        const std::int64_t n = check_blocks(variables, start, members);
        return owned(lock_.read([&] {
            check_sample();
            return block_steps(*tables_, n, variables.data(), start.data(), members.data(), gradient.data(), weights.data(), penalty.data(),
                               n_threads);
        }));
    }

    nb::dict sizes() const {
        nb::dict d;
        d["contexts"] = tables_->n_contexts();
        d["listed"] = tables_->n_listed();
        d["list_bytes"] = tables_->list_bytes();
        d["cells"] = tables_->n_cells();
        d["entries"] = tables_->n_entries();
        d["held"] = tables_->n_held();
        d["work"] = tables_->work();
        d["groups"] = tables_->n_groups();
        return d;
    }

    const PseudoLikelihoodTables& tables() const { return *tables_; }
    const ObjectLock& lock() const { return lock_; }

private:
    void check(const In<double>& values) const {
        expect(std::int64_t(values.shape(0)) == tables_->n_features(), "there must be one value per feature");
    }

    void check_term(std::int32_t variable) const {
        expect(variable >= 0 && variable < tables_->n_variables(), "no such variable");
        expect(tables_->n_states(variable) > 1, "a variable of one state has no term, and so no Hessian");
    }

    void check_sample() const { expect(tables_->n_sampled() > 0, "the Hessian is estimated from a sample: call `sample` first"); }

    std::int64_t check_blocks(const In<std::int32_t>& variables, const In<std::int64_t>& start, const In<std::int32_t>& members) const {
        const std::int64_t n_blocks = check_offsets(start, std::int64_t(members.shape(0)), "blocks");
        expect(n_blocks == std::int64_t(variables.shape(0)), "there must be one variable per block");
        for (std::int64_t b = 0; b < n_blocks; ++b) check_term(variables.data()[b]);
        check_range(members, 0, tables_->n_features(), "feature");
        return n_blocks;
    }

    std::unique_ptr<PseudoLikelihoodTables> tables_;
    ObjectLock lock_;  // an evaluation needs the tables' buffers for itself; Gram matrices only read
};

class PyDescent {
public:
    PyDescent(const PyTables& tables, int n_threads, nb::object watch) {
        descent_ = tables.lock().read([&] {
            const Watch watching(look_around(watch));
            return std::make_unique<Descent>(tables.tables(), n_threads);
        });
    }

    nb::object costs() const { return owned(std::vector<std::int64_t>(descent_->costs())); }

    void set_weights(In<double> weights, int n_threads) {
        check(weights);
        lock_.change([&] { descent_->set_weights(weights.data(), n_threads); });
    }

    nb::object spread_out(In<std::int32_t> order) const {
        check_order(order);
        return owned(lock_.read([&] { return descent_->spread_out(order.data(), std::int64_t(order.shape(0))); }));
    }

    void sweep(In<std::int32_t> order, In<double> l1, In<double> ridge, In<double> centre, Changed weights, Changed curvature,
               Changed slope, Changed gain, bool refresh, double least_gain, double least_slope, int n_threads) {
        check_order(order);
        for (const In<double>& values : {l1, ridge, centre}) check(values);
        for (const Changed& values : {weights, curvature, slope, gain}) check(values);
        lock_.change([&] {
            descent_->sweep(order.data(), std::int64_t(order.shape(0)), {l1.data(), ridge.data(), centre.data()},
                            {weights.data(), curvature.data(), slope.data(), gain.data()}, refresh, {least_gain, least_slope}, n_threads);
        });
    }

    void keep_image(std::int32_t direction, int n_threads) {
        check_direction(direction);
        lock_.change([&] {
            descent_->keep_image(direction, n_threads);
            n_images_ = std::max(n_images_, direction + 1);
        });
    }

    void set_image(std::int32_t direction, In<double> steps, int n_threads) {
        check(steps);
        expect(direction >= 0 && direction < n_images_, "no image has been kept for this direction");
        lock_.change([&] { descent_->set_image(direction, steps.data(), n_threads); });
    }

    void correct_image(std::int32_t direction, In<double> steps, int n_threads) {
        check(steps);
        expect(direction >= 0 && direction < n_images_, "no image has been kept for this direction");
        lock_.change([&] { descent_->correct_image(direction, steps.data(), n_threads); });
    }

    nb::object measure(In<double> amounts, int n_threads) const {
        const std::int32_t n = check_amounts(amounts);
        const Along found = lock_.read([&] { return descent_->measure(n, amounts.data(), n_threads); });
        std::vector<double> first(found.first, found.first + n), second(std::size_t(n) * n);
        for (std::int32_t k = 0, at = 0; k < n; ++k)
            for (std::int32_t l = 0; l <= k; ++l) second[k * n + l] = second[l * n + k] = found.second[at++];
        return nb::make_tuple(found.value, owned(std::move(first)), owned(std::move(second), {std::size_t(n), std::size_t(n)}));
    }

    void move(In<double> amounts, std::int32_t direction, In<double> steps, int n_threads) {
        check(steps);
        const std::int32_t n = check_amounts(amounts);
        expect(direction >= 0 && direction < n_images_, "no image has been kept for this direction");
        lock_.change([&] { descent_->move(n, amounts.data(), direction, steps.data(), n_threads); });
    }

private:
    template <class Values>
    void check(const Values& values) const {
        expect(std::int64_t(values.shape(0)) == descent_->n_features(), "there must be one value per feature");
    }

    // Two visits at once to one feature would disturb each other.
    void check_order(const In<std::int32_t>& order) const {
        check_range(order, 0, descent_->n_features(), "feature");
        std::vector<bool> seen(descent_->n_features());
        for (std::size_t k = 0; k < order.shape(0); ++k) {
            expect(!seen[order.data()[k]], "a feature is visited twice");
            seen[order.data()[k]] = true;
        }
    }

    static void check_direction(std::int32_t direction) { expect(direction >= 0 && direction < MOST_DIRECTIONS, "no such direction"); }

    std::int32_t check_amounts(const In<double>& amounts) const {
        expect(std::int64_t(amounts.shape(0)) <= n_images_, "there are more amounts than directions with an image");
        return std::int32_t(amounts.shape(0));
    }

    std::unique_ptr<Descent> descent_;
    std::int32_t n_images_ = 0;
    ObjectLock lock_;
};

void add_block(Matrix total, In<std::int64_t> places, In<float, 2> block) {
    const std::size_t n = places.shape(0), width = total.shape(1);
    expect(block.shape(0) == n && block.shape(1) == n, "the block does not fit its places");
    for (std::size_t i = 0; i < n; ++i)
        expect(places.data()[i] >= 0 && std::size_t(places.data()[i]) < std::min(width, total.shape(0)), "a place outside the matrix");
    for (std::size_t i = 0; i < n; ++i) {
        float* row = total.data() + std::size_t(places.data()[i]) * width;
        for (std::size_t k = 0; k < n; ++k) row[places.data()[k]] += block.data()[i * n + k];
    }
}

void fit_to_diagonal(Matrix matrix, In<double> diagonal, double ridge) {
    const std::size_t n = diagonal.shape(0);
    expect(matrix.shape(0) == n && matrix.shape(1) == n, "there must be one diagonal entry per row of a square matrix");
    fit_diagonal(matrix.data(), std::int64_t(n), diagonal.data(), ridge);
}

nb::object multiply_by_blocks(In<std::int64_t> start, In<std::int32_t> members, In<float> factors, In<float> x, In<float> y,
                              int n_threads) {
    const std::int64_t n = std::int64_t(x.shape(0)), n_blocks = check_offsets(start, std::int64_t(members.shape(0)), "blocks");
    check_range(members, 0, n, "place in the vectors");
    expect(x.shape(0) == y.shape(0), "the two vectors have different lengths");
    std::int64_t entries = 0;
    for (std::int64_t b = 0; b < n_blocks; ++b) entries += factor_size(start.data()[b + 1] - start.data()[b]);
    expect(entries == std::int64_t(factors.shape(0)), "the factors do not fit the blocks");
    std::vector<float> out_x(n), out_y(n);
    {
        nb::gil_scoped_release released;
        times_blocks(n, n_blocks, start.data(), members.data(), factors.data(), x.data(), y.data(), out_x.data(), out_y.data(), n_threads);
    }
    return nb::make_tuple(owned(std::move(out_x)), owned(std::move(out_y)));
}

}  // namespace

void bind_pseudo_likelihood(nb::module_& m) {
    nb::class_<PyTables>(m, "PseudoLikelihoodTables")
        .def(nb::init<In<std::uint64_t, 2>, In<std::int32_t>, In<double>, In<std::int64_t>, In<std::int32_t>, std::int64_t, int,
                      MaybeIn<std::int32_t>, nb::object>(),
             nb::arg("columns"), nb::arg("n_states"), nb::arg("row_weight"), nb::arg("start"), nb::arg("literals"), nb::arg("memory"),
             nb::arg("threads"), nb::arg("targets") = nb::none(), nb::arg("watch") = nb::none())
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
    nb::class_<PyDescent>(m, "Descent")
        .def(nb::init<const PyTables&, int, nb::object>(), nb::arg("tables"), nb::arg("threads"), nb::arg("watch") = nb::none())
        .def("costs", &PyDescent::costs)
        .def("set_weights", &PyDescent::set_weights, nb::arg("weights"), nb::arg("threads"))
        .def("spread_out", &PyDescent::spread_out, nb::arg("order"))
        .def("sweep", &PyDescent::sweep, nb::arg("order"), nb::arg("l1"), nb::arg("ridge"), nb::arg("centre"), nb::arg("weights"),
             nb::arg("curvature"), nb::arg("slope"), nb::arg("gain"), nb::arg("refresh"), nb::arg("least_gain"), nb::arg("least_slope"),
             nb::arg("threads"))
        .def("keep_image", &PyDescent::keep_image, nb::arg("direction"), nb::arg("threads"))
        .def("set_image", &PyDescent::set_image, nb::arg("direction"), nb::arg("steps"), nb::arg("threads"))
        .def("correct_image", &PyDescent::correct_image, nb::arg("direction"), nb::arg("steps"), nb::arg("threads"))
        .def("measure", &PyDescent::measure, nb::arg("amounts"), nb::arg("threads"))
        .def("move", &PyDescent::move, nb::arg("amounts"), nb::arg("direction"), nb::arg("steps"), nb::arg("threads"));
    m.def("add_block", &add_block, nb::arg("total"), nb::arg("places"), nb::arg("block"));
    m.def("fit_diagonal", &fit_to_diagonal, nb::arg("matrix"), nb::arg("diagonal"), nb::arg("ridge"));
    m.def("times_blocks", &multiply_by_blocks, nb::arg("start"), nb::arg("members"), nb::arg("factors"), nb::arg("x"), nb::arg("y"),
          nb::arg("threads"));
}
