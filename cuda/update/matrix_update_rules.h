// Scratch of the updates that treat a parameter as a matrix. Planner and kernels must use the same
// layout, and the planner has no device.
#pragma once

#include "cuda/gemm/linear_rules.h"
#include "cuda/row_chunks.h"

namespace reprise {

// Number of blocks that sum over a tensor. Each block writes one sum. A block that needs the total
// adds these sums itself.
constexpr uint32_t kSumBlocks = 256;
constexpr uint64_t kSumsBytes = align_up(kSumBlocks * sizeof(double));

// Splits rows into chunks. Sums over a column are first computed for each chunk.
constexpr CudaRowChunks update_row_chunks(uint64_t rows) { return cuda_row_chunks(rows, 64, 32); }

// The layout of an update's scratch: the byte offset of each array, and the bytes of all.
struct CudaAdafactorScratch {
  uint64_t of_parameters, of_update;  // kSumBlocks sums of squares each, double
  uint64_t mean;                      // the mean of `row`, double
  uint64_t column_sums;               // f32 [chunks][columns]: sums of squares
  uint64_t row_factors, column_factors, bytes;
};
constexpr CudaAdafactorScratch cuda_adafactor_scratch(const contract::MatrixShape& m, bool is_matrix) {
  CudaAdafactorScratch s = {};
  s.of_update = kSumsBytes;
  s.mean = 2 * kSumsBytes;
  s.column_sums = s.mean + kAlignment;
  s.row_factors =
      s.column_sums + (is_matrix ? align_up(update_row_chunks(m.rows).count() * m.columns * sizeof(float)) : 0);
  s.column_factors = s.row_factors + (is_matrix ? align_up(m.rows * sizeof(float)) : 0);
  s.bytes = s.column_factors + (is_matrix ? align_up(m.columns * sizeof(float)) : 0);
  return s;
}

struct CudaApolloScratch {
  uint64_t of_steps, of_projected, of_update;  // kSumBlocks sums of squares each, double
  uint64_t projection, projected, factors, product, bytes;
};
constexpr CudaApolloScratch cuda_apollo_scratch(const contract::MatrixShape& m, uint64_t rank, CardSize card) {
  CudaApolloScratch s = {};
  s.of_projected = kSumsBytes;
  s.of_update = 2 * kSumsBytes;
  s.projection = 3 * kSumsBytes;
  s.projected = s.projection + align_up(m.shorter() * rank * sizeof(float));
  s.factors = s.projected + align_up(m.longer() * rank * sizeof(float));
  s.product = s.factors + align_up(m.longer() * sizeof(float));
  const ProductShape shape = linear_weight_product(m.rows, rank, m.columns, false);
  s.bytes = s.product +
            (m.rows < m.columns
                 ? split_scratch_bytes(shape, linear_weight_tile(shape, DType::kF32, ProductMath::kF32, card), card)
                 : 0);
  return s;
}

struct CudaMuonScratch {
  uint64_t sums, x, next, square, factors, product, bytes;
};
constexpr CudaMuonScratch cuda_muon_scratch(const contract::MatrixShape& m, CardSize card) {
  const uint64_t matrix = align_up(m.rows * m.columns * sizeof(float)),
                 small = align_up(m.shorter() * m.shorter() * sizeof(float));
  CudaMuonScratch s = {};
  s.x = kSumsBytes;
  s.next = s.x + matrix;
  s.square = s.next + matrix;
  s.factors = s.square + small;
  s.product = s.factors + small;
  const ProductShape shape = linear_weight_product(m.rows, m.columns, m.columns, false);
  s.bytes = s.product +
            (m.rows > m.columns
                 ? split_scratch_bytes(shape, linear_weight_tile(shape, DType::kF32, ProductMath::kF32, card), card)
                 : 0);
  return s;
}

template <CardSize kCard>
constexpr void add_cuda_matrix_update_rules(BackendRules& rules) {
  rules.have(MatrixUpdateKernels{});
  rules.of<AdafactorUpdate>().scratch_bytes = [](const ShapedCall& c) {
    return cuda_adafactor_scratch(contract::matrix_of(c[AdafactorUpdate::kParameters]), c.has(AdafactorUpdate::kColumn))
        .bytes;
  };
  rules.of<ApolloUpdate>().scratch_bytes = [](const ShapedCall& c) {
    return cuda_apollo_scratch(contract::matrix_of(c[ApolloUpdate::kParameters]),
                               c[ApolloUpdate::kFirstMoments].last_dimension(), kCard)
        .bytes;
  };
  rules.of<MuonUpdate>().scratch_bytes = [](const ShapedCall& c) {
    return cuda_muon_scratch(contract::matrix_of(c[MuonUpdate::kParameters]), kCard).bytes;
  };
}

}  // namespace reprise
