// A set of pictures in files, with labels; only a few micro-batches are in memory at a time.
// Folders of classes, tables of numbers and folders of masks use it; they differ only in the source
// of the labels.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/run/data/dataset.h"

namespace reprise {

// The pictures and labels of a set.
struct LabelledPictures {
  std::vector<std::string> files = {};   // the pictures; for pairs, two consecutive pictures are one sample
  std::vector<std::string> others = {};  // further files that are part of the set's fingerprint
  std::vector<std::string> class_names = {}, warnings = {}, notes = {};
  // Writes the labels of sample n (label_form). The decoding thread calls it. It may throw
  // UserError.
  std::function<void(uint64_t n, unsigned char* labels)> write_labels = {};
  std::vector<uint64_t> labelled = {};  // for each sample, how many of its labels are not ignored; {}: all of them
  std::vector<double> weights = {};     // for each sample, the sum of its class weights; {}: their number
};

// Returns the set and starts its decoding thread. `path` is the folder or file that the recipe
// names.
std::unique_ptr<Dataset> make_picture_set(const Recipe& recipe, Split split, const std::string& path,
                                          LabelledPictures pictures);

}  // namespace reprise
