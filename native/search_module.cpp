// The Python face of the search for features.
#include <cmath>
#include <utility>

#include "arrays.hpp"
#include "checks.hpp"
#include "locks.hpp"
#include "modules.hpp"
#include "search.hpp"

namespace nb = nanobind;
using namespace undirected;

namespace {

class PySearch {
public:
    PySearch(In<std::uint64_t, 2> columns, In<std::int32_t> n_states, In<double> row_weight)
        : search_(check_table(columns, n_states, row_weight)) {}

    void load(In<std::int64_t> start, In<std::int32_t> literals, In<double> weights, int n_threads) {
        const Features given = check_features(start, literals, search_.numbers());
        expect(std::int64_t(weights.shape(0)) == given.n, "there must be one weight per feature");
        lock_.change([&] { search_.load(given, weights.data(), n_threads); });
    }

    void change(In<std::int32_t> literals, double by) {
        check_range(literals, 0, 2 * std::int64_t(search_.n_literals()), "literal");
        for (std::size_t k = 1; k < literals.shape(0); ++k)
            expect(search_.numbers().variable(literals.data()[k - 1]) <= search_.numbers().variable(literals.data()[k]),
                   "the literals of a feature are sorted by variable");
        expect(std::isfinite(by), "weights must be finite");
        lock_.change([&] { search_.change(literals.data(), std::int64_t(literals.shape(0)), by); });
    }

    nb::object logits() const {
        return owned(lock_.read([&] { return search_.logits(); }), {std::size_t(search_.n_rows()), std::size_t(search_.n_lanes())});
    }

    double loss(int n_threads) const {
        return lock_.read([&] { return search_.loss(n_threads); });
    }

    nb::object gains(In<std::int64_t> start, In<std::int32_t> literals, In<std::int32_t> owner, In<std::int64_t> owner_start,
                     In<std::int32_t> owner_literals, In<double> owner_weight, double min_rows, double l1, double ridge, In<double> price,
                     bool all, int n_threads) const {
        const Features candidates = check_features(start, literals, search_.numbers());
        const Features owners = check_features(owner_start, owner_literals, search_.numbers());
        expect(std::int64_t(owner.shape(0)) == candidates.n, "there must be one owner per candidate");
        expect(std::int64_t(owner_weight.shape(0)) == owners.n, "there must be one weight per owner");
        check_prices(price, candidates);
        check_prices(price, owners);
        check_range(owner, -1, owners.n, "owner");
        std::vector<std::uint8_t> seen(owners.n, 0);
        for (std::int64_t c = 0; c < candidates.n; ++c) {
            const std::int32_t o = owner.data()[c];
            if (o < 0 || (c && owner.data()[c - 1] == o)) continue;
            expect(!seen[o], "the candidates of an owner must stand together");
            seen[o] = 1;
        }
        Gains found = lock_.read([&] {
            return search_.gains(candidates, owner.data(), owners, owner_weight.data(), min_rows, l1, ridge, price.data(), all, n_threads);
        });
        return nb::make_tuple(owned(std::move(found.weight)), owned(std::move(found.gain)), owned(std::move(found.present)));
    }

    nb::object generalise(In<std::int64_t> start, In<std::int32_t> literals, MaybeIn<double, 2> together, int power, In<double> sizes,
                          int n_threads) const {
        const Features given = check_features(start, literals, search_.numbers());
        const std::size_t n = std::size_t(search_.n_literals());
        expect(!together || (together->shape(0) == n && together->shape(1) == n), "there must be one count per pair of literals");
        const std::vector<double> rising(sizes.data(), sizes.data() + sizes.shape(0));
        for (std::size_t k = 0; k < rising.size(); ++k) expect(rising[k] > (k ? rising[k - 1] : 0.0), "sizes must rise from above zero");
        expect(!rising.empty(), "there must be at least one size");
        Generalised found = lock_.read([&] { return search_.generalise(given, data_of(together), power, rising, n_threads); });
        return nb::make_tuple(owned(std::move(found.start)), owned(std::move(found.literals)), owned(std::move(found.owner)));
    }

    nb::object screen(In<std::int64_t> start, In<std::int32_t> literals, In<std::int32_t> extra, int n_threads) const {
        const Features given = check_features(start, literals, search_.numbers());
        check_range(extra, 0, search_.n_literals(), "positive literal");
        const auto n_extra = std::int64_t(extra.shape(0));
        Screened found = lock_.read([&] { return search_.screen(given, extra.data(), n_extra, n_threads); });
        const std::vector<std::size_t> shape{std::size_t(given.n), std::size_t(n_extra)};
        return nb::make_tuple(owned(std::move(found.gradient), shape), owned(std::move(found.curvature), shape),
                              owned(std::move(found.support), shape));
    }

    nb::object join(In<std::int64_t> start, In<std::int32_t> literals, std::int64_t first, std::int64_t last, std::int64_t most,
                    double min_rows, double l1, double ridge, In<double> price, int n_threads) const {
        const Features given = check_features(start, literals, search_.numbers());
        check_range(literals, 0, search_.n_literals(), "positive literal");
        for (std::int64_t j = 0; j < given.n; ++j)
            for (std::int64_t k = given.start[j] + 1; k < given.start[j + 1]; ++k)
                expect(search_.numbers().variable(given.literals[k - 1]) < search_.numbers().variable(given.literals[k]),
                       "features to be joined have one literal per variable");
        expect(first >= 0 && first <= last && last <= given.n, "the features to join are not among those given");
        check_prices(price, given);
        Joined found = lock_.read([&] { return search_.join(given, first, last, most, min_rows, l1, ridge, price.data(), n_threads); });
        return nb::make_tuple(owned(std::move(found.start)), owned(std::move(found.literals)), owned(std::move(found.weight)),
                              owned(std::move(found.gain)), found.n_scored);
    }

private:
    // One for each length that a feature can have.
    void check_prices(const In<double>& price, const Features& given) const {
        const std::int64_t longest = search_.n_literals();
        expect(std::int64_t(price.shape(0)) == longest + 1, "there must be one price per length, from 0 to the number of literals");
        for (std::int64_t j = 0; j < given.n; ++j) expect(given.start[j + 1] - given.start[j] <= longest, "a feature has a literal twice");
    }

    Search search_;
    ObjectLock lock_;
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
}
