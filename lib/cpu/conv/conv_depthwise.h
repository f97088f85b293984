// Depthwise convolution: every input channel has m outputs of its own. Forward, and the gradients
// of data and weight. A depthwise layer multiplies only once or twice for each byte that it moves.
// So each vector contains consecutive channels, taps are summed in registers, and each row of
// pixels is read while it is in a cache. No patch is formed.
//
// Weights are repacked as weights[tap][j][channel], so that a vector of channels reads a vector of
// weights. Output channel * m + j belongs to `channel`.
#pragma once

#include "lib/cpu/partition.h"
#include "lib/tensor.h"

namespace reprise {

// Parts into which the rows of outputs are split for the weight gradient. Each part has its own
// partial sum.
constexpr uint32_t kDepthwiseParts = 8;

constexpr uint64_t depthwise_weights_bytes(uint64_t weights) { return align_up(4 * weights); }

struct ConvShape;
struct KernelContext;
template <typename Stored>
struct ConvForwardArgsOf;
template <typename Stored>
struct ConvBackwardDataArgsOf;
template <typename Stored>
struct ConvBackwardWeightArgsOf;
template <typename Stored>
class OutputStatistics;  // output_statistics.h

// Computes y of a depthwise convolution. Weights must be f32 and there must be no norm.
// args.scratch has depthwise_weights_bytes(). Reports written rows to `statistics` if it is not
// null.
template <typename Stored>
void depthwise_forward(const KernelContext& context, const ConvForwardArgsOf<Stored>& args,
                       const OutputStatistics<Stored>* statistics);
template <typename Stored>
void depthwise_backward_data(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args);
// Computes dw. args.scratch has kDepthwiseParts times depthwise_weights_bytes().
template <typename Stored>
void depthwise_backward_weight(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args);

}  // namespace reprise
