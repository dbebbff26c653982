// The parts of the Python module.
#pragma once
#include <nanobind/nanobind.h>

void bind_pseudo_likelihood(nanobind::module_& m);
void bind_structure(nanobind::module_& m);
void bind_search(nanobind::module_& m);
void bind_inference(nanobind::module_& m);
void bind_relations(nanobind::module_& m);
