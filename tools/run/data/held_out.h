// Selects the samples of a file that a split reads: all samples, the samples that are held out for
// evaluation, or all samples that are not held out. The selection depends only on a sample's index
// in the file and on the seed. A resumed run thus does not train on a sample that is evaluated.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tools/run/data/dataset.h"

namespace reprise {

// Holds out one sample in every stretch of 1 / share consecutive samples, drawn with the seed. The
// held-out samples are thus distributed evenly over the file, and no table is needed.
class HeldOut {
 public:
  HeldOut(double share, uint64_t seed) : share_(share), seed_(seed) {}

  // True if the sample is held out.
  bool holds(uint64_t sample) const;
  uint64_t kept_among(uint64_t samples) const;  // returns how many of the first `samples` are held out
  uint64_t held_sample(uint64_t i) const;       // returns the index of the i-th sample that is held out
  uint64_t other_sample(uint64_t i) const;      // returns the index of the i-th sample that is not held out

 private:
  uint64_t begin(uint64_t stretch) const;
  uint64_t stretch_of(uint64_t sample) const;
  double share_;
  uint64_t seed_;
};

// The part of a recipe's data that a split reads: a file, and a selection of its samples.
class DataPart {
 public:
  DataPart(const Recipe& recipe, Split split);

  const std::string& path() const { return path_; }  // "" if the recipe names no such data
  // True if the sample is in this part.
  bool has(uint64_t sample) const {
    return reads_ == Reads::kAll || held_out_.holds(sample) == (reads_ == Reads::kHeldOut);
  }
  // Returns the file's index of the i-th sample in this part.
  uint64_t sample(uint64_t i) const;
  // Returns how many of the file's samples are in this part. Throws UserError if a share is held
  // out and this part is empty.
  uint64_t size(uint64_t samples_of_file) const;
  // Throws UserError if a share is held out and `size`, the size of this part, is 0.
  void require_some(uint64_t size, uint64_t samples_of_file) const;

 private:
  enum class Reads { kAll, kHeldOut, kOthers };
  double share_;
  HeldOut held_out_;
  Reads reads_ = Reads::kAll;
  std::string path_;
};

// Opens the data of a split as a Set; null if the recipe names no such data.
template <typename Set>
std::unique_ptr<Dataset> open_part(const Recipe& recipe, Split split, DataLook* look) {
  const DataPart part(recipe, split);
  return part.path().empty() ? nullptr : std::make_unique<Set>(recipe, split, part, look);
}

}  // namespace reprise
