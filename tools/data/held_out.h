// Which samples of a file a split reads: all of them, those that are held out for evaluation, or the others.
// Here because whoever trains on some and evaluates the rest must never mix them up, in a resumed run either: a sample's part is a function
// of its place in the file and of the seed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tools/data/dataset.h"

namespace reprise {

// One sample in every stretch of 1 / share samples, drawn from the seed. So the held-out ones lie evenly in the file, and need no table.
class HeldOut {
 public:
  HeldOut(double share, uint64_t seed) : share_(share), seed_(seed) {}

  bool holds(uint64_t sample) const;
  uint64_t held_among(uint64_t samples) const;   // of the first so many
  uint64_t held_sample(uint64_t i) const;        // the i-th that is held out
  uint64_t other_sample(uint64_t i) const;       // the i-th that is not

 private:
  uint64_t begin(uint64_t stretch) const;
  uint64_t stretch_of(uint64_t sample) const;
  double share_;
  uint64_t seed_;
};

// What a split reads of a recipe's data: a file, and which of its samples.
class DataPart {
 public:
  DataPart(const Recipe& recipe, Split split);

  const std::string& path() const { return path_; }  // empty: the recipe names no such data
  bool has(uint64_t sample) const { return reads_ == Reads::kAll || held_out_.holds(sample) == (reads_ == Reads::kHeldOut); }
  // The i-th of the file's samples that this part has.
  uint64_t sample(uint64_t i) const;
  // How many of the file's it has. Throws UserError where a share is held out and none is left.
  uint64_t size(uint64_t samples_of_file) const;
  void require_some(uint64_t size, uint64_t samples_of_file) const;

 private:
  enum class Reads { kAll, kHeldOut, kOthers };
  double share_;
  HeldOut held_out_;
  Reads reads_ = Reads::kAll;
  std::string path_;
};

// The set of a split's part of the data; null where the recipe names none.
template <typename Set>
std::unique_ptr<Dataset> open_part(const Recipe& recipe, Split split, DataLook* look) {
  const DataPart part(recipe, split);
  return part.path().empty() ? nullptr : std::make_unique<Set>(recipe, split, part, look);
}

}  // namespace reprise
