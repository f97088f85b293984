// The arena on a card. All its bytes are acquired in the first of these ways that succeeds:
//
//   mapped   physical memory, mapped at reserved addresses, rounded up to the driver's granularity
//   plain    device memory
//   pinned   on a card that shares its memory with the host: pinned memory of the host, which
//            has the same address for the card. Orin's card does not cache it, so a step takes
//            longer, but it is available where device memory is fragmented.
//   none     if no way succeeds: kOutOfMemory, with the bytes as the detail
//
// An integrated card shares its memory with the host, and exhausting that memory can hang the
// machine. So the arena on such a card gets only the bytes that lib/host_share.h leaves.
//
// An arena that changes its size is mapped memory in pieces, one for each growth, because the
// driver unmaps only whole mappings.
//
//   base       piece 0       piece 1              address_bytes
//   | State, the small plan |  the large plan  |  addresses without memory |
#pragma once

#include "lib/port.h"
#include "ports/cuda/card.h"

namespace reprise {

// An arena on a card.
struct CardArena {
  static constexpr uint32_t kMaxPieces = 16;  // The maximum number of growths.
  // One mapping: the handle that the driver gave it, and its first byte and size in the arena.
  struct Piece {
    unsigned long long handle;
    uint64_t begin, bytes;
  };
  Arena arena;                 // The arena as the port returns it.
  uint64_t address_bytes = 0;  // Bytes of reserved addresses; 0: plain or pinned memory.
  bool is_pinned = false;      // The arena is pinned memory of the host.
  uint64_t granularity = 0;    // Bytes of the driver's mapping unit; 0: the arena is not mapped.
  uint64_t mapped_bytes = 0;   // End of the last piece.
  Piece pieces[kMaxPieces] = {};
  uint32_t piece_count = 0;  // Number of pieces in use.
};

// Acquires an arena of `bytes` bytes; for 0 bytes the arena is empty. `card` must be open. `host`
// is used only for an integrated card. Returns kOutOfMemory, with the reason, if there is not
// enough memory.
Status take_card_arena(const CudaDriver& driver, const Card& card, const HostShare& host, uint64_t bytes,
                       CardArena& arena);
// Frees an arena; an empty one is allowed.
void give_card_arena(const CudaDriver& driver, CardArena& arena);

// Reserves `bytes` bytes of addresses without memory. Returns kUnsupported, with the reason, if the
// card cannot map memory.
Status reserve_card_arena(const CudaDriver& driver, const Card& card, uint64_t bytes, CardArena& arena);
// Changes the size of a reserved arena, as Port::resize_arena does.
Status resize_card_arena(const CudaDriver& driver, const Card& card, const HostShare& host, uint64_t bytes,
                         CardArena& arena);

}  // namespace reprise
