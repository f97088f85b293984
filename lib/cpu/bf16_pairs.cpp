// Packing of pairs of bf16 along the depth: two rows interleaved, or lines rounded and transposed.
// Here so that bf16_pairs.h stays a choice of packers and tile.
#include "lib/cpu/bf16_pairs.h"

#include <cstring>

#include "lib/cpu/vector_of.h"
#include "lib/cpu/weight_format.h"

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

// How many of the range's depths are pairs of a line of K.
uint32_t depths_within(const PanelRange& range, uint64_t K) {
  const uint64_t depths = divide_up(K, 2);
  return static_cast<uint32_t>(range.k0 >= depths ? 0 : smaller(range.kc, depths - range.k0));
}

void clear(float* from, const float* end) { std::memset(from, 0, static_cast<size_t>(end - from) * sizeof *from); }

constexpr uint32_t kMaxGroup = 16;

// A panel of lines, of which `depths` pairs are to be read and the rest is zero; a null line is not there.
void pack_groups(float* panel, const PanelRange& range, uint32_t group, const float* const* lines, uint32_t depths) {
  for (uint32_t k = 0; k < range.kc; k += group) {
    const uint32_t there = depths <= k ? 0 : static_cast<uint32_t>(smaller(group, depths - k));
    for (uint32_t i = 0; i < range.width; ++i, panel += group) {
      const uint32_t count = lines[i] == nullptr ? 0 : there;
      if (count > 0) std::memcpy(panel, lines[i] + k, count * sizeof *panel);
      clear(panel + count, panel + group);
    }
  }
}

// The same without groups.
void pack_depths_of_lines(float* panel, const PanelRange& range, const float** lines, uint32_t depths) {
  for (uint32_t i = 0; i < range.width; ++i) lines[i] = lines[i] != nullptr ? lines[i] : kZeroLine;
  pack_lines(range.level, panel, range.width, lines, depths);
  clear(panel + uint64_t{depths} * range.width, panel + uint64_t{range.kc} * range.width);
}

void pack_paired_lines(float* panel, const PanelRange& range, uint32_t group, const float** lines, uint32_t depths) {
  if (group == 1) return pack_depths_of_lines(panel, range, lines, depths);
  pack_groups(panel, range, group, lines, depths);
}

// What by_depths(panel, range) writes without groups, in groups.
template <typename ByDepths>
void group_depths(float* panel, const PanelRange& range, uint32_t group, const ByDepths& by_depths) {
  if (group == 1) return by_depths(panel, range);
  alignas(64) float depths[kMaxGroup * kMaxMr];
  for (uint32_t k = 0; k < range.kc; k += group) {
    PanelRange part = range;
    part.k0 += k;
    part.kc = group;
    by_depths(depths, part);
    for (uint32_t i = 0; i < range.width; ++i) {
      for (uint32_t d = 0; d < group; ++d) std::memcpy(panel++, depths + d * range.width + i, sizeof *panel);
    }
  }
}

// Depths [range.k0, ...) of rows of elements, `whole` pairs of them.
template <typename Stored>
void pack_rows(float* panel, const PanelRange& range, const Stored* first, int64_t stride, uint32_t whole) {
  interleave(range.level, reinterpret_cast<uint32_t*>(panel), range.width, range.count, first, stride, whole);
  clear(panel + uint64_t{whole} * range.width, panel + uint64_t{range.kc} * range.width);
}

// Weights by which element of the matrix they are. Of plain numbers they serve from where they lie.
template <typename Stored>
struct StoredWeights {
  const Stored* data;

  const Bf16* pairs(VectorLevel level, Bf16* room, uint64_t first, uint64_t count) const { return paired_line(level, room, data + first, count); }
  void pack_depths(float* panel, const PanelRange& range, uint64_t first, int64_t stride, uint32_t whole) const {
    pack_rows(panel, range, data + first, stride, whole);
  }
};
// Those of other formats are decoded, a line or two rows of the panel at a time.
struct DecodedWeights {
  Weight w;

  const Bf16* pairs(VectorLevel level, Bf16* room, uint64_t first, uint64_t count) const {
    alignas(64) float line[2 * widened_stride(kKc)];
    decode_weights(level, w, first, count, line);
    return paired_line(level, room, line, count);
  }
  void pack_depths(float* panel, const PanelRange& range, uint64_t first, int64_t stride, uint32_t whole) const {
    alignas(64) float rows[2 * kMaxMr];
    PanelRange pair = range;
    pair.kc = 1;
    for (uint32_t k = 0; k < whole; ++k, panel += range.width) {
      for (uint32_t d = 0; d < 2; ++d) {
        decode_weights(range.level, w, first + (2 * uint64_t{k} + d) * static_cast<uint64_t>(stride), range.count, rows + d * kMaxMr);
      }
      pack_rows(panel, pair, rows, kMaxMr, 1);
    }
    clear(panel, panel + uint64_t{range.kc - whole} * range.width);
  }
};

// The range's panel of weights.
template <typename Weights>
void pack_weights(float* panel, const PanelRange& range, const Weights& stored, const PairedWeights& w) {
  const int64_t line = w.weights.line_stride, depth = w.weights.depth_stride;
  const uint64_t origin = range.first * static_cast<uint64_t>(line);
  if (depth != 1) {
    return group_depths(panel, range, w.group, [&](float* to, const PanelRange& part) {
      stored.pack_depths(to, part, origin + 2 * part.k0 * static_cast<uint64_t>(depth), depth, depths_within(part, w.K));
    });
  }
  const uint32_t depths = depths_within(range, w.K);
  const uint32_t stride = 2 * widened_stride(range.kc);
  REPRISE_STACK_ROOM(Bf16, rounded, range.width * stride);
  const float* lines[kMaxMr] = {};
  for (uint32_t i = 0; depths > 0 && i < range.count; ++i) {
    const uint64_t first = origin + i * static_cast<uint64_t>(line) + 2 * range.k0;
    lines[i] = reinterpret_cast<const float*>(stored.pairs(range.level, rounded + i * stride, first, 2 * uint64_t{depths}));
  }
  pack_paired_lines(panel, range, w.group, lines, depths);
}

}  // namespace

void PairedLines::operator()(float* panel, const PanelRange& range) const {
  const uint32_t depths = depths_within(range, K);
  const float* lines[kMaxMr] = {};
  for (uint32_t i = 0; depths > 0 && i < range.count; ++i) lines[i] = reinterpret_cast<const float*>(data + (range.first + i) * K + 2 * range.k0);
  pack_paired_lines(panel, range, group, lines, depths);
}

uint32_t PairedLines::find_runs(RowRun* runs, const PanelRange& range) const {
  return MatrixPacker{reinterpret_cast<const float*>(data), static_cast<int64_t>(K / 2), 1}.find_runs(runs, range);
}

void PairedWeights::operator()(float* panel, const PanelRange& range) const {
  switch (weights.w.type) {
    case DType::kF32: return pack_weights(panel, range, StoredWeights<float>{weights.w.f32()}, *this);
    case DType::kBf16: return pack_weights(panel, range, StoredWeights<Bf16>{weights.w.bf16()}, *this);
    default: return pack_weights(panel, range, DecodedWeights{weights.w}, *this);
  }
}

// A last row without another has zeros for it.
void PairedRows::operator()(float* panel, const PanelRange& range) const {
  group_depths(panel, range, group, [this](float* to, const PanelRange& part) {
    const uint32_t depths = depths_within(part, K), whole = 2 * (part.k0 + depths) <= K || depths == 0 ? depths : depths - 1;
    const Bf16* first = data + 2 * part.k0 * columns + part.first;
    pack_rows(to, part, first, static_cast<int64_t>(columns), whole);
    if (whole == depths) return;
    uint32_t* last = reinterpret_cast<uint32_t*>(to) + whole * part.width;
    for (uint32_t i = 0; i < part.count; ++i) last[i] = pair_of(first[2 * whole * columns + i], 0.0f);
  });
}

}  // namespace reprise
