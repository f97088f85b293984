// Runs CUDA's layer-norm on fibres at the limits between the kernel's variants, and compares it
// with a reference in double. The cases of cuda_kernels_test.cpp do not cover these limits.
#include "tests/ports/fibres/cuda_fibre.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>

#include "cuda/cuda_kernels.h"
#include "cuda/cuda_rules.h"
#include "cuda/launch.h"
#include "tests/ports/cards/cuda_layer_norm_reference.h"

namespace reprise::test {

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void expect_close(const char* name, const Floats& got, const std::vector<double>& want, const std::vector<double>& size,
                  double terms, float added = 0) {
  ASSERT_EQ(got.size(), want.size()) << name;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::fabs(got[i] - (want[i] + added)), error_bound(size[i], terms, added))
        << name << "[" << i << "] is " << got[i] << ", not " << want[i] + added;
  }
}

void expect_no_fault() {
  const fibre::Report report = fibre::take_report();
  EXPECT_EQ(report.text, "");
}

// ---- running ----

// Calls a kernel's host function and waits for the queue, so that the results can be read.
template <typename K, NamedKernel<K> kKernel>
Status run_and_wait(const KernelContext& context, const ArgumentsOf<K>& args) {
  REPRISE_RETURN_IF_ERROR(kKernel(context, args));
  (void)cudaStreamSynchronize(context.queue);
  return launch_status();
}

struct Forward {
  Floats y, mean, rstd;

  explicit Forward(const Problem& p) : y(p.M * p.C, kNan), mean(p.M, kNan), rstd(p.M, kNan) {
    const Status status = run_and_wait<LayerNormForward, cuda_layer_norm_forward>(
        {}, {y.data(), mean.data(), rstd.data(), p.x.data(), p.gamma.data(), p.beta.data(), p.M, p.C, kEpsilon});
    EXPECT_TRUE(status.ok()) << status.message << " " << status.detail;
    expect_no_fault();
  }
};

struct Wanted {
  bool dgamma = true, dbeta = true, accumulate_dx = false, accumulate_dgamma = false, accumulate_dbeta = false;
};
constexpr float kBefore = 0.75f;  // old value of an accumulated gradient

Tensor tensor_of(uint64_t rows, uint32_t columns) {
  Tensor tensor;
  tensor.rank = 2, tensor.shape[0] = static_cast<uint32_t>(rows), tensor.shape[1] = columns;
  return tensor;
}

uint64_t backward_scratch_bytes(const Problem& p, const Wanted& wanted) {
  const Tensor matrix = tensor_of(p.M, p.C), moments = tensor_of(p.M, 1), channels = tensor_of(1, p.C);
  const Tensor* tensors[kMaxArguments] = {&matrix,  &channels, &channels, &matrix,
                                          &moments, &moments,  &channels, &matrix};
  constexpr uint32_t kGamma = 1u << LayerNormBackward::kDgamma, kBeta = 1u << LayerNormBackward::kDbeta;
  const uint32_t absent = (wanted.dgamma ? 0 : kGamma) | (wanted.dbeta ? 0 : kBeta);
  return kCudaRules.scratch_bytes({Op::kLayerNorm, Pass::kBackward, tensors, 0xffu & ~absent, nullptr, 0});
}

// A kernel's scratch, filled with `held`. It has exactly the bytes that the rule returns. Guards of
// NaN on both sides must not change.
class Scratch {
 public:
  Scratch(uint64_t bytes, float held) : bytes_(bytes), memory_(bytes / sizeof(float) + 2 * kGuard, kNan) {
    std::fill(memory_.begin() + kGuard, memory_.end() - kGuard, held);
  }
  void* data() { return bytes_ == 0 ? nullptr : memory_.data() + kGuard; }
  uint64_t bytes() const { return bytes_; }
  bool guards_intact() const {
    const auto is_nan = [](float v) { return std::isnan(v); };
    return std::all_of(memory_.begin(), memory_.begin() + kGuard, is_nan) &&
           std::all_of(memory_.end() - kGuard, memory_.end(), is_nan);
  }

 private:
  static constexpr int kGuard = 64;
  uint64_t bytes_;
  Floats memory_;
};

struct Backward {
  Floats dx, dgamma, dbeta;

  Backward(const Problem& p, const Forward& forward, const Wanted& w, float scratch_kept = kNan)
      : dx(p.M * p.C, w.accumulate_dx ? kBefore : kNan),
        dgamma(p.C, w.accumulate_dgamma ? kBefore : kNan),
        dbeta(p.C, w.accumulate_dbeta ? kBefore : kNan) {
    Scratch scratch(backward_scratch_bytes(p, w), scratch_kept);
    ArgumentsOf<LayerNormBackward> args{};
    args.dx = dx.data(), args.dgamma = w.dgamma ? dgamma.data() : nullptr,
    args.dbeta = w.dbeta ? dbeta.data() : nullptr;
    args.x = p.x.data(), args.mean = forward.mean.data(), args.rstd = forward.rstd.data();
    args.gamma = p.gamma.data(), args.dy = p.dy.data();
    args.scratch = scratch.data(), args.scratch_bytes = scratch.bytes();
    args.M = p.M, args.C = p.C;
    args.accumulate_dx = w.accumulate_dx, args.accumulate_dgamma = w.accumulate_dgamma,
    args.accumulate_dbeta = w.accumulate_dbeta;
    const Status status = run_and_wait<LayerNormBackward, cuda_layer_norm_backward>({}, args);
    EXPECT_TRUE(status.ok()) << status.message << " " << status.detail;
    EXPECT_TRUE(scratch.guards_intact());
    expect_no_fault();
  }
};

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// ---- the kernels ----

struct Shape {
  uint64_t M;
  uint32_t C;
};
void PrintTo(const Shape& s, std::ostream* out) { *out << s.M << "x" << s.C; }

// Shapes at the limits of every variant that C selects: one float or four at a time; 1, 2, 4, 6 or
// 8 packs in registers, or none. Also fewer rows than a block has warps; one chunk, and several
// chunks of which the last is short; and more chunks than warps.
constexpr Shape kShapes[] = {{1, 1},    {5, 3},    {17, 31},   {3, 32},    {9, 33},   {1, 4},   {70, 12},
                             {33, 128}, {2, 130},  {35, 132},  {3, 256},   {20, 260}, {4, 512}, {18, 516},
                             {3, 768},  {17, 772}, {18, 1024}, {19, 1028}, {2, 1031}, {130, 5}};

class CudaLayerNorm : public ::testing::TestWithParam<Shape> {
 protected:
  CudaLayerNorm() { fibre::set_order(1); }
  const Problem problem_{GetParam().M, GetParam().C};
  const Reference reference_{problem_};
  const double M_ = static_cast<double>(problem_.M), C_ = problem_.C;
};

TEST_P(CudaLayerNorm, ForwardAgreesWithTheReference) {
  const Forward got(problem_);
  expect_close("y", got.y, reference_.y, reference_.y_size, C_);
  expect_close("mean", got.mean, reference_.mean, reference_.mean_size, C_);
  expect_close("rstd", got.rstd, reference_.rstd, reference_.rstd_size, C_);
}

TEST_P(CudaLayerNorm, BackwardAgreesWithTheReference) {
  const Forward forward(problem_);
  for (uint32_t bits = 0; bits < 8; ++bits) {
    const Wanted w{
        .accumulate_dx = (bits & 1) != 0, .accumulate_dgamma = (bits & 2) != 0, .accumulate_dbeta = (bits & 4) != 0};
    const Backward got(problem_, forward, w);
    expect_close("dx", got.dx, reference_.dx, reference_.dx_size, C_, w.accumulate_dx ? kBefore : 0);
    expect_close("dgamma", got.dgamma, reference_.dgamma, reference_.dgamma_size, M_,
                 w.accumulate_dgamma ? kBefore : 0);
    expect_close("dbeta", got.dbeta, reference_.dbeta, reference_.dbeta_size, M_, w.accumulate_dbeta ? kBefore : 0);
    if (problem_.M * problem_.C > 3000 && bits == 0) bits = 6;  // large shapes: accumulate either none or all
  }
}

TEST_P(CudaLayerNorm, AbsentGradientsChangeNoOther) {
  const Forward forward(problem_);
  const Backward all(problem_, forward, {});
  for (const Wanted w : {Wanted{.dgamma = false}, Wanted{.dbeta = false}, Wanted{.dgamma = false, .dbeta = false}}) {
    const Backward got(problem_, forward, w);
    EXPECT_TRUE(same_bits(got.dx, all.dx));
    EXPECT_TRUE(same_bits(got.dgamma, w.dgamma ? all.dgamma : Floats(problem_.C, kNan)));
    EXPECT_TRUE(same_bits(got.dbeta, w.dbeta ? all.dbeta : Floats(problem_.C, kNan)));
  }
}

TEST_P(CudaLayerNorm, BitsDoNotDependOnTheOrderOfThreadsNorOnScratch) {
  const Forward forward(problem_);
  const Backward backward(problem_, forward, {});
  for (const uint64_t seed : {2u, 3u, 4u}) {
    fibre::set_order(seed);
    const Forward again(problem_);
    EXPECT_TRUE(same_bits(again.y, forward.y) && same_bits(again.mean, forward.mean) &&
                same_bits(again.rstd, forward.rstd))
        << seed;
    const Backward back(problem_, again, {}, static_cast<float>(seed));
    EXPECT_TRUE(same_bits(back.dx, backward.dx) && same_bits(back.dgamma, backward.dgamma) &&
                same_bits(back.dbeta, backward.dbeta))
        << seed;
  }
}

// Above 2048 rows the number of chunks is constant and chunks become longer. Only one run is made,
// because 128 blocks of 256 fibres take long.
TEST(CudaLayerNormRows, ManyShareTheMostChunks) {
  const Problem problem(2100, 4);
  const Reference reference(problem);
  const Backward got(problem, Forward(problem), {});
  expect_close("dx", got.dx, reference.dx, reference.dx_size, 4);
  expect_close("dgamma", got.dgamma, reference.dgamma, reference.dgamma_size, 2100);
  expect_close("dbeta", got.dbeta, reference.dbeta, reference.dbeta_size, 2100);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaLayerNorm, ::testing::ValuesIn(kShapes), [](const auto& info) {
  return std::to_string(info.param.M) + "x" + std::to_string(info.param.C);
});

// A host that does not wait must not see the results, as on a card.
TEST(CudaLayerNormQueue, ResultsAreNotThereBeforeTheHostSynchronises) {
  const Problem p(3, 8);
  Floats y(p.M * p.C, kNan), mean(p.M, kNan), rstd(p.M, kNan);
  const auto is_nan = [](float v) { return std::isnan(v); };
  const ArgumentsOf<LayerNormForward> args = {
      y.data(), mean.data(), rstd.data(), p.x.data(), p.gamma.data(), p.beta.data(), p.M, p.C, kEpsilon};
  ASSERT_TRUE(cuda_layer_norm_forward({}, args).ok());
  EXPECT_TRUE(std::all_of(y.begin(), y.end(), is_nan));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(std::none_of(y.begin(), y.end(), is_nan));
  expect_no_fault();
}

// ---- the scratch rule ----

TEST(CudaScratch, ChunksCoverTheRowsOnceAndStayFew) {
  for (uint64_t M = 1; M < 5000; M += M < 300 ? 1 : 37) {
    const CudaRowChunks chunks = cuda_layer_norm_chunks(M, CardSize::kSmall);
    EXPECT_LE(chunks.count(), 128u);
    EXPECT_GE(chunks.count() * chunks.rows, M);
    EXPECT_LT((chunks.count() - 1) * chunks.rows, M);
    EXPECT_LE(cuda_layer_norm_backward_scratch_bytes(M, 1, CardSize::kSmall), std::max<uint64_t>(8, (M + 15) / 16 * 8));
  }
}

TEST(CudaScratch, IsAConstantOfTheShape) {
  constexpr uint64_t bytes = [] {
    Tensor x;
    x.rank = 2, x.shape[0] = 1000, x.shape[1] = 12;
    const Tensor* tensors[kMaxArguments] = {&x, &x, &x, &x, &x, &x, &x, &x};
    return kCudaRules.scratch_bytes({Op::kLayerNorm, Pass::kBackward, tensors, 0xff, nullptr, 0});
  }();
  static_assert(bytes == 63 * 2 * 12 * 4);
}

}  // namespace
}  // namespace reprise::test
