// Targets of the pairs that InfoNCE compares. They tell the loss which inputs of a micro-batch are
// equal (PairInputs of lib/ops/pair_loss.h). Equal inputs must not count as negatives of each
// other: if one question has two answers, the loss would otherwise teach that one of them is wrong.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/plan/recipes/recipe.h"
#include "tools/run/data/sample_order.h"

namespace reprise {

// Returns one number for each of `count` inputs; equal inputs get equal numbers. is_less(a, b)
// compares the inputs with indices a and b.
template <typename IsLess>
std::vector<uint32_t> numbers_of_equal(uint64_t count, const IsLess& is_less);

// Computes the targets of each micro-batch.
class ContrastTargets {
 public:
  // Stores `numbers` (see numbers_of_equal): one for each input, the two inputs of a pair next to
  // each other; {} if the loss is not InfoNCE. Adds a line to `notes` if pairs share an input; the
  // line names `path`.
  ContrastTargets(const Recipe& recipe, std::vector<uint32_t> numbers, const std::string& path,
                  std::vector<std::string>& notes);

  bool are_there() const { return !numbers_.empty(); }
  // Computes the targets of a micro-batch. They are 1, unless some of its pairs share an input.
  // They are always 1 if the batch has more than PairInputs::kMax / 2 pairs. Does not use the heap.
  void begin_batch(const SampleOrder& order, uint64_t step, uint64_t micro);
  // Returns the address of the target of the next pair in the micro-batch.
  const float* next() { return &targets_[next_++]; }

 private:
  std::vector<uint32_t> numbers_;  // number of each input; {} if the loss is not InfoNCE
  // For each number, the last micro-batch that contains it; micro-batches are counted from 1
  std::vector<uint64_t> met_;
  std::vector<uint32_t> met_at_;    // for each number, its first index in that micro-batch, below 2 * batch
  std::vector<float> targets_;      // [batch], one for each pair of the micro-batch
  uint64_t batches_ = 0, next_ = 0;
};

// True if the loss of the recipe's net is InfoNCE.
bool is_contrast(const Recipe& recipe);

template <typename IsLess>
std::vector<uint32_t> numbers_of_equal(uint64_t count, const IsLess& is_less) {
  std::vector<uint32_t> order(count), numbers(count);
  for (uint32_t i = 0; i < count; ++i) order[i] = i;
  std::sort(order.begin(), order.end(), is_less);
  uint32_t number = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (i > 0 && is_less(order[i - 1], order[i])) ++number;
    numbers[order[i]] = number;
  }
  return numbers;
}

}  // namespace reprise
