// Packing of plain matrices into panels, and the sum of a split product's partials. Implements the
// packers of gemm.h.
#include "lib/cpu/gemm/gemm.h"

#include <cstring>

#include "lib/cpu/gemm/transpose.h"
#include "lib/cpu/vector_of.h"
#include "lib/cpu/weight_format.h"

namespace reprise {

alignas(64) constexpr float kZeroLine[kKc] = {};

namespace {

// Moves an element of 32 bits. If the element is a pair of bf16 (bf16_pairs.h) there is no float at
// `from`, so the bits are copied.
REPRISE_INLINE void move_element(float* to, const float* from) { std::memcpy(to, from, sizeof *to); }
REPRISE_INLINE void move_element(float* to, const Bf16* from) { *to = *from; }

// Computes sums[k] = the sum over rows of in[row * stride + k].
template <typename Stored>
REPRISE_INLINE void sum_rows_body(float* sums, const Stored* in, uint64_t rows, uint64_t stride, uint64_t columns) {
  for (uint64_t k = 0; k < columns; ++k) sums[k] = 0.0f;
  for (uint64_t row = 0; row < rows; ++row, in += stride) {
    REPRISE_INDEPENDENT
    for (uint64_t k = 0; k < columns; ++k) sums[k] += in[k];
  }
}
REPRISE_STORAGE_LEVELS(sum_rows, sum_rows_body,
                       (float* sums, const Stored* in, uint64_t rows, uint64_t stride, uint64_t columns),
                       (sums, in, rows, stride, columns))

REPRISE_INLINE void widen_body(float* to, const Bf16* from, uint64_t count) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < count; ++i) to[i] = from[i];
}
REPRISE_VECTOR_LEVELS(widen_row, widen_body, (float* to, const Bf16* from, uint64_t count), (to, from, count))

// The conditions are template parameters, so that the loop vectorises.
template <bool kBias, bool kAccumulate>
REPRISE_INLINE void narrow_body(Bf16* to, const float* from, uint64_t count, const float* bias) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < count; ++i) {
    float value = from[i];
    if constexpr (kBias) value += bias[i];
    if constexpr (kAccumulate) value += float{to[i]};
    to[i] = value;
  }
}
REPRISE_INLINE void narrow_any_body(Bf16* to, const float* from, uint64_t count, const float* bias, bool accumulate) {
  if (bias != nullptr) {
    if (accumulate) return narrow_body<true, true>(to, from, count, bias);
    return narrow_body<true, false>(to, from, count, bias);
  }
  if (accumulate) return narrow_body<false, true>(to, from, count, bias);
  narrow_body<false, false>(to, from, count, bias);
}
REPRISE_VECTOR_LEVELS(narrow_row, narrow_any_body,
                      (Bf16* to, const float* from, uint64_t count, const float* bias, bool accumulate),
                      (to, from, count, bias, accumulate))

// Packs `count` contiguous elements of each depth. Prefetches the elements that are kc depths
// further on, which the next block reads.
template <int kLanes, typename Stored>
REPRISE_INLINE void pack_depths_body(float* panel, uint32_t width, uint32_t count, const Stored* first, int64_t stride,
                                     uint32_t kc) {
  for (uint32_t k = 0; k < kc; ++k, panel += width, first += stride) {
    uint32_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      typename VectorOf<kLanes>::type x;
      __builtin_prefetch(first + int64_t{kc} * stride + i, 0, 2);
      read_vector<kLanes>(x, first + i);
      write_vector<kLanes>(panel + i, x);
    }
    for (; i < count; ++i) move_element(panel + i, first + i);
    for (; i < width; ++i) panel[i] = 0.0f;
  }
}
REPRISE_STORAGE_LEVELS(pack_depths_at_level, pack_depths_body<kLanes>,
                       (float* panel, uint32_t width, uint32_t count, const Stored* first, int64_t stride, uint32_t kc),
                       (panel, width, count, first, stride, kc))

REPRISE_VECTOR_LEVELS(pack_lines_at_level, transpose_lines<kLanes>,
                      (float* panel, uint32_t width, const float* const* lines, uint32_t kc, uint32_t floats_ahead),
                      (panel, width, lines, kc, floats_ahead))

}  // namespace

template <typename Stored>
void pack_depths(VectorLevel level, float* panel, uint32_t width, uint32_t count, const Stored* first, int64_t stride,
                 uint32_t kc) {
  pack_depths_at_level(level, panel, width, count, first, stride, kc);
}
template void pack_depths(VectorLevel, float*, uint32_t, uint32_t, const float*, int64_t, uint32_t);
template void pack_depths(VectorLevel, float*, uint32_t, uint32_t, const Bf16*, int64_t, uint32_t);

void pack_lines(VectorLevel level, float* panel, uint32_t width, const float* const* lines, uint32_t kc,
                uint32_t floats_ahead) {
  pack_lines_at_level(level, panel, width, lines, kc, floats_ahead);
}

void narrow(VectorLevel level, Bf16* to, const float* from, uint64_t count, const float* bias, bool accumulate) {
  narrow_row(level, to, from, count, bias, accumulate);
}

void widen(VectorLevel level, float* to, const Bf16* from, uint64_t count) { widen_row(level, to, from, count); }

void MatrixPackerOf<float>::operator()(float* panel, const PanelRange& range) const {
  const float* origin =
      data + static_cast<int64_t>(range.first) * line_stride + static_cast<int64_t>(range.k0) * depth_stride;
  if (line_stride == 1)
    return pack_depths(range.level, panel, range.width, range.count, origin, depth_stride, range.kc);
  const float* lines[kMaxMr];
  for (uint32_t i = 0; i < range.width; ++i) lines[i] = i < range.count ? origin + i * line_stride : kZeroLine;
  pack_lines(range.level, panel, range.width, lines, range.kc, range.floats_ahead);
}

uint32_t MatrixPackerOf<float>::find_runs(RowRun* runs, const PanelRange& range) const {
  if (depth_stride != 1 || lines_collide(line_stride)) return 0;
  const float* first = data + static_cast<int64_t>(range.first) * line_stride + static_cast<int64_t>(range.k0);
  for (uint32_t i = 0; i < range.width; ++i) runs[0].rows[i] = i < range.count ? first + i * line_stride : kZeroLine;
  runs[0].depths = range.kc;
  runs[0].ahead = range.width * line_stride;
  return 1;
}

DepthOperand MatrixPackerOf<float>::find_depths(const PanelRange& range) const {
  if (line_stride != 1) return {nullptr, 0, 0};
  return {data + static_cast<int64_t>(range.first) + static_cast<int64_t>(range.k0) * depth_stride, depth_stride,
          range.kc * depth_stride};
}

bool MatrixPackerOf<Bf16>::widen_lines(float* lines, const PanelRange& range) const {
  if (depth_stride != 1) return false;
  const Bf16* first = data + static_cast<int64_t>(range.first) * line_stride + static_cast<int64_t>(range.k0);
  for (uint32_t i = 0; i < range.count; ++i)
    widen_row(range.level, lines + i * range.stride, first + i * line_stride, range.kc);
  return true;
}

void MatrixPackerOf<Bf16>::operator()(float* panel, const PanelRange& range) const {
  if (depth_stride == 1) return pack_widened(panel, range, *this);
  const Bf16* first =
      data + static_cast<int64_t>(range.first) * line_stride + static_cast<int64_t>(range.k0) * depth_stride;
  pack_depths(range.level, panel, range.width, range.count, first, depth_stride, range.kc);
}

namespace {

// Lines of weights that pack_widened() decodes.
struct DecodedLines {
  const WeightPacker& weights;

  void widen_lines(float* lines, const PanelRange& range) const {
    for (uint32_t i = 0; i < range.count; ++i) {
      const uint64_t first = weights.start(range) + i * static_cast<uint64_t>(weights.line_stride);
      decode_weights(range.level, weights.w, first, range.kc, lines + i * range.stride);
    }
  }
};

void pack_decoded_depths(float* panel, const PanelRange& range, const WeightPacker& weights) {
  for (uint32_t k = 0; k < range.kc; ++k, panel += range.width) {
    decode_weights(range.level, weights.w, weights.start(range) + k * static_cast<uint64_t>(weights.depth_stride),
                   range.count, panel);
    for (uint32_t i = range.count; i < range.width; ++i) panel[i] = 0;
  }
}

}  // namespace

// Packs a panel. f32 and bf16 have packers of their own, which write the same numbers as the
// decoders of weight_format.cpp would.
void WeightPacker::operator()(float* panel, const PanelRange& range) const {
  switch (w.type) {
    case DType::kF32: return MatrixPacker{w.f32(), line_stride, depth_stride}(panel, range);
    case DType::kBf16: return MatrixPackerOf<Bf16>{w.bf16(), line_stride, depth_stride}(panel, range);
    default:
      return depth_stride == 1 ? pack_widened(panel, range, DecodedLines{*this})
                               : pack_decoded_depths(panel, range, *this);
  }
}

void ScaledWeights::operator()(float* panel, const PanelRange& range) const {
  weights(panel, range);
  if (factor == 1.0f) return;
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < uint64_t{range.kc} * range.width; ++i) panel[i] *= factor;
}

template <typename Stored>
void column_sums(const KernelContext& context, float* out, const Stored* in, uint64_t M, uint64_t K, bool accumulate,
                 void* scratch) {
  constexpr uint64_t kTileColumns = 512;  // a tile of sums stays in L1
  float* sums = static_cast<float*>(scratch);
  const Partition rows = split_at_most(M, kColumnSumBlocks, 16), columns{K, kTileColumns};
  parallel_for(*context.workers, rows.count() * columns.count(), [&](uint32_t task) {
    const uint32_t r = task / columns.count(), c = task % columns.count();
    sum_rows(cpu_machine(context).level, sums + r * K + columns.begin(c), in + rows.begin(r) * K + columns.begin(c),
             rows.end(r) - rows.begin(r), K, columns.end(c) - columns.begin(c));
  });
  add_partials(*context.workers, out, K, sums, K, rows.count(), accumulate);
}
template void column_sums(const KernelContext&, float*, const float*, uint64_t, uint64_t, bool, void*);
template void column_sums(const KernelContext&, float*, const Bf16*, uint64_t, uint64_t, bool, void*);

void add_partials(const Workers& workers, float* c, uint64_t count, const float* sums, uint64_t stride, uint32_t parts,
                  bool accumulate) {
  for_each_piece(workers, Partition{count, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      float sum = sums[i];
      for (uint32_t s = 1; s < parts; ++s) sum += sums[s * stride + i];
      c[i] = accumulate ? c[i] + sum : sum;
    }
  });
}

}  // namespace reprise
