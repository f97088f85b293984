// Linear layers: forward and the gradients of data, weight and bias, each as one matrix product
// with suitable packers. A low-rank adapter adds depth to the same product, so that the sum of the
// weight's and the adapter's products is rounded once.
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/gemm/products.h"

namespace reprise {
namespace {

// Returns a row-major matrix [rows, columns] as an operand whose lines are its rows, or its
// columns.
WeightPacker lines_are_rows(const Weight& w, uint64_t columns) { return {w, static_cast<int64_t>(columns), 1}; }
WeightPacker lines_are_columns(const Weight& w, uint64_t columns) { return {w, 1, static_cast<int64_t>(columns)}; }

constexpr Status kScratchTooSmall = {Code::kBadPlan,
                                     "a linear kernel's scratch must have the bytes of its scratch rule", 0};

// Computes C (+)= factor * A W. The weights are multiplied by the factor in f32, because pairs of
// bf16 would round the result.
template <typename Stored, typename Output>
void multiply(const KernelContext& context, const GemmShape& shape, const Stored* a, const WeightPacker& w,
              float factor, const Output& output, bool accumulate, void* scratch) {
  if (factor == 1.0f) return multiply_weights(context, shape, a, w, output, accumulate, scratch);
  gemm(context, shape, MatrixPackerOf<Stored>{a, static_cast<int64_t>(shape.K), 1}, ScaledWeights{w, factor}, output,
       accumulate, scratch);
}

// Computes x W^T + h U^T by pairs of bf16 (bf16_pairs.h). Computes nothing and returns false for
// f32 activations, or if the machine has no tile for pairs. The same holds if shapes or scale do
// not allow pairs in both products.
bool multiply_adapted_pairs(const KernelContext&, const LinearForwardArgsOf<float>&, const WeightPacker&,
                            const WeightPacker&, const BiasedOutputOf<float>&) {
  return false;
}
bool multiply_adapted_pairs(const KernelContext& context, const LinearForwardArgsOf<Bf16>& args, const WeightPacker& w,
                            const WeightPacker& u, const BiasedOutputOf<Bf16>& y) {
  const GemmTile* tile = find_pair_tile(context, args.C, args.R);
  if (tile == nullptr || args.C % 2 != 0 || args.R % 2 != 0 || args.scale != 1.0f) return false;
  const uint64_t C = pair_depths(*tile, args.C), depth = C + pair_depths(*tile, args.R);
  const PairedLines x{args.x, args.C, args.C, tile->group_of_a}, h{args.h, args.R, args.R, tile->group_of_a};
  const PairedWeights from_x{w, args.C, tile->group_of_b}, from_h{u, args.R, tile->group_of_b};
  gemm(context, {args.M, args.K, depth}, JoinedPacker{x, h, C}, JoinedPacker{from_x, from_h, C}, y, false, args.scratch,
       tile);
  return true;
}

}  // namespace

template <typename Stored>
Status cpu_linear_forward(const KernelContext& context, const LinearForwardArgsOf<Stored>& args) {
  const CpuSize size = cpu_machine(context).size;
  if (args.scratch_bytes < gemm_scratch_bytes(args.K, uint64_t{args.C} + args.R, kStoredAs<Stored>, size))
    return kScratchTooSmall;
  const WeightPacker w = args.input_major ? lines_are_columns(args.w, args.K) : lines_are_rows(args.w, args.C);
  const BiasedOutputOf<Stored> y{{args.y, args.K}, args.b};
  if (args.h == nullptr) {
    multiply(context, {args.M, args.K, args.C}, args.x, w, args.scale, y, false, args.scratch);
    return ok_status();
  }
  const WeightPacker u = lines_are_rows(args.u, args.R);
  if (multiply_adapted_pairs(context, args, w, u, y)) return ok_status();
  const MatrixPackerOf<Stored> x{args.x, args.C, 1}, h{args.h, args.R, 1};
  const ScaledWeights scaled{w, args.scale};
  gemm(context, {args.M, args.K, uint64_t{args.C} + args.R}, JoinedPacker{x, h, args.C},
       JoinedPacker{scaled, u, args.C}, y, false, args.scratch);
  return ok_status();
}

template <typename Stored>
Status cpu_linear_backward_data(const KernelContext& context, const LinearBackwardDataArgsOf<Stored>& args) {
  if (args.scratch_bytes < gemm_scratch_bytes(args.C, args.K, kStoredAs<Stored>, cpu_machine(context).size))
    return kScratchTooSmall;
  const WeightPacker w = args.input_major ? lines_are_rows(args.w, args.K) : lines_are_columns(args.w, args.C);
  multiply(context, {args.M, args.C, args.K}, args.dy, w, args.scale, MatrixOutputOf<Stored>{args.dx, args.C},
           args.accumulate_dx, args.scratch);
  return ok_status();
}

template <typename Stored>
Status cpu_linear_backward_weight(const KernelContext& context, const LinearBackwardWeightArgsOf<Stored>& args) {
  const GemmShape shape = args.input_major ? GemmShape{args.C, args.K, args.M} : GemmShape{args.K, args.C, args.M};
  if (args.scratch_bytes < gemm_split_scratch_bytes(shape.M, shape.N, shape.K, cpu_machine(context).size))
    return kScratchTooSmall;
  const Stored *a = args.input_major ? args.x : args.dy, *b = args.input_major ? args.dy : args.x;
  multiply_columns(context, shape, a, b, args.dw, args.accumulate_dw, args.scratch);
  return ok_status();
}

template <typename Stored>
Status cpu_linear_backward_bias(const KernelContext& context, const LinearBackwardBiasArgsOf<Stored>& args) {
  if (args.scratch_bytes < column_sums_scratch_bytes(args.K)) return kScratchTooSmall;
  column_sums(context, args.db, args.dy, args.M, args.K, args.accumulate_db, args.scratch);
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_linear_forward, LinearForwardArgs)
REPRISE_INSTANTIATE(cpu_linear_backward_data, LinearBackwardDataArgs)
REPRISE_INSTANTIATE(cpu_linear_backward_weight, LinearBackwardWeightArgs)
REPRISE_INSTANTIATE(cpu_linear_backward_bias, LinearBackwardBiasArgs)

}  // namespace reprise
