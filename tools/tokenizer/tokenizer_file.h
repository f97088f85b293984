// What a tokenizer's file says, in whichever format: the tokens, the merges, how text is normalised and cut before them.
// Here because a tokenizer.json and a GGUF file become the same tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace reprise {

enum class TokenKind : uint8_t {
  kAbsent,   // no token has this id
  kNormal,   // made by merges
  kAdded,    // cut out of every text
  kControl,  // cut out only where the caller says that control tokens may stand in the text
};

struct FileToken {
  std::string name;  // in the byte alphabet where it is normal, else its text
  TokenKind kind = TokenKind::kAbsent;
};

// A token that is looked for in the text before it is cut at all.
struct AddedToken {
  int32_t id = 0;
  bool normalized = false;   // looked for in the normalised text, and itself normalised
  bool single_word = false;  // only where no word character stands before or after it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
};

// One way to cut a text into pieces.
enum class Cut : uint8_t {
  kGpt2,
  kLlama3,      // digits in threes
  kQwen2,       // the same, each digit alone
  kEachDigit,   // each \p{N} alone
  kDigitRuns,   // runs of \p{N} apart from the rest
  kPattern,     // a regular expression: what it matches, and what lies between
};

struct CutStep {
  Cut cut = Cut::kGpt2;
  std::string pattern = {};  // of kPattern
};

struct TokenizerFile {
  std::string path;
  std::vector<FileToken> tokens;  // by id
  std::vector<std::pair<std::string, std::string>> merges;  // of names, the first goes first
  std::string merges_field;                                 // as messages name it
  std::vector<AddedToken> added;
  std::vector<CutStep> cuts;  // each cuts the pieces of the one before
  bool composes = false;      // text is brought into normal form C
  bool takes_whole_words = false;       // a piece that is a token is that token, whatever the merges say
  std::optional<int32_t> unknown = {};  // stands for a byte that is no token; none: such a byte is left out
  std::optional<int32_t> bos = {}, eos = {}, pad = {};
  bool adds_bos = false;
};

constexpr uint64_t kMostTokens = uint64_t{1} << 22;

TokenizerFile read_tokenizer_json(const std::string& path);  // and the tokenizer_config.json beside it, where there is one
TokenizerFile read_tokenizer_gguf(const std::string& path);

}  // namespace reprise
