// A regular expression that cuts a text. It is run by Oniguruma, as in Hugging Face's tokenizers,
// and used for patterns that cut.h does not implement itself. Debian 12's Oniguruma has Unicode 14.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct re_pattern_buffer;
struct OnigMatchParamStruct;
struct re_registers;

namespace reprise {

// Returns a pattern that matches exactly this text.
std::string pattern_of_text(const std::string& text);

// A compiled pattern.
class SplitPattern {
 public:
  // Compiles the pattern. Throws UserError with the file's name if it is invalid.
  SplitPattern(const std::string& pattern, const std::string& path);

  // A piece of a text: a match, or the text before the next match.
  struct Piece {
    size_t end;
    bool is_match;
  };
  // Returns the piece that begins at `begin`. The text must be UTF-8. Throws UserError if the
  // pattern backtracks too much in one search, or in total for the bytes of all texts so far. Only
  // one thread may call it at a time.
  Piece piece_at(std::string_view text, size_t begin) const;

 private:
  struct Match {
    size_t begin, end;
  };
  Match next_match(std::string_view text, size_t from) const;  // returns {size, size} if there is no match
  int search(std::string_view text, size_t from, re_registers* found) const;

  struct FreePattern {
    void operator()(re_pattern_buffer* pattern) const;
  };
  struct FreeLimits {
    void operator()(OnigMatchParamStruct* limits) const;
  };
  std::string path_;
  std::unique_ptr<re_pattern_buffer, FreePattern> pattern_;
  std::unique_ptr<OnigMatchParamStruct, FreeLimits> limits_;
  mutable uint64_t bytes_ = 0, retries_ = 0;  // bytes_: bytes of all texts; retries_: retries of costly searches
  mutable double seconds_ = 0;                // time of all searches so far
};

}  // namespace reprise
