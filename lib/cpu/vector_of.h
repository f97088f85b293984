// A vector of floats by the compilers' vector extension, which can be read from and written to the
// address of any float. It serves kernels whose sums must stay in registers, which a loop over an
// array does not guarantee. This file names no instruction set: the compiler splits a vector that
// is wider than the level's registers.
#pragma once

#include <cstring>

#include "lib/bf16.h"
#include "lib/cpu/vector_level.h"

namespace reprise {

template <int kLanes>
struct VectorOf {
  typedef float type __attribute__((vector_size(kLanes * sizeof(float))));
};
// A vector of one lane is a float, because g++ would keep such a vector in memory.
template <>
struct VectorOf<1> {
  typedef float type;
};

// Reads kLanes floats, which need only the alignment of a float. The vector is passed by reference,
// because the calling convention for vectors differs between levels. It is copied by memcpy,
// because clang 14 loses the alignment of a typedef in a template.
template <int kLanes>
REPRISE_INLINE void read_vector(typename VectorOf<kLanes>::type& vector, const float* from) {
  std::memcpy(&vector, from, sizeof(vector));
}
template <int kLanes>
REPRISE_INLINE void write_vector(float* to, const typename VectorOf<kLanes>::type& vector) {
  std::memcpy(to, &vector, sizeof(vector));
}


// Vectors of bf16, for the conversions below. The conversions round as Bf16 does, by shifts, which
// every level has.
template <int kLanes>
struct Bf16VectorOf {
  typedef uint16_t Half __attribute__((vector_size(kLanes * sizeof(uint16_t))));
  typedef uint32_t Word __attribute__((vector_size(kLanes * sizeof(uint32_t))));
};
template <int kLanes>
REPRISE_INLINE void read_vector(typename VectorOf<kLanes>::type& vector, const Bf16* from) {
  using Types = Bf16VectorOf<kLanes>;
  typename Types::Half half;
  std::memcpy(&half, from, sizeof(half));
  const typename Types::Word word = __builtin_convertvector(half, typename Types::Word) << 16;
  std::memcpy(&vector, &word, sizeof(vector));
}
template <int kLanes>
REPRISE_INLINE void write_vector(Bf16* to, const typename VectorOf<kLanes>::type& vector) {
  using Types = Bf16VectorOf<kLanes>;
  typename Types::Word bits;
  std::memcpy(&bits, &vector, sizeof(bits));
  const typename Types::Word rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const typename Types::Word quiet = bits >> 16 | 0x40u;
  const typename Types::Word is_nan = (typename Types::Word)((bits & 0x7fffffffu) > 0x7f800000u);
  const typename Types::Half half =
      __builtin_convertvector((quiet & is_nan) | (rounded & ~is_nan), typename Types::Half);
  std::memcpy(to, &half, sizeof(half));
}

}  // namespace reprise
