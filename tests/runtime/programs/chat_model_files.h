// A tiny chat model as files: the folder of a Llama in Hugging Face's format, with a tokenizer and
// a ChatML template, and conversations. Tests of language-model training start from these files, as
// a user does.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace reprise::test {

// Sizes of the model. The table of embeddings is its largest part by far, so that a second copy of
// the model is larger than stacks and code together. Like many published tables it has more rows
// than there are tokens.
inline constexpr uint32_t kChatVocabulary = 8192, kChatWidth = 64;
inline constexpr uint64_t kChatTableBytes = uint64_t{kChatVocabulary} * kChatWidth * sizeof(float);

// Writes config.json, tokenizer.json, tokenizer_config.json and model.safetensors (F32, random
// numbers from a fixed seed).
void write_chat_model(const std::string& folder);

// Returns `count` different records, beginning with record number `first`. Each is a conversation
// about one sum. Records with an even number have a prompt and a completion; the others have a list
// of messages.
std::vector<nlohmann::json> sums_in_words(int first, int count);
void write_lines(const std::string& path, const std::vector<nlohmann::json>& lines);

}  // namespace reprise::test
