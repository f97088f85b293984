// Packing of pairs of bf16 along the depth: two rows interleaved, or lines rounded and transposed.
// Here so that bf16_pairs.h stays a choice of packers and tile.
#include "lib/cpu/bf16_pairs.h"

#include <cstring>

#include "lib/cpu/vector_of.h"

namespace reprise {
namespace {

// The first of a pair lies first in memory, as it does in a row.
REPRISE_INLINE uint32_t pair_of(Bf16 first, Bf16 second) {
  static_assert(std::endian::native == std::endian::little);
  return first.bits | static_cast<uint32_t>(second.bits) << 16;
}

template <int kLanes>
REPRISE_INLINE void interleave_vector(uint32_t* to, const Bf16* first, const Bf16* second) {
  using Types = Bf16VectorOf<kLanes>;
  typename Types::Half low, high;
  std::memcpy(&low, first, sizeof low);
  std::memcpy(&high, second, sizeof high);
  const typename Types::Word pairs = __builtin_convertvector(low, typename Types::Word) | __builtin_convertvector(high, typename Types::Word) << 16;
  std::memcpy(to, &pairs, sizeof pairs);
}
template <int kLanes>
REPRISE_INLINE void interleave_vector(uint32_t* to, const float* first, const float* second) {
  typename VectorOf<kLanes>::type low, high;
  read_vector<kLanes>(low, first);
  read_vector<kLanes>(high, second);
  Bf16 rounded[2][kLanes];
  write_vector<kLanes>(rounded[0], low);
  write_vector<kLanes>(rounded[1], high);
  interleave_vector<kLanes>(to, rounded[0], rounded[1]);
}

constexpr int64_t kRowsAhead = 16;  // a line of each row is all that is read of it: fetched before the processor would guess it

// `count` lines of kc pairs of rows, `stride` elements from row to row. A tile has 32 lines or 12: whole vectors, or quarters.
template <int kLanes, typename Stored>
REPRISE_INLINE void interleave_body(uint32_t* to, uint32_t width, uint32_t count, const Stored* rows, int64_t stride, uint32_t kc) {
  for (uint32_t k = 0; k < kc; ++k, to += width, rows += 2 * stride) {
    const Stored* next = rows + stride;
    __builtin_prefetch(rows + kRowsAhead * stride);
    __builtin_prefetch(next + kRowsAhead * stride);
    uint32_t i = 0;
    for (; i + kLanes <= count; i += kLanes) interleave_vector<kLanes>(to + i, rows + i, next + i);
    for (; i + 4 <= count; i += 4) interleave_vector<4>(to + i, rows + i, next + i);
    for (; i < count; ++i) to[i] = pair_of(rows[i], next[i]);
    for (; i < width; ++i) to[i] = 0;
  }
}
REPRISE_STORAGE_LEVELS(interleave, interleave_body<kLanes>,
                       (uint32_t* to, uint32_t width, uint32_t count, const Stored* rows, int64_t stride, uint32_t kc),
                       (to, width, count, rows, stride, kc))

// The bf16 of a line, `count` of them: rounded into `room`, or as they lie.
const Bf16* paired_line(VectorLevel level, Bf16* room, const float* line, uint64_t count) {
  narrow(level, room, line, count, nullptr, false);
  return room;
}
const Bf16* paired_line(VectorLevel, Bf16*, const Bf16* line, uint64_t) { return line; }

// The range's panel of weights whose first element is at `first`.
template <typename Stored>
void pack_pairs(float* panel, const PanelRange& range, const Stored* first, int64_t line_stride, int64_t depth_stride) {
  if (depth_stride != 1) {
    return interleave(range.level, reinterpret_cast<uint32_t*>(panel), range.width, range.count, first, depth_stride, range.kc);
  }
  alignas(64) Bf16 rounded[kMaxMr * 2 * kWidenedStride];
  const float* lines[kMaxMr];
  for (uint32_t i = 0; i < range.width; ++i) {
    const Bf16* line = i < range.count ? paired_line(range.level, rounded + i * 2 * kWidenedStride, first + i * line_stride,
                                                     2 * uint64_t{range.kc})
                                       : nullptr;
    lines[i] = line != nullptr ? reinterpret_cast<const float*>(line) : kZeroLine;
  }
  pack_lines(panel, range.width, lines, range.kc);
}

}  // namespace

void PairedWeights::operator()(float* panel, const PanelRange& range) const {
  const int64_t first = static_cast<int64_t>(range.first) * weights.line_stride + 2 * static_cast<int64_t>(range.k0) * weights.depth_stride;
  if (weights.w.type == DType::kBf16) return pack_pairs(panel, range, weights.w.bf16() + first, weights.line_stride, weights.depth_stride);
  pack_pairs(panel, range, weights.w.f32() + first, weights.line_stride, weights.depth_stride);
}

void PairedRows::operator()(float* panel, const PanelRange& range) const {
  uint32_t* to = reinterpret_cast<uint32_t*>(panel);
  const uint64_t row = 2 * range.k0;
  const Bf16* first = data + row * columns + range.first;
  const uint32_t whole = static_cast<uint32_t>(smaller(range.kc, (rows - row) / 2));
  interleave(range.level, to, range.width, range.count, first, static_cast<int64_t>(columns), whole);
  if (whole == range.kc) return;
  to += whole * range.width;
  first += 2 * whole * columns;
  for (uint32_t i = 0; i < range.width; ++i) to[i] = i < range.count ? pair_of(first[i], 0.0f) : 0;
}

}  // namespace reprise
