// Implements the known pre-tokenizers without a regular expression engine. Each character is read
// once, whereas a regular expression tries its alternatives in turn. Comments quote the alternative
// of the expression that the line below or next to them implements.
#include "tools/files/tokenizer/cut.h"

#include <algorithm>

#include "tools/files/io/error.h"
#include "tools/files/tokenizer/bert_text.h"
#include "tools/files/tokenizer/characters.h"
#include "tools/files/tokenizer/scored_merges.h"
#include "tools/files/tokenizer/space_mark.h"

namespace reprise {
namespace {

using enum CharacterClass;

constexpr char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

size_t end_of_run(std::string_view text, size_t at, CharacterClass kind) {
  while (at < text.size()) {
    const Character next = character_at(text, at);
    if (next.kind != kind) break;
    at += next.bytes;
  }
  return at;
}

bool is_newline(char c) { return c == '\r' || c == '\n'; }

// Returns the end of 's|'t|'re|'ve|'m|'ll|'d whose apostrophe is at `begin`. Returns `begin` if no
// contraction is there.
size_t end_of_contraction(std::string_view text, size_t begin, bool any_case) {
  const auto letter = [&](size_t at) -> char {
    if (at >= text.size()) return '\0';
    const char c = text[at];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(begin + 1), second = letter(begin + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
    return begin + 3;
  if (any_case && text.substr(begin + 1, 2) == "\u017F") return begin + 3;  // U+017F, the long s, is another case of s
  return begin;
}

// Returns the end of \s+(?!\S)|\s+ in the white space [begin, end). If other text follows, the last
// white-space character is left to that text, unless it is the only one.
size_t end_of_space(std::string_view text, size_t begin, size_t end) {
  if (end == text.size()) return end;
  const size_t last = character_before(text, end);
  return last > begin ? last : end;
}

size_t end_of_gpt2_piece(std::string_view text, size_t begin) {
  if (text[begin] == '\'') {
    const size_t end = end_of_contraction(text, begin, false);
    if (end > begin) return end;
  }
  const size_t at = begin + (text[begin] == ' ');
  if (at < text.size()) {  // ' ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+'
    const Character first = character_at(text, at);
    if (first.kind != kSpace) return end_of_run(text, at + first.bytes, first.kind);
  }
  return end_of_space(text, begin, end_of_run(text, begin, kSpace));
}

size_t end_of_marked_word(std::string_view text, size_t begin) {
  size_t at = begin;
  while (text.substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
  return std::min(text.find(kSpaceMark, at), text.size());
}

size_t end_of_bert_word(std::string_view text, size_t begin) {
  const Character first = character_at(text, begin);
  size_t at = begin + first.bytes;
  if (first.kind == kSpace || is_bert_punctuation(first.code)) return at;
  while (at < text.size()) {
    const Character next = character_at(text, at);
    if (next.kind == kSpace || is_bert_punctuation(next.code)) break;
    at += next.bytes;
  }
  return at;
}

size_t end_of_digits(std::string_view text, size_t at, int maximum) {
  for (int count = 0; count < maximum && at < text.size(); ++count) {
    const Character next = character_at(text, at);
    if (next.kind != kNumber) break;
    at += next.bytes;
  }
  return at;
}

size_t end_of_llama3_piece(std::string_view text, size_t begin, int max_digits) {
  if (text[begin] == '\'') {  // '(?i:'s|'t|'re|'ve|'m|'ll|'d)'
    const size_t end = end_of_contraction(text, begin, true);
    if (end > begin) return end;
  }
  const Character first = character_at(text, begin);
  const size_t after = begin + first.bytes;
  if (first.kind == kLetter) return end_of_run(text, after, kLetter);
  if (first.kind == kNumber) return end_of_digits(text, begin, max_digits);  // '\p{N}{1,3}'
  if (!is_newline(text[begin])) {  // '[^\r\n\p{L}\p{N}]?\p{L}+'
    const size_t end = end_of_run(text, after, kLetter);
    if (end > after) return end;
  }
  size_t end = end_of_run(text, begin + (text[begin] == ' '), kOther);
  if (first.kind == kOther || end > after) {  // ' ?[^\s\p{L}\p{N}]+[\r\n]*'
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  end = end_of_run(text, begin, kSpace);
  for (size_t at = end; at > begin; --at) {  // '\s*[\r\n]+': up to the last newline in the white space
    if (is_newline(text[at - 1])) return at;
  }
  return end_of_space(text, begin, end);
}

}  // namespace

std::optional<Cut> known_cut(const std::string& pattern) {
  if (pattern == kGpt2Pattern) return Cut::kGpt2;
  if (pattern == kLlama3Pattern) return Cut::kLlama3;
  if (pattern == kQwen2Pattern) return Cut::kQwen2;
  return std::nullopt;
}

size_t end_of_piece(Cut cut, std::string_view text, size_t begin) {
  if (cut == Cut::kGpt2) return end_of_gpt2_piece(text, begin);
  if (cut == Cut::kLlama3) return end_of_llama3_piece(text, begin, 3);
  if (cut == Cut::kQwen2) return end_of_llama3_piece(text, begin, 1);
  if (cut == Cut::kMarkedWords) return end_of_marked_word(text, begin);
  if (cut == Cut::kBertWords) return end_of_bert_word(text, begin);
  const Character first = character_at(text, begin);
  size_t at = begin + first.bytes;
  if (first.kind == kNumber) return cut == Cut::kEachDigit ? at : end_of_run(text, at, kNumber);
  while (at < text.size()) {
    const Character next = character_at(text, at);
    if (next.kind == kNumber) break;
    at += next.bytes;
  }
  return at;
}

namespace {

// True if a token has a space mark after another character: merges may then cross the beginning of
// a word.
bool joins_words(const TokenizerFile& file) {
  for (const auto& [name, kind, is_added_alone] : file.tokens) {
    if (!is_joined(kind)) continue;
    for (size_t at = name.find(kSpaceMark); at != std::string::npos; at = name.find(kSpaceMark, at + 1)) {
      if (at > 0 && !std::string_view(name).substr(0, at).ends_with(kSpaceMark)) return true;
    }
  }
  return false;
}

}  // namespace

bool Cutter::is_left_out(Cut cut, std::string_view text, size_t begin) {
  return cut == Cut::kBertWords && character_at(text, begin).kind == kSpace;
}

bool Cutter::belongs_to_previous(SplitBehavior behavior, bool previous_is_match, bool is_match) {
  switch (behavior) {
    case SplitBehavior::kContiguous: return previous_is_match == is_match;
    case SplitBehavior::kWithPrevious: return is_match && !previous_is_match;
    case SplitBehavior::kWithNext: return previous_is_match && !is_match;
    case SplitBehavior::kIsolated:
    case SplitBehavior::kRemoved: return false;
  }
  return false;
}

Cutter::Cutter(const TokenizerFile& file) {
  constexpr size_t kMaxSteps = 64;
  if (file.cuts.size() > kMaxSteps)
    throw UserError(file.path + ": pre_tokenizer: cuts a text in " + std::to_string(file.cuts.size()) +
                    " steps; must be at most " + std::to_string(kMaxSteps));
  for (const CutStep& step : file.cuts) {
    const bool has_pattern = step.cut == Cut::kPattern;
    steps_.push_back({step.cut, has_pattern ? std::make_unique<SplitPattern>(step.pattern, file.path) : nullptr,
                      step.behavior, step.inverts});
  }
  if (file.alphabet == Alphabet::kCharacters && !joins_words(file)) steps_.push_back({Cut::kMarkedWords});
}

}  // namespace reprise
