// Operands of a product: element (index, depth) of each, for matrices as they lie. Index is a row of C for one operand and a column of C
// for the other; depth is what is summed over.
// Here so that the tile of tile_product.h serves linear layers and, with the sources of conv_source.h, convolutions.
//
// A source is a struct of such a form, passed to the kernel by value:
//   kAlongDepth            whether neighbours along the depth are neighbours in memory: neighbouring threads then read these
//   kNeedsRegisters        true where two blocks of the large tile would not have enough of them: what a source divides waits in some
//   read(index, depth)     four neighbouring indices at one depth, zeros beyond the last index; the depth is inside
#pragma once

#include "cuda/pack.h"
#include "cuda/weight_format.h"
#include "lib/row_call.h"

namespace reprise {

// x[index][depth].
template <typename Stored>
struct RowsSource {
  static constexpr bool kAlongDepth = true;
  const Stored* x;
  uint64_t count, stride;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const {
    Pack<4> pack;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) pack.at[i] = index + i < count ? float{x[(index + i) * stride + depth]} : 0.0f;
    return pack;
  }
};

// x[depth][index].
template <typename Stored>
struct ColumnsSource {
  static constexpr bool kAlongDepth = false;
  const Stored* x;
  uint64_t count, stride;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const {
    const Stored* from = x + depth * stride + index;
    if (stride % 4 == 0 && index < count) return load_pack<4>(from);  // then count is a multiple of four too
    Pack<4> pack;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) pack.at[i] = index + i < count ? float{from[i]} : 0.0f;
    return pack;
  }
};

// x[matrix][index][depth]: from one matrix to the next there are all rows but one between depths that follow each other.
template <typename Stored>
struct MatrixRowsSource {
  static constexpr bool kAlongDepth = true, kNeedsRegisters = true;
  const Stored* x;
  uint64_t count, stride;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const {
    const uint64_t first = blockIdx.y * (count - 1) * stride + depth;
    Pack<4> pack;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) pack.at[i] = index + i < count ? float{x[first + (index + i) * stride]} : 0.0f;
    return pack;
  }
};

// x[matrix][depth][index], as the second operand: beside a first one that is read by rows, two blocks would not have registers enough.
template <typename Stored>
struct MatrixDepthsSource {
  static constexpr bool kAlongDepth = false, kNeedsRegisters = true;
  ColumnsSource<Stored> source;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const { return source.read(index, depth); }
};

// Two sources of the same indices, one behind the other along the depth: the first is `depth` deep.
template <typename First, typename Second>
struct JoinedSource {
  static constexpr bool kAlongDepth = First::kAlongDepth, kNeedsRegisters = true;
  First first;
  Second second;
  uint64_t depth;

  __device__ Pack<4> read(uint64_t index, uint64_t at) const { return at < depth ? first.read(index, at) : second.read(index, at - depth); }
};

// What a source reads, times a factor.
template <typename Source>
struct ScaledSource {
  static constexpr bool kAlongDepth = Source::kAlongDepth;
  Source source;
  float factor;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const {
    Pack<4> pack = source.read(index, depth);
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) pack.at[i] *= factor;
    return pack;
  }
};

// w[index][depth].
template <typename Stored>
struct WeightRowsSource {
  static constexpr bool kAlongDepth = true;
  Weight w;
  uint64_t count, stride;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const {
    Pack<4> pack;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) pack.at[i] = index + i < count ? weight_as<Stored>(w, (index + i) * stride + depth) : 0.0f;
    return pack;
  }
};

// w[depth][index].
template <typename Stored>
struct WeightColumnsSource {
  static constexpr bool kAlongDepth = false;
  Weight w;
  uint64_t count, stride;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const {
    Pack<4> pack;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) pack.at[i] = index + i < count ? weight_as<Stored>(w, depth * stride + index + i) : 0.0f;
    return pack;
  }
};

}  // namespace reprise
