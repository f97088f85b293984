// A small network of the ops that MobileNetV3, EfficientNet, ConvNeXt and ViT have between their
// products: functions of one number, a squeeze-and-excitation gate, a scale of a layer, learned
// positions and stochastic depth. Tests plan, judge and train these ops together. Also contains
// images that the network can learn.
#pragma once

#include <string>

#include "tests/runtime/random_images.h"
#include "tools/plan/graph/graph.h"

namespace reprise {

struct SqueezeNetwork {
  static constexpr uint32_t kN = 3, kH = 5, kW = 4, kIn = 3, kC = 6, kClasses = 4;

  static UnaryAttribute function(UnaryFunction function, float parameter = 0) {
    return {static_cast<uint32_t>(function), parameter};
  }

  // Builds the graph. All leaves (learned values) are created before any node. Both units read the
  // leaf `scale`.
  static Graph build(DType stored = DType::kF32, float drop = 0.3f) {
    Graph g(stored);
    g.input = g.add_value("images", ValueKind::kInput, {kN, kH, kW, kIn});
    g.labels = g.add_value("labels", ValueKind::kLabels, {kN}, DType::kI32);
    const ValueId scale = g.learned("scale", {kC}, InitKind::kConstant, 0.5f),
                  positions = g.learned("positions", {1, kH, kW, kC}, InitKind::kNormal, 0.1f);
    const WindowAttribute pointwise = {1, 1, 1, 0};
    const ValueId stem = g.conv(g.input, "stem", kC, pointwise), placed = g.add(stem, positions, "placed");
    g.cut(placed);
    const ValueId y = g.unary(g.batch_norm(g.conv(placed, "conv1", kC, {3, 3, 1, 1}), "bn1"), "act1",
                              function(UnaryFunction::kHardswish));
    const ValueId pooled = g.max_pool(y, "squeeze.pool", {kH, kW, 1, 0});
    const ValueId squeezed =
        g.unary(g.conv(pooled, "squeeze", 2, pointwise), "squeeze.act", function(UnaryFunction::kMish));
    const ValueId gate =
        g.unary(g.conv(squeezed, "excite", kC, pointwise), "excite.act", function(UnaryFunction::kHardsigmoid));
    const ValueId scaled = g.multiply(g.multiply(gate, y, "gated"), scale, "scaled");
    const ValueId unit1 = g.add(placed, g.drop_path(scaled, "drop1", drop), "unit1");
    g.cut(unit1);
    const ValueId a = g.conv(unit1, "conv2", kC, pointwise),
                  z = g.multiply(a, g.unary(a, "act2", function(UnaryFunction::kElu, 0.7f)), "squared");
    const ValueId unit2 = g.add(unit1, g.multiply(z, scale, "scaled2"), "unit2");
    g.cut(unit2);
    g.loss_head(g.global_pool(unit2, "pool"), "head",
                g.parameter("head.weight", {kClasses, kC}, InitKind::kNormal, 0.5f), kNoValue);
    return g;
  }

  static BatchSource source() { return random_images<kN, kH * kW * kIn, kClasses>(); }
};

}  // namespace reprise
