// Implements the order that tools/FILES.md describes, with Philox. All kinds of data share it.
#include "tools/run/data/sample_order.h"

#include <bit>

#include "lib/assert.h"
#include "lib/rng.h"

namespace reprise {
namespace {

// One key for each use of the seed, so that different uses do not share draws. Dropout uses the
// seed itself.
constexpr uint64_t kShuffleKey = 0x73687566666c6500u;
constexpr uint64_t kAugmentKey = 0x6175676d656e7400u;
constexpr uint64_t kStandInKey = 0x7374616e64696e00u;

// Returns a number from 0 to count-1. Multiplying instead of rejecting draws has a bias below count
// / 2^32.
int draw_below(uint32_t word, int count) {
  return static_cast<int>(uint64_t{word} * static_cast<uint64_t>(count) >> 32);
}

}  // namespace

uint64_t permuted(uint64_t index, uint64_t size, uint64_t seed, uint64_t epoch) {
  REPRISE_ASSERT(index < size, "an index is less than the size of its permutation");
  constexpr uint64_t kRounds = 8;
  const int half_bits = (std::bit_width(size - 1) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  do {
    uint64_t left = index >> half_bits, right = index & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const PhiloxBlock block = philox(seed ^ kShuffleKey, epoch, round << 32 | right);
      const uint64_t next = left ^ (block.word[0] & mask);
      left = right;
      right = next;
    }
    index = left << half_bits | right;
  } while (index >= size);
  return index;
}

SampleOrder::SampleOrder(const Recipe& recipe, Split split, uint64_t size)
    : size_(size),
      batch_(static_cast<uint64_t>(recipe.batch)),
      micro_batches_(static_cast<uint64_t>(recipe.micro_batches())),
      seed_(recipe.seed),
      shuffle_(recipe.data.shuffle),
      training_(split == Split::kTraining) {}

std::optional<uint64_t> SampleOrder::sample_at(uint64_t step, uint64_t micro, uint64_t b) const {
  REPRISE_ASSERT(b < batch_, "a place in a micro-batch is less than the batch");
  if (!training_) {
    const uint64_t n = step * batch_ + b;
    return n < size_ ? std::optional<uint64_t>(n) : std::nullopt;
  }
  const uint64_t position = (step * micro_batches_ + micro) * batch_ + b;
  const uint64_t n = position % size_;
  return shuffle_ ? permuted(n, size_, seed_, position / size_) : n;
}

Augmentation augmentation_at(const DataSource& data, uint64_t seed, uint64_t step, uint64_t micro, uint64_t b) {
  Augmentation augmentation;
  if (!data.flip && data.crop == 0) return augmentation;
  const PhiloxBlock block = philox(seed ^ kAugmentKey, step, micro << 32 | b);
  augmentation.flip = data.flip && (block.word[0] & 1) != 0;
  augmentation.rows_down = draw_below(block.word[1], 2 * data.crop + 1) - data.crop;
  augmentation.columns_right = draw_below(block.word[2], 2 * data.crop + 1) - data.crop;
  return augmentation;
}

// Multiplying instead of rejecting draws has a bias below size / 2^64.
uint64_t stand_in(uint64_t size, uint64_t seed, uint64_t step, uint64_t place, uint64_t draw) {
  REPRISE_ASSERT(size > 0 && draw <= UINT32_MAX, "a stand-in is drawn from some samples, at most 2^32 times");
  const PhiloxBlock block = philox(seed ^ kStandInKey, step, place << 32 | draw);
  const uint64_t word = uint64_t{block.word[0]} << 32 | block.word[1];
  return static_cast<uint64_t>(static_cast<unsigned __int128>(word) * size >> 64);
}

}  // namespace reprise
