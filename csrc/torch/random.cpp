// Numbers of all clients of a cohort in one call, on numpy arrays: csrc/cpu/cohort_random.h on their memory.  The
// package's kernels/cohort_random.py checks the arguments.
#include "random.h"

#include <pybind11/numpy.h>

#include <string>

#include "../cpu/cohort_random.h"
#include "parallel.h"

namespace py = pybind11;

namespace fedasd {
namespace {

using Numbers = py::array_t<int64_t, py::array::c_style>;  // [clients]

cpu::Cohort cohort_of(const Numbers& clients, const Numbers& sizes) {
  return {clients.size(), clients.data(), sizes.data()};
}

py::array_t<int64_t> epoch_orders(uint64_t key, uint32_t round, uint32_t first_epoch, const Numbers& clients,
                                  const Numbers& sizes, const Numbers& epochs) {
  const cpu::EpochOrders wanted{cpu::key_of(key), round, first_epoch, epochs.data()};
  const cpu::Cohort cohort = cohort_of(clients, sizes);
  const auto starts = cpu::starts_of(cohort, wanted.epochs);
  py::array_t<int64_t> orders(starts.back());
  int64_t* out = orders.mutable_data();
  py::gil_scoped_release no_gil;
  cpu::epoch_orders(wanted, cohort, starts, out, parallel());
  return orders;
}

py::tuple synthetic_samples(uint64_t key, const std::string& distribution, double value, uint32_t modes, float noise,
                            const py::array_t<float, py::array::c_style>& centres, const Numbers& clients,
                            const Numbers& sizes, bool with_inputs) {
  random::SyntheticPopulation p;
  p.key = cpu::key_of(key);
  p.distribution = cpu::distribution_of(distribution.c_str());
  p.value = value;
  p.modes = modes;
  p.classes = uint32_t(centres.shape(0) / modes);
  p.dimensions = centres.shape(1);
  p.noise = noise;
  p.centres = centres.data();
  const cpu::Cohort cohort = cohort_of(clients, sizes);
  const auto starts = cpu::starts_of(cohort);
  py::array_t<int64_t> labels(starts.back());
  py::array_t<float> inputs({with_inputs ? starts.back() : 0, p.dimensions});
  int64_t* label = labels.mutable_data();
  float* input = with_inputs ? inputs.mutable_data() : nullptr;
  {
    py::gil_scoped_release no_gil;
    cpu::synthetic_samples(p, cohort, starts, label, input, parallel());
  }
  return py::make_tuple(inputs, labels);
}

py::array_t<uint32_t> philox_words(uint64_t key, const py::array_t<uint32_t, py::array::c_style>& counters) {
  py::array_t<uint32_t> words({counters.shape(0), py::ssize_t(4)});
  cpu::philox_words(cpu::key_of(key), counters.shape(0), counters.data(), words.mutable_data());
  return words;
}

}  // namespace

void define_random(py::module_& m) {
  m.def("epoch_orders", epoch_orders, py::arg("key"), py::arg("round"), py::arg("first_epoch"), py::arg("clients"),
        py::arg("sizes"), py::arg("epochs"), "Orders of all clients' samples in all epochs, one after the other.");
  m.def("synthetic_samples", synthetic_samples, py::arg("key"), py::arg("distribution"), py::arg("value"),
        py::arg("modes"), py::arg("noise"), py::arg("centres"), py::arg("clients"), py::arg("sizes"),
        py::arg("with_inputs"), "Inputs [N, D] and labels [N] of all clients, one after the other.");
  m.def("philox_words", philox_words, py::arg("key"), py::arg("counters"), "Philox4x32-10 of counters [N, 4].");
}

}  // namespace fedasd
