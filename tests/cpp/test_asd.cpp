// The CPU kernels on the cases of asd_cases.h, and the same bits for any number of threads.
#include <tuple>
#include <utility>

#include "asd_cases.h"

namespace {

using namespace cases;

struct Cpu : Backend {
  explicit Cpu(Parallel p) : parallel(std::move(p)) {}
  void loss_and_gradient(const Problem& p, const std::vector<Memory>&) override {
    fedasd::cpu::loss_and_gradient(p, parallel);
  }
  void build_cache(const CacheProblem& p, const std::vector<Memory>&) override {
    fedasd::cpu::build_cache(p, parallel);
  }
  Parallel parallel;
};

// Threads are only used above a certain amount of work: 2 threads take a client each, 4 share the rows of one.
void check_threads(const Case& c) {
  for (int threads : {2, 4}) {
    Batch one(c), many(c);
    Cpu serial_cpu(serial()), threaded_cpu(threaded(threads, c.seed));
    if (c.cached()) {
      build_cache(serial_cpu, one);
      build_cache(threaded_cpu, many);
      CHECK(one.cache == many.cache && one.constant == many.constant && one.log_weight == many.log_weight,
            "cache, threads", c);
    }
    CHECK(run(serial_cpu, one) == run(threaded_cpu, many), "bits depend on threads", threads, c);
  }
}

void check_threads_grid() {
  unsigned seed = 5000;
  for (auto [clients, batch, classes] : {std::tuple{1, 7001, 10}, {3, 2203, 32}, {1, 2003, 33}, {3, 97, 1025}})
    for (DType type : {DType::f32, DType::f64})
      for (Divergence divergence : {Divergence::kl, Divergence::js})
        for (TeacherRows rows : {TeacherRows::logits, TeacherRows::log_probabilities, TeacherRows::none}) {
          Case c = draw(++seed);
          c.clients = clients;
          c.batch = batch;
          c.classes = classes;
          c.student = type;
          c.options.divergence = divergence;
          c.set_rows(rows);
          c.masked = false;
          check_threads(c);
        }
}

// Logits whose differences are too large for float: the loss is what double arithmetic makes of them.
void check_huge_logits(Cpu& cpu) {
  for (Divergence divergence : {Divergence::kl, Divergence::reverse_kl, Divergence::js})
    for (TeacherRows rows : {TeacherRows::logits, TeacherRows::log_probabilities})
      for (int64_t classes : {3, 10, 100, 2500}) {
        Case c;
        c.clients = 2;
        c.batch = 4;
        c.classes = classes;
        c.set_rows(rows);
        if (c.cached()) c.cache = c.teacher = DType::f64;
        c.options.divergence = divergence;
        c.options.temperature = 5;
        c.seed = 9;
        Case wide = c;
        wide.student = wide.teacher = DType::f64;
        Batch narrow(c), exact(wide);
        auto spread = [&](LogitsArray& logits, int64_t i, double x) {
          for (int64_t k = 0; k < c.clients; ++k)
            for (int64_t j = 0; j < classes; ++j) logits.set(k, i, j, (j + i) % 2 ? float(x) : float(-x));
        };
        for (Batch* b : {&narrow, &exact}) {
          for (int64_t i = 0; i < c.samples(); ++i) spread(b->teacher, i, divergence == Divergence::kl ? 1 : 3e38);
          for (int64_t i = 0; i < c.batch; ++i) spread(b->student, i, divergence == Divergence::kl ? 3e38 : 1);
          if (c.cached()) build_cache(cpu, *b);
        }
        const Output got = run(cpu, narrow), expected = run(cpu, exact);
        for (int64_t k = 0; k < c.clients; ++k)
          CHECK(std::isfinite(expected.loss.get(k)) &&
                    close(got.loss.get(k), expected.loss.get(k), 1e-5 * std::fabs(expected.loss.get(k))),
                "loss of huge logits", got.loss.get(k), expected.loss.get(k), c);
        for (int64_t i = 0; i < c.clients * c.batch * classes; ++i) {
          const double g = expected.gradient.get(i);
          CHECK(close(got.gradient.get(i), g, 1e-5 * (1 + std::fabs(g))), "gradient of huge logits", i,
                got.gradient.get(i), g, c);
        }
      }
}

}  // namespace

int main() {
  if (check::skip()) return check::kSkip;
  Cpu cpu(serial());
  check_grid(cpu);
  check_cross_entropy(cpu);
  check_threads_grid();
  check_finite_differences(cpu);
  check_equal_student(cpu);
  check_infinite_divergence(cpu);
  check_terms_of_weight_0(cpu);
  check_huge_logits(cpu);
  return check::finish();
}
