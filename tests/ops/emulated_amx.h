// AMX's instructions in plain C++, as Intel's manual has them, and a backend whose pairs of bf16 are multiplied by them.
// Here because no processor that tests need have AMX; lib/cpu/gemm_amx_tile.h takes these where the library takes the processor's.
//
// A tile register is used only where this thread has configured it, or fault() says so. Intel 64 and IA-32 Architectures Software Developer's
// Manual, volume 2: LDTILECFG, TILERELEASE, TILEZERO, TILELOADD, TILESTORED, TDPBF16PS.
#pragma once

#include <cstdint>
#include <string>

#include "lib/backend.h"
#include "lib/cpu/gemm_amx_tile.h"

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

  // What was wrong since the last call: an instruction without a configuration, one configured twice, or left configured. Empty: nothing.
  static std::string fault();
};

// This machine's kernels for processors without products of bf16, and the emulated tile for pairs.
const Backend& emulated_amx_backend();

}  // namespace reprise::test
