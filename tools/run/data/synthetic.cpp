// Data that are computed from a counter: no file, any shape, the same on every machine. They serve
// tests, benchmarks and a first try of a recipe. They can be learned, so that the loss falls. Must
// not keep data in memory.
#include <cstring>

#include "lib/rng.h"
#include "tools/run/data/images.h"
#include "tools/run/data/sources.h"
#include "tools/run/data/token_window.h"
#include "tools/run/texts/text_set.h"

namespace reprise {
namespace {

constexpr uint64_t kTrainingSamples = 65536, kEvaluationSamples = 1024;
constexpr uint64_t kSampleKey = 0x73616d706c650000u, kPatternKey = 0x7061747465726e00u,
                   kTargetKey = 0x7461726765740000u;
// Number of sorts of samples (SyntheticLabels) if the labels are not classes.
constexpr uint32_t kSorts = 4;

float unit_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }  // [0, 1)

uint64_t sample_key(const Recipe& recipe, Split split) {
  return recipe.seed ^ kSampleKey ^ (split == Split::kEvaluation ? 1 : 0);
}

// Labels of synthetic samples. Each sample has a sort, and all samples of one sort have the same
// labels. Numbers are from 0 to 1; labels that are true or false are 0 and 1; a class is its own
// sort. Half of the pairs are alike; all of them if the loss reads no label. Both inputs of a pair
// that is alike have the same sort, otherwise two different sorts.
class SyntheticLabels {
 public:
  SyntheticLabels(const Recipe& recipe, Split split)
      : seed_(recipe.seed),
        key_(sample_key(recipe, split)),
        model_(describe_model(recipe.model)),
        form_(label_form(recipe)),
        labels_(form_.bytes()) {}

  const LabelForm& form() const { return form_; }
  // Returns the sort of input n. Input n is sample n, or for pairs an input of sample n / 2.
  uint64_t sort_of(uint64_t n) const {
    if (model_.has_pairs()) return key_ + n / 2 * 2 + (are_alike(n / 2) ? 0 : n % 2);
    const uint32_t sorts = form_.stored == DType::kI32 ? static_cast<uint32_t>(model_.classes) : kSorts;
    return philox(key_, n, ~uint64_t{0}).word[0] % sorts;
  }
  uint64_t sample_of(uint64_t n) const { return n / static_cast<uint64_t>(model_.inputs_of_sample()); }
  const void* labels_of(uint64_t sample) {
    if (model_.has_pairs()) {
      store(0, are_alike(sample) ? 1.0f : model_.target == ModelDescription::Target::kAlike ? -1.0f : 0.0f);
      return labels_.data();
    }
    const auto sort = static_cast<uint32_t>(sort_of(sample));
    if (form_.stored == DType::kI32) store(0, static_cast<int32_t>(sort));
    for (uint64_t i = 0; form_.stored != DType::kI32 && i < form_.count(); ++i) {
      const uint32_t word = philox(seed_ ^ kTargetKey, sort, i).word[0];
      if (form_.stored == DType::kU8) {
        labels_[i] = static_cast<unsigned char>(word % static_cast<uint32_t>(model_.classes));
      } else {
        store(i, model_.target == ModelDescription::Target::kLabels ? static_cast<float>(word & 1) : unit_float(word));
      }
    }
    return labels_.data();
  }
  double weight_of(uint64_t sample) { return form_.weight(labels_of(sample), model_.class_weights); }

 private:
  bool are_alike(uint64_t sample) const {
    return model_.target == ModelDescription::Target::kPair || (philox(key_, sample, ~uint64_t{0}).word[0] & 1) != 0;
  }
  template <typename Label>
  void store(uint64_t i, Label label) {
    std::memcpy(labels_.data() + i * sizeof label, &label, sizeof label);
  }

  uint64_t seed_, key_;
  const ModelDescription model_;
  const LabelForm form_;
  std::vector<unsigned char> labels_;  // buffer for one sample
};

uint64_t samples_of(Split split) { return split == Split::kTraining ? kTrainingSamples : kEvaluationSamples; }

// Images with values from 0 to 1. An image is the mean of noise and of the pattern of its sort.
class SyntheticImages : public Dataset {
 public:
  SyntheticImages(const Recipe& recipe, Split split)
      : recipe_(recipe), split_(split), labels_(recipe, split), walk_(recipe, split, samples_of(split)) {
    set_size(recipe, samples_of(split), labels_.form().count());
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    const uint64_t key = sample_key(recipe_, split_);
    const ImageShape shape = image_shape(recipe_);
    return walk_.fill(step, micro, sink, [&](uint64_t n, const Augmentation& augmentation, auto* image) -> const void* {
      const uint64_t sort = labels_.sort_of(n);
      const auto pixel = [&](int y, int x, int c) {
        const uint64_t element =
            (static_cast<uint64_t>(y) * static_cast<uint64_t>(shape.width) + static_cast<uint64_t>(x)) *
                static_cast<uint64_t>(shape.channels) +
            static_cast<uint64_t>(c);
        const float noise = unit_float(philox(key, n, element).word[0]);
        const float pattern = unit_float(philox(recipe_.seed ^ kPatternKey, sort, element).word[0]);
        return 0.5f * (noise + pattern);
      };
      write_image(shape, augmentation, pixel, [](int) { return 0.0f; }, image);
      return labels_.labels_of(labels_.sample_of(n));
    });
  }

  double weight_in_step(uint64_t step) override {
    return walk_.order().sum_over_step(step, [this](uint64_t sample) { return labels_.weight_of(sample); });
  }

 private:
  Recipe recipe_;
  Split split_;
  SyntheticLabels labels_;
  ImageWalk walk_;
};

// Texts of random lengths up to the net's length. A token is random, or one of a few that the
// text's category prefers; both are equally probable.
class SyntheticTexts : public Dataset {
 public:
  SyntheticTexts(const Recipe& recipe, Split split)
      : seed_(recipe.seed),
        key_(sample_key(recipe, split)),
        model_(describe_model(recipe.model)),
        labels_(recipe, split),
        walk_(recipe, split, samples_of(split)) {
    set_size(recipe, samples_of(split), labels_.form().count());
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    const auto write_text = [this](uint64_t n, int32_t* to, int32_t* /*types*/) {
      const uint64_t length = 1 + philox(key_, n, ~uint64_t{0}).word[1] % static_cast<uint32_t>(model_.text_length);
      for (uint64_t t = 0; t < length; ++t) to[t] = token(n, t);
      return length;
    };
    return walk_.fill(step, micro, sink, write_text, [this](uint64_t sample) { return labels_.labels_of(sample); });
  }

  double weight_in_step(uint64_t step) override {
    return walk_.order().sum_over_step(step, [this](uint64_t sample) { return labels_.weight_of(sample); });
  }

 private:
  static constexpr uint32_t kPreferred = 4;  // number of tokens that a sort prefers

  int32_t token(uint64_t n, uint64_t t) const {
    const PhiloxBlock block = philox(key_, n, t);
    const bool is_preferred = (block.word[0] & 1) != 0;
    const uint32_t word = is_preferred
                              ? philox(seed_ ^ kPatternKey, labels_.sort_of(n), block.word[1] % kPreferred).word[0]
                              : block.word[1];
    return static_cast<int32_t>(word % static_cast<uint32_t>(model_.vocabulary));
  }

  uint64_t seed_, key_;
  const ModelDescription model_;
  SyntheticLabels labels_;
  TextWalk walk_;
};

// An endless sequence of tokens. Each is the smaller of two draws, so that small tokens are more
// probable, which a model can learn.
class SyntheticTokens : public Dataset {
 public:
  SyntheticTokens(const Recipe& recipe, Split split)
      : key_(sample_key(recipe, split)),
        vocabulary_(static_cast<uint32_t>(describe_model(recipe.model).vocabulary)),
        window_(static_cast<uint64_t>(recipe.sequence)),
        order_(recipe, split, samples_of(split)) {
    set_size(recipe, samples_of(split), static_cast<uint64_t>(recipe.sequence));
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
  switch (describe_model(recipe.model).input) {
    case ModelDescription::Input::kImages: return std::make_unique<SyntheticImages>(recipe, split);
    case ModelDescription::Input::kTexts: return std::make_unique<SyntheticTexts>(recipe, split);
    case ModelDescription::Input::kTokens: break;
  }
  return std::make_unique<SyntheticTokens>(recipe, split);
}

}  // namespace reprise
