// Products whose depth is split into parts, for gradients of weights. A second kernel adds the sums
// of the parts. The file is separate from tile_product.h, because other products do not need that
// kernel.
#pragma once

#include "cuda/gemm/tile_mma.h"
#include "cuda/gemm/tile_product.h"

namespace reprise {

// Adds the parts in order. Writes the sum to to[i], or adds it if `accumulate`.
template <typename Stored>
static __global__ void __launch_bounds__(kBlockThreads)
    add_parts(Stored* to, const float* partials, uint64_t n, uint32_t count, bool accumulate) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) {
    float sum = partials[i];
    for (uint32_t part = 1; part < count; ++part) sum += partials[part * n + i];
    to[i] = accumulate ? float{to[i]} + sum : sum;
  }
}

// The output of a product that computes a weight's gradient dw[rows, columns]. The parts are added
// in order.
struct SplitOutput {
  float* dw;
  float* partials;
  ProductShape shape;
  DepthSplit split;
  bool accumulate;

  bool is_whole() const { return split.count == 1; }
  TileOutput<float> output() const {
    return {is_whole() ? dw : partials, {shape.columns},        nullptr,
            is_whole() && accumulate,   shape.columns % 4 == 0, shape.outputs()};
  }
  Status finish(const KernelContext& context) const {
    if (!is_whole()) {
      REPRISE_LAUNCH(add_parts<float>, blocks_for(shape.outputs()), kBlockThreads, context.queue, dw, partials,
                     shape.outputs(), split.count, accumulate);
    }
    return launch_status();
  }
};
template <typename A, typename B>
Status launch_split_product(const KernelContext& context, const A& a, const B& b, const SplitOutput& to) {
  launch_product(context, TileProduct<A, B, TileOutput<float>>{a, b, to.output(), to.shape, to.split.size, nullptr},
                 to.split.count);
  return to.finish(context);
}

// Launches a product of operands in chunks whose depth is split.
template <typename A, typename B>
Status launch_split_chunks(const KernelContext& context, const A& a, const B& b, const SplitOutput& to) {
  launch_chunk_product(context,
                       TileProduct<A, B, TileOutput<float>>{a, b, to.output(), to.shape, to.split.size, nullptr},
                       to.split.count);
  return to.finish(context);
}

}  // namespace reprise
