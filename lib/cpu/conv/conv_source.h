// The input of a convolution: pixels as they are stored, or relu of their batch-norm, computed
// while they are copied. A kernel that accepts a norm reads its pixels through this file, so
// a = relu(norm(x)) is never stored. Kernels without a norm may read x directly.
#pragma once

#include "lib/backend.h"
#include "lib/cpu/vector_of.h"

namespace reprise {

template <typename Stored>
struct ConvSource {
  const Stored* data;  // [N,H,W,C]
  InputNorm norm;

  bool normalises() const { return norm.mean != nullptr; }
};

// Batch-norm of kLanes channels. batch_norm.cpp uses this struct, too, so that the bits are equal.
template <int kLanes>
struct ChannelNorm {
  using Vector = typename VectorOf<kLanes>::type;
  Vector mean, scale, shift;

  REPRISE_INLINE void read(const InputNorm& norm, uint64_t c) {
    Vector gamma;
    read_vector<kLanes>(mean, norm.mean + c);
    read_vector<kLanes>(scale, norm.rstd + c);
    read_vector<kLanes>(gamma, norm.gamma + c);
    read_vector<kLanes>(shift, norm.beta + c);
    scale = scale * gamma;
  }
  REPRISE_INLINE void apply(Vector& x) const { x = (x - mean) * scale + shift; }
};

// Applies relu in place. Keeps NaN, as the relu kernel does.
template <int kLanes>
REPRISE_INLINE void cut_negative(typename VectorOf<kLanes>::type& y) {
  using Vector = typename VectorOf<kLanes>::type;
  y = y <= Vector{} ? Vector{} : y;
}

// Reads channels [c, c + channels) of `count` pixels. pixels[i] points to channel c of pixel i, or
// is null for padding. The channels of pixel i are written from to[i * step] on: relu(norm(x)) if
// there is a norm, and zeros for padding. `To` is f32, or bf16 if the pixels are bf16.
template <typename To, typename Stored>
void read_pixels(VectorLevel level, To* to, uint64_t step, const Stored* const* pixels, uint32_t count,
                 const InputNorm& norm, uint32_t c, uint32_t channels);

}  // namespace reprise
