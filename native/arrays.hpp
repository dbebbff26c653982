// Arrays between NumPy and the kernels.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "uncommon.hpp"

template <class T, int D = 1>
using In = nanobind::ndarray<const T, nanobind::ndim<D>, nanobind::c_contig, nanobind::device::cpu>;

template <class T>
inline nanobind::object owned(std::vector<T>&& values, std::vector<std::size_t> shape = {}) {
    auto* kept = new std::vector<T>(std::move(values));
    nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    if (shape.empty()) shape = {kept->size()};
    return nanobind::cast(nanobind::ndarray<nanobind::numpy, T>(kept->data(), shape.size(), shape.data(), owner));
}

inline void expect(bool condition, const char* what) {
    if (!condition) throw std::invalid_argument(what);
}

inline undirected::CodeTable code_table(const In<std::int16_t, 2>& codes, const In<std::int32_t>& n_states, const In<double>& row_weight) {
    const undirected::CodeTable table{std::int64_t(codes.shape(1)), std::int32_t(codes.shape(0)), n_states.data(), codes.data(),
                                      row_weight.data()};
    expect(n_states.shape(0) == codes.shape(0) && row_weight.shape(0) == codes.shape(1), "one state count a variable, one weight a row");
    for (std::int64_t v = 0; v < table.n_variables; ++v)
        for (std::int64_t r = 0; r < table.n_rows; ++r)
            expect(table.codes[v * table.n_rows + r] >= 0 && table.codes[v * table.n_rows + r] < table.n_states[v], "code out of range");
    return table;
}
