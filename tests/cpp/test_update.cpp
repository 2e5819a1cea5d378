// The CPU's client update on the cases of update_cases.h, and the same bits for any number of threads.
#include <utility>

#include "cpu/update.h"
#include "update_cases.h"

namespace {

using namespace update_cases;
using arrays::Parallel;

struct Cpu : Backend {
  explicit Cpu(Parallel p) : parallel(std::move(p)) {}
  void local_step(const LocalStep& p, const std::vector<Memory>&) override { fedasd::cpu::local_step(p, parallel); }
  void ascend(const Ascent& p, const std::vector<Memory>&) override { fedasd::cpu::ascend(p, parallel); }
  void accumulate(const Accumulation& p, const std::vector<Memory>&) override { fedasd::cpu::accumulate(p, parallel); }
  Parallel parallel;
};

// Large enough for threads: clients at once, clients left over, one client cut in pieces.
template <class T>
void check_threads(unsigned seed) {
  for (auto [clients, size] : {std::pair<int64_t, int64_t>{1, 200001}, {3, 132000}, {30, 5003}}) {
    Case c = draw(seed);
    c.clients = clients;
    c.size = size;
    Cpu one(arrays::serial());
    Step<T> expected(c);
    expected.run(one);
    for (int threads : {2, 4}) {
      Cpu many(arrays::threaded(threads, seed));
      Step<T> actual(c);
      actual.run(many);
      CHECK(actual == expected, "bits depend on threads", threads, c);
    }
    Cpu two(arrays::threaded(2, seed));
    check_ascent<T>(two, c);
    check_accumulation<T>(two, c);
  }
}

// Squares that float does not hold, and what is not a number.
void check_extremes(Cpu& cpu) {
  Case c;
  c.size = 37;
  c.clip = Clip::active;
  c.norms = true;
  auto norm_with = [&](float x) {
    Step<float> s(c);
    s.g.at(0, 5) = x;
    s.run(cpu);
    return std::pair<double, double>(s.norms[0], double(s.w.at(0, 6)));
  };
  CHECK(std::fabs(norm_with(1e30f).first / 1e30 - 1) < 1e-6, "large gradient", norm_with(1e30f).first);
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isinf(norm_with(infinity).first) && std::isfinite(norm_with(infinity).second),
        "inf: the others are clipped to 0", norm_with(infinity).second);
  CHECK(std::isnan(norm_with(nan).first) && std::isnan(norm_with(nan).second), "NaN: spoils its client",
        norm_with(nan).second);
}

}  // namespace

int main() {
  if (check::skip()) return check::kSkip;
  Cpu cpu(arrays::serial());
  for (unsigned seed = 0; seed < 150; ++seed) {
    const Case c = draw(seed);
    check_case<float>(cpu, c);
    check_case<double>(cpu, c);
    if (seed % 5 == 0) check_alone<float>(cpu, c), check_alone<double>(cpu, c);
  }
  check_threads<float>(1000);
  check_threads<double>(1001);
  check_threads<float>(1002);
  check_extremes(cpu);
  return check::finish();
}
