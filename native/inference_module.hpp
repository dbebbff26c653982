#pragma once
#include <nanobind/nanobind.h>

void bind_inference(nanobind::module_& m);
