// Hugging Face's GPT2Config: its names, defaults and graph. The activation is always gelu_new
// (tanh).
#pragma once

#include "tools/plan/models/model.h"

namespace reprise {

struct Gpt2Model {
  static constexpr const char* kFamily = "gpt2";
  static constexpr HuggingFaceNames kHuggingFace = {"gpt2", "GPT2LMHeadModel"};

  int vocab_size = 50257;
  int n_positions = 1024;
  int n_embd = 768;
  int n_layer = 12;
  int n_head = 12;
  int n_inner = 3072;  // null or absent in the file: 4 * n_embd
  double resid_pdrop = 0.1, embd_pdrop = 0.1, attn_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;

  static Gpt2Model read(const JsonFields& fields);
  static nlohmann::json example();
  nlohmann::json write() const;
  ModelDescription describe() const;
  void check(const RecipeRules& rules, MicroBatch batch) const;
  void build(Graph& graph, MicroBatch batch) const;
  bool operator==(const Gpt2Model&) const = default;
};

}  // namespace reprise
