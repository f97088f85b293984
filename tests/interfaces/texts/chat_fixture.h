// A fixture for tests of conversations. It has a model's folder whose tokens are bytes, two control
// tokens and a chat template. Several test programs use it.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/texts/small_tokenizer.h"
#include "tools/files/chat/chat_tokens.h"
#include "tools/files/tokenizer/byte_alphabet.h"
#include "tools/run/data/dataset.h"

namespace reprise {

using Json = nlohmann::ordered_json;

// The control tokens <|s|> and <|e|>. The smaller ids are the bytes.
inline constexpr int32_t kBegin = 256, kEnd = 257;

// Returns a tokenizer.json with one token for every byte, the two control tokens and no merges. Its
// normalizer is NFC if `composes`, and otherwise null.
inline nlohmann::json byte_tokenizer(bool composes) {
  nlohmann::json tokenizer = {
      {"version", "1.0"},
      {"added_tokens", nlohmann::json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", nlohmann::json::object()}, {"merges", nlohmann::json::array()}}}};
  if (composes) tokenizer["normalizer"] = {{"type", "NFC"}};
  for (int byte = 0; byte < 256; ++byte)
    tokenizer["model"]["vocab"][alphabet_character(static_cast<uint8_t>(byte))] = byte;
  for (const auto& [id, content] : {std::pair(kBegin, "<|s|>"), std::pair(kEnd, "<|e|>")}) {
    tokenizer["added_tokens"].push_back({{"id", id},
                                         {"content", content},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false},
                                         {"special", true}});
  }
  return tokenizer;
}

inline constexpr const char* kTurns =
    "{% for m in messages %}{{ '<|s|>' + m.role + '\\n' + m.content + '<|e|>\\n' }}{% endfor %}{% if "
    "add_generation_prompt %}{{ '<|s|>assistant\\n' }}{% endif %}";
inline constexpr const char* kMarked =
    "{% for m in messages %}{{ '<|s|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + "
    "'<|e|>' }}{% endgeneration %}"
    "{% else %}{{ m.content + '<|e|>' }}{% endif %}{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|s|>assistant\\n' }}{% endif %}";

class Chat : public testing::Test {
 protected:
  void SetUp() override {
    put_file(folder.file("tokenizer.json"), byte_tokenizer(false).dump());
    put_file(folder.file("tokenizer_config.json"), R"({"eos_token": "<|e|>"})");
    put_file(folder.file("chat_template.jinja"), kTurns);
    put_file(folder.file("config.json"),
             R"({"model_type": "llama", "vocab_size": 258, "hidden_size": 16, "intermediate_size": 16,
      "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64})");
  }

  ChatRecord read(const Json& sample, TrainOn train_on = TrainOn::kAssistant) const {
    return ChatModel(ModelFiles::open(folder.path()), settings).read(sample, train_on, "x");
  }
  ChatTokens tokens_of(const Json& sample, TrainOn train_on = TrainOn::kAssistant) const {
    return joined(read(sample, train_on).samples);
  }

  // Returns the text of all learned tokens, with one "|" for each gap between them.
  std::string learned(const Json& sample, TrainOn train_on = TrainOn::kAssistant) const {
    const ChatTokens tokens = tokens_of(sample, train_on);
    const auto tokenizer = Tokenizer::open(folder.path());
    EXPECT_EQ(tokens.ids.size(), tokens.labels.size());
    std::string text;
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      if (tokens.labels[i] == kIgnoredLabel) {
        if (!text.empty() && text.back() != '|') text += '|';
      } else {
        EXPECT_EQ(tokens.labels[i], tokens.ids[i]);
        text += tokenizer->token(tokens.ids[i]);
      }
    }
    return text;
  }

  Recipe recipe(const std::string& lines, const nlohmann::json& data, int sequence = 32, int batch = 2) const {
    put_file(folder.file("x.jsonl"), lines);
    nlohmann::json all = {{"model", {{"huggingface", folder.path()}}},
                          {"batch", batch},
                          {"sequence", sequence},
                          {"data",
                           {{"kind", "chat"},
                            {"path", folder.file("x.jsonl")},
                            {"eval_path", folder.file("x.jsonl")},
                            {"shuffle", false}}}};
    all["data"].update(data);
    return parse_recipe(all.dump(), "r.json", "/");
  }

  const TemporaryFolder folder;
  ChatSettings settings;
};

inline Json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }
inline Json chat_of(std::initializer_list<Json> messages) { return {{"messages", Json(Json::array_t(messages))}}; }

}  // namespace reprise
