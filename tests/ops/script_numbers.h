// Numbers in [-factor, factor), from the same formula as in the scripts of tests/parity. The golden
// results of PyTorch were computed from these numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reprise::test {

inline std::vector<float> script_numbers(size_t count, uint32_t seed, float factor) {
  std::vector<float> made(count);
  for (size_t i = 0; i < count; ++i) {
    uint32_t word = static_cast<uint32_t>(i) * 2654435761u + seed * 40503u;
    word = (word ^ word >> 15) * 2246822519u;
    word ^= word >> 13;
    made[i] = static_cast<float>(static_cast<double>(word) / 2147483648.0 - 1.0) * factor;
  }
  return made;
}

}  // namespace reprise::test
