// The whole-client op of the CPU against plain loops in double, and the same bits for any number of threads.
#include "chain_cases.h"
#include "cpu/chain.h"

namespace {

using namespace chain_cases;

auto on(const cpu::Parallel& parallel) {
  return [parallel](const ChainTraining& p, const std::vector<arrays::Memory>&) {
    CHECK(cpu::train_clients(p, parallel), "not stopped", p.clients);
  };
}

template <class T>
void check_cohort(unsigned seed) {
  Cohort<T> cohort(seed);
  const auto found = cohort.run(on(arrays::serial()));
  const double worst = worst_difference(cohort, found);
  CHECK(worst < kTolerance<T>, "differs from the definition", seed, worst);
  for (int threads : {2, 4})
    CHECK(cohort.run(on(arrays::threaded(threads, seed))) == found, "bits depend on threads", seed);
}

void check_stop() {
  Cohort<float> cohort(1);
  cohort.epochs.assign(cohort.epochs.size(), 1 << 20);
  cohort.orders.clear();
  for (int64_t n : cohort.sizes)
    for (int e = 0; e < 1 << 20; ++e)
      for (int64_t i = 0; i < n; ++i) cohort.orders.push_back(i);
  int asked = 0;
  cohort.p.stop = [&] { return ++asked == 2; };
  ChainTraining& p = cohort.p;
  cohort.point();
  std::vector<float> ends(size_t(p.clients * p.size)), losses(size_t(p.clients * p.steps));
  std::vector<double> distances(static_cast<size_t>(p.clients));
  p.ends = {ends.data(), p.size};
  p.losses = {losses.data(), false};
  p.distances = distances.data();
  CHECK(!cpu::train_clients(p, arrays::serial()), "stops", asked);
  p.stop = [&]() -> bool { throw std::runtime_error("asked"); };
  try {
    cpu::train_clients(p, arrays::serial());
    CHECK(false, "an error of stop is thrown on", asked);
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()) == "asked", "an error of stop is thrown on", error.what());
  }
}

void check_error() {
  Cohort<float> cohort(2);
  cohort.targets.back() = 1000;
  try {
    cohort.run(on(arrays::threaded(2, 1)));
    CHECK(false, "a label that is no class is refused", 0);
  } catch (const std::invalid_argument& error) {
    const std::string name = "client " + std::to_string(cohort.p.clients - 1);
    CHECK(std::string(error.what()).find(name) == 0, "the error names the client", error.what());
  }
}

}  // namespace

int main() {
  if (check::skip()) return check::kSkip;
  for (unsigned seed = 0; seed < 60; ++seed) {
    check_cohort<double>(seed);
    check_cohort<float>(seed);
  }
  check_stop();
  check_error();
  return check::finish();
}
