// Philox4x32-10, a counter-based random number generator (Salmon et al., "Parallel Random Numbers:
// As Easy as 1, 2, 3", SC 2011). It has no state: its numbers are a function of a counter. So a
// recomputed dropout draws the same mask.
#pragma once

#include <cstdint>

namespace reprise {

// Four random words.
struct PhiloxBlock {
  uint32_t word[4];
};

// Returns the four words that belong to a 64-bit key and a 128-bit counter.
constexpr PhiloxBlock philox(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Returns the draw for elements 4 * block to 4 * block + 3 of the mask of a node. `stream` is the
// node's number.
constexpr PhiloxBlock philox_mask(uint64_t seed, uint32_t step, uint32_t micro_batch, uint32_t stream, uint64_t block) {
  const uint64_t low = (block & 0xffffffffffull) | uint64_t{stream} << 40;
  return philox(seed, uint64_t{micro_batch} << 32 | step, low);
}

// Returns a draw for an optimizer's update. `part` is a small number that names the use of the
// draw. ~part is passed in place of the micro-batch; no micro-batch has so large a number.
constexpr PhiloxBlock philox_update(uint64_t seed, uint32_t step, uint32_t part, uint32_t stream, uint64_t block) {
  return philox_mask(seed, step, ~part, stream, block);
}

// Returns the threshold that belongs to a probability of dropping: probability * 2^32. An element
// is kept if its draw is at least the threshold.
constexpr uint32_t dropout_threshold(float probability) {
  return static_cast<uint32_t>(static_cast<double>(probability) * 4294967296.0);
}

}  // namespace reprise
