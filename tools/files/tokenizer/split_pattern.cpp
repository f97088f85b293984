// See split_pattern.h. Calls Oniguruma, and puts its error messages on one line.
#include "tools/files/tokenizer/split_pattern.h"

#define ONIG_ESCAPE_UCHAR_COLLISION 1  // because ICU also has a type UChar
#include <oniguruma.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <new>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/tokenizer/characters.h"

namespace reprise {
namespace {

// Maximum retries of one search, which take about a second; also the maximum entries of its stack.
constexpr unsigned long kMaxRetries = 10'000'000;
// Limit of all retries: kMaxForByte for each byte of the texts so far, plus kMaxAtFirst.
constexpr uint64_t kMaxForByte = 128, kMaxAtFirst = 50'000'000;
// A search that looks ahead to the end of the text needs no retries, so that seconds are limited
// too. The limit, 50,000 bytes per second, is a hundredth of the usual speed.
constexpr double kSecondsOfByte = 2e-5, kSecondsAtFirst = 5;

const OnigUChar* bytes_of(std::string_view text) { return reinterpret_cast<const OnigUChar*>(text.data()); }

std::string reason_of(int error, OnigErrorInfo* info) {
  OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int length = info == nullptr ? onig_error_code_to_str(text, error) : onig_error_code_to_str(text, error, info);
  return shown_key(std::string(reinterpret_cast<const char*>(text), static_cast<size_t>(length)));
}

}  // namespace

std::string pattern_of_text(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    if (c > ' ' && c < '\x7f' && !std::isalnum(static_cast<unsigned char>(c))) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

void SplitPattern::FreePattern::operator()(re_pattern_buffer* pattern) const { onig_free(pattern); }
void SplitPattern::FreeLimits::operator()(OnigMatchParamStruct* limits) const { onig_free_match_param(limits); }

SplitPattern::SplitPattern(const std::string& pattern, const std::string& path) : path_(path) {
  constexpr size_t kLongest = 4096;
  constexpr unsigned kDeepest = 256;  // maximum depth of nested groups
  const auto refuse = [&](const std::string& reason) {
    throw UserError(path + ": pre_tokenizer: the regular expression " + json_shown(pattern) + " " + reason);
  };
  if (pattern.size() > kLongest) refuse("is longer than " + std::to_string(kLongest) + " bytes");
  OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
  onig_initialize(encodings, 1);
  onig_set_parse_depth_limit(kDeepest);
  regex_t* made = nullptr;
  OnigErrorInfo info;
  const OnigUChar* bytes = bytes_of(pattern);
  const int error = onig_new(&made, bytes, bytes + pattern.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                             ONIG_SYNTAX_ONIGURUMA, &info);
  if (error != ONIG_NORMAL) refuse("is none that Oniguruma takes: " + reason_of(error, &info));
  pattern_.reset(made);
  limits_.reset(onig_new_match_param());
  if (!limits_ || onig_initialize_match_param(limits_.get()) != ONIG_NORMAL) throw std::bad_alloc();
}

// Starts with a low limit of retries. If the limit stops the search, repeats it with an eight times
// higher limit. The number of retries is thus known approximately; Oniguruma does not report it.
int SplitPattern::search(std::string_view text, size_t from, re_registers* found) const {
  constexpr unsigned long kFewRetries = 256, kMore = 8;
  const OnigUChar *begin = bytes_of(text), *end = begin + text.size();
  for (unsigned long maximum = kFewRetries;; maximum = std::min(kMore * maximum, kMaxRetries)) {
    onig_set_retry_limit_in_match_of_match_param(limits_.get(), maximum);
    onig_set_retry_limit_in_search_of_match_param(limits_.get(), maximum);
    onig_set_match_stack_limit_size_of_match_param(limits_.get(), static_cast<unsigned>(maximum));
    const int at =
        onig_search_with_param(pattern_.get(), begin, end, begin + from, end, found, ONIG_OPTION_NONE, limits_.get());
    const bool is_cut = at == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER || at == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER ||
                        at == ONIGERR_MATCH_STACK_LIMIT_OVER;
    if (!is_cut || maximum == kMaxRetries) return at;
    retries_ += maximum;
    if (retries_ > kMaxAtFirst + kMaxForByte * bytes_)
      throw UserError(path_ + ": pre_tokenizer: its regular expression goes back and forth more than " +
                      std::to_string(kMaxForByte) + " times for each byte of the text; must be one that does not");
  }
}

SplitPattern::Match SplitPattern::next_match(std::string_view text, size_t from) const {
  const std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region(onig_region_new(),
                                                                  [](OnigRegion* all) { onig_region_free(all, 1); });
  if (!region) throw std::bad_alloc();
  const int found = search(text, from, region.get());
  if (found == ONIG_MISMATCH) return {text.size(), text.size()};
  if (found < 0)
    throw UserError(path_ +
                    ": pre_tokenizer: its regular expression cannot cut the text: " + reason_of(found, nullptr));
  return {static_cast<size_t>(region->beg[0]), static_cast<size_t>(region->end[0])};
}

SplitPattern::Piece SplitPattern::piece_at(std::string_view text, size_t begin) const {
  const auto began = std::chrono::steady_clock::now();
  Match match = next_match(text, begin);
  // An empty match is skipped.
  if (match.begin == begin && match.end == begin) match = next_match(text, begin + character_at(text, begin).bytes);
  const Piece piece = match.begin > begin ? Piece{match.begin, false} : Piece{match.end, true};
  bytes_ += piece.end - begin;
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (seconds_ > kSecondsAtFirst + kSecondsOfByte * static_cast<double>(bytes_))
    throw UserError(path_ + ": pre_tokenizer: its regular expression takes " +
                    std::to_string(static_cast<int>(seconds_)) + " seconds for " + std::to_string(bytes_) +
                    " bytes of text; must be one that takes less than a second for 50000");
  return piece;
}

}  // namespace reprise
