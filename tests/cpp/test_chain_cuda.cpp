// The whole-client op of a GPU, run by csrc/host_cuda: against plain loops in double, in random schedules, and with
// each of its barriers taken away in turn, which has to be noticed.
#include <optional>
#include <string>

#include "chain_cases.h"
#include "on_host.h"

// Every barrier of the kernel comes through here.
namespace barriers {
struct Place {
  const char* file;
  int line;
};
constexpr int kPlaces = 64;
Place seen[kPlaces];
int count = 0, omitted = -1;

// The test's own memory is not the kernel's.
__attribute__((noinline, no_sanitize("thread"), no_sanitize("bounds"))) void wait(const char* file, int line) {
  int i = 0;
  while (i < count && (seen[i].line != line || std::strcmp(seen[i].file, file) != 0)) ++i;
  if (i == count && count < kPlaces) seen[count++] = {file, line};
  if (i != omitted) host_cuda::block_barrier({file, line});
}
}  // namespace barriers
#define __syncthreads() barriers::wait(__FILE__, __LINE__)
#include "cuda/train_clients.cu"

namespace {

using namespace chain_cases;
using namespace on_host;

struct Workspace {
  std::vector<double> memory;
  std::optional<host_cuda::Buffer> buffer;
  void* operator()(size_t bytes) {
    memory.assign((bytes + sizeof(double) - 1) / sizeof(double), -1e300);  // whatever was there before
    buffer.emplace(memory.data(), bytes, "workspace");
    return memory.data();
  }
};

// `threads` of a block; 0: as many as the launcher takes.
auto on_gpu(int threads = 0) {
  return [threads](const ChainTraining& p, const std::vector<Memory>& memory) {
    const Registered known(memory);
    Workspace workspace;
    if (threads == 0) cuda::train_clients(p, std::ref(workspace), nullptr);
    else if (p.type == DType::f64) cuda::train<double>(p, threads, std::ref(workspace), nullptr);
    else cuda::train<float>(p, threads, std::ref(workspace), nullptr);
  };
}

template <class T>
void check_values(unsigned seed) {
  set_device(1 + int(seed % 4), false, seed);
  Cohort<T> cohort(seed);
  const int threads[] = {0, 32, 64, 96, 160};
  typename Cohort<T>::Result found;
  const auto launched = count([&] { found = cohort.run(on_gpu(threads[seed % 5])); });
  CHECK(launched.total() == 1, "launches", launched.total(), seed);
  const double worst = worst_difference(cohort, found);
  CHECK(worst < kTolerance<T>, "differs from the definition", seed, worst);
}

// The same bits in every order of threads and blocks, and for a client alone.
template <class T>
void check_schedules(unsigned seed) {
  Cohort<T> cohort(seed);
  set_device(3, false, 1000 + seed);
  const auto found = cohort.run(on_gpu());
  for (uint64_t schedule : {1, 2, 3}) {
    set_device(1 + int(schedule), false, schedule);
    CHECK(cohort.run(on_gpu()) == found, "bits depend on the schedule", seed, schedule);
  }
  Cohort<T> first = cohort;
  first.p.clients = 1;
  first.targets.resize(size_t(first.sizes[0]));
  first.orders.resize(size_t(first.sizes[0] * first.epochs[0]));
  const auto alone = first.run(on_gpu());
  CHECK(std::equal(alone.ends.begin(), alone.ends.end() - 1, found.ends.begin()), "bits depend on others", seed);
}

// A warp or several, one layer or several, all that a step knows: enough for every barrier to matter.
template <class T>
Cohort<T> everything(unsigned seed, size_t depth) {
  Cohort<T> cohort(seed);
  while (cohort.p.layers.size() != depth || cohort.p.options.asd_weight == 0 || cohort.p.rho == 0)
    cohort = Cohort<T>(++seed);
  return cohort;
}

// Whether the executor or the values tell that something is wrong.
bool noticed(Cohort<float>& cohort, uint64_t schedule) {
  set_device(1, false, schedule);
  try {
    return !(worst_difference(cohort, cohort.run(on_gpu(96))) < kTolerance<float>);
  } catch (const host_cuda::Error&) {
    return true;
  }
}

void check_barriers() {
  Cohort<float> cohorts[] = {everything<float>(1, 3), everything<float>(100, 1)};
  for (auto& cohort : cohorts) CHECK(!noticed(cohort, 1), "something is wrong with all barriers in place");
  CHECK(barriers::count >= 9 && barriers::count < barriers::kPlaces, "barriers of the kernel", barriers::count);
  const int all = barriers::count;
  int of_sums = 0;
  for (int i = 0; i < all; ++i) {
    barriers::omitted = i;
    bool found = false;
    for (auto& cohort : cohorts)
      for (uint64_t schedule = 1; schedule <= 3 && !found; ++schedule) found = noticed(cohort, schedule);
    const auto [file, line] = barriers::seen[i];
    if (std::strstr(file, "reduce.cuh")) of_sums += found;
    else CHECK(found, "a missing barrier went unnoticed", file, line);
  }
  // Of the two in block_reduce the first is for callers that sum twice in a row, which this kernel does not.
  CHECK(of_sums == 1, "missing barriers of sums over the block that were noticed", of_sums);
  barriers::omitted = -1;
  CHECK(barriers::count == all, "barriers seen before", all, barriers::count);
}

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

void check_asserts() {
  auto message = [](auto change) {
    Cohort<float> cohort(3);
    change(cohort);
    set_device(2, false, 1);
    return error_of([&] { cohort.run(on_gpu()); });
  };
  auto expect = [&](const char* part, auto change) {
    const std::string found = message(change);
    CHECK(found.find(part) != std::string::npos, part, found);
  };
  using C = Cohort<float>;
  expect("target_is_a_class", [](C& c) { c.targets.back() = 1000; });
  expect("order_names_a_sample", [](C& c) { c.orders.back() = c.sizes.back(); });
  expect("order_names_a_sample", [](C& c) { c.orders.front() = -1; });
  expect("samples_and_orders_are_in_the_arrays", [](C& c) { c.targets.pop_back(); });
  expect("samples_and_orders_are_in_the_arrays", [](C& c) { c.orders.pop_back(); });
  expect("no error", [](C&) {});
}

// What does not fit is refused with both numbers, and what just fits is not.
void check_limits() {
  Cohort<float> cohort(4);
  cohort.point();
  const int64_t needed = cuda::shared_bytes(cohort.p);
  set_device(2, false, 1);
  host_cuda::device().shared_per_block = size_t(needed);
  CHECK(error_of([&] { cohort.run(on_gpu()); }) == "no error", "fits to the byte", needed);
  host_cuda::device().shared_per_block = size_t(needed - 1);
  const std::string message = error_of([&] { cohort.run(on_gpu()); });
  CHECK(message.find(std::to_string(needed) + " bytes") != std::string::npos, "too much", message);
  Cohort<float> deep(5);
  deep.p.layers.assign(17, {1, 1, 0, -1, Activation::none});
  set_device(2, false, 1);
  CHECK(error_of([&] { deep.run(on_gpu()); }).find("17 layers") != std::string::npos, "too deep");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  if (part == "values") {
    for (unsigned seed = 0; seed < 60; ++seed) {
      check_values<double>(seed);
      check_values<float>(seed);
    }
    check_asserts();
    check_limits();
  } else if (part == "schedules") {
    for (unsigned seed = 60; seed < 90; ++seed) {
      check_schedules<double>(seed);
      check_schedules<float>(seed);
    }
  } else {
#if defined(__SANITIZE_ADDRESS__)
    std::printf("SKIP: the sanitizers' build does not look for races\n");
    return check::kSkip;
#endif
    check_barriers();
  }
  return check::finish();
}
