// The ASD objective and the teacher cache on the CPU: checks values, and runs the row passes on the caller's threads.
#include "asd.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "batch.h"

namespace fedasd::cpu {
namespace {

// About 20 microseconds of work: below that, waking a thread costs more than it saves.
constexpr int64_t kGrainElements = 1 << 15;

std::string place(const char* name, int64_t clients, int64_t client, int64_t row) {
  std::ostringstream text;
  text << name << '[';
  if (clients > 1) text << client << ", ";
  text << row << ']';
  return text.str();
}

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

// Row numbers and the memory they live in.
class RowMemory {
 public:
  // `name`: of the logits that have these rows.
  RowMemory(int64_t rows, const char* name, RowNumbers& numbers) {
    constexpr int64_t row_bytes = RowNumbers::kArrays * int64_t(sizeof(double));
    // An expanded tensor can have any number of rows without any memory.
    if (rows <= std::numeric_limits<int64_t>::max() / row_bytes)
      memory_.reset(new (std::nothrow) double[size_t(std::max<int64_t>(rows, 1) * RowNumbers::kArrays)]);
    if (!memory_)
      refuse(name, " has ", rows, " rows for one client, and there is no memory for the ", row_bytes,
             " bytes that each needs; pass fewer rows at a time");
    double* next = memory_.get();
    auto take = [&] { return std::exchange(next, next + rows); };
    static_assert(sizeof(int64_t) == sizeof(double), "labels share the block");
    numbers.label = reinterpret_cast<int64_t*>(take());
    numbers.teacher_row = reinterpret_cast<int64_t*>(take());
    for (double** field :
         {&numbers.weight, &numbers.teacher_shift, &numbers.teacher_sum, &numbers.entropy_sum, &numbers.entropy_moment,
          &numbers.constant, &numbers.student_sum, &numbers.ce_sum, &numbers.ce_margin, &numbers.cross})
      *field = take();
  }

 private:
  std::unique_ptr<double[]> memory_;
};

int64_t read_label(const Integers& targets, int64_t clients, int64_t k, int64_t i, int64_t classes,
                   int64_t ignore_index) {
  const int64_t label = targets.at(k, i);
  if (label == ignore_index) return -1;
  if (label < 0 || label >= classes)
    refuse(place("targets", clients, k, i), " = ", label, " is neither a class in [0, ", classes,
           ") nor ignore_index = ", ignore_index, "; check the labels or num_classes of the model");
  return label;
}

double read_log_proportion(const Numbers& prior, int64_t clients, int64_t k, int64_t i, int64_t label) {
  const double proportion = prior.at(k, label);
  if (!(proportion > 0) || std::isinf(proportion))
    refuse(
        place("label_prior", clients, k, label), " = ", proportion, ", but the label occurs (",
        place("targets", clients, k, i), " = ", label,
        "); a proportion must be positive: use label_prior(targets, num_classes) over the client's whole training set");
  return std::log(proportion);
}

void read_normalizer(const Problem& p, int64_t k, Client& c) {
  c.has_normalizer = p.alpha_normalizer.data != nullptr;
  if (!c.has_normalizer) return;
  const double normalizer = p.alpha_normalizer.at(k, 0);
  if (!(normalizer > 0) || std::isinf(normalizer))
    refuse("alpha_normalizer", p.clients > 1 ? '[' + std::to_string(k) + ']' : "", " = ", normalizer,
           "; expected a positive finite number: the mean weight, as alpha_normalizer(cache[rows]) gives");
  c.log_normalizer = std::log(normalizer);
}

// Labels, label proportions and cache rows of client k, with all checks that need values: O(batch).
void read_rows(const Problem& p, int64_t k, Client& c) {
  const Options& o = p.options;
  c.valid = 0;
  for (int64_t i = 0; i < p.batch; ++i) {
    const int64_t label = read_label(p.targets, p.clients, k, i, p.classes, o.ignore_index);
    c.rows.label[i] = label;
    c.rows.teacher_row[i] = i;
    c.rows.weight[i] = c.rows.constant[i] = 0;
    if (label < 0) continue;
    ++c.valid;
    if (p.teacher_rows == TeacherRows::none) continue;
    if (p.teacher_rows == TeacherRows::logits) {
      if (o.adaptive) c.rows.weight[i] = read_log_proportion(p.label_prior, p.clients, k, i, label);
      continue;
    }
    const int64_t row = p.rows.at(k, i);
    if (row < 0 || row >= p.cached)
      refuse(place("rows", p.clients, k, i), " = ", row, " is outside the teacher cache's [0, ", p.cached, ")");
    if (p.cache_targets.at(k, row) != label)
      refuse(place("targets", p.clients, k, i), " = ", label, ", but the teacher cache was built with label ",
             p.cache_targets.at(k, row), " for row ", row,
             "; build the cache from these labels, or pass the matching rows");
    c.rows.teacher_row[i] = row;
    if (o.divergence == Divergence::kl) c.rows.constant[i] = p.cache_constant.at(k, row);
    c.rows.weight[i] = p.cache_log_weight.at(k, row);
  }
}

// A stored probability of 0 may be a masked class or one that underflowed; KL(q||s) differs by infinity.
void check_reverse_kl(const Problem& p, int64_t k, const Client& c) {
  if (p.teacher_rows != TeacherRows::probabilities || p.options.divergence != Divergence::reverse_kl) return;
  for (int64_t i = 0; i < p.batch; ++i)
    if (c.rows.label[i] >= 0 && std::isinf(c.rows.cross[i]))
      refuse("the teacher cache holds a probability of 0 in row ", c.rows.teacher_row[i], " where ",
             place("student_logits", p.clients, k, i),
             " does not, and reverse_kl needs its logarithm; build the cache with log_rows=True");
}

// Rows of one client, on the calling thread or split over all.
template <class F>
void over_rows(const Parallel* parallel, int64_t rows, int64_t classes, F f) {
  if (!parallel || parallel->threads <= 1 || rows * classes < 2 * kGrainElements) return f(0, rows);
  parallel->run(rows, std::max<int64_t>(1, kGrainElements / std::max<int64_t>(classes, 1)), f);
}

// f for ranges of clients, in parallel if there are enough of them for every thread, else the rows of each in turn.
// Either way a row's arithmetic is the same, so results do not depend on the number of threads.
template <class F>
void over_clients(const Parallel& parallel, int64_t clients, int64_t elements, F f) {
  if (clients < parallel.threads || parallel.threads <= 1 || clients * elements < 2 * kGrainElements) {
    f(0, clients, &parallel);
    return;
  }
  parallel.run(clients, std::max<int64_t>(1, kGrainElements / std::max<int64_t>(elements, 1)),
               [&](int64_t begin, int64_t end) { f(begin, end, nullptr); });
}

// The loss of client k; writes its gradient.  Terms of weight 0 are left out: 0 times an infinite divergence is NaN.
double client_loss(const Problem& p, const Options& o, int64_t k, Client& c, const Parallel* parallel) {
  const Kernels& run = kernels();
  auto over = [&](auto pass) {
    over_rows(parallel, p.batch, p.classes, [&](int64_t begin, int64_t end) { pass(c, o, begin, end); });
  };
  read_rows(p, k, c);
  if (o.asd_weight != 0) {
    read_normalizer(p, k, c);
    if (p.teacher_rows == TeacherRows::logits) over(run.teacher_rows);
    run.normalise(c, o);
    over(run.student_rows);
    check_reverse_kl(p, k, c);
  } else if (o.ce_weight != 0) {
    over(run.cross_entropy_rows);
  } else if (c.gradient) {
    std::memset(c.gradient, 0, size_t(p.batch * p.classes * size_of(c.student.type)));
  }
  return run.loss(c, o);
}

}  // namespace

void loss_and_gradient(const Problem& p, const Parallel& parallel) {
  check_teacher(p);
  const Options o = effective(p.options, p.classes);
  over_clients(parallel, p.clients, p.batch * p.classes, [&](int64_t begin, int64_t end, const Parallel* over) {
    Client c;
    RowMemory memory(p.batch, "student_logits", c.rows);
    c.batch = p.batch;
    c.classes = p.classes;
    c.teacher_rows = p.teacher_rows;
    for (int64_t k = begin; k < end; ++k) {
      c.student = p.student.client(k);
      if (p.teacher_rows != TeacherRows::none) c.teacher = p.teacher.client(k);
      if (p.gradient) c.gradient = static_cast<char*>(p.gradient) + k * p.batch * p.classes * size_of(c.student.type);
      c.wide = false;
      double loss = client_loss(p, o, k, c, over);
      // The difference of two huge logits may be too large for float while the loss is not.
      if (!std::isfinite(loss) && c.student.type != DType::f64) {
        c.wide = true;
        loss = client_loss(p, o, k, c, over);
      }
      p.loss.set(k, loss);
    }
  });
}

void build_cache(const CacheProblem& p, const Parallel& parallel) {
  const Kernels& run = kernels();
  const Options o = effective(p.options, p.classes);
  over_clients(parallel, p.clients, p.samples * p.classes, [&](int64_t begin, int64_t end, const Parallel* over) {
    Client c;
    RowMemory memory(p.samples, "teacher_logits", c.rows);
    c.batch = p.samples;
    c.classes = p.classes;
    for (int64_t k = begin; k < end; ++k) {
      c.teacher = p.teacher.client(k);
      c.student.type = c.teacher.type;  // decides the arithmetic
      for (int64_t i = 0; i < p.samples; ++i) {
        const int64_t label = read_label(p.targets, p.clients, k, i, p.classes, o.ignore_index);
        c.rows.label[i] = label;
        c.rows.teacher_row[i] = i;
        c.rows.weight[i] = label < 0 ? 0 : read_log_proportion(p.label_prior, p.clients, k, i, label);
      }
      CacheRows rows = p.rows;
      rows.data = static_cast<char*>(rows.data) + k * p.samples * p.classes * size_of(rows.type);
      over_rows(over, p.samples, p.classes, [&](int64_t b, int64_t e) { run.cache_rows(c, o, rows, b, e); });
      run.finish_cache(c, o, rows);
      std::copy_n(c.rows.constant, p.samples, p.constant + k * p.samples);
      std::copy_n(c.rows.weight, p.samples, p.log_weight + k * p.samples);
    }
  });
}

}  // namespace fedasd::cpu
