// See emulated_amx.h.
#include "tests/ops/emulated_amx.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "lib/bf16.h"
#include "tests/ports/test_machine.h"

namespace reprise::test {
namespace {

constexpr int kRows = 16, kRowBytes = 64, kTiles = 8, kFloats = kRowBytes / 4;

struct TileRegisters {
  bool configured = false;
  unsigned char bytes[kTiles][kRows][kRowBytes] = {};
};
thread_local TileRegisters registers;
std::atomic<int> open{0};
std::atomic<bool> unconfigured{false}, configured_twice{false};

// Returns `value` as an f32, rounded to nearest, ties to even. Returns zero with the sign of
// `value` if the rounded value would be denormal. `value` must be exact, or a sum of two numbers
// that are f32 or products of f32; otherwise it would be rounded twice.
float rounded(double value) {
  const bool tiny = std::fabs(value) < 0x1p-125 && std::fabs(static_cast<float>(value * 0x1p64)) < 0x1p-62f;
  return tiny ? std::copysign(0.0f, std::signbit(value) ? -1.0f : 1.0f) : static_cast<float>(value);
}
float without_denormals(float value) { return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value; }

float bf16_at(const unsigned char* row, int index) {
  uint16_t bits;
  std::memcpy(&bits, row + 2 * index, sizeof bits);
  return without_denormals(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

TileRegisters& in_use() {
  if (!registers.configured) unconfigured = true;
  return registers;
}

// Multiplies pairs in a plain loop. Operands are packed as for AVX512-BF16's tile. Used for depths
// that are too small for AMX.
void run_small(const GemmTile& tile, uint64_t k, const float* a, const float* b, float beta, float* c,
               int64_t row_stride, int64_t) {
  const Bf16 *left = reinterpret_cast<const Bf16*>(a), *right = reinterpret_cast<const Bf16*>(b);
  for (uint32_t i = 0; i < tile.mr; ++i) {
    for (uint32_t j = 0; j < tile.nr; ++j) {
      float sum = 0;
      for (uint64_t p = 0; p < k; ++p) {
        for (uint32_t d = 0; d < 2; ++d)
          sum += float{left[2 * (p * tile.mr + i) + d]} * float{right[2 * (p * tile.nr + j) + d]};
      }
      float& place = c[i * row_stride + j];
      place = beta == 0.0f ? sum : beta * place + sum;
    }
  }
}

}  // namespace

void EmulatedAmx::configure(const AmxConfiguration& configuration) {
  if (registers.configured) configured_twice = true;
  registers = {};
  registers.configured = configuration.palette == 1 && configuration.start_row == 0;
  for (int t = 0; t < kTiles; ++t) {  // requires whole registers, because the library's tile uses no others
    registers.configured =
        registers.configured && configuration.rows[t] == kRows && configuration.row_bytes[t] == kRowBytes;
  }
  ++open;
}

void EmulatedAmx::release() {
  if (!registers.configured) unconfigured = true;
  registers = {};
  --open;
}

void EmulatedAmx::clear(int tile) { std::memset(in_use().bytes[tile], 0, sizeof registers.bytes[tile]); }

void EmulatedAmx::load(int tile, const float* from, int64_t row_bytes) {
  const char* at = reinterpret_cast<const char*>(from);
  for (int i = 0; i < kRows; ++i) std::memcpy(in_use().bytes[tile][i], at + i * row_bytes, kRowBytes);
}

void EmulatedAmx::store(int tile, float* to, int64_t row_bytes) {
  char* at = reinterpret_cast<char*>(to);
  for (int i = 0; i < kRows; ++i) std::memcpy(at + i * row_bytes, in_use().bytes[tile][i], kRowBytes);
}

void EmulatedAmx::multiply(int sum, int a, int b) {
  TileRegisters& r = in_use();
  for (int m = 0; m < kRows; ++m) {
    float first[kFloats] = {}, second[kFloats] = {};  // for each column: sums over first and over second members
    for (int k = 0; k < kFloats; ++k) {
      const double even = bf16_at(r.bytes[a][m], 2 * k), odd = bf16_at(r.bytes[a][m], 2 * k + 1);
      for (int n = 0; n < kFloats; ++n) {
        first[n] = rounded(first[n] + even * double{bf16_at(r.bytes[b][k], 2 * n)});
        second[n] = rounded(second[n] + odd * double{bf16_at(r.bytes[b][k], 2 * n + 1)});
      }
    }
    float total[kFloats];
    std::memcpy(total, r.bytes[sum][m], sizeof total);
    for (int n = 0; n < kFloats; ++n) {
      total[n] = rounded(double{without_denormals(total[n])} + double{rounded(double{first[n]} + double{second[n]})});
    }
    std::memcpy(r.bytes[sum][m], total, sizeof total);
  }
}

std::string EmulatedAmx::fault() {
  std::string found;
  if (unconfigured.exchange(false)) found += "tile registers were used without a configuration; ";
  if (configured_twice.exchange(false)) found += "tile registers were configured twice; ";
  if (open != 0) found += "tile registers stay configured; ";
  return found;
}

const Backend& emulated_amx_backend() {
  static const GemmTile tile = AmxPairTile<EmulatedAmx>::tile();
  static const GemmTile small = {.name = "small",
                                 .mr = 12,
                                 .nr = 32,
                                 .prefers_columns = false,
                                 .run = run_small,
                                 .run_rows = nullptr,
                                 .run_depths = nullptr,
                                 .depths_of_one = 2};
  static CpuMachine machine;
  static const Backend backend = [] {
    const Backend* plain = backend_with(GemmTileChoice::kWidest, std::min(best_vector_level(), VectorLevel::kAvx512));
    machine = *static_cast<const CpuMachine*>(plain->machine);
    machine.pairs = &tile;
    machine.small_pairs = &small;
    std::strcpy(machine.kernel_set, "cpu/emulated/+bf16+amx");
    return cpu_backend(machine);
  }();
  return backend;
}

}  // namespace reprise::test
