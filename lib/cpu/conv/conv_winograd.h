// 3x3 convolution of stride 1 by Winograd's minimal filtering, which multiplies 16 times where the
// definition multiplies 36 times. Most of a ResNet's arithmetic is in 3x3 layers of stride 1.
// winograd_fits() selects the algorithm by shape alone.
//
// Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (arXiv 1509.09308), F(2x2,
// 3x3): outputs in tiles of 2 x 2, each from 4 x 4 inputs. X' is the transpose of X. Inputs d,
// filters g and outputs y are combined as
//   y = A' [ (G g G') . (B' d B) ] A                       for each tile
//   dw = E' [ sum over tiles of (F dy F') . (B' d B) ] E   by F(3x3, 2x2)
// The dot multiplies elements of the same position. So the sum over channels is 16 matrix products,
// one for each position. Both formulas have the same B, and so the same points 0, 1, -1 and
// infinity. The transforms only add and halve, so the error of an output is of the same order as
// the direct sum's.
#pragma once

#include "lib/cpu/conv/conv_direct.h"
#include "lib/cpu/gemm/gemm_tile.h"

namespace reprise {

constexpr uint32_t kWinogradTile = 2;        // outputs along a tile's edge
constexpr uint32_t kWinogradPositions = 16;  // positions of a 4 x 4 tile of inputs
constexpr uint32_t kWinogradMinChannels = 64;  // minimum; with fewer, transforms cost as much as they save
constexpr uint64_t kWinogradMinTiles = 64;     // minimum; with fewer tiles the filters' transform costs too much
// Maximum output channels whose filters are transformed together; for dw, also the maximum input
// channels of a block.
constexpr uint32_t kWinogradBlock = 128;
// Maximum floats of transformed inputs per position: 2 MiB in all positions.
constexpr uint32_t kWinogradSpan = 32768;
constexpr uint32_t kWinogradDepth = 256;         // tiles whose products are summed together for dw
// Unused floats between two tiles: lines whose distance is a power of two would share cache sets.
constexpr uint32_t kWinogradPad = 16;

constexpr uint64_t winograd_tiles(const DirectShape& s) {
  return uint64_t{s.N} * divide_up(s.P, kWinogradTile) * divide_up(s.Q, kWinogradTile);
}
constexpr bool winograd_fits(const DirectShape& s) {
  return s.R == 3 && s.S == 3 && s.stride == 1 && s.C >= kWinogradMinChannels && s.K >= kWinogradMinChannels &&
         s.C % kChannelBlock == 0 && s.K % kChannelBlock == 0 && winograd_tiles(s) >= kWinogradMinTiles;
}

// Returns the channels of a block, padded so that complete tiles of the largest size fit.
constexpr uint64_t winograd_block(uint64_t channels) { return smaller(kWinogradBlock, channels) + kMaxMr - 1; }

constexpr uint64_t winograd_filter_floats(uint64_t C, uint64_t K) {
  return align_up(4 * (kWinogradPositions * C * winograd_block(K) + kPanelSlack)) / 4;
}
constexpr uint64_t winograd_chunk_tiles(uint64_t C, uint64_t floats = kWinogradSpan) {
  return larger(floats / C, kMaxMr);
}
constexpr uint64_t winograd_correlate_bytes(uint64_t C, uint64_t K) {
  return 4 * winograd_filter_floats(C, K) +
         align_up(4 * kWinogradPositions * winograd_chunk_tiles(C) * (C + kWinogradPad));
}

// Returns the floats of one position of the transformed inputs. The next two functions return the
// floats of the transformed gradients, and of the product.
constexpr uint64_t winograd_input_floats(uint64_t C) { return align_up(4 * kWinogradDepth * winograd_block(C)) / 4; }
constexpr uint64_t winograd_gradient_floats(uint64_t K) {
  return align_up(4 * kWinogradDepth * smaller(kWinogradBlock, K)) / 4;
}
constexpr uint64_t winograd_product_floats(uint64_t C, uint64_t K) {
  return align_up(4 * winograd_block(C) * winograd_block(K)) / 4;
}
constexpr uint64_t winograd_gradient_bytes(uint64_t C, uint64_t K) {
  const uint64_t floats = winograd_input_floats(C) + winograd_gradient_floats(K) + winograd_product_floats(C, K);
  return align_up(4 * (kWinogradPositions * floats + kPanelSlack));
}

// Stack of a worker: a panel of transformed inputs, and a tile's products at every position.
constexpr uint64_t kWinogradStackBytes = 4 * (kKc * kMaxMr + kPanelSlack + kWinogradPositions * kMaxMr * kMaxNr);

// Computes what direct_correlate() does, for shapes with winograd_fits(). `scratch` has
// winograd_correlate_bytes().
template <typename Stored>
void winograd_correlate(const KernelContext& context, const DirectShape& shape, const DirectOutputOf<Stored>& output,
                        const ConvSource<Stored>& source, const DirectWeights& weights, void* scratch);

// Computes what direct_weight_gradient() does, for shapes with winograd_fits(). `scratch` has
// winograd_gradient_bytes().
template <typename Stored>
void winograd_weight_gradient(const KernelContext& context, const DirectShape& shape, float* dw,
                              const ConvSource<Stored>& source, const Stored* dy, bool accumulate, void* scratch);

}  // namespace reprise
