// Interleaves two rows into pairs of bf16; a pair has one element of each row. The rows are bf16,
// or f32 that is rounded. Used by products of pairs (bf16_pairs.h) and by attention
// (attention_pairs.h).
#pragma once

#include <bit>
#include <cstring>

#include "lib/cpu/vector_of.h"

namespace reprise {

// Returns a pair as one word. `first` is at the lower address, as in a row.
REPRISE_INLINE uint32_t pair_of(Bf16 first, Bf16 second) {
  static_assert(std::endian::native == std::endian::little);
  return first.bits | static_cast<uint32_t>(second.bits) << 16;
}

template <int kLanes>
REPRISE_INLINE void interleave_vector(uint32_t* to, const Bf16* first, const Bf16* second) {
  using Types = Bf16VectorOf<kLanes>;
  typename Types::Half low, high;
  std::memcpy(&low, first, sizeof low);
  std::memcpy(&high, second, sizeof high);
  const typename Types::Word pairs =
      __builtin_convertvector(low, typename Types::Word) | __builtin_convertvector(high, typename Types::Word) << 16;
  std::memcpy(to, &pairs, sizeof pairs);
}
// Reads f32 numbers and rounds them as Bf16 does. The results are in the upper 16 bits of the
// words.
template <int kLanes>
REPRISE_INLINE void read_rounded(typename Bf16VectorOf<kLanes>::Word& bits, const float* from) {
  using Word = typename Bf16VectorOf<kLanes>::Word;
  std::memcpy(&bits, from, sizeof bits);
  const Word is_nan = (Word)((bits & 0x7fffffffu) > 0x7f800000u);
  bits = ((bits | 0x400000u) & is_nan) | ((bits + 0x7fffu + (bits >> 16 & 1u)) & ~is_nan);
}
template <int kLanes>
REPRISE_INLINE void interleave_vector(uint32_t* to, const float* first, const float* second) {
  typename Bf16VectorOf<kLanes>::Word low, high;
  read_rounded<kLanes>(low, first);
  read_rounded<kLanes>(high, second);
  const typename Bf16VectorOf<kLanes>::Word pairs = low >> 16 | (high & 0xffff0000u);
  std::memcpy(to, &pairs, sizeof pairs);
}

}  // namespace reprise
