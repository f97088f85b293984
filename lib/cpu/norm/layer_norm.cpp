// Layer-norm (Ba, Kiros & Hinton 2016) and RMS-norm (Zhang & Sennrich 2019) over the last
// dimension, forward and backward. A row is read from memory once: the three passes over it stay in
// L1.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/norm/layer_norm_rules.h"
#include "lib/cpu/vector_math.h"
#include "lib/cpu/vector_of.h"

namespace reprise {
namespace {

// Vectors in which a row is summed: four of sixteen lanes, whatever the level's width. The vectors
// and then the lanes are added as a balanced tree.
constexpr int kVectors = 4;
constexpr uint64_t kStep = kVectors * kSumLanes;
using Vector = VectorOf<kSumLanes>::type;

REPRISE_INLINE float total(const Vector* sums) {
  float lanes[kSumLanes];
  const Vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  write_vector<kSumLanes>(lanes, all);
  return sum_lanes(lanes);
}

// Reads the next lanes of a row. Lanes past the end of the row are set to `fill`.
template <typename Stored>
REPRISE_INLINE void read_lanes(Vector& out, const Stored* from, uint64_t left, float fill) {
  if (left >= kSumLanes) return read_vector<kSumLanes>(out, from);
  float lanes[kSumLanes];
  for (uint64_t i = 0; i < kSumLanes; ++i) lanes[i] = i < left ? float{from[i]} : fill;
  read_vector<kSumLanes>(out, lanes);
}

template <typename Stored>
REPRISE_INLINE float row_sum(const Stored* x, uint64_t C) {
  Vector sums[kVectors] = {};
  uint64_t c = 0;
  for (; c + kStep <= C; c += kStep) {
    for (uint64_t j = 0; j < kVectors; ++j) {
      Vector v;
      read_vector<kSumLanes>(v, x + c + j * kSumLanes);
      sums[j] = sums[j] + v;
    }
  }
  for (; c < C; c += kSumLanes) {
    Vector v;
    read_lanes(v, x + c, C - c, 0);
    sums[0] = sums[0] + v;
  }
  return total(sums);
}

template <typename Stored>
REPRISE_INLINE float row_deviation(const Stored* x, float mean, uint64_t C) {
  Vector sums[kVectors] = {};
  uint64_t c = 0;
  for (; c + kStep <= C; c += kStep) {
    for (uint64_t j = 0; j < kVectors; ++j) {
      Vector d;
      read_vector<kSumLanes>(d, x + c + j * kSumLanes);
      d = d - mean;
      sums[j] = sums[j] + d * d;
    }
  }
  for (; c < C; c += kSumLanes) {
    Vector d;
    read_lanes(d, x + c, C - c, mean);
    d = d - mean;
    sums[0] = sums[0] + d * d;
  }
  return total(sums);
}

template <typename Stored>
REPRISE_INLINE void layer_norm_body(const LayerNormForwardArgsOf<Stored>& args, uint64_t begin, uint64_t end) {
  const uint64_t C = args.C;
  const float *gamma = args.gamma, *beta = args.beta;
  const float scale = 1.0f / static_cast<float>(C);
  for (uint64_t r = begin; r < end; ++r) {
    const Stored* x = args.x + r * C;
    Stored* y = args.y + r * C;
    const float mean = row_sum(x, C) * scale;
    const float rstd = 1.0f / std::sqrt(row_deviation(x, mean, C) * scale + args.epsilon);
    args.mean[r] = mean;
    args.rstd[r] = rstd;
    REPRISE_INDEPENDENT
    for (uint64_t c = 0; c < C; ++c) y[c] = (x[c] - mean) * rstd * gamma[c] + beta[c];
  }
}

// Means over a row of dxhat = dy * (offset + gamma) and of dxhat * xhat.
struct RowMeans {
  float gradient, projection;
};

template <typename Stored>
REPRISE_INLINE RowMeans row_means(const Stored* x, const Stored* dy, const float* gamma, float offset, float mean,
                                  float rstd, uint64_t C) {
  Vector gradients[kVectors] = {}, projections[kVectors] = {};
  uint64_t c = 0;
  for (; c + kStep <= C; c += kStep) {
    for (uint64_t j = 0; j < kVectors; ++j) {
      Vector v, g, factor;
      read_vector<kSumLanes>(v, x + c + j * kSumLanes);
      read_vector<kSumLanes>(g, dy + c + j * kSumLanes);
      read_vector<kSumLanes>(factor, gamma + c + j * kSumLanes);
      g = g * (factor + offset);
      gradients[j] = gradients[j] + g;
      projections[j] = projections[j] + g * (v - mean);
    }
  }
  for (; c < C; c += kSumLanes) {
    Vector v, g, factor;
    read_lanes(v, x + c, C - c, 0);
    read_lanes(g, dy + c, C - c, 0);
    read_lanes(factor, gamma + c, C - c, 0);
    g = g * (factor + offset);
    gradients[0] = gradients[0] + g;
    projections[0] = projections[0] + g * (v - mean);
  }
  const float scale = 1.0f / static_cast<float>(C);
  return {total(gradients) * scale, total(projections) * rstd * scale};
}

// A chunk's sums over rows of dy * xhat and of dy. kFlushRows rows are summed in the floats, which
// are then added to the doubles.
constexpr uint64_t kFlushRows = 16;
struct ParameterSums {
  double *dy_xhat, *dy;           // [C]
  float *dy_xhat_part, *dy_part;  // [C]
};

// Computes dx = rstd (dxhat - mean(dxhat) - xhat mean(dxhat xhat)). If kSums is set, also adds the
// row to the floats of `sums`.
template <bool kSums, bool kAccumulate, typename Stored>
REPRISE_INLINE void gradient_row(const LayerNormBackwardArgsOf<Stored>& args, const RowMeans& means,
                                 const ParameterSums& sums, uint64_t r) {
  const uint64_t C = args.C;
  const Stored *x = args.x + r * C, *dy = args.dy + r * C;
  Stored* dx = args.dx + r * C;
  const float* gamma = args.gamma;
  float *dy_xhat_part = sums.dy_xhat_part, *dy_part = sums.dy_part;
  const float mean = args.mean[r], rstd = args.rstd[r];
  REPRISE_INDEPENDENT
  for (uint64_t c = 0; c < C; ++c) {
    const float xhat = (x[c] - mean) * rstd, g = dy[c];
    const float direction = g * gamma[c] - means.gradient - xhat * means.projection;
    dx[c] = kAccumulate ? float{dx[c]} + rstd * direction : rstd * direction;
    if constexpr (kSums) {
      dy_xhat_part[c] += g * xhat;
      dy_part[c] += g;
    }
  }
}

// Computes RMS-norm: a layer-norm whose mean and beta are zero.
template <typename Stored>
REPRISE_INLINE void rms_norm_body(const RmsNormForwardArgsOf<Stored>& args, uint64_t begin, uint64_t end) {
  const uint64_t C = args.C;
  const float* gamma = args.gamma;
  const float offset = args.offset;
  const float scale = 1.0f / static_cast<float>(C);
  for (uint64_t r = begin; r < end; ++r) {
    const Stored* x = args.x + r * C;
    Stored* y = args.y + r * C;
    const float rstd = 1.0f / std::sqrt(row_deviation(x, 0.0f, C) * scale + args.epsilon);
    args.rstd[r] = rstd;
    REPRISE_INDEPENDENT
    for (uint64_t c = 0; c < C; ++c) y[c] = x[c] * rstd * (gamma[c] + offset);
  }
}

// Computes dx = rstd (dxhat - xhat mean(dxhat xhat)). If kSum is set, also adds dy * xhat to the
// chunk's floats `part`.
template <bool kSum, bool kAccumulate, typename Stored>
REPRISE_INLINE void rms_gradient_row(const RmsNormBackwardArgsOf<Stored>& args, float projection, float* part,
                                     uint64_t r) {
  const uint64_t C = args.C;
  const Stored *x = args.x + r * C, *dy = args.dy + r * C;
  Stored* dx = args.dx + r * C;
  const float* gamma = args.gamma;
  const float offset = args.offset, rstd = args.rstd[r];
  REPRISE_INDEPENDENT
  for (uint64_t c = 0; c < C; ++c) {
    const float xhat = x[c] * rstd, g = dy[c];
    const float direction = g * (gamma[c] + offset) - xhat * projection;
    dx[c] = kAccumulate ? float{dx[c]} + rstd * direction : rstd * direction;
    if constexpr (kSum) part[c] += g * xhat;
  }
}

// Computes a chunk of rows. A row's gradient has one instance for each combination of options. The
// row's means, which need many registers, are computed in one place.
template <typename Stored>
REPRISE_INLINE void rms_gradient_body(const RmsNormBackwardArgsOf<Stored>& args, double* sum, float* part,
                                      uint64_t begin, uint64_t end) {
  const uint64_t C = args.C;
  const bool sums = args.dgamma != nullptr;
  for (uint64_t c = 0; sums && c < C; ++c) sum[c] = 0, part[c] = 0;
  for (uint64_t r = begin; r < end; ++r) {
    const float projection =
        row_means(args.x + r * C, args.dy + r * C, args.gamma, args.offset, 0.0f, args.rstd[r], C).projection;
    if (!sums) {
      args.accumulate_dx ? rms_gradient_row<false, true>(args, projection, part, r)
                         : rms_gradient_row<false, false>(args, projection, part, r);
      continue;
    }
    args.accumulate_dx ? rms_gradient_row<true, true>(args, projection, part, r)
                       : rms_gradient_row<true, false>(args, projection, part, r);
    if ((r - begin) % kFlushRows != kFlushRows - 1 && r + 1 != end) continue;
    REPRISE_INDEPENDENT
    for (uint64_t c = 0; c < C; ++c) {
      sum[c] += static_cast<double>(part[c]);
      part[c] = 0;
    }
  }
}

REPRISE_INLINE void flush(const ParameterSums& sums, uint64_t C) {
  REPRISE_INDEPENDENT
  for (uint64_t c = 0; c < C; ++c) {
    sums.dy_xhat[c] += static_cast<double>(sums.dy_xhat_part[c]);
    sums.dy[c] += static_cast<double>(sums.dy_part[c]);
    sums.dy_xhat_part[c] = 0;
    sums.dy_part[c] = 0;
  }
}

template <typename Stored>
REPRISE_INLINE void gradient_chunk_body(const LayerNormBackwardArgsOf<Stored>& args, const ParameterSums& sums,
                                        uint64_t begin, uint64_t end) {
  const uint64_t C = args.C;
  const bool sums_parameters = args.dgamma != nullptr || args.dbeta != nullptr;
  for (uint64_t c = 0; sums_parameters && c < C; ++c) sums.dy_xhat[c] = sums.dy[c] = 0;
  for (uint64_t c = 0; sums_parameters && c < C; ++c) sums.dy_xhat_part[c] = sums.dy_part[c] = 0;
  for (uint64_t r = begin; r < end; ++r) {
    const RowMeans means = row_means(args.x + r * C, args.dy + r * C, args.gamma, 0.0f, args.mean[r], args.rstd[r], C);
    if (!sums_parameters) {
      args.accumulate_dx ? gradient_row<false, true>(args, means, sums, r)
                         : gradient_row<false, false>(args, means, sums, r);
      continue;
    }
    args.accumulate_dx ? gradient_row<true, true>(args, means, sums, r)
                       : gradient_row<true, false>(args, means, sums, r);
    if ((r - begin) % kFlushRows == kFlushRows - 1 || r + 1 == end) flush(sums, C);
  }
}

REPRISE_STORAGE_LEVELS(layer_norm_rows, layer_norm_body,
                      (const LayerNormForwardArgsOf<Stored>& args, uint64_t begin, uint64_t end), (args, begin, end))
REPRISE_STORAGE_LEVELS(gradient_chunk, gradient_chunk_body,
                       (const LayerNormBackwardArgsOf<Stored>& args, const ParameterSums& sums, uint64_t begin,
                        uint64_t end),
                       (args, sums, begin, end))

REPRISE_STORAGE_LEVELS(rms_norm_rows, rms_norm_body,
                       (const RmsNormForwardArgsOf<Stored>& args, uint64_t begin, uint64_t end), (args, begin, end))
REPRISE_STORAGE_LEVELS(rms_gradient_chunk, rms_gradient_body,
                       (const RmsNormBackwardArgsOf<Stored>& args, double* sum, float* part, uint64_t begin,
                        uint64_t end),
                       (args, sum, part, begin, end))

// Adds one channel's sums of all chunks, in the order of the chunks.
void store_sum(float* out, const double* partials, uint64_t stride, uint32_t chunks, bool accumulate) {
  double sum = 0;
  for (uint32_t k = 0; k < chunks; ++k) sum += partials[k * stride];
  *out = accumulate ? *out + static_cast<float>(sum) : static_cast<float>(sum);
}

}  // namespace

template <typename Stored>
Status cpu_layer_norm_forward(const KernelContext& context, const LayerNormForwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, split_rows(args.M, args.C),
                 [&](uint64_t begin, uint64_t end) { layer_norm_rows(level, args, begin, end); });
  return ok_status();
}

template <typename Stored>
Status cpu_layer_norm_backward(const KernelContext& context, const LayerNormBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  double* partials = static_cast<double*>(args.scratch);
  const Partition chunks = layer_norm_chunks(args.M);
  const uint64_t stride = uint64_t{2} * args.C;
  parallel_for(*context.workers, chunks.count(), [&](uint32_t k) {
    double* own = partials + k * stride;
    float* parts = reinterpret_cast<float*>(partials + chunks.count() * stride) + k * stride;
    gradient_chunk<Stored>(level, args, {own, own + args.C, parts, parts + args.C}, chunks.begin(k), chunks.end(k));
  });
  for_each_piece(*context.workers, {args.C, 128}, [&](uint64_t begin, uint64_t end) {
    for (uint64_t c = begin; args.dgamma != nullptr && c < end; ++c) {
      store_sum(args.dgamma + c, partials + c, stride, chunks.count(), args.accumulate_dgamma);
    }
    for (uint64_t c = begin; args.dbeta != nullptr && c < end; ++c) {
      store_sum(args.dbeta + c, partials + args.C + c, stride, chunks.count(), args.accumulate_dbeta);
    }
  });
  return ok_status();
}

template <typename Stored>
Status cpu_rms_norm_forward(const KernelContext& context, const RmsNormForwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, split_rows(args.M, args.C),
                 [&](uint64_t begin, uint64_t end) { rms_norm_rows(level, args, begin, end); });
  return ok_status();
}

template <typename Stored>
Status cpu_rms_norm_backward(const KernelContext& context, const RmsNormBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  double* sums = static_cast<double*>(args.scratch);
  const Partition chunks = layer_norm_chunks(args.M);
  const uint64_t C = args.C;
  parallel_for(*context.workers, chunks.count(), [&](uint32_t k) {
    float* parts = reinterpret_cast<float*>(sums + chunks.count() * C);
    rms_gradient_chunk<Stored>(level, args, sums + k * C, parts + k * C, chunks.begin(k), chunks.end(k));
  });
  if (args.dgamma == nullptr) return ok_status();
  for_each_piece(*context.workers, {C, 128}, [&](uint64_t begin, uint64_t end) {
    for (uint64_t c = begin; c < end; ++c)
      store_sum(args.dgamma + c, sums + c, C, chunks.count(), args.accumulate_dgamma);
  });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_rms_norm_forward, RmsNormForwardArgs)
REPRISE_INSTANTIATE(cpu_rms_norm_backward, RmsNormBackwardArgs)
REPRISE_INSTANTIATE(cpu_layer_norm_forward, LayerNormForwardArgs)
REPRISE_INSTANTIATE(cpu_layer_norm_backward, LayerNormBackwardArgs)

}  // namespace reprise
