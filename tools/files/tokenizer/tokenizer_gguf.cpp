// Reads the tokenizer in a GGUF file's metadata, tokenizer.ggml.*. A vocabulary by bytes ("gpt2")
// names its pre-tokenizer. A vocabulary by characters ("llama") has scores, as in SentencePiece.
// Names and defaults are llama.cpp's (src/llama-vocab.cpp).
#include <cctype>
#include <cmath>

#include "tools/files/formats/gguf.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/tokenizer/pre_tokenizers.h"
#include "tools/files/tokenizer/space_mark.h"
#include "tools/files/tokenizer/tokenizer_file.h"

namespace reprise {
namespace {

constexpr char kTokens[] = "tokenizer.ggml.tokens";
constexpr char kTypes[] = "tokenizer.ggml.token_type";
constexpr char kMerges[] = "tokenizer.ggml.merges";
constexpr char kScores[] = "tokenizer.ggml.scores";
constexpr char kPre[] = "tokenizer.ggml.pre";

[[noreturn]] void refuse(const GgufFile& file, const std::string& key, const std::string& reason) {
  throw UserError(file.path() + ": " + key + ": " + reason);
}

void read_pre_tokenizer(const GgufFile& file, TokenizerFile& to) {
  const std::string word = file.text(kPre).value_or("");
  const PreTokenizer* const known = find_pre_tokenizer(word);
  if (known == nullptr) {
    refuse(file, kPre,
           (file.find_value(kPre) == nullptr ? "missing" : json_shown(word) + " is not supported") + "; must be " +
               either_of(pre_tokenizer_words()) + ", or a word for the same");
  }
  to.cuts = known->cuts;
  to.composes = known->composes;
  to.takes_whole_words = known->takes_whole_words;
  to.adds_bos = known->adds_bos;
}

void read_tokens(const GgufFile& file, TokenizerFile& to) {
  enum { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  const bool by_characters = to.alphabet == Alphabet::kCharacters;
  const nlohmann::json *tokens = file.strings(kTokens), *types = file.integers(kTypes);
  if (tokens == nullptr || tokens->empty()) refuse(file, kTokens, "missing or empty");
  if (tokens->size() > kMaxTokens)
    refuse(file, kTokens,
           std::to_string(tokens->size()) + " tokens; at most " + std::to_string(kMaxTokens) + " are taken");
  if (types == nullptr) refuse(file, kTypes, "missing");
  if (types->size() != tokens->size()) {
    refuse(file, kTypes,
           "must have as many as tokens, " + std::to_string(tokens->size()) + ", not " + std::to_string(types->size()));
  }
  for (size_t id = 0; id < tokens->size(); ++id) {
    const auto type = (*types)[id].get<int64_t>();
    TokenKind kind = TokenKind::kNormal;
    if (type == kControl || type == kUnknown) {
      kind = TokenKind::kControl;
    } else if (type == kUserDefined || type == kUnused) {
      kind = TokenKind::kAdded;
    } else if (type == kByte && by_characters) {
      kind = TokenKind::kByte;
    } else if (type != kNormal) {
      refuse(file, std::string(kTypes) + "[" + std::to_string(id) + "]",
             std::to_string(type) + " is not supported; must be 1 to " + (by_characters ? "6" : "5"));
    }
    to.tokens.push_back({(*tokens)[id].get<std::string>(), kind});
    if (kind == TokenKind::kByte && !byte_of_name(to.tokens[id].name)) {
      refuse(file, std::string(kTokens) + "[" + std::to_string(id) + "]",
             json_shown(to.tokens[id].name) + " is a byte by its type; must be \"<0x00>\" to \"<0xFF>\"");
    }
    const bool stands_in_text = (kind == TokenKind::kControl || kind == TokenKind::kAdded) && type != kUnused;
    if (stands_in_text) to.added.push_back({.id = static_cast<int32_t>(id)});
  }
}

// Counts the padding at the end. Converters fill the list with tokens [PADn], where n is the id.
// Older converters give them the type of a user-defined token.
void find_padding(TokenizerFile& to) {
  const auto is_padding = [&](size_t id) {
    return to.tokens[id].kind != TokenKind::kNormal && to.tokens[id].name == "[PAD" + std::to_string(id) + "]";
  };
  while (to.padding < to.tokens.size() && is_padding(to.tokens.size() - 1 - to.padding)) ++to.padding;
}

void read_merges(const GgufFile& file, TokenizerFile& to) {
  const nlohmann::json* merges = file.strings(kMerges);
  if (merges == nullptr) refuse(file, kMerges, "missing");
  to.merges_field = kMerges;
  for (const nlohmann::json& merge : *merges) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ', 1);
    if (space == std::string::npos) {
      refuse(file, std::string(kMerges) + "[" + std::to_string(to.merges.size()) + "]",
             "must be two tokens with a space between, not " + json_shown(merge));
    }
    to.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
}

// Reads the scores of a vocabulary by characters, and sets the defaults of such a vocabulary.
void read_scores(const GgufFile& file, TokenizerFile& to) {
  const nlohmann::json* scores = file.numbers(kScores);
  if (scores == nullptr) refuse(file, kScores, "missing");
  if (scores->size() != to.tokens.size()) {
    refuse(file, kScores,
           "must have as many as tokens, " + std::to_string(to.tokens.size()) + ", not " +
               std::to_string(scores->size()));
  }
  for (const nlohmann::json& score : *scores) {
    const auto value = score.is_number() ? score.get<float>() : NAN;
    if (!std::isfinite(value))
      refuse(file, std::string(kScores) + "[" + std::to_string(to.scores.size()) + "]", "is not finite");
    to.scores.push_back(value);
  }
  to.adds_bos = to.marks_before_added = true;
  to.drops_first_space = file.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  if (to.drops_first_space) to.space_before = SpaceBefore::kEveryPiece;
}

// Sets a property of Phi-3's tokens: added tokens include the white space after them. llama.cpp
// hard-codes this property, and the file does not state it.
void take_space_behind(const GgufFile& file, TokenizerFile& to) {
  std::string name = file.text("general.name").value_or("");
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name.find("phi-3") == std::string::npos && name.find("phi3") == std::string::npos) return;
  to.added_take_space = true;
  for (AddedToken& added : to.added) {
    const std::string& token = to.tokens[static_cast<size_t>(added.id)].name;
    added.rstrip = token != "<unk>" && token != "<s>" && token != "<|endoftext|>";
  }
}

std::optional<int32_t> read_id(const GgufFile& file, const char* key, const TokenizerFile& to) {
  const auto id = file.unsigned_integer(key);
  if (!id) return std::nullopt;
  if (*id >= to.tokens.size())
    refuse(file, key, std::to_string(*id) + " is no id of the " + std::to_string(to.tokens.size()) + " tokens");
  return static_cast<int32_t>(*id);
}

}  // namespace

TokenizerFile read_tokenizer_gguf(const std::string& path) {
  const GgufFile file(path);
  TokenizerFile to;
  to.path = path;
  const auto model = file.text("tokenizer.ggml.model");
  if (model == "gpt2") {
    read_pre_tokenizer(file, to);
    read_tokens(file, to);
    read_merges(file, to);
  } else if (model == "llama") {
    to.alphabet = Alphabet::kCharacters;
    read_tokens(file, to);
    read_scores(file, to);
    take_space_behind(file, to);
  } else {
    refuse(file, "tokenizer.ggml.model",
           (model ? json_shown(*model) + " is not supported" : std::string("missing")) +
               "; must be \"gpt2\", byte-pair encoding of bytes, or \"llama\", of characters");
  }
  find_padding(to);
  to.bos = read_id(file, "tokenizer.ggml.bos_token_id", to);
  to.eos = read_id(file, "tokenizer.ggml.eos_token_id", to);
  to.pad = read_id(file, "tokenizer.ggml.padding_token_id", to);
  // llama.cpp's defaults for a vocabulary by characters
  if (to.alphabet == Alphabet::kCharacters && to.tokens.size() > 2) {
    to.unknown = read_id(file, "tokenizer.ggml.unknown_token_id", to).value_or(0);
    to.bos = to.bos.value_or(1);
    to.eos = to.eos.value_or(2);
  }
  to.adds_bos = file.boolean("tokenizer.ggml.add_bos_token").value_or(to.adds_bos);
  if (to.adds_bos && !to.bos) refuse(file, "tokenizer.ggml.bos_token_id", "missing, though texts begin with it");
  if (to.adds_bos) to.pair.insert(to.pair.begin(), {PairPiece::What::kToken, 0, *to.bos});
  return to;
}

}  // namespace reprise
