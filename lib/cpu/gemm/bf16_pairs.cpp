// Implements the packers of bf16_pairs.h, which form pairs of bf16 along the depth. A packer
// interleaves two rows, or rounds lines to bf16 and transposes them.
#include "lib/cpu/gemm/bf16_pairs.h"

#include <cstring>

#include "lib/cpu/gemm/interleave.h"
#include "lib/cpu/weight_format.h"

namespace reprise {

using namespace pairs_detail;

namespace {

// Packs `count` lines from 2 kc rows that are `stride` elements apart: elements i of two successive
// rows become one pair of line i. Packs a vector of lines at a time, then four lines, then one.
// Only one cache line of each row is read, and hardware does not predict such reads. So that cache
// line is prefetched `rows_ahead` rows earlier.
template <int kLanes, typename Stored>
REPRISE_INLINE void interleave_body(uint32_t* to, uint32_t width, uint32_t count, const Stored* rows, int64_t stride,
                                    uint32_t kc, uint32_t rows_ahead) {
  const int64_t ahead = int64_t{rows_ahead} * stride;
  for (uint32_t k = 0; k < kc; ++k, to += width, rows += 2 * stride) {
    const Stored* next = rows + stride;
    __builtin_prefetch(rows + ahead);
    __builtin_prefetch(next + ahead);
    uint32_t i = 0;
    for (; i + kLanes <= count; i += kLanes) interleave_vector<kLanes>(to + i, rows + i, next + i);
    for (; i + 4 <= count; i += 4) interleave_vector<4>(to + i, rows + i, next + i);
    for (; i < count; ++i) to[i] = pair_of(rows[i], next[i]);
    for (; i < width; ++i) to[i] = 0;
  }
}
REPRISE_STORAGE_LEVELS(interleave, interleave_body<kLanes>,
                       (uint32_t* to, uint32_t width, uint32_t count, const Stored* rows, int64_t stride, uint32_t kc,
                        uint32_t rows_ahead),
                       (to, width, count, rows, stride, kc, rows_ahead))

// Returns `count` numbers of a line as bf16. Rounds f32 into `space`; returns bf16 in place if
// `count` is even. If `count` is odd, the result is in `space` and followed by a zero.
const Bf16* paired_line(VectorLevel level, Bf16* space, const float* line, uint64_t count) {
  narrow(level, space, line, count, nullptr, false);
  if (count % 2 != 0) space[count] = 0.0f;
  return space;
}
const Bf16* paired_line(VectorLevel, Bf16* space, const Bf16* line, uint64_t count) {
  if (count % 2 == 0) return line;
  std::memcpy(space, line, count * sizeof *line);
  space[count] = 0.0f;
  return space;
}

// Returns how many of the range's pairs have two elements. With an odd K the last pair has one.
uint32_t whole_within(const PanelRange& range, uint64_t K) { return depths_within(range, K / 2 * 2); }

// Copies the first `groups` groups of a line to addresses that are `apart` floats apart. kGroup is
// a constant, so that the copy is inlined: a call of memcpy would take longer than so short a copy.
template <uint32_t kGroup>
void copy_groups(float* to, uint64_t apart, const Bf16* line, uint32_t groups) {
  for (; groups > 0; --groups, to += apart, line += 2 * kGroup) std::memcpy(to, line, kGroup * sizeof *to);
}
void copy_groups(float* to, uint64_t apart, const Bf16* line, uint32_t groups, uint32_t group) {
  switch (group) {
    case 2: return copy_groups<2>(to, apart, line, groups);
    case 16: return copy_groups<16>(to, apart, line, groups);
  }
  for (uint32_t g = 0; g < groups; ++g) std::memcpy(to + g * apart, line + 2 * g * group, group * sizeof *to);
}

// Interleaves two depths of `width` lines.
void put_twos(uint32_t* to, const uint32_t* depths, uint32_t width) {
  for (uint32_t i = 0; i < width; ++i) to[2 * i] = depths[i], to[2 * i + 1] = depths[width + i];
}

void clear(float* from, const float* end) { std::memset(from, 0, static_cast<size_t>(end - from) * sizeof *from); }

}  // namespace

void pairs_detail::put_line(float* panel, const PanelRange& range, uint32_t group, uint32_t i, const Bf16* line,
                            uint32_t depths) {
  const uint64_t apart = uint64_t{range.width} * group;
  const uint32_t whole = depths / group;
  float* to = panel + i * group;
  copy_groups(to, apart, line, whole, group);
  to += whole * apart;
  for (uint32_t k = whole * group; k < range.kc; k += group, to += apart) {
    const uint32_t there = depths - static_cast<uint32_t>(smaller(depths, k));
    if (there > 0) std::memcpy(to, line + 2 * k, there * sizeof *to);
    clear(to + there, to + group);
  }
}

void pairs_detail::put_depths(float* panel, const PanelRange& range, uint32_t group, const float* depths) {
  const uint32_t width = range.width;
  for (uint32_t k = 0; k < range.kc; k += group, panel += uint64_t{width} * group, depths += uint64_t{width} * group) {
    if (group == 2) {
      put_twos(reinterpret_cast<uint32_t*>(panel), reinterpret_cast<const uint32_t*>(depths), width);
      continue;
    }
    const float* lines[kMaxGroup];
    for (uint32_t d = 0; d < group; ++d) lines[d] = depths + uint64_t{d} * width;
    pack_lines(range.level, panel, group, lines, width, 0);
  }
}

void pairs_detail::pack_lines_of_pairs(float* panel, const PanelRange& range, const Bf16* const* lines,
                                       uint32_t depths) {
  const float* pairs[kMaxMr];
  for (uint32_t i = 0; i < range.width; ++i)
    pairs[i] = lines[i] != nullptr ? reinterpret_cast<const float*>(lines[i]) : kZeroLine;
  pack_lines(range.level, panel, range.width, pairs, depths, range.floats_ahead);
  clear(panel + uint64_t{depths} * range.width, panel + uint64_t{range.kc} * range.width);
}

template <typename Stored>
void pairs_detail::pack_rows(float* panel, const PanelRange& range, const Stored* first, int64_t stride, uint64_t K) {
  const uint32_t depths = depths_within(range, K), whole = whole_within(range, K);
  interleave(range.level, reinterpret_cast<uint32_t*>(panel), range.width, range.count, first, stride, whole,
             range.rows_ahead);
  panel += uint64_t{whole} * range.width;
  clear(panel, panel + uint64_t{range.kc - whole} * range.width);
  if (depths == whole) return;
  const Stored* last = first + 2 * int64_t{whole} * stride;
  uint32_t* pairs = reinterpret_cast<uint32_t*>(panel);
  for (uint32_t i = 0; i < range.count; ++i) pairs[i] = pair_of(last[i], 0.0f);
}
template void pairs_detail::pack_rows(float*, const PanelRange&, const float*, int64_t, uint64_t);
template void pairs_detail::pack_rows(float*, const PanelRange&, const Bf16*, int64_t, uint64_t);

namespace {

// Weights stored as plain numbers, addressed by their index in the matrix. bf16 is read in place.
template <typename Stored>
struct StoredWeights {
  const Stored* data;

  const Bf16* pairs(VectorLevel level, Bf16* space, uint64_t first, uint64_t count) const {
    return paired_line(level, space, data + first, count);
  }
  void pack_depths(float* panel, const PanelRange& range, uint64_t first, int64_t stride, uint64_t K) const {
    pack_rows(panel, range, data + first, stride, K);
  }
};
// Weights in formats that StoredWeights cannot read. pairs() decodes one line. pack_depths()
// decodes two rows of the matrix at a time, which become one depth of pairs in the panel.
struct DecodedWeights {
  Weight w;

  const Bf16* pairs(VectorLevel level, Bf16* space, uint64_t first, uint64_t count) const {
    alignas(64) float line[2 * widened_stride(kKc)];
    decode_weights(level, w, first, count, line);
    return paired_line(level, space, line, count);
  }
  void pack_depths(float* panel, const PanelRange& range, uint64_t first, int64_t stride, uint64_t K) const {
    alignas(64) float rows[2 * kMaxMr];
    const uint32_t depths = depths_within(range, K), whole = whole_within(range, K);
    PanelRange pair = range;
    pair.k0 = 0, pair.kc = 1;
    for (uint32_t k = 0; k < depths; ++k, panel += range.width) {
      const uint32_t members = k < whole ? 2 : 1;
      for (uint32_t d = 0; d < members; ++d) {
        decode_weights(range.level, w, first + (2 * uint64_t{k} + d) * static_cast<uint64_t>(stride), range.count,
                       rows + d * kMaxMr);
      }
      pack_rows(panel, pair, rows, kMaxMr, members);
    }
    clear(panel, panel + uint64_t{range.kc - depths} * range.width);
  }
};

// Packs the range's panel of weights.
template <typename Weights>
void pack_weights(float* panel, const PanelRange& range, const Weights& stored, const PairedWeights& w) {
  const int64_t line = w.weights.line_stride, depth = w.weights.depth_stride;
  const uint64_t origin = range.first * static_cast<uint64_t>(line);
  if (depth != 1) {
    return group_depths(panel, range, w.group, [&](float* to, const PanelRange& part) {
      stored.pack_depths(to, part, origin + 2 * part.k0 * static_cast<uint64_t>(depth), depth, w.K);
    });
  }
  const uint32_t depths = depths_within(range, w.K), stride = 2 * widened_stride(range.kc);
  const uint32_t buffers = w.group > 1 ? 1 : range.width;
  REPRISE_STACK_BUFFER(Bf16, rounded, buffers * stride);
  pack_paired_lines(panel, range, w.group, depths, [&](uint32_t i) {
    const uint64_t first = origin + i * static_cast<uint64_t>(line) + 2 * range.k0;
    return stored.pairs(range.level, rounded + i % buffers * stride, first, elements_within(range, w.K));
  });
}

}  // namespace

void PairedLines::operator()(float* panel, const PanelRange& range) const {
  pack_paired_lines(panel, range, group, depths_within(range, K),
                    [&](uint32_t i) { return data + (range.first + i) * pitch + 2 * range.k0; });
}

uint32_t PairedLines::find_runs(RowRun* runs, const PanelRange& range) const {
  return MatrixPacker{reinterpret_cast<const float*>(data), static_cast<int64_t>(pitch / 2), 1}.find_runs(runs, range);
}

void PairedWeights::operator()(float* panel, const PanelRange& range) const {
  switch (weights.w.type) {
    case DType::kF32: return pack_weights(panel, range, StoredWeights<float>{weights.w.f32()}, *this);
    case DType::kBf16: return pack_weights(panel, range, StoredWeights<Bf16>{weights.w.bf16()}, *this);
    default: return pack_weights(panel, range, DecodedWeights{weights.w}, *this);
  }
}

void PairedRows::operator()(float* panel, const PanelRange& range) const {
  group_depths(panel, range, group, [this](float* to, const PanelRange& part) {
    pack_rows(to, part, data + 2 * part.k0 * columns + part.first, static_cast<int64_t>(columns), K);
  });
}

}  // namespace reprise
