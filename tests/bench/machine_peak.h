// Measures the machine's peak: multiply-adds in registers on one core, with its widest vectors.
// Benchmarks report per cent of the peak that was measured in the same run.
#pragma once

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "lib/cpu/vector_level.h"

namespace reprise::bench {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr int kChains = 12;  // independent sums; they suffice to cover the latency of two multiply-add units

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

// Returns floating-point operations per second of one core. Takes the best of many short runs,
// because other processes disturb short runs least.
inline double measure_peak_flops() {
  const VectorLevel level = best_vector_level();
  const int lanes = level >= VectorLevel::kAvx512 ? 16 : level == VectorLevel::kAvx2 ? 8 : 4;
  constexpr uint64_t kRounds = 200'000;
  double best = 1e9;
  float result = 0.5f;
  for (int trial = 0; trial < 60; ++trial) {
    const double start = seconds_now();
    run_multiply_adds(level, kRounds, &result);
    best = std::min(best, seconds_now() - start);
  }
  asm volatile("" : : "m"(result));
  return 2.0 * lanes * kChains * kRounds / best;
}

// Returns processor seconds of the calling thread. If other processes run, processor seconds show a
// kernel's time better than the wall clock. The clock of the process is not used, because it
// includes the time of other threads only at the scheduler's ticks.
inline double processor_seconds_now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The times of the calls of one kernel, by the wall clock and in processor seconds.
class Stopwatch {
 public:
  void start() {
    wall_ = seconds_now();
    processor_ = processor_seconds_now();
  }
  // Returns the processor seconds since start().
  double stop() {
    processor_seconds_.push_back(processor_seconds_now() - processor_);
    wall_seconds_.push_back(seconds_now() - wall_);
    return processor_seconds_.back();
  }
  // Returns the times in ascending order.
  const std::vector<double>& wall_seconds() { return sorted(wall_seconds_); }
  const std::vector<double>& processor_seconds() { return sorted(processor_seconds_); }

 private:
  static const std::vector<double>& sorted(std::vector<double>& seconds) {
    std::sort(seconds.begin(), seconds.end());
    return seconds;
  }
  double wall_ = 0, processor_ = 0;
  std::vector<double> wall_seconds_, processor_seconds_;
};

// Reports GFLOP/s by the wall clock, and per cent of the workers' peak, as best and median. With
// one worker, also reports per cent of a core's peak by processor seconds.
inline void report_rates(benchmark::State& state, Stopwatch& watch, double flops, double peak_flops, uint32_t workers) {
  const std::vector<double>&wall = watch.wall_seconds(), &processor = watch.processor_seconds();
  if (wall.empty()) return;
  state.counters["best_GFLOP/s"] = flops / wall.front() / 1e9;
  state.counters["median_GFLOP/s"] = flops / wall[wall.size() / 2] / 1e9;
  state.counters["best_%peak"] = 100 * flops / wall.front() / (peak_flops * workers);
  if (workers != 1) return;
  state.counters["core_best_%peak"] = 100 * flops / processor.front() / peak_flops;
  state.counters["core_median_%peak"] = 100 * flops / processor[processor.size() / 2] / peak_flops;
}

}  // namespace reprise::bench
