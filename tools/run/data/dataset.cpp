// Opens a recipe's data with the function of its kind, so that no kind of data depends on another
// kind. Also contains code that all image sets share.
#include "tools/run/data/dataset.h"

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/run/data/images.h"
#include "tools/run/data/sources.h"

namespace reprise {

std::unique_ptr<Dataset> open_dataset(const Recipe& recipe, Split split, DataLook* look) {
  for (const DataOpener& opener : kDataOpeners) {
    if (opener.kind != recipe.data.kind) continue;
    const LongWork work(std::string(split == Split::kTraining ? "training" : "evaluation") + " data of " + recipe.name);
    return opener.open(recipe, split, look);
  }
  throw UserError(recipe.name + ": data: missing; training needs {\"kind\": ..., \"path\": ...}");
}

std::string class_order(const Recipe& recipe, const Dataset& data) {
  const ModelDescription model = describe_model(recipe.model);
  if (model.target != ModelDescription::Target::kClass) return "";
  std::vector<std::string> classes;
  // True if there is nothing to show: each class name is the number of the class, and classes have
  // no weights.
  bool are_places = model.class_weights.empty();
  for (size_t n = 0; n < data.class_names().size(); ++n) {
    are_places = are_places && data.class_names()[n] == std::to_string(n);
    std::string weight;
    if (n < model.class_weights.size()) weight = " (weight " + json_shown(nlohmann::json(model.class_weights[n])) + ")";
    classes.push_back(std::to_string(n) + " is " + json_shown(data.class_names()[n]) + weight);
  }
  return are_places || classes.empty() ? "" : some_of(classes);
}

void warn_of_places(const Recipe& recipe, Split split, const std::vector<std::string>& columns,
                    std::vector<std::string>& warnings) {
  const ModelDescription model = describe_model(recipe.model);
  const bool are_maps = model.output.size() > 1, moves = recipe.data.flip || recipe.data.crop > 0;
  if (split != Split::kTraining || !moves || are_maps || model.target != ModelDescription::Target::kNumbers) return;
  std::vector<std::string> named;
  for (const std::string& column : columns) named.push_back(json_shown(column));
  warnings.push_back(
      std::string("data.augment ") +
      (!recipe.data.flip      ? "shifts"
       : recipe.data.crop > 0 ? "mirrors and shifts"
                              : "mirrors") +
      " pictures, and the numbers beside them" + (named.empty() ? "" : " (" + some_of(named) + ")") +
      " stay as they are: leave it out where one of them is a place, a direction or a side in the picture");
}

ImageShape image_shape(const Recipe& recipe) {
  const ModelDescription model = describe_model(recipe.model);
  return {model.image_height, model.image_width, model.image_channels};
}

int class_count(const Recipe& recipe) { return describe_model(recipe.model).classes; }

LabelForm label_form(const Recipe& recipe) {
  using Target = ModelDescription::Target;
  const ModelDescription model = describe_model(recipe.model);
  const std::vector<uint32_t>& output = model.output;
  ImageShape shape = {1, 1, 1};
  if (model.target != Target::kClass && !model.has_pairs() && !output.empty()) {
    shape.channels = static_cast<int>(output.back());
    if (output.size() > 1) shape.width = static_cast<int>(output[output.size() - 2]);
    if (output.size() > 2) shape.height = static_cast<int>(output[0]);
  }
  if (model.target == Target::kClass) return {DType::kI32, shape};
  if (model.target != Target::kClassMap) return {DType::kF32, shape};
  shape.channels = 1;
  return {DType::kU8, shape};
}

TargetRange target_range(const Recipe& recipe) {
  const ModelDescription model = describe_model(recipe.model);
  if (model.has_pairs()) return {-1, 1, "from -1 to 1"};
  if (model.target == ModelDescription::Target::kLabels) return {0, 1, "from 0 to 1"};
  return {-std::numeric_limits<float>::max(), std::numeric_limits<float>::max(), "finite"};
}

uint64_t LabelForm::labelled(const void* labels) const {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < count(); ++i) sum += is_labelled(stored, labels, i);
  return sum;
}

double LabelForm::weight(const void* labels, const std::vector<double>& class_weights) const {
  if (class_weights.empty() || stored == DType::kF32) return static_cast<double>(labelled(labels));
  std::vector<uint64_t> counts(class_weights.size());
  for (uint64_t i = 0; i < count(); ++i) {
    if (!is_labelled(stored, labels, i)) continue;
    const size_t label = stored == DType::kU8 ? static_cast<const uint8_t*>(labels)[i]
                                              : static_cast<size_t>(static_cast<const int32_t*>(labels)[i]);
    if (label < counts.size()) ++counts[label];
  }
  double sum = 0;
  for (size_t c = 0; c < counts.size(); ++c)
    sum += static_cast<double>(counts[c]) * class_weight(class_weights, static_cast<int32_t>(c));
  return sum;
}

// Returns labels that are all ignored. Each byte is kIgnoredByte (0xff): as u8 this is the ignored
// label, and as f32 a NaN. Labels of type i32 are kIgnoredLabel instead.
std::vector<unsigned char> labels_of_none(const LabelForm& form) {
  std::vector<unsigned char> none(form.bytes(), kIgnoredByte);
  for (size_t i = 0; form.stored == DType::kI32 && i < form.count(); ++i)
    std::memcpy(none.data() + i * sizeof(int32_t), &kIgnoredLabel, sizeof kIgnoredLabel);
  return none;
}

const void* ImageWalk::flipped(const void* labels) {
  const auto width = static_cast<size_t>(form_.shape.width), height = static_cast<size_t>(form_.shape.height);
  const size_t place = form_.bytes() / (width * height);
  const unsigned char* from = static_cast<const unsigned char*>(labels);
  for (size_t y = 0; y < height; ++y) {
    for (size_t x = 0; x < width; ++x)
      std::memcpy(labels_.data() + (y * width + x) * place, from + (y * width + width - 1 - x) * place, place);
  }
  return labels_.data();
}

PixelTable::PixelTable(const Recipe& recipe) {
  const DataSource& data = recipe.data;
  const auto of_channel = [](const std::vector<double>& numbers, size_t channel, double otherwise) {
    if (numbers.empty()) return static_cast<float>(otherwise);
    return static_cast<float>(numbers.size() == 1 ? numbers[0] : numbers[channel]);
  };
  values_.resize(static_cast<size_t>(image_shape(recipe).channels));
  for (size_t channel = 0; channel < values_.size(); ++channel) {
    const float mean = of_channel(data.mean, channel, 0), deviation = of_channel(data.std, channel, 1);
    for (size_t byte = 0; byte < 256; ++byte)
      values_[channel][byte] = (static_cast<float>(byte) / 255.0f - mean) / deviation;
  }
}

void require_label(const std::string& file, uint64_t sample, int64_t label, int classes) {
  if (label >= 0 && label < classes) return;
  throw UserError(file + ": label of sample " + std::to_string(sample) + " is " + std::to_string(label) +
                  ", must be from 0 to " + std::to_string(classes - 1) + " (model.classes is " +
                  std::to_string(classes) + ")");
}

}  // namespace reprise
