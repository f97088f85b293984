// Pseudo-random numbers from a seed, for the order of threads and the times at which copies
// complete. The generator is xorshift64* (Marsaglia 2003, Vigna 2016).
#pragma once

#include <cstdint>

namespace reprise::fibre {

class RandomDraws {
 public:
  void seed(uint64_t seed) { state_ = seed * 0x9e3779b97f4a7c15ull + 1; }
  uint32_t below(uint64_t count) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<uint32_t>((state_ * 0x2545f4914f6cdd1dull >> 32) * count >> 32);
  }

 private:
  uint64_t state_ = 1;
};

}  // namespace reprise::fibre
