// Images and labels from one safetensors file, the values used as they are.
// Here so that another framework can hand over exactly the batches it trains on itself.
// It must not normalise.
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
    const uint64_t channels = static_cast<uint64_t>(shape.channels);
    images_ = file_.find("images", StoredType::kF32, {count_, channels, static_cast<uint64_t>(shape.height), static_cast<uint64_t>(shape.width)});
    read_labels(file_.find("labels", StoredType::kI64, {count_}), class_count(recipe));
    planes_.resize(shape.values());
    set_size(recipe, count_, 1);
    fingerprint_ = fingerprint_of(size_, "", {path});
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    const ImageShape shape = image_shape(recipe_);
    return walk_.fill(step, micro, sink, [&](uint64_t sample, const Augmentation& augmentation, auto* image) {
      const uint64_t bytes = planes_.size() * sizeof(float);
      file_.read(images_, sample * bytes, planes_.data(), bytes);
      const auto pixel = [&](int y, int x, int c) {
        const size_t row = static_cast<size_t>(c) * static_cast<size_t>(shape.height) + static_cast<size_t>(y);
        return planes_[row * static_cast<size_t>(shape.width) + static_cast<size_t>(x)];
      };
      write_image(shape, augmentation, pixel, [](int) { return 0.0f; }, image);
      return labels_[sample];
    });
  }

  uint64_t labelled_in_step(uint64_t step) override {
    uint64_t labelled = 0;
    for (uint64_t micro = 0; micro < static_cast<uint64_t>(recipe_.accumulate); ++micro) {
      for (uint64_t b = 0; b < batch_; ++b) {
        const std::optional<uint64_t> sample = walk_.sample_at(step, micro, b);
        labelled += sample && labels_[*sample] != kIgnoredLabel;
      }
    }
    return labelled;
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

  // They stay in memory: what was checked is what is trained on.
  void read_labels(const StoredTensor& stored, int classes) {
    constexpr uint64_t kPiece = 8192;
    std::vector<int64_t> piece(std::min(kPiece, count_));
    labels_.reserve(count_);
    for (uint64_t at = 0; at < count_; at += kPiece) {
      const uint64_t count = std::min(kPiece, count_ - at);
      file_.read(stored, at * sizeof(int64_t), piece.data(), count * sizeof(int64_t));
      for (uint64_t i = 0; i < count; ++i) {
        if (piece[i] != kIgnoredLabel) require_label(file_.path(), at + i, piece[i], classes);
        labels_.push_back(static_cast<int32_t>(piece[i]));
      }
    }
  }

  Recipe recipe_;
  SafetensorsFile file_;
  uint64_t count_;
  ImageWalk walk_;
  StoredTensor images_;
  std::vector<int32_t> labels_;
  std::vector<float> planes_;  // [C, H, W] of one sample
};

}  // namespace

std::unique_ptr<Dataset> open_tensors(const Recipe& recipe, Split split, DataLook* /*look*/) {
  if (split == Split::kTraining) return std::make_unique<TensorDataset>(recipe, split, recipe.data.path);
  if (recipe.data.eval_path.empty()) return nullptr;
  return std::make_unique<TensorDataset>(recipe, split, recipe.data.eval_path);
}

}  // namespace reprise
