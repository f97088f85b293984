// Compares matrix products, convolutions, linear layers and the loss head with naive loops in
// double, with 1 to 3 workers. All use one GEMM, whose blocking has many edges, and every tile runs
// the same cases. The references do not use the library's packing, blocking or exponentials.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_rules.h"
#include "lib/cpu/gemm/gemm.h"
#include "tests/ops/random_floats.h"
#include "tests/ops/tile_judge.h"
#include "tests/ports/test_machine.h"

namespace reprise {
namespace {

// Returns workers that create threads for each call, and that start the last task first. The
// library's pool does neither.
Workers plain_workers(uint32_t count) {
  static uint32_t counts[] = {0, 1, 2, 3};
  return {&counts[count], count, [](void* state, uint32_t tasks, void (*task)(void*, uint32_t), void* argument) {
            std::atomic<uint32_t> left{tasks};
            std::vector<std::thread> threads;
            for (uint32_t t = 0; t < *static_cast<uint32_t*>(state); ++t) {
              threads.emplace_back([&] {
                for (uint32_t n = left.load(); n > 0;) {
                  if (left.compare_exchange_weak(n, n - 1)) task(argument, --n);
                }
              });
            }
            for (std::thread& thread : threads) thread.join();
          }};
}

// Scratch memory filled with NaN. The last 64 floats are a guard, which a kernel must not change.
struct Scratch {
  std::vector<float> floats;
  uint64_t bytes;
  explicit Scratch(uint64_t n) : floats(n / 4 + 128, std::numeric_limits<float>::quiet_NaN()), bytes(n) {
    for (size_t i = floats.size() - 64; i < floats.size(); ++i) floats[i] = 42.0f;
  }
  void* aligned() {
    const uintptr_t at = reinterpret_cast<uintptr_t>(floats.data());
    return reinterpret_cast<void*>((at + 255) / 256 * 256);
  }
  bool intact() const {
    for (size_t i = floats.size() - 64; i < floats.size(); ++i) {
      if (floats[i] != 42.0f) return false;
    }
    return true;
  }
};

// Returns the bytes of scratch that the CPU's rule states for kernel K.
template <typename K, size_t count>
uint64_t scratch_bytes_of(const Tensor* const (&tensors)[count], const WindowAttribute& window = {}) {
  AttributePools pools;
  static_cast<attribute_list::Pool<WindowAttribute>&>(pools).entries = {&window, 1};
  uint32_t present = 0;
  for (uint32_t i = 0; i < count; ++i) present |= tensors[i] != nullptr ? 1u << i : 0u;
  return kCpuRules.scratch_bytes({K::kInfo.op, K::kInfo.pass, tensors, present, &pools, 0});
}

// Returns the tolerance, relative to 1 + |sum|, of a sum of `depth` products of values in [-1, 1]
// that is added in another order.
double sum_tolerance(uint64_t depth) { return 2e-7 * (4.0 + std::sqrt(static_cast<double>(depth)) * 4.0); }

void expect_close(const std::vector<float>& got, const std::vector<double>& want, uint64_t depth,
                  const std::string& id) {
  ASSERT_EQ(got.size(), want.size()) << id;
  const double tolerance = sum_tolerance(depth);
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::fabs(got[i] - want[i]) <= tolerance * (1.0 + std::fabs(want[i]))) continue;  // false for a NaN
    FAIL() << id << " element " << i << ": " << got[i] << ", the reference has " << want[i];
  }
}

// Runs each test for every tile that this machine and this build have.
class EveryTile : public testing::TestWithParam<GemmTileChoice> {
 protected:
  void SetUp() override {
    backend = test::backend_with(GetParam());
    if (backend == nullptr) GTEST_SKIP() << "no such tile here";
  }
  const Backend* backend = nullptr;
};
std::string tile_name(const testing::TestParamInfo<GemmTileChoice>& info) {
  switch (info.param) {
    case GemmTileChoice::kBaseline: return "baseline";
    case GemmTileChoice::kAvx2: return "avx2";
    case GemmTileChoice::kAvx512: return "avx512";
    default: return "blis";
  }
}
INSTANTIATE_TEST_SUITE_P(Tiles, EveryTile,
                         testing::Values(GemmTileChoice::kBaseline, GemmTileChoice::kAvx2, GemmTileChoice::kAvx512,
                                         GemmTileChoice::kBlis),
                         tile_name);

// One blocking for each number of workers. The first two have the widest block, without and with
// packing of A. The third has a narrow block, and whole blocks are packed.
constexpr uint32_t kNc = kLargeBlocks.columns;
constexpr CpuBlocking kBlockings[] = {{kNc, ~0u, ~0u, kNc},
                                      {kNc, 0, 0, 2 * kMaxNr},
                                      {3 * kMaxNr, 3 * kMaxNr, 3 * kMaxNr, 3 * kMaxNr}};

// Calls kernel(context, out, scratch, bytes) with 1, 2 and 3 workers, each with another blocking.
// `out` starts as `start`. Requires equal bits in all three results. Returns the result.
template <typename Kernel>
std::vector<float> run_all_workers(const Backend& backend, const std::vector<float>& start, uint64_t scratch_bytes,
                                   const std::string& id, const Kernel& kernel) {
  std::vector<float> first;
  for (uint32_t count = 1; count <= 3; ++count) {
    std::vector<float> out = start;
    Scratch scratch(scratch_bytes);
    const Workers workers = plain_workers(count);
    CpuMachine machine = *static_cast<const CpuMachine*>(backend.machine);
    machine.blocking = kBlockings[count - 1];
    const Status status =
        kernel(KernelContext{.workers = &workers, .machine = &machine}, out.data(), scratch.aligned(), scratch_bytes);
    EXPECT_TRUE(status.ok()) << id << ": " << status.message;
    EXPECT_TRUE(scratch.intact()) << id << ": wrote past its scratch";
    if (count == 1) first = out;
    EXPECT_TRUE(out.empty() || std::memcmp(first.data(), out.data(), out.size() * sizeof(float)) == 0)
        << id << ": bits differ with " << count << " workers and another blocking";
  }
  return first;
}

Tensor tensor(std::initializer_list<uint32_t> shape) {
  Tensor t;
  for (uint32_t d : shape) t.shape[t.rank++] = d;
  return t;
}

// ---- the tile -----------------------------------------------------------------------------------

TEST_P(EveryTile, MatchesItsContract) {
  const GemmTile& tile = static_cast<const CpuMachine*>(backend->machine)->tile;
  for (uint64_t k : {1, 2, 3, 7, 64, 256, 384}) {
    for (float beta : {0.0f, 1.0f}) {
      alignas(64) float a[kKc * kMaxMr + kPanelSlack], b[kKc * kMaxNr + kPanelSlack];
      const std::vector<float> a_values = random_floats(k * tile.mr, 1), b_values = random_floats(k * tile.nr, 2);
      std::copy(a_values.begin(), a_values.end(), a);
      std::copy(b_values.begin(), b_values.end(), b);
      const int64_t lead = 71;
      std::vector<float> c(lead * 40, beta == 0.0f ? std::numeric_limits<float>::quiet_NaN() : 0.5f);
      const int64_t row = tile.prefers_columns ? 1 : lead, column = tile.prefers_columns ? lead : 1;
      tile.run(tile, k, a, b, beta, c.data(), row, column);
      for (uint32_t i = 0; i < tile.mr; ++i) {
        for (uint32_t j = 0; j < tile.nr; ++j) {
          double want = beta == 0.0f ? 0.0 : 0.5;
          for (uint64_t p = 0; p < k; ++p) want += double{a[p * tile.mr + i]} * b[p * tile.nr + j];
          ASSERT_NEAR(c[i * row + j * column], want, sum_tolerance(k) * (1 + std::fabs(want)))
              << tile.name << " k=" << k << " i=" << i << " j=" << j;
        }
      }
    }
  }
}

// Every element must be one chain of fused multiply-adds, whatever the layout of the operands.
// Skipped for the tile of the x86-64 baseline, which cannot fuse, and for BLIS's tile, which need
// not.
TEST_P(EveryTile, HasOneSetOfBitsHoweverItsOperandsLie) {
  const GemmTile& tile = static_cast<const CpuMachine*>(backend->machine)->tile;
  if (GetParam() == GemmTileChoice::kBaseline || GetParam() == GemmTileChoice::kBlis)
    GTEST_SKIP() << "not fused, or not this library's";
  EXPECT_EQ(test::judge_fused_tile(tile), "");
  EXPECT_EQ(test::judge_the_tile_judge(tile), "");
}

// ---- packing ------------------------------------------------------------------------------------

// Tests every vector level of this machine. Widths and depths are below, at and above the size of
// the squares that are transposed at once.
TEST(PackLines, TransposesLinesIntoRows) {
  for (const VectorLevel level : {VectorLevel::kBaseline, VectorLevel::kAvx2, VectorLevel::kAvx512}) {
    if (level > best_vector_level()) continue;
    for (uint32_t width = 1; width <= kMaxNr + 16; ++width) {
      for (const uint32_t depths : {1u, 3u, 4u, 7u, 8u, 15u, 16u, 17u, 29u, 64u, 99u}) {
        const std::vector<float> values = random_floats(uint64_t{width} * depths, width);
        const float* lines[kMaxNr + 16];
        // The pointers name the lines in the reverse of their order in memory, because a kernel
        // must not assume contiguous lines.
        for (uint32_t i = 0; i < width; ++i) lines[i] = values.data() + uint64_t{width - 1 - i} * depths;
        std::vector<float> rows(uint64_t{width} * depths + 1, -7.0f);
        pack_lines(level, rows.data(), width, lines, depths, depths % 3 * 16);
        for (uint32_t k = 0; k < depths; ++k) {
          for (uint32_t i = 0; i < width; ++i) {
            ASSERT_EQ(rows[k * width + i], lines[i][k])
                << vector_level_name(level) << ": " << width << " x " << depths << ", line " << i << ", depth " << k;
          }
        }
        ASSERT_EQ(rows.back(), -7.0f) << vector_level_name(level) << ": " << width << " x " << depths
                                      << ": wrote past the last row";
      }
    }
  }
}

// ---- linear -------------------------------------------------------------------------------------

struct LinearCase {
  uint32_t M, C, K;
};
const LinearCase kLinearCases[] = {{1, 1, 1},      {2, 3, 5},      {7, 1, 9},       {12, 32, 32},   {13, 33, 31},
                                   {5, 257, 17},   {64, 256, 64},  {100, 300, 70},  {37, 515, 530}, {513, 64, 10},
                                   {1030, 20, 33}, {2100, 31, 47}, {300, 40, 1030}, {128, 768, 48},
                                   {1100, 72, 40}, {13, 385, 1100}};

// Returns start plus the sum over the depth d of a(i, d) * b(j, d).
template <typename A, typename B>
std::vector<double> reference(uint64_t M, uint64_t N, uint64_t K, const std::vector<float>& start, const A& a,
                              const B& b) {
  std::vector<double> c(M * N);
  for (uint64_t i = 0; i < M; ++i) {
    for (uint64_t j = 0; j < N; ++j) {
      double sum = start[i * N + j];
      for (uint64_t d = 0; d < K; ++d) sum += static_cast<double>(a(i, d)) * b(j, d);
      c[i * N + j] = sum;
    }
  }
  return c;
}

TEST_P(EveryTile, LinearForward) {
  for (const LinearCase& s : kLinearCases) {
    for (int variant = 0; variant < 8; ++variant) {
      const bool input_major = variant & 1, biased = variant & 2;
      const uint32_t R = variant & 4 ? 5 : 0;  // rank of the adapter; 0 if there is none
      const std::string id = "M=" + std::to_string(s.M) + " C=" + std::to_string(s.C) + " K=" + std::to_string(s.K) +
                             " variant=" + std::to_string(variant);
      const std::vector<float> x = random_floats(s.M * s.C, 1), w = random_floats(s.C * s.K, 2),
                               b = random_floats(s.K, 3), h = random_floats(s.M * R, 4), u = random_floats(s.K * R, 5);
      const Tensor ty = tensor({s.M, s.K}), tx = tensor({s.M, s.C}), th = tensor({s.M, R});
      const Tensor* tensors[] = {&ty, &tx, nullptr, nullptr, R != 0 ? &th : nullptr, nullptr, nullptr};
      const std::vector<float> got =
          run_all_workers(*backend, std::vector<float>(s.M * s.K, NAN), scratch_bytes_of<LinearForward>(tensors), id,
                          [&](const KernelContext& context, float* out, void* scratch, uint64_t bytes) {
                            return cpu_linear_forward<float>(context, {.y = out,
                                                                       .x = x.data(),
                                                                       .w = w.data(),
                                                                       .b = biased ? b.data() : nullptr,
                                                                       .h = R != 0 ? h.data() : nullptr,
                                                                       .u = R != 0 ? Weight(u.data()) : Weight(),
                                                                       .scratch = scratch,
                                                                       .scratch_bytes = bytes,
                                                                       .M = s.M,
                                                                       .C = s.C,
                                                                       .K = s.K,
                                                                       .R = R,
                                                                       .input_major = input_major,
                                                                       .scale = 1});
                          });
      std::vector<float> start(s.M * s.K);
      for (size_t i = 0; i < start.size(); ++i) start[i] = biased ? b[i % s.K] : 0.0f;
      const auto left = [&](uint64_t i, uint64_t d) { return d < s.C ? x[i * s.C + d] : h[i * R + d - s.C]; };
      const auto right = [&](uint64_t j, uint64_t d) {
        return d >= s.C ? u[j * R + d - s.C] : input_major ? w[d * s.K + j] : w[j * s.C + d];
      };
      expect_close(got, reference(s.M, s.K, s.C + R, start, left, right), s.C + R, id);
    }
  }
}

TEST_P(EveryTile, LinearBackwardData) {
  for (const LinearCase& s : kLinearCases) {
    for (int variant = 0; variant < 4; ++variant) {
      const bool input_major = variant & 1, accumulate = variant & 2;
      const std::string id = "M=" + std::to_string(s.M) + " C=" + std::to_string(s.C) + " K=" + std::to_string(s.K) +
                             " variant=" + std::to_string(variant);
      const std::vector<float> dy = random_floats(s.M * s.K, 1), w = random_floats(s.C * s.K, 2);
      const std::vector<float> start = accumulate ? random_floats(s.M * s.C, 3) : std::vector<float>(s.M * s.C, NAN);
      const Tensor tdx = tensor({s.M, s.C}), tdy = tensor({s.M, s.K});
      const Tensor* tensors[] = {&tdx, &tdy, nullptr, nullptr};
      const std::vector<float> got =
          run_all_workers(*backend, start, scratch_bytes_of<LinearBackwardData>(tensors), id,
                          [&](const KernelContext& context, float* out, void* scratch, uint64_t bytes) {
                            return cpu_linear_backward_data<float>(context, {.dx = out,
                                                                             .dy = dy.data(),
                                                                             .w = w.data(),
                                                                             .scratch = scratch,
                                                                             .scratch_bytes = bytes,
                                                                             .M = s.M,
                                                                             .C = s.C,
                                                                             .K = s.K,
                                                                             .input_major = input_major,
                                                                             .scale = 1,
                                                                             .accumulate_dx = accumulate});
                          });
      const std::vector<float> zero(s.M * s.C);
      expect_close(
          got,
          reference(
              s.M, s.C, s.K, accumulate ? start : zero, [&](uint64_t i, uint64_t d) { return dy[i * s.K + d]; },
              [&](uint64_t j, uint64_t d) { return input_major ? w[j * s.K + d] : w[d * s.C + j]; }),
          s.K, id);
    }
  }
}

TEST_P(EveryTile, LinearBackwardWeight) {
  for (const LinearCase& s : kLinearCases) {
    for (int variant = 0; variant < 4; ++variant) {
      const bool input_major = variant & 1, accumulate = variant & 2;
      const std::string id = "M=" + std::to_string(s.M) + " C=" + std::to_string(s.C) + " K=" + std::to_string(s.K) +
                             " variant=" + std::to_string(variant);
      const std::vector<float> dy = random_floats(s.M * s.K, 1), x = random_floats(s.M * s.C, 2);
      const std::vector<float> start = accumulate ? random_floats(s.C * s.K, 3) : std::vector<float>(s.C * s.K, NAN);
      const uint32_t rows = input_major ? s.C : s.K, columns = input_major ? s.K : s.C;
      const Tensor tdw = tensor({rows, columns}), tx = tensor({s.M, s.C}), tdy = tensor({s.M, s.K});
      const Tensor* tensors[] = {&tdw, &tx, &tdy, nullptr};
      const std::vector<float> got = run_all_workers(
          *backend, start, scratch_bytes_of<LinearBackwardWeight>(tensors), id,
          [&](const KernelContext& context, float* out, void* scratch, uint64_t bytes) {
            return cpu_linear_backward_weight<float>(
                context, {out, x.data(), dy.data(), scratch, bytes, s.M, s.C, s.K, input_major, accumulate});
          });
      const std::vector<float> zero(s.C * s.K);
      const auto from_x = [&](uint64_t i, uint64_t d) { return x[d * s.C + i]; };
      const auto from_dy = [&](uint64_t i, uint64_t d) { return dy[d * s.K + i]; };
      const std::vector<float>& base = accumulate ? start : zero;
      expect_close(got,
                   input_major ? reference(rows, columns, s.M, base, from_x, from_dy)
                               : reference(rows, columns, s.M, base, from_dy, from_x),
                   s.M, id);
    }
  }
}

// The sum over the rows of x and dy must have the same bits, whichever operand is packed.
TEST_P(EveryTile, LinearBackwardWeightHasOneSetOfBits) {
  for (const LinearCase& s : kLinearCases) {
    const std::vector<float> dy = random_floats(s.M * s.K, 1), x = random_floats(s.M * s.C, 2),
                             start = random_floats(s.C * s.K, 3);
    std::vector<float> transposed(s.C * s.K);
    for (size_t c = 0; c < s.C; ++c) {
      for (size_t k = 0; k < s.K; ++k) transposed[k * s.C + c] = start[c * s.K + k];
    }
    const auto gradient = [&](const std::vector<float>& from, bool input_major) {
      const Tensor tdw = input_major ? tensor({s.C, s.K}) : tensor({s.K, s.C}), tx = tensor({s.M, s.C}),
                   tdy = tensor({s.M, s.K});
      const Tensor* tensors[] = {&tdw, &tx, &tdy, nullptr};
      return run_all_workers(*backend, from, scratch_bytes_of<LinearBackwardWeight>(tensors), "linear",
                             [&](const KernelContext& context, float* out, void* scratch, uint64_t bytes) {
                               return cpu_linear_backward_weight<float>(context,
                                                                        {out, x.data(), dy.data(), scratch, bytes, s.M,
                                                                         s.C, s.K, input_major, true});
                             });
    };
    const std::vector<float> by_input = gradient(start, true), by_output = gradient(transposed, false);
    for (size_t c = 0; c < s.C; ++c) {
      for (size_t k = 0; k < s.K; ++k) {
        ASSERT_EQ(by_input[c * s.K + k], by_output[k * s.C + c])
            << s.M << " rows, " << s.C << " to " << s.K << ": " << c << ", " << k;
      }
    }
  }
}

TEST(Linear, BackwardBias) {
  for (const LinearCase& s : kLinearCases) {
    for (bool accumulate : {false, true}) {
      const std::string id =
          "M=" + std::to_string(s.M) + " K=" + std::to_string(s.K) + (accumulate ? " accumulate" : "");
      const std::vector<float> dy = random_floats(s.M * s.K, 1);
      const std::vector<float> start = accumulate ? random_floats(s.K, 3) : std::vector<float>(s.K, NAN);
      const Tensor tdb = tensor({s.K}), tdy = tensor({s.M, s.K});
      const Tensor* tensors[] = {&tdb, &tdy, nullptr};
      const std::vector<float> got = run_all_workers(
          test::test_backend(), start, scratch_bytes_of<LinearBackwardBias>(tensors), id,
          [&](const KernelContext& context, float* out, void* scratch, uint64_t bytes) {
            return cpu_linear_backward_bias<float>(context, {out, dy.data(), scratch, bytes, s.M, s.K, accumulate});
          });
      std::vector<double> want(s.K);
      for (uint32_t k = 0; k < s.K; ++k) {
        want[k] = accumulate ? start[k] : 0.0;
        for (uint32_t i = 0; i < s.M; ++i) want[k] += dy[i * s.K + k];
      }
      expect_close(got, want, s.M, id);
    }
  }
}

TEST_P(EveryTile, ScratchThatIsTooSmallIsRefused) {
  float value = 0;
  const Workers workers;
  const LinearForwardArgsOf<float> args{.y = &value,
                                        .x = &value,
                                        .w = &value,
                                        .b = nullptr,
                                        .h = nullptr,
                                        .u = {},
                                        .scratch = &value,
                                        .scratch_bytes = 4,
                                        .M = 1,
                                        .C = 1,
                                        .K = 1,
                                        .R = 0,
                                        .input_major = false,
                                        .scale = 1};
  EXPECT_EQ(Code::kBadPlan, cpu_linear_forward<float>({.workers = &workers, .machine = backend->machine}, args).code);
}

// ---- convolution --------------------------------------------------------------------------------

struct ConvCase {
  uint32_t N, H, W, C, K;
  uint16_t R, S, stride, pad;
};
// First small and odd shapes, then smaller versions of the shapes of ResNets for CIFAR and
// ImageNet. For every condition on the shape that selects an algorithm, some cases meet the
// condition and others do not.
const ConvCase kConvCases[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0},     {1, 3, 4, 1, 2, 3, 3, 1, 1},       {2, 5, 7, 3, 4, 3, 3, 1, 0},
    {2, 6, 5, 2, 3, 2, 3, 1, 1},     {1, 9, 8, 5, 7, 5, 5, 2, 2},       {2, 11, 11, 3, 16, 7, 7, 2, 3},
    {1, 8, 8, 4, 6, 3, 3, 3, 1},     {2, 7, 7, 20, 12, 1, 1, 1, 0},     {2, 7, 9, 17, 35, 1, 1, 2, 0},
    {1, 6, 6, 40, 33, 3, 3, 2, 1},   {3, 5, 5, 4, 4, 1, 1, 3, 0},       {2, 4, 4, 8, 8, 3, 3, 1, 2},
    {2, 28, 28, 1, 16, 3, 3, 1, 1},  {3, 28, 28, 16, 16, 3, 3, 1, 1},   {2, 28, 28, 16, 32, 3, 3, 2, 1},
    {2, 28, 28, 16, 32, 1, 1, 2, 0}, {3, 14, 14, 32, 32, 3, 3, 1, 1},   {2, 14, 14, 32, 64, 3, 3, 2, 1},
    {3, 7, 7, 64, 64, 3, 3, 1, 1},   {1, 32, 32, 16, 16, 3, 3, 1, 1},   {2, 9, 13, 16, 48, 3, 3, 1, 1},
    {1, 17, 6, 48, 16, 5, 3, 1, 2},  {1, 10, 10, 64, 64, 3, 3, 2, 1},   {1, 7, 7, 64, 256, 1, 1, 1, 0},
    {1, 33, 35, 3, 24, 7, 7, 2, 3},  {1, 12, 12, 128, 128, 3, 3, 1, 1}, {5, 6, 7, 32, 16, 3, 3, 1, 1},
    {1, 40, 70, 16, 16, 3, 3, 1, 1}, {1, 1, 1, 16, 16, 1, 1, 2, 0},     {2, 3, 4, 16, 32, 1, 1, 2, 1},
    {2, 9, 9, 24, 40, 3, 3, 1, 1},   {2, 5, 3, 80, 96, 3, 3, 1, 1},
    {4, 7, 7, 64, 64, 3, 3, 1, 1},   {2, 13, 11, 64, 96, 3, 3, 1, 1},   {1, 16, 17, 80, 176, 3, 3, 1, 0},
    {1, 15, 15, 144, 64, 3, 3, 1, 2}, {2, 12, 12, 320, 80, 3, 3, 1, 1}, {1, 34, 34, 64, 64, 3, 3, 1, 1},
};

std::string conv_id(const ConvCase& c) {
  return "N=" + std::to_string(c.N) + " H=" + std::to_string(c.H) + " W=" + std::to_string(c.W) +
         " C=" + std::to_string(c.C) + " K=" + std::to_string(c.K) + " R=" + std::to_string(c.R) +
         " S=" + std::to_string(c.S) + " stride=" + std::to_string(c.stride) + " pad=" + std::to_string(c.pad);
}

ConvShape conv_shape(const ConvCase& c) {
  const uint32_t P = (c.H + 2u * c.pad - c.R) / c.stride + 1, Q = (c.W + 2u * c.pad - c.S) / c.stride + 1;
  return {c.N, c.H, c.W, c.C, P, Q, c.K, {c.R, c.S, c.stride, c.pad}};
}

// Calls visit(y index, x index, w index) for every multiplication of the convolution.
template <typename Visit>
void each_product(const ConvShape& s, const Visit& visit) {
  const int stride = s.window.stride_h, pad = s.window.pad_top;
  for (uint32_t n = 0; n < s.N; ++n)
    for (uint32_t p = 0; p < s.P; ++p)
      for (uint32_t q = 0; q < s.Q; ++q)
        for (uint32_t r = 0; r < s.window.kernel_h; ++r)
          for (uint32_t t = 0; t < s.window.kernel_w; ++t) {
            const int h = static_cast<int>(p) * stride - pad + static_cast<int>(r),
                      w = static_cast<int>(q) * stride - pad + static_cast<int>(t);
            if (h < 0 || w < 0 || h >= static_cast<int>(s.H) || w >= static_cast<int>(s.W)) continue;
            for (uint32_t k = 0; k < s.K; ++k)
              for (uint32_t c = 0; c < s.C; ++c)
                visit(((n * s.P + p) * s.Q + q) * s.K + k, ((n * s.H + h) * s.W + w) * s.C + c,
                      ((k * s.window.kernel_h + r) * s.window.kernel_w + t) * s.C + c);
          }
}

struct ConvData {
  ConvShape s;
  std::vector<float> x, w, dy;
  Tensor tx, tw, ty;
  explicit ConvData(const ConvCase& c)
      : s(conv_shape(c)),
        x(random_floats(size_t{s.N} * s.H * s.W * s.C, 1)),
        w(random_floats(size_t{s.K} * c.R * c.S * s.C, 2)),
        dy(random_floats(size_t{s.N} * s.P * s.Q * s.K, 3)),
        tx(tensor({s.N, s.H, s.W, s.C})),
        tw(tensor({s.K, c.R, c.S, s.C})),
        ty(tensor({s.N, s.P, s.Q, s.K})) {}
};

TEST_P(EveryTile, ConvForward) {
  for (const ConvCase& c : kConvCases) {
    const ConvData d(c);
    const Tensor* tensors[] = {&d.ty, nullptr, nullptr, &d.tx, &d.tw, nullptr};
    const std::vector<float> got = run_all_workers(
        *backend, std::vector<float>(d.dy.size(), NAN), scratch_bytes_of<ConvForward>(tensors, d.s.window), conv_id(c),
        [&](const KernelContext& context, float* out, void* scratch, uint64_t bytes) {
          return cpu_conv_forward<float>(context,
                                         {out, d.x.data(), d.w.data(), scratch, bytes, d.s, {}, nullptr, nullptr});
        });
    std::vector<double> want(d.dy.size());
    each_product(d.s, [&](uint32_t y, uint32_t x, uint32_t w) { want[y] += static_cast<double>(d.x[x]) * d.w[w]; });
    expect_close(got, want, uint64_t{c.R} * c.S * c.C, conv_id(c));
  }
}

TEST_P(EveryTile, ConvBackwardData) {
  for (const ConvCase& c : kConvCases) {
    for (bool accumulate : {false, true}) {
      const ConvData d(c);
      const std::vector<float> start = accumulate ? random_floats(d.x.size(), 4) : std::vector<float>(d.x.size(), NAN);
      const Tensor* tensors[] = {&d.tx, &d.ty, &d.tw, nullptr};
      const std::vector<float> got =
          run_all_workers(*backend, start, scratch_bytes_of<ConvBackwardData>(tensors, d.s.window), conv_id(c),
                          [&](const KernelContext& context, float* out, void* scratch, uint64_t bytes) {
                            return cpu_conv_backward_data<float>(context, {out, d.dy.data(), d.w.data(), scratch, bytes,
                                                                           d.s, accumulate});
                          });
      std::vector<double> want(d.x.size());
      if (accumulate) want.assign(start.begin(), start.end());
      each_product(d.s, [&](uint32_t y, uint32_t x, uint32_t w) { want[x] += static_cast<double>(d.dy[y]) * d.w[w]; });
      expect_close(got, want, uint64_t{c.R} * c.S * c.K, conv_id(c));
    }
  }
}

TEST_P(EveryTile, ConvBackwardWeight) {
  for (const ConvCase& c : kConvCases) {
    for (bool accumulate : {false, true}) {
      const ConvData d(c);
      const std::vector<float> start = accumulate ? random_floats(d.w.size(), 4) : std::vector<float>(d.w.size(), NAN);
      const Tensor* tensors[] = {&d.tw, &d.tx, &d.ty, nullptr};
      const std::vector<float> got =
          run_all_workers(*backend, start, scratch_bytes_of<ConvBackwardWeight>(tensors, d.s.window), conv_id(c),
                          [&](const KernelContext& context, float* out, void* scratch, uint64_t bytes) {
                            return cpu_conv_backward_weight<float>(
                                context, {out, d.x.data(), d.dy.data(), scratch, bytes, d.s, accumulate, {}});
                          });
      std::vector<double> want(d.w.size());
      if (accumulate) want.assign(start.begin(), start.end());
      each_product(d.s, [&](uint32_t y, uint32_t x, uint32_t w) { want[w] += static_cast<double>(d.dy[y]) * d.x[x]; });
      expect_close(got, want, uint64_t{d.s.N} * d.s.P * d.s.Q, conv_id(c));
    }
  }
}

// The scratch must suffice for every algorithm that a kernel chooses by stride and padding.
TEST(Conv, ScratchRuleCoversEveryStrideAndPadding) {
  const Workers workers;
  const KernelContext context{.workers = &workers, .machine = test::backend_with(GemmTileChoice::kBaseline)->machine};
  for (uint32_t C : {1u, 3u, 5u, 16u, 64u}) {
    for (uint32_t K : {10u, 16u, 64u}) {
      for (uint32_t H : {1u, 2u, 5u, 8u, 13u}) {
        for (uint16_t R : {1, 2, 3, 5}) {
          for (uint16_t stride : {1, 2, 3, 4}) {
            for (uint16_t pad = 0; pad < R; ++pad) {
              if (H + 2u * pad < R) continue;
              const ConvCase c{1, H, H, C, K, R, R, stride, pad};
              const ConvData d(c);
              std::vector<float> out(std::max({d.x.size(), d.w.size(), d.dy.size()}));
              const Tensor* forward[] = {&d.ty, nullptr, nullptr, &d.tx, &d.tw, nullptr};
              Scratch scratch(scratch_bytes_of<ConvForward>(forward, d.s.window));
              EXPECT_TRUE(
                  cpu_conv_forward<float>(
                      context,
                      {out.data(), d.x.data(), d.w.data(), scratch.aligned(), scratch.bytes, d.s, {}, nullptr, nullptr})
                      .ok())
                  << conv_id(c);
              const Tensor* data[] = {&d.tx, &d.ty, &d.tw, nullptr};
              Scratch data_scratch(scratch_bytes_of<ConvBackwardData>(data, d.s.window));
              EXPECT_TRUE(
                  cpu_conv_backward_data<float>(context, {out.data(), d.dy.data(), d.w.data(), data_scratch.aligned(),
                                                          data_scratch.bytes, d.s, false})
                      .ok())
                  << conv_id(c);
              const Tensor* weight[] = {&d.tw, &d.tx, &d.ty, nullptr};
              Scratch weight_scratch(scratch_bytes_of<ConvBackwardWeight>(weight, d.s.window));
              EXPECT_TRUE(cpu_conv_backward_weight<float>(context, {out.data(),
                                                                    d.x.data(),
                                                                    d.dy.data(),
                                                                    weight_scratch.aligned(),
                                                                    weight_scratch.bytes,
                                                                    d.s,
                                                                    false,
                                                                    {}})
                              .ok())
                  << conv_id(c);
              ASSERT_TRUE(scratch.intact() && data_scratch.intact() && weight_scratch.intact()) << conv_id(c);
            }
          }
        }
      }
    }
  }
}

// ---- loss head ----------------------------------------------------------------------------------

struct HeadCase {
  uint32_t M, C, V;
  int ignored;  // every n-th row has no label (with 1, no row has a label); 0: every row has a label
};
constexpr uint32_t kHeadCaseCount = 7;
const HeadCase kHeadCases[kHeadCaseCount] = {{1, 1, 2, 0},      {5, 3, 4, 2},       {128, 64, 10, 0}, {130, 20, 33, 3},
                                             {200, 6, 3000, 5}, {1500, 16, 257, 4}, {9, 7, 6, 1}};

struct HeadData {
  std::vector<float> x, w, b;
  std::vector<int32_t> labels;
  explicit HeadData(const HeadCase& c)
      : x(random_floats(size_t{c.M} * c.C, 1)),
        w(random_floats(size_t{c.V} * c.C, 2)),
        b(random_floats(c.V, 3)),
        labels(c.M) {
    std::mt19937 generator(4);
    for (uint32_t i = 0; i < c.M; ++i)
      labels[i] = c.ignored && i % c.ignored == 0 ? kIgnoredLabel : static_cast<int32_t>(generator() % c.V);
    for (float& v : x) v *= 3.0f;
  }
};

struct HeadReference {
  double loss = 0;  // sum of losses
  uint64_t labelled = 0, correct = 0;
  std::vector<double> dx, dw, db;  // gradients of the sum of losses
};

HeadReference head_reference(const HeadCase& c, const HeadData& d, bool biased) {
  HeadReference r;
  r.dx.resize(d.x.size());
  r.dw.resize(d.w.size());
  r.db.resize(c.V);
  std::vector<double> logits(c.V);
  for (uint32_t i = 0; i < c.M; ++i) {
    if (d.labels[i] == kIgnoredLabel) continue;
    ++r.labelled;
    for (uint32_t v = 0; v < c.V; ++v) {
      logits[v] = biased ? d.b[v] : 0.0;
      for (uint32_t k = 0; k < c.C; ++k) logits[v] += static_cast<double>(d.x[i * c.C + k]) * d.w[v * c.C + k];
    }
    const auto best = std::max_element(logits.begin(), logits.end());
    const uint32_t label = static_cast<uint32_t>(d.labels[i]);
    const double top = *best, at_label = logits[label];
    r.correct += best - logits.begin() == d.labels[i];
    double total = 0;
    for (double& z : logits) total += z = std::exp(z - top);
    r.loss += std::log(total) + top - at_label;
    for (uint32_t v = 0; v < c.V; ++v) {
      const double g = logits[v] / total - (v == label);
      r.db[v] += g;
      for (uint32_t k = 0; k < c.C; ++k) {
        r.dx[i * c.C + k] += g * d.w[v * c.C + k];
        r.dw[v * c.C + k] += g * d.x[i * c.C + k];
      }
    }
  }
  return r;
}

// Returns the reference of head case `number`. Each reference is computed once and used for all
// tiles.
const HeadReference& known_reference(uint32_t number, bool biased) {
  static std::optional<HeadReference> known[kHeadCaseCount][2];
  std::optional<HeadReference>& place = known[number][biased];
  if (!place) place = head_reference(kHeadCases[number], HeadData(kHeadCases[number]), biased);
  return *place;
}

TEST_P(EveryTile, LossHeadBackward) {
  for (const HeadCase& c : kHeadCases) {
    const HeadData d(c);
    for (int variant = 0; variant < 2; ++variant) {
      const bool biased = variant == 0, accumulate = variant == 1;
      const std::string id = "M=" + std::to_string(c.M) + " C=" + std::to_string(c.C) + " V=" + std::to_string(c.V) +
                             " variant=" + std::to_string(variant);
      const HeadReference& want = known_reference(static_cast<uint32_t>(&c - kHeadCases), biased);
      const Tensor tx = tensor({c.M, c.C}), tw = tensor({c.V, c.C});
      const Tensor* tensors[] = {&tx, &tw, nullptr, nullptr, &tx, &tw, nullptr, nullptr, nullptr, nullptr};
      // out = [dx | dw | db]. If the call accumulates, dw and db start from 0.25.
      std::vector<float> start(d.x.size() + d.w.size() + c.V, accumulate ? 0.25f : NAN);
      StepScalars scalars{};
      const std::vector<float> got =
          run_all_workers(*backend, start, scratch_bytes_of<LossHeadBackward>(tensors), id,
                          [&](const KernelContext& context, float* out, void* scratch, uint64_t bytes) {
                            scalars = {};
                            scalars.step_labelled = 3 * want.labelled;
                            scalars.loss_sum = 10;
                            return cpu_loss_head_backward<float>(context, {.dx = out,
                                                                           .dw = out + d.x.size(),
                                                                           .db = out + d.x.size() + d.w.size(),
                                                                           .scalars = &scalars,
                                                                           .in = {.x = d.x.data(),
                                                                                  .w = d.w.data(),
                                                                                  .b = biased ? d.b.data() : nullptr,
                                                                                  .labels = d.labels.data(),
                                                                                  .scratch = scratch,
                                                                                  .scratch_bytes = bytes,
                                                                                  .M = c.M,
                                                                                  .C = c.C,
                                                                                  .V = c.V,
                                                                                  .softcap = 0},
                                                                           .row_weights = nullptr,
                                                                           .accumulate_dw = accumulate,
                                                                           .accumulate_db = accumulate});
                          });
      const double labelled = static_cast<double>(want.labelled),
                   scale = want.labelled == 0 ? 0 : 1.0 / (3.0 * labelled);
      ASSERT_NEAR(scalars.loss_sum - 10, want.labelled == 0 ? 0 : want.loss / (3 * labelled),
                  1e-5 * (1 + want.loss / (labelled + 1)))
          << id;
      EXPECT_EQ(0u, scalars.skip);
      std::vector<double> all;
      for (double g : want.dx) all.push_back(g * scale);
      for (double g : want.dw) all.push_back(g * scale + (accumulate ? 0.25 : 0));
      for (double g : want.db) all.push_back(g * scale + (accumulate ? 0.25 : 0));
      ASSERT_EQ(all.size(), got.size());
      // The kernel divides by the number of labels, so gradients and their errors are proportional
      // to `scale`. If the call accumulates, adding to 0.25 rounds by up to 2^-25.
      const double tolerance = 3e-5 * scale + (accumulate ? 1e-7 : 0);
      for (size_t i = 0; i < all.size(); ++i) {
        if (std::fabs(all[i] - got[i]) <= tolerance) continue;
        FAIL() << id << " element " << i << ": " << got[i] << ", the reference has " << all[i];
      }
    }
  }
}

TEST_P(EveryTile, LossHeadEvaluate) {
  for (const HeadCase& c : kHeadCases) {
    const HeadData d(c);
    const HeadReference& want = known_reference(static_cast<uint32_t>(&c - kHeadCases), true);
    const Tensor tx = tensor({c.M, c.C}), tw = tensor({c.V, c.C});
    const Tensor* tensors[] = {nullptr, &tx, &tw, nullptr, nullptr, nullptr};
    StepScalars scalars{};
    run_all_workers(*backend, {}, scratch_bytes_of<LossHeadEvaluate>(tensors), "evaluate",
                    [&](const KernelContext& context, float*, void* scratch, uint64_t bytes) {
                      scalars = {};
                      scalars.correct = 2;
                      return cpu_loss_head_evaluate<float>(context,
                                                           {&scalars,
                                                            {d.x.data(), d.w.data(), d.b.data(), d.labels.data(),
                                                             scratch, bytes, c.M, c.C, c.V, 0}});
                    });
    EXPECT_NEAR(want.loss, scalars.loss_sum, 1e-5 * (1 + want.loss));
    EXPECT_EQ(want.labelled, scalars.labelled);
    EXPECT_EQ(want.correct + 2, scalars.correct);
  }
}

TEST_P(EveryTile, LossHeadRefusesWrongLabelsAndMarksInfiniteLosses) {
  const HeadCase c{4, 3, 5, 0};
  HeadData d(c);
  const Tensor tx = tensor({c.M, c.C}), tw = tensor({c.V, c.C});
  const Tensor* tensors[] = {&tx, &tw, nullptr, nullptr, &tx, &tw, nullptr, nullptr, nullptr, nullptr};
  Scratch scratch(scratch_bytes_of<LossHeadBackward>(tensors));
  std::vector<float> dx(d.x.size());
  StepScalars scalars{};
  scalars.step_labelled = c.M;
  const Workers workers;
  const auto run = [&] {
    return cpu_loss_head_backward<float>(
        {.workers = &workers, .machine = backend->machine, .row = 3, .scalars = &scalars},
        {dx.data(),
         nullptr,
         nullptr,
         &scalars,
         {d.x.data(), d.w.data(), nullptr, d.labels.data(), scratch.aligned(), scratch.bytes, c.M, c.C, c.V, 0},
         nullptr,
         false,
         false});
  };
  for (int32_t wrong : {5, -1, -101}) {
    d.labels[2] = wrong;
    d.labels[3] = wrong;  // with several bad labels, the first must be reported
    EXPECT_TRUE(run().ok());
    EXPECT_EQ(DataFault::kLabel, scalars.fault.code);
    EXPECT_EQ(3u, scalars.fault.row);
    EXPECT_EQ(2u, scalars.fault.position);
    EXPECT_EQ(1u, scalars.skip);
    scalars.fault = {};
    scalars.skip = 0;
  }
  d.labels[3] = 0;
  d.labels[2] = 1;
  EXPECT_TRUE(run().ok());
  EXPECT_EQ(0u, scalars.skip);
  d.x[4] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(run().ok());
  EXPECT_EQ(1u, scalars.skip);
}

}  // namespace
}  // namespace reprise
