// Finds the parameter or buffer of a PyTorch module that each constant of an ONNX file stands for.
// torch's exporters store one tensor for several tensors of equal numbers, and the newer exporter
// leaves out biases of zeros. All layers of a new nn.TransformerEncoder would thus become one. The
// older exporter records the tensors in Identity nodes, the newer one in metadata.
#pragma once

#include "tools/plan/onnx/onnx_file.h"

namespace reprise {

// Gives each tensor of the PyTorch module a constant of its own, and makes the nodes read that
// constant. If the file stores one tensor for several, the others become copies
// (OnnxTensor::is_copy). Sets OnnxNode::bias and OnnxModel::lost, and OnnxTensor::is_trained if the
// file states it. An Identity that represents a tensor loses its inputs and outputs. Does nothing
// if torch did not write the file.
void name_by_module(OnnxModel& model);

// True if the module may have a tensor of this name. False for names that torch's exporters make
// up, such as "onnx::Mul_12" or "val_3".
bool is_modules_name(const std::string& name);

}  // namespace reprise
