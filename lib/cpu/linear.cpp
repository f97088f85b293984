// Linear layers: forward and the gradients of data, weight and bias, as matrix products.
// Here because each is one call of gemm() with the right packers.
// It must not know blocking, tiles or threads.
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/gemm.h"

namespace reprise {
namespace {

// A row-major matrix [rows, columns] as an operand whose lines are its rows, or its columns.
template <typename Stored>
MatrixPackerOf<Stored> lines_are_rows(const Stored* data, uint64_t columns) {
  return {data, static_cast<int64_t>(columns), 1};
}
template <typename Stored>
MatrixPackerOf<Stored> lines_are_columns(const Stored* data, uint64_t columns) {
  return {data, 1, static_cast<int64_t>(columns)};
}

constexpr Status kScratchTooSmall = {Code::kBadPlan,
                                     "a linear kernel's scratch must have the bytes of its scratch rule", 0};

}  // namespace

template <typename Stored>
Status cpu_linear_forward(const KernelContext& context, const LinearForwardArgsOf<Stored>& args) {
  if (args.scratch_bytes < gemm_scratch_bytes(args.K, args.C, kStoredAs<Stored>)) return kScratchTooSmall;
  const MatrixPacker w = args.input_major ? lines_are_columns(args.w, args.K) : lines_are_rows(args.w, args.C);
  const BiasedOutputOf<Stored> y{{args.y, args.K}, args.b};
  gemm(*context.workers, {args.M, args.K, args.C}, lines_are_rows(args.x, args.C), w, y, false, args.scratch);
  return ok_status();
}

template <typename Stored>
Status cpu_linear_backward_data(const KernelContext& context, const LinearBackwardDataArgsOf<Stored>& args) {
  if (args.scratch_bytes < gemm_scratch_bytes(args.C, args.K, kStoredAs<Stored>)) return kScratchTooSmall;
  const MatrixPacker w = args.input_major ? lines_are_rows(args.w, args.K) : lines_are_columns(args.w, args.C);
  gemm(*context.workers, {args.M, args.C, args.K}, lines_are_rows(args.dy, args.K), w, MatrixOutputOf<Stored>{args.dx, args.C},
       args.accumulate_dx, args.scratch);
  return ok_status();
}

template <typename Stored>
Status cpu_linear_backward_weight(const KernelContext& context, const LinearBackwardWeightArgsOf<Stored>& args) {
  const MatrixPackerOf<Stored> x = lines_are_columns(args.x, args.C), dy = lines_are_columns(args.dy, args.K);
  const GemmShape shape = args.input_major ? GemmShape{args.C, args.K, args.M} : GemmShape{args.K, args.C, args.M};
  if (args.scratch_bytes < gemm_split_scratch_bytes(shape.M, shape.N, shape.K)) return kScratchTooSmall;
  gemm_split(*context.workers, shape, args.input_major ? x : dy, args.input_major ? dy : x, args.dw, args.accumulate_dw,
             args.scratch);
  return ok_status();
}

template <typename Stored>
Status cpu_linear_backward_bias(const KernelContext& context, const LinearBackwardBiasArgsOf<Stored>& args) {
  if (args.scratch_bytes < 4 * kColumnSumBlocks * uint64_t{args.K}) return kScratchTooSmall;
  column_sums(*context.workers, args.db, args.dy, args.M, args.K, args.accumulate_db, args.scratch);
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_linear_forward, LinearForwardArgs)
REPRISE_INSTANTIATE(cpu_linear_backward_data, LinearBackwardDataArgs)
REPRISE_INSTANTIATE(cpu_linear_backward_weight, LinearBackwardWeightArgs)
REPRISE_INSTANTIATE(cpu_linear_backward_bias, LinearBackwardBiasArgs)

}  // namespace reprise
