// The CUDA kernels, run by csrc/host_cuda: the cases of asd_cases.h ("values_1", "values_2"), what only a GPU has
// ("schedules"), and the sectors that warps ask for ("traffic").
#include <sys/mman.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "asd_cases.h"
#include "cuda/api.h"
#include "cuda/kernels.cuh"
#include "cuda/row_parts.cuh"
#include "cuda_traffic.h"
#include "on_host.h"

namespace {

using namespace cases;
using namespace on_host;

struct HostCuda : Backend {
  void loss_and_gradient(const Problem& p, const std::vector<Memory>& memory) override {
    const Registered known(memory);
    std::vector<unsigned char> workspace;
    std::optional<host_cuda::Buffer> buffer;
    auto allocate = [&](size_t bytes) -> void* {
      workspace.assign(bytes, 0xa5);  // whatever was there before
      buffer.emplace(workspace.data(), bytes, "workspace");
      return workspace.data();
    };
    fedasd::cuda::loss_and_gradient(p, allocate, nullptr);
  }
  void build_cache(const CacheProblem& p, const std::vector<Memory>& memory) override {
    const Registered known(memory);
    fedasd::cuda::build_cache(p, nullptr);
  }
};

struct Shape {
  int64_t clients, batch, classes;
};

// One block a client, several of them, and more clients than the device holds blocks; the last rounds are never full.
void check_schedules(HostCuda& cuda) {
  unsigned seed = 9000;
  for (Shape shape : {Shape{1, 50, 100},
                      {1, 560, 10},
                      {1, 1300, 10},
                      {2, 300, 20},
                      {1, 150, 60},
                      {3, 70, 100},
                      {1, 67, 200},
                      {2, 69, 500},
                      {1, 65, 1000},
                      {2, 9, 2500},
                      {7, 3, 1500}})
    for (DType type : {DType::f32, DType::f64, DType::bf16})
      for (TeacherRows rows : {TeacherRows::logits, TeacherRows::probabilities, TeacherRows::none}) {
        Case c = draw(++seed);
        c.clients = shape.clients;
        c.batch = shape.batch;
        c.classes = shape.classes;
        c.student = type;
        c.set_rows(rows);
        c.masked = false;
        c.options.divergence = Divergence(seed % 3);
        if (c.options.divergence == Divergence::reverse_kl) c.logit_scale = 1, c.cache = DType::f32;
        Batch b(c);
        set_device(1 + seed % 7, true, 0);
        if (c.cached()) {
          const auto built = count([&] { check_cache(cuda, b); });
          CHECK(built.total() == 1, "launches of build_cache", built.total(), c);
        }
        std::optional<Output> first;
        const auto one = count([&] { first = run(cuda, b); });
        CHECK(one.total() == 1 && (one.cooperative == 0 || c.rows != TeacherRows::none), "launches", one.plain,
              one.cooperative, c);
        check_objective(b, *first);
        for (uint64_t schedule = 1; schedule <= 6; ++schedule) {
          set_device(1 + seed % 7, true, schedule);
          CHECK(run(cuda, b) == *first, "bits depend on the schedule", schedule, c);
        }
        // Where there are no cooperative launches: two launches in their place, and the same bits.
        set_device(1 + seed % 7, false, seed);
        const auto two = count([&] { CHECK(run(cuda, b) == *first, "two launches", c); });
        CHECK(two.cooperative == 0 && two.plain == 1 + one.cooperative, "launches of the fallback", two.plain, c);
      }
}

// The paths that the schedules above are meant to take.
void check_paths(HostCuda& cuda) {
  auto launched = [&](Shape shape, TeacherRows rows, int blocks) {
    Case c;
    c.clients = shape.clients;
    c.batch = shape.batch;
    c.classes = shape.classes;
    c.set_rows(rows);
    Batch b(c);
    set_device(blocks, true, 1);
    if (c.cached()) build_cache(cuda, b);
    return count([&] { run(cuda, b); });
  };
  CHECK(launched({1, 50, 10}, TeacherRows::logits, 4).plain == 1, "a federated batch is one block");
  CHECK(launched({1, 50, 100}, TeacherRows::logits, 4).cooperative == 1, "or several, where that is faster");
  CHECK(launched({1, 50, 100}, TeacherRows::probabilities, 4).plain == 1, "which need no barrier if cached");
  CHECK(launched({9, 50, 100}, TeacherRows::logits, 4).plain == 1, "more clients than resident blocks");
  CHECK(launched({1, 200, 100}, TeacherRows::logits, 4).cooperative == 1, "a large batch shares a grid");
  CHECK(launched({1, 6, 2000}, TeacherRows::logits, 4).cooperative == 1, "long rows share a grid");
  CHECK(launched({1, 6, 2000}, TeacherRows::logits, 1).plain == 1, "a device of one block");
  CHECK(launched({1, 200, 100}, TeacherRows::probabilities, 4).plain == 1, "a cached teacher needs no barrier");
  CHECK(launched({1, 1500, 10}, TeacherRows::probabilities, 4).cooperative == 1, "so many weights are shared out");
  CHECK(launched({1, 200, 100}, TeacherRows::none, 4).plain == 1, "the cross-entropy alone needs no barrier");
  CHECK(launched({0, 5, 10}, TeacherRows::logits, 4).total() == 0, "no client, no launch");
  CHECK(launched({2, 0, 10}, TeacherRows::logits, 4).total() == 1, "an empty batch has a loss");
}

// Few long rows: several blocks share a row, in one launch, with the same bits in every schedule, and again when a CUDA
// graph replays it with the words that the last launch has left.
void check_rows_in_parts(HostCuda& cuda) {
  unsigned seed = 7000;
  for (Shape shape : {Shape{1, 2, 9001}, {2, 1, 12800}, {1, 3, 30011}})
    for (DType type : {DType::f32, DType::bf16})
      for (TeacherRows rows : {TeacherRows::logits, TeacherRows::probabilities, TeacherRows::none}) {
        Case c = draw(++seed);
        c.clients = shape.clients;
        c.batch = shape.batch;
        c.classes = shape.classes;
        c.student = c.teacher = type;
        c.set_rows(rows);
        c.masked = false;
        c.options.divergence = Divergence(seed % 3);
        c.logit_scale = 1;
        c.cache = DType::f32;
        Batch b(c);
        set_device(16, true, 0);
        if (c.cached()) check_cache(cuda, b);
        std::optional<Output> first;
        const auto one = count([&] { first = run(cuda, b); });
        CHECK(one.cooperative == 1 && one.plain == 0, "launches of rows in parts", one.plain, one.cooperative, c);
        check_objective(b, *first);
        for (uint64_t schedule = 1; schedule <= 3; ++schedule) {
          set_device(16, true, schedule);
          CHECK(run(cuda, b) == *first, "bits depend on the schedule", schedule, c);
        }
        // Where there are no cooperative launches a row is one block's.
        set_device(16, false, seed);
        const auto plain = count([&] { check_objective(b, run(cuda, b)); });
        CHECK(plain.cooperative == 0, "a device without cooperative launches", c);
      }
}

// A CUDA graph replays a launch with the arguments it was captured with: the same memory and the same stamp.
void check_replay(Shape shape, int parts) {
  using namespace fedasd::cuda;
  constexpr int kBlocks = 3;
  Case c;
  c.clients = shape.clients;
  c.batch = shape.batch;
  c.classes = shape.classes;
  c.wide_loss = false;
  Batch b(c);
  std::vector<float> loss(2), gradient(size_t(c.clients * c.batch * c.classes)),
      numbers(size_t(3 * c.clients * c.batch));
  std::vector<double> weight_sums(size_t(3 * c.clients * kBlocks));
  std::vector<uint64_t> partial(size_t(2 * c.clients * kBlocks), 0x123456789abcdefull);
  Parameters<float> p(b.problem({loss.data(), false}, gradient.data()));
  p.log_weight = numbers.data();
  p.teacher_shift = p.log_weight + c.clients * c.batch;
  p.teacher_sum = p.teacher_shift + c.clients * c.batch;
  p.weight_sums = weight_sums.data();
  p.partial_loss = partial.data();
  std::vector<uint64_t> words(size_t(c.clients * kBlocks * kPartWords), 0x123456789abcdefull);
  p.part_words = words.data();
  p.parts = parts;
  p.stamp = 42;
  p.blocks_per_client = kBlocks;
  p.publish_sums = true;
  const auto kernel = objective_of<float, false>(c.classes, true);
  for (uint64_t replay = 0; replay < 20; ++replay) {
    set_device(6, true, replay);
    // Every row changes: a partial loss left over from the last replay shows.
    for (int64_t k = 0; k < c.clients; ++k)
      for (int64_t i = 0; i < c.batch; ++i)
        for (int64_t j = 0; j < c.classes; ++j)
          b.student.set(k, i, j, 3 * std::sin(double(i * 31 + j) * (1.0 + double(replay))));
    host_cuda::launch(kernel.run, dim3(6), dim3(256), true, p);
    HostCuda fresh;
    const Output expected = run(fresh, b);
    for (int64_t k = 0; k < c.clients; ++k)
      CHECK(std::fabs(loss[size_t(k)] - expected.loss.get(k)) < 1e-5, "replay", replay, k, loss[size_t(k)],
            expected.loss.get(k));
  }
}

// What the CPU refuses with an exception is an assert here, and nothing is read out of bounds before it.
void check_asserts(HostCuda& cuda) {
  Case c;
  c.clients = 2;
  c.batch = 20;
  c.classes = 10;
  auto fails = [&](const char* assertion, TeacherRows rows, auto spoil) {
    c.options = {};
    c.set_rows(rows);
    Batch b(c);
    if (c.cached()) build_cache(cuda, b);
    for (int64_t i = 0; i < 3; ++i)  // a valid row to begin with
      if (b.label(b.targets, 1, 5) < 0) b.targets.set(1, 5, b.labels.get(1, 0)), b.rows.set(1, 5, 0);
    spoil(b);
    std::string message = "no error";
    try {
      run(cuda, b);
    } catch (const host_cuda::Error& error) {
      message = error.what();
    }
    CHECK(message.find("device-side assert") != std::string::npos && message.find(assertion) != std::string::npos,
          assertion, message);
  };
  for (TeacherRows rows : {TeacherRows::logits, TeacherRows::probabilities, TeacherRows::none})
    for (int64_t label : {int64_t(10), int64_t(-1), INT64_MAX})
      fails("target_is_a_class", rows, [&](Batch& b) { b.targets.set(1, 5, label); });
  for (int64_t row : {int64_t(41), int64_t(-1), int64_t(1) << 40})
    fails("row_is_in_the_cache", TeacherRows::probabilities, [&](Batch& b) { b.rows.set(1, 5, row); });
  fails("cache was built with", TeacherRows::log_probabilities,
        [&](Batch& b) { b.targets.set(1, 5, (b.targets.get(1, 5) + 1) % 10); });
  for (double proportion : {0.0, -1.0, reference::kInfinity, std::nan("")})
    fails("label_prior", TeacherRows::logits, [&](Batch& b) { b.prior.set(1, b.targets.get(1, 5), proportion); });
}

// A distillation needs a teacher; refused before anything is launched.
void check_teacher_is_needed(HostCuda& cuda) {
  Case c;
  c.batch = 3;
  c.classes = 10;
  c.rows = TeacherRows::none;
  Batch b(c);
  std::string message;
  const auto launched = count([&] {
    try {
      run(cuda, b);
    } catch (const std::invalid_argument& error) {
      message = error.what();
    }
  });
  CHECK(message.find("asd_weight = 1") == 0 && launched.total() == 0, "a distillation without a teacher", message);
}

// Rows more than 2^31 elements apart.  Of the memory between them nothing is ever touched.
void check_far_rows() {
  constexpr int64_t kStride = int64_t(1) << 30;
  Case c;
  c.batch = 4;
  for (int64_t classes : {100, 1500}) {
    c.classes = classes;
    Batch b(c);
    HostCuda cuda;
    const Output expected = run(cuda, b);
    const size_t bytes = size_t((c.batch - 1) * kStride + classes) * sizeof(float);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED, "address space for the test", bytes);
    for (int64_t i = 0; i < c.batch; ++i)
      for (int64_t j = 0; j < classes; ++j)
        static_cast<float*>(memory)[i * kStride + j] = float(b.student.get(0, i, j));
    std::vector<float> gradient(size_t(c.batch * classes));
    double loss = 0;
    Problem p = b.problem({&loss, true}, gradient.data());
    p.student = {{memory, DType::f32, kStride, 1}, 0};
    std::vector<unsigned char> workspace;
    fedasd::cuda::loss_and_gradient(p, [&](size_t size) { return workspace.resize(size), workspace.data(); }, nullptr);
    CHECK(loss == expected.loss.get(0), "far rows", loss, expected.loss.get(0));
    munmap(memory, bytes);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string part = count > 1 ? arguments[1] : "";
  HostCuda cuda;
  set_device(4, true, 0);
  if (part == "" || part == "values_1") check_grid(cuda, 0, 2);
  if (part == "" || part == "values_2") check_grid(cuda, 1, 2);
  if (part == "" || part == "traffic") check_traffic(cuda);
  if (part == "" || part == "schedules") {
    check_cross_entropy(cuda);
    check_finite_differences(cuda);
    check_equal_student(cuda);
    check_infinite_divergence(cuda);
    check_terms_of_weight_0(cuda);
    check_schedules(cuda);
    check_rows_in_parts(cuda);
    check_paths(cuda);
    check_replay(Shape{2, 40, 100}, 1);
    check_replay(Shape{2, 1, 9000}, 3);
    check_asserts(cuda);
    check_teacher_is_needed(cuda);
    check_far_rows();
  }
  return check::finish();
}
