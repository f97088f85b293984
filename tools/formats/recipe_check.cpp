// What no single field of a recipe can say: shapes that cannot be, and pairs that cannot go together.
// Here, apart from the reading, because the command line changes recipes after they were read.
// It must not know JSON.
#include <algorithm>

#include "lib/cpu/attention_rules.h"
#include "tools/schedule/schedule.h"
#include "tools/formats/error.h"
#include "tools/formats/json_text.h"
#include "tools/formats/recipe.h"

namespace reprise {
namespace {

// The largest single tensor that any later 64-bit product of bytes is safe with.
constexpr double kMostElements = 1099511627776.0;  // 2^40

struct Checker {
  const Recipe& recipe;
  const std::string& file;

  void require(bool condition, const std::string& field, const std::string& reason) const {
    if (!condition) throw UserError(file + ": " + field + ": " + reason);
  }

  void require_elements(double elements, const std::string& field, const std::string& tensor) const {
    require(elements <= kMostElements, field, "too large: " + tensor + " would have more than 2^40 elements");
  }

  void check_image_model(const ResNetModel& model) const {
    const double batch_channels = double(recipe.batch) * std::max(model.image_channels, model.width);
    require_elements(batch_channels * model.image_height * model.image_width, "batch", "a micro-batch of images");
    const double last_width = double(model.width) * (1 << (model.units.size() - 1)) *
                              (model.block == ResNetModel::Block::kBottleneck ? 4 : 1);
    require_elements(last_width * last_width * 9, "model.width", "the last stage's convolution");
    require_elements(last_width * model.classes, "model.classes", "the classifier's weight");
    // Every stride of two rounds up; a batch-norm over one value has no variance, and torch refuses it too.
    int height = model.image_height, width = model.image_width;
    const size_t strides = model.units.size() - 1 + (model.stem == ResNetModel::Stem::kImagenet ? 2 : 0);
    for (size_t i = 0; i < strides; ++i) {
      height = (height + 1) / 2;
      width = (width + 1) / 2;
    }
    require(
        double(recipe.batch) * height * width > 1, "model.image",
        "too small: the last stage would be 1 x 1 with a batch of 1, and a batch-norm needs two values; give a larger "
        "image or batch");
  }

  void check_language_model(const Gpt2Model& model) const {
    require(recipe.sequence <= model.n_positions, "sequence",
            "must be at most the model's n_positions (" + std::to_string(model.n_positions) + "), not " +
                std::to_string(recipe.sequence));
    const double tokens = double(recipe.batch) * recipe.sequence;
    require_elements(tokens * std::max(3.0 * model.n_embd, double(model.n_inner)), "batch",
                     "a micro-batch of activations");
    require_elements(double(model.vocab_size) * model.n_embd, "model.vocab_size", "the embedding");
    require_elements(double(model.n_positions) * model.n_embd, "model.n_positions", "the position embedding");
    require_elements(std::max(3.0 * model.n_embd, double(model.n_inner)) * model.n_embd, "model.n_embd",
                     "a layer's weight");
    require(static_cast<uint32_t>(model.n_embd / model.n_head) <= kAttentionMaxHead, "model.n_head",
            "too few: a head has at most " + std::to_string(kAttentionMaxHead) + " of the " + std::to_string(model.n_embd) +
                " channels of n_embd, so at least " + std::to_string((model.n_embd + kAttentionMaxHead - 1) / kAttentionMaxHead));
    require(model.n_layer <= 100000, "model.n_layer", "must be at most 100000, not " + std::to_string(model.n_layer));
  }

  void check_channel_numbers(const std::vector<double>& numbers, const std::string& field, int channels) const {
    require(numbers.size() <= 1 || numbers.size() == static_cast<size_t>(channels), field,
            "must be one number or one for each of the " + std::to_string(channels) + " channels, not a list of " +
                std::to_string(numbers.size()));
  }

  void check_data() const {
    using Kind = DataSource::Kind;
    const DataSource& data = recipe.data;
    const ResNetModel* images = std::get_if<ResNetModel>(&recipe.model);
    const bool language_data = data.kind == Kind::kTokens || data.kind == Kind::kText;
    const bool either = data.kind == Kind::kSynthetic || data.kind == Kind::kNone;
    if (images != nullptr) {
      require(!language_data, "data.kind",
              "an image model needs \"idx\", \"image_folder\", \"tensors\" or \"synthetic\"");
      check_channel_numbers(data.mean, "data.mean", images->image_channels);
      check_channel_numbers(data.std, "data.std", images->image_channels);
      require(data.crop < images->image_height && data.crop < images->image_width, "data.augment.crop",
              "must be less than the image's height and width, not " + std::to_string(data.crop));
      require(data.kind != Kind::kTensors || (data.mean.empty() && data.std.empty()), "data.mean",
              "leave \"mean\" and \"std\" out: \"tensors\" are used as they are");
      require(data.kind != Kind::kImageFolder || images->image_channels == 1 || images->image_channels == 3,
              "model.image",
              "must have 1 or 3 channels for an \"image_folder\", not " + std::to_string(images->image_channels));
    } else {
      require(language_data || either, "data.kind", "a language model needs \"tokens\", \"text\" or \"synthetic\"");
      require(data.mean.empty() && data.std.empty() && !data.flip && data.crop == 0, "data",
              "leave \"mean\", \"std\" and \"augment\" out: they are for images");
    }
  }

  void check_training() const {
    const OptimizerRecipe& optimizer = recipe.optimizer;
    require(!optimizer.nesterov || optimizer.momentum > 0, "optimizer.nesterov", "needs a momentum above 0");
    const LrSchedule& lr = recipe.lr_schedule;
    require(lr.kind != LrSchedule::Kind::kStep || !lr.milestones.empty(), "lr_schedule.milestones",
            "missing; \"step\" needs the steps at which the learning rate falls, for example [3000, 6000]");
    require(lr.kind != LrSchedule::Kind::kCosine || lr.steps > 0, "lr_schedule.steps",
            "missing; \"cosine\" needs \"steps\", here or in the recipe");
    require(lr.kind != LrSchedule::Kind::kCosine || lr.warmup_steps < lr.steps, "lr_schedule.warmup_steps",
            "must be less than the " + std::to_string(lr.steps) + " steps of the schedule, not " +
                std::to_string(lr.warmup_steps));
    require(!recipe.gradient_release || !recipe.clip_norm, "gradient_release",
            "cannot go with clip_norm: the norm needs every gradient at once; leave one out");
    require(!recipe.gradient_release || recipe.accumulate == 1, "gradient_release",
            "cannot go with accumulate above 1: a released gradient cannot be added to; leave one out");
    require(!recipe.budget_bytes || !recipe.feature_map_budget_bytes, "feature_map_budget",
            "cannot go with budget, which bounds the whole arena; leave one out");
  }

  void check_schedule() const {
    std::vector<std::string> names = strategy_names();
    names.push_back("policy");  // no schedule over a chain: it decides what each link's tape holds
    const std::string& strategy = recipe.schedule.strategy;
    const std::string near = closest_match(strategy, names);
    require(std::find(names.begin(), names.end(), strategy) != names.end(), "schedule.strategy",
            "must be one of " + quoted_list(names) + ", not " + json_shown(strategy) +
                (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
    require((strategy == "policy") == !recipe.schedule.policy.empty(), "schedule.policy",
            strategy == "policy" ? "missing; \"policy\" needs its name, as dots or linear" : "goes with strategy \"policy\" alone; leave it out");
    require(recipe.schedule.disk_bytes == 0 || takes_disk(strategy), "schedule.disk",
            "goes with the strategies h-revolve and multistage; leave it out");
    require(recipe.schedule.disk_bytes > 0 || !(recipe.schedule.write_cost || recipe.schedule.read_cost), "schedule.disk",
            "missing; write_cost and read_cost are of its bytes");
  }
};

}  // namespace

void check_recipe(const Recipe& recipe, const std::string& file) {
  const Checker checker{recipe, file};
  if (const auto* model = std::get_if<ResNetModel>(&recipe.model)) checker.check_image_model(*model);
  if (const auto* model = std::get_if<Gpt2Model>(&recipe.model)) checker.check_language_model(*model);
  checker.check_data();
  checker.check_training();
  checker.check_schedule();
}

}  // namespace reprise
