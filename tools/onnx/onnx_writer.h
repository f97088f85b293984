// Writes an ONNX file anew with other numbers in some of its tensors.
// Here because a net that was trained goes back to the program that runs it as the file that it came in: every other byte is kept.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tools/onnx/onnx_file.h"

namespace reprise {

// Returns the paths of the files beside the model that hold numbers of its tensors (external data).
std::set<std::string> external_files(const OnnxFile& file);

struct OnnxChange {
  const OnnxTensor* tensor;                     // of the file's model
  std::vector<uint64_t> shape;                  // that it gets; where it is another, in one axis and in one only
  std::function<std::vector<float>()> numbers;  // row-major, asked for when they are written
};

// Numbers take the type that the file stores them in, rounded to the nearest, and those that have not changed keep their bytes. Numbers
// beside the model (external data) are written into `to`.data, each tensor's apart, whatever file the model names. A tensor of another shape is written into the
// model's own file, and the values that are computed from it have the new size in their last axis where they had the old one. `to` is
// the new file or what it was; it may not be one of `inputs`, nor a file of the model. Throws UserError.
void write_onnx(const OnnxFile& file, const std::vector<OnnxChange>& changes, const std::string& to, std::vector<std::string> inputs);

}  // namespace reprise
