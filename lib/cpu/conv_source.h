// What a convolution reads: pixels as they are stored, or relu of their batch-norm, made while they are copied.
// Here so that every path of a convolution says in one way what a pixel is; a = relu(norm(x)) then never lies in memory.
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

// Batch-norm of kLanes channels, for batch_norm.cpp too: the same expression, so the same bits.
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

// NaN passes, as in relu.
template <int kLanes>
REPRISE_INLINE void cut_negative(typename VectorOf<kLanes>::type& y) {
  using Vector = typename VectorOf<kLanes>::type;
  y = y <= Vector{} ? Vector{} : y;
}

// Channels [c, c + channels) of `count` pixels: of the one that has them at pixels[i], to to[i * step]; relu(norm(x)) where there is a
// norm, zeros where pixels[i] is null, which is padding. To f32, or to bf16 where they are stored so.
template <typename To, typename Stored>
void read_pixels(VectorLevel level, To* to, uint64_t step, const Stored* const* pixels, uint32_t count, const InputNorm& norm, uint32_t c,
                 uint32_t channels);

}  // namespace reprise
