// The search kernels' Python face.
#include "search_module.hpp"

#include <cmath>

#include "arrays.hpp"
#include "search.hpp"
#include "strata.hpp"

namespace nb = nanobind;
using namespace undirected;

namespace {

struct PySearch {
    Search search;

    static Table checked(const In<std::uint64_t, 2>& columns, const In<std::int32_t>& n_states, const In<double>& row_weight) {
        std::int64_t n_literals = 0;
        for (std::size_t v = 0; v < n_states.shape(0); ++v) {
            expect(n_states.data()[v] > 0, "a variable needs a state");
            n_literals += n_states.data()[v];
        }
        const Table table{std::int64_t(row_weight.shape(0)),
                          std::int64_t(columns.shape(1)),
                          std::int32_t(n_states.shape(0)),
                          n_states.data(),
                          columns.data(),
                          row_weight.data()};
        expect(table.n_rows > 0, "a table needs at least one row");
        expect(n_literals == std::int64_t(columns.shape(0)), "one bit column per literal");
        expect(table.n_words == (table.n_rows + 63) / 64, "bit columns do not fit the rows");
        return table;
    }

    PySearch(In<std::uint64_t, 2> columns, In<std::int32_t> n_states, In<double> row_weight)
        : search(checked(columns, n_states, row_weight)) {}

    Features features(const In<std::int64_t>& start, const In<std::int32_t>& literals) const {
        const std::int64_t n = std::int64_t(start.shape(0)) - 1;
        expect(n >= 0 && start.data()[0] == 0 && start.data()[n] == std::int64_t(literals.shape(0)), "feature offsets");
        for (std::int64_t j = 0; j < n; ++j) expect(start.data()[j] <= start.data()[j + 1], "feature offsets");
        check(literals, 2 * search.n_literals());
        return {n, start.data(), literals.data(), nullptr};
    }

    static void check(const In<std::int32_t>& literals, std::int32_t limit) {
        for (std::size_t k = 0; k < literals.shape(0); ++k)
            expect(literals.data()[k] >= 0 && literals.data()[k] < limit, "literal out of range");
    }

    // One for each length that a feature can have.
    void check_prices(const In<double>& price, const Features& given) const {
        const std::int64_t longest = search.n_literals();
        expect(std::int64_t(price.shape(0)) == longest + 1, "one price per length");
        for (std::int64_t j = 0; j < given.n; ++j) expect(given.start[j + 1] - given.start[j] <= longest, "a literal twice");
    }

    void load(In<std::int64_t> start, In<std::int32_t> literals, In<double> weights, int n_threads) {
        const Features given = features(start, literals);
        expect(std::int64_t(weights.shape(0)) == given.n, "one weight per feature");
        nb::gil_scoped_release unlocked;
        search.load(given, weights.data(), n_threads);
    }

    void change(In<std::int32_t> literals, double by) {
        check(literals, 2 * search.n_literals());
        expect(std::isfinite(by), "weights must be finite");
        nb::gil_scoped_release unlocked;
        search.change(literals.data(), std::int64_t(literals.shape(0)), by);
    }

    nb::object logits() const { return owned(search.logits(), {std::size_t(search.n_rows()), std::size_t(search.n_lanes())}); }

    double loss(int n_threads) const {
        nb::gil_scoped_release unlocked;
        return search.loss(n_threads);
    }

    nb::object gains(In<std::int64_t> start, In<std::int32_t> literals, In<std::int32_t> owner, In<std::int64_t> owner_start,
                     In<std::int32_t> owner_literals, In<double> owner_weight, double min_rows, double l1, double ridge, In<double> price,
                     bool all, int n_threads) const {
        const Features candidates = features(start, literals), owners = features(owner_start, owner_literals);
        expect(std::int64_t(owner.shape(0)) == candidates.n && std::int64_t(owner_weight.shape(0)) == owners.n,
               "one owner per candidate, one weight per owner");
        check_prices(price, candidates);
        check_prices(price, owners);
        std::vector<std::uint8_t> seen(owners.n, 0);
        for (std::int64_t c = 0; c < candidates.n; ++c) {
            const std::int32_t o = owner.data()[c];
            expect(o >= -1 && o < owners.n, "no such owner");
            if (o < 0 || (c && owner.data()[c - 1] == o)) continue;
            expect(!seen[o], "the candidates of an owner stand together");
            seen[o] = 1;
        }
        Gains found;
        {
            nb::gil_scoped_release unlocked;
            found = search.gains(candidates, owner.data(), owners, owner_weight.data(), min_rows, l1, ridge, price.data(), all, n_threads);
        }
        return nb::make_tuple(owned(std::move(found.weight)), owned(std::move(found.gain)), owned(std::move(found.present)));
    }

    nb::object generalise(In<std::int64_t> start, In<std::int32_t> literals, nb::object together, int power, In<double> sizes,
                          int n_threads) const {
        const Features given = features(start, literals);
        In<double, 2> counts;
        if (!together.is_none()) {
            counts = nb::cast<In<double, 2>>(together);
            expect(std::int64_t(counts.shape(0)) == search.n_literals() && std::int64_t(counts.shape(1)) == search.n_literals(),
                   "one count per pair of literals");
        }
        std::vector<double> rising(sizes.data(), sizes.data() + sizes.shape(0));
        for (std::size_t k = 0; k < rising.size(); ++k) expect(rising[k] > (k ? rising[k - 1] : 0.0), "sizes must rise from above zero");
        expect(!rising.empty(), "at least one size");
        Generalised found;
        {
            nb::gil_scoped_release unlocked;
            found = search.generalise(given, together.is_none() ? nullptr : counts.data(), power, rising, n_threads);
        }
        return nb::make_tuple(owned(std::move(found.start)), owned(std::move(found.literals)), owned(std::move(found.owner)));
    }

    nb::object screen(In<std::int64_t> start, In<std::int32_t> literals, In<std::int32_t> extra, int n_threads) const {
        const Features given = features(start, literals);
        check(extra, search.n_literals());
        const auto n_extra = std::int64_t(extra.shape(0));
        Screened found;
        {
            nb::gil_scoped_release unlocked;
            found = search.screen(given, extra.data(), n_extra, n_threads);
        }
        const std::vector<std::size_t> shape{std::size_t(given.n), std::size_t(n_extra)};
        return nb::make_tuple(owned(std::move(found.gradient), shape), owned(std::move(found.curvature), shape),
                              owned(std::move(found.support), shape));
    }

    nb::object join(In<std::int64_t> start, In<std::int32_t> literals, std::int64_t first, std::int64_t last, std::int64_t most,
                    double min_rows, double l1, double ridge, In<double> price, int n_threads) const {
        const Features given = features(start, literals);
        check(literals, search.n_literals());
        expect(first >= 0 && first <= last && last <= given.n, "which features to join");
        check_prices(price, given);
        Joined found;
        {
            nb::gil_scoped_release unlocked;
            found = search.join(given, first, last, most, min_rows, l1, ridge, price.data(), n_threads);
        }
        return nb::make_tuple(owned(std::move(found.start)), owned(std::move(found.literals)), owned(std::move(found.weight)),
                              owned(std::move(found.gain)), found.n_scored);
    }
};

struct PyStrata {
    // The table points into these.
    In<std::int16_t, 2> codes;
    In<std::int32_t> n_states;
    In<double> row_weight;
    Strata strata;

    PyStrata(In<std::int16_t, 2> c, In<std::int32_t> n, In<double> w) : codes(c), n_states(n), row_weight(w), strata(code_table(c, n, w)) {}

    nb::object test(In<std::int32_t> stratum, std::int32_t n_strata, std::int32_t target, In<std::int32_t> others, double least_expected,
                    double enough_seen) const {
        const CodeTable& table = strata.table();
        expect(std::int64_t(stratum.shape(0)) == table.n_rows, "one stratum a row");
        for (std::int64_t r = 0; r < table.n_rows; ++r) expect(stratum.data()[r] >= 0 && stratum.data()[r] < n_strata, "no such stratum");
        expect(target >= 0 && target < table.n_variables, "no such target");
        const std::int64_t n_others = std::int64_t(others.shape(0));
        for (std::int64_t i = 0; i < n_others; ++i)
            expect(others.data()[i] >= 0 && others.data()[i] < table.n_variables, "no such variable");
        Dependence found;
        {
            nb::gil_scoped_release unlocked;
            found = strata.test(stratum.data(), n_strata, target, others.data(), n_others, least_expected, enough_seen);
        }
        return nb::make_tuple(owned(std::move(found.chi)), owned(std::move(found.free)));
    }
};

}  // namespace

void bind_search(nb::module_& m) {
    nb::class_<PySearch>(m, "Search")
        .def(nb::init<In<std::uint64_t, 2>, In<std::int32_t>, In<double>>(), nb::arg("columns"), nb::arg("n_states"), nb::arg("row_weight"))
        .def("load", &PySearch::load, nb::arg("start"), nb::arg("literals"), nb::arg("weights"), nb::arg("threads"))
        .def("change", &PySearch::change, nb::arg("literals"), nb::arg("by"))
        .def("logits", &PySearch::logits)
        .def("loss", &PySearch::loss, nb::arg("threads"))
        .def("gains", &PySearch::gains, nb::arg("start"), nb::arg("literals"), nb::arg("owner"), nb::arg("owner_start"),
             nb::arg("owner_literals"), nb::arg("owner_weight"), nb::arg("min_rows"), nb::arg("l1"), nb::arg("ridge"), nb::arg("price"),
             nb::arg("all"), nb::arg("threads"))
        .def("generalise", &PySearch::generalise, nb::arg("start"), nb::arg("literals"), nb::arg("together").none(), nb::arg("power"),
             nb::arg("sizes"), nb::arg("threads"))
        .def("join", &PySearch::join, nb::arg("start"), nb::arg("literals"), nb::arg("first"), nb::arg("last"), nb::arg("most"),
             nb::arg("min_rows"), nb::arg("l1"), nb::arg("ridge"), nb::arg("price"), nb::arg("threads"))
        .def("screen", &PySearch::screen, nb::arg("start"), nb::arg("literals"), nb::arg("extra"), nb::arg("threads"));
    m.def(
        "combine",
        [](In<std::int32_t> a, std::int32_t n_a, In<std::int32_t> b, std::int32_t n_b) {
            expect(a.shape(0) == b.shape(0), "two numbers a row");
            for (std::size_t r = 0; r < a.shape(0); ++r)
                expect(a.data()[r] >= 0 && a.data()[r] < n_a && b.data()[r] >= 0 && b.data()[r] < n_b, "number out of range");
            std::vector<std::int32_t> out(a.shape(0));
            std::int32_t n;
            {
                nb::gil_scoped_release unlocked;
                n = combine(a.data(), n_a, b.data(), n_b, std::int64_t(a.shape(0)), out.data());
            }
            return nb::make_tuple(owned(std::move(out)), n);
        },
        nb::arg("a"), nb::arg("n_a"), nb::arg("b"), nb::arg("n_b"));
    nb::class_<PyStrata>(m, "Strata")
        .def(nb::init<In<std::int16_t, 2>, In<std::int32_t>, In<double>>(), nb::arg("codes"), nb::arg("n_states"), nb::arg("row_weight"))
        .def("test", &PyStrata::test, nb::arg("stratum"), nb::arg("n_strata"), nb::arg("target"), nb::arg("others"),
             nb::arg("least_expected"), nb::arg("enough_seen"));
}
