// Arrays between NumPy and the kernels.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

template <class T, int D = 1>
using In = nanobind::ndarray<const T, nanobind::ndim<D>, nanobind::c_contig, nanobind::device::cpu>;

// An array whose entries are changed in place.
using Changed = nanobind::ndarray<double, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

template <class T, int D = 1>
using MaybeIn = std::optional<In<T, D>>;

// The array's values, or null where there is none.
template <class Array>
inline auto data_of(const std::optional<Array>& array) {
    return array ? array->data() : nullptr;
}

template <class T>
inline nanobind::object owned(std::vector<T>&& values, std::vector<std::size_t> shape = {}) {
    auto* kept = new std::vector<T>(std::move(values));
    nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    if (shape.empty()) shape = {kept->size()};
    return nanobind::cast(nanobind::ndarray<nanobind::numpy, T>(kept->data(), shape.size(), shape.data(), owner));
}
