// Random graphs of rows: linear layers, ReLUs, norms and additions, some of whose values nobody reads.
// Here because rules of cuts, plans and their judges must hold for graphs that no family has.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tools/graph/graph.h"

namespace reprise {

// Of `length` nodes beside the first and the loss. A node reads the latest value, or one of the latest `reach`.
inline Graph random_graph(std::mt19937_64& random, uint64_t length, uint64_t reach) {
  Graph graph;
  graph.input = graph.add_value("x", ValueKind::kInput, {2, 3, 8});
  graph.labels = graph.add_value("labels", ValueKind::kLabels, {2, 3}, DType::kI32);
  std::vector<ValueId> values = {graph.linear(graph.input, "first", 8, false, false, 1)};
  for (uint64_t i = 0; i < length; ++i) {
    const std::string name = "n" + std::to_string(i);
    // One after the other: of two draws in an expression either may be made first.
    const uint64_t draw = random();
    const ValueId other = values[values.size() - 1 - draw % std::min<uint64_t>(values.size(), 1 + random() % reach)];
    switch (random() % 4) {
      case 0: values.push_back(graph.relu(values.back(), name)); break;
      case 1: values.push_back(graph.add(values.back(), other, name)); break;
      case 2: values.push_back(graph.layer_norm(other, name, 1e-5f)); break;
      default: values.push_back(graph.linear(values.back(), name, 8, false, false, 1)); break;
    }
  }
  graph.loss_head(values.back(), "loss", graph.parameter("w", {5, 8}, InitKind::kNormal, 1), kNoValue);
  return graph;
}

}  // namespace reprise
