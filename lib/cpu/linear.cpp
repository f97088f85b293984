// Linear layers: forward and the gradients of data, weight and bias, as matrix products.
// Here because each is one call of gemm() with the right packers.
// It must not know blocking, tiles or threads.
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/gemm.h"

namespace reprise {
namespace {

// A row-major matrix [rows, columns] as an operand whose lines are its rows, or its columns.
MatrixPacker lines_are_rows(const float* data, uint64_t columns) { return {data, static_cast<int64_t>(columns), 1}; }
MatrixPacker lines_are_columns(const float* data, uint64_t columns) { return {data, 1, static_cast<int64_t>(columns)}; }

constexpr Status kScratchTooSmall = {Code::kBadPlan,
                                     "a linear kernel's scratch must have the bytes of its scratch rule", 0};

}  // namespace

Status cpu_linear_forward(const KernelContext& context, const LinearForwardArgs& args) {
  if (args.scratch_bytes < gemm_scratch_bytes(args.K, args.C)) return kScratchTooSmall;
  const MatrixOutput y{args.y, args.K};
  if (args.b != nullptr) {  // the product then adds to rows that hold the bias
    for_each_piece(*context.workers, split_rows(args.M, args.K), [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) std::memcpy(y.row(i), args.b, args.K * sizeof(float));
    });
  }
  const MatrixPacker w = args.input_major ? lines_are_columns(args.w, args.K) : lines_are_rows(args.w, args.C);
  gemm(*context.workers, {args.M, args.K, args.C}, lines_are_rows(args.x, args.C), w, y, args.b != nullptr,
       args.scratch);
  return ok_status();
}

Status cpu_linear_backward_data(const KernelContext& context, const LinearBackwardDataArgs& args) {
  if (args.scratch_bytes < gemm_scratch_bytes(args.C, args.K)) return kScratchTooSmall;
  const MatrixPacker w = args.input_major ? lines_are_rows(args.w, args.K) : lines_are_columns(args.w, args.C);
  gemm(*context.workers, {args.M, args.C, args.K}, lines_are_rows(args.dy, args.K), w, MatrixOutput{args.dx, args.C},
       args.accumulate_dx, args.scratch);
  return ok_status();
}

Status cpu_linear_backward_weight(const KernelContext& context, const LinearBackwardWeightArgs& args) {
  const MatrixPacker x = lines_are_columns(args.x, args.C), dy = lines_are_columns(args.dy, args.K);
  const GemmShape shape = args.input_major ? GemmShape{args.C, args.K, args.M} : GemmShape{args.K, args.C, args.M};
  if (args.scratch_bytes < gemm_split_scratch_bytes(shape.M, shape.N, shape.K)) return kScratchTooSmall;
  gemm_split(*context.workers, shape, args.input_major ? x : dy, args.input_major ? dy : x, args.dw, args.accumulate_dw,
             args.scratch);
  return ok_status();
}

Status cpu_linear_backward_bias(const KernelContext& context, const LinearBackwardBiasArgs& args) {
  if (args.scratch_bytes < 4 * kColumnSumBlocks * uint64_t{args.K}) return kScratchTooSmall;
  column_sums(*context.workers, args.db, args.dy, args.M, args.K, args.accumulate_db, args.scratch);
  return ok_status();
}

}  // namespace reprise
