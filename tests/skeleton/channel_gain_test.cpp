// Tests the skeleton (channel_gain.h) against the reference in double. Also tests equal bits for
// any number of workers and any level, bf16, shared memory, absent arguments, any content of
// scratch, and refused shapes. COPYING: a real family has no such file. Its cases go into the table
// (tests/ops/FAMILY.cpp, an OpFamily in families.cpp), which is also used for CUDA, finite
// differences and benchmarks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"
#include "tests/ref/random.h"
#include "tests/skeleton/channel_gain_kernels.h"
#include "tests/skeleton/channel_gain_rules.h"

namespace reprise::test {
namespace {

// lib/op.h asserts the same for each kernel of the library.
static_assert(uint32_t{ChannelGainForward::kArity} == ChannelGainForward::kInfo.arity());
static_assert(uint32_t{ChannelGainBackward::kArity} == ChannelGainBackward::kInfo.arity());

constexpr float kPoison = -12345.0f;

template <typename Stored>
struct Call {
  uint32_t M, C;
  std::vector<Stored> x, dy, out;
  std::vector<float> gain, dgain;
  std::vector<double> scratch;
  bool accumulate = false;

  Call(uint32_t rows, uint32_t columns) : M(rows), C(columns) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    const auto draw = [&](size_t n) {
      std::vector<float> values(n);
      for (float& value : values) value = uniform(random);
      return values;
    };
    const size_t n = size_t{M} * C;
    for (const float value : draw(n)) x.push_back(Stored(value));
    for (const float value : draw(n)) dy.push_back(Stored(value));
    gain = draw(C);
    dgain.assign(C, kPoison);
    out.assign(n, Stored(kPoison));
    scratch.assign(channel_gain_backward_scratch_bytes(M, C) / sizeof(double) + 1, std::nan(""));
  }
};

// Runs a row as dispatch() does. An argument is absent if its pointer is null.
template <typename K, typename Stored>
Status run(const KernelContext& context, uint32_t M, uint32_t C, const std::vector<void*>& pointers, bool accumulate) {
  std::vector<Tensor> tensors(pointers.size());
  std::vector<const Tensor*> views;
  RowCall call{};
  for (uint32_t i = 0; i < pointers.size(); ++i) {
    const ArgumentInfo& argument = K::kInfo.arguments[i];
    Tensor& tensor = tensors[i];
    if (argument.storage == Storage::kActivation)
      tensor = {.dtype = kStoredAs<Stored>, .rank = 2, .shape = {M, C, 1, 1}};
    if (argument.storage == Storage::kF32) tensor = {.dtype = DType::kF32, .rank = 1, .shape = {C, 1, 1, 1}};
    if (argument.storage == Storage::kScratch) {
      tensor = {.dtype = DType::kU8,
                .rank = 1,
                .shape = {static_cast<uint32_t>(channel_gain_backward_scratch_bytes(M, C)), 1, 1, 1}};
    }
    tensor.bytes = tensor.used_bytes();
    views.push_back(&tensor);
    if (pointers[i] != nullptr) call.present |= 1u << i;
  }
  call.op = K::kInfo.op, call.pass = K::kInfo.pass, call.tensors = views.data(), call.pointers = pointers.data();
  call.accumulate = accumulate ? 1u << ChannelGainBackward::kDgain : 0;
  EXPECT_EQ(K::fault(call), Fault::kNone);
  if constexpr (std::is_same_v<K, ChannelGainForward>) {
    return run_kernel<K, Stored, cpu_channel_gain_forward<Stored>>(context, call);
  } else {
    return run_kernel<K, Stored, cpu_channel_gain_backward<Stored>>(context, call);
  }
}

template <typename Stored>
void forward(const KernelContext& context, Call<Stored>& c, Stored* y) {
  ASSERT_TRUE(
      (run<ChannelGainForward, Stored>(context, c.M, c.C, {y, y == c.x.data() ? y : c.x.data(), c.gain.data()}, false)
           .ok()));
}
template <typename Stored>
void backward(const KernelContext& context, Call<Stored>& c, Stored* dx, bool frozen = false) {
  void* scratch = frozen ? nullptr : c.scratch.data();
  void* dgain = frozen ? nullptr : c.dgain.data();
  const std::vector<void*> pointers = {dx, dgain, c.x.data(), c.gain.data(), c.dy.data(), scratch};
  ASSERT_TRUE((run<ChannelGainBackward, Stored>(context, c.M, c.C, pointers, c.accumulate).ok()));
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

constexpr uint32_t kShapes[][2] = {{1, 1}, {1, 33}, {7, 3}, {1000, 33}, {4099, 5}};

template <typename Stored>
class Skeleton : public ::testing::Test {
 protected:
  KernelContext context(const TestWorkers& workers, const Backend& backend) {
    return {.workers = &workers.workers(), .machine = backend.machine};
  }
};
using Storages = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(Skeleton, Storages);

TYPED_TEST(Skeleton, ComputesWhatItsSynopsisSays) {
  const double rounding = sizeof(TypeParam) == 2 ? 1.0 / 256 : 1.0 / (1 << 24);
  for (const VectorLevel level : {VectorLevel::kBaseline, port_level()}) {
    const Backend* backend = backend_with(GemmTileChoice::kFastest, level);
    if (backend == nullptr) backend = &test_backend();
    const TestWorkers one(1);
    const KernelContext context = this->context(one, *backend);
    for (const auto& [M, C] : kShapes) {
      Call<TypeParam> c(M, C);
      forward(context, c, c.out.data());
      for (uint64_t i = 0; i < c.out.size(); ++i) {
        const double expected = double{float{c.x[i]}} * double{c.gain[i % C]};
        ASSERT_NEAR(float{c.out[i]}, expected, rounding * std::abs(expected)) << M << " x " << C << " at " << i;
      }
      for (const bool accumulate : {false, true}) {
        c.accumulate = accumulate;
        c.dgain.assign(C, accumulate ? 0.5f : kPoison);
        backward(context, c, c.out.data());
        for (uint32_t k = 0; k < C; ++k) {
          double expected = accumulate ? 0.5 : 0, size = std::abs(expected);
          for (uint64_t i = k; i < c.x.size(); i += C)
            expected += double{float{c.x[i]}} * double{float{c.dy[i]}}, size += 1;
          ASSERT_NEAR(c.dgain[k], expected, size / (1 << 24)) << M << " x " << C << " at " << k;
          ASSERT_NEAR(float{c.out[k]}, double{float{c.dy[k]}} * double{c.gain[k]}, rounding);
        }
        EXPECT_TRUE(std::isnan(c.scratch.back())) << "the kernel wrote behind its scratch";
      }
    }
  }
}

TYPED_TEST(Skeleton, HasTheSameBitsHoweverItRuns) {
  const Backend& backend = test_backend();
  for (const auto& [M, C] : kShapes) {
    Call<TypeParam> c(M, C);
    const TestWorkers one(1);
    backward(this->context(one, backend), c, c.out.data());
    const auto expected = c.out;
    const auto expected_dgain = c.dgain;
    for (const TaskOrder order : {TaskOrder::kReversed, TaskOrder::kShuffled}) {
      const TestWorkers three(3, order);
      c.scratch.assign(c.scratch.size(), 7.0);  // no result may depend on the old content
      backward(this->context(three, backend), c, c.out.data());
      EXPECT_TRUE(same_bits(c.out, expected) && same_bits(c.dgain, expected_dgain)) << M << " x " << C;
    }
    backward(this->context(one, backend), c, c.dy.data());  // in place: dx is dy
    EXPECT_TRUE(same_bits(c.dy, expected) && same_bits(c.dgain, expected_dgain)) << M << " x " << C;
    forward(this->context(one, backend), c, c.out.data());
    const auto y = c.out;
    forward(this->context(one, backend), c, c.x.data());
    EXPECT_TRUE(same_bits(c.x, y)) << M << " x " << C;
  }
}

TYPED_TEST(Skeleton, LeavesAFrozenGainAlone) {
  const TestWorkers one(1);
  Call<TypeParam> c(7, 3), other(7, 3);
  backward(this->context(one, test_backend()), c, c.out.data());
  backward(this->context(one, test_backend()), other, other.out.data(), true);
  EXPECT_TRUE(same_bits(c.out, other.out));
  EXPECT_EQ(other.dgain[0], kPoison);
}

TEST(SkeletonContract, RefusesOtherShapes) {
  const Tensor x = {.rank = 2, .shape = {6, 4, 1, 1}}, transposed = {.rank = 2, .shape = {4, 6, 1, 1}};
  const Tensor gain = {.rank = 1, .shape = {4, 1, 1, 1}}, longer = {.rank = 1, .shape = {6, 1, 1, 1}};
  const auto fault = [](std::vector<const Tensor*> tensors) {
    return ChannelGainForward::fault({Op{}, Pass::kForward, tensors.data(), 7u, nullptr, 0});
  };
  EXPECT_EQ(fault({&x, &x, &gain}), Fault::kNone);
  EXPECT_EQ(fault({&transposed, &x, &gain}), Fault::kShape);
  EXPECT_EQ(fault({&x, &x, &longer}), Fault::kShape);
  std::vector<const Tensor*> backward = {&x, &gain, &x, &gain, &transposed, nullptr};
  EXPECT_EQ(ChannelGainBackward::fault({Op{}, Pass::kBackward, backward.data(), 31u, nullptr, 0}), Fault::kShape);
  backward[4] = &x;
  EXPECT_EQ(ChannelGainBackward::fault({Op{}, Pass::kBackward, backward.data(), 29u, nullptr, 0}), Fault::kNone)
      << "dgain may be absent";
  EXPECT_EQ(channel_gain_scratch({Op{}, Pass::kBackward, backward.data(), 29u, nullptr, 0}), 0u);
  EXPECT_EQ(channel_gain_scratch({Op{}, Pass::kBackward, backward.data(), 31u, nullptr, 0}), 4 * sizeof(double));
}

// True if the library's table contains the skeleton, which it must not.
constexpr bool is_in_the_table() {
  for (const KernelInfo& kernel : kOps) {
    const char *a = kernel.name, *b = "channel_gain";
    while (*b != 0 && *a == *b) ++a, ++b;
    if (*b == 0) return true;
  }
  return false;
}
static_assert(!is_in_the_table());

}  // namespace
}  // namespace reprise::test
