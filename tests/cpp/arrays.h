// Arguments for the kernels, laid out in every way the interface allows, and outputs between guards.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/asd.h"
#include "numbers.h"
#include "reference.h"

namespace arrays {

using namespace fedasd;
using cpu::Parallel;

// A piece of memory that a backend may be told about.
struct Memory {
  const void* data;
  size_t bytes;
  const char* name;
  bool read_only;
};

template <class T>
Memory memory_of(const std::vector<T>& v, const char* name, bool read_only) {
  return {v.data(), v.size() * sizeof(T), name, read_only};
}

enum class Layout { contiguous, padded, transposed, spread };

// [clients, rows, classes].  Gaps hold NaN, which spoils any sum it gets into, and the memory ends with the
// last element, so that a sanitizer sees the first byte read too far.
class LogitsArray {
 public:
  LogitsArray(DType type, Layout layout, int64_t clients, int64_t rows, int64_t classes)
      : type_(type), classes_(classes) {
    col_stride_ = layout == Layout::transposed ? std::max<int64_t>(rows, 1) : layout == Layout::spread ? 2 : 1;
    row_stride_ = layout == Layout::transposed ? 1 : layout == Layout::contiguous ? classes : classes * col_stride_ + 3;
    client_stride_ = std::max(rows * row_stride_, classes * col_stride_) + (layout == Layout::contiguous ? 0 : 5);
    const int64_t size = rows == 0 ? 0 : at(clients - 1, rows - 1, classes - 1) + 1;
    memory_.resize(size_t(size * size_of(type)));
    for (int64_t i = 0; i < size; ++i)
      numbers::write(type, memory_.data(), i, std::numeric_limits<double>::quiet_NaN());
  }
  void set(int64_t k, int64_t i, int64_t c, double x) { numbers::write(type_, memory_.data(), at(k, i, c), x); }
  double get(int64_t k, int64_t i, int64_t c) const { return numbers::read(type_, memory_.data(), at(k, i, c)); }
  reference::Row row(int64_t k, int64_t i) const {
    reference::Row values;
    for (int64_t c = 0; c < classes_; ++c) values.push_back(get(k, i, c));
    return values;
  }
  Memory memory(const char* name) const { return memory_of(memory_, name, true); }
  Logits view() const { return {{memory_.data(), type_, row_stride_, col_stride_}, client_stride_}; }

 private:
  int64_t at(int64_t k, int64_t i, int64_t c) const { return k * client_stride_ + i * row_stride_ + c * col_stride_; }
  DType type_;
  int64_t classes_, row_stride_, col_stride_, client_stride_;
  std::vector<unsigned char> memory_;
};

// [clients, n] of int64 or int32.
class IntegerArray {
 public:
  IntegerArray(bool wide, int64_t n, std::vector<int64_t> values)
      : is_wide_(wide), n_(n), wide_(std::move(values)), narrow_(wide_.begin(), wide_.end()) {}
  int64_t get(int64_t k, int64_t i) const { return wide_[size_t(k * n_ + i)]; }
  void set(int64_t k, int64_t i, int64_t x) { narrow_[size_t(k * n_ + i)] = int32_t(wide_[size_t(k * n_ + i)] = x); }
  Memory memory(const char* name) const {
    return is_wide_ ? memory_of(wide_, name, true) : memory_of(narrow_, name, true);
  }
  Integers view() const {
    return {is_wide_ ? static_cast<const void*>(wide_.data()) : static_cast<const void*>(narrow_.data()), is_wide_, n_,
            1};
  }

 private:
  bool is_wide_;
  int64_t n_;
  std::vector<int64_t> wide_;
  std::vector<int32_t> narrow_;
};

// [clients, n] of double or float.
class NumberArray {
 public:
  NumberArray(bool wide, int64_t n, std::vector<double> values)
      : is_wide_(wide), n_(n), wide_(std::move(values)), narrow_(wide_.begin(), wide_.end()) {}
  double get(int64_t k, int64_t i) const { return is_wide_ ? wide_[size_t(k * n_ + i)] : narrow_[size_t(k * n_ + i)]; }
  void set(int64_t k, int64_t i, double x) { narrow_[size_t(k * n_ + i)] = float(wide_[size_t(k * n_ + i)] = x); }
  Memory memory(const char* name) const {
    return is_wide_ ? memory_of(wide_, name, true) : memory_of(narrow_, name, true);
  }
  Numbers view() const {
    return {is_wide_ ? static_cast<const void*>(wide_.data()) : static_cast<const void*>(narrow_.data()), is_wide_, n_,
            1};
  }

 private:
  bool is_wide_;
  int64_t n_;
  std::vector<double> wide_;
  std::vector<float> narrow_;
};

// Contiguous output between two zones that nothing may touch; their length leaves it well or badly aligned.
class Guarded {
 public:
  Guarded(DType type, int64_t count, bool aligned = false)
      : type_(type), zone_((aligned ? 64 : 67) * size_of(type)), bytes_(count * size_of(type)),
        memory_(size_t(bytes_ + 2 * zone_), kFill) {}
  Memory memory(const char* name, bool read_only = false) const {
    return {memory_.data() + zone_, size_t(bytes_), name, read_only};
  }
  void* data() { return memory_.data() + zone_; }
  double get(int64_t i) const { return numbers::read(type_, memory_.data() + zone_, i); }
  bool intact() const {
    auto untouched = [](unsigned char byte) { return byte == kFill; };
    return std::all_of(memory_.begin(), memory_.begin() + zone_, untouched) &&
           std::all_of(memory_.end() - zone_, memory_.end(), untouched);
  }
  bool operator==(const Guarded& other) const { return memory_ == other.memory_; }

 private:
  static constexpr unsigned char kFill = 0xa5;
  DType type_;
  int64_t zone_, bytes_;
  std::vector<unsigned char> memory_;
};

inline Parallel serial() { return {}; }

// Real threads and ranges cut at random places, run in random order; passes the first exception on.
inline Parallel threaded(int threads, unsigned seed) {
  Parallel parallel;
  parallel.threads = threads;
  parallel.run = [threads, seed](int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& f) {
    std::mt19937 random(seed);
    std::vector<int64_t> cuts = {0, n};
    for (int i = 0; i < 3 * threads; ++i) cuts.push_back(int64_t(random() % uint64_t(n + 1)));
    std::sort(cuts.begin(), cuts.end());
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      if (cuts[i] < cuts[i + 1]) ranges.emplace_back(cuts[i], cuts[i + 1]);
    std::shuffle(ranges.begin(), ranges.end(), random);
    std::mutex mutex;
    std::exception_ptr error;
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t)
      pool.emplace_back([&] {
        for (;;) {
          std::unique_lock<std::mutex> lock(mutex);
          if (ranges.empty()) return;
          const auto range = ranges.back();
          ranges.pop_back();
          lock.unlock();
          try {
            f(range.first, range.second);
          } catch (...) {
            lock.lock();
            error = std::current_exception();
          }
        }
      });
    for (std::thread& thread : pool) thread.join();
    if (error) std::rethrow_exception(error);
  };
  return parallel;
}

}  // namespace arrays
