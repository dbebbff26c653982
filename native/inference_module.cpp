// The Python face of inference.
#include "arrays.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "checks.hpp"
#include "gibbs.hpp"
#include "junction_tree.hpp"
#include "locks.hpp"
#include "mcsat.hpp"
#include "messages.hpp"
#include "model.hpp"
#include "modules.hpp"
#include "pool.hpp"

namespace nb = nanobind;
using namespace undirected;

namespace {

constexpr double UNKNOWN = std::numeric_limits<double>::quiet_NaN();
constexpr double MOST_CELLS = 0x1p50;  // of a component: more could not be numbered, let alone held

// Never changes after it was made: it needs no lock.
struct PyModel {
    Model model;

    PyModel(In<std::int32_t> n_states, In<std::int64_t> start, In<std::int32_t> literals, In<double> weights) {
        model.n_states.assign(n_states.data(), n_states.data() + n_states.shape(0));
        model.numbers = check_states(n_states);
        const Features given = check_features(start, literals, model.numbers);
        expect(std::int64_t(weights.shape(0)) == given.n, "there must be one weight per feature");
        for (std::int64_t j = 0; j < given.n; ++j) expect(std::isfinite(weights.data()[j]), "weights must be finite");
        model.start.assign(start.data(), start.data() + start.shape(0));
        model.literals.assign(literals.data(), literals.data() + literals.shape(0));
        model.weights.assign(weights.data(), weights.data() + weights.shape(0));
    }

    void check(const std::uint8_t* evidence) const {
        for (std::int32_t v = 0; v < model.n_variables(); ++v) {
            bool any = false;
            for (std::int32_t l = model.numbers.first(v); l < model.numbers.end(v); ++l) any = any || evidence[l];
            expect(any, "evidence leaves a variable without a state");
        }
    }

    std::int64_t check(const In<std::uint8_t, 2>& evidence) const {
        expect(std::int64_t(evidence.shape(1)) == model.n_literals(), "there must be one mark per literal");
        for (std::size_t r = 0; r < evidence.shape(0); ++r) check(evidence.data() + r * evidence.shape(1));
        return std::int64_t(evidence.shape(0));
    }

    // The component of each variable (-1: none, its state is known), and per component cells, the largest clique's, width, whether
    // solvable.
    nb::object components(In<std::uint8_t, 2> evidence, double max_cells, int tries, std::uint64_t seed) const {
        expect(check(evidence) == 1, "one row of evidence is expected");
        std::vector<std::int32_t> owner(model.n_variables(), -1), width;
        std::vector<double> cells, largest;
        std::vector<std::uint8_t> solvable;
        {
            nb::gil_scoped_release released;
            const Reduced left(model, evidence.data());
            for (const Component& part : planned(left.model, std::min(max_cells, MOST_CELLS), tries, seed).parts) {
                for (const std::int32_t v : part.members)
                    if (v < left.model.n_variables()) owner[left.variable[v]] = std::int32_t(cells.size());
                cells.push_back(part.cells);
                largest.push_back(part.largest);
                width.push_back(part.width);
                solvable.push_back(part.solvable());
            }
        }
        return nb::make_tuple(owned(std::move(owner)), owned(std::move(cells)), owned(std::move(largest)), owned(std::move(width)),
                              owned(std::move(solvable)));
    }

    // Marginals by row and literal and log partition functions by row; NaN where a component is too expensive.
    nb::object solve(In<std::uint8_t, 2> evidence, double max_cells, int tries, std::uint64_t seed, int n_threads) const {
        const std::int64_t rows = check(evidence), n = model.n_literals();
        std::vector<double> marginals(rows * n), log_z(rows);
        {
            nb::gil_scoped_release released;
            parallel_for(rows, n_threads, [&](std::int64_t r) {
                const Reduced left(model, evidence.data() + r * n);
                double* out = marginals.data() + r * n;
                for (std::int64_t l = 0; l < n; ++l) out[l] = evidence.data()[r * n + l] ? 1.0 : 0.0;
                log_z[r] = left.constant;
                const Elimination plan = planned(left.model, std::min(max_cells, MOST_CELLS), tries, seed);
                std::vector<double> mine(plan.model.n_literals(), UNKNOWN);
                for (const Component& part : plan.parts) {
                    if (!part.solvable()) {
                        log_z[r] = UNKNOWN;
                        continue;
                    }
                    JunctionTree tree(plan.model, part);
                    log_z[r] += tree.collect(false);
                    tree.distribute(mine.data(), nullptr);
                }
                for (std::size_t l = 0; l < left.literal.size(); ++l) out[left.literal[l]] = mine[l];
            });
        }
        const std::size_t width = std::size_t(n);
        return nb::make_tuple(owned(std::move(marginals), {std::size_t(rows), width}), owned(std::move(log_z)));
    }

    // The probability of each feature; NaN where its component is too expensive.
    nb::object expectations(In<std::uint8_t, 2> evidence, double max_cells, int tries, std::uint64_t seed) const {
        expect(check(evidence) == 1, "one row of evidence is expected");
        std::vector<double> out(model.n_features());
        {
            nb::gil_scoped_release released;
            const Reduced left(model, evidence.data(), true);
            for (std::int64_t j = 0; j < model.n_features(); ++j) out[j] = left.decided[j];
            const Elimination plan = planned(left.model, std::min(max_cells, MOST_CELLS), tries, seed);
            std::vector<double> marginals(plan.model.n_literals()), mine(plan.model.n_features(), UNKNOWN);
            for (const Component& part : plan.parts) {
                if (!part.solvable()) continue;
                JunctionTree tree(plan.model, part);
                tree.collect(false);
                tree.distribute(marginals.data(), mine.data());
            }
            for (std::size_t k = 0; k < left.feature.size(); ++k) out[left.feature[k]] = mine[k];
        }
        return owned(std::move(out));
    }

    // Exact samples; -1 where a component is too expensive.
    nb::object draw(In<std::uint8_t, 2> evidence, std::int64_t n_samples, double max_cells, int tries, std::uint64_t seed,
                    int n_threads) const {
        expect(check(evidence) == 1, "one row of evidence is expected");
        expect(n_samples >= 0, "there cannot be fewer than no samples");
        const std::size_t width = std::size_t(model.n_variables());
        std::vector<std::int16_t> out(std::size_t(n_samples) * width, -1);
        {
            nb::gil_scoped_release released;
            const Reduced left(model, evidence.data());
            std::vector<std::int16_t> known(width, -1);
            for (std::int32_t l = 0; l < model.n_literals(); ++l)
                if (evidence.data()[l]) known[model.numbers.variable(l)] = std::int16_t(model.numbers.state(l));
            for (const std::int32_t v : left.variable) known[v] = -1;
            for (std::int64_t i = 0; i < n_samples; ++i) std::copy(known.begin(), known.end(), out.begin() + i * std::int64_t(width));
            const Elimination plan = planned(left.model, std::min(max_cells, MOST_CELLS), tries, seed);
            for (const Component& part : plan.parts) {
                if (!part.solvable()) continue;
                JunctionTree tree(plan.model, part);
                tree.collect(false);
                parallel_for((n_samples + 255) / 256, n_threads, [&](std::int64_t chunk) {
                    std::vector<std::int32_t> state(plan.model.n_variables());
                    for (std::int64_t i = chunk * 256; i < std::min(n_samples, (chunk + 1) * 256); ++i) {
                        tree.draw(seed, std::uint64_t(i), state.data());
                        for (const std::int32_t v : part.members)
                            if (v < left.model.n_variables()) put(out.data() + std::size_t(i) * width, left, v, state[v]);
                    }
                });
            }
        }
        return owned(std::move(out), {std::size_t(n_samples), width});
    }

    // Best states by row and their scores; -1 and NaN where a component is too expensive.
    nb::object maximise(In<std::uint8_t, 2> evidence, double max_cells, int tries, std::uint64_t seed, int n_threads) const {
        const std::int64_t rows = check(evidence), n = model.n_literals();
        const std::size_t width = std::size_t(model.n_variables());
        std::vector<std::int16_t> out(std::size_t(rows) * width, -1);
        std::vector<double> score(rows);
        {
            nb::gil_scoped_release released;
            parallel_for(rows, n_threads, [&](std::int64_t r) {
                const std::uint8_t* marks = evidence.data() + r * n;
                std::int16_t* state = out.data() + std::size_t(r) * width;
                const Reduced left(model, marks);
                for (std::int32_t l = 0; l < model.n_literals(); ++l)
                    if (marks[l]) state[model.numbers.variable(l)] = std::int16_t(model.numbers.state(l));
                for (const std::int32_t v : left.variable) state[v] = -1;
                score[r] = left.constant;
                const Elimination plan = planned(left.model, std::min(max_cells, MOST_CELLS), tries, seed);
                std::vector<std::int32_t> mine(plan.model.n_variables());
                for (const Component& part : plan.parts) {
                    if (!part.solvable()) {
                        score[r] = UNKNOWN;
                        continue;
                    }
                    JunctionTree tree(plan.model, part);
                    score[r] += tree.collect(true);
                    tree.best(mine.data());
                    for (const std::int32_t v : part.members)
                        if (v < left.model.n_variables()) put(state, left, v, mine[v]);
                }
            });
        }
        return nb::make_tuple(owned(std::move(out), {std::size_t(rows), width}), owned(std::move(score)));
    }

    // Marginals, the log partition function or a bound on it, the residual, the number of updates, whether converged.
    template <class F>
    nb::object approximated(const In<std::uint8_t, 2>& evidence, F&& method) const {
        expect(check(evidence) == 1, "one row of evidence is expected");
        std::vector<double> out(model.n_literals());
        Approximation found;
        {
            nb::gil_scoped_release released;
            const Reduced left(model, evidence.data());
            for (std::int32_t l = 0; l < model.n_literals(); ++l) out[l] = evidence.data()[l] ? 1.0 : 0.0;
            found = method(left.model);
            found.log_z += left.constant;
            for (std::size_t l = 0; l < found.marginals.size(); ++l) out[left.literal[l]] = found.marginals[l];
        }
        return nb::make_tuple(owned(std::move(out)), found.log_z, found.residual, found.updates, found.converged);
    }

    nb::object propagate(In<std::uint8_t, 2> evidence, bool maximum, bool reweighted, double damping, double tol, std::int64_t max_rounds,
                         std::uint64_t seed) const {
        return approximated(
            evidence, [&](const Model& m) { return undirected::propagate(m, {maximum, reweighted, damping, tol, max_rounds, seed}); });
    }

    nb::object mean_field(In<std::uint8_t, 2> evidence, double tol, std::int64_t max_rounds, int tries, std::uint64_t seed) const {
        return approximated(evidence, [&](const Model& m) { return undirected::mean_field(m, tol, max_rounds, tries, seed); });
    }

    // Sums of literals by chain, last states by chain, failed slices by chain, whether each chain found a state that meets all hard
    // features. Chains start at the states `first`, if they are given.
    nb::object mcsat(In<std::uint8_t, 2> evidence, std::int64_t chains, std::int64_t burn_in, std::int64_t samples, double hard,
                     std::uint64_t seed, int n_threads, MaybeIn<std::int16_t, 2> first) const {
        expect(check(evidence) == 1 && chains > 0, "one row of evidence and at least one chain are expected");
        expect(!first || (first->shape(0) == std::size_t(chains) && first->shape(1) == std::size_t(model.n_variables())),
               "there must be a first state of every variable for every chain");
        const std::size_t n = std::size_t(model.n_literals()), width = std::size_t(model.n_variables());
        std::vector<double> sums(std::size_t(chains) * n);
        std::vector<std::int16_t> states(std::size_t(chains) * width);
        std::vector<std::int64_t> failed(chains);
        std::vector<std::uint8_t> feasible(chains);
        {
            nb::gil_scoped_release released;
            const Reduced left(model, evidence.data());
            parallel_for(chains, n_threads, [&](std::int64_t c) {
                SatOptions options;
                options.burn_in = burn_in;
                options.samples = samples;
                options.hard = hard;
                options.seed = seed * 1000003 + std::uint64_t(c);
                if (first) options.first = taken(first->data() + std::size_t(c) * width, left);
                const SatSums found = undirected::mcsat(left.model, options);
                double* out = sums.data() + std::size_t(c) * n;
                std::int16_t* state = states.data() + std::size_t(c) * width;
                for (std::int32_t l = 0; l < model.n_literals(); ++l)
                    if (evidence.data()[l]) {
                        out[l] = double(samples);
                        state[model.numbers.variable(l)] = std::int16_t(model.numbers.state(l));
                    }
                for (std::size_t l = 0; l < found.sums.size(); ++l) out[left.literal[l]] = found.sums[l];
                for (std::size_t v = 0; v < found.state.size(); ++v) put(state, left, std::int32_t(v), found.state[v]);
                failed[c] = found.failed;
                feasible[c] = found.feasible;
            });
        }
        return nb::make_tuple(owned(std::move(sums), {std::size_t(chains), n}), owned(std::move(states), {std::size_t(chains), width}),
                              owned(std::move(failed)), owned(std::move(feasible)));
    }

    // A state of all variables in the numbers of what evidence leaves; one that evidence excludes becomes the first that is left.
    std::vector<std::int32_t> taken(const std::int16_t* state, const Reduced& left) const {
        std::vector<std::int32_t> out(left.model.n_variables());
        for (std::int32_t v = 0; v < left.model.n_variables(); ++v) {
            const auto begin = left.literal.begin() + left.model.numbers.first(v), end = left.literal.begin() + left.model.numbers.end(v);
            const auto at = std::find(begin, end, model.numbers.number(left.variable[v], state[left.variable[v]]));
            out[v] = at == end ? 0 : std::int32_t(at - begin);
        }
        return out;
    }

    void put(std::int16_t* state, const Reduced& left, std::int32_t v, std::int32_t s) const {
        const std::int32_t whole = left.variable[v];
        state[whole] = std::int16_t(model.numbers.state(left.literal[left.model.numbers.number(v, s)]));
    }
};

class PySampler {
public:
    PySampler(const PyModel& given, In<std::uint8_t, 2> evidence, In<std::int32_t> row_of, In<std::int16_t, 2> states,
              In<std::int32_t> order, std::uint64_t seed)
        : n_variables_(std::size_t(given.model.n_variables())), n_literals_(std::size_t(given.model.n_literals())) {
        const std::int64_t rows = given.check(evidence);
        expect(states.shape(0) == row_of.shape(0) && states.shape(1) == n_variables_ && row_of.shape(0) > 0,
               "there must be a state of every variable for every chain, and at least one chain");
        check_range(row_of, 0, rows, "row of evidence");
        for (std::size_t i = 0; i < row_of.shape(0); ++i) {
            const std::uint8_t* marks = evidence.data() + std::size_t(row_of.data()[i]) * n_literals_;
            for (std::size_t v = 0; v < n_variables_; ++v) {
                const std::int16_t s = states.data()[i * n_variables_ + v];
                expect(s >= 0 && s < given.model.n_states[v] && marks[given.model.numbers.number(std::int32_t(v), s)],
                       "a chain starts against its evidence");
            }
        }
        check_range(order, 0, given.model.n_variables(), "variable");
        std::vector<std::uint8_t> seen(n_variables_, 0);
        expect(order.shape(0) == n_variables_, "the order must name every variable once");
        for (std::size_t k = 0; k < order.shape(0); ++k) expect(!seen[order.data()[k]]++, "the order must name every variable once");
        sampler_ = std::make_unique<Sampler>(given.model, std::vector<std::uint8_t>(evidence.data(), evidence.data() + evidence.size()),
                                             std::vector<std::int32_t>(row_of.data(), row_of.data() + row_of.size()),
                                             std::vector<std::int16_t>(states.data(), states.data() + states.size()),
                                             std::vector<std::int32_t>(order.data(), order.data() + order.size()), seed);
    }

    void run(std::int64_t n_sweeps, MaybeIn<float> beta, MaybeIn<float> reference, bool collect, bool anneal, bool greedy, int n_threads) {
        expect(n_sweeps >= 0, "there cannot be fewer than no sweeps");
        expect(!beta || std::int64_t(beta->shape(0)) == n_sweeps, "there must be one beta per sweep");
        expect(!reference || reference->shape(0) == n_literals_, "there must be one reference logit per literal");
        expect(!anneal || (beta && reference), "annealing needs betas and a reference");
        lock_.change([&] { sampler_->run(n_sweeps, data_of(beta), data_of(reference), collect, anneal, greedy, n_threads); });
    }

    nb::object scores(int n_threads) const {
        std::vector<double> out(sampler_->n_chains());
        lock_.read([&] { sampler_->scores(out.data(), n_threads); });
        return owned(std::move(out));
    }

    nb::object states() const { return copied(&Sampler::states, {chains(), n_variables_}); }
    nb::object sums() const { return copied(&Sampler::sums, {chains(), n_literals_}); }
    nb::object squares() const { return copied(&Sampler::squares, {chains(), n_literals_}); }
    nb::object log_weights() const { return copied(&Sampler::log_weights, {chains()}); }
    void reset() {
        lock_.change([&] { sampler_->reset(); });
    }

private:
    std::size_t chains() const { return std::size_t(sampler_->n_chains()); }

    // A copy of one of the sampler's arrays; zeros if nothing was collected.
    template <class T>
    nb::object copied(const std::vector<T>& (Sampler::*array)() const, const std::vector<std::size_t>& shape) const {
        std::vector<T> out = lock_.read([&] { return (*sampler_.*array)(); });
        std::size_t size = 1;
        for (const std::size_t side : shape) size *= side;
        out.resize(size);
        return owned(std::move(out), shape);
    }

    std::size_t n_variables_, n_literals_;
    std::unique_ptr<Sampler> sampler_;  // reads the model, which Python keeps alive as long as this
    ObjectLock lock_;
};

}  // namespace

void bind_inference(nb::module_& m) {
    const auto cost = [] { return nb::arg("max_cells"); };
    nb::class_<PyModel>(m, "Model")
        .def(nb::init<In<std::int32_t>, In<std::int64_t>, In<std::int32_t>, In<double>>(), nb::arg("n_states"), nb::arg("start"),
             nb::arg("literals"), nb::arg("weights"))
        .def("components", &PyModel::components, nb::arg("evidence"), cost(), nb::arg("tries"), nb::arg("seed"))
        .def("solve", &PyModel::solve, nb::arg("evidence"), cost(), nb::arg("tries"), nb::arg("seed"), nb::arg("threads"))
        .def("expectations", &PyModel::expectations, nb::arg("evidence"), cost(), nb::arg("tries"), nb::arg("seed"))
        .def("draw", &PyModel::draw, nb::arg("evidence"), nb::arg("n"), cost(), nb::arg("tries"), nb::arg("seed"), nb::arg("threads"))
        .def("propagate", &PyModel::propagate, nb::arg("evidence"), nb::arg("maximum"), nb::arg("reweighted"), nb::arg("damping"),
             nb::arg("tol"), nb::arg("max_rounds"), nb::arg("seed"))
        .def("mean_field", &PyModel::mean_field, nb::arg("evidence"), nb::arg("tol"), nb::arg("max_rounds"), nb::arg("tries"),
             nb::arg("seed"))
        .def("mcsat", &PyModel::mcsat, nb::arg("evidence"), nb::arg("chains"), nb::arg("burn_in"), nb::arg("samples"), nb::arg("hard"),
             nb::arg("seed"), nb::arg("threads"), nb::arg("first").none() = nb::none())
        .def("maximise", &PyModel::maximise, nb::arg("evidence"), cost(), nb::arg("tries"), nb::arg("seed"), nb::arg("threads"));
    nb::class_<PySampler>(m, "Sampler")
        .def(nb::init<const PyModel&, In<std::uint8_t, 2>, In<std::int32_t>, In<std::int16_t, 2>, In<std::int32_t>, std::uint64_t>(),
             nb::arg("model"), nb::arg("evidence"), nb::arg("row_of"), nb::arg("states"), nb::arg("order"), nb::arg("seed"),
             nb::keep_alive<1, 2>())
        .def("run", &PySampler::run, nb::arg("n_sweeps"), nb::arg("beta").none(), nb::arg("reference").none(), nb::arg("collect"),
             nb::arg("anneal"), nb::arg("greedy"), nb::arg("threads"))
        .def("scores", &PySampler::scores, nb::arg("threads"))
        .def("states", &PySampler::states)
        .def("sums", &PySampler::sums)
        .def("squares", &PySampler::squares)
        .def("log_weights", &PySampler::log_weights)
        .def("reset", &PySampler::reset);
}
