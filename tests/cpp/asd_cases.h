// The objective, its gradient and the teacher cache against reference.h, for any backend: every layout, type and
// option, and nothing written beyond the outputs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <random>
#include <vector>

#include "arrays.h"
#include "check.h"

namespace cases {

using namespace arrays;
using fedasd::Divergence;
using fedasd::Options;
using reference::Row;

// What is tested.  `memory` lists all that the problem points to.
struct Backend {
  virtual void loss_and_gradient(const Problem&, const std::vector<Memory>& memory) = 0;
  virtual void build_cache(const CacheProblem&, const std::vector<Memory>& memory) = 0;
  virtual ~Backend() = default;
};

// Errors allowed, in roundoffs of reference.h's scales.
constexpr double kRoundoffs = 4;

struct Case {
  Options options;
  int64_t clients = 1, batch = 0, classes = 0;
  DType student = DType::f32, teacher = DType::f32, cache = DType::f32;
  TeacherRows rows = TeacherRows::logits;
  Layout student_layout = Layout::contiguous, teacher_layout = Layout::contiguous;
  bool wide_integers = true, wide_numbers = true, wide_loss = true, masked = false, aligned_outputs = false;
  bool normalizer = false;  // of alpha: given, not the batch's own
  double logit_scale = 3;
  unsigned seed = 0;

  bool cached() const { return rows == TeacherRows::probabilities || rows == TeacherRows::log_probabilities; }
  void set_rows(TeacherRows kind) {
    rows = kind;
    if (rows == TeacherRows::none) options.asd_weight = 0;
  }
  int64_t samples() const { return cached() ? 2 * batch + 1 : batch; }
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  const char* divergences[] = {"kl", "reverse_kl", "js"};
  const char* rows[] = {"logits", "probabilities", "log_probabilities", "none"};
  const Options& o = c.options;
  out << c.clients << 'x' << c.batch << 'x' << c.classes << ' ' << numbers::name(c.student) << '/'
      << numbers::name(c.teacher);
  out << ' ' << rows[int(c.rows)] << ':' << numbers::name(c.cache) << ' ' << divergences[int(o.divergence)];
  out << " tau " << o.temperature << ',' << o.entropy_temperature << " powers " << o.entropy_power << ','
      << o.prior_power;
  out << " weights " << o.asd_weight << ',' << o.ce_weight << (o.adaptive ? " adaptive" : " uniform");
  out << (c.normalizer ? " normalizer" : "") << (o.not_true ? " not_true" : "") << " ignore " << o.ignore_index
      << (c.masked ? " masked" : "");
  out << " layouts " << int(c.student_layout) << ',' << int(c.teacher_layout) << " scale " << c.logit_scale << " seed "
      << c.seed;
  return out;
}

inline bool close(double got, double expected, double tolerance) {
  return got == expected || std::fabs(got - expected) <= tolerance;
}

inline DType compute_type(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

// The arguments and outputs of one case.
struct Batch {
  Case c;
  LogitsArray student, teacher;
  IntegerArray labels, targets, rows;  // labels: of the teacher's samples; targets: of the batch
  NumberArray prior;
  Guarded cache;
  std::vector<double> constant, log_weight, normalizer;

  explicit Batch(const Case& c_)
      : c(c_), student(c.student, c.student_layout, c.clients, c.batch, c.classes),
        teacher(c.teacher, c.teacher_layout, c.clients, c.samples(), c.classes),
        labels(c.wide_integers, c.samples(), std::vector<int64_t>(size_t(c.clients * c.samples()))),
        targets(c.wide_integers, c.batch, std::vector<int64_t>(size_t(c.clients * c.batch))),
        rows(c.wide_integers, c.batch, std::vector<int64_t>(size_t(c.clients * c.batch))),
        prior(c.wide_numbers, c.classes, std::vector<double>(size_t(c.clients * c.classes))),
        cache(c.cache, c.cached() ? c.clients * c.samples() * c.classes : 0, c.aligned_outputs),
        constant(size_t(c.clients * c.samples())), log_weight(constant), normalizer(size_t(c.clients)) {
    for (int64_t k = 0; k < c.clients; ++k) normalizer[size_t(k)] = 0.3 + 2.5 * double(k);
    std::mt19937 random(c.seed);
    const int64_t ignored = c.options.ignore_index, masked = c.masked ? c.classes / 2 : -1;
    auto draw_label = [&] {
      int64_t label = int64_t(random() % uint64_t(c.classes));
      if (label == masked) label = 0;
      return random() % 5 == 0 ? ignored : label;
    };
    // Logits of ignored rows stay NaN: they take part in nothing.
    auto fill = [&](LogitsArray& logits, int64_t k, int64_t i) {
      std::normal_distribution<double> normal(0, c.logit_scale);
      for (int64_t j = 0; j < c.classes; ++j) logits.set(k, i, j, j == masked ? -reference::kInfinity : normal(random));
    };
    for (int64_t k = 0; k < c.clients; ++k) {
      for (int64_t j = 0; j < c.classes; ++j)
        prior.set(k, j, double(1 + random() % 1000) / (500.0 * double(c.classes)));
      for (int64_t i = 0; i < c.samples(); ++i) {
        labels.set(k, i, draw_label());
        if (labels.get(k, i) != ignored) fill(teacher, k, i);
      }
      for (int64_t i = 0; i < c.batch; ++i) {
        const int64_t row = c.cached() ? int64_t(random() % uint64_t(c.samples())) : i;
        const bool valid = labels.get(k, row) != ignored;
        targets.set(k, i, labels.get(k, row));
        rows.set(k, i, valid ? row : -7);
        if (valid) fill(student, k, i);
      }
    }
  }

  int64_t label(const IntegerArray& array, int64_t k, int64_t i) const {
    const int64_t label = array.get(k, i);
    return label == c.options.ignore_index ? -1 : label;
  }

  CacheProblem cache_problem() {
    CacheProblem p;
    p.options = c.options;
    p.clients = c.clients;
    p.samples = c.samples();
    p.classes = c.classes;
    p.teacher = teacher.view();
    p.targets = labels.view();
    p.label_prior = prior.view();
    p.rows = {cache.data(), c.cache, c.rows == TeacherRows::log_probabilities};
    p.constant = constant.data();
    p.log_weight = log_weight.data();
    return p;
  }

  Problem problem(Losses loss, void* gradient) {
    Problem p;
    p.options = c.options;
    p.clients = c.clients;
    p.batch = c.batch;
    p.classes = c.classes;
    p.student = student.view();
    p.targets = targets.view();
    p.loss = loss;
    p.gradient = gradient;
    p.teacher_rows = c.rows;
    if (c.rows == TeacherRows::none) return p;
    if (c.normalizer) p.alpha_normalizer = {normalizer.data(), true, 1, 0};
    if (!c.cached()) {
      p.teacher = teacher.view();
      p.label_prior = prior.view();
      return p;
    }
    p.cached = c.samples();
    p.teacher = {{cache.data(), c.cache, c.classes, 1}, c.samples() * c.classes};
    p.rows = rows.view();
    p.cache_targets = labels.view();
    p.cache_constant = {constant.data(), true, c.samples(), 1};
    p.cache_log_weight = {log_weight.data(), true, c.samples(), 1};
    return p;
  }

  std::vector<Memory> inputs() const {
    return {student.memory("student"),
            teacher.memory("teacher"),
            labels.memory("labels"),
            targets.memory("targets"),
            rows.memory("rows"),
            prior.memory("label_prior"),
            cache.memory("cache", true),
            memory_of(constant, "cache_constant", true),
            memory_of(log_weight, "cache_log_weight", true),
            memory_of(normalizer, "alpha_normalizer", true)};
  }

  double stored(int64_t k, int64_t row, int64_t j) const { return cache.get((k * c.samples() + row) * c.classes + j); }

  // What the objective should make of the teacher: a cached row counts as it was stored.
  reference::Teacher reference_teacher(int64_t k, int64_t i) const {
    const int64_t y = label(targets, k, i), row = rows.get(k, i);
    if (y < 0) return {};
    if (c.rows == TeacherRows::none) {  // any teacher will do: the student, who is at no distance from itself
      const Row z = student.row(k, i);
      return {reference::log_softmax(z, c.options.temperature, reference::excluded(c.options, z, y))};
    }
    if (!c.cached()) return reference::teacher(c.options, teacher.row(k, i), y, prior.get(k, y));
    reference::Teacher t{Row(size_t(c.classes)), log_weight[size_t(k * c.samples() + row)]};
    for (int64_t j = 0; j < c.classes; ++j)
      t.log_s[size_t(j)] = c.rows == TeacherRows::probabilities ? std::log(stored(k, row, j)) : stored(k, row, j);
    return t;
  }
};

// Losses and gradient of one run, comparable bit by bit.
struct Output {
  Guarded loss, gradient;
  bool operator==(const Output& other) const { return loss == other.loss && gradient == other.gradient; }
};

inline DType loss_type(const Case& c) { return c.wide_loss ? DType::f64 : DType::f32; }

inline Output run(Backend& backend, Batch& b, bool with_gradient = true) {
  const Case& c = b.c;
  Output out{Guarded(loss_type(c), c.clients, c.aligned_outputs),
             Guarded(c.student, with_gradient ? c.clients * c.batch * c.classes : 0, c.aligned_outputs)};
  std::vector<Memory> memory = b.inputs();
  memory.push_back(out.loss.memory("loss"));
  memory.push_back(out.gradient.memory("gradient"));
  backend.loss_and_gradient(b.problem({out.loss.data(), c.wide_loss}, with_gradient ? out.gradient.data() : nullptr),
                            memory);
  CHECK(out.loss.intact() && out.gradient.intact(), "written out of bounds", c);
  return out;
}

inline void build_cache(Backend& backend, Batch& b) {
  std::vector<Memory> memory = b.inputs();
  for (Memory& m : memory) m.read_only = false;
  backend.build_cache(b.cache_problem(), memory);
  CHECK(b.cache.intact(), "cache written out of bounds", b.c);
}

inline void check_cache(Backend& backend, Batch& b) {
  const Case& c = b.c;
  build_cache(backend, b);
  const double roundoff = kRoundoffs * numbers::unit_roundoff(compute_type(c.teacher)),
               stored = numbers::unit_roundoff(c.cache);
  const double tiny = std::max(numbers::tiny(c.cache), numbers::tiny(compute_type(c.teacher)));
  for (int64_t k = 0; k < c.clients; ++k)
    for (int64_t i = 0; i < c.samples(); ++i) {
      const int64_t y = b.label(b.labels, k, i);
      if (y < 0) {
        for (int64_t j = 0; j < c.classes; ++j)
          CHECK(b.stored(k, i, j) == 0, "cache row of an ignored sample", i, j, c);
        continue;
      }
      const Row t = b.teacher.row(k, i);
      const reference::Teacher expected = reference::teacher(c.options, t, y, b.prior.get(k, y));
      const double condition = reference::condition(t, std::min(c.options.temperature, c.options.entropy_temperature));
      for (int64_t j = 0; j < c.classes; ++j) {
        const double log_s = expected.log_s[size_t(j)], s = std::exp(log_s);
        const bool logs = c.rows == TeacherRows::log_probabilities;
        const double tolerance =
            logs ? roundoff * condition + stored * std::fabs(log_s) : (roundoff * condition + stored) * s;
        CHECK(close(b.stored(k, i, j), logs ? log_s : s, tolerance + tiny), "cache row", k, i, j, b.stored(k, i, j), s,
              c);
      }
      const double constant = c.rows == TeacherRows::probabilities ? -reference::entropy(expected.log_s) : 0;
      const double got = b.constant[size_t(k * c.samples() + i)], weight = b.log_weight[size_t(k * c.samples() + i)];
      const double constant_error = (roundoff + stored + double(c.classes) * tiny) * condition;
      const double weight_error = roundoff * condition * (1 + c.options.entropy_power);
      CHECK(close(got, constant, constant_error), "sum s log s", k, i, got, constant, c);
      CHECK(close(weight, expected.log_weight, weight_error), "log weight", k, i, weight, expected.log_weight, c);
    }
}

inline void check_objective(Batch& b, const Output& out) {
  const Case& c = b.c;
  const double roundoff = kRoundoffs * numbers::unit_roundoff(compute_type(c.student));
  // An exponential flushed to 0 counts times weights and logarithms; alpha comes on top of that if it exceeds 1.
  const double stored_tiny = numbers::tiny(c.student), flushed = 1e5 * numbers::tiny(compute_type(c.student));
  // A cached row does not quite sum to 1, which the loss, not the gradient, is sensitive to.
  double storage = kRoundoffs * numbers::unit_roundoff(compute_type(c.teacher));
  storage += numbers::unit_roundoff(c.cache) + double(c.classes) * numbers::tiny(c.cache);
  if (!c.cached()) storage = 0;
  for (int64_t k = 0; k < c.clients; ++k) {
    std::vector<Row> student;
    std::vector<reference::Teacher> teacher;
    std::vector<int64_t> label;
    for (int64_t i = 0; i < c.batch; ++i) {
      student.push_back(b.student.row(k, i));
      teacher.push_back(b.reference_teacher(k, i));
      label.push_back(b.label(b.targets, k, i));
    }
    const double normalizer = c.normalizer ? b.normalizer[size_t(k)] : 0;
    const reference::Result expected = reference::objective(c.options, student, teacher, label, normalizer);
    const double loss = out.loss.get(k);
    const double loss_error =
        (roundoff + storage) * expected.loss_scale + numbers::unit_roundoff(loss_type(c)) * std::fabs(expected.loss);
    CHECK(close(loss, expected.loss, loss_error), "loss", k, loss, expected.loss, loss - expected.loss, c);
    for (int64_t i = 0; i < c.batch; ++i)
      for (int64_t j = 0; j < c.classes; ++j) {
        const double got = out.gradient.get((k * c.batch + i) * c.classes + j),
                     g = expected.gradient[size_t(i)][size_t(j)];
        const double tolerance = roundoff * expected.gradient_scale[size_t(i)][size_t(j)] +
                                 numbers::unit_roundoff(c.student) * std::fabs(g) + stored_tiny +
                                 flushed * expected.largest_alpha;
        CHECK(close(got, g, label[size_t(i)] < 0 ? 0 : tolerance), "gradient", k, i, j, got, g, tolerance, c);
      }
  }
}

inline void check_case(Backend& backend, const Case& c) {
  Batch b(c);
  if (c.cached()) check_cache(backend, b);
  const Output out = run(backend, b);
  check_objective(b, out);
  CHECK(run(backend, b, false).loss == out.loss, "loss without gradient", c);
}

// Options and layouts are drawn, not multiplied out; the seed makes a case the same on every machine.
inline Case draw(unsigned seed) {
  std::mt19937 random(seed);
  auto pick = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random() % sizeof...(values)];
  };
  Case c;
  Options& o = c.options;
  c.seed = seed;
  switch (random() % 3) {
    case 0: o.temperature = 2, o.entropy_temperature = 1; break;
    case 1: o.temperature = 1, o.entropy_temperature = 1; break;
    case 2: o.temperature = 3, o.entropy_temperature = 0.7; break;
  }
  o.entropy_power = pick(1.0, 0.5, 2.0, 0.0);
  o.prior_power = pick(1.0, 0.5, 0.0);
  o.asd_weight = pick(1.0, 30.0, 1.0, 0.0);
  o.ce_weight = pick(1.0, 0.5, 0.0);
  o.adaptive = random() % 4 != 0;
  o.not_true = random() % 3 == 0;
  o.ignore_index = pick(-100, -100, 0);
  c.teacher = pick(DType::f32, DType::f64, DType::bf16, DType::f16);
  c.cache = pick(DType::f32, DType::f64, DType::bf16, DType::f16);
  c.student_layout = pick(Layout::contiguous, Layout::padded, Layout::transposed, Layout::spread);
  c.teacher_layout = pick(Layout::contiguous, Layout::padded, Layout::transposed, Layout::spread);
  c.wide_integers = random() % 2;
  c.wide_numbers = random() % 2;
  c.masked = random() % 4 == 0;
  c.wide_loss = random() % 2;
  c.aligned_outputs = random() % 2;
  c.logit_scale = pick(1.0, 3.0, 60.0);
  c.normalizer = o.adaptive && random() % 3 == 0;
  return c;
}

// Part `part` of `parts` of all cases.
inline void check_grid(Backend& backend, unsigned part = 0, unsigned parts = 1) {
  unsigned seed = 0;
  for (int64_t clients : {1, 3})
    for (int64_t batch : {0, 1, 5, 33})
      for (int64_t classes : {1, 2, 3, 10, 16, 17, 31, 32, 33, 100, 1024, 1025, 2500})
        for (DType type : {DType::f32, DType::f64, DType::bf16, DType::f16})
          for (Divergence divergence : {Divergence::kl, Divergence::reverse_kl, Divergence::js})
            for (TeacherRows rows : {TeacherRows::logits, TeacherRows::probabilities, TeacherRows::log_probabilities}) {
              if (++seed % parts != part) continue;
              if (clients * batch * classes > 20000 && seed / 3 % 3 != unsigned(rows))
                continue;  // one of three is enough
              Case c = draw(seed);
              c.clients = clients;
              c.batch = batch;
              c.classes = classes;
              c.student = type;
              c.options.divergence = divergence;
              c.rows = rows;
              c.masked &= classes >= 10;  // every row keeps a finite logit, also without its true class
              if (divergence == Divergence::reverse_kl && rows == TeacherRows::probabilities) {
                c.logit_scale = 1;  // its rows must not underflow (test_errors.cpp)
                if (c.cache == DType::f16) c.cache = DType::bf16;
              }
              check_case(backend, c);
            }
}

// Without a teacher: the cross-entropy alone.  Its bits are those beside a distillation of weight 0 at temperature 2.
inline void check_cross_entropy(Backend& backend) {
  unsigned seed = 20000;
  for (int64_t clients : {1, 3})
    for (int64_t batch : {0, 1, 5, 33})
      for (int64_t classes : {1, 2, 10, 16, 17, 33, 100, 1024, 1025, 2500})
        for (DType type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
          Case c = draw(++seed);
          c.clients = clients;
          c.batch = batch;
          c.classes = classes;
          c.student = c.teacher = type;
          c.masked &= classes >= 10;
          c.set_rows(TeacherRows::none);
          check_case(backend, c);

          Case with_teacher = c;
          with_teacher.rows = TeacherRows::logits;
          with_teacher.options.temperature = 2;
          with_teacher.options.adaptive = with_teacher.options.not_true = false;
          Batch alone(c), beside(with_teacher);
          for (int64_t k = 0; k < clients; ++k)
            for (int64_t i = 0; i < batch; ++i)
              for (int64_t j = 0; j < classes; ++j) beside.teacher.set(k, i, j, beside.student.get(k, i, j));
          CHECK(run(backend, alone) == run(backend, beside),
                "bits of the cross-entropy beside a distillation of weight 0", c);
        }

  Case c;
  c.clients = 2;
  c.batch = 7;
  for (int64_t classes : {10, 100, 2500}) {
    c.classes = classes;
    c.set_rows(TeacherRows::none);
    Batch b(c);
    for (int64_t i = 0; i < c.batch; ++i) b.targets.set(1, i, c.options.ignore_index);
    const Output out = run(backend, b);
    CHECK(out.loss.get(0) > 0 && out.loss.get(1) == 0, "loss of a client without a valid row", out.loss.get(1), c);
    for (int64_t i = c.batch * classes; i < 2 * c.batch * classes; ++i)
      CHECK(out.gradient.get(i) == 0, "gradient of a client without a valid row", i, out.gradient.get(i), c);
  }
}

// The gradient is that of the loss: this does not rely on the derivation in reference.h.
inline void check_finite_differences(Backend& backend) {
  for (Divergence divergence : {Divergence::kl, Divergence::reverse_kl, Divergence::js})
    for (bool not_true : {false, true})
      for (int64_t classes : {3, 40}) {
        Case c;
        c.batch = 4;
        c.classes = classes;
        c.student = c.teacher = DType::f64;
        c.options.divergence = divergence;
        c.options.not_true = not_true;
        c.options.asd_weight = 2;
        c.logit_scale = 1;
        c.seed = 7;
        Batch b(c);
        const Output out = run(backend, b);
        auto loss_with = [&](int64_t i, int64_t j, double x) {
          b.student.set(0, i, j, x);
          return run(backend, b, false).loss.get(0);
        };
        const double h = 1e-5;
        for (int64_t i = 0; i < c.batch; ++i)
          for (int64_t j = 0; j < classes; ++j) {
            const double x = b.student.get(0, i, j), up = loss_with(i, j, x + h), down = loss_with(i, j, x - h);
            b.student.set(0, i, j, x);
            const double slope = (up - down) / (2 * h), got = out.gradient.get(i * classes + j);
            CHECK(close(got, slope, 1e-9), "finite difference", i, j, got, slope, c);
          }
      }
}

// A student that equals its teacher is at the minimum exactly, not up to rounding.
inline void check_equal_student(Backend& backend) {
  for (DType type : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (Divergence divergence : {Divergence::kl, Divergence::reverse_kl, Divergence::js})
      for (double temperature : {2.0, 1.0, 3.0, 0.7})
        for (bool not_true : {false, true})
          for (int64_t classes : {2, 10, 33, 100, 2500}) {
            Case c;
            c.batch = 19;
            c.classes = classes;
            c.student = c.teacher = type;
            c.options.divergence = divergence;
            c.options.temperature = temperature;
            c.options.not_true = not_true;
            c.options.ce_weight = 0;
            c.seed = 11;
            Batch b(c);
            for (int64_t i = 0; i < c.batch; ++i)
              for (int64_t j = 0; j < classes; ++j) b.student.set(0, i, j, b.teacher.get(0, i, j));
            const Output out = run(backend, b);
            if (divergence == Divergence::kl)
              CHECK(out.loss.get(0) == 0, "loss of an equal student", out.loss.get(0), c);
            CHECK(close(out.loss.get(0), 0, 1e-6), "loss of an equal student", out.loss.get(0), c);
            for (int64_t i = 0; i < c.batch * classes; ++i)
              CHECK(out.gradient.get(i) == 0, "gradient of an equal student", i, out.gradient.get(i), c);
          }
}

// Infinite, not NaN: a student that excludes what its teacher allows (kl), or the other way round (reverse_kl).
inline void check_infinite_divergence(Backend& backend) {
  for (Divergence divergence : {Divergence::kl, Divergence::reverse_kl})
    for (int64_t classes : {10, 100, 2500}) {
      Case c;
      c.batch = 3;
      c.classes = classes;
      c.options.divergence = divergence;
      c.seed = 3;
      Batch b(c);
      LogitsArray& excluding = divergence == Divergence::kl ? b.student : b.teacher;
      for (int64_t j = 0; j < classes; ++j) {
        b.student.set(0, 1, j, 0);
        b.teacher.set(0, 1, j, 0);
      }
      excluding.set(0, 1, 5, -reference::kInfinity);
      b.targets.set(0, 1, 0);
      const double loss = run(backend, b).loss.get(0);
      CHECK(loss == reference::kInfinity, "infinite divergence", loss, c);
    }
}

// A term of weight 0 is left out, not multiplied by 0: an infinite divergence beside it would give NaN.
inline void check_terms_of_weight_0(Backend& backend) {
  for (Divergence divergence : {Divergence::kl, Divergence::reverse_kl, Divergence::js})
    for (TeacherRows rows : {TeacherRows::logits, TeacherRows::log_probabilities})
      for (int64_t classes : {10, 100, 2500})
        for (double ce_weight : {1.0, 0.0}) {
          Case c;
          c.clients = 2;
          c.batch = 3;
          c.classes = classes;
          c.set_rows(rows);
          c.options.divergence = divergence;
          c.options.temperature = 3;
          c.options.asd_weight = 0;
          c.options.ce_weight = ce_weight;
          c.seed = 5;
          Batch b(c);
          for (int64_t k = 0; k < c.clients; ++k)
            for (int64_t i = 0; i < c.samples(); ++i) b.teacher.set(k, i, 5, -reference::kInfinity);
          if (b.c.cached()) build_cache(backend, b);
          if (ce_weight == 0) b.student.set(0, 0, 1, reference::kInfinity);
          const Output out = run(backend, b);
          for (int64_t k = 0; k < c.clients; ++k)
            CHECK(ce_weight == 0 ? out.loss.get(k) == 0 : std::isfinite(out.loss.get(k)), "loss", out.loss.get(k), c);
          for (int64_t i = 0; i < c.clients * c.batch * classes; ++i) {
            const double g = out.gradient.get(i);
            CHECK(ce_weight == 0 ? g == 0 : std::isfinite(g), "gradient", i, g, c);
          }
        }
}

}  // namespace cases
