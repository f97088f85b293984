// The words of rng.h's philox_mask for a run of elements, sixteen blocks at a time.
// Here because dropout and attention draw masks by the million and the generator vectorises across blocks, not inside
// one. It must not draw anything that philox_mask would not: tests compare the two.
#pragma once

#include <bit>
#include <cstring>

#include "lib/cpu/vector_level.h"
#include "lib/plan.h"

namespace reprise {

constexpr uint32_t kMaskBlocks = 16;
constexpr uint32_t kMaskWords = 4 * kMaskBlocks;
static_assert(std::endian::native == std::endian::little, "pairs of words are stored as one 64-bit number");

#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored \
    "-Wmaybe-uninitialized"  // g++ 12 takes its own masked broadcast for a read of what is not there yet
#endif
// words[4*i + lane] = philox_mask(seed, step, micro_batch, stream, first_block + i).word[lane] for i in [0,
// kMaskBlocks). The counter's four words of eight blocks stand in vectors of 64-bit lanes, where the product of two
// words is one instruction.
REPRISE_INLINE void draw_mask_words(uint32_t* words, const StepScalars& scalars, uint32_t stream,
                                    uint64_t first_block) {
  typedef uint64_t Lanes __attribute__((vector_size(64)));
  constexpr uint64_t kWord = 0xffffffffu;
  constexpr int kVectors = kMaskBlocks / 8;
  Lanes c0[kVectors], c1[kVectors], c2[kVectors], c3[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const Lanes block =
        (Lanes{0, 1, 2, 3, 4, 5, 6, 7} + (first_block + static_cast<uint64_t>(8 * v))) & 0xffffffffffull;
    c0[v] = block & kWord;
    c1[v] = (block >> 32) | ((uint64_t{stream} << 8) & kWord);
    c2[v] = Lanes{} + uint64_t{scalars.step};
    c3[v] = Lanes{} + uint64_t{scalars.micro_batch};
  }
  uint32_t k0 = static_cast<uint32_t>(scalars.seed), k1 = static_cast<uint32_t>(scalars.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int v = 0; v < kVectors; ++v) {
      const Lanes p0 = c0[v] * uint64_t{0xD2511F53u}, p1 = c2[v] * uint64_t{0xCD9E8D57u};
      c0[v] = (p1 >> 32) ^ c1[v] ^ uint64_t { k0 };
      c1[v] = p1 & kWord;
      c2[v] = (p0 >> 32) ^ c3[v] ^ uint64_t { k1 };
      c3[v] = p0 & kWord;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  uint64_t low[kMaskBlocks], high[kMaskBlocks];
  for (int v = 0; v < kVectors; ++v) {
    const Lanes l = c0[v] | c1[v] << 32, h = c2[v] | c3[v] << 32;
    std::memcpy(low + 8 * v, &l, sizeof(l));
    std::memcpy(high + 8 * v, &h, sizeof(h));
  }
  uint64_t pairs[2 * kMaskBlocks];
  for (uint32_t i = 0; i < kMaskBlocks; ++i) {
    pairs[2 * i] = low[i];
    pairs[2 * i + 1] = high[i];
  }
  std::memcpy(words, pairs, sizeof(pairs));
}
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

}  // namespace reprise
