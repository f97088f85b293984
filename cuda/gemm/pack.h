// A pack: neighbouring elements that a thread reads, computes with and writes at once. The elements
// are stored as f32 or bf16; computation is in f32. A kernel whose time is bounded by memory moves
// 16 bytes at a time if its rows are aligned to 16 bytes.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/launch.h"
#include "lib/bf16.h"

namespace reprise {

// Number of elements of type Stored in 16 bytes.
template <typename Stored>
inline constexpr uint32_t kPackWidth = 16 / sizeof(Stored);

template <uint32_t kWidth>
struct Pack {
  float at[kWidth];
};

// kCount words that are read or written at once. They may alias objects of any type.
template <typename Word, uint32_t kCount>
struct alignas(kCount * sizeof(Word)) [[gnu::may_alias]] Words {
  Word at[kCount];
};

// Loads a pack of f32 from `p`, which is aligned to the whole pack.
template <uint32_t kWidth>
__device__ Pack<kWidth> load_pack(const float* p) {
  const Words<float, kWidth> words = *reinterpret_cast<const Words<float, kWidth>*>(p);
  Pack<kWidth> pack;
  REPRISE_UNROLL
  for (uint32_t i = 0; i < kWidth; ++i) pack.at[i] = words.at[i];
  return pack;
}
template <uint32_t kWidth>
__device__ void store_pack(float* p, const Pack<kWidth>& pack) {
  Words<float, kWidth> words;
  REPRISE_UNROLL
  for (uint32_t i = 0; i < kWidth; ++i) words.at[i] = pack.at[i];
  *reinterpret_cast<Words<float, kWidth>*>(p) = words;
}

// Loads a pack of bf16 from `p`, which is aligned to the whole pack. A word has two bf16, the first
// in its lower half.
template <uint32_t kWidth>
__device__ Pack<kWidth> load_pack(const Bf16* p) {
  Pack<kWidth> pack;
  if constexpr (kWidth == 1) {
    pack.at[0] = *p;
  } else {
    using Pairs = Words<uint32_t, kWidth / 2>;
    const Pairs pairs = *reinterpret_cast<const Pairs*>(p);
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kWidth / 2; ++i) {
      pack.at[2 * i] = std::bit_cast<float>(pairs.at[i] << 16);
      pack.at[2 * i + 1] = std::bit_cast<float>(pairs.at[i] & 0xffff0000u);
    }
  }
  return pack;
}
template <uint32_t kWidth>
__device__ void store_pack(Bf16* p, const Pack<kWidth>& pack) {
  if constexpr (kWidth == 1) {
    *p = pack.at[0];
  } else {
    using Pairs = Words<uint32_t, kWidth / 2>;
    Pairs pairs;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kWidth / 2; ++i) {
      pairs.at[i] = uint32_t{round_to_bf16(pack.at[2 * i])} | uint32_t{round_to_bf16(pack.at[2 * i + 1])} << 16;
    }
    *reinterpret_cast<Pairs*>(p) = pairs;
  }
}

// One byte for each element of a pack.
template <uint32_t kWidth>
using BytePack = Words<uint8_t, kWidth>;
template <uint32_t kWidth>
__device__ BytePack<kWidth> load_bytes(const uint8_t* p) {
  return *reinterpret_cast<const BytePack<kWidth>*>(p);
}
template <uint32_t kWidth>
__device__ void store_bytes(uint8_t* p, const BytePack<kWidth>& bytes) {
  *reinterpret_cast<BytePack<kWidth>*>(p) = bytes;
}

}  // namespace reprise
