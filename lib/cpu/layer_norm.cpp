// Layer-norm over the last dimension (Ba, Kiros & Hinton 2016), forward and backward.
// Here because a row is read from memory once and the three passes over it stay in the first cache.
// It must not know batches or positions: only M rows of C.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/layer_norm_scratch.h"
#include "lib/cpu/vector_math.h"

namespace reprise {
namespace {

REPRISE_INLINE float row_sum(const float* x, uint64_t C) {
  float lanes[kSumLanes] = {};
  uint64_t c = 0;
  for (; c + kSumLanes <= C; c += kSumLanes) {
    for (uint32_t i = 0; i < kSumLanes; ++i) lanes[i] += x[c + i];
  }
  for (uint32_t i = 0; c + i < C; ++i) lanes[i] += x[c + i];
  return sum_lanes(lanes);
}

REPRISE_INLINE float row_deviation(const float* x, float mean, uint64_t C) {
  float lanes[kSumLanes] = {};
  uint64_t c = 0;
  for (; c + kSumLanes <= C; c += kSumLanes) {
    for (uint32_t i = 0; i < kSumLanes; ++i) {
      const float d = x[c + i] - mean;
      lanes[i] += d * d;
    }
  }
  for (uint32_t i = 0; c + i < C; ++i) {
    const float d = x[c + i] - mean;
    lanes[i] += d * d;
  }
  return sum_lanes(lanes);
}

REPRISE_INLINE void layer_norm_body(const LayerNormForwardArgs& args, uint64_t begin, uint64_t end) {
  const uint64_t C = args.C;
  const float *gamma = args.gamma, *beta = args.beta;
  const float scale = 1.0f / static_cast<float>(C);
  for (uint64_t r = begin; r < end; ++r) {
    const float* x = args.x + r * C;
    float* y = args.y + r * C;
    const float mean = row_sum(x, C) * scale;
    const float rstd = 1.0f / std::sqrt(row_deviation(x, mean, C) * scale + args.epsilon);
    args.mean[r] = mean;
    args.rstd[r] = rstd;
    REPRISE_INDEPENDENT
    for (uint64_t c = 0; c < C; ++c) y[c] = (x[c] - mean) * rstd * gamma[c] + beta[c];
  }
}

// Means over a row of dxhat = dy * gamma and of dxhat * xhat.
struct RowMeans {
  float gradient, projection;
};

REPRISE_INLINE RowMeans row_means(const float* x, const float* dy, const float* gamma, float mean, float rstd, uint64_t C) {
  float gradient[kSumLanes] = {}, projection[kSumLanes] = {};
  uint64_t c = 0;
  for (; c + kSumLanes <= C; c += kSumLanes) {
    for (uint32_t i = 0; i < kSumLanes; ++i) {
      const float g = dy[c + i] * gamma[c + i];
      gradient[i] += g;
      projection[i] += g * (x[c + i] - mean);
    }
  }
  for (uint32_t i = 0; c + i < C; ++i) {
    const float g = dy[c + i] * gamma[c + i];
    gradient[i] += g;
    projection[i] += g * (x[c + i] - mean);
  }
  const float scale = 1.0f / static_cast<float>(C);
  return {sum_lanes(gradient) * scale, sum_lanes(projection) * rstd * scale};
}

// dx = rstd (dxhat - mean(dxhat) - xhat mean(dxhat xhat)).
REPRISE_INLINE void gradient_row(const LayerNormBackwardArgs& args, uint64_t r) {
  const uint64_t C = args.C;
  const float *x = args.x + r * C, *dy = args.dy + r * C, *gamma = args.gamma;
  float* dx = args.dx + r * C;
  const float mean = args.mean[r], rstd = args.rstd[r];
  const RowMeans means = row_means(x, dy, gamma, mean, rstd, C);
  const float slope = means.projection * rstd;
  if (args.accumulate_dx) {
    REPRISE_INDEPENDENT
    for (uint64_t c = 0; c < C; ++c) dx[c] += rstd * (dy[c] * gamma[c] - means.gradient - (x[c] - mean) * slope);
  } else {
    REPRISE_INDEPENDENT
    for (uint64_t c = 0; c < C; ++c) dx[c] = rstd * (dy[c] * gamma[c] - means.gradient - (x[c] - mean) * slope);
  }
}

// Adds rows [r, r + kRows) to the chunk's sums, as one float each before the double takes it.
template <int kRows>
REPRISE_INLINE void add_rows(double* sum_dy_xhat, double* sum_dy, const LayerNormBackwardArgs& args, uint64_t r) {
  const uint64_t C = args.C;
  const float *x = args.x + r * C, *dy = args.dy + r * C;
  float mean[kRows], rstd[kRows];
  for (int i = 0; i < kRows; ++i) mean[i] = args.mean[r + static_cast<uint64_t>(i)];
  for (int i = 0; i < kRows; ++i) rstd[i] = args.rstd[r + static_cast<uint64_t>(i)];
  REPRISE_INDEPENDENT
  for (uint64_t c = 0; c < C; ++c) {
    float projection = dy[c] * ((x[c] - mean[0]) * rstd[0]), gradient = dy[c];
    for (int i = 1; i < kRows; ++i) {
      const uint64_t at = static_cast<uint64_t>(i) * C + c;
      projection += dy[at] * ((x[at] - mean[i]) * rstd[i]);
      gradient += dy[at];
    }
    sum_dy_xhat[c] += static_cast<double>(projection);
    sum_dy[c] += static_cast<double>(gradient);
  }
}

REPRISE_INLINE void gradient_chunk_body(double* sum_dy_xhat, double* sum_dy, const LayerNormBackwardArgs& args,
                                        uint64_t begin, uint64_t end) {
  constexpr uint64_t kRows = 4;
  const bool sums = args.dgamma != nullptr || args.dbeta != nullptr;
  for (uint64_t c = 0; sums && c < args.C; ++c) sum_dy_xhat[c] = sum_dy[c] = 0;
  for (uint64_t r = begin; r < end; r += kRows) {
    const uint64_t stop = smaller(end, r + kRows);
    for (uint64_t i = r; i < stop; ++i) gradient_row(args, i);
    if (sums && stop - r == kRows) {
      add_rows<kRows>(sum_dy_xhat, sum_dy, args, r);
    } else if (sums) {
      for (uint64_t i = r; i < stop; ++i) add_rows<1>(sum_dy_xhat, sum_dy, args, i);
    }
  }
}

REPRISE_VECTOR_LEVELS(layer_norm_rows, layer_norm_body, (const LayerNormForwardArgs& args, uint64_t begin, uint64_t end),
                      (args, begin, end))
REPRISE_VECTOR_LEVELS(gradient_chunk, gradient_chunk_body,
                      (double* sum_dy_xhat, double* sum_dy, const LayerNormBackwardArgs& args, uint64_t begin, uint64_t end),
                      (sum_dy_xhat, sum_dy, args, begin, end))

// The chunks' sums of channel c, added in the order of the chunks.
void store_sum(float* out, const double* partials, uint64_t stride, uint32_t chunks, bool accumulate) {
  double sum = 0;
  for (uint32_t k = 0; k < chunks; ++k) sum += partials[k * stride];
  *out = accumulate ? *out + static_cast<float>(sum) : static_cast<float>(sum);
}

}  // namespace

Status cpu_layer_norm_forward(const KernelContext& context, const LayerNormForwardArgs& args) {
  for_each_piece(*context.workers, split_rows(args.M, args.C),
                 [&](uint64_t begin, uint64_t end) { layer_norm_rows(args, begin, end); });
  return ok_status();
}

Status cpu_layer_norm_backward(const KernelContext& context, const LayerNormBackwardArgs& args) {
  double* partials = static_cast<double*>(args.scratch);
  const Split chunks = layer_norm_chunks(args.M);
  const uint64_t stride = uint64_t{2} * args.C;
  parallel_for(*context.workers, chunks.count(), [&](uint32_t k) {
    gradient_chunk(partials + k * stride, partials + k * stride + args.C, args, chunks.begin(k), chunks.end(k));
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

}  // namespace reprise
