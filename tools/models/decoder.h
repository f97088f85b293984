// Decoders of the Llama kind: RMSNorm, rotary positions, grouped heads, SwiGLU. Families differ in biases, in a norm of q and k, and in how
// far a position sees.
// Field names and defaults are those of Hugging Face's config.json.
#pragma once

#include "tools/models/model.h"
#include "tools/models/rope_parameters.h"

namespace reprise {

// What the code of a family fixes, where another family has a field or nothing.
struct DecoderTraits {
  bool has_attention_bias;  // the field attention_bias: biases of q, k, v and o
  bool has_mlp_bias;        // the field mlp_bias
  bool biased_qkv;          // q, k and v always have biases, o never
  bool norms_heads;         // RMSNorm of every head of q and k, before they turn
  int head_dim;             // of a config without one; 0: hidden_size / num_attention_heads
  int sliding_window = -1;  // the field sliding_window, of every layer, and what it is in a config without one; -1: no such field
};

struct DecoderModel {
  int vocab_size = 32000;
  int hidden_size = 4096;
  int intermediate_size = 11008;
  int num_hidden_layers = 32;
  int num_attention_heads = 32;
  int num_key_value_heads = 32;
  int head_dim = 128;
  int max_position_embeddings = 2048;
  int sliding_window = 0;  // a position sees at most so many, itself the last of them; 0: all before it
  double rms_norm_eps = 1e-6;
  double attention_dropout = 0;
  double initializer_range = 0.02;
  bool attention_bias = false, mlp_bias = false;
  bool tie_word_embeddings = false;
  RopeParameters rope;
  bool operator==(const DecoderModel&) const = default;

  static nlohmann::json example();
  ModelDescription describe() const;
  void check(const RecipeRules& rules, MicroBatch batch) const;

 protected:
  void read(const JsonFields& fields, const DecoderTraits& traits);
  void read_window(const JsonFields& fields, const DecoderTraits& traits);
  nlohmann::json write(const DecoderTraits& traits) const;
  void build(Graph& graph, MicroBatch batch, const DecoderTraits& traits) const;
};

// A family: its names and traits.
template <typename Family>
struct DecoderFamily : DecoderModel {
  static Family read(const JsonFields& fields);
  nlohmann::json write() const;
  void build(Graph& graph, MicroBatch batch) const;
};

// Touvron et al. 2023, and what has its shape: SmolLM2, Llama 3.
struct LlamaModel : DecoderFamily<LlamaModel> {
  static constexpr const char* kFamily = "llama";
  static constexpr HuggingFaceNames kHuggingFace = {"llama", "LlamaForCausalLM"};
  static constexpr DecoderTraits kTraits = {.has_attention_bias = true, .has_mlp_bias = true, .biased_qkv = false, .norms_heads = false, .head_dim = 0};
  bool operator==(const LlamaModel&) const = default;
};

// Jiang et al. 2023 (2310.06825): Llama's with a window.
struct MistralModel : DecoderFamily<MistralModel> {
  static constexpr const char* kFamily = "mistral";
  static constexpr HuggingFaceNames kHuggingFace = {"mistral", "MistralForCausalLM"};
  static constexpr DecoderTraits kTraits = {
      .has_attention_bias = false, .has_mlp_bias = false, .biased_qkv = false, .norms_heads = false, .head_dim = 0, .sliding_window = 4096};
  bool operator==(const MistralModel&) const = default;
};

// Yang et al. 2024 (2407.10671), and Qwen2.5.
struct Qwen2Model : DecoderFamily<Qwen2Model> {
  static constexpr const char* kFamily = "qwen2";
  static constexpr HuggingFaceNames kHuggingFace = {"qwen2", "Qwen2ForCausalLM"};
  static constexpr DecoderTraits kTraits = {.has_attention_bias = false, .has_mlp_bias = false, .biased_qkv = true, .norms_heads = false, .head_dim = 0};
  bool operator==(const Qwen2Model&) const = default;
};

// Yang et al. 2025 (2505.09388).
struct Qwen3Model : DecoderFamily<Qwen3Model> {
  static constexpr const char* kFamily = "qwen3";
  static constexpr HuggingFaceNames kHuggingFace = {"qwen3", "Qwen3ForCausalLM"};
  static constexpr DecoderTraits kTraits = {.has_attention_bias = true, .has_mlp_bias = false, .biased_qkv = false, .norms_heads = true, .head_dim = 128};
  bool operator==(const Qwen3Model&) const = default;
};

}  // namespace reprise
