// Implements conv_depthwise.h: lays out weights by tap, and divides output rows among workers.
#include "lib/cpu/conv/conv_depthwise.h"

#include <cstring>

#include "lib/cpu/conv/conv_depthwise_gather.h"
#include "lib/cpu/conv/conv_depthwise_weight.h"
#include "lib/cpu/conv/conv_rules.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/norm/output_statistics.h"

namespace reprise {
namespace {

// Splits the output rows into pieces. One worker computes a piece, so that the inputs that its rows
// share stay in a cache.
constexpr Partition rows_together(uint64_t rows, uint64_t elements) {
  return {rows, larger(4, 4 * kBlockElements / larger(1, elements))};
}

constexpr uint64_t kChannelsTogether = 64;  // channels of a matrix that are transposed at a time

// Writes weights[tap][j][C] from w[C * m][taps].
void lay_weights(const KernelContext& context, const ConvShape& s, const float* w, float* weights) {
  const uint32_t taps = uint32_t{s.window.kernel_h} * s.window.kernel_w, m = s.group_outputs();
  for_each_piece(*context.workers, {s.C, kChannelsTogether}, [&](uint64_t begin, uint64_t end) {
    for (uint32_t i = 0; i < taps * m; ++i) {
      for (uint64_t c = begin; c < end; ++c) weights[uint64_t{i} * s.C + c] = w[(c * m + i % m) * taps + i / m];
    }
  });
}

// Computes dw[C * m][taps] (+)= sum over the parts, in order, of sums[tap][j][C].
void add_parts(const KernelContext& context, const ConvShape& s, float* dw, bool accumulate, const float* sums,
               uint32_t parts) {
  const uint32_t taps = uint32_t{s.window.kernel_h} * s.window.kernel_w, m = s.group_outputs();
  const uint64_t part_floats = depthwise_weights_bytes(conv_weights(s)) / sizeof(float);
  for_each_piece(*context.workers, {s.C, kChannelsTogether}, [&](uint64_t begin, uint64_t end) {
    for (uint32_t i = 0; i < taps * m; ++i) {
      float sum[kChannelsTogether];
      const float* from = sums + (uint64_t{i} * s.C + begin);
      for (uint64_t c = 0; c < end - begin; ++c) sum[c] = from[c];
      for (uint32_t part = 1; part < parts; ++part) {
        for (uint64_t c = 0; c < end - begin; ++c) sum[c] += from[part * part_floats + c];
      }
      for (uint64_t c = 0; c < end - begin; ++c) {
        float& to = dw[((begin + c) * m + i % m) * taps + i / m];
        to = accumulate ? to + sum[c] : sum[c];
      }
    }
  });
}

}  // namespace

template <typename Stored>
void depthwise_forward(const KernelContext& context, const ConvForwardArgsOf<Stored>& args,
                       const OutputStatistics<Stored>* statistics) {
  const ConvShape& s = args.shape;
  float* weights = static_cast<float*>(args.scratch);
  lay_weights(context, s, args.w.f32(), weights);
  const depthwise::Gather<Stored> g = {.out = args.y,
                                       .in = args.x,
                                       .weights = weights,
                                       .bias = args.b,
                                       .C = s.C,
                                       .in_each = 1,
                                       .out_each = s.group_outputs(),
                                       .accumulate = false,
                                       .down = {s.window.rows(), s.P, s.H, false},
                                       .across = {s.window.columns(), s.Q, s.W, false}};
  for_each_piece(*context.workers, rows_together(uint64_t{s.N} * s.P, g.out_row()), [&](uint64_t begin, uint64_t end) {
    depthwise::gather_rows(cpu_machine(context).level, g, begin, end);
    if (statistics != nullptr) statistics->written(begin * s.Q, end * s.Q, s.K);
  });
}

template <typename Stored>
void depthwise_backward_data(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args) {
  const ConvShape& s = args.shape;
  float* weights = static_cast<float*>(args.scratch);
  lay_weights(context, s, args.w.f32(), weights);
  const depthwise::Gather<Stored> g = {.out = args.dx,
                                       .in = args.dy,
                                       .weights = weights,
                                       .bias = args.b,
                                       .C = s.C,
                                       .in_each = s.group_outputs(),
                                       .out_each = 1,
                                       .accumulate = args.accumulate_dx,
                                       .down = {s.window.rows(), s.H, s.P, true},
                                       .across = {s.window.columns(), s.W, s.Q, true}};
  for_each_piece(*context.workers, rows_together(uint64_t{s.N} * s.H, g.out_row()), [&](uint64_t begin, uint64_t end) {
    depthwise::gather_rows(cpu_machine(context).level, g, begin, end);
  });
}

template <typename Stored>
void depthwise_backward_weight(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args) {
  const ConvShape& s = args.shape;
  const TapWalk rows = forward_walk(s.window.rows(), s.P), columns = forward_walk(s.window.columns(), s.Q);
  const depthwise::TapSums<Stored> sums = {.x = args.x,
                                           .dy = args.dy,
                                           .C = s.C,
                                           .each = s.group_outputs(),
                                           .kernel_w = s.window.kernel_w,
                                           .rows = rows,
                                           .columns = columns,
                                           .H = s.H,
                                           .W = s.W,
                                           .whole = depthwise::places_inside(columns, s.W)};
  float* scratch = static_cast<float*>(args.scratch);
  const uint64_t outputs = uint64_t{s.N} * s.P, part_floats = depthwise_weights_bytes(conv_weights(s)) / sizeof(float);
  const uint32_t parts = static_cast<uint32_t>(smaller(kDepthwiseParts, outputs));
  parallel_for(*context.workers, parts, [&](uint32_t part) {
    float* own = scratch + part * part_floats;
    std::memset(own, 0, conv_weights(s) * sizeof(float));
    depthwise::add_rows(cpu_machine(context).level, own, sums, outputs * part / parts, outputs * (part + 1) / parts);
  });
  add_parts(context, s, args.dw, args.accumulate_dw, scratch, parts);
}

template void depthwise_forward(const KernelContext&, const ConvForwardArgsOf<float>&, const OutputStatistics<float>*);
template void depthwise_forward(const KernelContext&, const ConvForwardArgsOf<Bf16>&, const OutputStatistics<Bf16>*);
template void depthwise_backward_data(const KernelContext&, const ConvBackwardDataArgsOf<float>&);
template void depthwise_backward_data(const KernelContext&, const ConvBackwardDataArgsOf<Bf16>&);
template void depthwise_backward_weight(const KernelContext&, const ConvBackwardWeightArgsOf<float>&);
template void depthwise_backward_weight(const KernelContext&, const ConvBackwardWeightArgsOf<Bf16>&);

}  // namespace reprise
