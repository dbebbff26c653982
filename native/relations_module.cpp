// The Python face of relational beliefs.
#include "arrays.hpp"

#include <nanobind/stl/pair.h>

#include <cmath>

#include "checks.hpp"
#include "locks.hpp"
#include "modules.hpp"
#include "relations.hpp"

namespace nb = nanobind;
using namespace undirected;

namespace {

template <class Array>
auto copied(const Array& array) {
    return std::vector<std::remove_const_t<typename Array::Scalar>>(array.data(), array.data() + array.size());
}

void check_finite(const std::vector<double>& values, const char* what) {
    for (const double value : values) expect(std::isfinite(value), what);
}

class PyRelationField {
public:
    int add_type(In<double, 2> values, In<std::int32_t> starts, In<double, 2> weights) {
        RelationField::Type type{std::int64_t(values.shape(0)),
                                 std::int64_t(values.shape(1)),
                                 copied(values),
                                 copied(starts),
                                 std::int64_t(weights.shape(1)),
                                 copied(weights),
                                 {}};
        check_finite(type.values, "values must be finite");
        check_finite(type.weights, "weights must be finite");
        expect(!type.starts.empty() && type.starts.front() == 0, "attributes must begin at 0");
        for (std::size_t k = 1; k < type.starts.size(); ++k)
            expect(type.starts[k] > type.starts[k - 1], "attributes must follow each other");
        expect(type.starts.back() == std::int32_t(weights.shape(0)) && type.starts.back() <= type.width,
               "there must be weights for every active state, and values");
        expect(weights.shape(0) == 0 || weights.shape(1) > 0, "a design needs a column");
        return lock_.change([&] { return int(field_.add_type(std::move(type))); });
    }

    int add_reach(int source, In<double, 2> sums, In<std::int64_t> start, In<std::int32_t> rows) {
        check_type(source);
        const RelationField::Type& type = field_.types()[source];
        expect(std::int64_t(sums.shape(1)) == type.width, "sums must be as wide as values");
        expect(check_offsets(start, std::int64_t(rows.shape(0)), "rows that reach an entity") == type.n, "every entity needs its rows");
        check_range(rows, 0, std::int64_t(sums.shape(0)), "row of sums");
        RelationField::Reach reach{source, std::int64_t(sums.shape(0)), copied(sums), copied(start), copied(rows)};
        check_finite(reach.sums, "sums must be finite");
        return lock_.change([&] { return int(field_.add_reach(std::move(reach))); });
    }

    void add_block(int type, std::int64_t at, int first, int last, int end, int reach, MaybeIn<std::int32_t> rows,
                   MaybeIn<std::uint8_t> own) {
        check_type(type);
        check_type(end);
        const RelationField::Type &mine = field_.types()[type], &there = field_.types()[end];
        expect(0 <= first && first <= last && last <= there.width, "a block's columns must exist");
        expect(at >= 1 && at <= mine.design && last - first <= mine.design - at, "a block must fit into the design");
        expect(reach >= -1 && reach < int(field_.reaches().size()), "a block's reach must exist");
        expect(reach < 0 || field_.reaches()[reach].source == end, "a block's reach must lead to its end");
        const std::int64_t n_rows = reach < 0 ? there.n : field_.reaches()[reach].n;
        expect(rows ? std::int64_t(rows->shape(0)) == mine.n : mine.n == n_rows, "every entity needs its row");
        if (rows) check_range(*rows, -1, n_rows, "row of a block");
        expect(!own || (end == type && std::int64_t(own->shape(0)) == mine.n), "own values are those of every entity of the type");
        RelationField::Block block{at, first, last, end, reach, {}, {}};
        if (rows) block.rows = copied(*rows);
        if (own) block.own = copied(*own);
        lock_.change([&] { field_.add_block(type, std::move(block)); });
    }

    void set_weights(int type, In<double, 2> weights) {
        check_type(type);
        const RelationField::Type& mine = field_.types()[type];
        expect(weights.size() == mine.weights.size() && std::int64_t(weights.shape(1)) == mine.design, "weights must keep their number");
        check_finite(copied(weights), "weights must be finite");
        lock_.change([&] { field_.set_weights(type, weights.data()); });
    }

    std::pair<double, double> sweep(In<std::int32_t, 2> cells) {
        check_cells(cells);
        const auto out = lock_.change([&] { return field_.sweep(cells.data(), std::int64_t(cells.shape(0))); });
        return {out.largest, out.energy};
    }

    nb::object draw(In<std::int32_t, 2> cells, In<double> uniform) {
        const std::int64_t n = check_cells(cells);
        expect(uniform.shape(0) == cells.shape(0), "there must be a number for every attribute");
        std::vector<double> chances(n);
        lock_.change([&] { field_.draw(cells.data(), std::int64_t(cells.shape(0)), uniform.data(), chances.data()); });
        return owned(std::move(chances));
    }

    nb::object values(int type) const {
        check_type(type);
        const RelationField::Type& mine = field_.types()[type];
        std::vector<double> out = lock_.read([&] { return mine.values; });
        return owned(std::move(out), {std::size_t(mine.n), std::size_t(mine.width)});
    }

private:
    void check_type(int type) const { expect(type >= 0 && type < int(field_.types().size()), "there is no such type"); }

    // How many active states the attributes have.
    std::int64_t check_cells(const In<std::int32_t, 2>& cells) const {
        expect(cells.shape(1) == 3, "an attribute is a type, an entity and a number");
        std::int64_t n = 0;
        for (std::size_t c = 0; c < cells.shape(0); ++c) {
            const std::int32_t* cell = cells.data() + 3 * c;
            check_type(cell[0]);
            const RelationField::Type& type = field_.types()[cell[0]];
            expect(cell[1] >= 0 && cell[1] < type.n, "there is no such entity");
            expect(cell[2] >= 0 && cell[2] < std::int32_t(type.starts.size()) - 1, "there is no such attribute");
            n += type.starts[cell[2] + 1] - type.starts[cell[2]];
        }
        return n;
    }

    RelationField field_;
    ObjectLock lock_;
};

}  // namespace

void bind_relations(nb::module_& m) {
    nb::class_<PyRelationField>(m, "RelationField")
        .def(nb::init<>())
        .def("add_type", &PyRelationField::add_type, nb::arg("values"), nb::arg("starts"), nb::arg("weights"))
        .def("add_reach", &PyRelationField::add_reach, nb::arg("source"), nb::arg("sums"), nb::arg("start"), nb::arg("rows"))
        .def("add_block", &PyRelationField::add_block, nb::arg("type"), nb::arg("at"), nb::arg("first"), nb::arg("last"), nb::arg("end"),
             nb::arg("reach"), nb::arg("rows").none(), nb::arg("own").none())
        .def("set_weights", &PyRelationField::set_weights, nb::arg("type"), nb::arg("weights"))
        .def("sweep", &PyRelationField::sweep, nb::arg("cells"))
        .def("draw", &PyRelationField::draw, nb::arg("cells"), nb::arg("uniform"))
        .def("values", &PyRelationField::values, nb::arg("type"));
}
