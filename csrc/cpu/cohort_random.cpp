// Random numbers of all clients of a cohort.
#include "cohort_random.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "../random/shuffle.h"
#include "batch.h"

namespace fedasd::cpu {
namespace {

using random::ClientStream;
using random::SyntheticPopulation;
constexpr int64_t kGrain = 16;  // clients a thread takes at least

// The wider registers, where the CPU has them and the kernels of the loss use them too.  Without fused multiply-add:
// see elementary.h.
#if defined(__x86_64__)
#define FEDASD_WIDE __attribute__((target("avx2")))
bool wide() { return std::strcmp(kernels().name, "generic") != 0; }
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

}  // namespace

random::Key key_of(uint64_t key) { return {uint32_t(key), uint32_t(key >> 32)}; }

std::vector<int64_t> starts_of(const Cohort& c, const int64_t* epochs) {
  std::vector<int64_t> starts(size_t(c.clients) + 1);
  for (int64_t k = 0; k < c.clients; ++k)
    starts[size_t(k) + 1] = starts[size_t(k)] + c.sizes[k] * (epochs ? epochs[k] : 1);
  return starts;
}

void epoch_orders(const EpochOrders& o, const Cohort& c, const std::vector<int64_t>& starts, int64_t* orders,
                  const Parallel& parallel) {
  const auto shuffle = wide() ? shuffle_wide : shuffle_narrow;
  parallel.run(c.clients, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const ClientStream stream{o.key, uint32_t(c.client[k]), o.round};
      for (int64_t epoch = 0; epoch < o.epochs[k]; ++epoch)
        shuffle(stream, o.first_epoch + uint32_t(epoch), orders + starts[size_t(k)] + epoch * c.sizes[k],
                uint32_t(c.sizes[k]));
    }
  });
}

void synthetic_samples(const SyntheticPopulation& p, const Cohort& c, const std::vector<int64_t>& starts,
                       int64_t* labels, float* inputs, const Parallel& parallel) {
  const auto draw_inputs = wide() ? inputs_wide : inputs_narrow;
  parallel.run(c.clients, kGrain, [&](int64_t begin, int64_t end) {
    std::vector<uint32_t> around;
    for (int64_t k = begin; k < end; ++k) {
      const ClientStream stream{p.key, uint32_t(c.client[k]), 0};
      const int64_t start = starts[size_t(k)], n = c.sizes[k];
      around.resize(size_t(n));
      random::labels_of(p, stream, n, labels + start, inputs ? around.data() : nullptr);
      if (inputs) draw_inputs(p, stream, n, around.data(), inputs + start * p.dimensions);
    }
  });
}

random::LabelDistribution distribution_of(const char* name) {
  const std::string given = name;
  if (given == "iid") return random::LabelDistribution::iid;
  if (given == "shards") return random::LabelDistribution::shards;
  if (given == "dirichlet") return random::LabelDistribution::dirichlet;
  throw std::invalid_argument("distribution = " + given + "; expected iid, shards or dirichlet");
}

void philox_words(random::Key key, int64_t n, const uint32_t* counters, uint32_t* words) {
  for (int64_t i = 0; i < 4 * n; i += 4) {
    random::Blocks<1> block;
    for (int j = 0; j < 4; ++j) block.word[j][0] = counters[i + j];
    random::philox(block, key);
    for (int j = 0; j < 4; ++j) words[i + j] = block.word[j][0];
  }
}

}  // namespace fedasd::cpu
