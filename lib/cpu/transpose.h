// Lines of floats turned into rows, by squares that are transposed in registers.
// Here because panels of a product are packed so: by single elements, packing took a quarter of a product of few rows.
//
//   lines[0]  a0 a1 a2 ..             rows   a0 b0 c0 ..
//   lines[1]  b0 b1 b2 ..     ->             a1 b1 c1 ..
//   lines[2]  c0 c1 c2 ..                    a2 b2 c2 ..
#pragma once

#include <initializer_list>
#include <utility>

#include "lib/cpu/cpu_blocking.h"
#include "lib/cpu/vector_of.h"

// A square lives in registers: its loops must unroll.
#define REPRISE_UNROLLED _Pragma("GCC unroll 16")

namespace reprise {
namespace transpose_detail {

// Which lane of two vectors side by side becomes `lane` of the first (half 0) or of the second (half 1).
// Within every four lanes: kRun of one vector, kRun of the other, and so on, out of the four's lower or upper half.
template <int kRun>
struct Interleave {
  static constexpr int from(int lane, int lanes, int half) {
    const int within = lane % 4;
    return lane - within + 2 * half + within / (2 * kRun) * kRun + within % kRun + (within / kRun % 2 == 1 ? lanes : 0);
  }
};
// Every second four, the even ones or the odd ones: those of one vector, then those of the other.
struct PartFours {
  static constexpr int from(int lane, int, int half) { return (lane / 4 * 2 + half) * 4 + lane % 4; }
};

template <typename Choice, int kLanes, int... kLane>
REPRISE_INLINE void exchange(typename VectorOf<kLanes>::type& a, typename VectorOf<kLanes>::type& b, std::integer_sequence<int, kLane...>) {
  const typename VectorOf<kLanes>::type first = __builtin_shufflevector(a, b, Choice::from(kLane, kLanes, 0)...);
  b = __builtin_shufflevector(a, b, Choice::from(kLane, kLanes, 1)...);
  a = first;
}

// Exchanges all pairs of vectors that lie `kSpan` apart.
template <typename Choice, int kLanes, int kSpan>
REPRISE_INLINE void exchange_all(typename VectorOf<kLanes>::type* rows) {
  REPRISE_UNROLLED for (int i = 0; i < kLanes; ++i) {
    if ((i & kSpan) == 0) exchange<Choice, kLanes>(rows[i], rows[i + kSpan], std::make_integer_sequence<int, kLanes>{});
  }
}

// to[k * width + i] = lines[i][k] for kLanes of both. `ahead` floats of each line are fetched meanwhile; 0 for none.
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
  // Of every four vectors the middle two have changed places.
  constexpr int kPlace[4] = {0, 2, 1, 3};
  REPRISE_UNROLLED for (int n = 0; n < kLanes; ++n) write_vector<kLanes>(to + static_cast<uint64_t>(n) * width, rows[n / 4 * 4 + kPlace[n % 4]]);
}

// Lines [i, i_end) and depths [k, k_end).
struct Rectangle {
  uint32_t i, i_end, k, k_end;
};

// By squares of kLanes; what they leave over, at the right and below, by smaller ones.
template <int kLanes>
REPRISE_INLINE void transpose_rectangle(float* to, uint32_t width, const float* const* lines, const Rectangle& all, uint32_t ahead) {
  const uint32_t i_whole = all.i + (all.i_end - all.i) / kLanes * kLanes, k_whole = all.k + (all.k_end - all.k) / kLanes * kLanes;
  for (uint32_t i = all.i; i < i_whole; i += kLanes) {
    for (uint32_t k = all.k; k < k_whole; k += kLanes) {
      if constexpr (kLanes == 1) {
        std::memcpy(to + uint64_t{k} * width + i, lines[i] + k, sizeof *to);  // its bits: it may be no float
      } else {
        transpose_square<kLanes>(to + uint64_t{k} * width + i, width, lines + i, k, k + ahead < all.k_end ? ahead : 0);
      }
    }
  }
  if constexpr (kLanes > 1) {
    for (const Rectangle& rest : {Rectangle{i_whole, all.i_end, all.k, k_whole}, Rectangle{all.i, all.i_end, k_whole, all.k_end}}) {
      transpose_rectangle<(kLanes > 4 ? kLanes / 2 : 1)>(to, width, lines, rest, ahead);
    }
  }
}

}  // namespace transpose_detail

// rows[k * width + i] = lines[i][k]; `lines` has `width` entries, each with `depths` readable elements of 32 bits, of which `ahead` are fetched
// while others are moved.
template <int kLanes>
REPRISE_INLINE void transpose_lines(float* rows, uint32_t width, const float* const* lines, uint32_t depths,
                                    uint32_t ahead = CpuBlocking{}.floats_ahead) {
  transpose_detail::transpose_rectangle<kLanes>(rows, width, lines, {0, width, 0, depths}, ahead);
}

}  // namespace reprise
#undef REPRISE_UNROLLED
