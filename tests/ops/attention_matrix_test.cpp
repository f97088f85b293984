// Compares attention by a matrix unit (AMX, emulated) with attention in f32. The bits must be equal
// if no value is rounded, or if a head is too small for the unit. Also tests that the judge rejects
// wrong units. kernels_bf16_test.cpp does not suffice, because its tolerance for weights in bf16
// would hide that one key of many counts twice.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "lib/cpu/attention/attention_rules.h"
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/emulated_amx.h"
#include "tests/ops/kernel_judge.h"
#include "tests/ops/random_floats.h"
#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {
namespace {

const CpuMachine& machine_of(const Backend& backend) { return *static_cast<const CpuMachine*>(backend.machine); }
// Returns the kernels of emulated_amx_backend() without the tiles for pairs.
const CpuMachine& without_unit() {
  static const CpuMachine machine = [] {
    CpuMachine plain = machine_of(emulated_amx_backend());
    plain.pairs = plain.small_pairs = nullptr;
    return plain;
  }();
  return machine;
}
// Returns the kernels of emulated_amx_backend() with another tile, which must live as long as the
// result.
CpuMachine machine_with(const GemmTile& tile) {
  CpuMachine machine = machine_of(emulated_amx_backend());
  machine.pairs = &tile;
  return machine;
}
// True if the vector level has tiles for a matrix unit; the lower levels have none.
bool level_has_units() { return machine_of(emulated_amx_backend()).level >= VectorLevel::kAvx512; }

struct Shape {
  uint32_t B, T, heads, kv_heads, D;
  uint64_t C() const { return uint64_t{heads} * D; }
  uint64_t W() const { return (heads + uint64_t{2} * kv_heads) * D; }
};

struct Sight {
  float dropout = 0;
  uint32_t window = 0, causal = 1;
};
// Inputs and outputs of the attention of several sequences, forward and backward.
struct Attended {
  Shape s;
  AttentionAttribute attention;
  std::vector<Bf16> qkv, y, dy, dqkv;
  std::vector<float> lse;
  std::vector<int32_t> starts;  // document start of each position; empty if there are no documents

  Attended(const Shape& shape, const Sight& sight)
      : s(shape),
        attention{s.heads, s.kv_heads, sight.dropout, 3, sight.window, 0, 0, sight.causal},
        y(s.B * s.T * s.C()),
        dqkv(s.B * s.T * s.W()),
        lse(s.B * s.heads * s.T) {
    const std::vector<float> values = random_floats(s.B * s.T * s.W(), 1),
                             gradients = random_floats(s.B * s.T * s.C(), 2);
    qkv.assign(values.begin(), values.end());
    dy.assign(gradients.begin(), gradients.end());
  }
  // Cuts the sequences into documents of `length` positions.
  void cut(uint32_t length) {
    starts.resize(s.B * s.T);
    for (uint32_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<int32_t>(i % s.T / length * length);
  }
  void run(const CpuMachine& machine, uint32_t workers = 1) {
    const TestWorkers some(workers);
    StepScalars scalars{};
    const KernelContext context{.workers = &some.workers(), .machine = &machine, .scalars = &scalars};
    const int32_t* given = starts.empty() ? nullptr : starts.data();
    const uint32_t C = static_cast<uint32_t>(s.C());
    EXPECT_TRUE(cpu_attention_forward<Bf16>(context, {y.data(), lse.data(), qkv.data(), given, &scalars, nullptr, 0,
                                                      s.B, s.T, C, attention})
                    .ok());
    const Tensor y_like{.dtype = DType::kBf16, .rank = 3, .shape = {s.B, s.T, C, 1}},
        lse_like{.rank = 3, .shape = {s.B, s.heads, s.T, 1}};
    std::vector<float> scratch(attention_backward_scratch_bytes(y_like, lse_like, attention) / sizeof(float),
                               std::nanf(""));
    EXPECT_TRUE(cpu_attention_backward<Bf16>(context,
                                             {dqkv.data(), qkv.data(), y.data(), lse.data(), dy.data(), given, &scalars,
                                              scratch.data(), scratch.size() * sizeof(float), s.B, s.T, C, attention})
                    .ok());
    EXPECT_EQ(scalars.fault.code, DataFault::kNone);
  }
  bool has_y_of(const Attended& other) const {
    return std::memcmp(y.data(), other.y.data(), y.size() * sizeof(Bf16)) == 0 &&
           std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(float)) == 0;
  }
  bool has_gradients_of(const Attended& other) const {
    return std::memcmp(dqkv.data(), other.dqkv.data(), dqkv.size() * sizeof(Bf16)) == 0;
  }
};

// All scores are zero, so each weight is 1 before the division, and sums of small integers are
// exact in any order. So y must have the same bits as in f32, for every size of tiles, documents
// and windows.
TEST(AttentionByMatrixUnit, MeansOfWholeNumbersHaveTheBitsOfF32) {
  if (!level_has_units()) GTEST_SKIP() << "no AVX-512 here";
  const uint32_t kWidths[] = {32, 34, 64, 80, 96, 130, 256};
  for (const uint32_t D : kWidths) {
    for (const uint32_t T : {1u, 31u, 64u, 65u, 97u, 140u}) {
      for (const Sight& sight : {Sight{}, Sight{.window = 37}, Sight{.causal = 0}}) {
        Attended here({1, T, 2, 1, D}, sight);
        for (uint64_t i = 0; i < here.qkv.size(); ++i) {
          const uint64_t column = i % here.s.W();
          here.qkv[i] = column < uint64_t{2} * D ? 0.0f : static_cast<float>(i * 2654435761u % 17) - 8;
        }
        if (T > 60) here.cut(T / 2 + 3);
        Attended there = here;
        here.run(machine_of(emulated_amx_backend())), there.run(without_unit());
        ASSERT_TRUE(here.has_y_of(there)) << "D " << D << ", T " << T << ", window " << sight.window << ", causal "
                                          << sight.causal;
      }
    }
  }
  EXPECT_EQ(EmulatedAmx::fault(), "");
}

TEST(AttentionByMatrixUnit, HeadsThatAreTooSmallOrOddHaveTheBitsOfF32) {
  if (!level_has_units()) GTEST_SKIP() << "no AVX-512 here";
  for (const uint32_t D : {1u, 8u, 30u, 31u, 32u, 33u, 34u, 64u}) {
    Attended here({1, 70, 2, 2, D}, {});
    Attended there = here;
    here.run(machine_of(emulated_amx_backend())), there.run(without_unit());
    const bool is_same = D < 32 || D % 2 == 1;
    EXPECT_EQ(here.has_y_of(there), is_same) << D;
    EXPECT_EQ(here.has_gradients_of(there), is_same) << D;
    EXPECT_EQ(attention_product(machine_of(emulated_amx_backend()).pairs, D) == AttentionProduct::kWidened, is_same)
        << D;
  }
}

// Requires that each task of each worker configures its tile registers and releases them.
TEST(AttentionByMatrixUnit, EveryTaskConfiguresItsRegisters) {
  if (!level_has_units()) GTEST_SKIP() << "no AVX-512 here";
  Attended one({2, 130, 4, 2, 32}, {.dropout = 0.25f});
  one.cut(50);
  Attended four = one;
  one.run(machine_of(emulated_amx_backend())), four.run(machine_of(emulated_amx_backend()), 4);
  EXPECT_TRUE(one.has_y_of(four) && one.has_gradients_of(four));
  EXPECT_EQ(EmulatedAmx::fault(), "");

  GemmTile never_entered = *machine_of(emulated_amx_backend()).pairs;
  never_entered.enter = never_entered.leave = nullptr;
  one.run(machine_with(never_entered));
  EXPECT_NE(EmulatedAmx::fault(), "");
}

TEST(AttentionByMatrixUnit, LinesAsTheyLieGiveTheBitsOfPackedOnes) {
  if (!level_has_units()) GTEST_SKIP() << "no AVX-512 here";
  GemmTile packing = *machine_of(emulated_amx_backend()).pairs;
  ASSERT_NE(packing.run_lines, nullptr);
  packing.run_lines = nullptr;
  for (const uint32_t D : {32u, 48u, 128u}) {
    Attended lying({1, 140, 4, 2, D}, {});
    Attended packed = lying;
    lying.run(machine_of(emulated_amx_backend())), packed.run(machine_with(packing));
    EXPECT_TRUE(lying.has_y_of(packed) && lying.has_gradients_of(packed)) << D;
  }
}

// ---- wrong units --------------------------------------------------------------------------------

using TileRun = void (*)(const GemmTile&, uint64_t, const float*, const float*, float, float*, int64_t, int64_t);
void run_right(const GemmTile& tile, uint64_t k, const float* a, const float* b, float beta, float* c, int64_t row,
               int64_t column) {
  machine_of(emulated_amx_backend()).pairs->run(tile, k, a, b, beta, c, row, column);
}
void forget_what_was_there(const GemmTile& tile, uint64_t k, const float* a, const float* b, float, float* c,
                           int64_t row, int64_t column) {
  run_right(tile, k, a, b, 0.0f, c, row, column);
}
void leave_out_the_last_group(const GemmTile& tile, uint64_t k, const float* a, const float* b, float beta, float* c,
                              int64_t row, int64_t column) {
  run_right(tile, k > tile.group() ? k - tile.group() : k, a, b, beta, c, row, column);
}
void lose_the_last_row(const GemmTile& tile, uint64_t k, const float* a, const float* b, float beta, float* c,
                       int64_t row, int64_t column) {
  float* last = c + (tile.mr - 1) * row;
  const std::vector<float> before(last, last + tile.nr);
  run_right(tile, k, a, b, beta, c, row, column);
  for (uint32_t j = 0; j < tile.nr; ++j) last[j] = beta == 0.0f ? 0.0f : before[j];
}
void take_the_first_members_alone(const GemmTile& tile, uint64_t k, const float* a, const float* b, float beta,
                                  float* c, int64_t row, int64_t column) {
  std::vector<float> first(a, a + k * tile.mr);
  for (float& pair : first) pair = std::bit_cast<float>(std::bit_cast<uint32_t>(pair) & 0xffffu);
  run_right(tile, k, first.data(), b, beta, c, row, column);
}

void read_lines_too_near(uint64_t k, const float* a, int64_t a_step, const float* b, float beta, float* c,
                         int64_t row) {
  machine_of(emulated_amx_backend()).pairs->run_lines(k, a, a_step - 1, b, beta, c, row);
}

// Result of rejected_with(). Index 0 is the forward, index 1 the backward. `cases`: number of cases
// with more than one tile. `of`: number of these cases that the judge rejects.
struct Rejected {
  int of[2] = {}, cases[2] = {};
};
Rejected rejected_with(const GemmTile& tile) {
  const CpuMachine machine = machine_with(tile);
  const Backend wrong = cpu_backend(machine);
  Rejected count;
  for (const KernelCase& c : kernel_cases()) {
    if (c.op != Op::kAttention || c.pass == Pass::kDecode || c.expects_bad_index()) continue;
    const bool is_backward = c.pass == Pass::kBackward;
    const Tensor& qkv = c.tensor(is_backward ? uint32_t{AttentionBackward::kQkv} : uint32_t{AttentionForward::kQkv});
    const AttentionAttribute& attention = c.as<AttentionAttribute>();
    if (qkv.shape[1] <= 128 || qkv.shape[1] > 200 || qkv.shape[2] / (attention.heads + 2 * attention.kv_heads) < 64)
      continue;
    ++count.cases[is_backward];
    count.of[is_backward] += !judge_reference(wrong, *stored_as_bf16(c)).empty();
  }
  return count;
}

TEST(AttentionByMatrixUnit, WrongUnitsAreSeen) {
  if (!level_has_units()) GTEST_SKIP() << "no AVX-512 here";
  const GemmTile& right = *machine_of(emulated_amx_backend()).pairs;
  const Rejected none = rejected_with(right);
  for (const int pass : {0, 1}) {
    EXPECT_GT(none.cases[pass], 3);
    EXPECT_EQ(none.of[pass], 0);
  }
  for (const TileRun run :
       {forget_what_was_there, leave_out_the_last_group, lose_the_last_row, take_the_first_members_alone}) {
    GemmTile wrong = right;
    wrong.run = run;
    const Rejected count = rejected_with(wrong);
    for (const int pass : {0, 1}) EXPECT_EQ(count.of[pass], count.cases[pass]);
  }
  GemmTile wrong = right;
  wrong.run_lines = read_lines_too_near;
  const Rejected count = rejected_with(wrong);  // only heads whose width is a multiple of the group use run_lines
  for (const int pass : {0, 1}) EXPECT_GT(count.of[pass], 3);
}

}  // namespace
}  // namespace reprise::test
