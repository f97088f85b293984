// The contents of a tokenizer's file in a form for all formats: tokens, merges, and how a text is
// normalised and cut before merging. A tokenizer.json and a GGUF file of the same model give the
// same tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace reprise {

// How a token arises from a text.
enum class TokenKind : uint8_t {
  kAbsent,   // no token has this id
  kNormal,   // made from other symbols by merges, or a word piece
  kAdded,    // cut out of every text before the text is cut into words
  kControl,  // like kAdded, but only if the caller allows control tokens in the text
  kByte,     // one byte of a character without a token; only in the alphabet kCharacters
};

// The symbols with which merges start, and the spelling of bytes in the names of normal tokens.
enum class Alphabet : uint8_t {
  kBytes,       // bytes; each is written as a character of byte_alphabet.h
  kCharacters,  // characters; one without a token becomes byte tokens; a space is U+2581, as in SentencePiece
  kWordPieces,  // no merges: a word is cut into the longest tokens, as in BERT (word_pieces.h)
};

// The kind of text that precedes a text to tokenise.
enum class TextPlace : uint8_t {
  kBegins,       // nothing precedes the text
  kBehindToken,  // an added token precedes the text
  kGoesOn,       // other text precedes the text
};

// Before which texts the tokenizer puts a space that they do not have. The first word is then
// tokenised like a word after a space.
enum class SpaceBefore : uint8_t {
  kNothing,
  kEveryPiece,         // before the text, and after each added token
  kPieceWithoutSpace,  // like kEveryPiece, but not before a text that begins with a space
  kTextWithoutSpace,   // only before the text, and not if it begins with a space
};

// One token of the vocabulary.
struct FileToken {
  // The token's text. It is spelled in the alphabet if `kind` is kNormal or kByte, or if it is
  // kAdded in the alphabet kCharacters.
  std::string name;
  TokenKind kind = TokenKind::kAbsent;
  // True: the token is not in the model's own vocabulary, so that words cannot become it or contain
  // it.
  bool is_added_alone = false;
};

// A token that is searched for in the text before the text is cut.
struct AddedToken {
  int32_t id = 0;
  bool normalized = false;   // true: the token is normalised and searched for in the normalised text
  bool single_word = false;  // true: the token is found only if there is no word character next to it
  bool lstrip = false;       // true: the token includes the white space before it
  bool rstrip = false;       // true: the token includes the white space after it
};

// One way to cut a text into pieces.
enum class Cut : uint8_t {
  kGpt2,
  kLlama3,     // numbers are cut into groups of three digits
  kQwen2,      // like kLlama3, but each digit is a piece
  kEachDigit,  // each \p{N} is a piece
  kDigitRuns,  // each run of \p{N} is a piece
  // A word is a run of space marks with the text after it. Files do not name this cut. Cutter uses
  // it if no token joins two words, so that words are short.
  kMarkedWords,
  kBertWords,  // BERT's words: white space separates words and is dropped; each punctuation mark is a word
  kPattern,    // a regular expression; its matches and the text between them are pieces
};

// Handling of a pattern's matches. Each match is a piece (kIsolated), is removed (kRemoved), joins
// the text before it (kWithPrevious) or after it (kWithNext), or joins adjacent matches
// (kContiguous).
enum class SplitBehavior : uint8_t { kIsolated, kRemoved, kWithPrevious, kWithNext, kContiguous };

// One step that cuts a text.
struct CutStep {
  Cut cut = Cut::kGpt2;
  std::string pattern = {};  // this and the next two members are only for kPattern
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool inverts = false;  // true: matches and the text between them exchange their roles
};

// The steps of BERT's normaliser (bert_text.h).
struct BertRules {
  bool cleans = true;          // removes control characters, and replaces white space by spaces
  bool parts_chinese = true;   // makes each Chinese character a word
  bool strips_accents = true;  // decomposes characters and removes the marks
  bool lowers = true;          // makes letters lower-case
};

// The rules by which WordPiece cuts a word.
struct WordPieceRules {
  std::string prefix = "##";    // precedes a piece that does not begin its word
  uint64_t longest_word = 100;  // maximum characters of a word; a longer word becomes the unknown token
  // Decoding puts no space before marks that end a sentence, and joins contractions.
  bool joins_punctuation = true;
};

// One part of a row with two texts: a token, or one of the texts. `type` is the type of all tokens
// of the part. The row is a list of such parts.
struct PairPiece {
  enum class What : uint8_t { kToken, kFirst, kSecond };
  What what = What::kToken;
  uint8_t type = 0;
  int32_t token = 0;
};

struct TokenizerFile {
  std::string path;
  std::vector<FileToken> tokens;  // index: id
  size_t padding = 0;  // unused tokens at the end; they only fill the list up to the number of rows in a table
  std::vector<std::pair<std::string, std::string>> merges;  // pairs of names; the first pair is merged first
  std::string merges_field;                                 // name of the merges' field, for messages
  // Score of each token, in place of merges. Two tokens can be merged if their names together are a
  // third token's name; the third token with the highest score is made first.
  std::vector<float> scores;
  std::vector<AddedToken> added;
  bool added_take_space = false;       // true: a token that a user adds includes the white space after it
  std::vector<CutStep> cuts;           // each step cuts the pieces of the step before it
  bool composes = false;               // true: texts are normalised to form C
  std::optional<BertRules> bert = {};  // if set, texts are normalised by these rules
  Alphabet alphabet = Alphabet::kBytes;
  SpaceBefore space_before = SpaceBefore::kNothing;
  // True: spaces become U+2581 before added tokens are searched for in the normalised text.
  bool marks_before_added = false;
  bool drops_first_space = false;       // true: decoding removes the space that space_before added
  bool takes_whole_words = false;       // true: a word that is a token becomes this token, regardless of the merges
  WordPieceRules pieces = {};           // used if `alphabet` is kWordPieces
  std::optional<int32_t> unknown = {};  // used for a byte or a word without a token; if unset, such bytes are left out
  std::optional<int32_t> bos = {}, eos = {}, pad = {};
  bool adds_bos = false;
  std::vector<int32_t> behind = {};  // tokens that follow a text that is a complete sample
  // The parts of a row with two texts.
  std::vector<PairPiece> pair = {{PairPiece::What::kFirst, 0}, {PairPiece::What::kSecond, 1}};
};

// Returns BERT's row for a pair, [CLS] a [SEP] b [SEP]. The second text and the [SEP] after it have
// type 1.
inline std::vector<PairPiece> pair_between(int32_t cls, int32_t sep) {
  using What = PairPiece::What;
  return {
      {What::kToken, 0, cls}, {What::kFirst, 0}, {What::kToken, 0, sep}, {What::kSecond, 1}, {What::kToken, 1, sep}};
}

constexpr uint64_t kMaxTokens = uint64_t{1} << 22;

// The result of adding tokens (new_tokens.h). The new ids are [first, first + count), in the order
// in which the caller lists the tokens.
struct NewTokens {
  size_t first = 0, count = 0;
  std::vector<std::string> names;  // the tokens in the list that were not added tokens before
};

// Reads a tokenizer. `path` is a folder with tokenizer.json or vocab.txt, such a file itself, or a
// GGUF file. Adds `new_tokens`; tokenizer_config.json may already name some of them. If `made` is
// not null, it receives the ids of the new tokens. Throws UserError that names a setting if it is
// not supported.
TokenizerFile read_tokenizer(const std::string& path, const std::vector<std::string>& new_tokens = {},
                             NewTokens* made = nullptr);
// Returns the path of the tokenizer.json or vocab.txt in a folder; "" if it has neither.
std::string tokenizer_in(const std::string& folder);
// Returns tokenizer_in() for a folder; other paths are returned unchanged. Throws UserError if a
// folder has neither file.
std::string tokenizer_path(const std::string& path);
// Reads a tokenizer.json, and the tokenizer_config.json next to it if there is one.
TokenizerFile read_tokenizer_json(const std::string& path, const std::vector<std::string>& new_tokens = {},
                                  NewTokens* made = nullptr);
// Reads the tokenizer in a GGUF file's metadata.
TokenizerFile read_tokenizer_gguf(const std::string& path);
// Reads BERT's vocab.txt, one token per line, and the tokenizer_config.json next to it if there is
// one.
TokenizerFile read_tokenizer_lines(const std::string& path);

}  // namespace reprise
