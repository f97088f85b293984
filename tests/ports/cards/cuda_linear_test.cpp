// Runs the CUDA linear layers on fibres. Also tests the rules that choose the tile and the number
// of parts for the shape of a product.
#include "tests/ports/cards/cuda_products.h"

#include <algorithm>
#include <set>
#include <utility>

namespace reprise::test {
namespace {

REPRISE_JUDGE_PRODUCTS(23, 7, Op::kLinear);
REPRISE_JUDGE_MATH(Tf32, kTf32Backend, 13, 97, Op::kLinear);
REPRISE_JUDGE_MATH(Bf16x3, kBf16x3Backend, 13, 97, Op::kLinear);

// ---- the shape rules ----

TEST(CudaProductShape, PartsCoverTheDepthOnce) {
  for (uint64_t depth = 1; depth < 20000; depth += depth < 600 ? 1 : 61) {
    for (const uint64_t side : {1u, 64u, 200u, 2000u}) {
      const DepthSplit split = split_depth({side, side, depth}, {kSmallSide, kSmallSide}, CardSize::kSmall);
      EXPECT_GE(split.count * split.size, depth);
      EXPECT_LT((split.count - 1) * split.size, depth);
      EXPECT_LE(split.count, 64u);
    }
    const DepthSplit chunks = split_rows_of_columns(depth);
    EXPECT_GE(chunks.count * chunks.size, depth);
    EXPECT_LT((chunks.count - 1) * chunks.size, depth);
    EXPECT_LE(chunks.count, 128u);
  }
}

// In a product of 2048 x 2048, each group of 16 tiles of consecutive blocks must cover a square. In
// a product with other sides, each tile must belong to exactly one block.
TEST(CudaProductShape, SixteenTilesThatFollowEachOtherCoverASquare) {
  const ProductShape shape{3000, 2200, 64};
  for (const TileSides tile : {kSquareTile, kTallTile, kWideTile, TileSides{kSmallSide, kSmallSide}}) {
    for (uint64_t first = 0; first + 16 <= tile.tiles({2048, 2048, 64}); first += 16) {
      uint64_t low_row = ~0ull, low_column = ~0ull, row_end = 0, column_end = 0;
      for (uint64_t block = first; block < first + 16; ++block) {
        const TileCorner at = tile_corner({2048, 2048, 64}, tile, block);
        low_row = std::min(low_row, at.row), row_end = std::max(row_end, at.row + tile.rows);
        low_column = std::min(low_column, at.column), column_end = std::max(column_end, at.column + tile.columns);
      }
      EXPECT_EQ(row_end - low_row, column_end - low_column)
          << tile.rows << " x " << tile.columns << ", block " << first;
      EXPECT_EQ((row_end - low_row) * (column_end - low_column), 16ull * tile.rows * tile.columns);
    }
    std::set<std::pair<uint64_t, uint64_t>> corners;
    for (uint64_t block = 0; block < tile.tiles(shape); ++block) {
      const TileCorner at = tile_corner(shape, tile, block);
      EXPECT_TRUE(at.row < shape.rows && at.column < shape.columns && at.row % tile.rows == 0 &&
                  at.column % tile.columns == 0);
      corners.insert({at.row, at.column});
    }
    EXPECT_EQ(corners.size(), tile.tiles(shape));
  }
}

TEST(CudaProductShape, TensorCoresTakeTheTileThatComputesLeastBeyondTheEdges) {
  const auto sides = [](uint64_t rows, uint64_t columns) {
    const TileSides tile = mma_tile({rows, columns, 64});
    return std::pair(tile.rows, tile.columns);
  };
  EXPECT_EQ(sides(1024, 1024), std::pair(128u, 128u));
  EXPECT_EQ(sides(200704, 64), std::pair(256u, 64u));  // a layer in the first stage of ResNet-50
  EXPECT_EQ(sides(64, 576), std::pair(64u, 256u));     // gradient of this layer's weight
  EXPECT_EQ(sides(100, 100), std::pair(128u, 128u));
}

// ---- adapters ----

// An adapter runs on tensor cores if its rank is whole chunks and the product has no scale.
TEST(CudaAdapter, IsMoreDepthOfTheProductByTensorCores) {
  EXPECT_TRUE(linear_forward_uses_mma(DType::kBf16, 72, 200, 40, 1));
  EXPECT_TRUE(linear_forward_uses_mma(DType::kBf16, 72, 200, 0, 0.5f));
  EXPECT_FALSE(linear_forward_uses_mma(DType::kBf16, 72, 200, 40, 0.5f));
  EXPECT_FALSE(linear_forward_uses_mma(DType::kBf16, 72, 200, 4, 1));
  EXPECT_FALSE(linear_forward_uses_mma(DType::kF32, 72, 200, 40, 1));
}

// ---- tensor cores ----

// Cases with shapes that tensor cores support: both layouts of a weight, the gradients of input and
// weight, and adapters.
constexpr const char* kMmaCases[] = {"linear_forward__m32_c16_k32",
                                     "linear_forward__m32_c16_k32_input_major",
                                     "linear_backward_data__m48_c256_k48",
                                     "linear_backward_weight__m48_c256_k48",
                                     "linear_forward__m40_c72_k200_r40",
                                     "linear_forward__m40_c72_k200_r40_input_major"};

TEST(CudaTensorCores, ReadAndWriteSharedMemoryWithoutBankConflicts) {
  for (const char* id : kMmaCases) {
    expect_no_bank_conflicts(stored_case(id));
    for (const Backend* backend : {&kTf32Backend, &kBf16x3Backend}) expect_no_bank_conflicts(plain_case(id), *backend);
  }
}
// Tests the f32 tile with operands in chunks of 16 bytes (chunk_source.h). A chunk of consecutive
// depths is transposed when it is written to shared memory; a chunk of consecutive indices is
// written as it is.
TEST(CudaChunks, OfF32ReadAndWriteSharedMemoryWithoutBankConflicts) {
  for (const char* id : {"linear_forward__m32_c16_k32", "linear_forward__m32_c16_k32_input_major",
                         "linear_backward_weight__m48_c256_k48"}) {
    const std::vector<KernelCase>& cases = kernel_cases();
    const auto found = std::find_if(cases.begin(), cases.end(), [&](const KernelCase& c) { return c.id == id; });
    ASSERT_NE(found, cases.end()) << id;
    (void)fibre::take_bank_counts();
    EXPECT_EQ(judge_reference(watched(kBackend), *found), "") << id;
    const fibre::BankCounts counts = fibre::take_bank_counts();
    EXPECT_GT(counts.loads.accesses, 0u) << id;
    EXPECT_GT(counts.stores.accesses, 0u) << id;
    EXPECT_EQ(counts.conflicts(), 0u) << id;
  }
}
TEST(CudaTensorCores, PassInEveryModelOfTheirSums) {
  for (const char* id : kMmaCases) {
    expect_right_in_every_model(stored_case(id));
    for (const Backend* backend : {&kTf32Backend, &kBf16x3Backend})
      expect_right_in_every_model(plain_case(id), *backend);
  }
}

}  // namespace
}  // namespace reprise::test
