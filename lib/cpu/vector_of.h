// A vector of floats as the compilers' vector extension has it, read from and written to any float's address.
// Here for the kernels that keep sums in registers, which loops over arrays do not promise.
// It must not name an instruction set: a level that lacks the width gets it in pieces.
#pragma once

#include <cstring>

#include "lib/cpu/vector_level.h"

namespace reprise {

template <int kLanes>
struct VectorOf {
  typedef float type __attribute__((vector_size(kLanes * sizeof(float))));
};

// By reference: how a vector is passed by value differs between levels. By memcpy: clang 14 loses the alignment of a
// typedef in a template.
template <int kLanes>
REPRISE_INLINE void read_vector(typename VectorOf<kLanes>::type& vector, const float* from) {
  std::memcpy(&vector, from, sizeof(vector));
}
template <int kLanes>
REPRISE_INLINE void write_vector(float* to, const typename VectorOf<kLanes>::type& vector) {
  std::memcpy(to, &vector, sizeof(vector));
}

}  // namespace reprise
