// ResNet (He et al. 2016) as torchvision builds it: stride in the 3x3, projection where the shape changes.
// One unit is one link.
// It must not know batch-norm's recomputation.
#include "tools/models/resnet.h"

#include <cmath>

namespace reprise {

namespace {

WindowAttribute window(uint16_t kernel, uint16_t stride, uint16_t pad) { return {kernel, kernel, stride, pad}; }

class ResNetBuilder {
 public:
  ResNetBuilder(Graph& graph, const ResNetModel& model) : g_(graph), model_(model) {}

  void build(uint32_t batch) {
    g_.input = g_.add_value("images", ValueKind::kInput,
                            {batch, static_cast<uint32_t>(model_.image_height), static_cast<uint32_t>(model_.image_width),
                             static_cast<uint32_t>(model_.image_channels)});
    g_.labels = g_.add_value("labels", ValueKind::kLabels, {batch}, DType::kI32);
    ValueId x = stem();
    g_.cut(x);
    for (size_t stage = 0; stage < model_.units.size(); ++stage) {
      const uint32_t channels = static_cast<uint32_t>(model_.width) << stage;
      for (int unit = 0; unit < model_.units[stage]; ++unit) {
        const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(unit);
        x = residual_unit(x, name, channels, stage > 0 && unit == 0 ? 2 : 1);
        g_.cut(x);
      }
    }
    head(g_.global_pool(x, "avgpool"));
  }

 private:
  ValueId stem() {
    const bool imagenet = model_.stem == ResNetModel::Stem::kImagenet;
    ValueId x = g_.conv(g_.input, "conv1", static_cast<uint32_t>(model_.width), imagenet ? window(7, 2, 3) : window(3, 1, 1));
    x = g_.relu(g_.batch_norm(x, "bn1"), "relu");
    return imagenet ? g_.max_pool(x, "maxpool", window(3, 2, 1)) : x;
  }

  ValueId conv_bn(ValueId x, const std::string& unit, const std::string& index, uint32_t channels, WindowAttribute w) {
    return g_.batch_norm(g_.conv(x, unit + ".conv" + index, channels, w), unit + ".bn" + index);
  }

  ValueId residual_unit(ValueId x, const std::string& name, uint32_t channels, uint16_t stride) {
    const bool bottleneck = model_.block == ResNetModel::Block::kBottleneck;
    const uint32_t out_channels = bottleneck ? 4 * channels : channels;
    ValueId y;
    if (bottleneck) {
      y = g_.relu(conv_bn(x, name, "1", channels, window(1, 1, 0)), name + ".relu1");
      y = g_.relu(conv_bn(y, name, "2", channels, window(3, stride, 1)), name + ".relu2");
      y = conv_bn(y, name, "3", out_channels, window(1, 1, 0));
    } else {
      y = g_.relu(conv_bn(x, name, "1", channels, window(3, stride, 1)), name + ".relu1");
      y = conv_bn(y, name, "2", channels, window(3, 1, 1));
    }
    ValueId shortcut = x;
    if (stride != 1 || g_.tensor(x).shape[3] != out_channels) {
      shortcut = g_.batch_norm(g_.conv(x, name + ".downsample.0", out_channels, window(1, stride, 0)), name + ".downsample.1");
    }
    return g_.relu(g_.add(y, shortcut, name + ".add"), name);
  }

  // torch.nn.Linear: both weight and bias U(-1/sqrt(fan_in), 1/sqrt(fan_in)).
  void head(ValueId x) {
    const uint32_t features = g_.tensor(x).shape[1], classes = static_cast<uint32_t>(model_.classes);
    const float bound = 1.0f / std::sqrt(static_cast<float>(features));
    const ValueId weight = g_.parameter("fc.weight", {classes, features}, InitKind::kUniform, bound);
    const ValueId bias = g_.parameter("fc.bias", {classes}, InitKind::kUniform, bound);
    g_.loss_head(x, "fc", weight, bias);
  }

  Graph& g_;
  const ResNetModel& model_;
};

}  // namespace

void build_resnet(Graph& graph, const ResNetModel& model, uint32_t batch) { ResNetBuilder(graph, model).build(batch); }

}  // namespace reprise
