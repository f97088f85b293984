// The arena on a card: taken once, whole, and committed at once.
//
//   first    addresses reserved and physical memory mapped there, rounded up to the granularity that the driver names
//   then     plain device memory
//   else     kOutOfMemory, with the bytes asked for
//
// A card that is integrated shares its memory with the host, and exhausting it can hang the whole machine: there an arena gets the room
// that lib/host_share.h leaves.
#pragma once

#include "lib/port.h"
#include "ports/cuda/card.h"

namespace reprise {

struct CardArena {
  Arena arena;
  unsigned long long handle = 0;  // of mapped memory
  uint64_t mapped_bytes = 0;      // 0: plain memory
};

// `card` must be open; `host` is looked at where the card is integrated. Zero bytes give an empty one.
Status take_card_arena(const CudaDriver& driver, const Card& card, const HostShare& host, uint64_t bytes, CardArena& arena);
void give_card_arena(const CudaDriver& driver, CardArena& arena);

}  // namespace reprise
