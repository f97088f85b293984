// Finds where a pre-tokenizer cuts a text, from left to right. Merges do not cross a cut, so that
// the cuts must be exactly those of the model's own tokenizer.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/files/tokenizer/split_pattern.h"
#include "tools/files/tokenizer/tokenizer_file.h"

namespace reprise {

// Returns the cut that implements this regular expression of a tokenizer.json; nothing if it is not
// a known one.
std::optional<Cut> known_cut(const std::string& pattern);

// Returns the end of the piece that begins at `begin`. Requires begin < text.size(). `cut` must not
// be kPattern, which needs a SplitPattern.
size_t end_of_piece(Cut cut, std::string_view text, size_t begin);

// Applies all cuts of a tokenizer.
class Cutter {
 public:
  explicit Cutter(const TokenizerFile& file);

  // Calls word(piece) for each piece of a UTF-8 text, in order.
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
  static bool is_left_out(Cut cut, std::string_view text, size_t begin);  // true if the piece at `begin` is dropped
  // True if the next piece is joined with the previous one.
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
    size_t held = 0;  // the piece that begins at `held` is not complete yet
    bool pending_is_match = false;
    const auto pass_on = [&](size_t end) {
      if (end > held && !(pending_is_match && step.behavior == SplitBehavior::kRemoved))
        cut_from(n + 1, text.substr(held, end - held), word);
      held = end;
    };
    for (size_t begin = 0; begin < text.size();) {
      const SplitPattern::Piece piece = step.pattern->piece_at(text, begin);
      const bool is_match = piece.is_match != step.inverts;
      if (!belongs_to_previous(step.behavior, pending_is_match, is_match)) pass_on(begin);
      pending_is_match = is_match;
      begin = piece.end;
    }
    pass_on(text.size());
  }
  std::vector<Step> steps_;
};

}  // namespace reprise
