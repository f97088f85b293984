// How a card reads a matrix of weights, whatever its format (lib/weight_format.h): as f32, element by element or in packs of neighbours.
// Every thread of a launch takes the same way, because the format is the call's.
#pragma once

#include "cuda/grid.h"
#include "cuda/pack.h"
#include "lib/f16.h"
#include "lib/row_call.h"
#include "lib/weight_format.h"

namespace reprise {

// Of a block of 32: a half, then signed bytes.
__device__ inline float decode_q8_0(const void* data, uint64_t i) {
  const uint8_t* block = static_cast<const uint8_t*>(data) + i / 32 * 34;
  return f16_to_f32(static_cast<uint16_t>(block[0] | block[1] << 8)) * static_cast<float>(static_cast<int8_t>(block[2 + i % 32]));
}

static_assert(kEveryWeight == (kPlainWeights | weight_format(DType::kF16) | weight_format(DType::kQ8_0)), "each format has a case in decode_weight");

// Element i, counted row by row. The rules (cuda_rules.h) let no other format through.
__device__ inline float decode_weight(const Weight& w, uint64_t i) {
  switch (w.type) {
    case DType::kBf16: return static_cast<const Bf16*>(w.data)[i];
    case DType::kF16: return f16_to_f32(static_cast<const uint16_t*>(w.data)[i]);
    case DType::kQ8_0: return decode_q8_0(w.data, i);
    default: return static_cast<const float*>(w.data)[i];
  }
}

// Elements [at, at + kWidth), at a multiple of kWidth and in one row.
template <uint32_t kWidth>
__device__ Pack<kWidth> decode_weights(const Weight& w, uint64_t at) {
  switch (w.type) {
    case DType::kF32: return load_pack<kWidth>(static_cast<const float*>(w.data) + at);
    case DType::kBf16: return load_pack<kWidth>(static_cast<const Bf16*>(w.data) + at);
    default: break;
  }
  Pack<kWidth> pack;
  REPRISE_UNROLL
  for (uint32_t i = 0; i < kWidth; ++i) pack.at[i] = decode_weight(w, at + i);
  return pack;
}

// Element i of plain weights as activations are stored: beside bf16 it counts as rounded to bf16, with tensor cores or without.
template <typename Stored>
__device__ float weight_as(const Weight& w, uint64_t i) {
  return w.type == DType::kBf16 ? float{static_cast<const Bf16*>(w.data)[i]} : float{Stored(static_cast<const float*>(w.data)[i])};
}

// n weights as they are where they are plain, else decoded once a call, as activations are stored: a product reads each many times.
template <typename Stored>
static __global__ void __launch_bounds__(kBlockThreads) decode_matrix(Stored* to, const Weight w, uint64_t n) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) to[i] = decode_weight(w, i);
}
template <typename Stored>
Weight plain_weights(const KernelContext& context, const Weight& w, uint64_t n, void* scratch) {
  if (w.data == nullptr || takes_weights(kPlainWeights, w.type)) return w;
  Stored* decoded = static_cast<Stored*>(scratch);
  REPRISE_LAUNCH(decode_matrix<Stored>, blocks_for(n), kBlockThreads, context.queue, decoded, w, n);
  return decoded;
}

}  // namespace reprise
