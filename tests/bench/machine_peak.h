// The machine's own peak: multiply-adds in registers with the widest vectors it has, one core.
// Here so that every benchmark can say per cent of peak, measured in the same run.
// It must not know any kernel.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "lib/cpu/vector_level.h"

namespace reprise::bench {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr int kChains = 12;  // independent sums: enough to cover the latency of two multiply-add units

template <int kLanes>
struct Lanes {
  typedef float V __attribute__((vector_size(kLanes * 4)));
};

template <int kLanes>
REPRISE_INLINE void multiply_add_loop(uint64_t rounds, float* result) {
  using V = typename Lanes<kLanes>::V;
  V sum[kChains], factor = V{} + 0.999f, term = V{} + *result;
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sum[i] = V{} + static_cast<float>(i);
  for (uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sum[i] = sum[i] * factor + term;
  }
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) sum[0] += sum[i];
  *result = sum[0][0];
}
REPRISE_VECTOR_LEVELS(run_multiply_adds, multiply_add_loop<kLanes>, (uint64_t rounds, float* result), (rounds, result))

// Floating-point operations a second of one core: the best of many short runs, so that neighbours' turns do not count.
inline double measure_peak_flops() {
  const int lanes = vector_level() == VectorLevel::kAvx512 ? 16 : vector_level() == VectorLevel::kAvx2 ? 8 : 4;
  constexpr uint64_t kRounds = 200'000;
  double best = 1e9;
  float result = 0.5f;
  for (int trial = 0; trial < 60; ++trial) {
    const double start = seconds_now();
    run_multiply_adds(kRounds, &result);
    best = std::min(best, seconds_now() - start);
  }
  asm volatile("" : : "m"(result));
  return 2.0 * lanes * kChains * kRounds / best;
}

struct Rates {
  double best, median;  // operations a second
};
inline Rates rates(std::vector<double> seconds, double flops) {
  std::sort(seconds.begin(), seconds.end());
  return {flops / seconds.front(), flops / seconds[seconds.size() / 2]};
}

}  // namespace reprise::bench
