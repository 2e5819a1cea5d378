// Counter-based random numbers of whole cohorts, as functions of the Python module.
#pragma once

#include <pybind11/pybind11.h>

namespace fedasd {

void define_random(pybind11::module_& m);

}  // namespace fedasd
