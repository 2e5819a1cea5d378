// Just enough of a test framework: CHECK(condition, what...) counts and prints, main returns finish().
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>

#include "cpu/batch.h"

namespace check {

constexpr int kSkip = 77;  // SKIP_RETURN_CODE in CMakeLists.txt
inline int checks = 0, failures = 0;

template <class... What>
void fail(const char* file, int line, const char* condition, const What&... what) {
  static std::map<int, int> count;
  ++failures;
  if (++count[line] > 3) return;  // the first ones tell the story
  std::cout << file << ':' << line << ": " << condition << "  [";
  ((std::cout << ' ' << what), ...);
  std::cout << " ]\n";
}

// True, with a note, where the environment names an instruction set that cannot run here.
inline bool skip() {
  const char* wanted = std::getenv("FEDASD_CPU_CAPABILITY");
  if (!wanted || std::strcmp(wanted, fedasd::cpu::kernels().name) == 0) return false;
  std::printf("SKIP: this CPU or build has no %s\n", wanted);
  return true;
}

inline int finish() {
  std::printf("%s: %d checks, %d failed\n", fedasd::cpu::kernels().name, checks, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace check

#define CHECK(condition, ...) \
  (++check::checks, (condition) ? void() : check::fail(__FILE__, __LINE__, #condition, __VA_ARGS__))
