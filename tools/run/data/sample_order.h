// Maps a position in a micro-batch to its sample and its augmentation. Both depend only on the
// position in the training, so that nothing has to be saved.
#pragma once

#include <cstdint>
#include <optional>

#include "tools/run/data/dataset.h"

namespace reprise {

// Returns element `index` of a permutation of 0 .. size-1; each (seed, epoch) has its own
// permutation. Needs no table. Applies a balanced Feistel network over the next even power of two
// until the result is below `size` (Black & Rogaway, "Ciphers with Arbitrary Finite Domains",
// CT-RSA 2002). Requires index < size, size >= 1.
uint64_t permuted(uint64_t index, uint64_t size, uint64_t seed, uint64_t epoch);

// Gives the sample at each position of a training or an evaluation.
class SampleOrder {
 public:
  SampleOrder(const Recipe& recipe, Split split, uint64_t size);

  // Returns the sample at position b of micro-batch `micro` of step `step`; nothing after the end
  // of the evaluation set.
  std::optional<uint64_t> sample_at(uint64_t step, uint64_t micro, uint64_t b) const;

  // Returns the sum of number(sample) over all positions of a training step, in their order.
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

// The augmentation of one sample. The window starts `rows_down`, `columns_right` pixels from the
// image's corner; each is from -crop to crop.
struct Augmentation {
  bool flip = false;  // left and right are exchanged, after the crop
  int rows_down = 0, columns_right = 0;
};

Augmentation augmentation_at(const DataSource& data, uint64_t seed, uint64_t step, uint64_t micro, uint64_t b);

// Returns the sample that replaces an unreadable one at position `place` of step `step`. It is
// drawn uniformly from [0, size) with the seed. `draw` is 0 for the first attempt and grows by 1
// for each drawn sample that is unreadable, too; it must be below 2^32.
uint64_t stand_in(uint64_t size, uint64_t seed, uint64_t step, uint64_t place, uint64_t draw);

}  // namespace reprise
