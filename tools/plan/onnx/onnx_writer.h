// Writes an ONNX file again with other numbers in some of its tensors. The rest of the file is
// kept, so that a trained net goes back in the same form to the program that runs it.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tools/plan/onnx/onnx_file.h"

namespace reprise {

// Returns the paths of the files that hold numbers of the model's tensors outside the model's own
// file (external data).
std::set<std::string> external_files(const OnnxFile& file);

struct OnnxChange {
  const OnnxTensor* tensor;                     // a tensor of the file's model
  std::vector<uint64_t> shape;                  // the tensor's new shape, which may differ in one axis
  std::function<std::vector<float>()> numbers;  // row-major; called when the numbers are written
};

// Writes `to`: the model with these changes. A tensor that the file has under another tensor's
// name, or not at all (OnnxTensor::is_copy), becomes a tensor of its own, which its nodes read.
// Numbers are rounded to the nearest of the type in which the file stores them; unchanged numbers
// keep their bytes.
// External data of all files are written into one file, `to`.data, where no two tensors share
// bytes. A tensor of another shape is written into the model's own file. Values computed from it
// get the new size in their last axis if they had the old size there. `to` may be a new file or an
// earlier result. It must not be one of `inputs` or a file of the model. Throws UserError.
void write_onnx(const OnnxFile& file, const std::vector<OnnxChange>& changes, const std::string& to,
                std::vector<std::string> inputs);

}  // namespace reprise
