// Decoders of the Llama kind: RMSNorm, rotary positions, grouped heads, a gated MLP. Families differ in biases, in norms, in how far a
// position sees and by which frequencies it turns, in what gates, and in which linear layers are one.
// Field names and defaults are those of Hugging Face's config.json.
#pragma once

#include "tools/models/model.h"
#include "tools/models/rope_parameters.h"

namespace reprise {

// What the code of a family fixes, where another family has a field or nothing.
struct DecoderTraits {
  bool has_attention_bias = false;  // the field attention_bias: biases of q, k, v and o
  bool has_mlp_bias = false;        // the field mlp_bias
  bool biased_qkv = false;          // q, k and v always have biases, o never
  bool norms_heads = false;         // RMSNorm of every head of q and k, before they turn
  int head_dim = 0;                 // of a config without one; 0: hidden_size / num_attention_heads
  int sliding_window = -1;          // the field sliding_window, and what it is in a config without one; -1: no such field
  int full_every = 0;               // every so-manieth layer sees all before it, the others the window (layer_types); 0: all layers the window
  bool fused = false;               // q, k and v are one layer, and so are gate and up
  bool skips_rope = false;          // the field no_rope_layers
  // Gemma's norms (1 + weight, one behind each half, too), gelu in place of silu, embeddings times the root of the width, and the field
  // query_pre_attn_scalar.
  bool is_gemma = false;
  double attention_cap = 0, logit_cap = 0;  // Gemma's attn_logit_softcapping and final_logit_softcapping in a config without them
  double theta = 10000;                     // of a config without one
  double local_theta = 0;                   // layers with a window turn by this base, the field rope_local_base_freq; 0: as all others
  bool tied = false;                        // tie_word_embeddings of a config without it
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
  int sliding_window = 0;           // a position sees at most so many, itself the last of them; 0: all before it
  std::vector<bool> windowed;       // of each layer, whether the window is its own; empty: it is every layer's
  std::vector<int> no_rope_layers;  // of each layer, 1 where its q and k turn and 0 where not; empty: all turn
  double query_pre_attn_scalar = 0;                              // scores are divided by its root; 0: head_dim
  double attn_logit_softcapping = 0, final_logit_softcapping = 0;  // 0: none
  double rms_norm_eps = 1e-6;
  double attention_dropout = 0;
  double initializer_range = 0.02;
  bool attention_bias = false, mlp_bias = false;
  bool tie_word_embeddings = false;
  RopeParameters rope, local_rope;  // local: of layers with a window, in a family where they have their own
  bool operator==(const DecoderModel&) const = default;

  static nlohmann::json example();
  ModelDescription describe() const;
  void check(const RecipeRules& rules, MicroBatch batch) const;

 protected:
  void read(const JsonFields& fields, const DecoderTraits& traits);
  nlohmann::json write(const DecoderTraits& traits) const;
  void build(Graph& graph, MicroBatch batch, const DecoderTraits& traits) const;

 private:
  void read_sizes(const JsonFields& fields, const DecoderTraits& traits);
  void read_window(const JsonFields& fields, const DecoderTraits& traits);
  void read_rope(const JsonFields& fields, const DecoderTraits& traits);
  void fill_rope_layers(int interval);  // each layer of an interval turns, but for the last
  void read_caps(const JsonFields& fields, const DecoderTraits& traits);
};

// A family: its names and traits.
template <typename Family>
struct DecoderFamily : DecoderModel {
  static Family read(const JsonFields& fields);
  nlohmann::json write() const;
  void build(Graph& graph, MicroBatch batch) const;
};

// Touvron et al. 2023, and what has its shape: Llama 2, TinyLlama, SmolLM2, Llama 3.
struct LlamaModel : DecoderFamily<LlamaModel> {
  static constexpr const char* kFamily = "llama";
  static constexpr HuggingFaceNames kHuggingFace = {"llama", "LlamaForCausalLM"};
  static constexpr DecoderTraits kTraits = {.has_attention_bias = true, .has_mlp_bias = true};
  bool operator==(const LlamaModel&) const = default;
};

// Jiang et al. 2023 (2310.06825): Llama's with a window.
struct MistralModel : DecoderFamily<MistralModel> {
  static constexpr const char* kFamily = "mistral";
  static constexpr HuggingFaceNames kHuggingFace = {"mistral", "MistralForCausalLM"};
  static constexpr DecoderTraits kTraits = {.sliding_window = 4096};
  bool operator==(const MistralModel&) const = default;
};

// Yang et al. 2024 (2407.10671), and Qwen2.5.
struct Qwen2Model : DecoderFamily<Qwen2Model> {
  static constexpr const char* kFamily = "qwen2";
  static constexpr HuggingFaceNames kHuggingFace = {"qwen2", "Qwen2ForCausalLM"};
  static constexpr DecoderTraits kTraits = {.biased_qkv = true};
  bool operator==(const Qwen2Model&) const = default;
};

// Yang et al. 2025 (2505.09388).
struct Qwen3Model : DecoderFamily<Qwen3Model> {
  static constexpr const char* kFamily = "qwen3";
  static constexpr HuggingFaceNames kHuggingFace = {"qwen3", "Qwen3ForCausalLM"};
  static constexpr DecoderTraits kTraits = {.has_attention_bias = true, .norms_heads = true, .head_dim = 128};
  bool operator==(const Qwen3Model&) const = default;
};

// Hugging Face's SmolLM3: Llama's, of which every fourth layer has no positions (Yang et al. 2025, 2501.18795).
struct SmolLm3Model : DecoderFamily<SmolLm3Model> {
  static constexpr const char* kFamily = "smollm3";
  static constexpr HuggingFaceNames kHuggingFace = {"smollm3", "SmolLM3ForCausalLM"};
  static constexpr DecoderTraits kTraits = {.has_attention_bias = true, .has_mlp_bias = true, .skips_rope = true, .theta = 2000000, .tied = true};
  bool operator==(const SmolLm3Model&) const = default;
};

// Abdin et al. 2024 (2404.14219), Phi-3.5-mini and Phi-4-mini.
struct Phi3Model : DecoderFamily<Phi3Model> {
  static constexpr const char* kFamily = "phi3";
  static constexpr HuggingFaceNames kHuggingFace = {"phi3", "Phi3ForCausalLM", true};
  static constexpr DecoderTraits kTraits = {.sliding_window = 0, .fused = true};
  bool operator==(const Phi3Model&) const = default;
};

// Gemma Team 2024 (2408.00118).
struct Gemma2Model : DecoderFamily<Gemma2Model> {
  static constexpr const char* kFamily = "gemma2";
  static constexpr HuggingFaceNames kHuggingFace = {"gemma2", "Gemma2ForCausalLM"};
  static constexpr DecoderTraits kTraits = {.has_attention_bias = true, .head_dim = 256, .sliding_window = 4096, .full_every = 2, .is_gemma = true,
                                            .attention_cap = 50, .logit_cap = 30, .tied = true};
  bool operator==(const Gemma2Model&) const = default;
};

// Gemma Team 2025 (2503.19786), what of it reads text.
struct Gemma3Model : DecoderFamily<Gemma3Model> {
  static constexpr const char* kFamily = "gemma3";
  static constexpr HuggingFaceNames kHuggingFace = {"gemma3_text", "Gemma3ForCausalLM"};
  static constexpr DecoderTraits kTraits = {.has_attention_bias = true, .norms_heads = true, .head_dim = 256, .sliding_window = 4096, .full_every = 6,
                                            .is_gemma = true, .theta = 1000000, .local_theta = 10000, .tied = true};
  static nlohmann::json example();  // with rotary positions for each type of layer
  bool operator==(const Gemma3Model&) const = default;
};

}  // namespace reprise
