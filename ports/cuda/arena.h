// The arena on a card: taken at once and committed.
//
//   first    addresses reserved and physical memory mapped there, rounded up to the granularity that the driver names
//   then     plain device memory
//   then     of a card that shares its memory with the host: pinned memory of the host, which has the same address for the card; Orin's card
//            keeps none of it in its cache, so that a step takes longer, but it is found where device memory is in pieces
//   else     kOutOfMemory, with the bytes asked for
//
// A card that is integrated shares its memory with the host, and exhausting it can hang the whole machine: there an arena gets the room
// that lib/host_share.h leaves.
//
// An arena that changes its size is mapped memory in pieces, one for each growth, because the driver unmaps whole mappings alone:
//
//   base       piece 0       piece 1              address_bytes
//   | State, the small plan |  the large plan  |  addresses without memory |
#pragma once

#include "lib/port.h"
#include "ports/cuda/card.h"

namespace reprise {

struct CardArena {
  static constexpr uint32_t kMostPieces = 16;
  struct Piece {
    unsigned long long handle;
    uint64_t begin, bytes;
  };
  Arena arena;
  uint64_t address_bytes = 0;  // 0: plain memory, or pinned
  bool is_pinned = false;
  uint64_t granularity = 0;
  uint64_t mapped_bytes = 0;  // the end of the last piece
  Piece pieces[kMostPieces] = {};
  uint32_t piece_count = 0;
};

// `card` must be open; `host` is looked at where the card is integrated. Zero bytes give an empty one.
Status take_card_arena(const CudaDriver& driver, const Card& card, const HostShare& host, uint64_t bytes, CardArena& arena);
void give_card_arena(const CudaDriver& driver, CardArena& arena);

// Addresses alone, then memory as Port::resize_arena says. kUnsupported, with the reason, where the card cannot map memory.
Status reserve_card_arena(const CudaDriver& driver, const Card& card, uint64_t bytes, CardArena& arena);
Status resize_card_arena(const CudaDriver& driver, const Card& card, const HostShare& host, uint64_t bytes, CardArena& arena);

}  // namespace reprise
