// Draws the words of philox_mask (rng.h) for a run of elements, sixteen blocks at a time. Dropout
// and attention draw millions of masks, and the generator vectorises across blocks, not inside one.
// The words must equal those of philox_mask: tests compare them.
#pragma once

#include <bit>
#include <cstring>

#include "lib/cpu/vector_level.h"
#include "lib/plan.h"
#include "lib/rng.h"

namespace reprise {

constexpr uint32_t kMaskBlocks = 16;
constexpr uint32_t kMaskWords = 4 * kMaskBlocks;
static_assert(std::endian::native == std::endian::little, "pairs of words are stored as one 64-bit number");

// One word of several blocks in 64-bit lanes, where the product of two words is one instruction.
// The upper halves of the lanes are undefined.
template <int kLanes>
struct WordsOf {
  typedef uint64_t type __attribute__((vector_size(kLanes * sizeof(float))));
};
template <int kLanes>
REPRISE_INLINE void broadcast_word(typename WordsOf<kLanes>::type& words, uint64_t value) {
  uint64_t lanes[kLanes / 2];
  for (uint64_t& lane : lanes) lane = value;
  std::memcpy(&words, lanes, sizeof(words));
}
// Computes the 64-bit products of the lower halves of a and b. Written in assembly, because g++
// does not compile a product of 64-bit lanes with zero upper halves to this instruction.
template <int kLanes>
REPRISE_INLINE void multiply_words(typename WordsOf<kLanes>::type& products, const typename WordsOf<kLanes>::type& a,
                                   const typename WordsOf<kLanes>::type& b) {
#if defined(__x86_64__) && !defined(__clang__)
  if constexpr (kLanes == 4) {
    products = a;
    asm("pmuludq %1, %0" : "+x"(products) : "x"(b));
  } else {
    asm("vpmuludq %2, %1, %0" : "=v"(products) : "v"(a), "v"(b));
  }
#else
  products = (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// Draws the words of kCount vectors of blocks, from `first_block` on.
template <int kLanes, int kCount>
REPRISE_INLINE void draw_word_lanes(typename WordsOf<kLanes>::type (&words)[kCount][4], const StepScalars& scalars,
                                    uint32_t stream, uint64_t first_block) {
  using Words = typename WordsOf<kLanes>::type;
  Words factor0, factor1, stream_bits, step, micro_batch, key0, key1, lane;
  broadcast_word<kLanes>(factor0, 0xD2511F53u);
  broadcast_word<kLanes>(factor1, 0xCD9E8D57u);
  broadcast_word<kLanes>(stream_bits, uint64_t{stream} << 8);
  broadcast_word<kLanes>(step, scalars.step);
  broadcast_word<kLanes>(micro_batch, scalars.micro_batch);
  for (int i = 0; i < kLanes / 2; ++i) lane[i] = static_cast<uint64_t>(i);
  for (int v = 0; v < kCount; ++v) {
    Words block;
    broadcast_word<kLanes>(block, first_block + static_cast<uint64_t>(v * kLanes / 2));
    words[v][0] = block + lane;
    words[v][1] = (words[v][0] & 0xffffffffffu) >> 32 | stream_bits;
    words[v][2] = step;
    words[v][3] = micro_batch;
  }
  uint32_t k0 = static_cast<uint32_t>(scalars.seed), k1 = static_cast<uint32_t>(scalars.seed >> 32);
#pragma GCC unroll 10  // otherwise the keys of each round are broadcast again for each draw
  for (int round = 0; round < 10; ++round) {
    broadcast_word<kLanes>(key0, k0);
    broadcast_word<kLanes>(key1, k1);
    for (int v = 0; v < kCount; ++v) {
      Words(&c)[4] = words[v];
      Words p0, p1;
      multiply_words<kLanes>(p0, c[0], factor0);
      multiply_words<kLanes>(p1, c[2], factor1);
      c[0] = (p1 >> 32) ^ c[1] ^ key0;
      c[1] = p1;
      c[2] = (p0 >> 32) ^ c[3] ^ key1;
      c[3] = p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// Draws words[4*i + lane] = philox_mask(seed, step, micro_batch, stream, first_block +
// i).word[lane] for i in [0, kMaskBlocks).
template <int kLanes>
REPRISE_INLINE void draw_mask_words(uint32_t* words, const StepScalars& scalars, uint32_t stream,
                                    uint64_t first_block) {
  if constexpr (kIs32Bit) {
    for (uint32_t i = 0; i < kMaskBlocks; ++i) {
      const PhiloxBlock block = philox_mask(scalars.seed, scalars.step, scalars.micro_batch, stream, first_block + i);
      std::memcpy(words + 4 * i, block.word, sizeof(block.word));
    }
    return;
  }
  using Words = typename WordsOf<kLanes>::type;
  constexpr uint32_t kBlocks = kLanes / 2;
  constexpr int kCount = 2;  // so that four chains of products overlap
  for (uint32_t first = 0; first < kMaskBlocks; first += kCount * kBlocks, words += 4 * kCount * kBlocks) {
    Words c[kCount][4];
    draw_word_lanes<kLanes>(c, scalars, stream, first_block + first);
    uint64_t pairs[kCount * 2 * kBlocks];
    for (int v = 0; v < kCount; ++v) {
      const Words low = (c[v][0] & 0xffffffffu) | c[v][1] << 32, high = (c[v][2] & 0xffffffffu) | c[v][3] << 32;
      uint64_t* to = pairs + static_cast<uint32_t>(v) * 2 * kBlocks;
      for (uint32_t i = 0; i < kBlocks; ++i) to[2 * i] = low[i], to[2 * i + 1] = high[i];
    }
    std::memcpy(words, pairs, sizeof(pairs));
  }
}

}  // namespace reprise
