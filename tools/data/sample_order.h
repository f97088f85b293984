// Which sample stands at which place of which micro-batch, and how it is augmented.
// Both are functions of a position in the training, so that nothing need be remembered or saved.
#pragma once

#include <cstdint>
#include <optional>

#include "tools/data/dataset.h"

namespace reprise {

// A permutation of 0 .. size-1, one for each (seed, epoch), computed element by element without a table: a balanced
// Feistel network over the next even power of two, walked until it lands inside (Black & Rogaway, "Ciphers with
// Arbitrary Finite Domains", CT-RSA 2002). index < size, size >= 1.
uint64_t permuted(uint64_t index, uint64_t size, uint64_t seed, uint64_t epoch);

class SampleOrder {
 public:
  SampleOrder(const Recipe& recipe, Split split, uint64_t size);

  // The sample at place b of micro-batch `micro` of step `step`; none past the end of the evaluation set.
  std::optional<uint64_t> sample_at(uint64_t step, uint64_t micro, uint64_t b) const;

  // The sum of number(sample) over the places of a training's step, in their order.
  template <typename Number>
  auto sum_over_step(uint64_t step, const Number& number) const {
    decltype(number(uint64_t{0})) sum = 0;
    for (uint64_t micro = 0; micro < micro_batches_; ++micro) {
      for (uint64_t b = 0; b < batch_; ++b) sum += number(*sample_at(step, micro, b));
    }
    return sum;
  }

 private:
  uint64_t size_, batch_, micro_batches_, seed_;
  bool shuffle_, training_;
};

// The sample's window begins `rows_down`, `columns_right` pixels from the image's corner, each from -crop to crop.
struct Augmentation {
  bool flip = false;  // left and right, after the crop
  int rows_down = 0, columns_right = 0;
};

Augmentation augmentation_at(const DataSource& data, uint64_t seed, uint64_t step, uint64_t micro, uint64_t b);

}  // namespace reprise
