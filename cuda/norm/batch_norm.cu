// Batch-norm over rows of channels (Ioffe & Szegedy 2015): statistics, running averages, forward,
// inference, backward. Also group-norm (Wu & He 2018), forward and backward; a sample is several
// rows of channels. The counterpart of lib/cpu/norm/batch_norm.cpp. Memory bounds the time of each
// pass. A block processes a tile of channels of a chunk of rows.
#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "cuda/norm/batch_norm_rules.h"
#include "cuda/norm/channel_norm.h"
#include "cuda/reduce.h"

namespace reprise {
namespace {

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;
constexpr uint32_t kTileColumns = kCudaTileColumns;

// Assigns a tile of channels to the threads of a block. Neighbouring threads process neighbouring
// packs of a row, and the block processes `lanes` rows at once. A thread processes the same pack of
// every `lanes`-th row.
template <uint32_t kWidth>
struct ColumnTile {
  uint32_t packs, lanes;  // packs of a row; rows that the block processes at once
  uint32_t pack, lane;    // this thread's pack in a row; this thread's row among those processed at once
  uint32_t first;         // first channel of the tile

  __device__ ColumnTile(uint32_t C, uint32_t tile) : first(tile * kTileColumns) {
    packs = (C - first < kTileColumns ? C - first : kTileColumns) / kWidth;
    lanes = kBlockThreads / packs;
    pack = threadIdx.x % packs;
    lane = threadIdx.x / packs;
  }
  __device__ bool works() const { return lane < lanes; }
  __device__ uint64_t channel() const { return first + pack * kWidth; }
  __device__ uint32_t columns() const { return packs * kWidth; }
};

// ---- sums over the rows of a chunk ----

template <uint32_t kWidth>
struct Sums {
  Pack<kWidth> first = {}, second = {};
};

// Adds each column's two sums over all lanes, in the order of the lanes. Thread t < tile.columns()
// gets the sums of column t in `first` and `second`; other threads get 0. `shared` has
// 2 * kWidth * kBlockThreads floats.
template <uint32_t kWidth, typename Shared>
__device__ void sum_lanes(Shared& shared, const ColumnTile<kWidth>& tile, const Sums<kWidth>& sums, double* first,
                          double* second) {
  for (uint32_t k = 0; k < kWidth; ++k) {
    shared[2 * k * kBlockThreads + threadIdx.x] = sums.first.at[k];
    shared[(2 * k + 1) * kBlockThreads + threadIdx.x] = sums.second.at[k];
  }
  __syncthreads();
  *first = *second = 0;
  if (threadIdx.x >= tile.columns()) return;
  const uint32_t pack = threadIdx.x / kWidth, k = threadIdx.x % kWidth;
  for (uint32_t lane = 0; lane < tile.lanes; ++lane) {
    const uint32_t thread = lane * tile.packs + pack;
    *first += static_cast<double>(static_cast<float>(shared[2 * k * kBlockThreads + thread]));
    *second += static_cast<double>(static_cast<float>(shared[(2 * k + 1) * kBlockThreads + thread]));
  }
}

// Adds each column's two sums over all lanes, and writes them to the tile's channels of out[2][C].
template <uint32_t kWidth, typename Shared>
__device__ void store_sums(Shared& shared, const ColumnTile<kWidth>& tile, const Sums<kWidth>& sums, uint64_t C,
                           double* out) {
  double first, second;
  sum_lanes(shared, tile, sums, &first, &second);
  if (threadIdx.x >= tile.columns()) return;
  out[tile.first + threadIdx.x] = first;
  out[C + tile.first + threadIdx.x] = second;
}

constexpr uint32_t kShiftRows = 4;

// Returns the mean of each channel over the chunk's first rows, up to kShiftRows. This mean is near
// the mean over all rows of the chunk; store_moments() subtracts it from x.
template <uint32_t kWidth, typename Stored>
__device__ Pack<kWidth> shift_of(const Stored* x, uint64_t C, uint64_t rows) {
  const auto count = static_cast<uint32_t>(minimum(rows, kShiftRows));
  Pack<kWidth> shift = {};
  for (uint32_t r = 0; r < count; ++r) {
    const Pack<kWidth> pack = load_pack<kWidth>(x + r * C);
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) shift.at[k] += pack.at[k];
  }
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) shift.at[k] /= static_cast<float>(count);
  return shift;
}

// Stores the mean and the sum of squared deviations of rows [begin, end) in partials[2][C].
// Subtracting a shift first keeps the squares small (Chan, Golub & LeVeque, "Algorithms for
// computing the sample variance", 1983, section 3: shifted data). `shared` is as for sum_lanes();
// `shifts` has kTileColumns floats.
template <uint32_t kWidth, typename Stored, typename Shared, typename Shifts>
__device__ void store_moments(Shared& shared, Shifts& shifts, const Stored* rows, uint32_t columns,
                              uint32_t column_tile, uint64_t begin, uint64_t end, double* partials) {
  const uint64_t C = columns;
  const ColumnTile<kWidth> tile(columns, column_tile);
  Sums<kWidth> sums;
  if (tile.works()) {
    const Stored* x = rows + tile.channel();
    const Pack<kWidth> shift = shift_of<kWidth>(x + begin * C, C, end - begin);
    for (uint32_t k = 0; k < kWidth && tile.lane == 0; ++k) shifts[tile.pack * kWidth + k] = shift.at[k];
    for (uint64_t r = begin + tile.lane; r < end; r += tile.lanes) {
      const Pack<kWidth> pack = load_pack<kWidth>(x + r * C);
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k) {
        const float d = pack.at[k] - shift.at[k];
        sums.first.at[k] += d;
        sums.second.at[k] = fmaf(d, d, sums.second.at[k]);
      }
    }
  }
  double first, second;
  sum_lanes(shared, tile, sums, &first, &second);
  if (threadIdx.x >= tile.columns()) return;
  const double d = first / static_cast<double>(end - begin);
  double* out = partials + tile.first + threadIdx.x;
  out[0] = static_cast<double>(static_cast<float>(shifts[threadIdx.x])) + d;
  out[C] = fma(-first, d, second);
}

// Writes partials[chunk][2][C]: for each channel the mean and the sum of squared deviations in the
// chunk.
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    chunk_moments(const BatchNormStatisticsArgsOf<Stored> args, double* partials, CudaRowChunks chunks) {
  REPRISE_SHARED(float, shared, 2 * kWidth * kBlockThreads);
  REPRISE_SHARED(float, shifts, kTileColumns);
  store_moments<kWidth>(shared, shifts, args.x, args.C, blockIdx.x, chunks.begin(blockIdx.y), chunks.end(blockIdx.y),
                        partials + uint64_t{blockIdx.y} * 2 * args.C);
}

// Writes partials[chunk][2][C]: the sums of dy and of dy * (x - mean). kMasked: y was
// relu(norm(x)), so dy counts as 0 where norm(x) is not positive.
template <uint32_t kWidth, bool kMasked, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    chunk_gradient_sums(const BatchNormBackwardArgsOf<Stored> args, double* partials, CudaRowChunks chunks) {
  REPRISE_SHARED(float, shared, 2 * kWidth * kBlockThreads);
  const uint64_t C = args.C, begin = chunks.begin(blockIdx.y), end = chunks.end(blockIdx.y);
  const ColumnTile<kWidth> tile(args.C, blockIdx.x);
  Sums<kWidth> sums;
  if (tile.works()) {
    const uint64_t c = tile.channel();
    const ChannelNorm<kWidth> norm(args.mean, args.rstd, args.gamma, kMasked ? args.beta : args.mean, c);
    for (uint64_t r = begin + tile.lane; r < end; r += tile.lanes) {
      const Pack<kWidth> x = load_pack<kWidth>(args.x + r * C + c), dy = load_pack<kWidth>(args.dy + r * C + c);
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k) {
        const float g = !kMasked || norm.of(x.at[k], k) > 0.0f ? dy.at[k] : 0.0f;
        sums.first.at[k] += g;
        sums.second.at[k] = fmaf(g, x.at[k] - norm.mean.at[k], sums.second.at[k]);
      }
    }
  }
  store_sums(shared, tile, sums, C, partials + blockIdx.y * 2 * C);
}

// ---- sums over all chunks: a lane sums one channel; warp w adds every kWarps-th chunk ----

// Returns to lane l of every warp the sum of the values of lane l of all warps, added in the order
// of the warps. `shared` has kBlockThreads doubles.
template <typename Shared>
__device__ double sum_over_warps(Shared& shared, double value) {
  shared[threadIdx.x] = value;
  __syncthreads();
  double sum = 0;
  for (uint32_t w = 0; w < kWarps; ++w) sum += shared[w * kWarpLanes + lane_index()];
  __syncthreads();
  return sum;
}

// Returns 1 / sqrt(variance + epsilon), where variance is deviation / count. A deviation that
// rounding has made negative counts as 0. NaN stays NaN.
__device__ float rstd_of(double deviation, double count, float epsilon) {
  const double variance = deviation > 0 || deviation != deviation ? deviation / count : 0;
  return static_cast<float>(1 / sqrt(variance + static_cast<double>(epsilon)));
}

// Combines the moments of all chunks (Chan et al. 1983, section 2).
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    combine_moments(const BatchNormStatisticsArgsOf<Stored> args, const double* partials, CudaRowChunks chunks) {
  REPRISE_SHARED(double, shared, kBlockThreads);
  const uint64_t C = args.C, c = uint64_t{blockIdx.x} * kWarpLanes + lane_index();
  const uint32_t count = c < C ? chunks.count() : 0;
  const auto M = static_cast<double>(args.M);
  double mean = 0, deviation = 0;
  for (uint32_t k = warp_index(); k < count; k += kWarps) {
    mean = fma(static_cast<double>(chunks.end(k) - chunks.begin(k)), partials[k * 2 * C + c], mean);
  }
  mean = sum_over_warps(shared, mean) / M;
  for (uint32_t k = warp_index(); k < count; k += kWarps) {
    const double d = partials[k * 2 * C + c] - mean, rows = static_cast<double>(chunks.end(k) - chunks.begin(k));
    deviation += fma(rows * d, d, partials[(k * 2 + 1) * C + c]);
  }
  deviation = sum_over_warps(shared, deviation);
  if (warp_index() != 0 || c >= C) return;
  args.mean[c] = static_cast<float>(mean);
  args.rstd[c] = rstd_of(deviation, M, args.epsilon);
}

// The coefficients of dx = scale * (dy - mean_dy - (x - mean) * slope), [C] each. scale is
// rstd * gamma.
struct Coefficients {
  float *scale, *mean_dy, *slope;
};

template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    combine_gradient_sums(const BatchNormBackwardArgsOf<Stored> args, const double* partials, uint32_t chunk_count,
                          const Coefficients out) {
  REPRISE_SHARED(double, shared, kBlockThreads);
  const uint64_t C = args.C, c = uint64_t{blockIdx.x} * kWarpLanes + lane_index();
  double sum_dy = 0, sum_dy_x = 0;
  for (uint32_t k = warp_index(); c < C && k < chunk_count; k += kWarps) {
    sum_dy += partials[k * 2 * C + c];
    sum_dy_x += partials[(k * 2 + 1) * C + c];
  }
  sum_dy = sum_over_warps(shared, sum_dy);
  sum_dy_x = sum_over_warps(shared, sum_dy_x);
  if (warp_index() != 0 || c >= C) return;
  const double rstd = static_cast<double>(args.rstd[c]), M = static_cast<double>(args.M);
  const float dgamma = static_cast<float>(sum_dy_x * rstd), dbeta = static_cast<float>(sum_dy);
  if (args.dgamma != nullptr) args.dgamma[c] = args.accumulate_dgamma ? args.dgamma[c] + dgamma : dgamma;
  if (args.dbeta != nullptr) args.dbeta[c] = args.accumulate_dbeta ? args.dbeta[c] + dbeta : dbeta;
  out.scale[c] = args.rstd[c] * args.gamma[c];
  out.mean_dy[c] = static_cast<float>(sum_dy / M);
  out.slope[c] = static_cast<float>(sum_dy_x * rstd * rstd / M);
}

// ---- every element ----

template <uint32_t kWidth, bool kMasked, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    input_gradient(const BatchNormBackwardArgsOf<Stored> args, const Coefficients of, CudaRowChunks chunks) {
  const ColumnTile<kWidth> tile(args.C, blockIdx.x);
  if (!tile.works()) return;
  const uint64_t C = args.C, c = tile.channel(), end = chunks.end(blockIdx.y);
  const ChannelNorm<kWidth> norm(args.mean, args.rstd, args.gamma, kMasked ? args.beta : args.mean, c);
  const Pack<kWidth> mean_dy = load_pack<kWidth>(of.mean_dy + c), slope = load_pack<kWidth>(of.slope + c);
  for (uint64_t r = chunks.begin(blockIdx.y) + tile.lane; r < end; r += tile.lanes) {
    const Pack<kWidth> x = load_pack<kWidth>(args.x + r * C + c), dy = load_pack<kWidth>(args.dy + r * C + c);
    Pack<kWidth> dx;
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) {
      const float g = !kMasked || norm.of(x.at[k], k) > 0.0f ? dy.at[k] : 0.0f;
      dx.at[k] = norm.scale.at[k] * fmaf(-(x.at[k] - norm.mean.at[k]), slope.at[k], g - mean_dy.at[k]);
    }
    store_pack(args.dx + r * C + c, dx);
  }
}

// The arguments of y = norm(x), or of y = relu(norm(x) + b).
template <typename Stored>
struct Normalise {
  Stored* y;
  const Stored *x, *b;        // b is null if nothing is added
  const float *mean, *rstd;   // rstd is null if the variance is given
  const float *variance, *gamma, *beta;
  uint64_t M;
  uint32_t C;
  float epsilon;
};

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) normalise(const Normalise<Stored> args, CudaRowChunks chunks) {
  const ColumnTile<kWidth> tile(args.C, blockIdx.x);
  if (!tile.works()) return;
  const uint64_t C = args.C, c = tile.channel(), end = chunks.end(blockIdx.y);
  ChannelNorm<kWidth> norm(args.mean, args.rstd != nullptr ? args.rstd : args.gamma, args.gamma, args.beta, c);
  if (args.rstd == nullptr) {
    const Pack<kWidth> variance = load_pack<kWidth>(args.variance + c), gamma = load_pack<kWidth>(args.gamma + c);
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) norm.scale.at[k] = 1.0f / sqrtf(variance.at[k] + args.epsilon) * gamma.at[k];
  }
  for (uint64_t r = chunks.begin(blockIdx.y) + tile.lane; r < end; r += tile.lanes) {
    Pack<kWidth> y = load_pack<kWidth>(args.x + r * C + c);
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) y.at[k] = norm.of(y.at[k], k);
    if (args.b != nullptr) {
      const Pack<kWidth> b = load_pack<kWidth>(args.b + r * C + c);
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k)
        y.at[k] = y.at[k] + b.at[k] <= 0.0f ? 0.0f : y.at[k] + b.at[k];  // NaN stays NaN
    }
    store_pack(args.y + r * C + c, y);
  }
}

// Computes dx = dy * gamma / sqrt(running_var + epsilon).
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    scale_gradient(const BatchNormBackwardDataArgsOf<Stored> args, CudaRowChunks chunks) {
  const ColumnTile<kWidth> tile(args.C, blockIdx.x);
  if (!tile.works()) return;
  const uint64_t C = args.C, c = tile.channel(), end = chunks.end(blockIdx.y);
  const Pack<kWidth> variance = load_pack<kWidth>(args.running_var + c), gamma = load_pack<kWidth>(args.gamma + c);
  Pack<kWidth> scale;
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) scale.at[k] = 1.0f / sqrtf(variance.at[k] + args.epsilon) * gamma.at[k];
  for (uint64_t r = chunks.begin(blockIdx.y) + tile.lane; r < end; r += tile.lanes) {
    Pack<kWidth> dx = load_pack<kWidth>(args.dy + r * C + c);
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) dx.at[k] *= scale.at[k];
    store_pack(args.dx + r * C + c, dx);
  }
}

// ---- group-norm: block (x, y) has channel tile y of chunk x, counted over all samples ----

// Splits the pixels of N samples into chunks, numbered sample by sample. C channels are G groups of
// D channels.
struct SampleChunks {
  CudaRowChunks of;  // splits the pixels of one sample
  uint32_t count;    // chunks of one sample
  uint32_t C, G, D;

  constexpr uint64_t sample(uint32_t x) const { return x / count; }
  constexpr uint64_t begin(uint32_t x) const { return sample(x) * of.M + of.begin(x % count); }
  constexpr uint64_t end(uint32_t x) const { return sample(x) * of.M + of.end(x % count); }
  constexpr double elements() const { return static_cast<double>(of.M * D); }  // elements of a group
};

// Returns, for kWidth channels from c on, the value that values[N][G] has for sample n and the
// channel's group.
template <uint32_t kWidth>
__device__ Pack<kWidth> load_groups(const float* values, const SampleChunks& chunks, uint64_t n, uint32_t c) {
  Pack<kWidth> pack;
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) pack.at[k] = values[n * chunks.G + (c + k) / chunks.D];
  return pack;
}

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    group_chunk_moments(const Stored* x, double* partials, SampleChunks chunks) {
  REPRISE_SHARED(float, shared, 2 * kWidth * kBlockThreads);
  REPRISE_SHARED(float, shifts, kTileColumns);
  store_moments<kWidth>(shared, shifts, x, chunks.C, blockIdx.y, chunks.begin(blockIdx.x), chunks.end(blockIdx.x),
                        partials + uint64_t{blockIdx.x} * 2 * chunks.C);
}

// Calls f(k, c, at) for each channel c of a group and each chunk k of the group's sample. A warp
// processes a group. partials[at] is the channel's first sum and partials[at + C] the second.
template <typename F>
__device__ void for_each_group_sum(const SampleChunks& chunks, uint64_t group, const F& f) {
  const uint32_t D = chunks.D, sums = chunks.count * D;  // few, because a chunk has 32 rows or more
  const uint64_t first = group / chunks.G * chunks.count;
  const uint32_t channel = static_cast<uint32_t>(group % chunks.G) * D;
  for (uint32_t i = lane_index(); i < sums; i += kWarpLanes) {
    const uint32_t k = i / D, c = channel + i % D;
    f(k, c, (first + k) * 2 * chunks.C + c);
  }
}

// Combines the moments of a group's chunks and channels (Chan et al. 1983, section 2).
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    combine_group_moments(const GroupNormForwardArgsOf<Stored> args, const double* partials, SampleChunks chunks) {
  const uint64_t group = uint64_t{blockIdx.x} * kWarps + warp_index();
  if (group >= uint64_t{args.N} * args.G) return;
  const auto rows = [&](uint32_t k) { return static_cast<double>(chunks.of.end(k) - chunks.of.begin(k)); };
  double mean = 0, deviation = 0;
  for_each_group_sum(chunks, group,
                     [&](uint32_t k, uint32_t, uint64_t at) { mean = fma(rows(k), partials[at], mean); });
  mean = warp_sum(mean) / chunks.elements();
  for_each_group_sum(chunks, group, [&](uint32_t k, uint32_t, uint64_t at) {
    const double d = partials[at] - mean;
    deviation += fma(rows(k) * d, d, partials[at + chunks.C]);
  });
  deviation = warp_sum(deviation);
  if (lane_index() != 0) return;
  args.mean[group] = static_cast<float>(mean);
  args.rstd[group] = rstd_of(deviation, chunks.elements(), args.epsilon);
}

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    group_normalise(const GroupNormForwardArgsOf<Stored> args, SampleChunks chunks) {
  const ColumnTile<kWidth> tile(args.C, blockIdx.y);
  if (!tile.works()) return;
  const uint64_t C = args.C, n = chunks.sample(blockIdx.x), end = chunks.end(blockIdx.x);
  const auto c = static_cast<uint32_t>(tile.channel());
  const Pack<kWidth> mean = load_groups<kWidth>(args.mean, chunks, n, c), gamma = load_pack<kWidth>(args.gamma + c),
                     beta = load_pack<kWidth>(args.beta + c);
  Pack<kWidth> scale = load_groups<kWidth>(args.rstd, chunks, n, c);
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) scale.at[k] *= gamma.at[k];
  for (uint64_t r = chunks.begin(blockIdx.x) + tile.lane; r < end; r += tile.lanes) {
    Pack<kWidth> y = load_pack<kWidth>(args.x + r * C + c);
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) y.at[k] = fmaf(y.at[k] - mean.at[k], scale.at[k], beta.at[k]);
    store_pack(args.y + r * C + c, y);
  }
}

// Writes partials[chunk][2][C]: the sums of dy and of dy * (x - mean).
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    group_gradient_sums(const GroupNormBackwardArgsOf<Stored> args, double* partials, SampleChunks chunks) {
  REPRISE_SHARED(float, shared, 2 * kWidth * kBlockThreads);
  const uint64_t C = args.C, end = chunks.end(blockIdx.x);
  const ColumnTile<kWidth> tile(args.C, blockIdx.y);
  Sums<kWidth> sums;
  if (tile.works()) {
    const auto c = static_cast<uint32_t>(tile.channel());
    const Pack<kWidth> mean = load_groups<kWidth>(args.mean, chunks, chunks.sample(blockIdx.x), c);
    for (uint64_t r = chunks.begin(blockIdx.x) + tile.lane; r < end; r += tile.lanes) {
      const Pack<kWidth> x = load_pack<kWidth>(args.x + r * C + c), dy = load_pack<kWidth>(args.dy + r * C + c);
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k) {
        sums.first.at[k] += dy.at[k];
        sums.second.at[k] = fmaf(dy.at[k], x.at[k] - mean.at[k], sums.second.at[k]);
      }
    }
  }
  store_sums(shared, tile, sums, C, partials + blockIdx.x * 2 * C);
}

// The coefficients of dx = dy * rstd * gamma - mean_dy - (x - mean) * slope.
struct GroupCoefficients {
  float *mean_dy, *slope;  // [N,G] each
};

template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    combine_group_gradients(const GroupNormBackwardArgsOf<Stored> args, const double* partials, SampleChunks chunks,
                            const GroupCoefficients out) {
  const uint64_t group = uint64_t{blockIdx.x} * kWarps + warp_index();
  if (group >= uint64_t{args.N} * args.G) return;
  double gradient = 0, projection = 0;  // sums over the group of dy * gamma and of dy * gamma * (x - mean)
  for_each_group_sum(chunks, group, [&](uint32_t, uint32_t c, uint64_t at) {
    const auto gamma = static_cast<double>(args.gamma[c]);
    gradient = fma(partials[at], gamma, gradient);
    projection = fma(partials[at + chunks.C], gamma, projection);
  });
  gradient = warp_sum(gradient);
  projection = warp_sum(projection);
  if (lane_index() != 0) return;
  const auto rstd = static_cast<double>(args.rstd[group]);
  const double factor = rstd / chunks.elements();
  out.mean_dy[group] = static_cast<float>(gradient * factor);
  out.slope[group] = static_cast<float>(projection * factor * rstd * rstd);
}

// Computes dgamma and dbeta. A block processes 32 channels, one in each lane. The warps share the
// chunks of all samples: warp w adds every kWarps-th chunk, from chunk w on.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    combine_group_parameters(const GroupNormBackwardArgsOf<Stored> args, const double* partials, SampleChunks chunks) {
  REPRISE_SHARED(double, shared, kBlockThreads);
  const uint64_t C = args.C, c = uint64_t{blockIdx.x} * kWarpLanes + lane_index();
  const uint64_t group = static_cast<uint32_t>(c) / chunks.D;
  double sum_dy = 0, sum_dy_z = 0;
  for (uint32_t y = warp_index(); c < C && y < args.N * chunks.count; y += kWarps) {
    const auto rstd = static_cast<double>(args.rstd[chunks.sample(y) * args.G + group]);
    sum_dy += partials[uint64_t{y} * 2 * C + c];
    sum_dy_z = fma(partials[(uint64_t{y} * 2 + 1) * C + c], rstd, sum_dy_z);
  }
  sum_dy = sum_over_warps(shared, sum_dy);
  sum_dy_z = sum_over_warps(shared, sum_dy_z);
  if (warp_index() != 0 || c >= C) return;
  const float dgamma = static_cast<float>(sum_dy_z), dbeta = static_cast<float>(sum_dy);
  if (args.dgamma != nullptr) args.dgamma[c] = args.accumulate_dgamma ? args.dgamma[c] + dgamma : dgamma;
  if (args.dbeta != nullptr) args.dbeta[c] = args.accumulate_dbeta ? args.dbeta[c] + dbeta : dbeta;
}

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    group_input_gradient(const GroupNormBackwardArgsOf<Stored> args, const GroupCoefficients of, SampleChunks chunks) {
  const ColumnTile<kWidth> tile(args.C, blockIdx.y);
  if (!tile.works()) return;
  const uint64_t C = args.C, n = chunks.sample(blockIdx.x), end = chunks.end(blockIdx.x);
  const auto c = static_cast<uint32_t>(tile.channel());
  const Pack<kWidth> mean = load_groups<kWidth>(args.mean, chunks, n, c),
                     mean_dy = load_groups<kWidth>(of.mean_dy, chunks, n, c),
                     slope = load_groups<kWidth>(of.slope, chunks, n, c), gamma = load_pack<kWidth>(args.gamma + c);
  Pack<kWidth> scale = load_groups<kWidth>(args.rstd, chunks, n, c);
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) scale.at[k] *= gamma.at[k];
  for (uint64_t r = chunks.begin(blockIdx.x) + tile.lane; r < end; r += tile.lanes) {
    const Pack<kWidth> x = load_pack<kWidth>(args.x + r * C + c), dy = load_pack<kWidth>(args.dy + r * C + c);
    Pack<kWidth> dx;
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) {
      dx.at[k] = fmaf(-(x.at[k] - mean.at[k]), slope.at[k], fmaf(dy.at[k], scale.at[k], -mean_dy.at[k]));
    }
    store_pack(args.dx + r * C + c, dx);
  }
}

__global__ void __launch_bounds__(kBlockThreads) average_running(const BatchNormRunningArgs args) {
  const auto M = static_cast<double>(args.M), momentum = static_cast<double>(args.momentum);
  const double unbias = args.M > 1 ? M / (M - 1) : 1;
  for (uint64_t c = grid_thread(); c < args.C; c += grid_threads()) {
    const auto rstd = static_cast<double>(args.rstd[c]), mean = static_cast<double>(args.mean[c]);
    const double biased = 1 / (rstd * rstd) - static_cast<double>(args.epsilon);
    const double variance = biased < 0 ? 0 : biased * unbias;
    if (!is_finite(mean) || !is_finite(variance)) continue;  // the step is skipped; later steps may be finite
    args.running_mean[c] =
        static_cast<float>(fma(momentum, mean, (1 - momentum) * static_cast<double>(args.running_mean[c])));
    args.running_var[c] =
        static_cast<float>(fma(momentum, variance, (1 - momentum) * static_cast<double>(args.running_var[c])));
  }
  if (grid_thread() == 0) *args.batches += 1;
}

// ---- launches ----

template <typename Stored>
constexpr bool is_wide(uint32_t C) {
  return C % kPackWidth<Stored> == 0;
}
// Returns the chunks for a pass that writes every element. The chunks are large, because each block
// reads the coefficients once.
constexpr CudaRowChunks writing_chunks(uint64_t M) { return cuda_row_chunks(M, 2048, 64); }
dim3 tile_grid(uint64_t C, const CudaRowChunks& chunks) {
  return grid_of(cuda_column_tiles(C), chunks.count());
}

template <typename Stored>
Status launch_normalise(const KernelContext& context, const Normalise<Stored>& args) {
  const auto kernel = is_wide<Stored>(args.C) ? normalise<kPackWidth<Stored>, Stored> : normalise<1, Stored>;
  const CudaRowChunks chunks = writing_chunks(args.M);
  REPRISE_LAUNCH(kernel, tile_grid(args.C, chunks), kBlockThreads, context.queue, args, chunks);
  return launch_status();
}

template <uint32_t kWidth, bool kMasked, typename Stored>
Status launch_backward(const KernelContext& context, const BatchNormBackwardArgsOf<Stored>& args) {
  const CudaRowChunks chunks = cuda_batch_norm_chunks(args.M, args.C), writing = writing_chunks(args.M);
  double* partials = static_cast<double*>(args.scratch);
  float* behind = reinterpret_cast<float*>(partials + uint64_t{chunks.count()} * 2 * args.C);
  const Coefficients coefficients{behind, behind + args.C, behind + 2 * uint64_t{args.C}};
  REPRISE_LAUNCH((chunk_gradient_sums<kWidth, kMasked, Stored>), tile_grid(args.C, chunks), kBlockThreads,
                 context.queue, args, partials, chunks);
  REPRISE_LAUNCH(combine_gradient_sums<Stored>, static_cast<uint32_t>(parts(args.C, kWarpLanes)), kBlockThreads,
                 context.queue, args, partials, chunks.count(), coefficients);
  REPRISE_LAUNCH((input_gradient<kWidth, kMasked, Stored>), tile_grid(args.C, writing), kBlockThreads, context.queue,
                 args, coefficients, writing);
  return launch_status();
}

template <typename Args>
SampleChunks sample_chunks(const Args& args) {
  const CudaRowChunks of = cuda_group_norm_chunks(args.N, args.HW, args.C);
  return {of, of.count(), args.C, args.G, args.C / args.G};
}
// Returns a grid with chunks in x and tiles in y. Chunks are in x because a grid has at most 65,535
// blocks in y, and there may be more samples than that.
dim3 tile_grid(uint32_t N, const SampleChunks& chunks) {
  return grid_of(uint64_t{N} * chunks.count, cuda_column_tiles(chunks.C));
}
template <typename Args>
uint32_t group_blocks(const Args& args) {
  return static_cast<uint32_t>(parts(uint64_t{args.N} * args.G, kWarps));
}

template <uint32_t kWidth, typename Stored>
Status launch_group_forward(const KernelContext& context, const GroupNormForwardArgsOf<Stored>& args) {
  const SampleChunks chunks = sample_chunks(args);
  const dim3 grid = tile_grid(args.N, chunks);
  double* partials = static_cast<double*>(args.scratch);
  REPRISE_LAUNCH((group_chunk_moments<kWidth, Stored>), grid, kBlockThreads, context.queue, args.x, partials, chunks);
  REPRISE_LAUNCH(combine_group_moments<Stored>, group_blocks(args), kBlockThreads, context.queue, args, partials,
                 chunks);
  REPRISE_LAUNCH((group_normalise<kWidth, Stored>), grid, kBlockThreads, context.queue, args, chunks);
  return launch_status();
}

template <uint32_t kWidth, typename Stored>
Status launch_group_backward(const KernelContext& context, const GroupNormBackwardArgsOf<Stored>& args) {
  const SampleChunks chunks = sample_chunks(args);
  const dim3 grid = tile_grid(args.N, chunks);
  double* partials = static_cast<double*>(args.scratch);
  float* behind = reinterpret_cast<float*>(partials + uint64_t{args.N} * chunks.count * 2 * args.C);
  const GroupCoefficients coefficients{behind, behind + uint64_t{args.N} * args.G};
  REPRISE_LAUNCH((group_gradient_sums<kWidth, Stored>), grid, kBlockThreads, context.queue, args, partials, chunks);
  REPRISE_LAUNCH(combine_group_gradients<Stored>, group_blocks(args), kBlockThreads, context.queue, args, partials,
                 chunks, coefficients);
  if (args.dgamma != nullptr || args.dbeta != nullptr) {
    REPRISE_LAUNCH(combine_group_parameters<Stored>, static_cast<uint32_t>(parts(args.C, kWarpLanes)), kBlockThreads,
                   context.queue, args, partials, chunks);
  }
  REPRISE_LAUNCH((group_input_gradient<kWidth, Stored>), grid, kBlockThreads, context.queue, args, coefficients,
                 chunks);
  return launch_status();
}

}  // namespace

template <typename Stored>
Status cuda_batch_norm_statistics(const KernelContext& context, const BatchNormStatisticsArgsOf<Stored>& args) {
  const CudaRowChunks chunks = cuda_batch_norm_chunks(args.M, args.C);
  double* partials = static_cast<double*>(args.scratch);
  const auto kernel = is_wide<Stored>(args.C) ? chunk_moments<kPackWidth<Stored>, Stored> : chunk_moments<1, Stored>;
  REPRISE_LAUNCH(kernel, tile_grid(args.C, chunks), kBlockThreads, context.queue, args, partials, chunks);
  REPRISE_LAUNCH(combine_moments<Stored>, static_cast<uint32_t>(parts(args.C, kWarpLanes)), kBlockThreads,
                 context.queue, args, partials, chunks);
  return launch_status();
}

Status cuda_batch_norm_running(const KernelContext& context, const BatchNormRunningArgs& args) {
  REPRISE_LAUNCH(average_running, blocks_for(args.C), kBlockThreads, context.queue, args);
  return launch_status();
}

template <typename Stored>
Status cuda_batch_norm_forward(const KernelContext& context, const BatchNormForwardArgsOf<Stored>& args) {
  return launch_normalise<Stored>(context, {.y = args.y,
                                            .x = args.x,
                                            .b = nullptr,
                                            .mean = args.mean,
                                            .rstd = args.rstd,
                                            .variance = nullptr,
                                            .gamma = args.gamma,
                                            .beta = args.beta,
                                            .M = args.M,
                                            .C = args.C,
                                            .epsilon = 0});
}

template <typename Stored>
Status cuda_norm_add_relu_forward(const KernelContext& context, const NormAddReluArgsOf<Stored>& args) {
  return launch_normalise<Stored>(context, {.y = args.y,
                                            .x = args.x,
                                            .b = args.b,
                                            .mean = args.mean,
                                            .rstd = args.rstd,
                                            .variance = nullptr,
                                            .gamma = args.gamma,
                                            .beta = args.beta,
                                            .M = args.M,
                                            .C = args.C,
                                            .epsilon = 0});
}

template <typename Stored>
Status cuda_batch_norm_inference(const KernelContext& context, const BatchNormInferenceArgsOf<Stored>& args) {
  return launch_normalise<Stored>(context, {.y = args.y,
                                            .x = args.x,
                                            .b = nullptr,
                                            .mean = args.running_mean,
                                            .rstd = nullptr,
                                            .variance = args.running_var,
                                            .gamma = args.gamma,
                                            .beta = args.beta,
                                            .M = args.M,
                                            .C = args.C,
                                            .epsilon = args.epsilon});
}

template <typename Stored>
Status cuda_batch_norm_backward_data(const KernelContext& context, const BatchNormBackwardDataArgsOf<Stored>& args) {
  const auto kernel = is_wide<Stored>(args.C) ? scale_gradient<kPackWidth<Stored>, Stored> : scale_gradient<1, Stored>;
  const CudaRowChunks chunks = writing_chunks(args.M);
  REPRISE_LAUNCH(kernel, tile_grid(args.C, chunks), kBlockThreads, context.queue, args, chunks);
  return launch_status();
}

template <typename Stored>
Status cuda_batch_norm_backward(const KernelContext& context, const BatchNormBackwardArgsOf<Stored>& args) {
  constexpr uint32_t kWide = kPackWidth<Stored>;
  if (is_wide<Stored>(args.C)) {
    return args.beta != nullptr ? launch_backward<kWide, true>(context, args)
                                : launch_backward<kWide, false>(context, args);
  }
  return args.beta != nullptr ? launch_backward<1, true>(context, args) : launch_backward<1, false>(context, args);
}

template <typename Stored>
Status cuda_group_norm_forward(const KernelContext& context, const GroupNormForwardArgsOf<Stored>& args) {
  return is_wide<Stored>(args.C) ? launch_group_forward<kPackWidth<Stored>>(context, args)
                                 : launch_group_forward<1>(context, args);
}

template <typename Stored>
Status cuda_group_norm_backward(const KernelContext& context, const GroupNormBackwardArgsOf<Stored>& args) {
  return is_wide<Stored>(args.C) ? launch_group_backward<kPackWidth<Stored>>(context, args)
                                 : launch_group_backward<1>(context, args);
}

REPRISE_CUDA_INSTANTIATE(cuda_batch_norm_statistics, BatchNormStatisticsArgs)
REPRISE_CUDA_INSTANTIATE(cuda_batch_norm_forward, BatchNormForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_norm_add_relu_forward, NormAddReluArgs)
REPRISE_CUDA_INSTANTIATE(cuda_batch_norm_inference, BatchNormInferenceArgs)
REPRISE_CUDA_INSTANTIATE(cuda_batch_norm_backward, BatchNormBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_batch_norm_backward_data, BatchNormBackwardDataArgs)
REPRISE_CUDA_INSTANTIATE(cuda_group_norm_forward, GroupNormForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_group_norm_backward, GroupNormBackwardArgs)

}  // namespace reprise
