// Numbers of all clients of a cohort in one call, on numpy arrays.  Every number is a function of its stream and its
// place in it, so threads share the clients in any way.  The package's kernels/cohort_random.py checks the arguments.
#include "random.h"

#include <pybind11/numpy.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../cpu/batch.h"
#include "../random/shuffle.h"
#include "../random/synthetic.h"
#include "parallel.h"

namespace py = pybind11;

namespace fedasd {
namespace {

using random::ClientStream;
using random::Key;
using random::LabelDistribution;
using random::SyntheticPopulation;
using Numbers = py::array_t<int64_t, py::array::c_style>;  // [clients]
constexpr int64_t kGrain = 16;                             // clients a thread takes at least

Key key_of(uint64_t key) { return {uint32_t(key), uint32_t(key >> 32)}; }

// The wider registers, where the CPU has them and the kernels of the loss use them too.  Without fused multiply-add:
// see elementary.h.
#if defined(__x86_64__)
#define FEDASD_WIDE __attribute__((target("avx2")))
bool wide() { return std::strcmp(cpu::kernels().name, "generic") != 0; }
#else
#define FEDASD_WIDE
bool wide() { return false; }
#endif

FEDASD_WIDE void shuffle_wide(const ClientStream& s, uint32_t epoch, int64_t* order, uint32_t n) {
  random::shuffle(s, epoch, order, n);
}
void shuffle_narrow(const ClientStream& s, uint32_t epoch, int64_t* order, uint32_t n) {
  random::shuffle(s, epoch, order, n);
}
FEDASD_WIDE void inputs_wide(const SyntheticPopulation& p, const ClientStream& s, int64_t n, const uint32_t* centres,
                             float* inputs) {
  random::inputs_of(p, s, n, centres, inputs);
}
void inputs_narrow(const SyntheticPopulation& p, const ClientStream& s, int64_t n, const uint32_t* centres,
                   float* inputs) {
  random::inputs_of(p, s, n, centres, inputs);
}

// Where each client's part begins, and the whole length.
std::vector<int64_t> starts_of(int64_t clients, const std::function<int64_t(int64_t)>& length) {
  std::vector<int64_t> starts(size_t(clients) + 1);
  for (int64_t k = 0; k < clients; ++k) starts[size_t(k) + 1] = starts[size_t(k)] + length(k);
  return starts;
}

py::array_t<int64_t> epoch_orders(uint64_t key, uint32_t round, uint32_t first_epoch, const Numbers& clients,
                                  const Numbers& sizes, const Numbers& epochs) {
  const int64_t count = clients.size();
  const int64_t *client = clients.data(), *size = sizes.data(), *epoch_count = epochs.data();
  const auto starts = starts_of(count, [&](int64_t k) { return size[k] * epoch_count[k]; });
  py::array_t<int64_t> orders(starts.back());
  int64_t* out = orders.mutable_data();
  const auto shuffle = wide() ? shuffle_wide : shuffle_narrow;
  py::gil_scoped_release no_gil;
  parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const ClientStream stream{key_of(key), uint32_t(client[k]), round};
      for (int64_t epoch = 0; epoch < epoch_count[k]; ++epoch)
        shuffle(stream, first_epoch + uint32_t(epoch), out + starts[size_t(k)] + epoch * size[k], uint32_t(size[k]));
    }
  });
  return orders;
}

LabelDistribution distribution_of(const std::string& name) {
  if (name == "iid") return LabelDistribution::iid;
  if (name == "shards") return LabelDistribution::shards;
  if (name == "dirichlet") return LabelDistribution::dirichlet;
  throw std::invalid_argument("distribution = " + name + "; expected iid, shards or dirichlet");
}

py::tuple synthetic_samples(uint64_t key, const std::string& distribution, double value, uint32_t modes, float noise,
                            const py::array_t<float, py::array::c_style>& centres, const Numbers& clients,
                            const Numbers& sizes, bool with_inputs) {
  SyntheticPopulation p;
  p.key = key_of(key);
  p.distribution = distribution_of(distribution);
  p.value = value;
  p.modes = modes;
  p.classes = uint32_t(centres.shape(0) / modes);
  p.dimensions = centres.shape(1);
  p.noise = noise;
  p.centres = centres.data();
  const int64_t count = clients.size();
  const int64_t *client = clients.data(), *size = sizes.data();
  const auto starts = starts_of(count, [&](int64_t k) { return size[k]; });
  py::array_t<int64_t> labels(starts.back());
  py::array_t<float> inputs({with_inputs ? starts.back() : 0, p.dimensions});
  int64_t* label = labels.mutable_data();
  float* input = inputs.mutable_data();
  const auto draw_inputs = wide() ? inputs_wide : inputs_narrow;
  {
    py::gil_scoped_release no_gil;
    parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
      std::vector<uint32_t> around;
      for (int64_t k = begin; k < end; ++k) {
        const ClientStream stream{p.key, uint32_t(client[k]), 0};
        const int64_t start = starts[size_t(k)];
        around.resize(size_t(size[k]));
        random::labels_of(p, stream, size[k], label + start, with_inputs ? around.data() : nullptr);
        if (with_inputs) draw_inputs(p, stream, size[k], around.data(), input + start * p.dimensions);
      }
    });
  }
  return py::make_tuple(inputs, labels);
}

py::array_t<uint32_t> philox_words(uint64_t key, const py::array_t<uint32_t, py::array::c_style>& counters) {
  py::array_t<uint32_t> words({counters.shape(0), py::ssize_t(4)});
  for (py::ssize_t i = 0; i < counters.shape(0); ++i) {
    random::Blocks<1> block;
    for (int j = 0; j < 4; ++j) block.word[j][0] = counters.at(i, j);
    random::philox(block, key_of(key));
    for (int j = 0; j < 4; ++j) words.mutable_at(i, j) = block.word[j][0];
  }
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
