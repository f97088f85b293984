// NOR flash made of a board's RAM, whose operations take their time, so that a cut of the power comes in the middle of them.
// Here because no emulated board has flash that it can write. Nothing in it may lie where a cut scrambles.
#pragma once

#include <stdint.h>

#include "ports/cortex_m/flash_banks.h"

namespace reprise {

struct RamFlash {
  static constexpr uint32_t kSector = 512, kBank = 4 * kSector, kBytes = 2 * kBank, kWords = kBytes / 4;
  enum Work : uint32_t { kNone, kErase, kProgram };

  alignas(8) uint32_t words[kWords];
  volatile Work work;           // that is under way
  volatile uint32_t at, wanted;  // its first word, and what it shall become where it is programmed

  Flash flash() {
    return {.state = this, .erase = erase, .program = program, .base = reinterpret_cast<const unsigned char*>(words), .sector_bytes = kSector, .bytes = kBytes};
  }
  // As it comes from the factory.
  void clear() {
    work = kNone;
    for (uint32_t& word : words) word = ~0u;
  }
  // The power is cut: what is under way is left as chance has it, `random` being 32 bits of it; 0, 1 and 2 of its lowest bits: not begun, half done, done.
  void tear(uint32_t random) {
    const uint32_t kind = random & 3, count = work == kErase ? kSector / 4 : work == kProgram ? 1 : 0;
    for (uint32_t i = 0; i < count && kind != 0; ++i) {
      random = random * 1664525u + 1013904223u;
      const uint32_t done = kind == 2 ? ~0u : kind == 1 ? (count == 1 ? 0xffffu : i < count / 2 ? ~0u : 0) : random;  // the bits of a word that are
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
