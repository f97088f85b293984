// A network of the Llama family, made through Graph, and tokens that it can learn.
// Here because no recipe names the family yet, while its ops must be planned, judged and trained together.
#pragma once

#include <vector>

#include "lib/batch.h"
#include "tools/graph/graph.h"
#include "tools/recipes/recipe.h"

namespace reprise {

// Touvron et al. 2023: pre-norm blocks of RMSNorm, rotary positions, grouped heads and SwiGLU, no bias anywhere. q, k and v are one
// linear layer, and so are gate and up.
struct LlamaNetwork {
  uint32_t batch = 2, sequence = 9, vocabulary = 29;
  uint32_t layers = 3, width = 20, hidden = 22;
  uint32_t heads = 4, kv_heads = 2, head = 6;  // heads * head need not be the width
  uint32_t rotary = 6, neighbours = 0;         // RopeAttribute
  float theta = 10000, epsilon = 1e-5f;
  float frequency = 0;  // of every pair of channels, from a table in State; 0: no table
  bool tied = true;

  // Each half of a block is a link. Norms do not decay.
  Graph build(DType stored = DType::kF32) const;
};

// All of a recipe but its model: AdamW, two micro-batches, a clip of the norm.
Recipe llama_recipe(const std::string& name);
// Lion, one micro-batch, each weight updated right after its gradient.
Recipe llama_released_recipe(const std::string& name);

// A micro-batch in which every token follows from the one before it.
struct TokenBatch {
  std::vector<int32_t> tokens, labels;  // [batch, sequence]
};
TokenBatch token_batch(const LlamaNetwork& llama, uint64_t step, uint32_t micro_batch);
BatchSource token_source(LlamaNetwork& llama);

}  // namespace reprise
