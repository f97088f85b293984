// Sources of the operands of a product. A source reads element (index, depth) of an operand. The
// index is a row of C for one operand and a column of C for the other; the product sums over the
// depth. The sources here read matrices for linear layers. With the sources of conv_source.h, the
// same tile (tile_product.h) computes convolutions.
//
// A source is a struct with these members, passed to the kernel by value:
//   kAlongDepth            true if consecutive depths of an index are neighbours in memory; then
//                          neighbouring threads read consecutive depths
//   kNeedsRegisters        declared, as true, if two blocks of the large tile would not have enough
//                          registers, because the source keeps results of divisions in registers
//   read(index, depth)     returns elements `index` to `index` + 3 at one depth; zeros beyond the
//                          last index; the depth must be inside
#pragma once

#include "cuda/gemm/pack.h"
#include "cuda/weight_format.h"
#include "lib/row_call.h"

namespace reprise {

// The operand x[index][depth].
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

// The operand x[depth][index].
template <typename Stored>
struct ColumnsSource {
  static constexpr bool kAlongDepth = false;
  const Stored* x;
  uint64_t count, stride;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const {
    const Stored* from = x + depth * stride + index;
    if (stride % 4 == 0 && index < count) return load_pack<4>(from);  // count is then a multiple of four, too
    Pack<4> pack;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) pack.at[i] = index + i < count ? float{from[i]} : 0.0f;
    return pack;
  }
};

// The operand x[matrix][index][depth]; blockIdx.y is the matrix. `depth` also counts the depths of
// all earlier matrices. So the address x + depth skips only one row of each earlier matrix. read()
// also skips the other count - 1 rows.
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

// The operand x[matrix][depth][index], as the second operand. It declares kNeedsRegisters because
// two blocks would not have enough registers if the first operand is a MatrixRowsSource.
template <typename Stored>
struct MatrixDepthsSource {
  static constexpr bool kAlongDepth = false, kNeedsRegisters = true;
  ColumnsSource<Stored> source;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const { return source.read(index, depth); }
};

// Joins two sources with the same indices along the depth. The second source begins at `depth`.
template <typename First, typename Second>
struct JoinedSource {
  static constexpr bool kAlongDepth = First::kAlongDepth, kNeedsRegisters = true;
  First first;
  Second second;
  uint64_t depth;

  __device__ Pack<4> read(uint64_t index, uint64_t at) const {
    return at < depth ? first.read(index, at) : second.read(index, at - depth);
  }
};

// Multiplies the numbers of a source by a factor.
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

// The operand w[index][depth], a weight.
template <typename Stored>
struct WeightRowsSource {
  static constexpr bool kAlongDepth = true;
  Weight w;
  uint64_t count, stride;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const {
    Pack<4> pack;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i)
      pack.at[i] = index + i < count ? weight_as<Stored>(w, (index + i) * stride + depth) : 0.0f;
    return pack;
  }
};

// The operand w[depth][index], a weight.
template <typename Stored>
struct WeightColumnsSource {
  static constexpr bool kAlongDepth = false;
  Weight w;
  uint64_t count, stride;

  __device__ Pack<4> read(uint64_t index, uint64_t depth) const {
    Pack<4> pack;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i)
      pack.at[i] = index + i < count ? weight_as<Stored>(w, depth * stride + index + i) : 0.0f;
    return pack;
  }
};

}  // namespace reprise
