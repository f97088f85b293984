// Fuzzes texts: with every way to cut, a text is refused as no UTF-8 or comes back from its ids.
// Texts come from anybody.
#include <memory>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tools/tokenizer/byte_alphabet.h"
#include "tools/tokenizer/tokenizer.h"

namespace {

using namespace reprise;

// The bytes, some merges, and added tokens of each kind that take no white space with them.
std::unique_ptr<Tokenizer> make(const std::vector<CutStep>& cuts) {
  TokenizerFile file;
  file.path = "fuzz";
  file.cuts = cuts;
  for (int byte = 0; byte < 256; ++byte) file.tokens.push_back({alphabet_character(static_cast<uint8_t>(byte)), TokenKind::kNormal});
  const std::string space = alphabet_character(' ');
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{
           {"a", "b"}, {space, space}, {"ab", "ab"}, {"e", space}, {"t", "h"}, {"th", "e" + space}, {space + space, space + space}, {"'", "s"}, {"1", "1"}}) {
    file.merges.emplace_back(left, right);
    file.tokens.push_back({left + right, TokenKind::kNormal});
  }
  for (const char* text : {"<|", "<|a|>", "ab!", "\u00e9"}) {
    file.added.push_back({.id = static_cast<int32_t>(file.tokens.size()), .normalized = text[0] == 'a', .single_word = text[0] == 'a'});
    file.tokens.push_back({text, text[1] == '|' ? TokenKind::kControl : TokenKind::kAdded});
  }
  return std::make_unique<Tokenizer>(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Tokenizer> tokenizers[] = {make({{Cut::kGpt2}}),      make({{Cut::kEachDigit}, {Cut::kGpt2}}), make({{Cut::kLlama3}}),
                                                          make({{Cut::kQwen2}}),     make({{Cut::kDigitRuns}}),
                                                          make({{Cut::kPattern, "\\p{L}+|(?<=1)\\s*|[^\\p{L}]?"}})};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::answers_or_refuses([&] {
    for (const auto& tokenizer : tokenizers) {
      for (const bool parse_special : {false, true}) {
        fuzz::require(tokenizer->decode(tokenizer->encode(text, parse_special)) == text, "a text comes back from its ids");
      }
    }
  });
  return 0;
}
