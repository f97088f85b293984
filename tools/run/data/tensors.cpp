// Images or token rows, and labels, from one safetensors file. Values are not changed, so that
// another framework can provide exactly the batches on which it trains itself. Must not normalise.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tools/files/formats/checksum.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/error.h"
#include "tools/run/data/contrast_targets.h"
#include "tools/run/data/images.h"
#include "tools/run/data/sources.h"
#include "tools/run/texts/text_set.h"

namespace reprise {
namespace {

// Returns the shape (N, C, H, W) in which other frameworks store images.
std::vector<uint64_t> planes_of(uint64_t count, const ImageShape& shape) {
  return {count, static_cast<uint64_t>(shape.channels), static_cast<uint64_t>(shape.height),
          static_cast<uint64_t>(shape.width)};
}

// The labels of all samples. They stay in memory, so that a training uses exactly the labels that
// were checked.
class TensorLabels {
 public:
  TensorLabels(const Recipe& recipe, const SafetensorsFile& file, uint64_t count)
      : file_(file),
        count_(count),
        model_(describe_model(recipe.model)),
        form_(label_form(recipe)),
        range_(target_range(recipe)),
        labels_(count * form_.bytes()) {
    if (model_.target == ModelDescription::Target::kPair) {
      for (uint64_t sample = 0; sample < count_; ++sample) *targets_of(sample) = 1;
    } else if (form_.stored == DType::kF32) {
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

  // Reads labels that are numbers. Label maps are stored like images, as planes (N, C, H, W). A NaN
  // means no label.
  void read_targets() {
    const bool are_maps = model_.output.size() == 3;
    const ImageShape& shape = form_.shape;
    std::vector<uint64_t> stored = {count_};
    for (const uint32_t side : model_.output) {
      if (!model_.has_pairs()) stored.push_back(side);
    }
    const StoredTensor targets = file_.find("targets", StoredType::kF32, are_maps ? planes_of(count_, shape) : stored);
    std::vector<float> planes(form_.count());
    const uint64_t places = form_.count() / static_cast<uint64_t>(shape.channels),
                   channels = are_maps ? static_cast<uint64_t>(shape.channels) : 1;
    for (uint64_t sample = 0; sample < count_; ++sample) {
      file_.read(targets, sample * form_.bytes(), planes.data(), form_.bytes());
      for (uint64_t i = 0; i < planes.size(); ++i) {
        require_target(sample, planes[i]);
        targets_of(sample)[are_maps ? i % places * channels + i / places : i] = planes[i];
      }
    }
  }
  void require_target(uint64_t sample, float target) const {
    if (range_.has(target) || std::isnan(target)) return;
    throw UserError(file_.path() + ": tensor \"targets\": of sample " + std::to_string(sample) + " one is " +
                    std::to_string(target) + ", must be " + range_.words + ", or NaN for none");
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
  const TargetRange range_;
  std::vector<unsigned char> labels_;  // labels of all samples
  std::vector<uint64_t> labelled_;     // for each sample, how many of its labels are not ignored
  std::vector<double> weights_;
};

// Returns the number of samples in a tensor. `form` describes the required tensor in messages.
uint64_t count_samples(const SafetensorsFile& file, const std::string& name, const char* form) {
  const auto samples = file.tensors().find(name);
  if (samples == file.tensors().end() || samples->second.shape.empty()) {
    throw UserError(file.path() + ": tensor " + json_shown(name) + ": missing or a scalar; it must be there as " +
                    form);
  }
  // Each sample has at least one byte, so that the file's size limits the number of samples.
  if (samples->second.bytes == 0)
    throw UserError(file.path() + ": tensor " + json_shown(name) + ": holds no samples");
  return samples->second.shape[0];
}

// Returns the names of the input tensors: two names for pairs, otherwise `alone`.
std::vector<std::string> names_of_inputs(const Recipe& recipe, const char* alone) {
  return describe_model(recipe.model).has_pairs() ? std::vector<std::string>{"first", "second"}
                                                  : std::vector<std::string>{alone};
}

// A set of images whose values are used as they are stored.
class TensorImages : public Dataset {
 public:
  TensorImages(const Recipe& recipe, Split split, const std::string& path)
      : shape_(image_shape(recipe)),
        file_(path),
        count_(count_samples(file_, names_of_inputs(recipe, "images")[0], "F32 (N, C, H, W)")),
        walk_(recipe, split, count_),
        labels_(recipe, file_, count_),
        planes_(shape_.values()) {
    for (const std::string& name : names_of_inputs(recipe, "images"))
      images_.push_back(file_.find(name, StoredType::kF32, planes_of(count_, shape_)));
    set_size(recipe, count_, labels_.form().count());
    fingerprint_ = fingerprint_of(size_, "", {path});
    warn_of_places(recipe, split, {}, warnings_);
    if (is_contrast(recipe)) targets_.emplace(recipe, numbers_of_images(), path, notes_);
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    if (targets_) targets_->begin_batch(walk_.order(), step, micro);
    return walk_.fill(step, micro, sink, [&](uint64_t n, const Augmentation& augmentation, auto* image) -> const void* {
      const uint64_t bytes = planes_.size() * sizeof(float), sample = n / images_.size();
      file_.read(images_[n % images_.size()], sample * bytes, planes_.data(), bytes);
      const auto pixel = [&](int y, int x, int c) {
        const size_t row = static_cast<size_t>(c) * static_cast<size_t>(shape_.height) + static_cast<size_t>(y);
        return planes_[row * static_cast<size_t>(shape_.width) + static_cast<size_t>(x)];
      };
      write_image(shape_, augmentation, pixel, [](int) { return 0.0f; }, image);
      if (targets_) return n % images_.size() == 0 ? targets_->next() : nullptr;
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
  // Returns equal numbers for images with equal bytes. Compares their checksums.
  std::vector<uint32_t> numbers_of_images() {
    std::vector<std::string> sums;
    const uint64_t bytes = planes_.size() * sizeof(float);
    for (uint64_t n = 0; n < count_ * images_.size(); ++n) {
      file_.read(images_[n % images_.size()], n / images_.size() * bytes, planes_.data(), bytes);
      Checksum sum;
      sum.add(planes_.data(), bytes);
      sums.push_back(sum.text());
    }
    return numbers_of_equal(sums.size(), [&sums](uint32_t a, uint32_t b) { return sums[a] < sums[b]; });
  }

  const ImageShape shape_;
  SafetensorsFile file_;
  uint64_t count_;
  ImageWalk walk_;
  TensorLabels labels_;
  std::vector<StoredTensor> images_;
  std::vector<float> planes_;               // [C, H, W] of one image
  std::optional<ContrastTargets> targets_;  // set if InfoNCE compares the images
};

// Called if there is no tensor "token_types". Throws UserError if another tensor seems to contain
// token types: it would be ignored, and all types would be 0.
void require_no_other_types(const SafetensorsFile& file) {
  for (const auto& [name, tensor] : file.tensors()) {
    const bool is_like = name.find("type") != std::string::npos || name.find("segment") != std::string::npos;
    if (is_like)
      throw UserError(file.path() + ": tensor " + json_shown(name) +
                      ": is read by nothing; types of tokens must be named \"token_types\"");
  }
}

// Opens rows of tokens, and their types if the net reads types. Padding at the end of a row is not
// part of its text.
std::unique_ptr<Dataset> open_token_rows(const Recipe& recipe, Split split, const std::string& path) {
  const SafetensorsFile file(path);
  const ModelDescription model = describe_model(recipe.model);
  const std::vector<std::string> names = names_of_inputs(recipe, "tokens");
  const uint64_t count = count_samples(file, names[0], "I64 (N, T)"), length = static_cast<uint64_t>(model.text_length);
  std::vector<StoredTensor> stored;
  for (const std::string& name : names) stored.push_back(file.find(name, StoredType::kI64, {count, length}));
  LabelledTexts set = {.files = {path}};
  const bool has_types = model.token_types > 0 && !model.has_pairs() && file.contains("token_types");
  if (has_types) stored.push_back(file.find("token_types", StoredType::kI64, {count, length}));
  if (model.token_types > 0 && !model.has_pairs() && !has_types) require_no_other_types(file);
  std::vector<int64_t> row(length);
  for (uint64_t n = 0; n < count * names.size(); ++n) {
    const uint64_t sample = n / names.size();
    const auto read_row = [&](const StoredTensor& tensor, const std::string& name, int end, auto& to) {
      file.read(tensor, sample * length * sizeof(int64_t), row.data(), length * sizeof(int64_t));
      for (const int64_t number : row) {
        if (number < 0 || number >= end) {
          throw UserError(path + ": tensor " + json_shown(name) + ": of sample " + std::to_string(sample) + " one is " +
                          std::to_string(number) + ", must be from 0 to " + std::to_string(end - 1));
        }
        to.push_back(static_cast<typename std::decay_t<decltype(to)>::value_type>(number));
      }
    };
    TokenRow text;
    read_row(stored[n % names.size()], names[n % names.size()], model.vocabulary, text.ids);
    if (has_types) read_row(stored.back(), "token_types", std::min(model.token_types, UINT8_MAX + 1), text.types);
    while (!text.ids.empty() && text.ids.back() == model.pad) text.ids.pop_back();
    text.types.resize(has_types ? text.ids.size() : 0);
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
  if (describe_model(recipe.model).input == ModelDescription::Input::kTexts)
    return open_token_rows(recipe, split, path);
  return std::make_unique<TensorImages>(recipe, split, path);
}

}  // namespace reprise
