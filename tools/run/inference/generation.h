// Continues a text: draws one token after another from the model's prediction of the next token. A
// program thus answers prompts before and after a training, in the plan's own memory.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lib/trainer.h"

namespace reprise {

// How tokens are drawn, and when the text ends.
struct GenerationOptions {
  uint32_t tokens = 100;         // maximum length of the answer
  double temperature = 0;        // 0: always takes the likeliest token
  uint32_t top_k = 0;            // number of likeliest tokens from which one is drawn; 0: all
  // Tokens are drawn from the fewest of these tokens, likeliest first, whose probabilities sum to
  // at least top_p. 1: from all of these tokens.
  double top_p = 1;
  uint64_t seed = 0;
  uint64_t drawn = 0;                // number of tokens that were drawn with this seed before
  std::vector<int32_t> stop;         // each token in this list ends the text, and is not part of it
  std::vector<int32_t> never;        // ids for which the tokenizer has no token
  std::function<bool()> stops = {};  // called after each token; returns true to end the text
};

// Returns the plan's limits. Throws UserError if the plan has no program that generates.
GenerationLimits require_generation(const Plan& plan);

// Sets the logits of tokens that top_k and top_p exclude to -inf. Among equal logits, the lower id
// counts as likelier.
void keep_likeliest(std::vector<float>& logits, const GenerationOptions& options);

// Returns the tokens that continue `prompt`, which must not be empty. If `see` is set, it is called
// with each token that is drawn, and returns false to stop. The answer ends at the plan's sequence
// length. Throws UserError if the prompt leaves no position for an answer. The caches must already
// contain the first `known` tokens of the prompt; they are not computed again. `known` must be less
// than the prompt's length.
std::vector<int32_t> generate_tokens(Trainer& trainer, const std::vector<int32_t>& prompt,
                                     const GenerationOptions& options, const std::function<bool(int32_t)>& see = {},
                                     uint64_t known = 0);

}  // namespace reprise
