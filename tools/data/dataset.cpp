// Opens a recipe's data with the function of its kind, and what image sets share.
// Here so that no kind of data knows another.
#include "tools/data/dataset.h"

#include "tools/data/images.h"
#include "tools/data/sources.h"
#include "tools/formats/error.h"
#include "tools/progress/long_work.h"

namespace reprise {

std::unique_ptr<Dataset> open_dataset(const Recipe& recipe, Split split, DataLook* look) {
  for (const DataOpener& opener : kDataOpeners) {
    if (opener.kind != recipe.data.kind) continue;
    const LongWork work(std::string(split == Split::kTraining ? "training" : "evaluation") + " data of " + recipe.name);
    return opener.open(recipe, split, look);
  }
  throw UserError(recipe.name + ": data: missing; training needs {\"kind\": ..., \"path\": ...}");
}

ImageShape image_shape(const Recipe& recipe) {
  const ModelDescription model = describe_model(recipe.model);
  return {model.image_height, model.image_width, model.image_channels};
}

int class_count(const Recipe& recipe) { return describe_model(recipe.model).classes; }

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
