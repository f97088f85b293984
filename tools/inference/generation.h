// Goes on with a text: one token after another, each drawn from what the model says of the next one.
// Here because a program answers prompts before, during and after a training, from the plan's own memory.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lib/trainer.h"

namespace reprise {

struct GenerationOptions {
  uint32_t tokens = 100;         // at most
  double temperature = 0;        // 0: always the likeliest
  uint32_t top_k = 0;            // drawn from the so many likeliest; 0: from all
  double top_p = 1;              // and from the fewest of these whose probabilities add up to so much of theirs
  uint64_t seed = 0;
  uint64_t drawn = 0;            // so many were drawn with the seed before
  std::vector<int32_t> stop;     // a token of these ends the text and does not belong to it
  std::vector<int32_t> never;    // these are not drawn: ids of the model that are no tokens
  std::function<bool()> stops = {};  // asked behind each token; true ends the text
};

// The plan's, which must have a program that generates (UserError).
GenerationLimits require_generation(const Plan& plan);

// The logits of tokens that top_k and top_p leave out become -inf. Of equal logits that of the lower id counts as likelier.
void keep_likeliest(std::vector<float>& logits, const GenerationOptions& options);

// `prompt` is not empty. `see`, where given, gets every token as it is drawn and answers whether to go on. A prompt and answer longer
// than the plan's sequence end there; a prompt that leaves no room is refused (UserError). `known`: so many of the prompt's first tokens, but
// not all, are still what the caches hold, and are not computed again.
std::vector<int32_t> generate_tokens(Trainer& trainer, const std::vector<int32_t>& prompt, const GenerationOptions& options,
                                     const std::function<bool(int32_t)>& see = {}, uint64_t known = 0);

}  // namespace reprise
