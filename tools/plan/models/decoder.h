// Decoders of the Llama kind: RMSNorm, rotary positions, grouped heads, a gated MLP. Families
// differ in biases, norms, windows, rotary frequencies, the activation of the gate, and which
// linear layers are fused. Field names and defaults are those of Hugging Face's config.json.
#pragma once

#include "tools/plan/models/model.h"
#include "tools/plan/models/rope_parameters.h"

namespace reprise {

// Properties of a family that are fixed in its code. In other families some of them are fields, or
// do not exist.
struct DecoderTraits {
  bool has_attention_bias = false;  // true if there is a field attention_bias: biases of q, k, v and o
  bool has_mlp_bias = false;        // true if there is a field mlp_bias
  bool biased_qkv = false;          // true if q, k and v always have biases, and o never
  bool norms_heads = false;         // true if q and k get an RMSNorm per head, before the rotation
  int head_dim = 0;                 // default of the field head_dim; 0: hidden_size / num_attention_heads
  int sliding_window = -1;          // The default of the field sliding_window; 0: none; -1: there is no such field.
  // Every full_every-th layer sees all earlier positions, and the other layers see the window (the
  // field layer_types). 0: all layers see the window.
  int full_every = 0;
  bool fused = false;               // true if q, k and v are one linear layer, and gate and up another
  bool skips_rope = false;          // true if there is a field no_rope_layers
  // True for Gemma's differences. Norms multiply by 1 + weight, and each half of a block ends with
  // another norm. The gate has gelu instead of silu. Embeddings are multiplied by
  // sqrt(hidden_size). There is a field query_pre_attn_scalar.
  bool is_gemma = false;
  // Defaults of Gemma's fields attn_logit_softcapping and final_logit_softcapping; 0: none.
  double attention_cap = 0, logit_cap = 0;
  double theta = 10000;  // default of rope_theta
  // Default of the field rope_local_base_freq, the base in layers with a window. 0: all layers have
  // the same base.
  double local_theta = 0;
  bool tied = false;  // default of tie_word_embeddings
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
  int sliding_window = 0;            // number of positions that a position sees, itself included; 0: all before it
  std::vector<bool> windowed;        // for each layer: true if it has the window; empty: all have it
  std::vector<int> no_rope_layers;   // for each layer: 1 if its q and k are rotated, else 0; empty: all 1
  double query_pre_attn_scalar = 0;  // scores are divided by the square root of this number; 0: of head_dim
  double attn_logit_softcapping = 0, final_logit_softcapping = 0;  // attention's cap and the logits' cap; 0: none
  double rms_norm_eps = 1e-6;
  double attention_dropout = 0;
  double initializer_range = 0.02;
  bool attention_bias = false, mlp_bias = false;
  bool tie_word_embeddings = false;
  RopeParameters rope, local_rope;  // local_rope: of layers with a window, if the family gives them other parameters
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
  void fill_rope_layers(int interval);  // Marks each layer as rotated, except the last of each `interval` layers.
  void read_caps(const JsonFields& fields, const DecoderTraits& traits);
};

// Reads, writes and builds the models of `Family`, which defines kFamily, kHuggingFace and kTraits.
template <typename Family>
struct DecoderFamily : DecoderModel {
  static Family read(const JsonFields& fields);
  nlohmann::json write() const;
  void build(Graph& graph, MicroBatch batch) const;
};

// Touvron et al. 2023, and models of its shape: Llama 2, TinyLlama, SmolLM2, Llama 3.
struct LlamaModel : DecoderFamily<LlamaModel> {
  static constexpr const char* kFamily = "llama";
  static constexpr HuggingFaceNames kHuggingFace = {"llama", "LlamaForCausalLM"};
  static constexpr DecoderTraits kTraits = {.has_attention_bias = true, .has_mlp_bias = true};
  bool operator==(const LlamaModel&) const = default;
};

// Jiang et al. 2023 (2310.06825): Llama with a window.
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

// Hugging Face's SmolLM3: Llama, with every fourth layer without positions (Yang et al. 2025,
// 2501.18795).
struct SmolLm3Model : DecoderFamily<SmolLm3Model> {
  static constexpr const char* kFamily = "smollm3";
  static constexpr HuggingFaceNames kHuggingFace = {"smollm3", "SmolLM3ForCausalLM"};
  static constexpr DecoderTraits kTraits = {
      .has_attention_bias = true, .has_mlp_bias = true, .skips_rope = true, .theta = 2000000, .tied = true};
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
  static constexpr DecoderTraits kTraits = {.has_attention_bias = true,
                                            .head_dim = 256,
                                            .sliding_window = 4096,
                                            .full_every = 2,
                                            .is_gemma = true,
                                            .attention_cap = 50,
                                            .logit_cap = 30,
                                            .tied = true};
  bool operator==(const Gemma2Model&) const = default;
};

// Gemma Team 2025 (2503.19786), only the part that reads text.
struct Gemma3Model : DecoderFamily<Gemma3Model> {
  static constexpr const char* kFamily = "gemma3";
  static constexpr HuggingFaceNames kHuggingFace = {"gemma3_text", "Gemma3ForCausalLM"};
  static constexpr DecoderTraits kTraits = {.has_attention_bias = true,
                                            .norms_heads = true,
                                            .head_dim = 256,
                                            .sliding_window = 4096,
                                            .full_every = 6,
                                            .is_gemma = true,
                                            .theta = 1000000,
                                            .local_theta = 10000,
                                            .tied = true};
  static nlohmann::json example();  // Returns fields with rotary parameters for each type of layer.
  bool operator==(const Gemma3Model&) const = default;
};

}  // namespace reprise
