// A network of the Llama family, made through Graph, and tokens that it can learn.
// Here because no recipe names the family yet, while its ops must be planned, judged and trained together.
#pragma once

#include <optional>
#include <vector>

#include "lib/batch.h"
#include "tools/graph/graph.h"
#include "tools/recipes/recipe.h"

namespace reprise {

// Touvron et al. 2023: pre-norm blocks of RMSNorm, rotary positions, grouped heads and SwiGLU, no bias anywhere.
struct LlamaNetwork {
  uint32_t batch = 2, sequence = 9, vocabulary = 29;
  uint32_t layers = 3, width = 20, hidden = 22;
  uint32_t heads = 4, kv_heads = 2, head = 6;  // heads * head need not be the width
  uint32_t rotary = 6, neighbours = 0;         // RopeAttribute
  float theta = 10000, epsilon = 1e-5f;
  float frequency = 0;  // of every pair of channels, from a table in State; 0: no table
  bool tied = true;
  float rope_scale = 1;
  bool head_norms = false;   // each head of q and k is normalised before it turns (Qwen3)
  uint32_t rank = 0;         // of the adapters of all linear layers, which then train alone; 0: no adapters
  float adapter_scale = 1;
  bool documents = false;    // a sequence holds several documents
  std::optional<PreferenceAttribute> preference = {};  // a pair in each sequence is judged
  uint32_t micro_batches = 2;  // of a step, whose labels must be counted before it

  // Each half of a block is a link. Norms do not decay.
  Graph build(DType stored = DType::kF32) const;
};

// All of a recipe but its model: AdamW, two micro-batches, a clip of the norm.
Recipe llama_recipe(const std::string& name);
// Lion, one micro-batch, each weight updated right after its gradient.
Recipe llama_released_recipe(const std::string& name);

// A micro-batch in which every token follows from the one before it. Of several documents in a sequence each begins with a token of its own,
// and the last token of one has no label.
struct TokenBatch {
  std::vector<int32_t> tokens, labels;  // [batch, sequence]
  std::vector<int32_t> document_start;  // the same, or empty

  uint64_t labelled() const;
};
TokenBatch token_batch(const LlamaNetwork& llama, uint64_t step, uint32_t micro_batch);
BatchSource token_source(LlamaNetwork& llama);

}  // namespace reprise
