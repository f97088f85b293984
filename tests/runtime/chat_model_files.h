// A tiny model that converses, as files: a llama's folder as Hugging Face keeps it, with tokenizer and ChatML template, and conversations.
// Here so that a test of the training of a language model starts where a person does, and says only what must hold.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace reprise::test {

// The table of embeddings is by far the model's largest part, so that a second copy of the model cannot hide among stacks and code; and it has
// more rows than the tokenizer has tokens, as many published ones.
inline constexpr uint32_t kChatVocabulary = 8192, kChatWidth = 64;
inline constexpr uint64_t kChatTableBytes = uint64_t{kChatVocabulary} * kChatWidth * sizeof(float);

// Writes config.json, tokenizer.json, tokenizer_config.json and model.safetensors (F32, drawn from a fixed seed).
void write_chat_model(const std::string& folder);

// `count` conversations of a sum each, no two alike, as lines of a JSONL file; every second one as prompt and completion.
std::vector<nlohmann::json> sums_in_words(int first, int count);
void write_lines(const std::string& path, const std::vector<nlohmann::json>& lines);

}  // namespace reprise::test
