// The CUDA client update, run by csrc/host_cuda: the cases of update_cases.h, and what only a GPU has.
#include <optional>
#include <string>

#include "cuda/api.h"
#include "on_host.h"
#include "update_cases.h"

namespace {

using namespace update_cases;
using namespace on_host;

struct HostCuda : Backend {
  void local_step(const LocalStep& p, const std::vector<Memory>& memory) override {
    const Registered known(memory);
    fedasd::cuda::local_step(p, std::ref(workspace), nullptr);
    workspace.buffer.reset();
  }
  void ascend(const Ascent& p, const std::vector<Memory>& memory) override {
    const Registered known(memory);
    fedasd::cuda::ascend(p, std::ref(workspace), nullptr);
    workspace.buffer.reset();
  }
  void accumulate(const Accumulation& p, const std::vector<Memory>& memory) override {
    const Registered known(memory);
    fedasd::cuda::accumulate(p, nullptr);
  }

 private:
  struct Workspace {
    std::vector<double> memory;
    std::optional<host_cuda::Buffer> buffer;
    void* operator()(size_t bytes) {
      memory.assign(bytes / sizeof(double), -1e300);  // whatever was there before
      buffer.emplace(memory.data(), bytes, "workspace");
      return memory.data();
    }
  } workspace;
};

struct Shape {
  int64_t clients, size;
};

// A block a client, several, and more clients than blocks: the same bits in every order, with one launch or two.
template <class T>
void check_schedules(HostCuda& cuda) {
  unsigned seed = 500;
  for (Shape shape : {Shape{1, 9001}, {1, 20500}, {2, 17001}, {3, 20481}, {7, 1030}})
    for (Clip clip : {Clip::active, Clip::none}) {
      Case c = draw(++seed);
      c.clients = shape.clients;
      c.size = shape.size;
      c.clip = clip;
      c.norms = clip == Clip::active;
      set_device(5, true, 0);
      Step<T> first(c);
      const auto one = count([&] { first.run(cuda); });
      CHECK(one.total() == 1, "launches", one.plain, one.cooperative, c);
      for (int blocks : {1, 2, 5, 64})
        for (uint64_t schedule : {1, 2}) {
          set_device(blocks, true, schedule);
          Step<T> again(c);
          again.run(cuda);
          CHECK(again == first, "bits depend on the schedule", blocks, schedule, c);
        }
      // Where there are no cooperative launches: two launches in their place, and the same bits.
      set_device(5, false, seed);
      Step<T> fallback(c);
      const auto two = count([&] { fallback.run(cuda); });
      CHECK(fallback == first, "two launches", c);
      CHECK(two.cooperative == 0 && two.plain == 1 + one.cooperative, "launches of the fallback", two.plain, c);
    }
}

// The paths that the schedules above are meant to take.
void check_paths(HostCuda& cuda) {
  auto launched = [&](Shape shape, Clip clip, int blocks) {
    Case c;
    c.clients = shape.clients;
    c.size = shape.size;
    c.clip = clip;
    set_device(blocks, true, 1);
    Step<float> s(c);
    return count([&] { s.run(cuda); });
  };
  CHECK(launched({1, 16384}, Clip::active, 5).plain == 1, "a small client is one block");
  CHECK(launched({1, 16385}, Clip::active, 5).cooperative == 1, "a larger one shares a grid");
  CHECK(launched({1, 16385}, Clip::active, 1).plain == 1, "a device of one block");
  CHECK(launched({5, 16385}, Clip::active, 5).plain == 1, "clients enough for the device");
  CHECK(launched({1, 50000}, Clip::none, 5).plain == 1, "no norm, no barrier");
  CHECK(launched({0, 100}, Clip::active, 5).total() == 0, "no client, no launch");
  // More clients than the parameters of one launch hold.
  Case many;
  many.clients = 600;
  many.size = 3;
  CHECK(count([&] { check_accumulation<float>(cuda, many); }).plain == 3, "600 clients are three launches");
}

void check_asserts(HostCuda& cuda) {
  for (double rate : {-0.1, std::numeric_limits<double>::infinity(), std::nan("")}) {
    Case c;
    c.clients = 3;
    c.per_client = true;
    Step<float> s(c);
    s.lr[2] = rate;
    std::string message = "no error";
    try {
      s.run(cuda);
    } catch (const host_cuda::Error& error) {
      message = error.what();
    }
    CHECK(message.find("lr_is_finite_and_not_negative") != std::string::npos, rate, message);
  }
}

}  // namespace

int main() {
  HostCuda cuda;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Case c = draw(seed, 9001);
    set_device(1 + int(seed % 7), true, seed);
    check_case<float>(cuda, c);
    check_case<double>(cuda, c);
    if (seed % 6 == 0) check_alone<float>(cuda, c), check_alone<double>(cuda, c);
  }
  check_schedules<float>(cuda);
  check_schedules<double>(cuda);
  check_paths(cuda);
  check_asserts(cuda);
  return check::finish();
}
