// Reads a matrix of weights in any format (lib/weight_format.h) as f32, element by element or in
// packs of neighbours. All threads of a launch take the same branch, because a launch has one
// format.
#pragma once

#include "cuda/cuda_backend.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "lib/f16.h"
#include "lib/row_call.h"
#include "lib/weight_format.h"

namespace reprise {

// Decodes elements [at, at + kWidth) of a format that consists of blocks. `at` is a multiple of
// kWidth, so all elements are in one group of a block. The format is selected once for all
// elements.
template <uint32_t kWidth, typename... F>
__device__ inline void decode_block_elements(const Weight& w, uint64_t at, float* to, blocks::Formats<F...>) {
  const auto decode = [&]<typename Format>(Format) {
    static_assert(Format::kGroup % kWidth == 0);
    constexpr uint32_t kElements = dtype_info(Format::kType).block_elements,
                       kBytes = dtype_info(Format::kType).block_bytes;
    const uint8_t* block = static_cast<const uint8_t*>(w.data) + at / kElements * kBytes;
    const uint32_t place = static_cast<uint32_t>(at % kElements), group = place / Format::kGroup;
    const BlockLine line = Format::line(block, group);
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kWidth; ++i)
      to[i] = blocks::number<Format>(line, Format::multiple(block, group, place % Format::kGroup + i));
  };
  ((w.type == F::kType ? decode(F{}) : void()), ...);
}

// Returns elements [at, at + kWidth), counted row by row. `at` is a multiple of kWidth, and all
// elements are in one row. The rules (cuda_rules.h) allow only the formats that are handled here.
template <uint32_t kWidth>
__device__ Pack<kWidth> decode_weights(const Weight& w, uint64_t at) {
  Pack<kWidth> pack;
  switch (w.type) {
    case DType::kF32: return load_pack<kWidth>(static_cast<const float*>(w.data) + at);
    case DType::kBf16: return load_pack<kWidth>(static_cast<const Bf16*>(w.data) + at);
    case DType::kF16:
      REPRISE_UNROLL
      for (uint32_t i = 0; i < kWidth; ++i) pack.at[i] = f16_to_f32(static_cast<const uint16_t*>(w.data)[at + i]);
      break;
    default: decode_block_elements<kWidth>(w, at, pack.at, blocks::Every{});
  }
  return pack;
}

// Returns element i, counted row by row.
__device__ inline float decode_weight(const Weight& w, uint64_t i) { return decode_weights<1>(w, i).at[0]; }

// Returns element i of weights that are stored as f32 or bf16, rounded to the activations' type. So
// with bf16 activations an f32 weight is rounded to bf16, whether tensor cores multiply or not.
template <typename Stored>
__device__ float weight_as(const Weight& w, uint64_t i) {
  return w.type == DType::kBf16 ? float{static_cast<const Bf16*>(w.data)[i]}
                                : float{Stored(static_cast<const float*>(w.data)[i])};
}

// Decodes n weights to the activations' type. This is done once for each call, because a product
// reads each weight many times. Kernel and launcher are static, so that each file uses its own
// copy.
template <typename Stored>
static __global__ void __launch_bounds__(kBlockThreads) decode_matrix(Stored* to, const Weight w, uint64_t n) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) to[i] = decode_weight(w, i);
}
// Returns the n weights themselves if a product can read them, or else a decoded copy in `scratch`.
template <typename Stored>
static Weight plain_weights(const KernelContext& context, const Weight& w, uint64_t n, void* scratch) {
  if (w.data == nullptr || reads_weights(w.type, kStoredAs<Stored>, product_math(context))) return w;
  Stored* decoded = static_cast<Stored*>(scratch);
  REPRISE_LAUNCH(decode_matrix<Stored>, blocks_for(n), kBlockThreads, context.queue, decoded, w, n);
  return decoded;
}

}  // namespace reprise
