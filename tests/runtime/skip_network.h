// A small U-Net in which several values cross the cuts: a boundary that is read again later, inner
// values of a link, and a pooled value with its indices. One addition reads two of these skips, and
// three links read the same boundary. Tests plan, judge and train these skips together. Also
// contains images that the network can learn.
#pragma once

#include <string>

#include "tests/runtime/random_images.h"
#include "tools/plan/graph/graph.h"

namespace reprise {

struct SkipNetwork {
  static constexpr uint32_t kN = 3, kH = 8, kW = 8, kIn = 3, kC = 6, kClasses = 4;

  static Graph build(DType stored = DType::kF32) {
    Graph g(stored);
    g.input = g.add_value("images", ValueKind::kInput, {kN, kH, kW, kIn});
    g.labels = g.add_value("labels", ValueKind::kLabels, {kN}, DType::kI32);
    const WindowAttribute wide = {3, 3, 1, 1}, halves = {2, 2, 2, 0};
    const auto layer = [&](ValueId x, const std::string& name, uint32_t channels) {
      return g.relu(g.batch_norm(g.conv(x, name + ".conv", channels, wide), name + ".bn"), name);
    };
    const auto cut = [&](ValueId x) {
      g.cut(x);
      return x;
    };
    const ValueId first = g.conv(g.input, "first", kC, wide),
                  twin = g.unary(first, "twin", {static_cast<uint32_t>(UnaryFunction::kTanh)});
    const ValueId top = cut(layer(first, "top", kC));
    const ValueId down = layer(g.max_pool(top, "pool1", halves), "down", 8);
    const ValueId middle =
        cut(g.unary(g.conv(down, "middle.conv", 8, wide), "middle", {static_cast<uint32_t>(UnaryFunction::kSilu)}));
    const ValueId pooled = g.max_pool(middle, "pool2", halves);
    const ValueId bottom = cut(layer(pooled, "bottom", 8));
    const ValueId again = g.add(g.conv(bottom, "again.conv", 8, wide), pooled, "again");
    const ValueId joined = g.concat({g.resize(again, "up2", 4, 4, ResizeKind::kNearest), down}, "joined", 3);
    const ValueId raised = cut(layer(joined, "raised", kC));
    const ValueId both = g.add(top, twin, "both");
    const ValueId sum = cut(g.add(g.resize(raised, "up1", kH, kW, ResizeKind::kBilinear), both, "sum"));
    g.loss_head(g.global_pool(g.add(layer(sum, "last", kC), top, "end"), "pool"), "head",
                g.parameter("head.weight", {kClasses, kC}, InitKind::kNormal, 0.5f), kNoValue);
    return g;
  }

  static BatchSource source() { return random_images<kN, kH * kW * kIn, kClasses>(); }
};

}  // namespace reprise
