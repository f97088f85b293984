// Floats of [-1, 1) that are the same in every run.
// Here for tests and benchmarks of kernels that need operands and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace reprise {

inline std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(count);
  for (float& v : values) v = uniform(generator);
  return values;
}

}  // namespace reprise
