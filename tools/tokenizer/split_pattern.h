// A regular expression that cuts a text, by Oniguruma: the engine with which Hugging Face's tokenizers run such a pattern.
// Here for the patterns that have no cut by hand in cut.h. Debian 12's Oniguruma has Unicode 14.
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

// The pattern that finds just this text.
std::string pattern_of_text(const std::string& text);

class SplitPattern {
 public:
  // Throws UserError with the file's name where the pattern is none.
  SplitPattern(const std::string& pattern, const std::string& path);

  // The piece that begins at `begin`: a match that begins there, else what lies before the next one. The text is UTF-8.
  // Throws UserError where the pattern goes back and forth without an end in sight: within one search, or too often or too long for
  // the bytes of all texts so far. One call at a time.
  struct Piece {
    size_t end;
    bool is_match;
  };
  Piece piece_at(std::string_view text, size_t begin) const;

 private:
  struct Match {
    size_t begin, end;
  };
  Match next_match(std::string_view text, size_t from) const;  // {size, size}: none
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
  mutable uint64_t bytes_ = 0, retries_ = 0;  // of all texts so far; retries: of searches that took more than a few
  mutable double seconds_ = 0;                // of all searches so far
};

}  // namespace reprise
