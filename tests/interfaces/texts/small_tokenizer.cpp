// Reads the goldens that tests/parity/tokenizer_parity.py makes.
#include "tests/interfaces/texts/small_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tools/files/formats/gguf.h"

namespace reprise {

using nlohmann::json;

std::vector<TokenizedText> read_cases(std::istream& lines, std::string* line_after) {
  std::vector<TokenizedText> cases;
  for (std::string line; std::getline(lines, line);) {
    const json value = json::parse(line);
    if (!value.is_array()) {
      *line_after = line;
      return cases;
    }
    cases.push_back({value[0], value[1], value[value.size() - 1]});
  }
  line_after->clear();
  return cases;
}

std::map<std::string, SmallTokenizer> small_tokenizers() {
  std::ifstream file("tests/golden/tokenizer/small.jsonl");
  std::string line;
  std::getline(file, line);
  const json shared = json::parse(line);
  std::map<std::string, SmallTokenizer> tokenizers;
  std::getline(file, line);
  while (!line.empty()) {
    const json variant = json::parse(line);
    SmallTokenizer& small = tokenizers[variant.at("variant")];
    small.json = variant.at("tokenizer");
    if (variant.contains("model_of")) small.json["model"] = tokenizers.at(variant["model_of"]).json["model"];
    for (const char* part : {"vocab", "merges"}) {
      if (!small.json["model"].contains(part)) small.json["model"][part] = shared.at(part);
    }
    small.cases = read_cases(file, &line);
  }
  return tokenizers;
}

namespace {

std::ifstream open_pieces(json& sums) {
  std::ifstream file("tests/golden/tokenizer/word_pieces.jsonl");
  std::string line;
  std::getline(file, line);
  sums = json::parse(line);
  return file;
}

}  // namespace

json character_sums() {
  json sums;
  open_pieces(sums);
  return sums;
}

std::map<std::string, PieceTokenizer> piece_tokenizers() {
  json unused;
  std::ifstream file = open_pieces(unused);
  std::map<std::string, PieceTokenizer> tokenizers;
  std::string line;
  std::getline(file, line);
  while (!line.empty()) {
    const json variant = json::parse(line);
    PieceTokenizer& pieces = tokenizers[variant.at("variant")];
    pieces.json = variant.at("tokenizer");
    if (variant.contains("vocab_of"))
      pieces.json["model"]["vocab"] = tokenizers.at(variant["vocab_of"]).json["model"]["vocab"];
    pieces.whole = variant.at("whole");
    pieces.decoded = variant.at("decoded");
    pieces.generated = variant.value("generated", json());
    pieces.cases = read_cases(file, &line);
  }
  return tokenizers;
}

void write_gguf_tokenizer(const std::string& path, const json& tokenizer, const std::string& pre) {
  const json& model = tokenizer.at("model");
  std::vector<std::string> tokens(model.at("vocab").size() + tokenizer.at("added_tokens").size());
  std::vector<int> types(tokens.size(), 1);
  for (const auto& [name, id] : model.at("vocab").items()) tokens.at(id.get<size_t>()) = name;
  for (const json& added : tokenizer.at("added_tokens")) {
    tokens.at(added.at("id").get<size_t>()) = added.at("content");
    types.at(added.at("id").get<size_t>()) = added.at("special") ? 3 : 4;
  }
  json merges = json::array();
  for (const json& merge : model.at("merges"))
    merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  GgufWriter file(path);
  const auto add_text = [&](const char* key, const std::string& text) {
    file.add(key, {GgufType::kString, GgufType::kString, text});
  };
  add_text("general.architecture", "llama");
  add_text("tokenizer.ggml.model", "gpt2");
  add_text("tokenizer.ggml.pre", pre);
  file.add("tokenizer.ggml.tokens", {GgufType::kArray, GgufType::kString, tokens});
  file.add("tokenizer.ggml.token_type", {GgufType::kArray, GgufType::kI32, types});
  file.add("tokenizer.ggml.merges", {GgufType::kArray, GgufType::kString, merges});
  file.add("tokenizer.ggml.bos_token_id", {GgufType::kU32, GgufType::kString, tokens.size() - 1});
  file.add("tokenizer.ggml.eos_token_id", {GgufType::kU32, GgufType::kString, 5});
  file.finish();
}

void write_gguf_characters(const std::string& path, const json& tokenizer, bool adds_space) {
  const json& model = tokenizer.at("model");
  size_t count = model.at("vocab").size();
  for (const json& added : tokenizer.at("added_tokens")) count = std::max(count, added.at("id").get<size_t>() + 1);
  std::vector<std::string> tokens(count);
  std::vector<int> types(count, 1);
  std::vector<float> scores(count, -1e6f);
  for (const auto& [name, id] : model.at("vocab").items()) {
    tokens.at(id.get<size_t>()) = name;
    if (name.starts_with("<0x") && name.size() == 6) types.at(id.get<size_t>()) = 6;
  }
  for (const json& added : tokenizer.at("added_tokens")) {
    tokens.at(added.at("id").get<size_t>()) = added.at("content");
    types.at(added.at("id").get<size_t>()) = added.at("special") ? 3 : 4;
  }
  const json& merges = model.at("merges");
  for (size_t rank = merges.size(); rank-- > 0;) {
    const std::string result = merges[rank][0].get<std::string>() + merges[rank][1].get<std::string>();
    scores.at(model.at("vocab").at(result).get<size_t>()) = -static_cast<float>(rank);
  }
  GgufWriter file(path);
  const auto add_text = [&](const char* key, const std::string& text) {
    file.add(key, {GgufType::kString, GgufType::kString, text});
  };
  add_text("general.architecture", "llama");
  add_text("tokenizer.ggml.model", "llama");
  file.add("tokenizer.ggml.tokens", {GgufType::kArray, GgufType::kString, tokens});
  file.add("tokenizer.ggml.scores", {GgufType::kArray, GgufType::kF32, scores});
  file.add("tokenizer.ggml.token_type", {GgufType::kArray, GgufType::kI32, types});
  file.add("tokenizer.ggml.add_space_prefix", {GgufType::kBool, GgufType::kString, adds_space});
  file.finish();
}

void put_file(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

}  // namespace reprise
