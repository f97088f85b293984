// See chat_model_files.h. Random numbers are computed from the raw output of the generator, because
// the results of the standard library's distributions differ between systems.
#include "tests/runtime/programs/chat_model_files.h"

#include <filesystem>
#include <random>

#include "tests/runtime/programs/process.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/tokenizer/byte_alphabet.h"

namespace reprise::test {

using nlohmann::json;

namespace {

constexpr uint32_t kInner = 96, kLayers = 2, kHeads = 4, kKeyHeads = 2;

json config() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", kChatVocabulary},
          {"hidden_size", kChatWidth},
          {"intermediate_size", kInner},
          {"num_hidden_layers", kLayers},
          {"num_attention_heads", kHeads},
          {"num_key_value_heads", kKeyHeads},
          {"max_position_embeddings", 256},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000},
          {"tie_word_embeddings", true}};
}

// Returns a tokenizer with one token for every byte, and one for every prefix of a few words.
json tokenizer() {
  json vocabulary = json::object(), merges = json::array(), added = json::array();
  for (int byte = 0; byte < 256; ++byte) vocabulary[alphabet_character(static_cast<uint8_t>(byte))] = byte;
  for (const std::string word : {" plus", " is", "What", "user", "assistant"}) {
    std::string begun;
    for (const char c : word) {
      const std::string next = alphabet_character(static_cast<uint8_t>(c));
      if (!begun.empty()) merges.push_back({begun, next});
      begun += next;
      vocabulary.emplace(begun, vocabulary.size());
    }
  }
  for (const char* content : {"<|im_start|>", "<|im_end|>"}) {
    added.push_back({{"id", vocabulary.size() + added.size()},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

constexpr const char* kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// Returns uniform random numbers in [middle - size, middle + size).
std::vector<float> drawn(std::mt19937& words, uint64_t count, float size, float middle) {
  std::vector<float> numbers(count);
  for (float& number : numbers) number = middle + size * (static_cast<float>(words() >> 8) / 8388608.0f - 1);
  return numbers;
}

void write_weights(const std::string& path) {
  struct Weight {
    std::string name;
    std::vector<uint64_t> shape;
  };
  constexpr uint64_t kHead = kChatWidth / kHeads;
  std::vector<Weight> weights = {{"model.embed_tokens.weight", {kChatVocabulary, kChatWidth}},
                                 {"model.norm.weight", {kChatWidth}}};
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".";
    const Weight of_layer[] = {{"input_layernorm", {kChatWidth}},
                               {"post_attention_layernorm", {kChatWidth}},
                               {"self_attn.q_proj", {kHeads * kHead, kChatWidth}},
                               {"self_attn.k_proj", {kKeyHeads * kHead, kChatWidth}},
                               {"self_attn.v_proj", {kKeyHeads * kHead, kChatWidth}},
                               {"self_attn.o_proj", {kChatWidth, kHeads * kHead}},
                               {"mlp.gate_proj", {kInner, kChatWidth}},
                               {"mlp.up_proj", {kInner, kChatWidth}},
                               {"mlp.down_proj", {kChatWidth, kInner}}};
    for (const Weight& weight : of_layer) weights.push_back({name + weight.name + ".weight", weight.shape});
  }
  SafetensorsWriter writer(path);
  writer.add_metadata("format", "pt");
  for (const Weight& weight : weights) writer.declare(weight.name, StoredType::kF32, weight.shape);
  std::mt19937 words(16);
  for (const Weight& weight : weights) {
    const bool is_norm = weight.shape.size() == 1;
    const uint64_t count = weight.shape[0] * (is_norm ? 1 : weight.shape[1]);
    const std::vector<float> numbers = drawn(words, count, 0.15f, is_norm ? 1.0f : 0.0f);
    writer.write(numbers.data(), numbers.size() * sizeof(float));
  }
  writer.finish();
}

}  // namespace

void write_chat_model(const std::string& folder) {
  std::filesystem::create_directories(folder);
  write_text(folder + "/config.json", config().dump(1));
  write_text(folder + "/tokenizer.json", tokenizer().dump(1));
  write_text(folder + "/tokenizer_config.json",
             json{{"eos_token", "<|im_end|>"}, {"pad_token", "<|im_end|>"}, {"chat_template", kChatMl}}.dump(1));
  write_weights(folder + "/model.safetensors");
}

std::vector<json> sums_in_words(int first, int count) {
  std::vector<json> lines;
  for (int i = first; i < first + count; ++i) {
    const std::string a = std::to_string(i % 7), b = std::to_string(i / 7), sum = std::to_string(i % 7 + i / 7);
    const std::string asked = "What is " + a + " plus " + b + "?", answered = a + " plus " + b + " is " + sum + ".";
    if (i % 2 == 0) {
      lines.push_back({{"prompt", asked}, {"completion", answered}});
    } else {
      lines.push_back(
          {{"messages", {{{"role", "user"}, {"content", asked}}, {{"role", "assistant"}, {"content", answered}}}}});
    }
  }
  return lines;
}

void write_lines(const std::string& path, const std::vector<json>& lines) {
  std::string text;
  for (const json& line : lines) text += line.dump() + "\n";
  write_text(path, text);
}

}  // namespace reprise::test
