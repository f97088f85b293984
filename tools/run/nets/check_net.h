// Compares what an imported net computes with outputs of the model that it comes from, for the same
// samples. A model that was read wrongly is thus refused before training.
#pragma once

#include "lib/port.h"
#include "tools/plan/onnx/net_of_onnx.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {

// Maximum distance of outputs that count as equal: the rtol of ONNX's own test runner.
constexpr double kMaxDistance = 1e-3;

struct CheckReport {
  uint64_t samples = 0;
  double distance = 0;  // 2-norm of the difference from the stored outputs, divided by their 2-norm
};

// Runs the net over stored inputs and returns the distance of its outputs from the stored ones.
// `weights` is the net's file of weights, which the recipe need not name. `data` is a safetensors
// file with the model's inputs and output under their names, samples along the first axis; or a
// folder of ONNX's test data, input_0.pb ... and output_0.pb; or a folder of such folders
// test_data_set_N. Throws UserError if `data` is none of these, or if the distance exceeds
// kMaxDistance.
CheckReport check_net(const Port& port, const OnnxFile& file, const ImportedNet& net, const Recipe& recipe,
                      const std::string& weights, const std::string& data);

}  // namespace reprise
