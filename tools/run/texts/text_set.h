// A set of texts with labels, in which each text is a whole sample: its tokens, padded to the net's
// length. Tables, tensors and synthetic texts use it; they differ only in the source of tokens and
// labels.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tools/files/tokenizer/tokenizer.h"
#include "tools/run/data/images.h"

namespace reprise {

// Gives the micro-batches of a text set. Its buffer has the texts of one sample. Padding follows
// the tokens of a text. It is a document of its own (lib/ops/attention.h) and has type 0. If two
// texts are in one row, the tokens of each text have their own type. An example:
//
//   tokens   101 2009 102 2003 102   0   0      starts   0 0 0 0 0 5 5      types   0 0 0 1 1 0 0
class TextWalk {
 public:
  TextWalk(const Recipe& recipe, Split split, uint64_t size);

  // Gives a micro-batch to `sink`. Returns the number of real samples. The function write_text(n,
  // tokens, types) writes the tokens of text n, at most the net's text length, and the types that
  // are not 0. It returns the number of tokens. labels_of(sample) returns the address of the
  // labels; null if there are none. Text n is sample n. For pairs, sample n has the texts 2n and 2n
  // + 1.
  template <typename WriteText, typename LabelsOf>
  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink, const WriteText& write_text,
                const LabelsOf& labels_of) {
    uint64_t real = 0;
    for (uint64_t b = 0; b < batch_; ++b) {
      const std::optional<uint64_t> sample = order_.sample_at(step, micro, b);
      for (uint64_t i = 0; i < inputs_; ++i) {
        const uint64_t text = tokens_.size() / inputs_, first = i * text;
        std::fill_n(types_.data() + first, text, 0);
        pad_behind(first,
                   sample ? write_text(*sample * inputs_ + i, tokens_.data() + first, types_.data() + first) : 0);
      }
      const void* labels = sample ? labels_of(*sample) : nullptr;
      sink.add(tokens_.data(), tokens_.size() * sizeof(int32_t), labels != nullptr ? labels : none_.data(),
               form_.count(), sink.wants_document_start() ? starts_.data() : nullptr,
               sink.wants_token_types() ? types_.data() : nullptr);
      real += sample.has_value();
    }
    return real;
  }
  const SampleOrder& order() const { return order_; }
  const LabelForm& form() const { return form_; }

 private:
  void pad_behind(size_t first, size_t length);

  uint64_t batch_, inputs_;  // inputs_: texts in a sample
  int32_t pad_;
  SampleOrder order_;
  LabelForm form_;
  std::vector<unsigned char> none_;               // labels of a sample without labels
  std::vector<int32_t> tokens_, starts_, types_;  // buffer for one sample
};

// The texts and labels of a set. For pairs, two consecutive texts are one sample.
struct LabelledTexts {
  std::vector<std::string> class_names = {}, files = {}, warnings = {};
  std::vector<int32_t> tokens = {};        // tokens of all texts, one text after another
  std::vector<uint8_t> types = {};         // a type for each of these tokens; {} if all types are 0
  std::vector<uint64_t> ends = {};         // for each text, the index in `tokens` at which it ends
  std::vector<unsigned char> labels = {};  // labels of all samples, in the form of label_form
  void add(const TokenRow& text) {
    if (!text.types.empty() || !types.empty()) {
      types.resize(tokens.size());
      types.insert(types.end(), text.types.begin(), text.types.end());
      types.resize(tokens.size() + text.ids.size());
    }
    tokens.insert(tokens.end(), text.ids.begin(), text.ids.end());
    ends.push_back(tokens.size());
  }
  // True if text `a` precedes text `b` in the lexicographical order of their tokens.
  bool is_less(uint64_t a, uint64_t b) const {
    const auto begin = [this](uint64_t text) {
      return tokens.begin() + static_cast<long>(text == 0 ? 0 : ends[text - 1]);
    };
    const auto end = [this](uint64_t text) { return tokens.begin() + static_cast<long>(ends[text]); };
    return std::lexicographical_compare(begin(a), end(a), begin(b), end(b));
  }
  // Copies the tokens of one text, and their types unless all types are 0. Returns the number of
  // tokens.
  size_t copy(uint64_t text, int32_t* to, int32_t* types_to) const {
    const uint64_t first = text == 0 ? 0 : ends[text - 1], count = ends[text] - first;
    std::copy_n(tokens.begin() + static_cast<long>(first), count, to);
    if (!types.empty()) std::copy_n(types.begin() + static_cast<long>(first), count, types_to);
    return count;
  }
};
std::unique_ptr<Dataset> make_text_set(const Recipe& recipe, Split split, LabelledTexts texts);

}  // namespace reprise
