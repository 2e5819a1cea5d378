// Numbers of all clients of a cohort in one call, as ops: csrc/cpu/cohort_random.h on their memory.  The functions of
// the other build take numpy arrays, whose memory Python's stable interface cannot reach before 3.11.  The package's
// kernels/cohort_random.py checks the arguments.
#include "../cpu/cohort_random.h"

#include <torch/library.h>

#include "../torch/parallel.h"

namespace fedasd {
namespace {

cpu::Cohort cohort_of(const at::Tensor& clients, const at::Tensor& sizes) {
  return {clients.size(0), clients.const_data_ptr<int64_t>(), sizes.const_data_ptr<int64_t>()};
}

at::Tensor epoch_orders(int64_t key, int64_t round, int64_t first_epoch, const at::Tensor& clients,
                        const at::Tensor& sizes, const at::Tensor& epochs) {
  const cpu::EpochOrders wanted{cpu::key_of(uint64_t(key)), uint32_t(round), uint32_t(first_epoch),
                                epochs.const_data_ptr<int64_t>()};
  const cpu::Cohort cohort = cohort_of(clients, sizes);
  const auto starts = cpu::starts_of(cohort, wanted.epochs);
  at::Tensor orders = at::empty({starts.back()}, sizes.options());
  cpu::epoch_orders(wanted, cohort, starts, orders.mutable_data_ptr<int64_t>(), parallel());
  return orders;
}

std::tuple<at::Tensor, at::Tensor> synthetic_samples(int64_t key, std::string_view distribution, double value,
                                                     int64_t modes, double noise, const at::Tensor& centres,
                                                     const at::Tensor& clients, const at::Tensor& sizes,
                                                     bool with_inputs) {
  random::SyntheticPopulation p;
  p.key = cpu::key_of(uint64_t(key));
  p.distribution = cpu::distribution_of(std::string(distribution).c_str());
  p.value = value;
  p.modes = uint32_t(modes);
  p.classes = uint32_t(centres.size(0) / modes);
  p.dimensions = centres.size(1);
  p.noise = float(noise);
  p.centres = centres.const_data_ptr<float>();
  const cpu::Cohort cohort = cohort_of(clients, sizes);
  const auto starts = cpu::starts_of(cohort);
  at::Tensor labels = at::empty({starts.back()}, sizes.options());
  at::Tensor inputs = at::empty({with_inputs ? starts.back() : 0, p.dimensions}, centres.options());
  cpu::synthetic_samples(p, cohort, starts, labels.mutable_data_ptr<int64_t>(),
                         with_inputs ? inputs.mutable_data_ptr<float>() : nullptr, parallel());
  return {inputs, labels};
}

at::Tensor philox_words(int64_t key, const at::Tensor& counters) {
  at::Tensor words = at::empty_like(counters);
  cpu::philox_words(cpu::key_of(uint64_t(key)), counters.size(0), counters.const_data_ptr<uint32_t>(),
                    words.mutable_data_ptr<uint32_t>());
  return words;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(fedasd, m) {
  m.def("epoch_orders(int key, int round, int first_epoch, Tensor clients, Tensor sizes, Tensor epochs) -> Tensor");
  m.def(
      "synthetic_samples(int key, str distribution, float value, int modes, float noise, Tensor centres, "
      "Tensor clients, Tensor sizes, bool with_inputs) -> (Tensor inputs, Tensor labels)");
  m.def("philox_words(int key, Tensor counters) -> Tensor");
}

TORCH_LIBRARY_IMPL(fedasd, CPU, m) {
  m.impl("epoch_orders", TORCH_FN(epoch_orders));
  m.impl("synthetic_samples", TORCH_FN(synthetic_samples));
  m.impl("philox_words", TORCH_FN(philox_words));
}

}  // namespace fedasd
