// Snapshots of a board: two banks of flash. One of them always contains the last State that was
// saved completely, whenever the power is cut. So a training of days can continue after its board
// has lost power. lib/state_bank.h defines the content of a bank.
//
//   | bank 0: header, payload, unused ... | bank 1: header, payload, unused ... |
//   (each bank begins with a sector)
//
// A save erases and writes the bank that does not contain the newest State. It writes the header
// last, and reads the bank back. A load checks every byte of both banks before it changes anything.
#pragma once

#include "lib/state_bank.h"

namespace reprise {

// A region of NOR flash, which the application's driver accesses. Erasing sets all bytes of a
// sector to 0xff; programming clears bits. Checksums detect an erase or a program that a power cut
// has interrupted.
struct Flash {
  void* state = nullptr;  // An object of the driver's own, passed to both functions.
  // Erases a sector; `program` writes whole units of kBankUnit bytes. `at` counts from the region's
  // start and is a multiple of sector_bytes or of kBankUnit. No unit is programmed twice between
  // two erases. Both functions return when the flash has finished. save_to_flash() returns their
  // errors.
  Status (*erase)(void* state, uint32_t at) = nullptr;
  Status (*program)(void* state, uint32_t at, const void* words, uint32_t bytes) = nullptr;
  const unsigned char* base = nullptr;  // Address of the region for reading, aligned to 8 bytes.
  uint32_t sector_bytes = 0;            // Bytes of a sector, a multiple of kBankUnit.
  uint32_t bytes = 0;                   // Bytes of both banks: an even number of sectors.
};

// Saves State; call this function between steps. Returns kArenaTooSmall, with the bytes that a bank
// needs, if the banks are too small. Returns kInputOutput if the flash does not contain what was
// written. Also returns any error of the driver. After an error the flash still has the State that
// was saved before. Uses at most 512 bytes of stack in addition to the driver's own, as
// load_from_flash() does.
Status save_to_flash(const Trainer& trainer, const Flash& flash);

// Sets State and step from the newest complete bank. If there is none, sets `found` to false and
// changes nothing: the flash is new, or its first save was interrupted. Returns kUnsupported, with
// the reason and without a change, if the newest bank has another plan, seed or kernel set.
Status load_from_flash(Trainer& trainer, const Flash& flash, bool& found);

}  // namespace reprise
