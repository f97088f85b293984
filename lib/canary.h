// The pattern that lies where nothing has been written: what is left of it tells the bytes that a plan has used, without asking the plan.
// Here because bind lays it and measured_bytes (trainer.h) looks for it.
#pragma once

#include "lib/trainer.h"

namespace reprise {

constexpr uint32_t kCanary = 0x5EEDFACE;

// Whole words of so many bytes.
Status fill_words(const Trainer& trainer, ArenaAddress to, uint32_t word, uint64_t bytes);

// All of the memory of the host that a plan spills to; nothing of any other plan.
void lay_host_canary(const Trainer& trainer);

}  // namespace reprise
