// How many 32-byte sectors the warps ask for, of every array that has a number for each class.
#pragma once

#include <cstdio>

#include "asd_cases.h"
#include "host_cuda/traffic.h"
#include "on_host.h"

namespace on_host {

// Rows as long as those of benchmarks/cases.py and one of odd length; fewer of them where that changes nothing.
inline void check_traffic(cases::Backend& cuda) {
  using namespace cases;
  struct Shape {
    int64_t clients, batch, classes;
  };
  std::printf("sectors moved / needed\n%-22s %8s %8s %8s\n", "", "student", "teacher", "gradient");
  for (Shape shape : {Shape{1, 50, 10},
                      {1, 50, 100},
                      {1, 50, 101},
                      {1, 50, 200},
                      {1, 16, 1000},
                      {1, 4, 32000},
                      {1, 4, 50257},
                      {1, 2, 151936},
                      {3, 10, 10},
                      {3, 50, 100}})
    for (DType type : {DType::f32, DType::bf16})
      for (TeacherRows rows : {TeacherRows::probabilities, TeacherRows::logits}) {
        Case c;
        c.clients = shape.clients;
        c.batch = shape.batch;
        c.classes = shape.classes;
        c.student = c.teacher = c.cache = type;
        c.aligned_outputs = true;
        c.set_rows(rows);
        Batch b(c);
        set_device(8, true, 1);
        if (c.cached()) build_cache(cuda, b);
        const host_cuda::Recording recording;
        Output out = run(cuda, b);
        // A row of 100 bf16 is 6.25 sectors long, and two rows of 101 never begin alike: their ends are moved with
        // them.
        const bool even = c.classes % 4 == 0, f32 = type == DType::f32;
        const double limit = c.classes < 100    ? 8
                             : c.classes < 1000 ? (even && f32 ? 1.16
                                                   : even      ? 1.4
                                                               : 1.8)
                             : even || f32      ? 1.15
                                                : 1.3;
        const void* teacher = c.cached() ? b.cache.data() : b.teacher.view().first.data;
        const double ratios[] = {recording.of(b.student.view().first.data, false).ratio(),
                                 recording.of(teacher, false).ratio(), recording.of(out.gradient.data(), true).ratio()};
        std::printf("%ld x %ld x %ld %s %s  %8.2f %8.2f %8.2f\n", long(c.clients), long(c.batch), long(c.classes),
                    numbers::name(type), c.cached() ? "cached" : "raw", ratios[0], ratios[1], ratios[2]);
        for (double ratio : ratios) CHECK(ratio >= 1 && ratio <= limit, "sectors", ratio, limit, c);
      }
}

}  // namespace on_host
