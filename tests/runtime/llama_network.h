// A network of the Llama family that is built with Graph, and tokens that it can learn. It needs no
// recipe's model, so that tests can combine its ops freely.
#pragma once

#include <optional>
#include <vector>

#include "lib/batch.h"
#include "tools/plan/graph/graph.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {

// Describes one network of pre-norm blocks with RMSNorm, rotary positions, grouped heads and
// SwiGLU, without biases (Touvron et al. 2023).
struct LlamaNetwork {
  uint32_t batch = 2, sequence = 9, vocabulary = 29;
  uint32_t layers = 3, width = 20, hidden = 22;
  uint32_t heads = 4, kv_heads = 2, head = 6;  // heads * head may differ from the width
  uint32_t rotary = 6, neighbours = 0;         // fields of RopeAttribute
  float theta = 10000, epsilon = 1e-5f;
  // Frequency of every pair of channels, from a table in State. 0: no table; frequencies follow
  // from theta.
  float frequency = 0;
  bool tied = true;
  float rope_scale = 1;
  bool head_norms = false;   // each head of q and k is normalised before its rotation (Qwen3)
  // Rank of the adapters. If it is not 0, all linear layers have an adapter, and only adapters are
  // trained.
  uint32_t rank = 0;
  float adapter_scale = 1;
  bool documents = false;    // each sequence contains several documents
  std::optional<PreferenceAttribute> preference = {};  // if set, each sequence has a pair of answers
  uint32_t micro_batches = 2;  // micro-batches in a step; the number of the step's labels depends on it

  // Builds the graph, cut after each half of a block. Norms have no weight decay.
  Graph build(DType stored = DType::kF32) const;
};

// Returns a recipe without a model: AdamW, two micro-batches, and clipping of the gradient's norm.
Recipe llama_recipe(const std::string& name);
// Returns a recipe without a model: Lion, one micro-batch, and each weight updated directly after
// its gradient.
Recipe llama_released_recipe(const std::string& name);

// A micro-batch of tokens, each of which follows from the previous one. If a sequence has several
// documents, they begin with different tokens, and the last token of each document has no label.
struct TokenBatch {
  std::vector<int32_t> tokens, labels;  // [batch, sequence]
  std::vector<int32_t> document_start;  // [batch, sequence], or empty

  uint64_t labelled() const;
};
TokenBatch token_batch(const LlamaNetwork& llama, uint64_t step, uint32_t micro_batch);
BatchSource token_source(LlamaNetwork& llama);

}  // namespace reprise
