// Random graphs of linear layers, ReLUs, norms and additions. Some of their values have no reader.
// The rules of cuts and plans, and the judges of both, must also hold for graphs of no family.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tools/plan/graph/graph.h"

namespace reprise {

// Returns a graph of a first node, `length` further nodes, and a loss. A ReLU or a linear layer
// reads the latest value; a norm reads one of the latest `reach` values. An addition reads the
// latest value and one of the latest `reach` values.
inline Graph random_graph(std::mt19937_64& random, uint64_t length, uint64_t reach) {
  Graph graph;
  graph.input = graph.add_value("x", ValueKind::kInput, {2, 3, 8});
  graph.labels = graph.add_value("labels", ValueKind::kLabels, {2, 3}, DType::kI32);
  std::vector<ValueId> values = {graph.linear(graph.input, "first", 8, false, false, 1)};
  for (uint64_t i = 0; i < length; ++i) {
    const std::string name = "n" + std::to_string(i);
    // A separate statement, because the order of two draws in one expression is unspecified.
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
