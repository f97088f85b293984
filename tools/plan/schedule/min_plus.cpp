// Implements min_plus.h in vectors as wide as the processor supports.
#include "tools/plan/schedule/min_plus.h"

#include <algorithm>
#include <cstring>

namespace reprise {
namespace {

#define REPRISE_INLINE inline __attribute__((always_inline))

template <class Cost, int kBytes>
REPRISE_INLINE void lower_lanes(Cost* o, const Cost* x, const Cost* y, Cost cost) {
  using CostLanes [[gnu::vector_size(kBytes)]] = Cost;
  CostLanes low, sum, more = {};
  std::memcpy(&sum, x, sizeof sum);
  std::memcpy(&low, o, sizeof low);
  if (y != nullptr) std::memcpy(&more, y, sizeof more);
  sum = (cost + sum) + more;
  low = sum < low ? sum : low;
  std::memcpy(o, &low, sizeof low);
}

// Lowers one block. The last vector may overlap the one before it: lowering twice changes nothing.
template <class Cost, int kBytes>
REPRISE_INLINE void lower_block(Cost* o, const Cost* x, const Cost* y, Cost cost, int64_t count) {
  constexpr int64_t kLanes = kBytes / sizeof(Cost);
  if (count < kLanes) {
    for (int64_t n = 0; n < count; ++n) o[n] = std::min(o[n], (cost + x[n]) + (y == nullptr ? 0 : y[n]));
    return;
  }
  for (int64_t n = 0; n < count; n += kLanes) {
    const int64_t at = std::min(n, count - kLanes);
    lower_lanes<Cost, kBytes>(o + at, x + at, y == nullptr ? nullptr : y + at, cost);
  }
}

template <class Cost, int kBytes>
REPRISE_INLINE void lower(Cost* o, const Cost* x, const Cost* y, Cost cost, int64_t count) {
  constexpr int64_t kBlock = 128;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    if ((cost + x[end - 1]) + (y == nullptr ? 0 : y[end - 1]) >= o[begin]) continue;
    if (y == nullptr) {
      lower_block<Cost, kBytes>(o + begin, x + begin, nullptr, cost, end - begin);
    } else {
      lower_block<Cost, kBytes>(o + begin, x + begin, y + begin, cost, end - begin);
    }
  }
}

template <class Cost>
using LowerFunction = void (*)(Cost*, const Cost*, const Cost*, Cost, int64_t);

template <class Cost>
void lower_portable(Cost* o, const Cost* x, const Cost* y, Cost cost, int64_t count) {
  lower<Cost, 16>(o, x, y, cost, count);
}

#if defined(__x86_64__)
template <class Cost>
[[gnu::target("avx2")]] void lower_avx2(Cost* o, const Cost* x, const Cost* y, Cost cost, int64_t count) {
  lower<Cost, 32>(o, x, y, cost, count);
}
template <class Cost>
[[gnu::target("avx512f")]] void lower_avx512(Cost* o, const Cost* x, const Cost* y, Cost cost, int64_t count) {
  lower<Cost, 64>(o, x, y, cost, count);
}
#endif

template <class Cost>
LowerFunction<Cost> fastest_lower() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return lower_avx512<Cost>;
  if (__builtin_cpu_supports("avx2")) return lower_avx2<Cost>;
#endif
  return lower_portable<Cost>;
}

}  // namespace

void lower_by_sum(float* o, const float* x, const float* y, float cost, int64_t count) {
  static const LowerFunction<float> fastest = fastest_lower<float>();
  fastest(o, x, y, cost, count);
}

void lower_by_sum(double* o, const double* x, const double* y, double cost, int64_t count) {
  static const LowerFunction<double> fastest = fastest_lower<double>();
  fastest(o, x, y, cost, count);
}

}  // namespace reprise
