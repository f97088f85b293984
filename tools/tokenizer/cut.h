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
    std::unique_ptr<SplitPattern> pattern = {};
    SplitBehavior behavior = {};
    bool inverts = false;
  };
  static bool is_left_out(Cut cut, std::string_view text, size_t begin);  // the piece that begins there
  static bool belongs_to_previous(SplitBehavior behavior, bool previous_is_match, bool is_match);
  template <typename F>
  void cut_from(size_t n, std::string_view text, const F& word) const {
    if (n == steps_.size()) {
      if (!text.empty()) word(text);
      return;
    }
    const Step& step = steps_[n];
    if (step.pattern) return cut_by_pattern(n, text, word);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = end_of_piece(step.cut, text, begin);
      if (!is_left_out(step.cut, text, begin)) cut_from(n + 1, text.substr(begin, end - begin), word);
      begin = end;
    }
  }
  template <typename F>
  void cut_by_pattern(size_t n, std::string_view text, const F& word) const {
    const Step& step = steps_[n];
    size_t held = 0;  // the piece [held, begin) may grow
    bool held_is_match = false;
    const auto pass_on = [&](size_t end) {
      if (end > held && !(held_is_match && step.behavior == SplitBehavior::kRemoved)) cut_from(n + 1, text.substr(held, end - held), word);
      held = end;
    };
    for (size_t begin = 0; begin < text.size();) {
      const SplitPattern::Piece piece = step.pattern->piece_at(text, begin);
      const bool is_match = piece.is_match != step.inverts;
      if (!belongs_to_previous(step.behavior, held_is_match, is_match)) pass_on(begin);
      held_is_match = is_match;
      begin = piece.end;
    }
    pass_on(text.size());
  }
  std::vector<Step> steps_;
};

}  // namespace reprise
