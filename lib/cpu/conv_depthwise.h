// Depthwise convolution: every input channel has outputs of its own, m of them. Forward, and the gradients of data and weight.
// Here because such a layer multiplies once or twice for each byte that it moves: channels are the vectors, taps are summed in registers, and each
// row of pixels is read while a cache still has it. No patch is ever formed.
//
// Weights lie as weights[tap][j][channel], so that a vector of channels reads a vector of them: output channel * m + j belongs to `channel`.
#pragma once

#include "lib/cpu/partition.h"
#include "lib/tensor.h"

namespace reprise {

constexpr uint32_t kDepthwiseParts = 8;  // of the rows of outputs, for the weight gradient: each has its own partial sum

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

// Weights are f32, there is no norm, and args.scratch has depthwise_weights_bytes().
template <typename Stored>
void depthwise_forward(const KernelContext& context, const ConvForwardArgsOf<Stored>& args, const OutputStatistics<Stored>* statistics);
template <typename Stored>
void depthwise_backward_data(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args);
// args.scratch has kDepthwiseParts times depthwise_weights_bytes().
template <typename Stored>
void depthwise_backward_weight(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args);

}  // namespace reprise
