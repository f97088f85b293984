// Images and labels from one safetensors file, the values used as they are.
// Here so that another framework can hand over exactly the batches it trains on itself.
// It must not normalise.
#include <cmath>
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
      : recipe_(recipe), file_(path), count_(count_images()), walk_(recipe, split, count_), model_(describe_model(recipe.model)), form_(label_form(recipe)) {
    const ImageShape shape = image_shape(recipe);
    images_ = file_.find("images", StoredType::kF32, planes_of(shape));
    planes_.resize(shape.values());
    labels_.resize(count_ * form_.bytes());
    if (form_.stored == DType::kF32) {
      read_targets();
    } else if (form_.stored == DType::kU8) {
      read_maps();
    } else {
      read_classes(file_.find("labels", StoredType::kI64, {count_}));
    }
    for (uint64_t sample = 0; sample < count_; ++sample) {
      labelled_.push_back(form_.labelled(labels_of(sample)));
      weights_.push_back(form_.weight(labels_of(sample), model_.class_weights));
    }
    set_size(recipe, count_, form_.count());
    fingerprint_ = fingerprint_of(size_, "", {path});
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    const ImageShape shape = image_shape(recipe_);
    return walk_.fill(step, micro, sink, [&](uint64_t sample, const Augmentation& augmentation, auto* image) -> const void* {
      const uint64_t bytes = planes_.size() * sizeof(float);
      file_.read(images_, sample * bytes, planes_.data(), bytes);
      const auto pixel = [&](int y, int x, int c) {
        const size_t row = static_cast<size_t>(c) * static_cast<size_t>(shape.height) + static_cast<size_t>(y);
        return planes_[row * static_cast<size_t>(shape.width) + static_cast<size_t>(x)];
      };
      write_image(shape, augmentation, pixel, [](int) { return 0.0f; }, image);
      return labels_of(sample);
    });
  }

  uint64_t labelled_in_step(uint64_t step) override {
    return walk_.sum_over_step(step, [&](uint64_t sample) { return labelled_[sample]; });
  }
  double weight_in_step(uint64_t step) override {
    return walk_.sum_over_step(step, [&](uint64_t sample) { return weights_[sample]; });
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

  // (N, C, H, W), as other frameworks have images.
  std::vector<uint64_t> planes_of(const ImageShape& shape) const {
    return {count_, static_cast<uint64_t>(shape.channels), static_cast<uint64_t>(shape.height), static_cast<uint64_t>(shape.width)};
  }
  const void* labels_of(uint64_t sample) const { return labels_.data() + sample * form_.bytes(); }
  float* targets_of(uint64_t sample) { return reinterpret_cast<float*>(labels_.data() + sample * form_.bytes()); }

  // They stay in memory: what was checked is what is trained on. Numbers of maps stand in planes; a NaN is none.
  void read_targets() {
    const bool are_maps = model_.output.size() == 3;
    const ImageShape& shape = form_.shape;
    std::vector<uint64_t> stored = {count_};
    for (const uint32_t side : model_.output) stored.push_back(side);
    const StoredTensor targets = file_.find("targets", StoredType::kF32, are_maps ? planes_of(shape) : stored);
    std::vector<float> planes(form_.count());
    const uint64_t places = form_.count() / static_cast<uint64_t>(shape.channels), channels = are_maps ? static_cast<uint64_t>(shape.channels) : 1;
    for (uint64_t sample = 0; sample < count_; ++sample) {
      file_.read(targets, sample * form_.bytes(), planes.data(), form_.bytes());
      for (uint64_t i = 0; i < planes.size(); ++i) {
        require_target(sample, planes[i]);
        targets_of(sample)[are_maps ? i % places * channels + i / places : i] = planes[i];
      }
    }
  }
  void require_target(uint64_t sample, float target) const {
    const bool is_binary = model_.target == ModelDescription::Target::kLabels, is_right = is_binary ? target >= 0 && target <= 1 : std::isfinite(target);
    if (is_right || std::isnan(target)) return;
    throw UserError(file_.path() + ": tensor \"targets\": of sample " + std::to_string(sample) + " one is " + std::to_string(target) + ", must be " +
                    (is_binary ? "from 0 to 1" : "finite") + ", or NaN for none");
  }

  void read_maps() {
    std::vector<uint64_t> stored = {count_};
    for (size_t side = 0; side + 1 < model_.output.size(); ++side) stored.push_back(model_.output[side]);
    file_.read(file_.find("labels", StoredType::kU8, stored), 0, labels_.data(), labels_.size());
    for (uint64_t i = 0; i < labels_.size(); ++i) {
      if (labels_[i] != kIgnoredByte) require_label(file_.path(), i / form_.count(), labels_[i], model_.classes);
    }
  }

  void read_classes(const StoredTensor& stored) {
    constexpr uint64_t kPiece = 8192;
    std::vector<int64_t> piece(std::min(kPiece, count_));
    for (uint64_t at = 0; at < count_; at += kPiece) {
      const uint64_t count = std::min(kPiece, count_ - at);
      file_.read(stored, at * sizeof(int64_t), piece.data(), count * sizeof(int64_t));
      for (uint64_t i = 0; i < count; ++i) {
        if (piece[i] != kIgnoredLabel) require_label(file_.path(), at + i, piece[i], model_.classes);
        const auto label = static_cast<int32_t>(piece[i]);
        std::memcpy(labels_.data() + (at + i) * sizeof label, &label, sizeof label);
      }
    }
  }

  Recipe recipe_;
  SafetensorsFile file_;
  uint64_t count_;
  ImageWalk walk_;
  const ModelDescription model_;
  const LabelForm form_;
  StoredTensor images_;
  std::vector<unsigned char> labels_;  // of all samples
  std::vector<uint64_t> labelled_;     // of each sample
  std::vector<double> weights_;
  std::vector<float> planes_;  // [C, H, W] of one sample
};

}  // namespace

std::unique_ptr<Dataset> open_tensors(const Recipe& recipe, Split split, DataLook* /*look*/) {
  if (split == Split::kTraining) return std::make_unique<TensorDataset>(recipe, split, recipe.data.path);
  if (recipe.data.eval_path.empty()) return nullptr;
  return std::make_unique<TensorDataset>(recipe, split, recipe.data.eval_path);
}

}  // namespace reprise
