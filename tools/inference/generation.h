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
  uint64_t seed = 0;
  std::vector<int32_t> stop;     // a token of these ends the text and does not belong to it
  std::vector<int32_t> never;    // these are not drawn: ids of the model that are no tokens
};

// `prompt` is not empty. `see`, where given, gets every token as it is drawn and answers whether to go on. A prompt and answer longer
// than the plan's sequence end there; a prompt that leaves no room is refused (UserError).
std::vector<int32_t> generate_tokens(Trainer& trainer, const std::vector<int32_t>& prompt, const GenerationOptions& options,
                                     const std::function<bool(int32_t)>& see = {});

}  // namespace reprise
