// What an imported net computes, beside what the model that it comes from has computed of the same samples.
// Here so that a model that was read wrongly is refused before anything is trained.
#pragma once

#include "lib/port.h"
#include "tools/onnx/net_of_onnx.h"
#include "tools/recipes/recipe.h"

namespace reprise {

// Up to here outputs are the same: what ONNX's own test runner allows of a number (its rtol).
constexpr double kMostDistance = 1e-3;

struct CheckReport {
  uint64_t samples = 0;
  double distance = 0;  // the net's outputs from those stored, in the 2-norm, as a part of theirs
};

// `weights`: the net's, which the recipe need not name. `data`: a safetensors file with the model's inputs and its output under their names, the
// samples along the first axis; or a folder of ONNX's test data, input_0.pb ... and output_0.pb, or of several of these, test_data_set_N.
// Throws UserError where that is not so, or where the distance is more than kMostDistance.
CheckReport check_net(const Port& port, const OnnxFile& file, const ImportedNet& net, const Recipe& recipe,
                      const std::string& weights, const std::string& data);

}  // namespace reprise
