// See contrast_targets.h.
#include "tools/run/data/contrast_targets.h"

#include <algorithm>

#include "lib/ops/pair_loss.h"

namespace reprise {

bool is_contrast(const Recipe& recipe) {
  return describe_model(recipe.model).target == ModelDescription::Target::kPair;
}

ContrastTargets::ContrastTargets(const Recipe& recipe, std::vector<uint32_t> numbers, const std::string& path,
                                 std::vector<std::string>& notes)
    : numbers_(std::move(numbers)), targets_(static_cast<size_t>(recipe.batch), 1.0f) {
  if (numbers_.empty()) return;
  const uint32_t maximum = *std::max_element(numbers_.begin(), numbers_.end());
  met_.resize(uint64_t{maximum} + 1);
  met_at_.resize(met_.size());
  std::vector<uint32_t> pairs_of(met_.size());
  for (size_t i = 0; i < numbers_.size(); ++i) {
    if (i % 2 == 0 || numbers_[i] != numbers_[i - 1]) ++pairs_of[numbers_[i]];
  }
  uint64_t shared = 0;
  for (size_t i = 0; i + 1 < numbers_.size(); i += 2)
    shared += pairs_of[numbers_[i]] > 1 || pairs_of[numbers_[i + 1]] > 1;
  if (shared == 0) return;
  const std::string line = path + ": " + std::to_string(shared) + " of " + std::to_string(numbers_.size() / 2) +
                           " pairs have an input that another pair has, too: ";
  const bool fits = 2 * targets_.size() <= PairInputs::kMax;
  notes.push_back(line + (fits ? "in a micro-batch equal inputs are no negatives of each other"
                               : "in a micro-batch of more than " + std::to_string(PairInputs::kMax / 2) +
                                     " pairs they count as negatives of each other"));
}

void ContrastTargets::begin_batch(const SampleOrder& order, uint64_t step, uint64_t micro) {
  ++batches_;
  next_ = 0;
  std::fill(targets_.begin(), targets_.end(), 1.0f);
  if (2 * targets_.size() > PairInputs::kMax) return;
  bool are_shared = false;
  const auto place_of = [&](uint64_t input, uint32_t place) {
    const uint32_t number = numbers_[input];
    if (met_[number] != batches_) met_[number] = batches_, met_at_[number] = place;
    are_shared = are_shared || met_at_[number] / 2 != place / 2;
    return met_at_[number];
  };
  for (uint32_t b = 0; b < targets_.size(); ++b) {
    const std::optional<uint64_t> sample = order.sample_at(step, micro, b);
    if (!sample) break;
    const uint32_t first = place_of(2 * *sample, 2 * b), second = place_of(2 * *sample + 1, 2 * b + 1);
    targets_[b] = PairInputs{first, second}.target();
  }
  if (!are_shared) std::fill(targets_.begin(), targets_.end(), 1.0f);
}

}  // namespace reprise
