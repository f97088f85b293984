// Exchanges two dimensions of a tensor, by squares that are transposed in registers (transpose.h):
// both sides are accessed by whole cache lines. Runs of elements that stay contiguous are copied.
#include "lib/cpu/gemm/transpose.h"

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/runs.h"

namespace reprise {
namespace {

constexpr uint32_t kSide = 16;  // side of a square: one cache line of f32

template <typename Stored>
REPRISE_INLINE void store_line(Stored* y, const float* line, uint64_t n, bool adds) {
  if (adds) {
    for (uint64_t i = 0; i < n; ++i) y[i] = float{y[i]} + line[i];
  } else {
    for (uint64_t i = 0; i < n; ++i) y[i] = line[i];
  }
}

// Writes y[c, r] = x[r, c] for r < rows and c < columns, at most kSide each; adds to y if `adds`.
template <int kLanes, typename Stored>
REPRISE_INLINE void transpose_tile(Stored* y, uint64_t y_stride, const Stored* x, uint64_t x_stride, uint64_t rows,
                                   uint64_t columns, bool adds) {
  float read[kSide * kSide], transposed[kSide * kSide];
  const float* lines[kSide];
  for (uint32_t r = 0; r < kSide; ++r) lines[r] = read + r * kSide;
  if (rows == kSide && columns == kSide) {  // constant bounds, so that the loops vectorise
    for (uint32_t r = 0; r < kSide; ++r) {
      for (uint32_t c = 0; c < kSide; ++c) read[r * kSide + c] = x[r * x_stride + c];
    }
    transpose_lines<kLanes>(transposed, kSide, lines, kSide);
    for (uint32_t c = 0; c < kSide; ++c) store_line(y + c * y_stride, transposed + c * kSide, kSide, adds);
    return;
  }
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < columns; ++c) transposed[c * kSide + r] = x[r * x_stride + c];
  }
  for (uint64_t c = 0; c < columns; ++c) store_line(y + c * y_stride, transposed + c * kSide, rows, adds);
}

// Transposes columns [c, c + kSide), or those that exist, of the matrix with the indices m and b.
template <int kLanes, typename Stored>
REPRISE_INLINE void transpose_strip_body(const TransposeArgsOf<Stored>& a, uint64_t m, uint64_t b, uint64_t c) {
  const uint64_t columns = smaller(kSide, a.C - c);
  for (uint64_t r = 0; r < a.R; r += kSide) {
    transpose_tile<kLanes>(a.y + ((m * a.C + c) * a.B + b) * a.R + r, a.B * a.R,
                           a.x + ((m * a.R + r) * a.B + b) * a.C + c, a.B * a.C, smaller(kSide, a.R - r), columns,
                           a.accumulate_y);
  }
}
REPRISE_STORAGE_LEVELS(transpose_strip, transpose_strip_body<kLanes>,
                       (const TransposeArgsOf<Stored>& a, uint64_t m, uint64_t b, uint64_t c), (a, m, b, c))

template <typename Stored>
void exchange_runs(const KernelContext& context, const TransposeArgsOf<Stored>& a) {
  const VectorLevel level = cpu_machine(context).level;
  const uint64_t runs = a.M * a.C * a.B * a.R;
  for_each_piece(*context.workers, split_rows(runs, a.E), [&](uint64_t begin, uint64_t end) {
    for (uint64_t run = begin; run < end; ++run) {
      const uint64_t r = run % a.R, b = run / a.R % a.B, c = run / a.R / a.B % a.C, m = run / a.R / a.B / a.C;
      store_run(level, a.y + run * a.E, a.x + (((m * a.R + r) * a.B + b) * a.C + c) * a.E, a.E, a.accumulate_y);
    }
  });
}

}  // namespace

template <typename Stored>
Status cpu_transpose(const KernelContext& context, const TransposeArgsOf<Stored>& args) {
  if (args.E > 1) {
    exchange_runs(context, args);
    return ok_status();
  }
  const VectorLevel level = cpu_machine(context).level;
  const uint64_t strips = divide_up(args.C, kSide);
  for_each_piece(*context.workers, split_rows(args.M * args.B * strips, args.R * smaller(kSide, args.C)),
                 [&](uint64_t begin, uint64_t end) {
                   for (uint64_t i = begin; i < end; ++i)
                     transpose_strip(level, args, i / strips / args.B, i / strips % args.B, i % strips * kSide);
                 });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_transpose, TransposeArgs)

}  // namespace reprise
