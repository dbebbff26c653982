// The Python face of the kernels: arrays in, arrays out, the interpreter's lock released while they work.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "dispatch.hpp"
#include "modules.hpp"

NB_MODULE(_native, m) {
    bind_pseudo_likelihood(m);
    bind_structure(m);
    bind_search(m);
    bind_inference(m);
    bind_relations(m);
    m.def("instruction_set", &undirected::instruction_set);
    m.def("instruction_sets", &undirected::instruction_sets);
    m.def("set_instruction_set", &undirected::set_instruction_set, nanobind::arg("name"));
}
