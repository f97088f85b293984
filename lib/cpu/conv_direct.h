// Direct convolution for few channels, where packing patches for a GEMM costs as much as multiplying them.
// Here because CIFAR-sized ResNets live on such layers (16 to 64 channels, strides 1 and 2).
// It must not know the GEMM tile; it is used where the rules below say so, by shape alone.
//
// A worker copies rows of one padded image to its stack, and keeps a tile of outputs in registers:
//   buffer[row][channel block][column mod stride][column / stride][channel]
//   packed[output group][r][channel block][s][channel][output]
// A tap is then a constant step in the buffer, and so is the next pixel: no patch is ever formed.
#pragma once

#include "lib/cpu/partition.h"
#include "lib/tensor.h"

namespace reprise {

constexpr uint32_t kChannelBlock = 16;
constexpr uint64_t kDirectBufferFloats = 8192;  // on a worker's stack
constexpr uint64_t kDirectStackBytes = 4 * kDirectBufferFloats;
constexpr uint32_t kDirectMostChannels = 64;    // above, the GEMM reuses what it packs often enough
constexpr uint32_t kDirectMostTaps = 9;         // above, even patches of three channels are long enough for the GEMM
constexpr uint32_t kDirectParts = 8;            // of the images, for the weight gradient: each has its own partial sum

// A correlation of a source [N,H,W,C] with R x S taps on a grid of outputs [N,P,Q,K]: output (p, q), tap (r, s) reads
// source pixel (p * stride + r - pad_h, q * stride + s - pad_w), zero outside.
struct DirectShape {
  uint32_t N, H, W, C;
  uint32_t P, Q, K;
  uint32_t R, S, stride;
  uint32_t pad_h, pad_w;

  constexpr uint32_t channel_block() const { return C % kChannelBlock == 0 ? kChannelBlock : C; }
  constexpr uint32_t plane_columns() const {
    return ((Q - 1) * stride + S + stride - 1) / stride;
  }  // of one column residue
  constexpr uint64_t row_floats() const { return uint64_t{plane_columns()} * stride * C; }
  constexpr uint64_t weights() const { return uint64_t{R} * S * C * K; }
};

// Images of one or three channels are blocks of their own.
constexpr bool direct_channels_fit(uint64_t C, uint64_t K) {
  return ((C % kChannelBlock == 0 && C <= kDirectMostChannels) || C == 1 || C == 3) && K % kChannelBlock == 0 &&
         K <= kDirectMostChannels;
}
constexpr bool direct_fits(const DirectShape& s) {
  return direct_channels_fit(s.C, s.K) && s.R * s.S <= kDirectMostTaps && s.stride <= 2 && s.row_floats() * s.R <= kDirectBufferFloats;
}
// At stride 1 a 1x1 tap reuses no row, and the GEMM does it as well.
constexpr bool direct_conv_fits(const DirectShape& s) { return s.R * s.S * s.stride > 1 && direct_fits(s); }

constexpr uint64_t direct_weights_bytes(uint64_t weights) { return align_up(4 * weights); }
constexpr uint64_t direct_partials_bytes(uint64_t weights) { return kDirectParts * direct_weights_bytes(weights); }

struct KernelContext;  // row_call.h
template <typename Stored>
struct ConvSource;  // conv_source.h
template <typename Stored>
class OutputStatistics;  // output_statistics.h

// Elements of a weight array by index: w[k * output + r * row + s * column + c * channel]; output or channel is 1.
struct DirectWeights {
  const float* w;
  int64_t output, row, column, channel;
};
// Where output (n, p, q) begins: out[n * image + p * row + q * pixel], K contiguous floats.
template <typename Stored>
struct DirectOutputOf {
  Stored* data;
  uint64_t image, row, pixel;
  bool accumulate;
  const OutputStatistics<Stored>* statistics = nullptr;  // of a dense output, where they are wanted
  const float* bias = nullptr;                           // [K], added to an output that is not accumulated; null for none
};
using DirectOutput = DirectOutputOf<float>;

// output (+)= the correlation. `scratch` has direct_weights_bytes().
template <typename Stored>
void direct_correlate(const KernelContext& context, const DirectShape& shape, const DirectOutputOf<Stored>& output,
                      const ConvSource<Stored>& source, const DirectWeights& weights, void* scratch);

// dw[k,r,s,c] (+)= the sum over the grid of dy[n,p,q,k] * the source pixel that the tap reads. `scratch` has
// direct_partials_bytes().
template <typename Stored>
void direct_weight_gradient(const KernelContext& context, const DirectShape& shape, float* dw, const ConvSource<Stored>& source,
                            const Stored* dy, bool accumulate, void* scratch);

}  // namespace reprise
