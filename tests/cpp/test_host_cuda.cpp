// The executor of csrc/host_cuda: correct kernels give one result in every order, and each kind of mistake is found
// where it was made.  Kernels and checks share this file; a comment "HERE name" marks the line that an error has to
// name.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "numbers.h"

namespace {

constexpr int kSeeds = 60;
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kHooks = false;  // the address sanitizer is compiled in instead, and ends the program
#else
constexpr bool kHooks = true;
#endif
using host_cuda::Buffer;
using host_cuda::launch;
namespace cg = cooperative_groups;

using Floats = float[256];

// ---- correct kernels

__device__ float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

__device__ float block_sum(float x) {
  using Sums = float[32];
  FEDASD_SHARED(Sums, sums);
  x = warp_sum(x);
  __syncthreads();  // the last call's sums have been read
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  const int warps = int(blockDim.x) / 32;
  return warp_sum(int(threadIdx.x) % 32 < warps ? sums[threadIdx.x % 32] : 0.0f);
}

__global__ void block_reduction(const float* in, float* out, int n) {
  float sum = 0;
  for (int i = int(threadIdx.x); i < n; i += int(blockDim.x)) sum += in[blockIdx.x * unsigned(n) + unsigned(i)];
  sum = block_sum(sum);
  const float twice = block_sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum + twice;
}

// Plain writes and reads across blocks: the grid barrier orders them.
__global__ void grid_reduction(const float* in, float* partial, float* out, int n) {
  for (int round = 0; round < 2; ++round) {
    float sum = 0;
    for (int i = int(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += int(gridDim.x * blockDim.x)) sum += in[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    cg::this_grid().sync();
    float total = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) total += partial[b];
    cg::this_grid().sync();
    if (threadIdx.x == 0) out[blockIdx.x] = total;
  }
}

// The block that comes last adds up what the others have published.
__global__ void last_block(const float* in, float* partial, unsigned* count, float* out, int n) {
  using Flag = bool;
  FEDASD_SHARED(Flag, last);
  const float sum = block_sum(int(threadIdx.x) < n ? in[blockIdx.x * unsigned(n) + threadIdx.x] : 0.0f);
  if (threadIdx.x == 0) {
    if (blockIdx.x % 2) partial[blockIdx.x] = sum;
    else __stcg(&partial[blockIdx.x], sum);
    __threadfence();
    last = atomicAdd(count, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  float total = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) total += __ldcg(&partial[b]);
  if (threadIdx.x == 0) {
    *out = total;
    *count = 0;
  }
}

// Every block waits for the stamp of the one before it; all are alive.
__global__ void stamps(unsigned long long* stamp, float* value) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x > 0) {
    while (__ldcg(&stamp[blockIdx.x - 1]) == 0) {
    }
    __threadfence();
    value[blockIdx.x] = __ldcg(&value[blockIdx.x - 1]) + 1;
  } else {
    value[0] = 1;
  }
  __threadfence();
  atomicExch(&stamp[blockIdx.x], 1ull);
}

// Groups of 8 lanes leave the loop at different times; each shuffles for itself.
__global__ void groups(const int* length, double* out) {
  const unsigned lane = threadIdx.x % 32, group = threadIdx.x / 8, mask = 0xffu << (lane & ~7u);
  double sum = 0;
  for (int i = 0; i < length[group]; ++i) {
    double x = 1.0 / (1 + i + int(lane % 8));
    for (int step = 4; step > 0; step /= 2) x += __shfl_down_sync(mask, x, unsigned(step), 8);
    sum += __shfl_sync(mask, x, 0, 8);
  }
  if (lane % 8 == 0) out[group] = sum;
}

// Lanes exchange through shared memory; __syncwarp is enough inside a group.
__global__ void group_memory(int* out) {
  using Ints = int[128];
  FEDASD_SHARED(Ints, values);
  const unsigned t = threadIdx.x, mask = 0xfu << (t % 32 & ~3u);
  int x = int(t);
  for (int i = 0; i < 3 + int(t / 4 % 2); ++i) {
    values[t] = x;
    __syncwarp(mask);
    x += values[t ^ 1] + values[t ^ 2];
    __syncwarp(mask);
  }
  __syncthreads();
  out[t] = x + values[127 - t];
}

__global__ void vector_loads(const uint4* in, const float2* pairs, uint4* out, float* sums) {
  const unsigned i = threadIdx.x;
  const uint4 a = in[i], b = __ldg(&in[i]), c = __ldcs(&in[i]);
  out[i] = make_uint4(a.x + b.x, a.y + c.y, a.z ^ b.z, a.w);
  const float2 pair = pairs[i];
  __stcs(&sums[i], pair.x + pair.y);
}

__global__ void votes(unsigned* out) {
  const int lane = int(threadIdx.x);
  const unsigned odd = __ballot_sync(~0u, lane % 2);
  const int any = __any_sync(~0u, lane == 7), all = __all_sync(~0u, lane < 31), none = __any_sync(~0u, lane > 99);
  const int outside = __shfl_down_sync(~0u, lane, 30), low = __shfl_xor_sync(~0u, lane, 16, 16);
  out[lane] = odd ^ unsigned(any << 1 | all << 2 | none << 3) ^ unsigned(outside << 8) ^ unsigned(low << 16);
}

__global__ void atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d) {
  atomicAdd(i, -1);
  atomicAdd(f, 1.0f);
  atomicAdd(d, 0.5);
  atomicAdd(l, 1ull << 33);
  atomicMax(u, threadIdx.x);
  int old = i[1], seen;
  while ((seen = atomicCAS(&i[1], old, old + 2)) != old) old = seen;
}

template <class T, int n>
__device__ T* table() {
  using Table = T[n];
  FEDASD_SHARED(Table, values);
  return values;
}
__global__ void instances(int* out) {
  out[0] = static_cast<void*>(table<float, 8>()) == static_cast<void*>(table<float, 9>());
  out[1] = table<float, 8>() == table<float, 8>();
  out[2] = std::isnan(table<float, 8>()[3]);
  out[3] = table<int, 8>()[7];
}

__global__ void record(unsigned* next, unsigned* order) {
  const unsigned turn = atomicAdd(next, 1);
  order[turn] = blockIdx.x * blockDim.x + threadIdx.x;
}

struct Table {
  double factors[12];
  float* out;
};
constexpr float kConstants[] = {1, 2, 3, 4};
__global__ void struct_argument(Table table, const int* index) {
  table.out[threadIdx.x] = float(table.factors[index[threadIdx.x]]) * kConstants[index[threadIdx.x] % 4];
}

__global__ void indices(int* out) {
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[block * 24 + thread] = int(block * 1000 + thread);
}

// ---- mistakes

__global__ void missing_barrier(float* out) {
  FEDASD_SHARED(Floats, values);
  values[threadIdx.x] = float(threadIdx.x);                    // HERE missing barrier
  out[threadIdx.x] = values[(threadIdx.x + 32) % blockDim.x];  // HERE missing barrier, read
}

__global__ void missing_warp_barrier(float* out) {
  FEDASD_SHARED(Floats, values);
  values[threadIdx.x] = float(threadIdx.x);  // HERE missing warp barrier
  __shfl_sync(~0u, 1, 0);
  out[threadIdx.x] = values[threadIdx.x ^ 1];  // HERE missing warp barrier, read
}

__global__ void reuse(float* out) {
  FEDASD_SHARED(Floats, values);
  values[threadIdx.x] = float(threadIdx.x);
  __syncthreads();
  const float first = values[0];  // HERE reuse
  __syncwarp();
  if (threadIdx.x == 0) values[0] = 7;  // HERE reuse, write
  out[threadIdx.x] = first;
}

__global__ void blocks_race(float* out) {
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x / 2] = float(blockIdx.x);  // HERE blocks race
}

__global__ void block_reads(float* out) {
  const float x = out[gridDim.x - 1 - blockIdx.x];  // HERE block reads
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = x + 1;  // HERE block reads, write
}

__global__ void two_writers(int* out) {
  if (threadIdx.x % 40 == 3) out[0] = 5;  // HERE two writers
}

__global__ void past_end(const float* in, float* out) {
  out[threadIdx.x] = in[threadIdx.x + 1];  // HERE past end
}

__global__ void before_start(float* out) {
  out[int(threadIdx.x) - 1] = 1;  // HERE before start
}

__global__ void uncached_past_end(const float* in, float* out) {
  out[threadIdx.x] = __ldcg(&in[threadIdx.x + 1]);  // HERE uncached past end
}

__global__ void atomic_past_end(unsigned* out) {
  atomicAdd(&out[threadIdx.x + 1], 1);  // HERE atomic past end
}

__global__ void shared_past_end(float* out, const int* index) {
  FEDASD_SHARED(Floats, values);
  float* p = values;
  p[threadIdx.x] = 0;
  __syncthreads();
  out[threadIdx.x] = p[index[threadIdx.x]];  // HERE shared past end
}

__global__ void dynamic_past_end(float* out, const int* index) {
  FEDASD_DYNAMIC_SHARED(bytes);
  float* p = reinterpret_cast<float*>(bytes);
  p[threadIdx.x] = 0;
  __syncthreads();
  out[threadIdx.x] = p[index[threadIdx.x]];  // HERE dynamic past end
}

__global__ void array_index(float* out, const int* index) {
  FEDASD_SHARED(Floats, values);
  values[threadIdx.x] = 0;
  __syncthreads();
  out[threadIdx.x] = values[index[threadIdx.x]];  // HERE array index
}

[[maybe_unused]] __global__ void misaligned(const float* in, float* out) {
  const uint4 x = *reinterpret_cast<const uint4*>(in + 1);  // HERE misaligned
  out[0] = float(x.x + x.w);
}

__global__ void misaligned_ldg(const float* in, float* out) {
  const float4 x = __ldg(reinterpret_cast<const float4*>(in + 1));  // HERE misaligned ldg
  out[0] = x.x + x.w;
}

__global__ void writes_input(float* in) {
  in[threadIdx.x] = 0;  // HERE writes input
}

__global__ void host_memory(const float* host, float* out) {
  out[threadIdx.x] = *host;  // HERE host memory
}

__global__ void foreign_stack(const float** where, float* out) {
  float mine = float(threadIdx.x);
  atomicExch(reinterpret_cast<unsigned long long*>(&where[threadIdx.x]), reinterpret_cast<unsigned long long>(&mine));
  __syncthreads();
  out[threadIdx.x] = *where[threadIdx.x ^ 1];  // HERE foreign stack
  __syncthreads();
}

__global__ void divergent_barrier(int* out) {
  if (threadIdx.x < 40) {
    __syncthreads();  // HERE divergent barrier
  } else {
    out[threadIdx.x] = 1;
  }
}

__global__ void two_barriers(int* out) {
  if (threadIdx.x < 40) __syncthreads();  // HERE two barriers
  else __syncthreads();                   // HERE two barriers, other
  out[threadIdx.x] = 1;
}

__global__ void early_return(int* out, int n) {
  if (int(threadIdx.x) >= n) return;
  out[threadIdx.x] = 1;
  __syncthreads();  // HERE early return
}

__global__ void barrier_and_shuffle(int* out) {
  int x = 0;
  if (threadIdx.x == 5) __syncthreads();  // HERE barrier and shuffle
  else x = __shfl_sync(~0u, 1, 0);        // HERE barrier and shuffle, other
  out[threadIdx.x] = x;
}

__global__ void absent_lane(int* out) {
  if (threadIdx.x == 9) return;
  out[threadIdx.x] = __shfl_xor_sync(~0u, int(threadIdx.x), 1);  // HERE absent lane
}

__global__ void two_shuffles(int* out) {
  int x;
  if (threadIdx.x % 2) x = __shfl_sync(~0u, 1, 0);  // HERE two shuffles
  else x = __shfl_sync(~0u, 2, 0);                  // HERE two shuffles, other
  out[threadIdx.x] = x;
}

__global__ void two_masks(int* out) {
  const unsigned mask = threadIdx.x < 16 ? ~0u : 0xffff0001u;
  out[threadIdx.x] = __shfl_sync(mask, 1, 0);  // HERE two masks
}

__global__ void outside_mask(int* out) {
  out[threadIdx.x] = int(__ballot_sync(0xffff, 1));  // HERE outside mask
}

__global__ void source_outside(int* out) {
  if (threadIdx.x < 8) out[threadIdx.x] = __shfl_xor_sync(0xff, 1, 8);  // HERE source outside
}

__global__ void grid_missed(int* out) {
  if (blockIdx.x != 1) cg::this_grid().sync();  // HERE grid missed
  out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

__global__ void plain_grid_sync() {
  cg::this_grid().sync();  // HERE plain grid sync
}

__global__ void asserts(const int* in) {
  FEDASD_DEVICE_ASSERT(in[threadIdx.x] >= 0);  // HERE asserts
}

__global__ void throws(int* out) {
  if (atomicAdd(out, 1) == 40) throw std::runtime_error("thrown");
}

__global__ void spins(unsigned* flag) {
  while (__ldcg(flag) == 0) {
  }
}

__global__ void uninitialised(float* out, int* bits) {
  FEDASD_SHARED(Floats, values);
  using Ints = int[4];
  FEDASD_SHARED(Ints, more);
  out[threadIdx.x] = values[threadIdx.x];
  bits[threadIdx.x] = more[threadIdx.x % 4];
  __syncthreads();
  values[threadIdx.x] = 1;
  more[threadIdx.x % 4] = 1;
}

// ---- checks

template <class T>
struct Array : std::vector<T> {
  Array(const char* name, size_t n, T fill = T(), bool read_only = false)
      : std::vector<T>(n, fill), buffer(this->data(), n * sizeof(T), name, read_only) {}
  std::vector<T> copy() const { return *this; }
  Buffer buffer;
};

// f(seed) for many seeds must always leave the same bits.
template <class T>
void same_in_every_order(const char* name, const std::function<std::vector<T>()>& run) {
  std::vector<T> first;
  for (int seed = 0; seed < kSeeds; ++seed) {
    host_cuda::device().seed = uint64_t(seed);
    std::string error;
    std::vector<T> result;
    try {
      result = run();
    } catch (const host_cuda::Error& caught) {
      error = caught.what();
    }
    if (seed == 0) first = result;
    CHECK(error.empty(), name, seed, error);
    CHECK(result.size() == first.size() && std::memcmp(result.data(), first.data(), result.size() * sizeof(T)) == 0,
          name, seed);
  }
}

int line_of(const std::string& mark) {
  std::ifstream source(__FILE__);
  std::string line;
  for (int number = 1; std::getline(source, line); ++number)
    if (const size_t at = line.rfind("// HERE " + mark); at != std::string::npos && line.substr(at + 8) == mark)
      return number;
  return -1;
}

// In every order the error is of this kind and names the marked line (races: both lines, in either order).
void caught(const std::string& kind, const std::string& mark, const std::function<void()>& run,
            const std::string& second = "") {
  const std::string line = mark.empty() ? "" : "test_host_cuda.cpp:" + std::to_string(line_of(mark));
  const std::string other = second.empty() ? "" : "test_host_cuda.cpp:" + std::to_string(line_of(second));
  for (int seed = 0; seed < kSeeds; ++seed) {
    host_cuda::device().seed = uint64_t(seed);
    std::string error;
    try {
      run();
    } catch (const host_cuda::Error& caught) {
      error = caught.what();
    }
    CHECK(error.find(kind) != std::string::npos, mark, seed, kind, error);
    CHECK(error.find(line) != std::string::npos && error.find(other) != std::string::npos, mark, line, other, seed,
          error);
    CHECK(error.find('\n') == std::string::npos, error);
  }
}

void check_correct_kernels() {
  constexpr int blocks = 7, n = 100;
  Array<float> in("in", blocks * n, 0.0f, true), partial("partial", blocks), out("out", blocks);
  for (size_t i = 0; i < in.size(); ++i) in[i] = 1.0f / float(i + 1);
  same_in_every_order<float>("block_reduction", [&] {
    launch(block_reduction, blocks, 128, false, in.data(), out.data(), n);
    return out.copy();
  });
  same_in_every_order<float>("grid_reduction", [&] {
    launch(grid_reduction, 4, 64, true, in.data(), partial.data(), out.data(), blocks * n);
    return out.copy();
  });
  Array<unsigned> count("count", 1);
  same_in_every_order<float>("last_block", [&] {
    launch(last_block, blocks, 128, false, in.data(), partial.data(), count.data(), out.data(), n);
    CHECK(count[0] == 0, count[0]);
    return out.copy();
  });
  same_in_every_order<float>("stamps", [&] {
    Array<unsigned long long> stamp("stamp", 4);
    Array<float> value("value", 4);
    launch(stamps, 4, 32, true, stamp.data(), value.data());
    CHECK(value[3] == 4, value[3]);
    return value.copy();
  });
  same_in_every_order<double>("groups", [&] {
    Array<int> length("length", 8);
    Array<double> sums("sums", 8);
    for (int i = 0; i < 8; ++i) length[size_t(i)] = i * 5 % 7;
    launch(groups, 1, 64, false, length.data(), sums.data());
    CHECK(std::fabs(sums[3] - 2.717857142857143) < 1e-12, sums[3]);
    return sums.copy();
  });
  same_in_every_order<int>("group_memory", [&] {
    Array<int> values("values", 128);
    launch(group_memory, 1, 128, false, values.data());
    return values.copy();
  });
  same_in_every_order<unsigned>("vector_loads", [&] {
    Array<uint4> quads("quads", 32, make_uint4(1, 2, 3, 4)), result("result", 32);
    Array<float2> pairs("pairs", 32, make_float2(1, 2));
    Array<float> sums("sums", 32);
    launch(vector_loads, 1, 32, false, quads.data(), pairs.data(), result.data(), sums.data());
    CHECK(result[31].x == 2 && result[31].y == 4 && result[31].z == 0 && result[31].w == 4 && sums[31] == 3, sums[31]);
    return std::vector<unsigned>{result[5].x, result[5].y, result[5].z, result[5].w};
  });
  same_in_every_order<unsigned>("votes", [&] {
    Array<unsigned> result("result", 32);
    launch(votes, 1, 32, false, result.data());
    for (unsigned lane = 0; lane < 32; ++lane) {
      const unsigned down = lane < 2 ? lane + 30 : lane, low = lane < 16 ? lane : lane - 16;
      CHECK(result[lane] == (0xaaaaaaaau ^ 2u ^ down << 8 ^ low << 16), lane, result[lane]);
    }
    return result.copy();
  });
  same_in_every_order<double>("atomics", [&] {
    Array<int> i("i", 2);
    Array<unsigned> u("u", 1);
    Array<unsigned long long> l("l", 1);
    Array<float> f("f", 1);
    Array<double> d("d", 1);
    launch(atomics, 6, 40, false, i.data(), u.data(), l.data(), f.data(), d.data());
    CHECK(i[0] == -240 && i[1] == 480 && u[0] == 39 && l[0] == 240ull << 33, i[0], i[1], u[0], l[0]);
    CHECK(f[0] == 240 && d[0] == 120, f[0], d[0]);
    return d.copy();
  });
  same_in_every_order<int>("instances", [&] {
    Array<int> result("result", 4);
    launch(instances, 1, 1, false, result.data());
    CHECK(result[0] == 0 && result[1] == 1 && result[2] == 1 && result[3] == -1, result[0], result[1], result[2],
          result[3]);
    return result.copy();
  });
  same_in_every_order<float>("struct_argument", [&] {
    Array<int> index("index", 8, 6, true);
    Array<float> result("result", 8);
    Table table{{0, 1, 2, 3, 4, 5, 6}, result.data()};
    launch(struct_argument, 1, 8, false, table, index.data());
    CHECK(result[7] == 18, result[7]);
    return result.copy();
  });
  same_in_every_order<int>("indices", [&] {
    Array<int> result("result", 24 * 24);
    launch(indices, dim3(2, 3, 4), dim3(4, 3, 2), false, result.data());
    for (int i = 0; i < 24 * 24; ++i) CHECK(result[size_t(i)] == i / 24 * 1000 + i % 24, i);
    return result.copy();
  });
  same_in_every_order<float>("uninitialised", [&] {
    Array<float> values("values", 2);
    Array<int> bits("bits", 2);
    for (int again = 0; again < 2; ++again) {
      launch(uninitialised, 1, 2, false, values.data(), bits.data());
      CHECK(std::isnan(values[0]) && std::isnan(values[1]) && bits[1] == -1, values[0], values[1], bits[1]);
    }
    return values.copy();
  });
}

void check_barriers() {
  Array<int> out("out", 512);
  int* const p = out.data();
  caught("__syncthreads that not all reach", "divergent barrier", [&] { launch(divergent_barrier, 2, 64, false, p); });
  caught("__syncthreads that not all reach", "two barriers", [&] { launch(two_barriers, 1, 64, false, p); },
         "two barriers, other");
  caught("__syncthreads that not all reach", "early return", [&] { launch(early_return, 1, 64, false, p, 50); });
  caught("deadlock", "barrier and shuffle", [&] { launch(barrier_and_shuffle, 1, 32, false, p); },
         "barrier and shuffle, other");
  caught("exited", "absent lane", [&] { launch(absent_lane, 1, 32, false, p); });
  caught("never been", "absent lane", [&] { launch(absent_lane, 1, 8, false, p); });
  caught("waits for this one", "two shuffles", [&] { launch(two_shuffles, 1, 32, false, p); }, "two shuffles, other");
  caught("waits for this one", "two masks", [&] { launch(two_masks, 1, 32, false, p); });
  caught("leaves out its caller", "outside mask", [&] { launch(outside_mask, 1, 17, false, p); });
  caught("from lane", "source outside", [&] { launch(source_outside, 1, 32, false, p); });
  caught("grid.sync that not all reach", "grid missed", [&] { launch(grid_missed, 3, 32, true, p); });
  caught("not cooperative", "plain grid sync", [&] { launch(plain_grid_sync, 1, 32, false); });
  caught("exception: thrown; block", "", [&] { launch(throws, 2, 32, false, (out[0] = 0, p)); });
  Array<int> in("in", 32, 3);
  in[17] = -1;
  caught("device-side assert: in[threadIdx.x] >= 0; block 0, thread 17", "asserts",
         [&] { launch(asserts, 1, 32, false, in.data()); });
}

void check_launches() {
  Array<int> out("out", 2048);
  caught("too large", "", [&] { launch(grid_missed, 5, 32, true, out.data()); });
  caught("1025 threads", "", [&] { launch(two_writers, 1, 1025, false, out.data()); });
  caught("empty", "", [&] { launch(two_writers, 0, 32, false, out.data()); });
  host_cuda::device().cooperative = false;
  caught("no cooperative launch", "", [&] { launch(grid_missed, 1, 32, true, out.data()); });
  host_cuda::device().cooperative = true;

  host_cuda::launches() = {};
  Array<unsigned> next("next", 1), order("order", 128);
  std::set<std::vector<unsigned>> orders;
  int one_first = 0;  // seeds that let one block run well before the others
  for (int seed = 0; seed < 3 * kSeeds; ++seed) {
    host_cuda::device().seed = uint64_t(seed % (2 * kSeeds));
    next[0] = 0;
    launch(record, 4, 32, seed % 2, next.data(), order.data());
    orders.insert(order);
    int firsts = 0;
    for (size_t i = 0; i < 32; ++i) firsts += order[i] / 32 == order[31] / 32;
    one_first += firsts >= 20;
  }
  CHECK(orders.size() == 2 * kSeeds, orders.size());  // one for each seed, the same when the seed comes again
  CHECK(one_first > 0 && one_first < 2 * kSeeds, one_first);
  CHECK(host_cuda::launches().plain == 3 * kSeeds / 2, host_cuda::launches().plain);
  CHECK(host_cuda::launches().total() == 3 * kSeeds, host_cuda::launches().total());

  // At most multiprocessors * blocks_per_multiprocessor blocks are alive.
  host_cuda::device().multiprocessors = host_cuda::device().blocks_per_multiprocessor = 1;
  next[0] = 0;
  launch(record, 4, 32, false, next.data(), order.data());
  for (size_t i = 0; i < 128; ++i) CHECK(order[i] / 32 == order[i / 32 * 32] / 32, i, order[i]);
  host_cuda::device() = {};

  unsigned flag = 0;
  Buffer buffer(&flag, sizeof(flag), "flag");
  std::string error;
  try {
    launch(spins, 1, 32, false, &flag);
  } catch (const host_cuda::Error& caught) {
    error = caught.what();
  }
  CHECK(error.find("livelock") == 0, error);
  error.clear();
  try {
    Buffer again(&flag, 1, "again");
  } catch (const host_cuda::Error& caught) {
    error = caught.what();
  }
  CHECK(error.find("overlaps") != std::string::npos, error);
}

void check_memory() {
  Array<float> out("out", 64), in("in", 64, 1.0f, true);
  Array<int> ints("ints", 64);
  float* const p = out.data();
  for (unsigned threads : {64u, 256u}) {
    Array<float> wide("wide", 256);
    caught("race", "missing barrier", [&] { launch(missing_barrier, 1, threads, false, wide.data()); },
           "missing barrier, read");
    caught("race", "reuse", [&] { launch(reuse, 1, threads, false, wide.data()); }, "reuse, write");
  }
  caught("race", "missing warp barrier", [&] { launch(missing_warp_barrier, 1, 32, false, p); },
         "missing warp barrier, read");
  caught("race", "blocks race", [&] { launch(blocks_race, 2, 32, false, p); });
  caught("race", "blocks race",
         [&] { launch(blocks_race, 9, 32, false, p); });  // also of blocks that never were alive together
  caught("race", "block reads", [&] { launch(block_reads, 2, 32, false, p); }, "block reads, write");
  caught("race: write of 'ints' + 0", "two writers", [&] { launch(two_writers, 1, 64, false, ints.data()); });
  caught("out of bounds: read of 4 bytes, 4 bytes past the end of buffer 'in'", "past end",
         [&] { launch(past_end, 1, 64, false, in.data(), p); });
  caught("4 bytes past the end of buffer 'in'", "uncached past end",
         [&] { launch(uncached_past_end, 1, 64, false, in.data(), p); });
  caught("out of bounds: read of 4 bytes, 4 bytes past the end of buffer 'ints'", "atomic past end",
         [&] { launch(atomic_past_end, 1, 64, false, reinterpret_cast<unsigned*>(ints.data())); });
  caught("out of bounds: write of 4 bytes, 4 bytes before the start of buffer 'out'", "before start",
         [&] { launch(before_start, 1, 64, false, p); });
  ints[63] = 256;
  caught("4 bytes past the end of shared 'values'", "shared past end",
         [&] { launch(shared_past_end, 1, 64, false, p, ints.data()); });
  caught("4 bytes past the end of shared 'bytes' of 1024 bytes", "dynamic past end",
         [&] { launch(dynamic_past_end, 1, 64, {false, 1024}, p, ints.data()); });
  caught("200000 bytes of dynamic shared memory, 101376 fit", "",
         [&] { launch(dynamic_past_end, 1, 64, {false, 200000}, p, ints.data()); });
  caught("index 256 of an array", "array index", [&] { launch(array_index, 1, 64, false, p, ints.data()); });
#if !defined(__clang__)  // which does not check the copy of a whole struct
  caught("misaligned", "misaligned", [&] { launch(misaligned, 1, 1, false, in.data(), p); });
#endif
  caught("misaligned", "misaligned ldg", [&] { launch(misaligned_ldg, 1, 1, false, in.data(), p); });
  caught("read-only buffer 'in'", "writes input", [&] { launch(writes_input, 1, 32, false, in.data()); });
  float host = 0;
  const std::vector<float> heap(4);
  caught("out of bounds", "host memory", [&] { launch(host_memory, 1, 32, false, &host, p); });
  caught("out of bounds", "host memory", [&] { launch(host_memory, 1, 32, false, heap.data(), p); });
  caught("out of bounds", "host memory", [&] { launch(host_memory, 1, 32, false, nullptr, p); });
  Array<const float*> where("where", 32);
  caught("the stack of block 0, thread", "foreign stack",
         [&] { launch(foreign_stack, 1, 32, false, where.data(), p); });
}

void check_half_types() {
  auto sweep = [](const numbers::HalfFormat& format, auto decode, auto encode) {
    const std::vector<double> all = format.magnitudes();
    auto same = [&](float x) {
      const uint16_t bits = encode(x);
      CHECK(std::isnan(x) ? bits == 0x7fff : bits == format.encode(x, all), x, bits);
    };
    for (int i = 0; i < 65536; ++i) {
      const uint16_t bits = uint16_t(i);
      const float x = decode(bits);
      const double expected = format.decode(bits);
      CHECK(format.is_nan(bits) ? std::isnan(x) : x == expected && std::signbit(x) == std::signbit(expected), bits, x);
      if (!format.is_nan(bits)) CHECK(encode(x) == bits, bits, encode(x));
      const float halfway = float((expected + format.decode(uint16_t(bits + 1))) / 2);
      same(x);
      for (float y : {halfway, std::nextafter(halfway, 0.0f), std::nextafter(halfway, 2 * halfway)}) same(y);
    }
    for (float x : {65504.0f, 65519.996f, 65520.0f, 65536.0f, 1e38f, 0x1.fffffep127f, 0x1p-149f, 0x1p-126f})
      same(x), same(-x);
    for (uint64_t i = 0, bits = 1; i < 200000; ++i) {
      bits = bits * 6364136223846793005u + 1;
      same(__uint_as_float(unsigned(bits >> 32)));
    }
  };
  sweep(numbers::kF16, [](uint16_t bits) { return __half2float(__ushort_as_half(bits)); },
        [](float x) { return __half_as_ushort(__float2half_rn(x)); });
  sweep(numbers::kBf16, [](uint16_t bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); },
        [](float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); });
  static_assert(sizeof(__half) == 2 && std::is_trivially_copyable_v<__half>);
  static_assert(sizeof(__nv_bfloat16) == 2 && std::is_trivially_copyable_v<__nv_bfloat16>);
  static_assert(alignof(uint4) == 16 && alignof(float4) == 16 && alignof(double2) == 16 && alignof(int2) == 8);
}

}  // namespace

int main() {
  check_half_types();
  check_correct_kernels();
  check_barriers();
  check_launches();
  if (kHooks) check_memory();
  return check::finish();
}
