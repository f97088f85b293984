// Products whose depth is split, as of a weight's gradient: the parts' sums are added up behind the product.
// Here beside tile_product.h, because whoever splits nothing needs no kernel that adds.
#pragma once

#include "cuda/tile_mma.h"
#include "cuda/tile_product.h"

namespace reprise {

// to[i] (+)= the parts' sums, in their order.
template <typename Stored>
static __global__ void __launch_bounds__(kBlockThreads)
    add_parts(Stored* to, const float* partials, uint64_t n, uint32_t count, bool accumulate) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) {
    float sum = partials[i];
    for (uint32_t part = 1; part < count; ++part) sum += partials[part * n + i];
    to[i] = accumulate ? float{to[i]} + sum : sum;
  }
}

// A weight's gradient dw[rows, columns]: its depth is split by shape, and the parts are added up in their order.
struct SplitOutput {
  float* dw;
  float* partials;
  ProductShape shape;
  DepthSplit split;
  bool accumulate;

  bool is_whole() const { return split.count == 1; }
  TileOutput<float> output() const {
    return {is_whole() ? dw : partials, {shape.columns}, nullptr, is_whole() && accumulate, shape.columns % 4 == 0, shape.outputs()};
  }
  Status finish(const KernelContext& context) const {
    if (!is_whole()) {
      REPRISE_LAUNCH(add_parts<float>, blocks_for(shape.outputs()), kBlockThreads, context.queue, dw, partials, shape.outputs(),
                     split.count, accumulate);
    }
    return launch_status();
  }
};
template <typename A, typename B>
Status launch_split_product(const KernelContext& context, const A& a, const B& b, const SplitOutput& to) {
  launch_product(context, TileProduct<A, B, TileOutput<float>>{a, b, to.output(), to.shape, to.split.size, nullptr}, to.split.count);
  return to.finish(context);
}

// The same of chunks.
template <typename A, typename B>
Status launch_split_chunks(const KernelContext& context, const A& a, const B& b, const SplitOutput& to) {
  launch_chunk_product(context, TileProduct<A, B, TileOutput<float>>{a, b, to.output(), to.shape, to.split.size, nullptr},
                       to.split.count);
  return to.finish(context);
}

}  // namespace reprise
