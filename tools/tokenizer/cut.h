// Where a pre-tokenizer cuts a text: the piece that begins at a byte ends at another, found from left to right.
// No merge crosses a cut, so these must be exactly where the model's own tokenizer had them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/tokenizer/split_pattern.h"
#include "tools/tokenizer/tokenizer_file.h"

namespace reprise {

// The cut whose regular expression this is, as tokenizer.json has it; none: another one.
std::optional<Cut> known_cut(const std::string& pattern);

// The end of the piece of text that begins at `begin`; begin < text.size(). Every cut but kPattern, which has an object of its own.
size_t end_of_piece(Cut cut, std::string_view text, size_t begin);

class Cutter {
 public:
  explicit Cutter(const TokenizerFile& file);

  // Calls word(piece) for every piece of a text that is UTF-8, in order.
  template <typename F>
  void cut(std::string_view text, const F& word) const {
    cut_from(0, text, word);
  }

 private:
  struct Step {
    Cut cut;
    std::unique_ptr<SplitPattern> pattern;
  };
  template <typename F>
  void cut_from(size_t n, std::string_view text, const F& word) const {
    if (n == steps_.size()) {
      if (!text.empty()) word(text);
      return;
    }
    const Step& step = steps_[n];
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = step.pattern ? step.pattern->end_of_piece(text, begin) : end_of_piece(step.cut, text, begin);
      cut_from(n + 1, text.substr(begin, end - begin), word);
      begin = end;
    }
  }
  std::vector<Step> steps_;
};

}  // namespace reprise
