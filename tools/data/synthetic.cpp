// Data out of a counter: no file, any shape, the same on every machine.
// Here for tests, benchmarks and a first look at a recipe; the loss can fall, so that learning shows.
// It must not keep anything in memory.
#include <cstring>

#include "lib/rng.h"
#include "tools/data/images.h"
#include "tools/data/sources.h"
#include "tools/data/token_window.h"

namespace reprise {
namespace {

constexpr uint64_t kTrainingSamples = 65536, kEvaluationSamples = 1024;
constexpr uint64_t kSampleKey = 0x73616d706c650000u, kPatternKey = 0x7061747465726e00u, kTargetKey = 0x7461726765740000u;
constexpr uint32_t kSorts = 4;  // of images, where their labels are no classes

float unit_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }  // [0, 1)

uint64_t sample_key(const Recipe& recipe, Split split) {
  return recipe.seed ^ kSampleKey ^ (split == Split::kEvaluation ? 1 : 0);
}

// An image is half noise of its own and half the pattern of its class, or of its sort, which then says what its labels are; values from 0 to 1.
class SyntheticImages : public Dataset {
 public:
  SyntheticImages(const Recipe& recipe, Split split)
      : recipe_(recipe), split_(split), walk_(recipe, split, split == Split::kTraining ? kTrainingSamples : kEvaluationSamples) {
    set_size(recipe, split == Split::kTraining ? kTrainingSamples : kEvaluationSamples, form_.count());
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    const uint64_t key = sample_key(recipe_, split_);
    const ImageShape shape = image_shape(recipe_);
    return walk_.fill(step, micro, sink, [&](uint64_t sample, const Augmentation& augmentation, auto* image) -> const void* {
      const uint32_t label = sort_of(sample);
      const auto pixel = [&](int y, int x, int c) {
        const uint64_t element =
            (static_cast<uint64_t>(y) * static_cast<uint64_t>(shape.width) + static_cast<uint64_t>(x)) *
                static_cast<uint64_t>(shape.channels) +
            static_cast<uint64_t>(c);
        const float noise = unit_float(philox(key, sample, element).word[0]);
        const float pattern = unit_float(philox(recipe_.seed ^ kPatternKey, label, element).word[0]);
        return 0.5f * (noise + pattern);
      };
      write_image(shape, augmentation, pixel, [](int) { return 0.0f; }, image);
      write_labels(label);
      return labels_.data();
    });
  }

  double weight_in_step(uint64_t step) override {
    return walk_.sum_over_step(step, [&](uint64_t sample) {
      write_labels(sort_of(sample));
      return form_.weight(labels_.data(), model_.class_weights);
    });
  }

 private:
  uint32_t sort_of(uint64_t sample) const {
    const uint32_t sorts = form_.stored == DType::kI32 ? static_cast<uint32_t>(model_.classes) : kSorts;
    return philox(sample_key(recipe_, split_), sample, ~uint64_t{0}).word[0] % sorts;
  }

  // Numbers from 0 to 1, of labels that are true or false 0 and 1, or classes.
  void write_labels(uint32_t sort) {
    if (form_.stored == DType::kI32) return store(0, static_cast<int32_t>(sort));
    for (uint64_t i = 0; i < form_.count(); ++i) {
      const uint32_t word = philox(recipe_.seed ^ kTargetKey, sort, i).word[0];
      if (form_.stored == DType::kU8) {
        labels_[i] = static_cast<unsigned char>(word % static_cast<uint32_t>(model_.classes));
      } else {
        store(i, model_.target == ModelDescription::Target::kLabels ? static_cast<float>(word & 1) : unit_float(word));
      }
    }
  }
  template <typename Label>
  void store(uint64_t i, Label label) {
    std::memcpy(labels_.data() + i * sizeof label, &label, sizeof label);
  }

  Recipe recipe_;
  Split split_;
  ImageWalk walk_;
  const ModelDescription model_ = describe_model(recipe_.model);
  const LabelForm form_ = label_form(recipe_);
  std::vector<unsigned char> labels_ = std::vector<unsigned char>(form_.bytes());  // of one sample
};

// One endless row of tokens, the smaller of two draws each: small tokens are likelier, which a model can learn.
class SyntheticTokens : public Dataset {
 public:
  SyntheticTokens(const Recipe& recipe, Split split)
      : key_(sample_key(recipe, split)),
        vocabulary_(static_cast<uint32_t>(describe_model(recipe.model).vocabulary)),
        window_(static_cast<uint64_t>(recipe.sequence)),
        order_(recipe, split, split == Split::kTraining ? kTrainingSamples : kEvaluationSamples) {
    set_size(recipe, split == Split::kTraining ? kTrainingSamples : kEvaluationSamples, static_cast<uint64_t>(recipe.sequence));
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    uint64_t real = 0;
    for (uint64_t b = 0; b < batch_; ++b) {
      const std::optional<uint64_t> sample = order_.sample_at(step, micro, b);
      window_.add_to(sink, sample, [this](uint64_t first, uint64_t count, int32_t* to) {
        for (uint64_t i = 0; i < count; ++i) to[i] = token(first + i);
      });
      real += sample.has_value();
    }
    return real;
  }

 private:
  int32_t token(uint64_t index) const {
    const PhiloxBlock block = philox(key_, 0, index);
    return static_cast<int32_t>(std::min(block.word[0] % vocabulary_, block.word[1] % vocabulary_));
  }

  uint64_t key_;
  uint32_t vocabulary_;
  TokenWindow window_;
  SampleOrder order_;
};

}  // namespace

std::unique_ptr<Dataset> open_synthetic(const Recipe& recipe, Split split, DataLook* /*look*/) {
  if (describe_model(recipe.model).input == ModelDescription::Input::kImages) return std::make_unique<SyntheticImages>(recipe, split);
  return std::make_unique<SyntheticTokens>(recipe, split);
}

}  // namespace reprise
