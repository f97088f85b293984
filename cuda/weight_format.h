// How a card reads a matrix of weights, whatever its format (lib/weight_format.h): as f32, element by element or in packs of neighbours.
// Every thread of a launch takes the same way, because the format is the call's.
#pragma once

#include "cuda/cuda_backend.h"
#include "cuda/grid.h"
#include "cuda/pack.h"
#include "lib/f16.h"
#include "lib/row_call.h"
#include "lib/weight_format.h"

namespace reprise {

// Elements [at, at + kWidth) of blocks, at a multiple of kWidth, so that they share a group. The threads of a launch find the format once for
// them all.
template <uint32_t kWidth, typename... F>
__device__ inline void decode_block_elements(const Weight& w, uint64_t at, float* to, blocks::Formats<F...>) {
  const auto decode = [&]<typename Format>(Format) {
    static_assert(Format::kGroup % kWidth == 0);
    constexpr uint32_t kElements = dtype_info(Format::kType).block_elements, kBytes = dtype_info(Format::kType).block_bytes;
    const uint8_t* block = static_cast<const uint8_t*>(w.data) + at / kElements * kBytes;
    const uint32_t place = static_cast<uint32_t>(at % kElements), group = place / Format::kGroup;
    const BlockLine line = Format::line(block, group);
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kWidth; ++i) to[i] = blocks::number<Format>(line, Format::multiple(block, group, place % Format::kGroup + i));
  };
  ((w.type == F::kType ? decode(F{}) : void()), ...);
}

// Elements [at, at + kWidth), at a multiple of kWidth and in one row. The rules (cuda_rules.h) let no format through but these.
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

// Element i, counted row by row.
__device__ inline float decode_weight(const Weight& w, uint64_t i) { return decode_weights<1>(w, i).at[0]; }

// Element i of plain weights as activations are stored: beside bf16 it counts as rounded to bf16, with tensor cores or without.
template <typename Stored>
__device__ float weight_as(const Weight& w, uint64_t i) {
  return w.type == DType::kBf16 ? float{static_cast<const Bf16*>(w.data)[i]} : float{Stored(static_cast<const float*>(w.data)[i])};
}

// n weights as they are where a product reads them so, else decoded once a call, as activations are stored: a product reads each many times. The kernel
// and who launches it are each file's own, so that no file runs another's.
template <typename Stored>
static __global__ void __launch_bounds__(kBlockThreads) decode_matrix(Stored* to, const Weight w, uint64_t n) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) to[i] = decode_weight(w, i);
}
template <typename Stored>
static Weight plain_weights(const KernelContext& context, const Weight& w, uint64_t n, void* scratch) {
  if (w.data == nullptr || reads_weights(w.type, kStoredAs<Stored>, product_math(context))) return w;
  Stored* decoded = static_cast<Stored*>(scratch);
  REPRISE_LAUNCH(decode_matrix<Stored>, blocks_for(n), kBlockThreads, context.queue, decoded, w, n);
  return decoded;
}

}  // namespace reprise
