// Images, or the tokens of texts, and labels from one safetensors file, the values used as they are.
// Here so that another framework can hand over exactly the batches it trains on itself.
// It must not normalise.
#include <cmath>
#include <cstring>

#include "tools/data/images.h"
#include "tools/data/sources.h"
#include "tools/data/text_set.h"
#include "tools/formats/error.h"
#include "tools/formats/json_text.h"
#include "tools/formats/safetensors.h"

namespace reprise {
namespace {

// (N, C, H, W), as other frameworks have images.
std::vector<uint64_t> planes_of(uint64_t count, const ImageShape& shape) {
  return {count, static_cast<uint64_t>(shape.channels), static_cast<uint64_t>(shape.height), static_cast<uint64_t>(shape.width)};
}

// What is to be learned of each sample. It stays in memory: what was checked is what is trained on.
class TensorLabels {
 public:
  TensorLabels(const Recipe& recipe, const SafetensorsFile& file, uint64_t count)
      : file_(file), count_(count), model_(describe_model(recipe.model)), form_(label_form(recipe)), labels_(count * form_.bytes()) {
    if (form_.stored == DType::kF32) {
      read_targets();
    } else if (form_.stored == DType::kU8) {
      read_maps();
    } else {
      read_classes(file_.find("labels", StoredType::kI64, {count_}));
    }
    for (uint64_t sample = 0; sample < count_; ++sample) {
      labelled_.push_back(form_.labelled(of(sample)));
      weights_.push_back(form_.weight(of(sample), model_.class_weights));
    }
  }

  const LabelForm& form() const { return form_; }
  const void* of(uint64_t sample) const { return labels_.data() + sample * form_.bytes(); }
  uint64_t labelled(uint64_t sample) const { return labelled_[sample]; }
  double weight(uint64_t sample) const { return weights_[sample]; }

 private:
  float* targets_of(uint64_t sample) { return reinterpret_cast<float*>(labels_.data() + sample * form_.bytes()); }

  // Numbers of maps stand in planes, (N, C, H, W), as other frameworks have images; a NaN is none.
  void read_targets() {
    const bool are_maps = model_.output.size() == 3;
    const ImageShape& shape = form_.shape;
    std::vector<uint64_t> stored = {count_};
    for (const uint32_t side : model_.output) stored.push_back(side);
    const StoredTensor targets = file_.find("targets", StoredType::kF32, are_maps ? planes_of(count_, shape) : stored);
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

  const SafetensorsFile& file_;
  const uint64_t count_;
  const ModelDescription model_;
  const LabelForm form_;
  std::vector<unsigned char> labels_;  // of all samples
  std::vector<uint64_t> labelled_;     // of each sample
  std::vector<double> weights_;
};

// How many samples a tensor has, which `form` describes.
uint64_t count_samples(const SafetensorsFile& file, const std::string& name, const char* form) {
  const auto samples = file.tensors().find(name);
  if (samples == file.tensors().end() || samples->second.shape.empty()) {
    throw UserError(file.path() + ": tensor " + json_shown(name) + ": missing or a scalar; it must be there as " + form);
  }
  if (samples->second.shape[0] == 0) throw UserError(file.path() + ": tensor " + json_shown(name) + ": holds no samples");
  return samples->second.shape[0];
}

// Values are used as they are.
class TensorImages : public Dataset {
 public:
  TensorImages(const Recipe& recipe, Split split, const std::string& path)
      : shape_(image_shape(recipe)), file_(path), count_(count_samples(file_, "images", "F32 (N, C, H, W)")), walk_(recipe, split, count_),
        labels_(recipe, file_, count_), images_(file_.find("images", StoredType::kF32, planes_of(count_, shape_))), planes_(shape_.values()) {
    set_size(recipe, count_, labels_.form().count());
    fingerprint_ = fingerprint_of(size_, "", {path});
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    return walk_.fill(step, micro, sink, [&](uint64_t sample, const Augmentation& augmentation, auto* image) -> const void* {
      const uint64_t bytes = planes_.size() * sizeof(float);
      file_.read(images_, sample * bytes, planes_.data(), bytes);
      const auto pixel = [&](int y, int x, int c) {
        const size_t row = static_cast<size_t>(c) * static_cast<size_t>(shape_.height) + static_cast<size_t>(y);
        return planes_[row * static_cast<size_t>(shape_.width) + static_cast<size_t>(x)];
      };
      write_image(shape_, augmentation, pixel, [](int) { return 0.0f; }, image);
      return labels_.of(sample);
    });
  }

  uint64_t labelled_in_step(uint64_t step) override {
    return walk_.order().sum_over_step(step, [&](uint64_t sample) { return labels_.labelled(sample); });
  }
  double weight_in_step(uint64_t step) override {
    return walk_.order().sum_over_step(step, [&](uint64_t sample) { return labels_.weight(sample); });
  }

 private:
  const ImageShape shape_;
  SafetensorsFile file_;
  uint64_t count_;
  ImageWalk walk_;
  TensorLabels labels_;
  StoredTensor images_;
  std::vector<float> planes_;  // [C, H, W] of one sample
};

// The tokens of texts: what is padding at the end of a row is none of its text.
std::unique_ptr<Dataset> open_token_rows(const Recipe& recipe, Split split, const std::string& path) {
  const SafetensorsFile file(path);
  const ModelDescription model = describe_model(recipe.model);
  const uint64_t count = count_samples(file, "tokens", "I64 (N, T)"), length = static_cast<uint64_t>(model.text_length);
  const StoredTensor stored = file.find("tokens", StoredType::kI64, {count, length});
  LabelledTexts set = {.files = {path}};
  std::vector<int64_t> row(length);
  for (uint64_t sample = 0; sample < count; ++sample) {
    file.read(stored, sample * length * sizeof(int64_t), row.data(), length * sizeof(int64_t));
    std::vector<int32_t> text;
    for (const int64_t token : row) {
      if (token < 0 || token >= model.vocabulary) {
        throw UserError(path + ": tensor \"tokens\": of sample " + std::to_string(sample) + " one is " + std::to_string(token) + ", must be from 0 to " +
                        std::to_string(model.vocabulary - 1));
      }
      text.push_back(static_cast<int32_t>(token));
    }
    while (!text.empty() && text.back() == model.pad) text.pop_back();
    set.add(text);
  }
  const TensorLabels labels(recipe, file, count);
  const auto* first = static_cast<const unsigned char*>(labels.of(0));
  set.labels.assign(first, first + count * labels.form().bytes());
  return make_text_set(recipe, split, std::move(set));
}

}  // namespace

std::unique_ptr<Dataset> open_tensors(const Recipe& recipe, Split split, DataLook* /*look*/) {
  const std::string& path = split == Split::kTraining ? recipe.data.path : recipe.data.eval_path;
  if (path.empty()) return nullptr;
  if (describe_model(recipe.model).input == ModelDescription::Input::kTexts) return open_token_rows(recipe, split, path);
  return std::make_unique<TensorImages>(recipe, split, path);
}

}  // namespace reprise
