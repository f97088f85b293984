// See text_set.h.
#include "tools/run/texts/text_set.h"

#include "tools/files/io/error.h"
#include "tools/run/data/contrast_targets.h"

namespace reprise {
namespace {

class TextSet : public Dataset {
 public:
  TextSet(const Recipe& recipe, Split split, LabelledTexts texts)
      : texts_(std::move(texts)),
        walk_(recipe, split, samples_of(recipe, texts_)),
        class_weights_(describe_model(recipe.model).class_weights),
        targets_(recipe, numbers_of(recipe, texts_), texts_.files.empty() ? recipe.name : texts_.files[0], notes_) {
    set_size(recipe, samples_of(recipe, texts_), walk_.form().count());
    class_names_ = texts_.class_names;
    warnings_ = texts_.warnings;
    fingerprint_ = fingerprint_of(size_, "", texts_.files);
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    if (targets_.are_there()) targets_.begin_batch(walk_.order(), step, micro);
    return walk_.fill(
        step, micro, sink,
        [this](uint64_t sample, int32_t* to, int32_t* types) { return texts_.copy(sample, to, types); },
        [this](uint64_t sample) { return targets_.are_there() ? targets_.next() : labels_of(sample); });
  }

  uint64_t labelled_in_step(uint64_t step) override {
    return walk_.order().sum_over_step(step,
                                       [this](uint64_t sample) { return walk_.form().labelled(labels_of(sample)); });
  }
  double weight_in_step(uint64_t step) override {
    return walk_.order().sum_over_step(step, [this](uint64_t sample) {
      return walk_.form().weight(labels_of(sample), class_weights_);
    });
  }

 private:
  static uint64_t samples_of(const Recipe& recipe, const LabelledTexts& texts) {
    return texts.ends.size() / static_cast<uint64_t>(describe_model(recipe.model).inputs_of_sample());
  }
  // Returns equal numbers for texts with equal tokens if the loss is InfoNCE, otherwise {}.
  static std::vector<uint32_t> numbers_of(const Recipe& recipe, const LabelledTexts& texts) {
    if (!is_contrast(recipe)) return {};
    return numbers_of_equal(texts.ends.size(), [&texts](uint32_t a, uint32_t b) { return texts.is_less(a, b); });
  }
  const void* labels_of(uint64_t sample) const { return texts_.labels.data() + sample * walk_.form().bytes(); }

  const LabelledTexts texts_;
  TextWalk walk_;
  const std::vector<double> class_weights_;
  ContrastTargets targets_;
};

}  // namespace

TextWalk::TextWalk(const Recipe& recipe, Split split, uint64_t size)
    : batch_(static_cast<uint64_t>(recipe.batch)),
      inputs_(static_cast<uint64_t>(describe_model(recipe.model).inputs_of_sample())),
      order_(recipe, split, size),
      form_(label_form(recipe)),
      none_(labels_of_none(form_)) {
  const ModelDescription model = describe_model(recipe.model);
  pad_ = model.pad;
  tokens_.resize(inputs_ * static_cast<size_t>(model.text_length));
  starts_.resize(tokens_.size());
  types_.resize(tokens_.size());
}

// Fills the positions after a text with padding. An empty text becomes one padding token.
void TextWalk::pad_behind(size_t first, size_t length) {
  const size_t text = tokens_.size() / inputs_;
  std::fill_n(tokens_.data() + first + length, text - length, pad_);
  length = std::max<size_t>(length, 1);
  std::fill_n(starts_.data() + first, length, 0);
  std::fill_n(starts_.data() + first + length, text - length, static_cast<int32_t>(length));
}

std::unique_ptr<Dataset> make_text_set(const Recipe& recipe, Split split, LabelledTexts texts) {
  return std::make_unique<TextSet>(recipe, split, std::move(texts));
}

}  // namespace reprise
