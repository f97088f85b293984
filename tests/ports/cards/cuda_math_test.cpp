// Tests how tensor cores multiply f32 (cuda/gemm/product_math.h), in addition to the cases of
// cuda_linear_test and cuda_conv_test. The judge must detect wrong fragments, and infinities must
// stay infinite. Also tests the products of the loss head, and the rules that choose a math.
#include "tests/ports/cards/cuda_products.h"

#include <cmath>
#include <limits>
#include <set>

#include "cuda/gemm/tile_mma.h"
#include "tests/ops/kernel_run.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {
namespace {

// ---- the loss head ----

REPRISE_JUDGE_MATH(Tf32, kTf32Backend, 47, 263, Op::kLossHead);
REPRISE_JUDGE_MATH(Bf16x3, kBf16x3Backend, 47, 263, Op::kLossHead);

// ---- wrong fragments ----

struct CutInsteadOfRounded : Tf32Math {
  template <typename Operand>
  __device__ static void load_a(A& a, const SharedBytes& shared, uint32_t stage, uint32_t index, uint32_t chunk) {
    Operand::load_a(a.r, shared, stage, index, chunk);
  }
};
struct ColumnsSwapped : Tf32Math {
  template <typename Operand>
  __device__ static void load_b(B (&b)[2], const SharedBytes& shared, uint32_t stage, uint32_t index, uint32_t chunk) {
    Tf32Math::load_b<Operand>(b, shared, stage, index, chunk);
    std::swap(b[0], b[1]);
  }
};
struct DepthsSwapped : Tf32Math {
  template <typename Operand>
  __device__ static void load_a(A& a, const SharedBytes& shared, uint32_t stage, uint32_t index, uint32_t chunk) {
    Tf32Math::load_a<Operand>(a, shared, stage, index, chunk);
    std::swap(a.r[0], a.r[2]);
  }
};
template <uint32_t kLost>
struct PartLost : Bf16x3Math {
  template <uint32_t kPart>
  __device__ static void multiply_add(float (&c)[4], const A& a, const B& b) {
    if constexpr (kPart != kLost) Bf16x3Math::multiply_add<kPart>(c, a, b);
  }
};
struct LowOfTheOther : Bf16x3Math {
  template <uint32_t kPart>
  __device__ static void multiply_add(float (&c)[4], const A& a, const B& b) {
    multiply_add_bf16(c, kPart == 2 ? a.low : a.high, kPart == 2 ? b.low : b.high);
  }
};

// Runs the forward of a linear layer with the fragments of `Math`, without bias and adapter.
template <typename Math>
Status forward_by(const KernelContext& context, const LinearForwardArgsOf<float>& args) {
  using Tile = TensorTile<kSquareTile.rows, kSquareTile.columns, Math>;
  const ProductShape shape = {args.M, args.K, args.C};
  const TileOutput<float> to{args.y, {args.K}, args.b, false, args.K % 4 == 0, 0};
  const RowChunks<float> x{args.x, args.M, args.C};
  if (args.input_major) {
    const ColumnChunks<float> w{args.w.f32(), args.K, args.K};
    launch_mma_by<Tile, false>(context,
                               TileProduct<RowChunks<float>, ColumnChunks<float>, TileOutput<float>>{x, w, to, shape,
                                                                                                     shape.depth,
                                                                                                     nullptr},
                               1);
  } else {
    const RowChunks<float> w{args.w.f32(), args.K, args.C};
    launch_mma_by<Tile, false>(context,
                               TileProduct<RowChunks<float>, RowChunks<float>, TileOutput<float>>{x, w, to, shape,
                                                                                                  shape.depth, nullptr},
                               1);
  }
  return launch_status();
}
template <typename Math>
std::string verdict_on(Backend table, const char* id) {
  table.set<LinearForward, float, forward_by<Math>>();
  return judge_reference(watched(table), plain_case(id));
}

TEST(CudaMath, WrongFragmentsAreFound) {
  for (const char* id :
       {"linear_forward__m32_c16_k32", "linear_forward__m32_c16_k32_input_major", "linear_forward__m48_c256_k48"}) {
    EXPECT_EQ(verdict_on<Tf32Math>(kTf32Backend, id), "") << id;
    EXPECT_EQ(verdict_on<Bf16x3Math>(kBf16x3Backend, id), "") << id;
    EXPECT_NE(verdict_on<CutInsteadOfRounded>(kTf32Backend, id), "") << id;
    EXPECT_NE(verdict_on<ColumnsSwapped>(kTf32Backend, id), "") << id;
    EXPECT_NE(verdict_on<DepthsSwapped>(kTf32Backend, id), "") << id;
    EXPECT_NE(verdict_on<PartLost<0>>(kBf16x3Backend, id), "") << id;
    EXPECT_NE(verdict_on<PartLost<1>>(kBf16x3Backend, id), "") << id;
    EXPECT_NE(verdict_on<PartLost<2>>(kBf16x3Backend, id), "") << id;
    EXPECT_NE(verdict_on<LowOfTheOther>(kBf16x3Backend, id), "") << id;
    EXPECT_NE(verdict_on<Tf32Math>(kBf16x3Backend, id), "") << id << ": 11 bits are not 16";
  }
  EXPECT_EQ(fibre::take_report().text, "");
}

// ---- infinite, NaN and large numbers ----

// Returns y of a linear layer on this backend, with x[0] set to `x` and w[0] set to `w`.
std::vector<double> forward_of(const Backend& backend, double x, double w) {
  const KernelCase c = plain_case("linear_forward__m32_c16_k32");
  CaseData data = make_data(c);
  data.values[LinearForward::kX].flat(0) = x, data.values[LinearForward::kW].flat(0) = w;
  const TestWorkers one(1);
  const CaseRunResult result = run_case(watched(backend), c, data, {.workers = &one.workers()});
  EXPECT_EQ(result.fault, "");
  return read_values(Element::kF32, result.outputs[LinearForward::kY]);
}
std::string kind_of(double value) {
  return std::isnan(value) ? "NaN" : std::isinf(value) ? (value > 0 ? "inf" : "-inf") : "finite";
}

TEST(CudaMath, InfinitiesAndNanAreWhatTheyAreInF32) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  for (const fibre::TensorCore model : {fibre::TensorCore::kAmpere, fibre::TensorCore::kHopper}) {
    fibre::set_tensor_core(model);
    for (const double x : {kInf, kNan, 3.0e38}) {
      for (const double w : {-kInf, kNan, 0.0, 1e-30, -0x1.01p127, 0.3}) {
        const std::vector<double> want = forward_of(kBackend, x, w);
        for (const Backend* backend : {&kTf32Backend, &kBf16x3Backend}) {
          const std::vector<double> got = forward_of(*backend, x, w);
          for (size_t i = 0; i < want.size(); ++i) {
            ASSERT_EQ(kind_of(got[i]), kind_of(want[i]))
                << x << " times " << w << " by " << backend->rules->name << " in y[" << i << "]";
          }
        }
      }
    }
  }
  fibre::set_tensor_core(fibre::kTensorCores[0]);
  EXPECT_EQ(fibre::take_report().text, "");
}

// The largest f32 exceeds the largest tf32, so it becomes infinite in tf32. Represented by two bf16
// (bf16x3) it stays finite.
TEST(CudaMath, TheLargestNumbersAreInfiniteInTf32Alone) {
  const double largest = std::numeric_limits<float>::max();
  EXPECT_EQ(kind_of(forward_of(kTf32Backend, largest, 0.25)[0]), "inf");
  const double by_three = forward_of(kBf16x3Backend, largest, 0.25)[0];
  EXPECT_NEAR(by_three / (largest / 4), 1, 0x1p-15);
  EXPECT_EQ(fibre::take_report().text, "");
}

// ---- the rules ----

TEST(CudaMath, IsAPartOfTheTablesName) {
  std::set<std::string> names;
  for (const CudaTable& table : kCudaTables) {
    CudaMachine machine;
    choose_cuda_machine(machine, table.size, table.math);
    const Backend backend = cuda_backend(machine);
    EXPECT_EQ(backend.rules, table.rules);
    EXPECT_EQ(std::string(backend.kernel_set).find(std::string(table.rules->name) + "/"), 0u) << backend.kernel_set;
    names.insert(backend.kernel_set);
  }
  EXPECT_EQ(names.size(), 6u);
}

// With the math f32, kernels read weights of other types directly, and an adapter is not joined to
// the product. With any other math and f32 activations, a weight that is not f32 is decoded, so
// that it can be read in chunks. An adapter of whole chunks without a scale is then additional
// depth.
TEST(CudaMath, DecidesWhichWeightsAreDecoded) {
  for (const ProductMath math : {ProductMath::kTf32, ProductMath::kBf16x3}) {
    EXPECT_FALSE(reads_weights(DType::kBf16, DType::kF32, math));
    EXPECT_TRUE(reads_weights(DType::kF32, DType::kF32, math));
    EXPECT_TRUE(reads_weights(DType::kBf16, DType::kBf16, math));
    EXPECT_TRUE(linear_joins_f32(DType::kF32, math, 72, 200, 40, 1));
    EXPECT_FALSE(linear_joins_f32(DType::kF32, math, 72, 200, 40, 0.5f));
    EXPECT_FALSE(linear_joins_f32(DType::kF32, math, 72, 200, 6, 1));
  }
  EXPECT_TRUE(reads_weights(DType::kBf16, DType::kF32, ProductMath::kF32));
  EXPECT_FALSE(linear_joins_f32(DType::kF32, ProductMath::kF32, 72, 200, 40, 1));
}

}  // namespace
}  // namespace reprise::test
