// The patches of a convolution as operands of a product of pairs of bf16 (bf16_pairs.h): conv_patches.h at half the depth.
// Here so that windows of every size and stride are multiplied as linear layers are. What batch-norm and ReLU make of a pixel is rounded to bf16
// while it is copied.
#pragma once

#include "lib/cpu/bf16_pairs.h"
#include "lib/cpu/conv_patches.h"

namespace reprise {

// Whether a convolution of operands stored as bf16 is multiplied by pairs. What is a product in f32 too always is where it can be; where f32 has a
// better algorithm, pairs by vectors have twice its rate, and matrix units more than what Winograd's saves. The direct kernel copies no patches.
inline bool conv_multiplies_pairs(const CpuMachine& machine, const ConvShape& s, ConvPass pass) {
  if (machine.pairs == nullptr || !conv_fills_pairs(s, pass)) return false;
  const bool gives_back = pass == ConvPass::kData, by_vectors = machine.pairs->group() == 1;
  const DirectShape shape = gives_back ? direct_phase_shape(s, DataPhase(s, 0, 0)) : direct_shape(s);
  switch (gives_back ? conv_data_algorithm(s) : conv_algorithm(s)) {
    case ConvAlgorithm::kWinograd: return !by_vectors || winograd_tiles(shape) < machine.paired_winograd_tiles;
    case ConvAlgorithm::kDirect: return gives_back || s.window.stride_h > 1 || (!by_vectors && pass == ConvPass::kForward);
    default: return true;
  }
}

// Lines are places, depths are pairs of (tap, channel).
struct PairedPlaceLines {
  NormalisedPlaceLines<Bf16> places;  // a norm without a mean changes nothing
  uint32_t group;

  bool widen_lines(float* lines, const PanelRange& range) const {
    read_lines(reinterpret_cast<Bf16*>(lines), 2 * range.stride, range);
    return true;
  }

  // As many lines at a time as the worker's stack has room for.
  void operator()(float* panel, const PanelRange& range) const {
    const uint32_t stride = 2 * widened_stride(range.kc), together = static_cast<uint32_t>(smaller(range.width, kMostTileRows));
    REPRISE_STACK_ROOM(Bf16, lines, together * stride);
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
  // Zeros follow the last element.
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

// Lines are (tap, channel), depths are pairs of places: the weight gradient's x.
struct PairedPlaceDepths {
  PlaceDepths<Bf16> places;
  uint64_t count;  // of places
  uint32_t group;

  void operator()(float* panel, const PanelRange& range) const {
    pairs_detail::group_depths(panel, range, group, [this](float* to, const PanelRange& part) { pack(to, part); });
  }

 private:
  static constexpr uint32_t kPairsAtOnce = 32;

  void pack(float* to, PanelRange part) const {
    Bf16 rows[2 * kPairsAtOnce * kMaxNr];
    for (const uint64_t end = part.k0 + part.kc; part.k0 < end; part.k0 += part.kc, to += uint64_t{part.kc} * part.width) {
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

// Lines are input channels, depths are pairs of (tap of the phase, output channel); of an even number of these.
struct PairedPhaseWeights {
  PhaseWeights weights;
  uint32_t group;

  void operator()(float* panel, const PanelRange& range) const {
    pairs_detail::group_depths(panel, range, group, [this](float* to, const PanelRange& part) { pack(to, part); });
  }

 private:
  // Tap by tap; behind the last one are zeros.
  void pack(float* to, const PanelRange& range) const {
    const uint32_t outputs = weights.K / 2, taps = weights.rows.taps() * weights.columns.taps();
    PanelRange part = range;
    for (const uint64_t end = range.k0 + range.kc; part.k0 < end; part.k0 += part.kc, to += uint64_t{part.kc} * part.width) {
      const uint32_t tap = static_cast<uint32_t>(part.k0 / outputs), first = static_cast<uint32_t>(part.k0 % outputs);
      part.kc = static_cast<uint32_t>(smaller(end - part.k0, outputs - first));
      PanelRange lying = part;
      lying.k0 = 0;
      const uint64_t rows = tap < taps ? 2 * uint64_t{part.kc} : 0;
      pairs_detail::pack_rows(to, lying, tap < taps ? weights.at(tap, 2 * first) + part.first : weights.w, weights.next_output(),
                              rows);
    }
  }
};

}  // namespace reprise
