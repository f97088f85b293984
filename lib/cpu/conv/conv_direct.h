// Direct convolution for few channels, where packing patches for a GEMM costs as much as
// multiplying them. ResNets for CIFAR consist of such layers (16 to 64 channels, strides 1 and 2).
// The rules below select the direct kernel by shape alone, whatever the GEMM tile is.
//
// A worker copies rows of one padded image to its stack, and keeps a tile of outputs in registers.
// The copy (`buffer`) and the weights (`packed`) have these layouts:
//   buffer[row][channel block][column mod stride][column / stride][channel]
//   packed[output group][r][channel block][s][channel][output]
// From one tap or pixel to the next, the address in the buffer then grows by a constant, and no
// patch is formed.
#pragma once

#include "lib/cpu/partition.h"
#include "lib/tensor.h"

namespace reprise {

constexpr uint32_t kChannelBlock = 16;
constexpr uint64_t kDirectBufferFloats = 8192;  // floats of the buffer on a worker's stack
constexpr uint64_t kDirectStackBytes = 4 * kDirectBufferFloats;
constexpr uint32_t kDirectMostChannels = 64;  // maximum; with more, the GEMM reuses its packed operands often enough
// Maximum taps. With more taps even patches of three channels are long enough for the GEMM.
constexpr uint32_t kDirectMostTaps = 9;
// Parts into which the images are split for the weight gradient; each part has its own partial sum.
constexpr uint32_t kDirectParts = 8;

// A correlation of a source [N,H,W,C] with R x S taps, on a grid of outputs [N,P,Q,K]. Output (p,
// q), tap (r, s) reads source pixel (p * stride + r - pad_h, q * stride + s - pad_w); pixels
// outside the source are zero.
struct DirectShape {
  uint32_t N, H, W, C;
  uint32_t P, Q, K;
  uint32_t R, S, stride;
  uint32_t pad_h, pad_w;

  constexpr uint32_t channel_block() const { return C % kChannelBlock == 0 ? kChannelBlock : C; }
  // Returns the number of columns of the buffer for each value of column mod stride.
  constexpr uint32_t plane_columns() const {
    return ((Q - 1) * stride + S + stride - 1) / stride;
  }
  constexpr uint64_t row_floats() const { return uint64_t{plane_columns()} * stride * C; }
  constexpr uint64_t weights() const { return uint64_t{R} * S * C * K; }
};

// True if the channels are supported. Images of one or three channels form one channel block.
constexpr bool direct_channels_fit(uint64_t C, uint64_t K) {
  return ((C % kChannelBlock == 0 && C <= kDirectMostChannels) || C == 1 || C == 3) && K % kChannelBlock == 0 &&
         K <= kDirectMostChannels;
}
constexpr bool direct_fits(const DirectShape& s) {
  return direct_channels_fit(s.C, s.K) && s.R * s.S <= kDirectMostTaps && s.stride <= 2 &&
         s.row_floats() * s.R <= kDirectBufferFloats;
}
// True if the direct kernel is used. At stride 1 a 1x1 tap reuses no row, and the GEMM is as fast.
constexpr bool direct_conv_fits(const DirectShape& s) { return s.R * s.S * s.stride > 1 && direct_fits(s); }

constexpr uint64_t direct_weights_bytes(uint64_t weights) { return align_up(4 * weights); }
constexpr uint64_t direct_partials_bytes(uint64_t weights) { return kDirectParts * direct_weights_bytes(weights); }

struct KernelContext;  // row_call.h
template <typename Stored>
struct ConvSource;  // conv_source.h
template <typename Stored>
class OutputStatistics;  // output_statistics.h

// Weights by index: w[k * output + r * row + s * column + c * channel]. One of the strides `output`
// and `channel` is 1.
struct DirectWeights {
  const float* w;
  int64_t output, row, column, channel;
};
// The destination of a correlation. Output (n, p, q) is K contiguous elements from data[n * image +
// p * row + q * pixel] on.
template <typename Stored>
struct DirectOutputOf {
  Stored* data;
  uint64_t image, row, pixel;
  bool accumulate;
  // Receives the written rows of a dense output; null if not needed.
  const OutputStatistics<Stored>* statistics = nullptr;
  // [K], added to each output; null for none.
  const float* bias = nullptr;
};

// Computes output (+)= the correlation. `scratch` has direct_weights_bytes().
template <typename Stored>
void direct_correlate(const KernelContext& context, const DirectShape& shape, const DirectOutputOf<Stored>& output,
                      const ConvSource<Stored>& source, const DirectWeights& weights, void* scratch);

// Computes dw[k,r,s,c] (+)= the sum over the grid of dy[n,p,q,k] * the source pixel that tap (r, s)
// reads. `scratch` has direct_partials_bytes().
template <typename Stored>
void direct_weight_gradient(const KernelContext& context, const DirectShape& shape, float* dw,
                            const ConvSource<Stored>& source, const Stored* dy, bool accumulate, void* scratch);

}  // namespace reprise
