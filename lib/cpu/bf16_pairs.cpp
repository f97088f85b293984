// Packing of pairs of bf16 along the depth: two rows interleaved, or lines rounded and transposed.
// Here so that bf16_pairs.h stays a choice of packers and tile.
// It must not know which product it serves.
#include "lib/cpu/bf16_pairs.h"

#include "lib/cpu/vector_level.h"

namespace reprise {
namespace {

// The first of a pair lies first in memory, as it does in a row.
REPRISE_INLINE uint32_t pair_of(Bf16 first, Bf16 second) {
  static_assert(std::endian::native == std::endian::little);
  return first.bits | static_cast<uint32_t>(second.bits) << 16;
}

// kWidth lines of kc pairs of rows, `stride` elements from row to row.
template <uint32_t kWidth, typename Stored>
REPRISE_INLINE void interleave_whole(uint32_t* to, const Stored* rows, int64_t stride, uint32_t kc) {
  for (uint32_t k = 0; k < kc; ++k, to += kWidth, rows += 2 * stride) {
    REPRISE_INDEPENDENT
    for (uint32_t i = 0; i < kWidth; ++i) to[i] = pair_of(rows[i], rows[stride + i]);
  }
}
template <typename Stored>
REPRISE_INLINE void interleave_body(uint32_t* to, uint32_t width, uint32_t count, const Stored* rows, int64_t stride, uint32_t kc) {
  if (count == width && width == 12) return interleave_whole<12>(to, rows, stride, kc);
  if (count == width && width == 32) return interleave_whole<32>(to, rows, stride, kc);
  for (uint32_t k = 0; k < kc; ++k, to += width, rows += 2 * stride) {
    for (uint32_t i = 0; i < count; ++i) to[i] = pair_of(rows[i], rows[stride + i]);
    for (uint32_t i = count; i < width; ++i) to[i] = 0;
  }
}
REPRISE_STORAGE_LEVELS(interleave, interleave_body,
                       (uint32_t* to, uint32_t width, uint32_t count, const Stored* rows, int64_t stride, uint32_t kc),
                       (to, width, count, rows, stride, kc))

}  // namespace

void PairedWeights::operator()(float* panel, const PanelRange& range) const {
  const float* first = w.data + static_cast<int64_t>(range.first) * w.line_stride + 2 * static_cast<int64_t>(range.k0) * w.depth_stride;
  if (w.depth_stride != 1) {
    return interleave(reinterpret_cast<uint32_t*>(panel), range.width, range.count, first, w.depth_stride, range.kc);
  }
  alignas(64) float rounded[kMaxMr * kWidenedStride];
  const float* lines[kMaxMr];
  for (uint32_t i = 0; i < range.width; ++i) {
    float* line = rounded + i * kWidenedStride;
    lines[i] = i < range.count ? line : kZeroLine;
    if (i < range.count) narrow(reinterpret_cast<Bf16*>(line), first + i * w.line_stride, 2 * uint64_t{range.kc}, nullptr, false);
  }
  pack_lines(panel, range.width, lines, range.kc);
}

void PairedRows::operator()(float* panel, const PanelRange& range) const {
  uint32_t* to = reinterpret_cast<uint32_t*>(panel);
  const uint64_t row = 2 * range.k0;
  const Bf16* first = data + row * columns + range.first;
  const uint32_t whole = static_cast<uint32_t>(smaller(range.kc, (rows - row) / 2));
  interleave(to, range.width, range.count, first, static_cast<int64_t>(columns), whole);
  if (whole == range.kc) return;
  to += whole * range.width;
  first += 2 * whole * columns;
  for (uint32_t i = 0; i < range.width; ++i) to[i] = i < range.count ? pair_of(first[i], 0.0f) : 0;
}

}  // namespace reprise
