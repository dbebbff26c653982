#pragma once
#include <nanobind/nanobind.h>

void bind_search(nanobind::module_& m);
