// Pictures in files, each with its labels, of which a set keeps but a few micro-batches in memory.
// Here because folders of classes, tables of numbers and folders of masks differ only in where a picture's labels come from.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/data/dataset.h"

namespace reprise {

struct LabelledPictures {
  std::vector<std::string> files = {};   // the pictures; of pairs, neighbours are one
  std::vector<std::string> others = {};  // further files that the set is known by
  std::vector<std::string> class_names = {}, warnings = {};
  // Writes the labels of sample n as the net's loss wants them (label_form). Called by the thread that decodes; throws UserError.
  std::function<void(uint64_t n, unsigned char* labels)> write_labels = {};
  std::vector<uint64_t> labelled = {};  // of each sample, how many of its labels are one; {}: all
  std::vector<double> weights = {};    // and what these count by the weights of their classes; {}: as many as they are
};

// `path`: the folder or file that the recipe names.
std::unique_ptr<Dataset> make_picture_set(const Recipe& recipe, Split split, const std::string& path, LabelledPictures pictures);

}  // namespace reprise
