// Measures the register tiles of this processor on data in its first-level cache, in per cent of
// one core's peak of multiply-adds in registers. So the larger caches are not the reason if a tile
// does not reach the peak. Prints rows of Markdown for tests/bench/pages/TILES.md. Each figure is
// the best of many short runs, because other processes disturb short runs least.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "lib/cpu/gemm/gemm_tile.h"
#include "tests/bench/machine_peak.h"

namespace reprise::bench {
namespace {

constexpr uint32_t kDepth = 256, kMaxLines = 64;

struct Panel {
  static constexpr size_t kFloats = size_t{kDepth} * kMaxLines;
  std::unique_ptr<float, decltype(&std::free)> memory{static_cast<float*>(
                                                          std::aligned_alloc(64, kFloats * sizeof(float))),
                                                      &std::free};

  Panel() {
    for (size_t i = 0; i < kFloats; ++i) memory.get()[i] = 0.001f * static_cast<float>(i % 7);
  }
  float* data() const { return memory.get(); }
};

template <typename Run>
double share_of(double peak, const GemmTile& tile, const Run& run) {
  constexpr int kTrials = 300, kEach = 20;
  double best = 1e9;
  for (int trial = 0; trial < kTrials; ++trial) {
    const double start = seconds_now();
    for (int i = 0; i < kEach; ++i) run();
    best = std::min(best, (seconds_now() - start) / kEach);
  }
  return 100 * 2.0 * tile.mr * tile.nr * kDepth / best / peak;
}

void print(const char* way, double share) {
  share > 0 ? (void)std::printf(" %s %.0f%% |", way, share) : (void)std::printf(" |");
}

void measure(GemmTileChoice choice, double peak) {
  GemmTile tile{};
  if (!find_gemm_tile(choice, tile).ok() || tile.run == nullptr) return;
  const Panel a, b, c;
  const uint32_t rows = tile.rows(), columns = tile.columns();
  const int64_t row_stride = tile.prefers_columns ? 1 : columns, column_stride = tile.prefers_columns ? rows : 1;
  std::printf("| %s |", tile.name);
  print("panels", share_of(peak, tile, [&] {
          tile.run(tile, kDepth, a.data(), b.data(), 0, c.data(), row_stride, column_stride);
        }));
  const DepthOperand by_depths[2] = {{a.data(), rows, 0}, {b.data(), columns, 0}};
  print("depths", tile.run_depths == nullptr ? 0 : share_of(peak, tile, [&] {
          tile.run_depths(rows, kDepth, by_depths[0], by_depths[1], 0, c.data(), columns);
        }));
  RowRun run = {.rows = {}, .depths = kDepth, .ahead = 0};
  for (uint32_t row = 0; row < rows && row < kMaxRowTile; ++row) run.rows[row] = a.data() + row * kDepth;
  print("rows", tile.run_rows == nullptr ? 0 : share_of(peak, tile, [&] {
          tile.run_rows(&run, 1, b.data(), 0, c.data(), columns);
        }));
  std::printf("\n");
}

}  // namespace
}  // namespace reprise::bench

int main() {
  using reprise::GemmTileChoice;
  const double peak = reprise::bench::measure_peak_flops();
  std::printf("peak %.1f GFLOP/s of a core\n", peak / 1e9);
  for (const GemmTileChoice choice :
       {GemmTileChoice::kAvx512, GemmTileChoice::kAvx2, GemmTileChoice::kNeon, GemmTileChoice::kBlis}) {
    reprise::bench::measure(choice, peak);
  }
}
