// The small matrix products of the whole-client op beside libraries that are made for them, one thread.
//
//   g++ -std=c++17 -O3 -march=native -Wno-psabi -Icsrc -I/usr/include/eigen3 benchmarks/small_gemm.cpp csrc/cpu/*.cpp
//       -lxsmm -lxsmmnoblas -ldl -lpthread -o build/small_gemm && build/small_gemm
//
// On Debian: libxsmm-dev, libeigen3-dev.
//
// Three products for each layer and a batch of 10 rows: forwards, the weights' gradient (left factor transposed), the
// inputs' gradient (transposed, so that no weights are).  The best of many repetitions, in GFLOP/s.
#include <libxsmm.h>

#include <Eigen/Dense>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "cpu/batch.h"

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Strided = Eigen::Map<const Matrix, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;

double rate(double flops, const std::function<void()>& f) {
  double best = 1e9;
  for (int repetition = 0; repetition < 200; ++repetition) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 50; ++i) f();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::min(best, seconds.count() / 50);
  }
  return flops / best / 1e9;
}

// c [m, n] = a [m, k] b [k, n]; with `transposed`, a lies as [k, m].
void compare(const char* name, int m, int n, int k, bool transposed) {
  std::vector<float> a(size_t(m * k)), b(size_t(k * n)), ours(size_t(m * n)), theirs(ours);
  for (size_t i = 0; i < a.size(); ++i) a[i] = std::sin(float(i));
  for (size_t i = 0; i < b.size(); ++i) b[i] = std::cos(float(i));
  const int64_t row = transposed ? 1 : k, step = transposed ? m : 1;
  const auto& kernels = fedasd::cpu::kernels().chain_f32;
  const double flops = 2.0 * m * n * k;
  const double own = rate(flops, [&] { kernels.multiply(a.data(), row, step, b.data(), n, ours.data(), n, m, n, k); });

  const Strided left(a.data(), m, k, {row, step});
  const Eigen::Map<const Matrix> right(b.data(), k, n);
  Eigen::Map<Matrix> product(theirs.data(), m, n);
  const double eigen = rate(flops, [&] { product.noalias() = left * right; });
  float worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) worst = std::max(worst, std::fabs(ours[i] - theirs[i]));

  // Column major: the transpose of the product is b^T a^T.
  const int lda = n, ldb = transposed ? m : k, ldc = n;
  const float one = 1, zero = 0;
  const int flags = transposed ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
  const libxsmm_smmfunction jit = libxsmm_smmdispatch(n, m, k, &lda, &ldb, &ldc, &one, &zero, &flags, nullptr);
  const double xsmm = jit ? rate(flops, [&] { jit(b.data(), a.data(), theirs.data()); }) : 0;
  std::printf("%-28s %4d x %4d x %4d   ours %6.1f   libxsmm %6.1f   Eigen %6.1f   (largest difference %.1e)\n", name, m,
              n, k, own, xsmm, eigen, double(worst));
}

}  // namespace

int main() {
  libxsmm_init();
  std::printf("%s; 0.0: not generated\n", fedasd::cpu::kernels().name);
  for (auto [in, out] : {std::pair<int, int>{64, 128}, {128, 64}, {32, 32}, {784, 256}}) {
    std::printf("layer %d -> %d\n", in, out);
    compare("forwards", 10, out, in + 1, false);
    compare("weights' gradient", in + 1, out, 10, true);
    compare("inputs' gradient", in, 16, out, false);
  }
}
