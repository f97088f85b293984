// Writes an ONNX file anew with other numbers in some of its tensors.
// Here because a net that was trained goes back to the program that runs it as the file that it came in: every other byte is kept.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/onnx/onnx_file.h"

namespace reprise {

struct OnnxChange {
  const OnnxTensor* tensor;                     // of the file's model
  std::vector<uint64_t> shape;                  // that it gets; where it is another, in one axis and in one only
  std::function<std::vector<float>()> numbers;  // row-major, asked for when they are written
};

// Numbers take the type that the file stores them in, rounded to the nearest, and those that have not changed keep their bytes. Numbers
// beside the model (external data) are written beside `to`, under the names of before. A tensor of another shape is written into the
// model's own file, and the values that are computed from it have the new size in their last axis where they had the old one. `to` is
// the new file or what it was. Throws UserError.
void write_onnx(const OnnxFile& file, const std::vector<OnnxChange>& changes, const std::string& to);

}  // namespace reprise
