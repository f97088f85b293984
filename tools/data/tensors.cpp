// Images and labels from one safetensors file, the values used as they are.
// Here so that another framework can hand over exactly the batches it trains on itself.
// It must not normalise.
#include <cstring>

#include "tools/data/images.h"
#include "tools/data/sources.h"
#include "tools/formats/error.h"
#include "tools/formats/safetensors.h"

namespace reprise {
namespace {

class TensorDataset : public Dataset {
 public:
  TensorDataset(const Recipe& recipe, Split split, const std::string& path)
      : recipe_(recipe), file_(path), count_(count_images()), walk_(recipe, split, count_) {
    const ImageShape shape = image_shape(recipe);
    images_ = file_
                  .find("images", StoredType::kF32,
                        {count_, static_cast<uint64_t>(shape.channels), static_cast<uint64_t>(shape.height),
                         static_cast<uint64_t>(shape.width)})
                  .data;
    labels_ = file_.find("labels", StoredType::kI64, {count_}).data;
    for (uint64_t i = 0; i < count_; ++i) {
      if (label(i) != kIgnoredLabel) require_label(path, i, label(i), class_count(recipe));
    }
    size_ = count_;
    batch_ = static_cast<uint64_t>(recipe.batch);
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    const ImageShape shape = image_shape(recipe_);
    return walk_.fill(step, micro, sink, [&](uint64_t sample, const Augmentation& augmentation, auto* image) {
      const unsigned char* planes = images_ + sample * shape.values() * sizeof(float);
      const auto pixel = [&](int y, int x, int c) {
        float value;  // the file promises no alignment
        std::memcpy(&value,
                    planes + sizeof value * ((static_cast<size_t>(c) * static_cast<size_t>(shape.height) +
                                              static_cast<size_t>(y)) *
                                                 static_cast<size_t>(shape.width) +
                                             static_cast<size_t>(x)),
                    sizeof value);
        return value;
      };
      write_image(shape, augmentation, pixel, [](int) { return 0.0f; }, image);
      return static_cast<int32_t>(label(sample));
    });
  }

 private:
  uint64_t count_images() const {
    const auto images = file_.tensors().find("images");
    if (images == file_.tensors().end() || images->second.shape.empty()) {
      throw UserError(file_.path() + ": tensor \"images\": missing or a scalar; it must be there as F32 (N, C, H, W)");
    }
    if (images->second.shape[0] == 0) throw UserError(file_.path() + ": tensor \"images\": holds no samples");
    return images->second.shape[0];
  }

  int64_t label(uint64_t sample) const {
    int64_t value;
    std::memcpy(&value, labels_ + sample * sizeof value, sizeof value);
    return value;
  }

  Recipe recipe_;
  SafetensorsFile file_;
  uint64_t count_;
  ImageWalk walk_;
  const unsigned char* images_ = nullptr;
  const unsigned char* labels_ = nullptr;
};

}  // namespace

std::unique_ptr<Dataset> open_tensors(const Recipe& recipe, Split split) {
  if (split == Split::kTraining) return std::make_unique<TensorDataset>(recipe, split, recipe.data.path);
  if (recipe.data.eval_path.empty()) return nullptr;
  return std::make_unique<TensorDataset>(recipe, split, recipe.data.eval_path);
}

}  // namespace reprise
