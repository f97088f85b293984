// Draws text from a byte-level language model, so that a user can see what it has learned. It uses
// the evaluation program and recomputes the logits (logits.h); it needs no program of its own.
#pragma once

#include <string>

#include "lib/trainer.h"

namespace reprise {

// Writes to `text` the prompt and `count` bytes that continue it, drawn at the given temperature
// with the plan's seed. Requires a vocabulary of 256.
Status sample_bytes(Trainer& trainer, const std::string& prompt, uint32_t count, double temperature, std::string& text);

}  // namespace reprise
