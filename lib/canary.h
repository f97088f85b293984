// The canary: a pattern that bind() writes into memory before the first row runs. A byte without
// the pattern has been used by the plan. measured_bytes() (trainer.h) looks for the pattern, so
// that use is measured and not computed from the plan.
#pragma once

#include "lib/trainer.h"

namespace reprise {

// The pattern, one 4-byte word.
constexpr uint32_t kCanary = 0x5EEDFACE;

// Fills `bytes` bytes of the arena from `to` on with `word`. If `bytes` is not a multiple of 4, the
// last one to three bytes keep their content. The backend may only enqueue the operation.
Status fill_words(const Trainer& trainer, ArenaAddress to, uint32_t word, uint64_t bytes);

// Fills the spill region in host memory with the canary, after the offloaded tensors. Does nothing
// if the plan does not spill to the host.
void lay_host_canary(const Trainer& trainer);

}  // namespace reprise
