// Compares products of pairs of bf16 with naive loops in double. Tests the tile's contract, the
// ends of packed operands, and which values are rounded. Results are stored as f32, because results
// in bf16 would hide the rounding of single weights. The reference does not use the library's
// packing. A machine without a tile for pairs tests the fallback to f32 instead.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "lib/cpu/gemm/products.h"
#include "tests/ops/emulated_amx.h"
#include "tests/ops/random_floats.h"
#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {
namespace {

std::vector<Bf16> random_bf16(size_t count, uint32_t seed) {
  const std::vector<float> values = random_floats(count, seed);
  return {values.begin(), values.end()};
}

// Returns the tolerance of an f32 sum of `depth` products of values in [-1, 1], in any order.
double tolerance(uint64_t depth) { return 2e-7 * (4.0 + 4.0 * std::sqrt(static_cast<double>(depth))); }

// Returns the kernels for a processor without instructions for products of bf16.
const Backend& without_products() {
  return *backend_with(GemmTileChoice::kFastest, std::min(best_vector_level(), VectorLevel::kAvx512));
}
const GemmTile* pair_tile_of(const Backend& backend) { return static_cast<const CpuMachine*>(backend.machine)->pairs; }

TEST(PairTile, IsPartOfTheKernelSetsName) {
  EXPECT_EQ(pair_tile_of(test_backend()) != nullptr, std::strstr(test_backend().kernel_set, "+bf16") != nullptr);
  EXPECT_EQ(pair_tile_of(without_products()), nullptr);
  EXPECT_EQ(std::strstr(without_products().kernel_set, "+bf16"), nullptr);
}

TEST(PairTile, TheLevelOfAnotherProcessorIsRefused) {
#if defined(__aarch64__)
  const VectorLevel foreign[] = {VectorLevel::kAvx2, VectorLevel::kAvx512Bf16, VectorLevel::kAvx512Amx};
#else
  const VectorLevel foreign[] = {VectorLevel::kNeonBf16};
#endif
  CpuMachine machine;
  for (const VectorLevel level : foreign)
    EXPECT_EQ(choose_cpu_machine(machine, GemmTileChoice::kBaseline, level).code, Code::kUnsupported);
}

// Packs `width` lines of 2 * pairs numbers into a panel. `group` consecutive pairs of a line are
// adjacent in the panel.
std::vector<float> panel_of(const std::vector<Bf16>& lines, uint32_t width, uint32_t pairs, uint32_t group) {
  std::vector<float> panel(size_t{pairs} * width + kPanelSlack + 16);
  for (uint32_t k = 0; k < pairs; ++k) {
    for (uint32_t i = 0; i < width; ++i) {
      std::memcpy(&panel[(k / group * width + i) * group + k % group], &lines[(size_t{i} * pairs + k) * 2], 4);
    }
  }
  return panel;
}

// Compares `run`, `run_rows` and `run_lines` with GemmTile's contract. Returns the first fault, or
// "" if there is none.
std::string contract_fault(const GemmTile& tile, uint32_t pairs, float beta) {
  const uint32_t rows = tile.rows(), columns = tile.columns(), lead = columns + 5;
  const std::string id = std::to_string(pairs) + " pairs, element ";
  const std::vector<Bf16> a = random_bf16(size_t{rows} * pairs * 2, 1), b = random_bf16(size_t{columns} * pairs * 2, 2);
  alignas(64) float a_panel[kKc * kMaxMr + kPanelSlack], b_panel[kKc * kMaxNr + kPanelSlack];
  std::memcpy(a_panel, panel_of(a, rows, pairs, tile.group_of_a).data(), size_t{pairs} * rows * 4);
  std::memcpy(b_panel, panel_of(b, columns, pairs, tile.group_of_b).data(), size_t{pairs} * columns * 4);
  const std::vector<float> start(size_t{lead} * rows, beta == 0.0f ? std::numeric_limits<float>::quiet_NaN() : 0.5f);
  std::vector<float> packed = start, as_they_lie = start;
  tile.run(tile, pairs, a_panel, b_panel, beta, packed.data(), lead, 1);
  if (tile.run_rows != nullptr) {
    RowRun runs[2];
    const uint32_t first = pairs / 3;  // depths of the first of two runs; 0 if pairs < 3, which makes this run empty
    for (uint32_t i = 0; i < rows; ++i) {
      runs[0].rows[i] = reinterpret_cast<const float*>(a.data()) + i * pairs;
      runs[1].rows[i] = runs[0].rows[i] + first;
    }
    runs[0].depths = first, runs[1].depths = pairs - first;
    runs[0].ahead = 0, runs[1].ahead = 64;
    tile.run_rows(runs, 2, b_panel, beta, as_they_lie.data(), lead);
    if (std::memcmp(packed.data(), as_they_lie.data(), packed.size() * 4) != 0) return id + "of rows as they lie";
  }
  if (tile.run_lines != nullptr) {
    as_they_lie = start;
    tile.run_lines(pairs, reinterpret_cast<const float*>(a.data()), pairs, b_panel, beta, as_they_lie.data(), lead);
    if (std::memcmp(packed.data(), as_they_lie.data(), packed.size() * 4) != 0) return id + "of lines as they lie";
  }
  for (uint32_t i = 0; i < rows; ++i) {
    for (uint32_t j = 0; j < lead; ++j) {
      const float got = packed[i * lead + j];
      double want = beta == 0.0f ? 0.0 : beta * 0.5;
      for (uint32_t k = 0; j < columns && k < 2 * pairs; ++k)
        want += double{a[size_t{i} * pairs * 2 + k]} * double{b[size_t{j} * pairs * 2 + k]};
      const bool right =
          j < columns ? std::fabs(got - want) <= tolerance(2 * pairs) : std::memcmp(&got, &start[0], 4) == 0;
      if (!right) return id + std::to_string(i) + ", " + std::to_string(j);
    }
  }
  return "";
}

std::string contract_fault(const GemmTile& tile) {
  const gemm_detail::TileScope scope(tile);
  for (const uint32_t groups : {1u, 2u, 15u, 16u, 17u, 100u}) {
    for (const float beta : {0.0f, 1.0f, 0.75f}) {
      const uint32_t pairs = static_cast<uint32_t>(smaller(groups, kKc / tile.group()) * tile.group());
      const std::string fault = contract_fault(tile, pairs, beta);
      if (!fault.empty()) return std::string(tile.name) + ": " + fault;
    }
  }
  return "";
}

TEST(PairTile, MatchesItsContract) {
  const GemmTile* tile = pair_tile_of(test_backend());
  if (tile == nullptr) GTEST_SKIP() << "no products of bf16 here";
  EXPECT_EQ(contract_fault(*tile), "");
}

// ---- AMX, emulated ------------------------------------------------------------------------------

TEST(Amx, MatchesItsContract) {
  EXPECT_EQ(contract_fault(*pair_tile_of(emulated_amx_backend())), "");
  EXPECT_EQ(EmulatedAmx::fault(), "");
}

struct OtherHalfOfB : EmulatedAmx {
  template <int kSum, int kA, int kB>
  static void multiply() {
    EmulatedAmx::multiply(kSum, kA, kSum == 3 ? 6 : kB);
  }
};
struct SumsOfBefore : EmulatedAmx {
  template <int kTile>
  static void clear() {}
};
struct RowsTooNear : EmulatedAmx {
  template <int kTile>
  static void load(const float* from, int64_t row_bytes) {
    EmulatedAmx::load(kTile, from, kTile == 5 ? row_bytes - 4 : row_bytes);
  }
};
TEST(Amx, WrongTilesAreSeen) {
  EXPECT_NE(contract_fault(AmxPairTile<OtherHalfOfB>::tile()), "");
  EXPECT_NE(contract_fault(AmxPairTile<SumsOfBefore>::tile()), "");
  EXPECT_NE(contract_fault(AmxPairTile<RowsTooNear>::tile()), "");
  EXPECT_EQ(EmulatedAmx::fault(), "");
}

// Returns one element of a product of 16 x 16 x 16 pairs, added to `start`. `a` is the first row of
// A, and `b` is the first column of B.
float one_sum(const std::vector<float>& a, const std::vector<float>& b, float start) {
  Bf16 rows[16][32], depths[16][32];
  float sums[16][16] = {{start}};
  for (auto& row : rows) std::fill(std::begin(row), std::end(row), Bf16(0.0f));
  for (auto& row : depths) std::fill(std::begin(row), std::end(row), Bf16(0.0f));
  for (size_t k = 0; k < a.size(); ++k) rows[0][k] = a[k], depths[k / 2][k % 2] = b[k];
  EmulatedAmx::configure(kAmxConfiguration);
  EmulatedAmx::load(0, &sums[0][0], 64);
  EmulatedAmx::load(1, reinterpret_cast<const float*>(rows), 64);
  EmulatedAmx::load(2, reinterpret_cast<const float*>(depths), 64);
  EmulatedAmx::multiply(0, 1, 2);
  EmulatedAmx::store(0, &sums[0][0], 64);
  EmulatedAmx::release();
  return sums[0][0];
}

// The expected values were computed by hand from the manual's pseudocode.
TEST(Amx, TheEmulationAddsInTheManualsOrder) {
  EXPECT_EQ(one_sum({1, 2, 3, 4}, {5, 6, 7, 8}, 10), 80.0f);
  // The products of first members are 2^24 and 1. Their sum is half way between two f32 and rounds
  // to the even f32, 2^24, so the 1 is lost. The products of second members, 1 and 1, are summed
  // separately, so they are kept. In one sum in the order of the depth, every 1 would be lost.
  EXPECT_EQ(one_sum({0x1p12f, 1, 1, 1}, {0x1p12f, 1, 1, 1}, 0), 0x1p24f + 2);
  // The old value, 2^24, is added last, to the sum 1 + 1.
  EXPECT_EQ(one_sum({1, 1}, {1, 1}, 0x1p24f), 0x1p24f + 2);
  // 2^25 + 3 is three quarters of the way from 2^25 to 2^25 + 4, so it rounds up.
  EXPECT_EQ(one_sum({1}, {3}, 0x1p25f), 0x1p25f + 4);
  // A result of 2^-126, the smallest normal number, is kept. Half of this number would be denormal
  // and becomes zero. A denormal operand or old value also becomes zero.
  EXPECT_EQ(one_sum({0x1p-63f}, {0x1p-63f}, 0), 0x1p-126f);
  EXPECT_EQ(one_sum({0x1p-63f}, {0x1p-64f}, 0), 0.0f);
  EXPECT_EQ(one_sum({0x1p-127f}, {0x1p10f}, 0), 0.0f);
  EXPECT_EQ(one_sum({1}, {0}, 0x1p-127f), 0.0f);
  EXPECT_EQ(one_sum({0x1.fep127f}, {2}, 0), std::numeric_limits<float>::infinity());
}

TEST(Amx, TheEmulationSeesRegistersThatAreNotConfigured) {
  EmulatedAmx::clear(0);
  EXPECT_NE(EmulatedAmx::fault(), "");
  EmulatedAmx::configure(kAmxConfiguration);
  EXPECT_NE(EmulatedAmx::fault(), "");
  EmulatedAmx::release();
  EXPECT_EQ(EmulatedAmx::fault(), "");
}

// Needs a processor with AMX that the port permits. The comparison has a tolerance, because Intel's
// manual and its list of intrinsics give two orders of addition.
TEST(Amx, TheProcessorIsNearTheEmulation) {
  const GemmTile *own = pair_tile_of(test_backend()), *emulated = pair_tile_of(emulated_amx_backend());
  if (port_level() != VectorLevel::kAvx512Amx) GTEST_SKIP() << "no AMX here";
  const uint32_t pairs = 7 * own->group(), side = own->rows();
  const std::vector<Bf16> a = random_bf16(size_t{side} * pairs * 2, 1), b = random_bf16(size_t{side} * pairs * 2, 2);
  const std::vector<float> a_panel = panel_of(a, side, pairs, own->group_of_a),
                           b_panel = panel_of(b, side, pairs, own->group_of_b);
  std::vector<float> sums[2];
  for (const GemmTile* tile : {own, emulated}) {
    const gemm_detail::TileScope scope(*tile);
    std::vector<float>& c = sums[tile == own];
    c = random_floats(size_t{side} * side, 3);
    tile->run(*tile, pairs, a_panel.data(), b_panel.data(), 1.0f, c.data(), side, 1);
  }
  const float furthest = 2 * static_cast<float>(pairs) * 0x1p-22f;  // maximum distance; operands are in [-1, 1]
  for (size_t i = 0; i < sums[0].size(); ++i) EXPECT_NEAR(sums[0][i], sums[1][i], furthest) << i;
}

// ---- products -----------------------------------------------------------------------------------

// Returns C of a product that gemm() computes in f32. Checks that 1 to 3 workers give equal bits
// with exactly the scratch that the rule states.
template <typename Product>
std::vector<float> run_product(const Backend& backend, const std::vector<float>& start, uint64_t scratch_bytes,
                               const Product& product) {
  std::vector<float> results[3];
  for (uint32_t count = 1; count <= 3; ++count) {
    const TestWorkers workers(count, count == 2 ? TaskOrder::kReversed : TaskOrder::kShuffled, count);
    std::vector<float> scratch(scratch_bytes / 4 + 64, std::numeric_limits<float>::quiet_NaN());
    float* aligned = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    for (float* guard = aligned + scratch_bytes / 4; guard != scratch.data() + scratch.size(); ++guard) *guard = 42.0f;
    results[count - 1] = start;
    product(KernelContext{.workers = &workers.workers(), .machine = backend.machine}, results[count - 1].data(),
            aligned);
    for (const float* guard = aligned + scratch_bytes / 4; guard != scratch.data() + scratch.size(); ++guard)
      EXPECT_EQ(*guard, 42.0f);
    EXPECT_EQ(std::memcmp(results[0].data(), results[count - 1].data(), start.size() * 4), 0) << count << " workers";
  }
  return results[0];
}

constexpr GemmShape kShapes[] = {{1, 1, 1},      {1, 1, 2},       {12, 32, 2},  {13, 33, 6},    {11, 31, 64},
                                 {25, 70, 510},  {24, 64, 512},   {7, 40, 514}, {30, 50, 1026}, {5, 3, 4096},
                                 {40, 600, 130}, {130, 33, 2048}, {3, 5, 7},    {50, 20, 333},  {20, 300, 99},
                                 {9, 10, 5500},  {64, 64, 3000},  {2, 1, 3001}, {300, 300, 70}, {260, 270, 1801}};

std::string name_of(const GemmShape& s) {
  return std::to_string(s.M) + " x " + std::to_string(s.N) + " x " + std::to_string(s.K);
}

// Returns C, the product of rows of A and weights. The weights are [N,K] if `by_lines`, else [K,N].
// C starts as `start`. If `accumulate`, the product is added to C, as a linear layer adds it to the
// bias. Otherwise the product replaces C.
std::vector<float> run_weights(const Backend& backend, const GemmShape& s, const std::vector<Bf16>& a,
                               const std::vector<float>& w, bool by_lines, const std::vector<float>& start,
                               bool accumulate) {
  const int64_t N = static_cast<int64_t>(s.N), K = static_cast<int64_t>(s.K);
  const WeightPacker packer = by_lines ? WeightPacker{w.data(), K, 1} : WeightPacker{w.data(), 1, N};
  return run_product(backend, start, gemm_scratch_bytes(s.N, s.K),
                     [&](const KernelContext& context, float* c, void* scratch) {
                       multiply_weights(context, s, a.data(), packer, MatrixOutput{c, N}, accumulate, scratch);
                     });
}

// Runs each test with AMX's emulated tile, and with this machine's tile for pairs, if the machine
// has such a tile.
class Pairs : public ::testing::TestWithParam<bool> {
 protected:
  const Backend& backend() const { return GetParam() ? emulated_amx_backend() : test_backend(); }
  void TearDown() override { EXPECT_EQ(EmulatedAmx::fault(), ""); }
};
INSTANTIATE_TEST_SUITE_P(Tiles, Pairs, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "amx" : "machine"; });

float as_it_is(float weight) { return weight; }
float rounded(float weight) { return Bf16(weight); }
float truncated(float weight) { return std::bit_cast<float>(std::bit_cast<uint32_t>(weight) & 0xffff0000u); }

// Compares `got` with the reference A W, plus `start` if `accumulate`. The reference converts every
// weight with stored(). Returns a description of the first element that differs; "" if none does.
std::string fault(const GemmShape& s, const std::vector<Bf16>& a, std::vector<float> w, bool by_lines,
                  const std::vector<float>& got, const std::vector<float>& start, bool accumulate,
                  float (*stored)(float)) {
  for (float& weight : w) weight = stored(weight);
  for (uint64_t i = 0; i < s.M; ++i) {
    for (uint64_t j = 0; j < s.N; ++j) {
      double want = accumulate ? start[i * s.N + j] : 0.0;
      for (uint64_t k = 0; k < s.K; ++k)
        want += double{a[i * s.K + k]} * double{by_lines ? w[j * s.K + k] : w[k * s.N + j]};
      if (std::fabs(got[i * s.N + j] - want) <= tolerance(s.K) * (1 + std::fabs(want))) continue;
      return name_of(s) + (by_lines ? " by lines, " : " by columns, ") + std::to_string(i) + ", " + std::to_string(j);
    }
  }
  return "";
}

TEST_P(Pairs, WeightsAreRoundedToTheNearestAndNothingElseIs) {
  for (const GemmShape& s : kShapes) {
    const std::vector<Bf16> a = random_bf16(s.M * s.K, 1);
    const std::vector<float> w = random_floats(s.N * s.K, 2);
    const bool rounds = pair_tile_of(backend()) != nullptr && s.K % 2 == 0;
    for (const bool by_lines : {false, true}) {
      for (const bool accumulate : {false, true}) {
        const std::vector<float> start = accumulate
                                             ? random_floats(s.M * s.N, 3)
                                             : std::vector<float>(s.M * s.N, std::numeric_limits<float>::quiet_NaN());
        const std::vector<float> got = run_weights(backend(), s, a, w, by_lines, start, accumulate);
        EXPECT_EQ(fault(s, a, w, by_lines, got, start, accumulate, rounds ? rounded : as_it_is), "");
        if (s.M * s.N * s.K < 1000) continue;  // with so few weights, both kinds of rounding may give equal results
        EXPECT_NE(fault(s, a, w, by_lines, got, start, accumulate, rounds ? as_it_is : rounded), "") << name_of(s);
        EXPECT_NE(fault(s, a, w, by_lines, got, start, accumulate, truncated), "") << name_of(s);
      }
    }
  }
}

// Weights stored as bf16 must give the bits that equal weights in f32 give. A is bf16 or f32.
TEST_P(Pairs, WeightsStoredAsBf16GiveTheBitsOfTheSameAsF32) {
  for (const GemmShape& s : kShapes) {
    const std::vector<Bf16> a = random_bf16(s.M * s.K, 1), w = random_bf16(s.N * s.K, 2);
    const std::vector<float> wide_a(a.begin(), a.end()), wide_w(w.begin(), w.end()),
        start = random_floats(s.M * s.N, 3);
    const int64_t N = static_cast<int64_t>(s.N), K = static_cast<int64_t>(s.K);
    for (const bool by_lines : {false, true}) {
      const auto run = [&](const auto* rows, const Weight& weights) {
        const WeightPacker packer{weights, by_lines ? K : 1, by_lines ? 1 : N};
        return run_product(backend(), start, gemm_scratch_bytes(s.N, s.K),
                           [&](const KernelContext& context, float* c, void* scratch) {
                             multiply_weights(context, s, rows, packer, MatrixOutput{c, N}, true, scratch);
                           });
      };
      EXPECT_EQ(run(a.data(), w.data()), run(a.data(), wide_w.data())) << name_of(s);
      EXPECT_EQ(run(wide_a.data(), w.data()), run(wide_a.data(), wide_w.data())) << name_of(s);
    }
  }
}

// If C is stored as bf16, a kernel cannot add partial sums to C. So all K depths must fit into the
// scratch of the rule, and each sum is rounded once.
TEST_P(Pairs, SumsStoredAsBf16AreRoundedOnce) {
  for (const GemmShape& s :
       {GemmShape{14, 40, 66}, GemmShape{13, 300, 5500}, GemmShape{5, 700, 514}, GemmShape{3, 100, 20000}}) {
    const std::vector<Bf16> a = random_bf16(s.M * s.K, 1);
    const std::vector<float> w = random_floats(s.N * s.K, 2);
    const std::vector<float> sums = run_weights(backend(), s, a, w, true, std::vector<float>(s.M * s.N), false);
    const std::vector<float> start(s.M * s.N / 2, std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> got =
        run_product(backend(), start, gemm_scratch_bytes(s.N, s.K, DType::kBf16),
                    [&](const KernelContext& context, float* c, void* scratch) {
                      const MatrixOutputOf<Bf16> output{reinterpret_cast<Bf16*>(c), static_cast<int64_t>(s.N)};
                      multiply_weights(context, s, a.data(), WeightPacker{w.data(), static_cast<int64_t>(s.K), 1},
                                       output, false, scratch);
                    });
    std::vector<Bf16> stored(s.M * s.N);
    std::memcpy(stored.data(), got.data(), stored.size() * sizeof(Bf16));
    for (size_t i = 0; i < stored.size(); ++i)
      ASSERT_EQ(stored[i].bits, Bf16(sums[i]).bits) << name_of(s) << " element " << i;
  }
}

TEST_P(Pairs, ColumnsOfAnyDepth) {
  for (const GemmShape& s : kShapes) {
    const std::vector<Bf16> a = random_bf16(s.M * s.K, 1), b = random_bf16(s.N * s.K, 2);
    for (const bool accumulate : {false, true}) {
      const std::vector<float> start = accumulate
                                           ? random_floats(s.M * s.N, 3)
                                           : std::vector<float>(s.M * s.N, std::numeric_limits<float>::quiet_NaN());
      const std::vector<float> got =
          run_product(backend(), start, gemm_split_scratch_bytes(s.M, s.N, s.K),
                      [&](const KernelContext& context, float* c, void* scratch) {
                        multiply_columns(context, s, a.data(), b.data(), c, accumulate, scratch);
                      });
      for (uint64_t i = 0; i < s.M; ++i) {
        for (uint64_t j = 0; j < s.N; ++j) {
          double want = accumulate ? start[i * s.N + j] : 0.0;
          for (uint64_t k = 0; k < s.K; ++k) want += double{a[k * s.M + i]} * double{b[k * s.N + j]};
          ASSERT_NEAR(got[i * s.N + j], want, tolerance(s.K) * (1 + std::fabs(want)))
              << name_of(s) << " " << i << ", " << j;
        }
      }
    }
  }
}

// If the depth is odd, rows of A begin in the middle of a pair. Then the product must have the same
// bits as with kernels that multiply in f32.
TEST_P(Pairs, OddDepthsAreMultipliedAsF32) {
  const GemmShape s{30, 40, 333};
  const std::vector<Bf16> a = random_bf16(s.M * s.K, 1);
  const std::vector<float> w = random_floats(s.N * s.K, 2), start(s.M * s.N);
  const std::vector<float> here = run_weights(backend(), s, a, w, true, start, false);
  EXPECT_EQ(here, run_weights(without_products(), s, a, w, true, start, false));
}

// An infinity or a NaN in a weight must change only the outputs that read the weight.
TEST_P(Pairs, InfinitiesStay) {
  const GemmShape s{3, 40, 66};
  const std::vector<Bf16> a(s.M * s.K, Bf16(1.0f));
  for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                            std::bit_cast<float>(0x7f800001u)}) {
    std::vector<float> w(s.N * s.K, 0.5f);
    w[33 * s.K + 65] = value;
    const std::vector<float> got = run_weights(backend(), s, a, w, true, std::vector<float>(s.M * s.N), false);
    for (uint64_t i = 0; i < s.M * s.N; ++i) {
      if (i % s.N == 33) {
        EXPECT_EQ(std::isnan(value), std::isnan(got[i]));
        EXPECT_FALSE(std::isfinite(got[i]));
      } else {
        EXPECT_EQ(got[i], 33.0f);
      }
    }
  }
}

}  // namespace
}  // namespace reprise::test
