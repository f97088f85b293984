// Measures the machine's memory bandwidth with the port's workers: reading, copying, and the triad
// a = b + 3c, over half a GiB. Benchmarks report per cent of the bandwidth that was measured in the
// same run.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>

#include "lib/cpu/partition.h"
#include "lib/cpu/vector_level.h"
#include "tests/bench/machine_peak.h"

namespace reprise::bench {

// Reads four streams at once, because a single stream waits for the first lines of each page.
template <int kLanes>
REPRISE_INLINE void read_loop(const float* x, uint64_t n, float* result) {
  using V = typename Lanes<kLanes>::V;
  V sum[4] = {};
  const uint64_t quarter = n / 4;
  for (uint64_t i = 0; i < quarter; i += kLanes) {
#pragma GCC unroll 4
    for (uint64_t k = 0; k < 4; ++k) {
      V v;
      std::memcpy(&v, x + k * quarter + i, sizeof v);
      sum[k] += v;
    }
  }
  sum[0] += sum[1] + sum[2] + sum[3];
  *result = sum[0][0];
}
template <int kLanes>
REPRISE_INLINE void triad_loop(float* y, const float* x, const float* z, uint64_t n) {
  using V = typename Lanes<kLanes>::V;
  for (uint64_t i = 0; i < n; i += kLanes) {
    V a, b;
    std::memcpy(&a, x + i, sizeof a);
    std::memcpy(&b, z + i, sizeof b);
    a += 3.0f * b;
    std::memcpy(y + i, &a, sizeof a);
  }
}
REPRISE_VECTOR_LEVELS(run_read, read_loop<kLanes>, (const float* x, uint64_t n, float* result), (x, n, result))
REPRISE_VECTOR_LEVELS(run_triad, triad_loop<kLanes>, (float* y, const float* x, const float* z, uint64_t n),
                      (y, x, z, n))

struct Bandwidth {
  // Bytes per second that the program requests. The memory often reads a line before the line is
  // written; this read is not counted.
  double read = 0, copy = 0, triad = 0;

  double best() const { return std::max({read, copy, triad}); }
};

// Returns the best of several runs.
inline Bandwidth measure_bandwidth(const Workers& workers) {
  constexpr uint64_t kElements = uint64_t{44} << 20;  // elements of one tensor; three tensors have 528 MiB
  constexpr double kBytes = 4.0 * kElements;
  std::unique_ptr<float[]> a(new float[kElements]), b(new float[kElements]), c(new float[kElements]);
  const auto rate = [&](double tensors, const auto& body) {
    double best = 1e9;
    for (int trial = 0; trial < 8; ++trial) {
      const double start = seconds_now();
      for_each_piece(workers, {kElements, kBlockElements}, body);
      if (trial > 0) best = std::min(best, seconds_now() - start);
    }
    return tensors * kBytes / best;
  };
  for_each_piece(workers, {kElements, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    for (float* x : {a.get(), b.get(), c.get()}) std::fill(x + begin, x + end, 1.0f);
  });
  Bandwidth result;
  result.read = rate(1, [&](uint64_t begin, uint64_t end) {
    float sum;
    run_read(best_vector_level(), b.get() + begin, end - begin, &sum);
    asm volatile("" : : "m"(sum));
  });
  result.copy = rate(2, [&](uint64_t begin, uint64_t end) {
    std::memcpy(a.get() + begin, b.get() + begin, (end - begin) * sizeof(float));
  });
  result.triad = rate(3, [&](uint64_t begin, uint64_t end) {
    run_triad(best_vector_level(), a.get() + begin, b.get() + begin, c.get() + begin, end - begin);
  });
  return result;
}

}  // namespace reprise::bench
