// The nets of Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174),
// section 5, as recipes. The planning, training and drawing of their experiment (PLANNING 7) use
// these nets.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "lib/backend_rules.h"
#include "tools/plan/graph/cost.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {

// Units in each stage of the released example, which has five times [3,24,36,3]: 990 layers of
// conv-bn-relu.
inline const std::vector<int> kDeepUnits = {15, 120, 180, 15};

// Returns the units of the stages for a net of about `layers` layers, in the proportions of
// kDeepUnits.
inline std::vector<int> units_at_depth(int layers) {
  const double units = layers / 3.0;
  std::vector<int> list;
  for (const int stage : kDeepUnits) list.push_back(std::max(1, static_cast<int>(std::lround(units * stage / 330))));
  return list;
}

// Returns a recipe with bottleneck units, the ImageNet stem, 1000 classes, 224 x 224 images, SGD
// with momentum, and gradient release.
inline Recipe deep_resnet(const std::vector<int>& units, int batch = 32) {
  std::string list;
  for (const int count : units) list += (list.empty() ? "" : ", ") + std::to_string(count);
  return parse_recipe(
      R"({"name": "deep-resnet", "model": {"family": "resnet", "block": "bottleneck", "units": [)" + list +
          R"(], "stem": "imagenet", "classes": 1000, "image": [224, 224, 3]}, "data": {"kind": "synthetic"}, "batch": )" +
          std::to_string(batch) + R"(,
      "steps": 2, "seed": 1, "gradient_release": true, "optimizer": {"name": "sgd", "lr": 1e-6, "momentum": 0.9}})",
      "deep_resnet", "/");
}

// Returns the flops of a convolution; 0 for any other call. The 30% of additional work in the paper
// and the figures of PLANNING 5 count only convolutions.
inline double convolution_flops(const Graph& graph, const Call& call) {
  return call.op == Op::kConv || call.op == Op::kNormConv ? call_cost(graph, call).flops : 0;
}

inline constexpr BackendRules kNoScratch = {.name = "none", .header = "", .constant = ""};

}  // namespace reprise
