// Convolution, NHWC with KRSC weights: forward and the gradients of data and weight. A transposed
// convolution is the gradient of data, with a bias. conv_rules.h chooses the algorithm: Winograd,
// direct or depthwise (conv_*.cpp), or a product over conv_patches.h for each group. With bf16 most
// convolutions are products over conv_pairs.h if the machine multiplies pairs.
//
// If a weight's gradient is a product, multiply_columns() (gemm_depths.cpp) computes it for a 1x1
// window of stride 1 without a folded norm. gemm_split() (gemm.h) computes all others.
#include <cstring>

#include "lib/cpu/conv/conv_depthwise.h"
#include "lib/cpu/conv/conv_direct.h"
#include "lib/cpu/conv/conv_pairs.h"
#include "lib/cpu/conv/conv_rules.h"
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/gemm/products.h"
#include "lib/cpu/norm/output_statistics.h"
#include "lib/cpu/weight_format.h"

namespace reprise {
namespace {

// Returns the patches of x that the outputs of group `group` read.
template <typename Stored>
Patches<Stored> forward_patches(const Stored* x, const ConvShape& s, uint32_t group = 0) {
  return {.source = x + uint64_t{group} * s.group_inputs(),
          .H = s.H,
          .W = s.W,
          .pixel = s.C,
          .channels = s.group_inputs(),
          .rows = forward_walk(s.window.rows(), s.P),
          .columns = forward_walk(s.window.columns(), s.Q)};
}

// Returns the number of weights before those of `group`. The weights of a group's outputs are
// contiguous.
uint64_t weights_before(const ConvShape& s, uint32_t group) { return conv_weights(s) / s.window.groups * group; }

// Sets all of dx to the bias, or to zero if there is none. Pixels that no tap reaches keep this
// value; the others are overwritten later. Setting only the pixels that keep the value would take
// longer.
template <typename Stored>
void clear_dx(const Workers& workers, const ConvBackwardDataArgsOf<Stored>& args) {
  const ConvShape& s = args.shape;
  for_each_piece(workers, split_rows(uint64_t{s.N} * s.H * s.W, s.C), [&](uint64_t begin, uint64_t end) {
    if (args.b == nullptr) std::memset(args.dx + begin * s.C, 0, (end - begin) * s.C * sizeof(Stored));
    for (uint64_t pixel = begin; args.b != nullptr && pixel < end; ++pixel) {
      for (uint32_t c = 0; c < s.C; ++c) args.dx[pixel * s.C + c] = args.b[c];
    }
  });
}

// Returns the tile with which the convolution multiplies pairs along depth K; null if it multiplies
// in f32.
template <typename Stored>
const GemmTile* pair_tile_for(const KernelContext& context, const ConvShape& s, ConvPass pass, uint64_t K) {
  return kStoredAs<Stored> == DType::kBf16 && conv_multiplies_pairs(cpu_machine(context), s, pass)
             ? find_pair_tile(context, K)
             : nullptr;
}

template <typename Stored>
void run_phase(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args, const DataPhase& phase,
               uint32_t group) {
  const ConvShape& s = args.shape;
  const Phase &rows = phase.rows, &columns = phase.columns;
  const Patches<Stored> patches{.source = args.dy + uint64_t{group} * s.group_outputs(),
                                .H = s.P,
                                .W = s.Q,
                                .pixel = s.K,
                                .channels = s.group_outputs(),
                                .rows = rows.walk,
                                .columns = columns.walk};
  const GemmShape shape{uint64_t{s.N} * rows.inputs() * columns.inputs(), s.group_inputs(), patches.depth()};
  const PhaseWeights weights{args.w.f32() + weights_before(s, group),
                             s.window.kernel_h,
                             s.window.kernel_w,
                             s.group_inputs(),
                             s.group_outputs(),
                             rows,
                             columns};
  const uint64_t first = uint64_t{group} * s.group_inputs();
  Stored* dx = args.dx + first;
  const float* bias = args.b == nullptr ? nullptr : args.b + first;
  const auto multiply = [&](const auto& output) {
    if constexpr (kStoredAs<Stored> == DType::kBf16) {
      if (const GemmTile* tile = pair_tile_for<Stored>(context, s, ConvPass::kData, shape.K); tile != nullptr) {
        const PairedPlaceLines lines{{patches, {}}, tile->group_of_a};
        return multiply_pairs(context, *tile, shape, lines, PairedPhaseWeights{weights, tile->group_of_b}, output,
                              args.accumulate_dx, args.scratch);
      }
    }
    gemm(context, shape, place_lines(patches), weights, output, args.accumulate_dx, args.scratch);
  };
  if (s.window.stride_h == 1 && s.window.stride_w == 1) return multiply(BiasedOutputOf<Stored>{{dx, s.C}, bias});
  multiply(PhaseOutput<Stored>{dx, patches, s.H, s.W, s.C, s.window.stride_h, s.window.stride_w, rows.first,
                               columns.first, bias});
}

DirectWeights direct_weights(const float* w, const ConvShape& s) {
  const int64_t C = s.C, S = s.window.kernel_w, R = s.window.kernel_h;
  return {w, R * S * C, S * C, C, 1};
}

DirectWeights direct_phase_weights(const float* w, const ConvShape& s, const DataPhase& p) {
  const int64_t C = s.C, S = s.window.kernel_w, R = s.window.kernel_h, stride = s.window.stride_h;
  const int64_t last_row = p.rows.tap + stride * (int64_t{p.rows.taps()} - 1),
                last_column = p.columns.tap + stride * (int64_t{p.columns.taps()} - 1);
  return {w + (last_row * S + last_column) * C, 1, -stride * S * C, -stride * C, R * S * C};
}

template <typename Stored>
void run_direct_phase(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args,
                      const DataPhase& phase) {
  const ConvShape& s = args.shape;
  const uint64_t C = s.C, row = s.W * C, stride = s.window.stride_h;
  const DirectOutputOf<Stored> output{args.dx + phase.rows.first * row + phase.columns.first * C,
                                      s.H * row,
                                      stride * row,
                                      stride * C,
                                      args.accumulate_dx,
                                      nullptr,
                                      args.b};
  direct_correlate(context, direct_phase_shape(s, phase), output, ConvSource<Stored>{args.dy, {}},
                   direct_phase_weights(args.w.f32(), s, phase), args.scratch);
}

// The output y as a matrix with one row for each pixel.
template <typename Stored>
struct PixelOutput : BiasedOutputOf<Stored> {
  const OutputStatistics<Stored>* statistics;  // null if not needed

  void written(uint64_t begin, uint64_t end, uint64_t columns) const {
    if (statistics != nullptr) statistics->written(begin, end, columns);
  }
};

constexpr Status kScratchTooSmall = {Code::kBadPlan, "a convolution's scratch must have the bytes of its scratch rule",
                                     0};

void* part_of(void* scratch, uint64_t at) { return static_cast<unsigned char*>(scratch) + at; }

// Decodes weights that are not f32 to the start of the scratch, and makes args.w point to the
// result. Then sets args.scratch to the algorithm's part of the scratch.
template <typename Args>
void widen_weights(const KernelContext& context, Args& args, const ConvScratch& scratch) {
  if (args.w.type != DType::kF32) {
    float* widened = static_cast<float*>(args.scratch);
    for_each_piece(*context.workers, {conv_weights(args.shape), kBlockElements}, [&](uint64_t begin, uint64_t end) {
      decode_weights(cpu_machine(context).level, args.w, begin, end - begin, widened + begin);
    });
    args.w = widened;
  }
  args.scratch = part_of(args.scratch, scratch.work_at);
}

// Computes a group's product by pairs of bf16 and returns true. Returns false, and computes
// nothing, if the product must be computed in f32.
bool multiply_group_pairs(const KernelContext&, const ConvForwardArgsOf<float>&, const Patches<float>&,
                          const WeightPacker&, const PixelOutput<float>&) {
  return false;
}
bool multiply_group_pairs(const KernelContext& context, const ConvForwardArgsOf<Bf16>& args,
                                            const Patches<Bf16>& patches, const WeightPacker& weights,
                                            const PixelOutput<Bf16>& y) {
  const ConvShape& s = args.shape;
  const GemmShape shape{uint64_t{s.N} * s.P * s.Q, s.group_outputs(), patches.depth()};
  const GemmTile* tile = pair_tile_for<Bf16>(context, s, ConvPass::kForward, shape.K);
  if (tile == nullptr) return false;
  multiply_pairs(context, *tile, shape, PairedPlaceLines{{patches, args.norm}, tile->group_of_a},
                 PairedWeights{weights, shape.K, tile->group_of_b}, y, false, args.scratch);
  return true;
}

// Computes each group's product. The weights must be f32.
template <typename Stored>
void convolve_groups(const KernelContext& context, const ConvForwardArgsOf<Stored>& args,
                     const OutputStatistics<Stored>* statistics) {
  const ConvShape& s = args.shape;
  for (uint32_t group = 0; group < s.window.groups; ++group) {
    const Patches<Stored> patches = forward_patches(args.x, s, group);
    const GemmShape shape{uint64_t{s.N} * s.P * s.Q, s.group_outputs(), patches.depth()};
    const uint64_t first = uint64_t{group} * s.group_outputs();
    const PixelOutput<Stored> y{{{args.y + first, s.K}, args.b == nullptr ? nullptr : args.b + first}, statistics};
    const WeightPacker weights{args.w.f32() + weights_before(s, group), static_cast<int64_t>(shape.K), 1};
    if (multiply_group_pairs(context, args, patches, weights, y)) continue;
    if (args.norm.mean != nullptr) {
      gemm(context, shape, NormalisedPlaceLines<Stored>{patches, args.norm}, weights, y, false, args.scratch);
    } else {
      gemm(context, shape, place_lines(patches), weights, y, false, args.scratch);
    }
  }
}

template <typename Stored>
void convolve(const KernelContext& context, const ConvForwardArgsOf<Stored>& args, ConvAlgorithm algorithm,
              const OutputStatistics<Stored>* statistics) {
  const ConvShape& s = args.shape;
  const ConvSource<Stored> x{args.x, args.norm};
  if (is_pointwise(s) && !x.normalises()) {
    const GemmShape shape{uint64_t{s.N} * s.P * s.Q, s.K, s.C};
    return multiply_weights(context, shape, args.x, WeightPacker{args.w, static_cast<int64_t>(shape.K), 1},
                            PixelOutput<Stored>{{{args.y, s.K}, args.b}, statistics}, false, args.scratch);
  }
  const bool pairs = pair_tile_for<Stored>(context, s, ConvPass::kForward, conv_weights(s) / s.K) != nullptr;
  if (pairs || algorithm == ConvAlgorithm::kProduct) return convolve_groups(context, args, statistics);
  if (algorithm == ConvAlgorithm::kDepthwise) return depthwise_forward(context, args, statistics);
  const uint64_t row = uint64_t{s.Q} * s.K;
  const DirectOutputOf<Stored> output{args.y, s.P * row, row, s.K, false, statistics, args.b};
  const DirectWeights weights = direct_weights(args.w.f32(), s);
  if (algorithm == ConvAlgorithm::kWinograd)
    return winograd_correlate(context, direct_shape(s), output, x, weights, args.scratch);
  direct_correlate(context, direct_shape(s), output, x, weights, args.scratch);
}

// Computes a group's gradient of weights as a product.
template <typename Stored>
void multiply_gradients(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args, uint32_t group) {
  const ConvShape& s = args.shape;
  const Patches<Stored> patches = forward_patches(args.x, s, group);
  const GemmShape shape{s.group_outputs(), patches.depth(), uint64_t{s.N} * s.P * s.Q};
  const Stored* dy = args.dy + uint64_t{group} * s.group_outputs();
  float* dw = args.dw + weights_before(s, group);
  const PlaceDepths<Stored> inputs{patches, args.norm};
  if constexpr (kStoredAs<Stored> == DType::kBf16) {
    if (const GemmTile* tile = pair_tile_for<Stored>(context, s, ConvPass::kWeight, shape.K); tile != nullptr) {
      return gemm_split(context, {shape.M, shape.N, pair_depths(*tile, shape.K)},
                        PairedRows{dy, shape.K, s.K, tile->group_of_a},
                        PairedPlaceDepths{inputs, shape.K, tile->group_of_b}, dw, args.accumulate_dw, args.scratch,
                        tile);
    }
  }
  gemm_split(context, shape, MatrixPackerOf<Stored>{dy, 1, s.K}, inputs, dw, args.accumulate_dw, args.scratch);
}

}  // namespace

template <typename Stored>
Status cpu_conv_forward(const KernelContext& context, const ConvForwardArgsOf<Stored>& given) {
  const ConvShape& s = given.shape;
  const bool wants_statistics = given.mean != nullptr;
  const ConvScratch scratch = conv_forward_scratch(s, kStoredAs<Stored>, given.w.type, wants_statistics);
  if (given.scratch_bytes < scratch.bytes) return kScratchTooSmall;
  ConvForwardArgsOf<Stored> args = given;
  widen_weights(context, args, scratch);
  if (!wants_statistics) {
    convolve<Stored>(context, args, scratch.algorithm, nullptr);
    return ok_status();
  }
  const uint64_t M = uint64_t{s.N} * s.P * s.Q;
  if (!output_statistics_fit(M, s.K))
    return {Code::kUnsupported, "a convolution takes statistics of at most 2^32 elements in a chunk of rows", M};
  const OutputStatistics<Stored> statistics(context, {args.mean, args.rstd, args.y,
                                                      part_of(given.scratch, scratch.statistics_at),
                                                      scratch.bytes - scratch.statistics_at, M, s.K,
                                                      s.window.statistics_epsilon});
  convolve(context, args, scratch.algorithm, &statistics);
  statistics.finish();
  return ok_status();
}

template <typename Stored>
Status cpu_conv_backward_data(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& given) {
  const ConvShape& s = given.shape;
  const ConvScratch scratch = conv_backward_data_scratch(s, kStoredAs<Stored>, given.w.type);
  if (given.scratch_bytes < scratch.bytes) return kScratchTooSmall;
  ConvBackwardDataArgsOf<Stored> args = given;
  widen_weights(context, args, scratch);
  const bool pairs = pair_tile_for<Stored>(context, s, ConvPass::kData, s.group_outputs()) != nullptr;
  if (scratch.algorithm == ConvAlgorithm::kWinograd && !pairs) {
    const DataPhase whole(s, 0, 0);
    const uint64_t row = uint64_t{s.W} * s.C;
    const DirectOutputOf<Stored> output{args.dx, s.H * row, row, s.C, args.accumulate_dx, nullptr, args.b};
    winograd_correlate(context, direct_phase_shape(s, whole), output, ConvSource<Stored>{args.dy, {}},
                       direct_phase_weights(args.w.f32(), s, whole), args.scratch);
    return ok_status();
  }
  if (scratch.algorithm == ConvAlgorithm::kDepthwise) {
    depthwise_backward_data(context, args);
    return ok_status();
  }
  const bool direct = scratch.algorithm == ConvAlgorithm::kDirect && !pairs;
  if (is_pointwise(s) && !direct) {
    multiply_weights(context, {uint64_t{s.N} * s.P * s.Q, s.C, s.K}, args.dy, WeightPacker{args.w, 1, s.C},
                     BiasedOutputOf<Stored>{{args.dx, s.C}, args.b}, args.accumulate_dx, args.scratch);
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
      for (uint32_t group = 0; group < s.window.groups; ++group) run_phase(context, args, phase, group);
    }
  });
  return ok_status();
}

template <typename Stored>
Status cpu_conv_backward_weight(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args) {
  const ConvShape& s = args.shape;
  const ConvScratch scratch = conv_backward_weight_scratch(s, kStoredAs<Stored>);
  if (args.scratch_bytes < scratch.bytes) return kScratchTooSmall;
  const ConvSource<Stored> x{args.x, args.norm};
  const uint64_t places = uint64_t{s.N} * s.P * s.Q;
  if (is_pointwise(s) && !x.normalises()) {
    multiply_columns(context, {s.K, s.C, places}, args.dy, args.x, args.dw, args.accumulate_dw, args.scratch);
  } else if (scratch.algorithm == ConvAlgorithm::kProduct ||
             pair_tile_for<Stored>(context, s, ConvPass::kWeight, places) != nullptr) {
    for (uint32_t group = 0; group < s.window.groups; ++group) multiply_gradients(context, args, group);
  } else if (scratch.algorithm == ConvAlgorithm::kWinograd) {
    winograd_weight_gradient(context, direct_shape(s), args.dw, x, args.dy, args.accumulate_dw, args.scratch);
  } else if (scratch.algorithm == ConvAlgorithm::kDirect) {
    direct_weight_gradient(context, direct_shape(s), args.dw, x, args.dy, args.accumulate_dw, args.scratch);
  } else {
    depthwise_backward_weight(context, args);
  }
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_conv_forward, ConvForwardArgs)
REPRISE_INSTANTIATE(cpu_conv_backward_data, ConvBackwardDataArgs)
REPRISE_INSTANTIATE(cpu_conv_backward_weight, ConvBackwardWeightArgs)

}  // namespace reprise
