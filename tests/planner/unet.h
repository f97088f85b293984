// Nets of convolutions: a net without blocks, and a U-Net. No shipped recipe has skips across other
// layers.
#pragma once

#include <string>
#include <vector>

#include "tools/plan/graph/graph.h"

namespace reprise {

struct Net {
  Graph graph;
  ValueId x;

  Net() : x(graph.input = graph.add_value("images", ValueKind::kInput, {2, 16, 16, 4})) {
    graph.labels = graph.add_value("labels", ValueKind::kLabels, {2}, DType::kI32);
  }
  void step(const std::string& name) {
    x = graph.relu(graph.batch_norm(graph.conv(x, name + ".conv", 4, {3, 3, 1, 1}), name + ".bn"), name);
  }
  void end() {
    x = graph.global_pool(x, "pool");
    graph.loss_head(x, "fc", graph.parameter("fc.weight", {3, 4}, InitKind::kNormal, 1), kNoValue);
  }
};

// Returns a U-Net with `levels` poolings. Its upward half reads the output of each downward level
// again.
inline Graph unet(int levels) {
  Net net;
  Graph& g = net.graph;
  net.x = g.input = g.add_value("larger", ValueKind::kInput, {2, 32, 32, 4});
  std::vector<ValueId> skips;
  for (int level = 0; level < levels; ++level) {
    const std::string name = "down" + std::to_string(level);
    net.step(name + "a");
    net.step(name + "b");
    skips.push_back(net.x);
    net.x = g.max_pool(net.x, name + ".pool", {2, 2, 2, 0});
  }
  net.step("bottom");
  for (int level = levels; level-- > 0;) {
    const std::string name = "up" + std::to_string(level);
    const Tensor& skip = g.tensor(skips[static_cast<size_t>(level)]);
    net.x = g.concat({g.resize(net.x, name + ".resize", skip.shape[1], skip.shape[2], ResizeKind::kNearest),
                      skips[static_cast<size_t>(level)]},
                     name + ".concat", 3);
    net.step(name + "a");
    net.step(name + "b");
  }
  net.end();
  return net.graph;
}

}  // namespace reprise
