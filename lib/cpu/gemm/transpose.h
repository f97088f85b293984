// Transposes lines of floats into rows, by squares in registers. Products pack their panels in this
// way: packing single elements took a quarter of the time of a product of few rows.
//
//   lines[0]  a0 a1 a2 ..             rows   a0 b0 c0 ..
//   lines[1]  b0 b1 b2 ..     ->             a1 b1 c1 ..
//   lines[2]  c0 c1 c2 ..                    a2 b2 c2 ..
#pragma once

#include <initializer_list>
#include <utility>

#include "lib/cpu/cpu_blocking.h"
#include "lib/cpu/vector_of.h"

// A square must stay in registers, so its loops must be unrolled.
#define REPRISE_UNROLLED _Pragma("GCC unroll 16")

namespace reprise {
namespace transpose_detail {

// A choice of lanes of two concatenated vectors a and b, with which exchange() makes two results.
// from(lane, lanes, half) is the source of `lane` of the first result (half 0) or the second (half
// 1). Interleave works on groups of four lanes: it takes kRun lanes of a, then kRun of b, and so
// on. The lanes that it takes are the lower two (half 0) or the upper two (half 1) of each group.
template <int kRun>
struct Interleave {
  static constexpr int from(int lane, int lanes, int half) {
    const int within = lane % 4;
    return lane - within + 2 * half + within / (2 * kRun) * kRun + within % kRun + (within / kRun % 2 == 1 ? lanes : 0);
  }
};
// The choice of every second group of four lanes, first of a, then of b. from() chooses the even
// groups for half 0 and the odd groups for half 1.
struct PartFours {
  static constexpr int from(int lane, int, int half) { return (lane / 4 * 2 + half) * 4 + lane % 4; }
};

template <typename Choice, int kLanes, int... kLane>
REPRISE_INLINE void exchange(typename VectorOf<kLanes>::type& a, typename VectorOf<kLanes>::type& b,
                             std::integer_sequence<int, kLane...>) {
  const typename VectorOf<kLanes>::type first = __builtin_shufflevector(a, b, Choice::from(kLane, kLanes, 0)...);
  b = __builtin_shufflevector(a, b, Choice::from(kLane, kLanes, 1)...);
  a = first;
}

// Calls exchange() for each pair of vectors whose indices differ only in the bit kSpan.
template <typename Choice, int kLanes, int kSpan>
REPRISE_INLINE void exchange_all(typename VectorOf<kLanes>::type* rows) {
  REPRISE_UNROLLED for (int i = 0; i < kLanes; ++i) {
    if ((i & kSpan) == 0) exchange<Choice, kLanes>(rows[i], rows[i + kSpan], std::make_integer_sequence<int, kLanes>{});
  }
}

// Writes to[n * width + i] = lines[i][k + n] for i and n below kLanes. Prefetches each line `ahead`
// floats further on, unless `ahead` is 0.
template <int kLanes>
REPRISE_INLINE void transpose_square(float* to, uint32_t width, const float* const* lines, uint32_t k, uint32_t ahead) {
  typename VectorOf<kLanes>::type rows[kLanes];
  REPRISE_UNROLLED for (int i = 0; i < kLanes; ++i) {
    if (ahead != 0) __builtin_prefetch(lines[i] + k + ahead, 0, 3);
    read_vector<kLanes>(rows[i], lines[i] + k);
  }
  exchange_all<Interleave<1>, kLanes, 1>(rows);
  exchange_all<Interleave<2>, kLanes, 2>(rows);
  if constexpr (kLanes > 4) exchange_all<PartFours, kLanes, 4>(rows);
  if constexpr (kLanes > 8) exchange_all<PartFours, kLanes, 8>(rows);
  // The exchanges have swapped the second and the third of every four vectors.
  constexpr int kPlace[4] = {0, 2, 1, 3};
  REPRISE_UNROLLED for (int n = 0; n < kLanes; ++n)
      write_vector<kLanes>(to + static_cast<uint64_t>(n) * width, rows[n / 4 * 4 + kPlace[n % 4]]);
}

// Lines [i, i_end) and depths [k, k_end).
struct Rectangle {
  uint32_t i, i_end, k, k_end;
};

// Transposes by squares of kLanes elements a side. Calls itself for smaller squares, to transpose
// the remainders at the right and at the bottom.
template <int kLanes>
REPRISE_INLINE void transpose_rectangle(float* to, uint32_t width, const float* const* lines, const Rectangle& all,
                                        uint32_t ahead) {
  const uint32_t i_whole = all.i + (all.i_end - all.i) / kLanes * kLanes,
                 k_whole = all.k + (all.k_end - all.k) / kLanes * kLanes;
  for (uint32_t i = all.i; i < i_whole; i += kLanes) {
    for (uint32_t k = all.k; k < k_whole; k += kLanes) {
      if constexpr (kLanes == 1) {
        // Copies bits: the element may be a pair of bf16, not a float.
        std::memcpy(to + uint64_t{k} * width + i, lines[i] + k, sizeof *to);
      } else {
        transpose_square<kLanes>(to + uint64_t{k} * width + i, width, lines + i, k, k + ahead < all.k_end ? ahead : 0);
      }
    }
  }
  if constexpr (kLanes > 1) {
    for (const Rectangle& rest :
         {Rectangle{i_whole, all.i_end, all.k, k_whole}, Rectangle{all.i, all.i_end, k_whole, all.k_end}}) {
      transpose_rectangle<(kLanes > 4 ? kLanes / 2 : 1)>(to, width, lines, rest, ahead);
    }
  }
}

}  // namespace transpose_detail

// Writes rows[k * width + i] = lines[i][k]. `lines` has `width` entries, each with `depths`
// readable elements of 32 bits. Prefetches each line `ahead` elements further on.
template <int kLanes>
REPRISE_INLINE void transpose_lines(float* rows, uint32_t width, const float* const* lines, uint32_t depths,
                                    uint32_t ahead = CpuBlocking{}.floats_ahead) {
  transpose_detail::transpose_rectangle<kLanes>(rows, width, lines, {0, width, 0, depths}, ahead);
}

}  // namespace reprise
#undef REPRISE_UNROLLED
