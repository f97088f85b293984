// Small networks that end in a loss without a linear layer: numbers, binary labels, a class for
// each pixel of a map, and pairs. Tests plan, judge and train such steps like all others.
#pragma once

#include <string>

#include "tools/plan/graph/graph.h"

namespace reprise {

struct JudgedNetwork {
  static constexpr uint32_t kN = 3, kH = 6, kW = 5, kIn = 3, kC = 6, kOut = 4;

  enum class Ends { kNumbers, kLabels, kMap, kPairs };

  // Builds two units of convolutions, whose output is a map. Depending on `ends`, the loss reads
  // the map, or the mean of the map.
  static Graph build(Ends ends, DType stored = DType::kF32) {
    Graph g(stored);
    const WindowAttribute pointwise = {1, 1, 1, 0};
    g.input = g.add_value("images", ValueKind::kInput, {ends == Ends::kPairs ? 2 * kN : kN, kH, kW, kIn});
    if (ends == Ends::kPairs) {
      g.labels = g.add_value("labels", ValueKind::kLabels, {kN}, DType::kF32);
    } else if (ends == Ends::kMap) {
      g.labels = g.add_value("labels", ValueKind::kLabels, {kN, kH, kW}, DType::kU8);
    } else {
      g.labels = g.add_value("labels", ValueKind::kLabels, {kN, kOut}, DType::kF32);
    }
    const ValueId stem = g.relu(g.conv(g.input, "stem", kC, {3, 3, 1, 1}), "relu1");
    g.cut(stem);
    const ValueId unit = g.add(stem, g.relu(g.conv(stem, "conv", kC, {3, 3, 1, 1}), "relu2"), "unit");
    g.cut(unit);
    const ValueId map = g.conv(unit, "last", kOut, pointwise, true);
    if (ends == Ends::kMap) {
      g.class_loss(map, "loss", {.label_smoothing = 0.125f, .dice = 0.25f}, g.table("loss.weights", {1, 2, 0.5f, 1}));
    } else if (ends == Ends::kPairs) {
      g.pair_loss(g.global_pool(map, "pool"), "loss", {static_cast<uint32_t>(PairLossKind::kContrast), 0.25f, 1});
    } else if (ends == Ends::kLabels) {
      g.target_loss(g.global_pool(map, "pool"), "loss", {static_cast<uint32_t>(TargetLossKind::kBinary)},
                    g.table("loss.positive_weights", {1, 2, 3, 4}));
    } else {
      g.target_loss(g.global_pool(map, "pool"), "loss", {static_cast<uint32_t>(TargetLossKind::kHuber), 0.5f});
    }
    return g;
  }
};

}  // namespace reprise
