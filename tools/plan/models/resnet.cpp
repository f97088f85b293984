// ResNet (He et al. 2016) as torchvision builds it: stride in the 3x3, projection if the shape
// changes.
#include "tools/plan/models/resnet.h"

#include <algorithm>
#include <cmath>

#include "tools/files/formats/json_fields.h"
#include "tools/files/formats/json_text.h"
#include "tools/plan/graph/graph.h"

namespace reprise {

namespace {

constexpr Word<ResNetModel::Block> kBlocks[] = {{"basic", ResNetModel::Block::kBasic},
                                                {"bottleneck", ResNetModel::Block::kBottleneck}};
constexpr Word<ResNetModel::Stem> kStems[] = {{"cifar", ResNetModel::Stem::kCifar},
                                              {"imagenet", ResNetModel::Stem::kImagenet}};

WindowAttribute window(uint16_t kernel, uint16_t stride, uint16_t pad) { return {kernel, kernel, stride, pad}; }

class ResNetBuilder {
 public:
  ResNetBuilder(Graph& graph, const ResNetModel& model) : g_(graph), model_(model) {}

  void build(uint32_t batch) {
    g_.input = g_.add_value("images", ValueKind::kInput,
                            {batch, static_cast<uint32_t>(model_.image_height),
                             static_cast<uint32_t>(model_.image_width), static_cast<uint32_t>(model_.image_channels)});
    g_.labels = g_.add_value("labels", ValueKind::kLabels, {batch}, DType::kI32);
    ValueId x = stem();
    for (size_t stage = 0; stage < model_.units.size(); ++stage) {
      const uint32_t channels = static_cast<uint32_t>(model_.width) << stage;
      for (int unit = 0; unit < model_.units[stage]; ++unit) {
        const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(unit);
        x = residual_unit(x, name, channels, stage > 0 && unit == 0 ? 2 : 1);
      }
    }
    head(g_.global_pool(x, "avgpool"));
  }

 private:
  ValueId stem() {
    const bool imagenet = model_.stem == ResNetModel::Stem::kImagenet;
    ValueId x =
        g_.conv(g_.input, "conv1", static_cast<uint32_t>(model_.width), imagenet ? window(7, 2, 3) : window(3, 1, 1));
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
      shortcut =
          g_.batch_norm(g_.conv(x, name + ".downsample.0", out_channels, window(1, stride, 0)), name + ".downsample.1");
    }
    return g_.relu(g_.add(y, shortcut, name + ".add"), name);
  }

  // Initialises weight and bias as torch.nn.Linear does: U(-1/sqrt(fan_in), 1/sqrt(fan_in)).
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

ResNetModel ResNetModel::read(const JsonFields& fields) {
  fields.allow_only({"family", "block", "units", "width", "stem", "classes", "image"});
  ResNetModel model;
  fields.read_choice("block", model.block, kBlocks, {"Two 3x3 convolutions, or a 3x3 between two 1x1"});
  fields.read("units", model.units, 1, kMaxBlocks, {"The length of each of the three or four stages", "blocks"});
  if (model.units.size() != 3 && model.units.size() != 4) {
    fields.refuse("units", "must be a list of three or four stages, not of " + std::to_string(model.units.size()));
  }
  fields.read_choice(
      "stem", model.stem, kStems,
      {"\"cifar\": one 3x3 convolution of stride 1; \"imagenet\": 7x7 of stride 2 and a 3x3 max pool of stride 2"});
  if (model.stem == Stem::kImagenet) model.width = 64;
  fields.read("width", model.width, 1, 65536,
              {"The first stage's; each stage has twice the last one's", "channels",
               "16 with the cifar stem, 64 with the imagenet stem"});
  fields.read("classes", model.classes, 2, kMaxCount, {"How many the classifier tells apart"});
  const auto [height, width, channels] = read_image_size(fields);
  model.image_height = height;
  model.image_width = width;
  model.image_channels = channels;
  return model;
}

nlohmann::json ResNetModel::example() {
  return {{"units", {3, 3, 3}}, {"width", 16}, {"stem", "cifar"}, {"classes", 10}, {"image", {28, 28, 1}}};
}

nlohmann::json ResNetModel::write() const {
  return {{"block", word_of(kBlocks, block)},
          {"units", units},
          {"width", width},
          {"stem", word_of(kStems, stem)},
          {"classes", classes},
          {"image", {image_height, image_width, image_channels}}};
}

ModelDescription ResNetModel::describe() const {
  return {.input = ModelDescription::Input::kImages,
          .image_height = image_height,
          .image_width = image_width,
          .image_channels = image_channels,
          .classes = classes};
}

void ResNetModel::check(const RecipeRules& rules, MicroBatch batch) const {
  rules.require_elements(double(batch.samples) * std::max(image_channels, width) * image_height * image_width, "batch",
                         "a micro-batch of images");
  const double last_width = double(width) * (1 << (units.size() - 1)) * (block == Block::kBottleneck ? 4 : 1);
  rules.require_elements(last_width * last_width * 9, "model.width", "the last stage's convolution");
  rules.require_elements(last_width * classes, "model.classes", "the classifier's weight");
  // Every layer of stride two halves the sides and rounds them up. A batch-norm over one value has
  // no variance; torch refuses it, too.
  int last_height = image_height, last_columns = image_width;
  const size_t strides = units.size() - 1 + (stem == Stem::kImagenet ? 2 : 0);
  for (size_t i = 0; i < strides; ++i) {
    last_height = (last_height + 1) / 2;
    last_columns = (last_columns + 1) / 2;
  }
  rules.require(double(batch.samples) * last_height * last_columns > 1, "model.image",
                "too small: the last stage would be 1 x 1 with a batch of 1, and a batch-norm needs two values; give a "
                "larger image or batch");
}

void ResNetModel::build(Graph& graph, MicroBatch batch) const {
  ResNetBuilder(graph, *this).build(static_cast<uint32_t>(batch.samples));
}

}  // namespace reprise
