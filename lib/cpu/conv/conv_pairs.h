// The patches of a convolution as operands of a product of bf16 pairs (bf16_pairs.h). The lines are
// those of conv_patches.h, but each depth has two elements. So windows of every size and stride are
// multiplied like linear layers. Batch-norm and ReLU are computed in f32, and their results are
// rounded to bf16 while a pixel is copied.
#pragma once

#include "lib/cpu/conv/conv_patches.h"
#include "lib/cpu/gemm/bf16_pairs.h"

namespace reprise {

// True if a convolution of bf16 operands multiplies pairs. The machine must have a tile for pairs,
// and the shape must allow pairs (conv_fills_pairs). A "matrix unit" (AMX, BFMMLA) has a tile with
// groups of elements. Pairs replace the algorithm that f32 would use in these cases:
// - a product: always;
// - Winograd: on a matrix unit, and with vectors if there are few Winograd tiles;
// - the direct kernel, which copies no patches: in data gradients, at strides above 1, and in the
//   forward on a matrix unit.
inline bool conv_multiplies_pairs(const CpuMachine& machine, const ConvShape& s, ConvPass pass) {
  if (machine.pairs == nullptr || !conv_fills_pairs(s, pass)) return false;
  const bool gives_back = pass == ConvPass::kData, by_vectors = machine.pairs->group() == 1;
  const DirectShape shape = gives_back ? direct_phase_shape(s, DataPhase(s, 0, 0)) : direct_shape(s);
  switch (gives_back ? conv_data_algorithm(s) : conv_algorithm(s)) {
    case ConvAlgorithm::kWinograd: return !by_vectors || winograd_tiles(shape) < machine.paired_winograd_tiles;
    case ConvAlgorithm::kDirect:
      return gives_back || s.window.stride_h > 1 || (!by_vectors && pass == ConvPass::kForward);
    default: return true;
  }
}

// An operand whose lines are places (positions of the output) and whose depths are pairs of
// elements (tap, channel).
struct PairedPlaceLines {
  NormalisedPlaceLines<Bf16> places;  // no norm if its mean is null
  uint32_t group;

  bool widen_lines(float* lines, const PanelRange& range) const {
    read_lines(reinterpret_cast<Bf16*>(lines), 2 * range.stride, range);
    return true;
  }

  // Packs at most kMaxTileRows lines at a time, because the lines are on the worker's stack.
  void operator()(float* panel, const PanelRange& range) const {
    const uint32_t stride = 2 * widened_stride(range.kc),
                   together = static_cast<uint32_t>(smaller(range.width, kMaxTileRows));
    REPRISE_STACK_BUFFER(Bf16, lines, together * stride);
    pairs_detail::pack_paired_lines(panel, range, group, range.kc, [&](uint32_t i) {
      if (i % together == 0) {
        PanelRange part = range;
        part.first += i;
        part.count = static_cast<uint32_t>(smaller(together, range.count - i));
        read_lines(lines, stride, part);
      }
      return lines + i % together * stride;
    });
  }

 private:
  // Reads the range's lines. Zeros follow the last element of each line.
  void read_lines(Bf16* lines, uint32_t stride, const PanelRange& range) const {
    const uint32_t there = static_cast<uint32_t>(pairs_detail::elements_within(range, places.patches.depth()));
    if (places.norm.mean == nullptr && places.patches.channels < kFewChannels) {
      copy_lines(lines, stride, range, there);
    } else {
      places.read_lines(lines, stride, range, 2 * range.k0, there);
    }
    for (uint32_t i = 0; i < range.count && there < 2 * range.kc; ++i) {
      std::memset(lines + i * uint64_t{stride} + there, 0, (2 * range.kc - there) * sizeof *lines);
    }
  }
  void copy_lines(Bf16* lines, uint32_t stride, const PanelRange& range, uint32_t count) const {
    PatchPlace place(places.patches, range.first);
    for (uint32_t i = 0; i < range.count; ++i, place.next(places.patches))
      copy_patch(lines + i * uint64_t{stride}, places.patches, place, 2 * range.k0, count);
  }
};

// An operand whose lines are (tap, channel) and whose depths are pairs of places (positions of the
// output). It is x in the product of a weight gradient.
struct PairedPlaceDepths {
  PlaceDepths<Bf16> places;
  uint64_t count;  // number of places
  uint32_t group;

  void operator()(float* panel, const PanelRange& range) const {
    pairs_detail::group_depths(panel, range, group, [this](float* to, const PanelRange& part) { pack(to, part); });
  }

 private:
  static constexpr uint32_t kPairsAtOnce = 32;

  void pack(float* to, PanelRange part) const {
    Bf16 rows[2 * kPairsAtOnce * kMaxNr];
    for (const uint64_t end = part.k0 + part.kc; part.k0 < end;
         part.k0 += part.kc, to += uint64_t{part.kc} * part.width) {
      part.kc = static_cast<uint32_t>(smaller(kPairsAtOnce, end - part.k0));
      PanelRange elements = part;
      elements.k0 = 2 * part.k0;
      elements.kc = static_cast<uint32_t>(pairs_detail::elements_within(part, count));
      if (elements.kc > 0) places.copy(rows, elements);
      PanelRange lying = part;
      lying.k0 = 0;
      pairs_detail::pack_rows(to, lying, rows, part.width, elements.kc);
    }
  }
};

// An operand whose lines are input channels and whose depths are pairs of (tap of the phase, output
// channel). The number of output channels must be even.
struct PairedPhaseWeights {
  PhaseWeights weights;
  uint32_t group;

  void operator()(float* panel, const PanelRange& range) const {
    pairs_detail::group_depths(panel, range, group, [this](float* to, const PanelRange& part) { pack(to, part); });
  }

 private:
  // Packs tap by tap; zeros follow the last tap.
  void pack(float* to, const PanelRange& range) const {
    const uint32_t outputs = weights.K / 2, taps = weights.rows.taps() * weights.columns.taps();
    PanelRange part = range;
    for (const uint64_t end = range.k0 + range.kc; part.k0 < end;
         part.k0 += part.kc, to += uint64_t{part.kc} * part.width) {
      const uint32_t tap = static_cast<uint32_t>(part.k0 / outputs), first = static_cast<uint32_t>(part.k0 % outputs);
      part.kc = static_cast<uint32_t>(smaller(end - part.k0, outputs - first));
      PanelRange lying = part;
      lying.k0 = 0;
      const uint64_t rows = tap < taps ? 2 * uint64_t{part.kc} : 0;
      pairs_detail::pack_rows(to, lying, tap < taps ? weights.at(tap, 2 * first) + part.first : weights.w,
                              weights.next_output(), rows);
    }
  }
};

}  // namespace reprise
