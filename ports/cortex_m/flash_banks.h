// Snapshots of a board: two banks of flash, of which one always holds the last State that was saved whole, wherever the power is cut.
// Here because a training of days outlives its board's power; what a bank holds is lib/state_bank.h's.
//
//   | bank 0: seal, payload, unused ... | bank 1: seal, payload, unused ... |      each begins with a sector
//
// A save erases and writes the bank that does not hold the newest State, its seal last, and reads it back. A load looks at every byte of both banks
// before it changes anything.
#pragma once

#include "lib/state_bank.h"

namespace reprise {

// A region of NOR flash, which the application's driver reaches. Erasing makes all bytes of a sector 0xff; programming clears bits. Whatever a cut
// of the power leaves of either is found by the checksums.
struct Flash {
  void* state = nullptr;  // the driver's
  // `at` counts from the region's start: a multiple of sector_bytes for erase, of kBankUnit for program, which gets whole units. Nothing is
  // programmed twice after an erase. Both return when it is done; their faults are the application's to read.
  Status (*erase)(void* state, uint32_t at) = nullptr;
  Status (*program)(void* state, uint32_t at, const void* words, uint32_t bytes) = nullptr;
  const unsigned char* base = nullptr;  // where the region is read as memory, aligned to 8 bytes
  uint32_t sector_bytes = 0;            // whole units
  uint32_t bytes = 0;                   // both banks: an even number of sectors
};

// Between steps. kArenaTooSmall, with the bytes that a bank must have, where it holds too little; kInputOutput where the flash does not hold what was
// written; what the driver says, where that fails. After any of them the State that was saved before is still there.
// It takes 512 bytes of stack at most beside the driver's, and so does load_from_flash.
Status save_to_flash(const Trainer& trainer, const Flash& flash);

// State and step become those of the newest whole bank. `found` is false, and nothing has changed, where there is none: flash that is new, or whose
// first save was cut. kUnsupported, with why and nothing changed, where the newest bank is of another plan, seed or kernel set.
Status load_from_flash(Trainer& trainer, const Flash& flash, bool& found);

}  // namespace reprise
