// Guesses from a tensor's numbers whether it is trained, for files that do not state it: torch's
// older ONNX exporter lists parameters and buffers in the same way.
#pragma once

#include <optional>
#include <vector>

#include "tools/plan/onnx/findings.h"

namespace reprise {

// Returns why a tensor that is not a layer's weight is taken for a buffer: kWhole or kWaves.
// Neither training nor an initialisation produces such numbers. Returns nothing if the tensor is
// taken for a parameter.
std::optional<Finding> guess_of_table(const std::vector<float>& numbers, const std::vector<int64_t>& shape);

// True if a convolution's weight [K,C,R,S] has only whole numbers, or K equal filters, but not all
// numbers equal. Also true if the filters are for one channel and each is one symmetric window
// whose sum is 1.
bool is_fixed_filter(const std::vector<float>& numbers, const std::vector<int64_t>& shape);

}  // namespace reprise
