// A network of ops that only move numbers: slices, padding, concatenations, reshapes,
// transpositions and resizing. Its gradients are compared with a reference; its plans and their
// mutants are judged.
#pragma once

#include "tools/plan/graph/graph.h"

namespace reprise::rearranged {

inline constexpr uint32_t kN = 3, kH = 4, kW = 6, kIn = 3, kC = 4, kJoined = 6, kTokens = kH * kW, kClasses = 4;
inline constexpr WindowAttribute kPointwise = {1, 1, 1, 0};

inline Graph network(DType stored) {
  Graph g(stored);
  g.input = g.add_value("images", ValueKind::kInput, {kN, kH, kW, kIn});
  g.labels = g.add_value("labels", ValueKind::kLabels, {kN}, DType::kI32);
  const ValueId stem = g.conv(g.input, "stem", kC, kPointwise);
  g.cut(stem);
  const ValueId left = g.slice(stem, "left", 3, 0, 2), right = g.slice(stem, "right", 3, 2, 2);
  const ValueId joined = g.concat({left, g.conv(right, "mix", 2, kPointwise), right}, "joined", 3);
  const ValueId twice = g.conv(g.concat({right, left, right}, "twice", 3), "few", kJoined, kPointwise);
  const ValueId padded = g.pad(joined, "padded", {0, 1, 0, 0}, {0, 0, 2, 0});
  const ValueId cropped = g.slice(padded, "cropped", {0, 0, 1, 0}, {kN, kH, kW, kJoined});
  const ValueId large = g.resize(joined, "large", 7, 9, ResizeKind::kBilinear);
  const ValueId small =
      g.resize(g.resize(large, "smaller", 5, 5, ResizeKind::kBilinearCorners), "small", kH, kW, ResizeKind::kNearest);
  const ValueId images = g.add(g.add(cropped, small, "sum"), twice, "images.sum");
  const ValueId tokens = g.reshape(images, "tokens", {kN, kTokens, kJoined});
  g.cut(tokens);
  const ValueId transposed = g.transpose(tokens, "turned", {0, 2, 1});
  const ValueId mixed = g.transpose(g.linear(transposed, "mixer", kTokens, false, true, 0.3f), "mixed", {0, 2, 1});
  const ValueId sum =
      g.add(g.concat({g.slice(mixed, "first", 1, 0, 1), g.slice(mixed, "others", 1, 1, kTokens - 1)}, "again", 1),
            tokens, "tokens.sum");
  g.cut(sum);
  const ValueId shuffled = g.transpose(g.reshape(sum, "groups", {kN, kTokens, 2, 3}), "shuffled", {0, 1, 3, 2});
  const ValueId back =
      g.reshape(g.relu(g.reshape(shuffled, "rows", {kN, kH, kW, kJoined}), "relu"), "flat", {kN, kTokens * kJoined});
  g.loss_head(back, "head", g.parameter("head.weight", {kClasses, kTokens * kJoined}, InitKind::kNormal, 0.2f),
              kNoValue);
  return g;
}

}  // namespace reprise::rearranged
