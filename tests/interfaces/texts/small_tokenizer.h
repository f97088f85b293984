// The small tokenizers of tests/golden/tokenizer/small.jsonl, and texts with the ids that Hugging
// Face's tokenizers library gives. Several tests open these tokenizers as tokenizer.json and as
// GGUF.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

struct TokenizedText {
  std::string text;
  std::vector<int32_t> ids;               // control tokens in the text are encoded as letters
  std::vector<int32_t> ids_with_control;  // control tokens in the text are recognised
};

struct SmallTokenizer {
  nlohmann::json json;  // a complete tokenizer.json
  std::vector<TokenizedText> cases;
};

// A WordPiece tokenizer from tests/golden/tokenizer/word_pieces.jsonl.
struct PieceTokenizer {
  nlohmann::json json;
  std::vector<TokenizedText> cases;
  // [[text, most, ids], ...]: the ids of `text` with the special tokens around it, cut to `most`
  // tokens.
  nlohmann::json whole;
  nlohmann::json decoded;    // [[ids, text], ...]
  // The parts of a long text, and the sum of its ids; null except for one variant.
  nlohmann::json generated;
};

std::vector<TokenizedText> read_cases(std::istream& lines, std::string* line_after);
std::map<std::string, SmallTokenizer> small_tokenizers();  // key: name of the variant
std::map<std::string, PieceTokenizer> piece_tokenizers();
// Returns the CRC-32 of the results of BERT's normaliser and pre-tokenizer for every character.
nlohmann::json character_sums();

// Writes the vocabulary as a GGUF file with the pre-tokenizer `pre`. Special added tokens become
// control tokens, and other added tokens become user-defined.
void write_gguf_tokenizer(const std::string& path, const nlohmann::json& tokenizer, const std::string& pre);

// Writes a vocabulary of SentencePiece's characters as a GGUF file, with scores instead of merges.
// `adds_space` is the value of tokenizer.ggml.add_space_prefix.
void write_gguf_characters(const std::string& path, const nlohmann::json& tokenizer, bool adds_space);

void put_file(const std::string& path, const std::string& bytes);

}  // namespace reprise
