// NOR flash simulated in a board's RAM, because no emulated board has writable flash. Its
// operations take time, so that a simulated power cut can interrupt them. The object must be in
// memory that the simulated power cut preserves.
#pragma once

#include <stdint.h>

#include "ports/cortex_m/flash_banks.h"

namespace reprise {

struct RamFlash {
  static constexpr uint32_t kSector = 512, kBank = 4 * kSector, kBytes = 2 * kBank, kWords = kBytes / 4;
  enum Work : uint32_t { kNone, kErase, kProgram };

  alignas(8) uint32_t words[kWords];
  volatile Work work;           // the operation in progress
  volatile uint32_t at, wanted;  // index of the operation's first word; the value that a program operation writes

  Flash flash() {
    return {.state = this,
            .erase = erase,
            .program = program,
            .base = reinterpret_cast<const unsigned char*>(words),
            .sector_bytes = kSector,
            .bytes = kBytes};
  }
  // Sets all bits, as in new flash.
  void clear() {
    work = kNone;
    for (uint32_t& word : words) word = ~0u;
  }
  // Simulates a power cut. `random` decides the outcome of the operation in progress. Its low two
  // bits select: 0: not begun, 1: half done, 2: done, 3: each bit done or not, by chance.
  void tear(uint32_t random) {
    const uint32_t kind = random & 3, count = work == kErase ? kSector / 4 : work == kProgram ? 1 : 0;
    for (uint32_t i = 0; i < count && kind != 0; ++i) {
      random = random * 1664525u + 1013904223u;
      // Mask of the bits of this word that the operation has already set or cleared.
      const uint32_t done = kind == 2 ? ~0u : kind == 1 ? (count == 1 ? 0xffffu : i < count / 2 ? ~0u : 0) : random;
      uint32_t& word = words[at + i];
      word = work == kErase ? word | done : word & (wanted | ~done);
    }
  }

 private:
  static void take_time(uint32_t turns) {
    for (uint32_t turn = 0; turn < turns; ++turn) __asm volatile("" ::: "memory");
  }
  static Status erase(void* state, uint32_t at) {
    RamFlash& flash = *static_cast<RamFlash*>(state);
    flash.at = at / 4;
    flash.work = kErase;
    take_time(10000);
    for (uint32_t i = 0; i < kSector / 4; ++i) flash.words[at / 4 + i] = ~0u;
    flash.work = kNone;
    return ok_status();
  }
  static Status program(void* state, uint32_t at, const void* from, uint32_t bytes) {
    RamFlash& flash = *static_cast<RamFlash*>(state);
    const uint32_t* const words = static_cast<const uint32_t*>(from);
    for (uint32_t i = 0; i < bytes / 4; ++i) {
      flash.at = at / 4 + i;
      flash.wanted = words[i];
      flash.work = kProgram;
      take_time(60);
      flash.words[flash.at] &= words[i];
      flash.work = kNone;
    }
    return ok_status();
  }
};

}  // namespace reprise
