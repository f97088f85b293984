// torchvision's ResNet: its recipe fields and its graph.
#pragma once

#include <vector>

#include "tools/plan/models/model.h"

namespace reprise {

// Stage i has `units[i]` units of `width << i` channels (bottleneck: four times that in the
// output).
struct ResNetModel {
  static constexpr const char* kFamily = "resnet";
  static constexpr HuggingFaceNames kHuggingFace = {};

  enum class Block { kBasic, kBottleneck };
  enum class Stem { kCifar, kImagenet };  // 3x3/1 without a pool | 7x7/2 and a 3x3/2 max pool
  Block block = Block::kBasic;
  std::vector<int> units = {3, 3, 3};  // units of each stage; three or four stages
  int width = 16;                      // default: 16 with the cifar stem, 64 with the imagenet stem
  Stem stem = Stem::kCifar;
  int classes = 10;
  int image_height = 0, image_width = 0, image_channels = 0;  // "image": [H, W, C], required

  static ResNetModel read(const JsonFields& fields);
  static nlohmann::json example();
  nlohmann::json write() const;
  ModelDescription describe() const;
  void check(const RecipeRules& rules, MicroBatch batch) const;
  void build(Graph& graph, MicroBatch batch) const;
  bool operator==(const ResNetModel&) const = default;
};

}  // namespace reprise
