// AMX's instructions in plain C++, as Intel's manual describes them, and a backend that multiplies
// pairs of bf16 with them. Tests then do not need a processor with AMX.
// lib/cpu/gemm/gemm_amx_tile.h is compiled with this class in place of the processor's
// instructions.
//
// fault() reports the use of a tile register that this thread has not configured. Source: Intel 64
// and IA-32 Architectures Software Developer's Manual, volume 2: LDTILECFG, TILERELEASE, TILEZERO,
// TILELOADD, TILESTORED, TDPBF16PS.
#pragma once

#include <cstdint>
#include <string>

#include "lib/backend.h"
#include "lib/cpu/gemm/gemm_amx_tile.h"

namespace reprise::test {

struct EmulatedAmx {
  static void configure(const AmxConfiguration& configuration);
  static void release();
  template <int kTile>
  static void clear() {
    clear(kTile);
  }
  template <int kTile>
  static void load(const float* from, int64_t row_bytes) {
    load(kTile, from, row_bytes);
  }
  template <int kTile>
  static void store(float* to, int64_t row_bytes) {
    store(kTile, to, row_bytes);
  }
  template <int kSum, int kA, int kB>
  static void multiply() {
    multiply(kSum, kA, kB);
  }

  static void clear(int tile);
  static void load(int tile, const float* from, int64_t row_bytes);
  static void store(int tile, float* to, int64_t row_bytes);
  static void multiply(int sum, int a, int b);

  // Returns what was wrong since the last call of fault(): an instruction without a configuration,
  // a second configuration, or a configuration that was not released. Returns "" if nothing was
  // wrong.
  static std::string fault();
};

// Returns this machine's CPU backend without the processor's own products of bf16. Its tile for
// pairs is the emulated AMX tile.
const Backend& emulated_amx_backend();

}  // namespace reprise::test
