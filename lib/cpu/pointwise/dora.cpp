// DoRA (lib/ops/dora.h): the norms of the adapted weight's rows, the scaling of outputs by
// magnitude / norm, and the gradients of that scaling. No adapted weight exists in memory: a task
// decodes a piece of W, adds the adapter's part and keeps only the squares.
#include "lib/cpu/pointwise/dora_rules.h"

#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/norm/square_sums.h"
#include "lib/cpu/weight_format.h"

namespace reprise {
namespace {

constexpr Status kScratchTooSmall = {Code::kBadPlan,
                                     "a kernel of DoRA's scratch must have the bytes of its scratch rule", 0};

constexpr uint64_t kPiece = 128;                  // elements decoded at a time
constexpr uint64_t kRowsOfTask = 4;               // rows of a task, which read a piece of A while it is in a cache
static_assert(kPiece % SquareSums::kCount == 0);  // so that element c of a row is added to sum c % kCount

// ---- norms ----

// The adapter's part of a piece of the adapted weight. Element i of the piece gets the sum over r
// of factors[r * factor_stride] * vectors[r * vector_stride + i].
struct LowRank {
  const float *factors, *vectors;
  uint64_t factor_stride, vector_stride, R;
};

// Adds the products to the piece one at a time, in order of r. The first loop adds four products to
// an element in each iteration, in the same order.
REPRISE_INLINE void add_low_rank_body(float* piece, uint64_t count, const LowRank& low) {
  const auto factor = [&low](uint64_t r) { return low.factors[r * low.factor_stride]; };
  uint64_t r = 0;
  for (; r + 4 <= low.R; r += 4) {
    const float f0 = factor(r), f1 = factor(r + 1), f2 = factor(r + 2), f3 = factor(r + 3);
    const float *v0 = low.vectors + r * low.vector_stride, *v1 = v0 + low.vector_stride, *v2 = v1 + low.vector_stride,
                *v3 = v2 + low.vector_stride;
    REPRISE_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) {
      float sum = piece[i];
      sum += f0 * v0[i];
      sum += f1 * v1[i];
      sum += f2 * v2[i];
      sum += f3 * v3[i];
      piece[i] = sum;
    }
  }
  for (; r < low.R; ++r) {
    const float f0 = factor(r);
    const float* v0 = low.vectors + r * low.vector_stride;
    REPRISE_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) piece[i] += f0 * v0[i];
  }
}

// Adds the squares of a piece of one row to that row's sums.
REPRISE_INLINE void square_along_body(SquareSums& sums, float* piece, uint64_t count, const LowRank& low) {
  add_low_rank_body(piece, count, low);
  sums.add(piece, count);
}
REPRISE_VECTOR_LEVELS(square_along, square_along_body,
                      (SquareSums & sums, float* piece, uint64_t count, const LowRank& low), (sums, piece, count, low))

// Adds the square of each element of a piece to a sum of its own, sums[i] for element i.
REPRISE_INLINE void square_each_body(double* sums, float* piece, uint64_t count, const LowRank& low) {
  add_low_rank_body(piece, count, low);
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < count; ++i) sums[i] += static_cast<double>(piece[i]) * static_cast<double>(piece[i]);
}
REPRISE_VECTOR_LEVELS(square_each, square_each_body, (double* sums, float* piece, uint64_t count, const LowRank& low),
                      (sums, piece, count, low))

// The adapter's factors as f32. `up`, in scratch, is B times the scale: [R,K] if the weight is
// input_major, else [K,R]. `down` is A [R,C]: the argument itself if it is f32, else a copy in
// scratch.
struct LaidAdapter {
  float* up;
  const float* down;
};

void lay_up(const DoraNormsArgs& args, VectorLevel level, float* up, uint64_t k) {
  float piece[kPiece];
  const uint64_t K = args.K, R = args.R;
  for (uint64_t first = 0; first < R; first += kPiece) {
    const uint64_t count = smaller(kPiece, R - first);
    decode_weights(level, args.b, k * R + first, count, piece);
    for (uint64_t i = 0; i < count; ++i)
      up[args.input_major ? (first + i) * K + k : k * R + first + i] = args.scale * piece[i];
  }
}

LaidAdapter lay_adapter(const KernelContext& context, const DoraNormsArgs& args) {
  const VectorLevel level = cpu_machine(context).level;
  float* up = static_cast<float*>(args.scratch);
  for_each_piece(*context.workers, split_rows(args.K, args.R), [&](uint64_t begin, uint64_t end) {
    for (uint64_t k = begin; k < end; ++k) lay_up(args, level, up, k);
  });
  if (args.a.type == DType::kF32) return {up, args.a.f32()};
  float* down = up + uint64_t{args.K} * args.R;
  const uint64_t C = args.C;
  for_each_piece(*context.workers, split_rows(args.R, C), [&](uint64_t begin, uint64_t end) {
    decode_weights(level, args.a, begin * C, (end - begin) * C, down + begin * C);
  });
  return {up, down};
}

// Computes the norms of rows [begin, end), at most kRowsOfTask, of W [K,C].
void norm_rows(const DoraNormsArgs& args, VectorLevel level, const LaidAdapter& adapter, uint64_t begin, uint64_t end) {
  SquareSums sums[kRowsOfTask];
  float piece[kPiece];
  const uint64_t C = args.C, R = args.R;
  for (uint64_t first = 0; first < C; first += kPiece) {
    const uint64_t count = smaller(kPiece, C - first);
    for (uint64_t k = begin; k < end; ++k) {
      decode_weights(level, args.w, k * C + first, count, piece);
      square_along(level, sums[k - begin], piece, count, {adapter.up + k * R, adapter.down + first, 1, C, R});
    }
  }
  for (uint64_t k = begin; k < end; ++k) args.norms[k] = static_cast<float>(std::sqrt(sums[k - begin].total()));
}

// Computes the norms of columns [begin, end), at most kPiece, of W [C,K].
void norm_columns(const DoraNormsArgs& args, VectorLevel level, const LaidAdapter& adapter, uint64_t begin,
                  uint64_t end) {
  double sums[kPiece] = {};
  float piece[kPiece];
  const uint64_t C = args.C, K = args.K, count = end - begin;
  for (uint64_t c = 0; c < C; ++c) {
    decode_weights(level, args.w, c * K + begin, count, piece);
    square_each(level, sums, piece, count, {adapter.down + c, adapter.up + begin, C, K, args.R});
  }
  for (uint64_t i = 0; i < count; ++i) args.norms[begin + i] = static_cast<float>(std::sqrt(sums[i]));
}

// ---- the scale of each output channel, and its gradients ----

REPRISE_INLINE float factor_of(float magnitude, float norm) { return norm > 0 ? magnitude / norm : 0.0f; }

// Computes to = from * magnitude / norm + bias. Processes channels in pieces, so that magnitude /
// norm is computed once for all rows.
template <typename Stored>
REPRISE_INLINE void scale_body(Stored* to, const Stored* from, const float* magnitudes, const float* norms,
                               const float* bias, uint64_t rows, uint64_t K) {
  float factors[kPiece];
  for (uint64_t first = 0; first < K; first += kPiece) {
    const uint64_t count = smaller(kPiece, K - first);
    for (uint64_t i = 0; i < count; ++i) factors[i] = factor_of(magnitudes[first + i], norms[first + i]);
    for (uint64_t r = 0; r < rows; ++r) {
      Stored* t = to + r * K + first;
      const Stored* f = from + r * K + first;
      if (bias == nullptr) {
        REPRISE_INDEPENDENT
        for (uint64_t i = 0; i < count; ++i) t[i] = float{f[i]} * factors[i];
      } else {
        REPRISE_INDEPENDENT
        for (uint64_t i = 0; i < count; ++i) t[i] = float{f[i]} * factors[i] + bias[first + i];
      }
    }
  }
}
REPRISE_STORAGE_LEVELS(scale, scale_body,
                       (Stored * to, const Stored* from, const float* magnitudes, const float* norms, const float* bias,
                        uint64_t rows, uint64_t K),
                       (to, from, magnitudes, norms, bias, rows, K))

// Computes for each channel the sum of dy * z over one chunk's rows. A product of two floats is
// exact in double.
template <typename Stored>
REPRISE_INLINE void sum_products_body(double* sums, const Stored* z, const Stored* dy, uint64_t rows, uint64_t K) {
  for (uint64_t k = 0; k < K; ++k) sums[k] = 0;
  for (uint64_t r = 0; r < rows; ++r) {
    const Stored *of_z = z + r * K, *of_dy = dy + r * K;
    REPRISE_INDEPENDENT
    for (uint64_t k = 0; k < K; ++k)
      sums[k] += static_cast<double>(float{of_dy[k]}) * static_cast<double>(float{of_z[k]});
  }
}
REPRISE_STORAGE_LEVELS(sum_products, sum_products_body,
                       (double* sums, const Stored* z, const Stored* dy, uint64_t rows, uint64_t K),
                       (sums, z, dy, rows, K))

template <typename Stored>
void sum_magnitudes(const KernelContext& context, const DoraBackwardArgsOf<Stored>& args) {
  const uint64_t K = args.K;
  const Partition chunks = dora_chunks(args.M);
  double* sums = static_cast<double*>(args.scratch);
  parallel_for(*context.workers, chunks.count(), [&](uint32_t i) {
    const uint64_t begin = chunks.begin(i), rows = chunks.end(i) - begin;
    sum_products(cpu_machine(context).level, sums + i * K, args.z + begin * K, args.dy + begin * K, rows, K);
  });
  for (uint64_t k = 0; k < K; ++k) {
    double sum = 0;
    for (uint32_t i = 0; i < chunks.count(); ++i) sum += sums[i * K + k];
    const double norm = static_cast<double>(args.norms[k]);
    const float gradient = norm > 0 ? static_cast<float>(sum / norm) : 0.0f;
    args.dmagnitudes[k] = gradient + (args.accumulate_dmagnitudes ? args.dmagnitudes[k] : 0.0f);
  }
}

}  // namespace

Status cpu_dora_norms(const KernelContext& context, const DoraNormsArgs& args) {
  if (args.scratch_bytes < dora_norms_scratch_bytes(args.C, args.K, args.R, args.a.type)) return kScratchTooSmall;
  const VectorLevel level = cpu_machine(context).level;
  const LaidAdapter adapter = lay_adapter(context, args);
  for_each_piece(*context.workers, {args.K, args.input_major ? kPiece : kRowsOfTask},
                 [&](uint64_t begin, uint64_t end) {
                   args.input_major ? norm_columns(args, level, adapter, begin, end)
                                    : norm_rows(args, level, adapter, begin, end);
                 });
  return ok_status();
}

template <typename Stored>
Status cpu_dora_forward(const KernelContext& context, const DoraForwardArgsOf<Stored>& args) {
  const uint64_t K = args.K;
  for_each_piece(*context.workers, split_rows(args.M, K), [&](uint64_t begin, uint64_t end) {
    scale(cpu_machine(context).level, args.y + begin * K, args.z + begin * K, args.magnitudes, args.norms, args.bias,
          end - begin, K);
  });
  return ok_status();
}

template <typename Stored>
Status cpu_dora_backward(const KernelContext& context, const DoraBackwardArgsOf<Stored>& args) {
  const uint64_t K = args.K;
  if (args.dmagnitudes != nullptr) {  // before dz is written: dz may be dy
    if (args.scratch_bytes < dora_backward_scratch_bytes(args.M, K)) return kScratchTooSmall;
    sum_magnitudes(context, args);
  }
  const float* none = nullptr;
  for_each_piece(*context.workers, split_rows(args.M, K), [&](uint64_t begin, uint64_t end) {
    scale(cpu_machine(context).level, args.dz + begin * K, args.dy + begin * K, args.magnitudes, args.norms, none,
          end - begin, K);
  });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_dora_forward, DoraForwardArgs)
REPRISE_INSTANTIATE(cpu_dora_backward, DoraBackwardArgs)

}  // namespace reprise
