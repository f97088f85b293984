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
  kByte,     // one byte of a character that is no token, where the alphabet is characters
};

// What merges begin with, and how the names of normal tokens spell their bytes.
enum class Alphabet : uint8_t {
  kBytes,       // bytes, each of them a character of byte_alphabet.h
  kCharacters,  // characters, of which one that is no token falls back to its bytes; a space is \u2581, as in SentencePiece
  kWordPieces,  // none: a word is taken piece by piece, the longest token first, as BERT's (word_pieces.h)
};

// Where a text stands that is tokenised.
enum class TextPlace : uint8_t {
  kBegins,       // nothing stands before it
  kBehindToken,  // an added token does
  kGoesOn,       // other text does
};

// Where a space is put that the text has not, so that its first word is the word that it is behind a space.
enum class SpaceBefore : uint8_t {
  kNothing,
  kEveryPiece,         // before the text, and behind each added token
  kPieceWithoutSpace,  // the same, but where a space stands there
  kTextWithoutSpace,   // before the text alone, but where it begins with a space
};

struct FileToken {
  std::string name;  // in the alphabet's spelling where it is normal, else its text
  TokenKind kind = TokenKind::kAbsent;
  bool is_added_alone = false;  // the model's own vocabulary has it not, so that no word is it or is made of it
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
  kLlama3,       // digits in threes
  kQwen2,        // the same, each digit alone
  kEachDigit,    // each \p{N} alone
  kDigitRuns,    // runs of \p{N} apart from the rest
  kMarkedWords,  // marks of spaces and what follows them; never in a file: it shortens the words of a vocabulary that joins no two
  kBertWords,    // BERT's: white space parts words and is left out, and each punctuation mark is a word
  kPattern,      // a regular expression: what it matches, and what lies between
};

// What becomes of the matches of a pattern: they are pieces, are left out, belong to what stands before or behind, or to matches beside them.
enum class SplitBehavior : uint8_t { kIsolated, kRemoved, kWithPrevious, kWithNext, kContiguous };

struct CutStep {
  Cut cut = Cut::kGpt2;
  std::string pattern = {};  // of kPattern, and the next two
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool inverts = false;  // what lies between the matches counts as a match, and a match as what lies between
};

// What BERT's normaliser does to a text (bert_text.h).
struct BertRules {
  bool cleans = true;          // control characters are left out, and each white space is a space
  bool parts_chinese = true;   // each Chinese character is a word
  bool strips_accents = true;  // characters are decomposed, and their marks left out
  bool lowers = true;          // letters become small
};

// How a word becomes pieces.
struct WordPieceRules {
  std::string prefix = "##";    // of a piece that goes on within its word
  uint64_t longest_word = 100;  // characters; a longer one is unknown
  bool joins_punctuation =
      true;  // from tokens to text, no space stands before a mark that ends a sentence, and contractions are joined
};

// Of a row that two texts make together, in turn: a token, or one of the texts whole; with the type that its tokens have.
struct PairPiece {
  enum class What : uint8_t { kToken, kFirst, kSecond };
  What what = What::kToken;
  uint8_t type = 0;
  int32_t token = 0;
};

struct TokenizerFile {
  std::string path;
  std::vector<FileToken> tokens;  // by id
  size_t padding = 0;             // of these at the end: they only fill the list up to the rows of a table
  std::vector<std::pair<std::string, std::string>> merges;  // of names, the first goes first
  std::string merges_field;                                 // as messages name it
  std::vector<float> scores;  // of each token, in place of merges: any two tokens that make a third may join, those of the highest score first
  std::vector<AddedToken> added;
  bool added_take_space = false;  // whoever adds a token has white space behind it belong to it
  std::vector<CutStep> cuts;  // each cuts the pieces of the one before
  bool composes = false;      // text is brought into normal form C
  std::optional<BertRules> bert = {};  // or normalised as BERT's is
  Alphabet alphabet = Alphabet::kBytes;
  SpaceBefore space_before = SpaceBefore::kNothing;
  bool marks_before_added = false;  // \u2581 stands in the normalised text already, in which some added tokens are looked for
  bool drops_first_space = false;   // from tokens to text, the space is left out that space_before has put
  bool takes_whole_words = false;       // a piece that is a token is that token, whatever the merges say
  WordPieceRules pieces = {};           // of kWordPieces
  std::optional<int32_t> unknown = {};  // stands for a byte that is no token, or for a word; none: such a byte is left out
  std::optional<int32_t> bos = {}, eos = {}, pad = {};
  bool adds_bos = false;
  std::vector<int32_t> behind = {};  // what stands behind a whole text
  std::vector<PairPiece> pair = {{PairPiece::What::kFirst, 0}, {PairPiece::What::kSecond, 1}};
};

// BERT's pair, [CLS] a [SEP] b [SEP], whose second text and what stands behind it are of the type 1.
inline std::vector<PairPiece> pair_between(int32_t cls, int32_t sep) {
  using What = PairPiece::What;
  return {{What::kToken, 0, cls}, {What::kFirst, 0}, {What::kToken, 0, sep}, {What::kSecond, 1}, {What::kToken, 1, sep}};
}

constexpr uint64_t kMostTokens = uint64_t{1} << 22;

// What a vocabulary has got of a list of new tokens (new_tokens.h): the ids [first, first + count), in the list's order.
struct NewTokens {
  size_t first = 0, count = 0;
  std::vector<std::string> names;  // those of the list that were no added tokens before
};

// A folder with tokenizer.json or vocab.txt, such a file itself, or a GGUF file; with new tokens, which tokenizer_config.json may name, too. Throws
// UserError for a tokenizer that is not of this kind, naming what it has.
TokenizerFile read_tokenizer(const std::string& path, const std::vector<std::string>& new_tokens = {}, NewTokens* made = nullptr);
// The tokenizer.json or vocab.txt of a folder; "" where it has neither.
std::string tokenizer_in(const std::string& folder);
// The same, where a file is itself. Throws UserError where a folder has neither.
std::string tokenizer_path(const std::string& path);
// tokenizer.json, and the tokenizer_config.json beside it, where there is one.
TokenizerFile read_tokenizer_json(const std::string& path, const std::vector<std::string>& new_tokens = {}, NewTokens* made = nullptr);
TokenizerFile read_tokenizer_gguf(const std::string& path);
// BERT's vocab.txt, a token a line, and the tokenizer_config.json beside it, where there is one.
TokenizerFile read_tokenizer_lines(const std::string& path);

}  // namespace reprise
