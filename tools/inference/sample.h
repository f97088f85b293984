// Draws text from a byte-level language model, with the evaluation program it already has.
// Here so that a person can see what a model has learnt.
// It must not need a program of its own: the hidden state is read where the loss head would read it.
#pragma once

#include <string>

#include "lib/trainer.h"

namespace reprise {

// `count` bytes that continue `prompt`, at the given temperature, from the plan's seed. Needs a vocabulary of 256.
Status sample_bytes(Trainer& trainer, const std::string& prompt, uint32_t count, double temperature, std::string& text);

}  // namespace reprise
