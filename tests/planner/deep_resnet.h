// The nets of Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174), section 5, as recipes.
// Here because planning, training and drawing their experiment must speak of one net (PLANNING 7).
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "lib/backend_rules.h"
#include "tools/graph/cost.h"
#include "tools/recipes/recipe.h"

namespace reprise {

// The released example's [3,24,36,3] times five: 990 layers of conv-bn-relu.
inline const std::vector<int> kDeepUnits = {15, 120, 180, 15};

// The same shares of the units in a net of about `layers` layers.
inline std::vector<int> units_at_depth(int layers) {
  const double units = layers / 3.0;
  std::vector<int> list;
  for (const int stage : kDeepUnits) list.push_back(std::max(1, static_cast<int>(std::lround(units * stage / 330))));
  return list;
}

// Bottleneck units, ImageNet stem, 1000 classes; 224 x 224, SGD with momentum, gradients released.
inline Recipe deep_resnet(const std::vector<int>& units, int batch = 32) {
  std::string list;
  for (const int count : units) list += (list.empty() ? "" : ", ") + std::to_string(count);
  return parse_recipe(R"({"name": "deep-resnet", "model": {"family": "resnet", "block": "bottleneck", "units": [)" + list +
                          R"(], "stem": "imagenet", "classes": 1000, "image": [224, 224, 3]}, "data": {"kind": "synthetic"}, "batch": )" +
                          std::to_string(batch) + R"(,
      "steps": 2, "seed": 1, "gradient_release": true, "optimizer": {"name": "sgd", "lr": 1e-6, "momentum": 0.9}})",
                      "deep_resnet", "/");
}

// Convolution flops alone: what the paper's 30% and PLANNING 5's figures count.
inline double convolution_flops(const Graph& graph, const Call& call) { return call.op == Op::kConv || call.op == Op::kNormConv ? call_cost(graph, call).flops : 0; }

inline constexpr BackendRules kNoScratch = {.name = "none", .header = "", .constant = ""};

}  // namespace reprise
