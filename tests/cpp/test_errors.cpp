// Bad arguments of csrc/cpu/asd.cpp: an exception is thrown, naming the argument, its place and its value, and before
// anything of that client is written.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "check.h"

namespace {

using namespace arrays;

constexpr double kInfinity = reference::kInfinity, kNaN = std::numeric_limits<double>::quiet_NaN();

// Runs f, which must throw std::invalid_argument with all of `parts` in its message.
template <class F>
void refuses(const std::vector<std::string>& parts, F f) {
  std::string message;
  try {
    f();
  } catch (const std::invalid_argument& error) {
    message = error.what();
  }
  CHECK(!message.empty(), "no exception where one was due:", parts[0]);
  for (const std::string& part : parts)
    CHECK(message.find(part) != std::string::npos, "missing:", part, "in:", message);
}

// A small valid problem, with a cache of its teacher's five samples, for the tests to spoil.
struct Setup {
  static constexpr int64_t batch = 3, samples = 5, classes = 4;
  int64_t clients;
  LogitsArray student, teacher;
  IntegerArray labels, targets, rows;
  NumberArray prior;
  std::vector<double> loss, constant, log_weight;
  std::vector<float> gradient, cache;
  fedasd::Options options;
  Parallel parallel = serial();

  explicit Setup(int64_t clients_ = 1)
      : clients(clients_), student(DType::f32, Layout::contiguous, clients, batch, classes),
        teacher(DType::f32, Layout::contiguous, clients, samples, classes),
        labels(true, samples, std::vector<int64_t>(size_t(clients * samples))),
        targets(true, batch, std::vector<int64_t>(size_t(clients * batch))), rows(targets),
        prior(true, classes, std::vector<double>(size_t(clients * classes), 0.25)), loss(size_t(clients), -1.0),
        constant(size_t(clients * samples)), log_weight(constant), gradient(size_t(clients * batch * classes), -1.0f),
        cache(size_t(clients * samples * classes)) {
    for (int64_t k = 0; k < clients; ++k) {
      for (int64_t i = 0; i < samples; ++i) labels.set(k, i, i % classes);
      for (int64_t i = 0; i < batch; ++i) {
        rows.set(k, i, 2 * i);
        targets.set(k, i, labels.get(k, 2 * i));
      }
      for (int64_t c = 0; c < classes; ++c) {
        for (int64_t i = 0; i < samples; ++i) teacher.set(k, i, c, double(i - c));
        for (int64_t i = 0; i < batch; ++i) student.set(k, i, c, double(c));
      }
    }
  }

  void without_teacher() {
    Problem p;
    p.options = options;
    p.clients = clients;
    p.batch = batch;
    p.classes = classes;
    p.student = student.view();
    p.teacher_rows = TeacherRows::none;
    p.targets = targets.view();
    p.loss = {loss.data(), true};
    p.gradient = gradient.data();
    loss_and_gradient(p, parallel);
  }

  void from_logits(const double* alpha_normalizer = nullptr) {
    Problem p;
    p.alpha_normalizer = {alpha_normalizer, true, 1, 0};
    p.options = options;
    p.clients = clients;
    p.batch = batch;
    p.classes = classes;
    p.student = student.view();
    p.teacher = teacher.view();
    p.targets = targets.view();
    p.label_prior = prior.view();
    p.loss = {loss.data(), true};
    p.gradient = gradient.data();
    loss_and_gradient(p, parallel);
  }

  void build(bool logarithms = false) {
    CacheProblem p;
    p.options = options;
    p.clients = clients;
    p.samples = samples;
    p.classes = classes;
    p.teacher = teacher.view();
    p.targets = labels.view();
    p.label_prior = prior.view();
    p.rows = {cache.data(), DType::f32, logarithms};
    p.constant = constant.data();
    p.log_weight = log_weight.data();
    build_cache(p, parallel);
  }

  void from_cache(bool logarithms = false) {
    Problem p;
    p.options = options;
    p.clients = clients;
    p.batch = batch;
    p.classes = classes;
    p.student = student.view();
    p.targets = targets.view();
    p.teacher_rows = logarithms ? TeacherRows::log_probabilities : TeacherRows::probabilities;
    p.teacher = {{cache.data(), DType::f32, classes, 1}, samples * classes};
    p.cached = samples;
    p.rows = rows.view();
    p.cache_targets = labels.view();
    p.cache_constant = {constant.data(), true, samples, 1};
    p.cache_log_weight = {log_weight.data(), true, samples, 1};
    p.loss = {loss.data(), true};
    p.gradient = gradient.data();
    loss_and_gradient(p, parallel);
  }

  bool untouched(int64_t client) const {
    const auto begin = gradient.begin() + client * batch * classes;
    return loss[size_t(client)] == -1 && std::all_of(begin, begin + batch * classes, [](float x) { return x == -1; });
  }
};

void valid_problems_pass() {
  Setup s(2);
  s.from_logits();
  s.build();
  s.from_cache();
  CHECK(std::isfinite(s.loss[0]) && std::isfinite(s.loss[1]), "the setup is valid", s.loss[0], s.loss[1]);
}

void labels_out_of_range() {
  for (int64_t label : {int64_t(-1), int64_t(4), int64_t(1) << 40, std::numeric_limits<int64_t>::min()}) {
    const std::string value = " = " + std::to_string(label), remedy = "[0, 4) nor ignore_index = -100";
    Setup raw;
    raw.targets.set(0, 1, label);
    refuses({"targets[1]" + value, remedy}, [&] { raw.from_logits(); });
    CHECK(raw.untouched(0), "written in spite of a bad label", label);

    Setup cached;
    cached.build();
    cached.targets.set(0, 1, label);
    refuses({"targets[1]" + value, remedy}, [&] { cached.from_cache(); });

    Setup alone;
    alone.options.asd_weight = 0;
    alone.targets.set(0, 1, label);
    refuses({"targets[1]" + value, remedy}, [&] { alone.without_teacher(); });
    CHECK(alone.untouched(0), "written in spite of a bad label", label);

    Setup building(2);
    building.labels.set(1, 4, label);
    refuses({"targets[1, 4]" + value, remedy}, [&] { building.build(); });
  }
}

void a_distillation_needs_a_teacher() {
  Setup s(2);
  s.options.asd_weight = 0.5;
  refuses({"asd_weight = 0.5", "no teacher", "cross-entropy alone"}, [&] { s.without_teacher(); });
  CHECK(s.untouched(0) && s.untouched(1), "written without a teacher");
  s.options.asd_weight = 0;
  s.without_teacher();
  CHECK(s.loss[0] > 0 && s.loss[1] > 0 && !s.untouched(1), "the remedy works", s.loss[0], s.loss[1]);
}

void normalizers_that_are_not_positive() {
  for (double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const double normalizers[] = {1.0, bad};
    Setup s(2);
    refuses({"alpha_normalizer[1] = ", "positive finite number"}, [&] { s.from_logits(normalizers); });
    CHECK(s.untouched(1), "written in spite of a bad normalizer", bad);
    s.options.asd_weight = 0;  // then it is not looked at
    s.from_logits(normalizers);
    CHECK(s.loss[1] > 0, "cross-entropy beside a bad normalizer", s.loss[1]);
  }
}

// All rows are one row of memory, as in an expanded tensor.  12 numbers a row would be 2^64 bytes and some, and 2^40
// rows more than any machine has.
void rows_beyond_memory() {
  for (int64_t rows : {std::numeric_limits<int64_t>::max() / 6 + 1, std::numeric_limits<int64_t>::max(), 1L << 40}) {
    Setup s;
    Problem p;
    p.options = s.options;
    p.options.asd_weight = 0;
    p.batch = rows;
    p.classes = 1;
    p.student = s.student.view();
    p.student.first.row_stride = 0;
    p.teacher_rows = TeacherRows::none;
    p.targets = s.targets.view();
    p.targets.row_stride = 0;
    p.loss = {s.loss.data(), true};
    refuses({"student_logits has " + std::to_string(rows) + " rows", "no memory", "fewer rows"},
            [&] { loss_and_gradient(p, s.parallel); });
    CHECK(s.loss[0] == -1, "written in spite of missing memory", s.loss[0]);

    CacheProblem cache;
    cache.samples = rows;
    cache.classes = 1;
    cache.teacher = p.student;
    cache.targets = p.targets;
    cache.label_prior = s.prior.view();
    refuses({"teacher_logits has " + std::to_string(rows) + " rows", "no memory"},
            [&] { build_cache(cache, s.parallel); });
  }
}

void proportions_not_positive() {
  const std::pair<double, const char*> proportions[] = {
      {0.0, " = 0,"}, {-0.25, " = -0.25,"}, {kNaN, "nan,"}, {kInfinity, " = inf,"}};
  for (auto [proportion, text] : proportions) {
    Setup raw(2);
    raw.prior.set(1, 2, proportion);
    refuses({"label_prior[1, 2] = ", text, "targets[1, 1] = 2", "positive"}, [&] { raw.from_logits(); });
    CHECK(!raw.untouched(0) && raw.untouched(1), "only the client concerned is refused", proportion);

    Setup building;
    building.prior.set(0, 2, proportion);
    refuses({"label_prior[2] = ", text, "targets[2] = 2"}, [&] { building.build(); });

    Setup uniform(2);  // no weights, no label proportions
    uniform.prior.set(1, 2, proportion);
    uniform.options.adaptive = false;
    uniform.from_logits();
    Setup absent;  // class 3 is not in the batch
    absent.prior.set(0, 3, proportion);
    absent.from_logits();
    CHECK(std::isfinite(uniform.loss[1]) && std::isfinite(absent.loss[0]), "proportions that are not needed",
          proportion);
  }
}

void cache_rows_that_do_not_fit() {
  for (int64_t row : {int64_t(-1), int64_t(5), int64_t(1) << 40}) {
    Setup s(2);
    s.build();
    s.rows.set(1, 2, row);
    refuses({"rows[1, 2] = " + std::to_string(row), "[0, 5)"}, [&] { s.from_cache(); });
    CHECK(!s.untouched(0) && s.untouched(1), "only the client concerned is refused", row);
  }
  Setup s;
  s.build();
  s.rows.set(0, 0, 3);
  refuses({"targets[0] = 0", "label 3", "row 3"}, [&] { s.from_cache(); });
  CHECK(s.untouched(0), "written in spite of a label mismatch");
}

// A stored 0 may be an underflow; logarithms keep what was there, and a class that both exclude is no problem.
void reverse_kl_of_an_underflow() {
  Setup s(2);
  s.options.divergence = fedasd::Divergence::reverse_kl;
  s.teacher.set(1, 2, 3, -1000);  // batch row 1
  s.build();
  refuses({"probability of 0", "row 2", "student_logits[1, 1]", "log_rows=True"}, [&] { s.from_cache(); });
  s.build(true);
  s.from_cache(true);
  CHECK(std::isfinite(s.loss[1]) && s.loss[1] > 10, "the remedy works", s.loss[1]);

  Setup masked;
  masked.options.divergence = fedasd::Divergence::reverse_kl;
  masked.teacher.set(0, 2, 3, -kInfinity);
  masked.student.set(0, 1, 3, -kInfinity);
  masked.build();
  masked.from_cache();
  CHECK(std::isfinite(masked.loss[0]), "a class masked on both sides", masked.loss[0]);
}

// Ignored rows are not looked at: not their cache row, not their label's proportion.
void ignored_rows_are_not_checked() {
  Setup s;
  s.build();
  s.targets.set(0, 1, -100);
  s.rows.set(0, 1, 99);
  s.from_cache();
  s.prior.set(0, 2, 0);
  s.from_logits();
  CHECK(std::isfinite(s.loss[0]), "ignored row", s.loss[0]);
}

// An exception on a worker thread reaches the caller.
void errors_cross_threads() {
  constexpr int64_t batch = 9000, classes = 8;
  Setup s(4);
  LogitsArray logits(DType::f32, Layout::contiguous, 4, batch, classes);
  IntegerArray targets(true, batch, std::vector<int64_t>(size_t(4 * batch), 0));
  NumberArray prior(true, classes, std::vector<double>(size_t(4 * classes), 0.125));
  targets.set(3, 8999, 8);
  Problem p;
  p.clients = 4;
  p.batch = batch;
  p.classes = classes;
  p.student = p.teacher = logits.view();
  p.targets = targets.view();
  p.label_prior = prior.view();
  p.loss = {s.loss.data(), true};
  refuses({"targets[3, 8999] = 8"}, [&] { loss_and_gradient(p, threaded(3, 1)); });
}

}  // namespace

int main() {
  if (check::skip()) return check::kSkip;
  valid_problems_pass();
  labels_out_of_range();
  a_distillation_needs_a_teacher();
  normalizers_that_are_not_positive();
  rows_beyond_memory();
  proportions_not_positive();
  cache_rows_that_do_not_fit();
  reverse_kl_of_an_underflow();
  ignored_rows_are_not_checked();
  errors_cross_threads();
  return check::finish();
}
