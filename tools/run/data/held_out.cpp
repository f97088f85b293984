// See held_out.h.
#include "tools/run/data/held_out.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/rng.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"

namespace reprise {
namespace {

// Part of the key of the draws that hold samples out. Makes them independent of the draws for order
// and augmentation.
constexpr uint64_t kHeldOutKey = 0x68656c646f757400u;

}  // namespace

uint64_t HeldOut::begin(uint64_t stretch) const {
  constexpr double kEnd = 0x1p62;  // above the index of every sample; without it, a tiny share would overflow uint64_t
  return static_cast<uint64_t>(std::min(std::floor(static_cast<double>(stretch) / share_), kEnd));
}

uint64_t HeldOut::stretch_of(uint64_t sample) const {
  auto stretch = static_cast<uint64_t>(static_cast<double>(sample) * share_);
  while (begin(stretch + 1) <= sample) ++stretch;
  while (begin(stretch) > sample) --stretch;
  return stretch;
}

uint64_t HeldOut::held_sample(uint64_t i) const {
  const uint64_t length = begin(i + 1) - begin(i);
  // Multiplying instead of rejecting draws has a bias below length / 2^32.
  return begin(i) + (uint64_t{philox(seed_ ^ kHeldOutKey, 0, i).word[0]} * length >> 32);
}

bool HeldOut::holds(uint64_t sample) const { return held_sample(stretch_of(sample)) == sample; }

uint64_t HeldOut::kept_among(uint64_t samples) const {
  if (samples == 0) return 0;
  const uint64_t last = stretch_of(samples - 1);
  return last + (held_sample(last) < samples);
}

uint64_t HeldOut::other_sample(uint64_t i) const {
  const auto others_before = [this](uint64_t stretch) { return begin(stretch) - stretch; };
  auto stretch = static_cast<uint64_t>(static_cast<double>(i) * share_ / (1 - share_));
  while (others_before(stretch + 1) <= i) ++stretch;
  while (others_before(stretch) > i) --stretch;
  const uint64_t sample = begin(stretch) + i - others_before(stretch);
  return sample + (sample >= held_sample(stretch));
}

DataPart::DataPart(const Recipe& recipe, Split split)
    : share_(recipe.data.held_out),
      held_out_(share_, recipe.seed),
      path_(split == Split::kTraining ? recipe.data.path : recipe.data.eval_path) {
  if (share_ == 0) return;
  reads_ = split == Split::kTraining ? Reads::kOthers : Reads::kHeldOut;
  path_ = recipe.data.path;
}

uint64_t DataPart::sample(uint64_t i) const {
  if (reads_ == Reads::kAll) return i;
  return reads_ == Reads::kHeldOut ? held_out_.held_sample(i) : held_out_.other_sample(i);
}

uint64_t DataPart::size(uint64_t samples_of_file) const {
  if (reads_ == Reads::kAll) return samples_of_file;
  const uint64_t held = held_out_.kept_among(samples_of_file),
                 size = reads_ == Reads::kHeldOut ? held : samples_of_file - held;
  require_some(size, samples_of_file);
  return size;
}

void DataPart::require_some(uint64_t size, uint64_t samples_of_file) const {
  if (size > 0 || reads_ == Reads::kAll) return;
  throw UserError(path_ + ": data.held_out: " + json_shown(nlohmann::json(share_)) + " of " +
                  std::to_string(samples_of_file) + " samples leaves none to " +
                  (reads_ == Reads::kHeldOut ? "evaluate; hold out a larger share" : "train on; give more data"));
}

}  // namespace reprise
