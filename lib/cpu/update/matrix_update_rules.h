// Scratch and stack of the optimizer updates that treat a parameter as a matrix. Planner, checker
// and kernels share these definitions.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/gemm/gemm_scratch.h"

namespace reprise {

// Maximum pieces of a sum over a tensor. Pieces are summed separately, then added in order. A piece
// consists of complete blocks of State (lib/state_format.h).
constexpr uint32_t kUpdatePieces = 32;
constexpr Partition update_pieces(uint64_t elements) {
  return {elements, larger(kBlockElements, divide_up(divide_up(elements, kUpdatePieces), kStateBlock) * kStateBlock)};
}
// Returns the split of rows, or channels, into groups that are summed together.
constexpr Partition update_rows(uint64_t rows, uint64_t columns) {
  return split_at_most(rows, kUpdatePieces, larger(1, kBlockElements / larger(columns, 1)));
}

// Offsets of the parts of an update's scratch, in bytes.
struct AdafactorScratch {
  uint64_t sums;           // [2][pieces], double: sums of squares; only the first half is used
  uint64_t column_sums;    // [chunks of rows][columns], double
  uint64_t row_factors;    // [rows]
  uint64_t column_factors; // [columns]
  uint64_t bytes;
};
constexpr AdafactorScratch adafactor_scratch(const contract::MatrixShape& m, bool is_matrix) {
  AdafactorScratch s = {};
  s.column_sums = align_up(2 * kUpdatePieces * sizeof(double));
  s.row_factors =
      s.column_sums + (is_matrix ? align_up(update_rows(m.rows, m.columns).count() * m.columns * sizeof(double)) : 0);
  s.column_factors = s.row_factors + (is_matrix ? align_up(m.rows * sizeof(float)) : 0);
  s.bytes = s.column_factors + (is_matrix ? align_up(m.columns * sizeof(float)) : 0);
  return s;
}

struct ApolloScratch {
  uint64_t sums;        // [2][pieces], double: sums of squares of Adam's steps, and of R
  uint64_t projection;  // the projection P, [shorter side, r]
  uint64_t projected;   // the projected gradient R, [longer side, r]
  uint64_t factors;     // [longer side]
  uint64_t product;     // scratch of the matrix product
  uint64_t product_bytes, bytes;
};
constexpr ApolloScratch apollo_scratch(const contract::MatrixShape& m, uint64_t rank, CpuSize size) {
  ApolloScratch s = {};
  s.projection = align_up(2 * kUpdatePieces * sizeof(double));
  s.projected = s.projection + align_up(m.shorter() * rank * sizeof(float));
  s.factors = s.projected + align_up(m.longer() * rank * sizeof(float));
  s.product = s.factors + align_up(m.longer() * sizeof(float));
  s.product_bytes = m.rows < m.columns ? gemm_split_scratch_bytes(m.columns, rank, m.rows, size)
                                       : gemm_scratch_bytes(rank, m.columns, DType::kF32, size);
  s.bytes = s.product + s.product_bytes;
  return s;
}

struct MuonScratch {
  uint64_t sums;             // [pieces], double
  uint64_t x, next;          // [rows, columns] each
  uint64_t square, factors;  // [shorter, shorter] each: A, and the matrix by which x is multiplied
  uint64_t product;
  uint64_t product_bytes, bytes;
};
constexpr MuonScratch muon_scratch(const contract::MatrixShape& m, CpuSize size) {
  const uint64_t matrix = align_up(m.rows * m.columns * sizeof(float)),
                 small = align_up(m.shorter() * m.shorter() * sizeof(float));
  MuonScratch s = {};
  s.x = align_up(kUpdatePieces * sizeof(double));
  s.next = s.x + matrix;
  s.square = s.next + matrix;
  s.factors = s.square + small;
  s.product = s.factors + small;
  const uint64_t of_square = m.rows > m.columns ? gemm_split_scratch_bytes(m.columns, m.columns, m.rows, size)
                                                : gemm_scratch_bytes(m.rows, m.columns, DType::kF32, size);
  const uint64_t of_step = gemm_scratch_bytes(m.columns, m.shorter(), DType::kF32, size);
  s.product_bytes = larger(larger(of_square, of_step), gemm_scratch_bytes(m.shorter(), m.shorter(), DType::kF32, size));
  s.bytes = s.product + s.product_bytes;
  return s;
}

// Stack bytes of the blocks of State, and of the draws that round them. On a large core the
// kernel's frame has space for them.
template <CpuSize kSize>
inline constexpr uint64_t kUpdateStackBytes = kSize == CpuSize::kSmall ? 3584 : 0;

template <CpuSize kSize>
constexpr void add_matrix_update_rules(BackendRules& rules) {
  rules.of<AdafactorUpdate>().scratch_bytes = [](const ShapedCall& c) {
    return adafactor_scratch(contract::matrix_of(c[AdafactorUpdate::kParameters]), c.has(AdafactorUpdate::kColumn))
        .bytes;
  };
  rules.of<ApolloUpdate>().scratch_bytes = [](const ShapedCall& c) {
    return apollo_scratch(contract::matrix_of(c[ApolloUpdate::kParameters]),
                          c[ApolloUpdate::kFirstMoments].last_dimension(), kSize)
        .bytes;
  };
  rules.of<MuonUpdate>().scratch_bytes = [](const ShapedCall& c) {
    return muon_scratch(contract::matrix_of(c[MuonUpdate::kParameters]), kSize).bytes;
  };
  rules.of<AdafactorUpdate>().stack_bytes = [](const ShapedCall&) { return kUpdateStackBytes<kSize>; };
  rules.of<ApolloUpdate>().stack_bytes = [](const ShapedCall& c) {
    const contract::MatrixShape m = contract::matrix_of(c[ApolloUpdate::kParameters]);
    return larger(kUpdateStackBytes<kSize>,
                  product_stack_bytes(c[ApolloUpdate::kFirstMoments].last_dimension(), m.shorter(), {}, kSize));
  };
  rules.of<MuonUpdate>().stack_bytes = [](const ShapedCall& c) {
    const contract::MatrixShape m = contract::matrix_of(c[MuonUpdate::kParameters]);
    return larger(kUpdateStackBytes<kSize>, product_stack_bytes(m.columns, m.longer(), {}, kSize));
  };
}

}  // namespace reprise
