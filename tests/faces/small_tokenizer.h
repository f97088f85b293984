// The small tokenizers of tests/golden/tokenizer/small.jsonl, each with texts and the ids that Hugging Face's tokenizers gives them.
// Here because several tests open them, as tokenizer.json and as GGUF.
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
  std::vector<int32_t> ids;               // control tokens are text
  std::vector<int32_t> ids_with_control;  // and are read out of it
};

struct SmallTokenizer {
  nlohmann::json json;  // a whole tokenizer.json
  std::vector<TokenizedText> cases;
};

// A tokenizer of words in pieces, of tests/golden/tokenizer/word_pieces.jsonl.
struct PieceTokenizer {
  nlohmann::json json;
  std::vector<TokenizedText> cases;
  nlohmann::json whole;      // [[text, most, ids], ...]: with what stands around a text, cut to so many tokens
  nlohmann::json decoded;    // [[ids, text], ...]
  nlohmann::json generated;  // of one of them: what a long text is made of, and the sum of its ids
};

std::vector<TokenizedText> read_cases(std::istream& lines, std::string* line_after);
std::map<std::string, SmallTokenizer> small_tokenizers();  // by the variant's name
std::map<std::string, PieceTokenizer> piece_tokenizers();
nlohmann::json character_sums();  // CRC-32 of what BERT's normaliser and pre-tokenizer make of every character

// The same vocabulary as a GGUF file with that pre-tokenizer; added tokens become control and user-defined ones.
void write_gguf_tokenizer(const std::string& path, const nlohmann::json& tokenizer, const std::string& pre);

// The same of a vocabulary by characters: scores in place of merges. `adds_space`: tokenizer.ggml.add_space_prefix.
void write_gguf_characters(const std::string& path, const nlohmann::json& tokenizer, bool adds_space);

void put_file(const std::string& path, const std::string& bytes);

}  // namespace reprise
