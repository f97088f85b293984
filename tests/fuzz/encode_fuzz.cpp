// Fuzzes the encoding of texts, which anybody may write. For every pre-tokenizer, a text must be
// refused as invalid UTF-8, or decoding its ids must give the text. For WordPiece, the decoded text
// must have the same ids.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tools/files/tokenizer/byte_alphabet.h"
#include "tools/files/tokenizer/space_mark.h"
#include "tools/files/tokenizer/tokenizer.h"

namespace {

using namespace reprise;

// Returns a tokenizer with all bytes, some merges, and added tokens of each kind that does not
// strip white space.
std::unique_ptr<Tokenizer> make(const std::vector<CutStep>& cuts) {
  TokenizerFile file;
  file.path = "fuzz";
  file.cuts = cuts;
  for (int byte = 0; byte < 256; ++byte)
    file.tokens.push_back({alphabet_character(static_cast<uint8_t>(byte)), TokenKind::kNormal});
  const std::string space = alphabet_character(' ');
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{{"a", "b"},
                                                                                    {space, space},
                                                                                    {"ab", "ab"},
                                                                                    {"e", space},
                                                                                    {"t", "h"},
                                                                                    {"th", "e" + space},
                                                                                    {space + space, space + space},
                                                                                    {"'", "s"},
                                                                                    {"1", "1"}}) {
    file.merges.emplace_back(left, right);
    file.tokens.push_back({left + right, TokenKind::kNormal});
  }
  for (const char* text : {"<|", "<|a|>", "ab!", "\u00e9"}) {
    file.added.push_back(
        {.id = static_cast<int32_t>(file.tokens.size()), .normalized = text[0] == 'a', .single_word = text[0] == 'a'});
    file.tokens.push_back({text, text[1] == '|' ? TokenKind::kControl : TokenKind::kAdded});
  }
  return std::make_unique<Tokenizer>(file);
}

// Returns a tokenizer of characters with scores. `before` states before which texts the tokenizer
// puts a space.
std::unique_ptr<Tokenizer> make_of_characters(SpaceBefore before) {
  TokenizerFile file;
  file.path = "fuzz";
  file.alphabet = Alphabet::kCharacters;
  file.space_before = before;
  file.drops_first_space = before != SpaceBefore::kNothing;
  file.marks_before_added = before == SpaceBefore::kNothing;
  for (int byte = 0; byte < 256; ++byte)
    file.tokens.push_back({name_of_byte(static_cast<uint8_t>(byte)), TokenKind::kByte});
  file.scores.assign(256, 0);
  const std::string mark(kSpaceMark);
  for (const std::string& name :
       {mark, std::string("a"), std::string("b"), std::string("\u00e9"), mark + mark, std::string("ab"), mark + "a",
        std::string("aba"), mark + mark + mark + mark, "\u00e9" + std::string("a")}) {
    file.tokens.push_back({name, TokenKind::kNormal});
    file.scores.push_back(-static_cast<float>(file.tokens.size() / 2));
  }
  for (const char* text : {"<|", "<|a|>", "ab!"}) {
    file.added.push_back({.id = static_cast<int32_t>(file.tokens.size()), .normalized = text[0] == 'a'});
    file.tokens.push_back({text, text[0] == '<' ? TokenKind::kControl : TokenKind::kAdded});
    file.scores.push_back(0);
  }
  return std::make_unique<Tokenizer>(file);
}

// Returns a WordPiece tokenizer with BERT's normaliser. Every printable ASCII character except the
// space is a piece.
std::unique_ptr<Tokenizer> make_of_pieces() {
  TokenizerFile file;
  file.path = "fuzz";
  file.alphabet = Alphabet::kWordPieces;
  file.cuts = {{Cut::kBertWords}};
  file.bert = BertRules();
  file.drops_first_space = true;
  file.pieces.joins_punctuation = false;
  file.unknown = 0;
  file.tokens.push_back({"[UNK]", TokenKind::kControl});
  for (char c = '!'; c <= '~'; ++c) {
    file.tokens.push_back({std::string(1, c), TokenKind::kNormal});
    file.tokens.push_back({std::string("##") + c, TokenKind::kNormal});
  }
  for (const char* name : {"ab", "##ab", "abc", "the", "##\u0438", "\u4e2d", "\u00df"})
    file.tokens.push_back({name, TokenKind::kNormal});
  return std::make_unique<Tokenizer>(file);
}

// Returns the text with a space for each U+2581, as decoding gives it.
std::string without_marks(std::string_view text) {
  std::string plain;
  for (size_t at = 0; at < text.size();) {
    const bool is_mark = text.substr(at).starts_with(kSpaceMark);
    plain += is_mark ? ' ' : text[at];
    at += is_mark ? kSpaceMark.size() : 1;
  }
  return plain;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Tokenizer> tokenizers[] = {make({{Cut::kGpt2}}),
                                                          make({{Cut::kEachDigit}, {Cut::kGpt2}}),
                                                          make({{Cut::kLlama3}}),
                                                          make({{Cut::kQwen2}}),
                                                          make({{Cut::kDigitRuns}}),
                                                          make({{Cut::kPattern, "\\p{L}+|(?<=1)\\s*|[^\\p{L}]?"}})};
  static const std::unique_ptr<Tokenizer> plain = make_of_characters(SpaceBefore::kNothing),
                                          spaced = make_of_characters(SpaceBefore::kTextWithoutSpace);
  static const std::unique_ptr<Tokenizer> pieces = make_of_pieces();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::answers_or_refuses([&] {
    for (const auto& tokenizer : tokenizers) {
      for (const bool parse_special : {false, true}) {
        fuzz::require(tokenizer->decode(tokenizer->encode(text, parse_special)) == text,
                      "a text comes back from its ids");
      }
    }
    for (const bool parse_special : {false, true}) {
      const std::string expected = without_marks(text);
      fuzz::require(plain->decode(plain->encode(text, parse_special)) == expected,
                    "a text comes back from its ids, without marks");
      const size_t lost = expected.starts_with(' ');
      fuzz::require(spaced->decode(spaced->encode(text, parse_special)) == expected.substr(lost),
                    "a text comes back but for a space at its beginning");
    }
    const std::vector<int32_t> ids = pieces->encode(text, false);
    if (std::find(ids.begin(), ids.end(), 0) == ids.end())
      fuzz::require(pieces->encode(pieces->decode(ids), false) == ids, "ids come back from their text");
  });
  return 0;
}
