// 3x3 convolution of stride 1 by Winograd's minimal filtering: 16 products where the definition has 36.
// Here because such layers are most of a ResNet's arithmetic, and the GEMM has no more to give than the processor's peak.
// It must not know which pass it serves beyond a correlation and its weight gradient; it is used where the rule below says so, by
// shape alone.
//
// Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (arXiv 1509.09308), F(2x2, 3x3): outputs in tiles of 2 x 2, each
// from 4 x 4 inputs; inputs d, filters g and outputs y are combined as
//   y = A' [ (G g G') . (B' d B) ] A       for each tile, the dot summed over channels: 16 matrix products, one per position
//   dw = E' [ sum over tiles of (F dy F') . (B' d B) ] E       F(3x3, 2x2): the same B, so the same points 0, 1, -1 and infinity
// The transforms add and halve: an output's error stays of the order of the direct sum's.
#pragma once

#include "lib/cpu/conv_direct.h"
#include "lib/cpu/gemm_tile.h"

namespace reprise {

constexpr uint32_t kWinogradTile = 2;        // outputs along a tile's edge
constexpr uint32_t kWinogradPositions = 16;  // of 4 x 4
constexpr uint32_t kWinogradLeastChannels = 64;  // below, the transforms cost as much as the products save
constexpr uint64_t kWinogradLeastTiles = 64;     // the same for the transform of the filters
constexpr uint32_t kWinogradBlock = 128;         // output channels at most whose filters are transformed together; both kinds for dw
constexpr uint32_t kWinogradSpan = 32768;        // floats of transformed inputs at a position at most, 2 MiB at all
constexpr uint32_t kWinogradDepth = 256;         // tiles whose products are summed together for dw
constexpr uint32_t kWinogradPad = 16;            // floats between two tiles: lines a power of two apart would share cache sets

constexpr uint64_t winograd_tiles(const DirectShape& s) {
  return uint64_t{s.N} * divide_up(s.P, kWinogradTile) * divide_up(s.Q, kWinogradTile);
}
constexpr bool winograd_fits(const DirectShape& s) {
  return s.R == 3 && s.S == 3 && s.stride == 1 && s.C >= kWinogradLeastChannels && s.K >= kWinogradLeastChannels &&
         s.C % kChannelBlock == 0 && s.K % kChannelBlock == 0 && winograd_tiles(s) >= kWinogradLeastTiles;
}

// Channels of a block, padded to whole tiles of the widest kind.
constexpr uint64_t winograd_block(uint64_t channels) { return smaller(kWinogradBlock, channels) + kMaxMr - 1; }

constexpr uint64_t winograd_filter_floats(uint64_t C, uint64_t K) {
  return align_up(4 * (kWinogradPositions * C * winograd_block(K) + kPanelSlack)) / 4;
}
constexpr uint64_t winograd_chunk_tiles(uint64_t C, uint64_t floats = kWinogradSpan) { return larger(floats / C, kMaxMr); }
constexpr uint64_t winograd_correlate_bytes(uint64_t C, uint64_t K) {
  return 4 * winograd_filter_floats(C, K) + align_up(4 * kWinogradPositions * winograd_chunk_tiles(C) * (C + kWinogradPad));
}

// A position's part of the transformed inputs, of the gradients, and of their product.
constexpr uint64_t winograd_input_floats(uint64_t C) { return align_up(4 * kWinogradDepth * winograd_block(C)) / 4; }
constexpr uint64_t winograd_gradient_floats(uint64_t K) { return align_up(4 * kWinogradDepth * smaller(kWinogradBlock, K)) / 4; }
constexpr uint64_t winograd_product_floats(uint64_t C, uint64_t K) { return align_up(4 * winograd_block(C) * winograd_block(K)) / 4; }
constexpr uint64_t winograd_gradient_bytes(uint64_t C, uint64_t K) {
  const uint64_t floats = winograd_input_floats(C) + winograd_gradient_floats(K) + winograd_product_floats(C, K);
  return align_up(4 * (kWinogradPositions * floats + kPanelSlack));
}

// Of a worker's stack: a panel of transformed inputs, and a tile's products at every position.
constexpr uint64_t kWinogradStackBytes = 4 * (kKc * kMaxMr + kPanelSlack + kWinogradPositions * kMaxMr * kMaxNr);

// As direct_correlate, for shapes that fit here. `scratch` has winograd_correlate_bytes().
template <typename Stored>
void winograd_correlate(const KernelContext& context, const DirectShape& shape, const DirectOutputOf<Stored>& output,
                        const ConvSource<Stored>& source, const DirectWeights& weights, void* scratch);

// As direct_weight_gradient. `scratch` has winograd_gradient_bytes().
template <typename Stored>
void winograd_weight_gradient(const KernelContext& context, const DirectShape& shape, float* dw, const ConvSource<Stored>& source,
                              const Stored* dy, bool accumulate, void* scratch);

}  // namespace reprise
