// Random floats in [-1, 1) that are equal in every run, for tests and benchmarks of kernels.
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
