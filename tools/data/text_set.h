// Texts that stand for themselves, each with its labels: a sample is the tokens of one, padded to the length that the net has.
// Here because tables, tensors and made-up texts differ only in where tokens and labels come from.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tools/data/images.h"
#include "tools/tokenizer/tokenizer.h"

namespace reprise {

// Walks micro-batches through a buffer of one sample's texts. Behind the tokens of each stands the padding, a document of its own
// (lib/ops/attention.h), of the type 0. Two texts may stand in one row, the tokens of each of a type of their own.
//
//   tokens   101 2009 102 2003 102   0   0        starts   0 0 0 0 0 5 5        types   0 0 0 1 1 0 0
class TextWalk {
 public:
  TextWalk(const Recipe& recipe, Split split, uint64_t size);

  // write_text(n, tokens, types) writes at most as many as the net's text has of text n, the types where they are not 0, and returns how many;
  // labels_of(sample) where its labels lie, null where it has none. Text n is sample n; of pairs, sample n is the texts 2n and 2n + 1.
  template <typename WriteText, typename LabelsOf>
  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink, const WriteText& write_text, const LabelsOf& labels_of) {
    uint64_t real = 0;
    for (uint64_t b = 0; b < batch_; ++b) {
      const std::optional<uint64_t> sample = order_.sample_at(step, micro, b);
      for (uint64_t i = 0; i < inputs_; ++i) {
        const uint64_t text = tokens_.size() / inputs_, first = i * text;
        std::fill_n(types_.data() + first, text, 0);
        pad_behind(first, sample ? write_text(*sample * inputs_ + i, tokens_.data() + first, types_.data() + first) : 0);
      }
      const void* labels = sample ? labels_of(*sample) : nullptr;
      sink.add(tokens_.data(), tokens_.size() * sizeof(int32_t), labels != nullptr ? labels : none_.data(), form_.count(),
               sink.wants_document_start() ? starts_.data() : nullptr, sink.wants_token_types() ? types_.data() : nullptr);
      real += sample.has_value();
    }
    return real;
  }
  const SampleOrder& order() const { return order_; }
  const LabelForm& form() const { return form_; }

 private:
  void pad_behind(size_t first, size_t length);

  uint64_t batch_, inputs_;  // inputs: texts of a sample
  int32_t pad_;
  SampleOrder order_;
  LabelForm form_;
  std::vector<unsigned char> none_;       // the labels of a sample without any
  std::vector<int32_t> tokens_, starts_, types_;  // of one sample
};

// Of pairs, neighbouring texts are one.
struct LabelledTexts {
  std::vector<std::string> class_names = {}, files = {}, warnings = {};
  std::vector<int32_t> tokens = {};        // of all texts, one behind the other
  std::vector<uint8_t> types = {};         // of all these tokens; {}: all are 0
  std::vector<uint64_t> ends = {};         // where each ends
  std::vector<unsigned char> labels = {};  // of all samples, as the net's loss wants them (label_form)
  void add(const TokenRow& text) {
    if (!text.types.empty() || !types.empty()) {
      types.resize(tokens.size());
      types.insert(types.end(), text.types.begin(), text.types.end());
      types.resize(tokens.size() + text.ids.size());
    }
    tokens.insert(tokens.end(), text.ids.begin(), text.ids.end());
    ends.push_back(tokens.size());
  }
  // The tokens of one text and their types; returns how many.
  size_t copy(uint64_t text, int32_t* to, int32_t* types_to) const {
    const uint64_t first = text == 0 ? 0 : ends[text - 1], count = ends[text] - first;
    std::copy_n(tokens.begin() + static_cast<long>(first), count, to);
    if (!types.empty()) std::copy_n(types.begin() + static_cast<long>(first), count, types_to);
    return count;
  }
};
std::unique_ptr<Dataset> make_text_set(const Recipe& recipe, Split split, LabelledTexts texts);

}  // namespace reprise
