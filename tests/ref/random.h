// Philox4x32-10 and the dropout mask that lib/rng.h specifies, implemented separately from the
// paper (Salmon et al., SC 2011, section 3). The reference for dropout shares no code with lib.
#pragma once

#include <array>
#include <cstdint>

#include "lib/plan.h"
#include "tests/ref/array.h"

namespace reprise::ref {

using Words = std::array<uint32_t, 4>;

// Returns four random words. key = {low, high}, and the lowest word of the counter is x[0].
inline Words philox_words(std::array<uint32_t, 2> key, Words x) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = 0xD2511F53ull * x[0], right = 0xCD9E8D57ull * x[2];
    const auto high = [](uint64_t v) { return static_cast<uint32_t>(v / 0x100000000ull); };
    const auto low = [](uint64_t v) { return static_cast<uint32_t>(v % 0x100000000ull); };
    x = {high(right) ^ x[1] ^ key[0], low(right), high(left) ^ x[3] ^ key[1], low(left)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};  // fractions of the golden ratio and of sqrt(3)
  }
  return x;
}

// Returns the factor by which dropout multiplies an element: 1/(1-p) if it is kept, and 0 if it is
// dropped. Counter: 40 bits of element / 4, 24 bits of stream, 32 of step, 32 of micro-batch. Key:
// the seed. The element's word is number element % 4; an element is dropped if its word is below p
// * 2^32.
inline double dropout_factor(const StepScalars& scalars, uint32_t stream, uint64_t element, float p) {
  if (p == 0.0f) return 1.0;
  const uint64_t block = element / 4;
  const Words words =
      philox_words({static_cast<uint32_t>(scalars.seed), static_cast<uint32_t>(scalars.seed >> 32)},
                   {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32 & 0xff) | stream << 8, scalars.step,
                    scalars.micro_batch});
  const double share = p;
  return words[element % 4] < static_cast<uint64_t>(share * 4294967296.0) ? 0.0 : 1.0 / (1.0 - share);
}

inline Array dropout_mask(const StepScalars& scalars, uint32_t stream, uint64_t elements, float p) {
  Array mask = zeros({elements});
  for (uint64_t i = 0; i < elements; ++i) mask(i) = dropout_factor(scalars, stream, i, p);
  return mask;
}

}  // namespace reprise::ref
