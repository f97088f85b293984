// Convolution, NHWC with KRSC weights: forward and the gradients of data and weight.
// Each takes the algorithm of conv_rules.h: Winograd's (conv_winograd.cpp), the direct kernel (conv_direct.cpp), or a product over conv_patches.h.
// A weight's gradient by a product: multiply_columns (gemm_depths.cpp) where the window is 1x1 of stride 1 and no norm is folded in, else
// gemm_split (gemm.h); tiles: gemm_tile.cpp, of pairs of bf16 gemm_bf16_tile.cpp.
#include <cstring>

#include "lib/cpu/conv_rules.h"
#include "lib/cpu/conv_direct.h"
#include "lib/cpu/conv_patches.h"
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/output_statistics.h"
#include "lib/cpu/products.h"
#include "lib/cpu/weight_format.h"

namespace reprise {
namespace {

template <typename Stored>
Patches<Stored> forward_patches(const Stored* x, const ConvShape& s) {
  return {.source = x,
          .H = s.H,
          .W = s.W,
          .channels = s.C,
          .A = s.P,
          .B = s.Q,
          .TR = s.window.kernel_h,
          .TS = s.window.kernel_w,
          .stride = s.window.stride,
          .step = 1,
          .row_offset = -int32_t{s.window.pad},
          .column_offset = -int32_t{s.window.pad}};
}

// For pixels that no tap reaches; the others are written later. All of dx: to clear every other pixel takes longer.
template <typename Stored>
void clear_dx(const Workers& workers, const ConvBackwardDataArgsOf<Stored>& args) {
  const ConvShape& s = args.shape;
  for_each_piece(workers, Partition{uint64_t{s.N} * s.H * s.W * s.C, kBlockElements},
                 [&](uint64_t begin, uint64_t end) { std::memset(args.dx + begin, 0, (end - begin) * sizeof(Stored)); });
}

template <typename Stored>
void run_phase(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args, const DataPhase& phase) {
  const ConvShape& s = args.shape;
  const Phase &rows = phase.rows, &columns = phase.columns;
  const uint32_t stride = s.window.stride;
  const Patches<Stored> patches{.source = args.dy,
                        .H = s.P,
                        .W = s.Q,
                        .channels = s.K,
                        .A = rows.inputs,
                        .B = columns.inputs,
                        .TR = rows.taps,
                        .TS = columns.taps,
                        .stride = 1,
                        .step = -1,
                        .row_offset = rows.offset,
                        .column_offset = columns.offset};
  const GemmShape shape{uint64_t{s.N} * rows.inputs * columns.inputs, s.C, patches.depth()};
  const PhaseWeights weights{args.w.f32(), s.window.kernel_h, s.window.kernel_w, s.C,         s.K,
                             stride, rows.tap,          columns.tap,       columns.taps};
  if (stride == 1) {
    gemm(context, shape, place_lines(patches), weights, MatrixOutputOf<Stored>{args.dx, s.C}, args.accumulate_dx, args.scratch);
  } else {
    const PhaseOutput<Stored> output{args.dx, patches, s.H, s.W, s.C, stride, phase.row0, phase.column0};
    gemm(context, shape, place_lines(patches), weights, output, args.accumulate_dx, args.scratch);
  }
}

DirectWeights direct_weights(const float* w, const ConvShape& s) {
  const int64_t C = s.C, S = s.window.kernel_w, R = s.window.kernel_h;
  return {w, R * S * C, S * C, C, 1};
}

DirectWeights direct_phase_weights(const float* w, const ConvShape& s, const DataPhase& p) {
  const int64_t C = s.C, S = s.window.kernel_w, R = s.window.kernel_h, stride = s.window.stride;
  const int64_t last_row = p.rows.tap + stride * (int64_t{p.rows.taps} - 1),
                last_column = p.columns.tap + stride * (int64_t{p.columns.taps} - 1);
  return {w + (last_row * S + last_column) * C, 1, -stride * S * C, -stride * C, R * S * C};
}

template <typename Stored>
void run_direct_phase(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args, const DataPhase& phase) {
  const ConvShape& s = args.shape;
  const uint64_t C = s.C, row = s.W * C, stride = s.window.stride;
  const DirectOutputOf<Stored> output{args.dx + phase.row0 * row + phase.column0 * C, s.H * row, stride * row, stride * C,
                            args.accumulate_dx};
  direct_correlate(context, direct_phase_shape(s, phase), output, ConvSource<Stored>{args.dy, {}}, direct_phase_weights(args.w.f32(), s, phase),
                   args.scratch);
}

// y as a matrix of pixels.
template <typename Stored>
struct PixelOutput : MatrixOutputOf<Stored> {
  const OutputStatistics<Stored>* statistics;  // null: not wanted

  void written(uint64_t begin, uint64_t end, uint64_t columns) const {
    if (statistics != nullptr) statistics->written(begin, end, columns);
  }
};

constexpr Status kScratchTooSmall = {Code::kBadPlan, "a convolution's scratch must have the bytes of its scratch rule",
                                     0};

void* part_of(void* scratch, uint64_t at) { return static_cast<unsigned char*>(scratch) + at; }

// Leaves args with weights that are f32, and with the algorithm's own part of the scratch.
template <typename Args>
void widen_weights(const KernelContext& context, Args& args, const ConvScratch& scratch) {
  if (args.w.type != DType::kF32) {
    float* widened = static_cast<float*>(args.scratch);
    for_each_piece(*context.workers, {conv_weights(args.shape), kBlockElements},
                   [&](uint64_t begin, uint64_t end) { decode_weights(cpu_machine(context).level, args.w, begin, end - begin, widened + begin); });
    args.w = widened;
  }
  args.scratch = part_of(args.scratch, scratch.work_at);
}

// From here on weights are f32.
template <typename Stored>
void convolve(const KernelContext& context, const ConvForwardArgsOf<Stored>& args, ConvAlgorithm algorithm,
              const OutputStatistics<Stored>* statistics) {
  const ConvShape& s = args.shape;
  const uint64_t row = uint64_t{s.Q} * s.K;
  const DirectOutputOf<Stored> output{args.y, s.P * row, row, s.K, false, statistics};
  const ConvSource<Stored> x{args.x, args.norm};
  if (algorithm == ConvAlgorithm::kWinograd) {
    return winograd_correlate(context, direct_shape(s), output, x, direct_weights(args.w.f32(), s), args.scratch);
  }
  if (algorithm == ConvAlgorithm::kDirect) {
    return direct_correlate(context, direct_shape(s), output, x, direct_weights(args.w.f32(), s), args.scratch);
  }
  const Patches<Stored> patches = forward_patches(args.x, s);
  const GemmShape shape{uint64_t{s.N} * s.P * s.Q, s.K, patches.depth()};
  const WeightPacker weights{args.w, static_cast<int64_t>(shape.K), 1};
  const PixelOutput<Stored> y{{args.y, s.K}, statistics};
  if (x.normalises()) {
    gemm(context, shape, NormalisedPlaceLines<Stored>{patches, x.norm}, weights, y, false, args.scratch);
  } else if (is_pointwise(s)) {
    multiply_weights(context, shape, args.x, weights, y, false, args.scratch);
  } else {
    gemm(context, shape, place_lines(patches), weights, y, false, args.scratch);
  }
}

}  // namespace

template <typename Stored>
Status cpu_conv_forward(const KernelContext& context, const ConvForwardArgsOf<Stored>& given) {
  const ConvShape& s = given.shape;
  const bool wants_statistics = given.mean != nullptr;
  const ConvScratch scratch = conv_forward_scratch(s, kStoredAs<Stored>, given.w.type, wants_statistics, cpu_machine(context).size);
  if (given.scratch_bytes < scratch.bytes) return kScratchTooSmall;
  ConvForwardArgsOf<Stored> args = given;
  widen_weights(context, args, scratch);
  if (!wants_statistics) {
    convolve<Stored>(context, args, scratch.algorithm, nullptr);
    return ok_status();
  }
  const uint64_t M = uint64_t{s.N} * s.P * s.Q;
  if (!output_statistics_fit(M, s.K)) return {Code::kUnsupported, "a convolution takes statistics of at most 2^32 elements in a chunk of rows", M};
  const OutputStatistics<Stored> statistics(context, {args.mean, args.rstd, args.y, part_of(given.scratch, scratch.statistics_at),
                                                      scratch.bytes - scratch.statistics_at, M, s.K, s.window.statistics_epsilon});
  convolve(context, args, scratch.algorithm, &statistics);
  statistics.finish();
  return ok_status();
}

template <typename Stored>
Status cpu_conv_backward_data(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& given) {
  const ConvShape& s = given.shape;
  const ConvScratch scratch = conv_backward_data_scratch(s, kStoredAs<Stored>, given.w.type, cpu_machine(context).size);
  if (given.scratch_bytes < scratch.bytes) return kScratchTooSmall;
  ConvBackwardDataArgsOf<Stored> args = given;
  widen_weights(context, args, scratch);
  if (scratch.algorithm == ConvAlgorithm::kWinograd) {
    const DataPhase whole(s, 0, 0);
    const uint64_t row = uint64_t{s.W} * s.C;
    const DirectOutputOf<Stored> output{args.dx, s.H * row, row, s.C, args.accumulate_dx};
    winograd_correlate(context, direct_phase_shape(s, whole), output, ConvSource<Stored>{args.dy, {}},
                       direct_phase_weights(args.w.f32(), s, whole), args.scratch);
    return ok_status();
  }
  const bool direct = scratch.algorithm == ConvAlgorithm::kDirect;
  if (is_pointwise(s) && !direct) {
    multiply_weights(context, {uint64_t{s.N} * s.P * s.Q, s.C, s.K}, args.dy, WeightPacker{args.w, 1, s.C},
                     MatrixOutputOf<Stored>{args.dx, s.C}, args.accumulate_dx, args.scratch);
    return ok_status();
  }
  bool has_tapless = false;
  for_each_phase(s, [&](const DataPhase& phase) { has_tapless = has_tapless || phase.tapless(); });
  if (has_tapless && !args.accumulate_dx) clear_dx(*context.workers, args);
  for_each_phase(s, [&](const DataPhase& phase) {
    if (phase.tapless()) return;
    if (direct) {
      run_direct_phase(context, args, phase);
    } else {
      run_phase(context, args, phase);
    }
  });
  return ok_status();
}

template <typename Stored>
Status cpu_conv_backward_weight(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args) {
  const ConvShape& s = args.shape;
  const ConvScratch scratch = conv_backward_weight_scratch(s, cpu_machine(context).size);
  if (args.scratch_bytes < scratch.bytes) return kScratchTooSmall;
  const ConvSource<Stored> x{args.x, args.norm};
  if (scratch.algorithm == ConvAlgorithm::kWinograd) {
    winograd_weight_gradient(context, direct_shape(s), args.dw, x, args.dy, args.accumulate_dw, args.scratch);
    return ok_status();
  }
  if (scratch.algorithm == ConvAlgorithm::kDirect) {
    direct_weight_gradient(context, direct_shape(s), args.dw, x, args.dy, args.accumulate_dw, args.scratch);
    return ok_status();
  }
  const Patches<Stored> patches = forward_patches(args.x, s);
  const GemmShape shape{s.K, patches.depth(), uint64_t{s.N} * s.P * s.Q};
  if (is_pointwise(s) && !x.normalises()) {
    multiply_columns(context, shape, args.dy, args.x, args.dw, args.accumulate_dw, args.scratch);
  } else {
    const MatrixPackerOf<Stored> gradients{args.dy, 1, s.K};
    gemm_split(context, shape, gradients, PlaceDepths<Stored>{patches, x.norm}, args.dw, args.accumulate_dw, args.scratch);
  }
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_conv_forward, ConvForwardArgs)
REPRISE_INSTANTIATE(cpu_conv_backward_data, ConvBackwardDataArgs)
REPRISE_INSTANTIATE(cpu_conv_backward_weight, ConvBackwardWeightArgs)

}  // namespace reprise
