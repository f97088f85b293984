// Batch-norm over rows of channels (Ioffe & Szegedy 2015): statistics, running averages, forward,
// inference, backward. Group-norm (Wu & He 2018): forward and backward; a sample is one row of
// channels for each pixel. Memory limits the speed of all passes: statistics read x once, the
// backward reads x and dy twice.
#include <atomic>
#include <cmath>

#include "lib/cpu/conv/conv_source.h"
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/norm/batch_norm_rules.h"
#include "lib/cpu/norm/output_statistics.h"
#include "lib/cpu/vector_of.h"
#include "lib/stack_buffer.h"

// Unrolls loops over arrays of vectors, so that the arrays stay in registers even if the library is
// compiled for size.
#define REPRISE_UNROLLED _Pragma("GCC unroll 4")

namespace reprise {
namespace {

constexpr uint64_t kBlockRows = 32;  // maximum rows that are summed in f32 before the sums are added to doubles
constexpr uint64_t kShiftRows = 8;
constexpr uint64_t kTile = 256;  // channels that inference processes at a time; their rstd is on the stack

// Returns the rows of a block, few enough that the block fits a cache. While one block is summed in
// registers, the next one is prefetched in the order of memory.
constexpr uint64_t block_rows(uint64_t C) { return smaller(kBlockRows, larger(4, 16384 / C)); }

// Prefetches kWidth elements of the next block. All calls for a block together prefetch the whole
// next block, in the order of memory.
template <uint64_t kWidth, typename Stored>
REPRISE_INLINE void prefetch_next_block(const Stored* x, uint64_t C, uint64_t row, uint64_t rows, uint64_t channel,
                                        uint64_t r) {
  constexpr uint64_t kLine = 64 / sizeof(Stored);
  const Stored* ahead = x + (row + rows) * C + channel * rows + r * kWidth;
  for (uint64_t line = 0; line < kWidth; line += kLine) __builtin_prefetch(ahead + line, 0, 3);
}

// Splits the rows of a pass that writes. A piece has several blocks, so that a worker seldom
// prefetches a block of another worker.
constexpr Partition piece_rows(uint64_t M, uint64_t C) {
  return {M, larger(block_rows(C), 65536 / C / block_rows(C) * block_rows(C))};
}

// The values u that are summed. For each channel the rows' sums of u and of u * (x - shift) are
// computed. kDeviation: u is x - shift. kOther: u is an element of another tensor. kMasked: that
// element where (x - shift) (rstd gamma) + beta > 0, otherwise 0.
enum class Summand { kDeviation, kOther, kMasked };

template <typename Stored>
struct ColumnSums {
  double* first;       // [C]: sums of u
  double* second;      // [C]: sums of u * (x - shift)
  const Stored* x;     // [rows,C]
  const Stored* u;     // [rows,C]; null for x - shift
  const float* shift;  // [C]
  uint64_t C;
  InputNorm mask;  // for kMasked: the norm whose sign masks u; mask.mean is `shift`. Otherwise null pointers.
};

// Sets lanes of `value` to 0 if `relu_input` is not positive there. Arguments are references, as in
// read_vector().
template <int kLanes>
REPRISE_INLINE void keep_positive(typename VectorOf<kLanes>::type& value,
                                  const typename VectorOf<kLanes>::type& relu_input) {
  using Vector = typename VectorOf<kLanes>::type;
  value = relu_input > Vector{} ? value : Vector{};
}

// Adds rows [row, row + rows) of channels [channel, channel + kVectors * kLanes) to the sums.
template <int kLanes, int kVectors, Summand kSummand, typename Stored>
REPRISE_INLINE void add_columns(const ColumnSums<Stored>& sums, uint64_t row, uint64_t rows, uint64_t channel) {
  using Vector = typename VectorOf<kLanes>::type;
  constexpr uint64_t kWidth = uint64_t{kLanes} * kVectors;
  constexpr bool kOther = kSummand != Summand::kDeviation;
  Vector shift[kVectors], first[kVectors] = {}, second[kVectors] = {};
  [[maybe_unused]] ChannelNorm<kLanes> norm[kVectors];
  REPRISE_UNROLLED for (int j = 0; j < kVectors; ++j) {
    read_vector<kLanes>(shift[j], sums.shift + channel + j * kLanes);
    if constexpr (kSummand == Summand::kMasked) norm[j].read(sums.mask, channel + static_cast<uint64_t>(j * kLanes));
  }
  for (uint64_t r = 0; r < rows; ++r) {
    const uint64_t at = (row + r) * sums.C + channel;
    prefetch_next_block<kWidth>(sums.x, sums.C, row, rows, channel, r);
    if constexpr (kOther) prefetch_next_block<kWidth>(sums.u, sums.C, row, rows, channel, r);
    REPRISE_UNROLLED for (int j = 0; j < kVectors; ++j) {
      Vector d;
      read_vector<kLanes>(d, sums.x + at + j * kLanes);
      d = d - shift[j];
      Vector u = d;
      if constexpr (kOther) read_vector<kLanes>(u, sums.u + at + j * kLanes);
      if constexpr (kSummand == Summand::kMasked) keep_positive<kLanes>(u, d * norm[j].scale + norm[j].shift);
      first[j] = first[j] + u;
      second[j] = second[j] + u * d;
    }
  }
  float first_part[kWidth], second_part[kWidth];
  REPRISE_UNROLLED for (int j = 0; j < kVectors; ++j) write_vector<kLanes>(first_part + j * kLanes, first[j]);
  REPRISE_UNROLLED for (int j = 0; j < kVectors; ++j) write_vector<kLanes>(second_part + j * kLanes, second[j]);
  for (uint64_t i = 0; i < kWidth; ++i) sums.first[channel + i] += static_cast<double>(first_part[i]);
  for (uint64_t i = 0; i < kWidth; ++i) sums.second[channel + i] += static_cast<double>(second_part[i]);
}

template <int kLanes, Summand kSummand, typename Stored>
REPRISE_INLINE void sum_columns(const ColumnSums<Stored>& sums, uint64_t rows) {
  constexpr int kAcross = kColumnLanes<kLanes>;
  const uint64_t C = sums.C, step = block_rows(C);
  for (uint64_t c = 0; c < C; ++c) sums.first[c] = sums.second[c] = 0;
  for (uint64_t row = 0; row < rows; row += step) {
    const uint64_t count = smaller(step, rows - row);
    uint64_t c = 0;
    for (; c + 4 * kAcross <= C; c += 4 * kAcross) add_columns<kAcross, 4, kSummand>(sums, row, count, c);
    for (; c + kAcross <= C; c += kAcross) add_columns<kAcross, 1, kSummand>(sums, row, count, c);
    for (; c < C; ++c) add_columns<1, 1, kSummand>(sums, row, count, c);
  }
}

// Computes mean and sum of squared deviations of each channel over one chunk's rows. The shift is
// the mean of the chunk's first rows; it keeps the squares small (Chan, Golub & LeVeque,
// "Algorithms for computing the sample variance", 1983, section 3: shifted data).
template <int kLanes, typename Stored>
REPRISE_INLINE void chunk_moments_body(double* mean, double* deviation, float* shift, const Stored* x, uint64_t C,
                                       uint64_t rows) {
  const uint64_t first_rows = smaller(rows, kShiftRows);
  for (uint64_t c = 0; c < C; ++c) shift[c] = 0;
  for (uint64_t r = 0; r < first_rows; ++r) {
    for (uint64_t c = 0; c < C; ++c) shift[c] += x[r * C + c];
  }
  for (uint64_t c = 0; c < C; ++c) shift[c] /= static_cast<float>(first_rows);
  sum_columns<kLanes, Summand::kDeviation, Stored>({mean, deviation, x, nullptr, shift, C, {}}, rows);
  const double scale = 1.0 / static_cast<double>(rows);
  for (uint64_t c = 0; c < C; ++c) {
    const double d = mean[c] * scale;
    deviation[c] -= mean[c] * d;
    mean[c] = static_cast<double>(shift[c]) + d;
  }
}

// Computes sums of dy and of dy (x - mean) over one chunk's rows; dy is masked if there is a mask.
template <int kLanes, typename Stored>
REPRISE_INLINE void chunk_gradient_sums_body(const ColumnSums<Stored>& sums, uint64_t rows) {
  if (sums.mask.mean != nullptr) return sum_columns<kLanes, Summand::kMasked>(sums, rows);
  sum_columns<kLanes, Summand::kOther>(sums, rows);
}

// Operands of y = (x - mean) rstd gamma + beta, for `columns` channels of rows that are C elements
// apart. If b is not null, y = relu((x - mean) rstd gamma + beta + b).
template <typename Stored>
struct NormaliseColumns {
  Stored* y;
  const Stored* x;
  InputNorm norm;
  uint64_t C, columns;
  const Stored* b;  // null for none
};

template <int kLanes, int kVectors, bool kAdds, typename Stored>
REPRISE_INLINE void normalise_tile(const NormaliseColumns<Stored>& a, uint64_t row, uint64_t rows, uint64_t channel) {
  using Vector = typename VectorOf<kLanes>::type;
  ChannelNorm<kLanes> norm[kVectors];
  REPRISE_UNROLLED for (int j = 0; j < kVectors; ++j) norm[j].read(a.norm, channel + static_cast<uint64_t>(j * kLanes));
  for (uint64_t r = 0; r < rows; ++r) {
    const uint64_t at = (row + r) * a.C + channel;
    prefetch_next_block<kVectors * kLanes>(a.x, a.C, row, rows, channel, r);
    if constexpr (kAdds) prefetch_next_block<kVectors * kLanes>(a.b, a.C, row, rows, channel, r);
    REPRISE_UNROLLED for (int j = 0; j < kVectors; ++j) {
      Vector y, b;
      read_vector<kLanes>(y, a.x + at + j * kLanes);
      norm[j].apply(y);
      if constexpr (kAdds) {
        read_vector<kLanes>(b, a.b + at + j * kLanes);
        y = y + b;
        cut_negative<kLanes>(y);
      }
      write_vector<kLanes>(a.y + at + j * kLanes, y);
    }
  }
}

template <int kLanes, bool kAdds, typename Stored>
REPRISE_INLINE void normalise_rows(const NormaliseColumns<Stored>& a, uint64_t begin, uint64_t end) {
  constexpr int kAcross = kColumnLanes<kLanes>;
  const uint64_t n = a.columns, step = block_rows(a.C);
  for (uint64_t row = begin; row < end; row += step) {
    const uint64_t rows = smaller(step, end - row);
    uint64_t c = 0;
    for (; c + 4 * kAcross <= n; c += 4 * kAcross) normalise_tile<kAcross, 4, kAdds>(a, row, rows, c);
    for (; c + kAcross <= n; c += kAcross) normalise_tile<kAcross, 1, kAdds>(a, row, rows, c);
    for (; c < n; ++c) normalise_tile<1, 1, kAdds>(a, row, rows, c);
  }
}

template <int kLanes, typename Stored>
REPRISE_INLINE void normalise_body(const NormaliseColumns<Stored>& a, uint64_t begin, uint64_t end) {
  if (a.b != nullptr) return normalise_rows<kLanes, true>(a, begin, end);
  normalise_rows<kLanes, false>(a, begin, end);
}

// The formula of dx, for each channel. kNorm: scale (dy - mean_dy - (x - mean) slope). kNormRelu:
// as kNorm, with dy = 0 where relu's input is not positive. kGroupNorm: scale dy - mean_dy - (x -
// mean) slope. This formula does not multiply the whole difference by scale: if a channel's gamma
// is 0, scale is 0, but the group's mean_dy and slope may differ from 0.
enum class GradientOf { kNorm, kNormRelu, kGroupNorm };
template <typename Stored>
struct GradientColumns {
  Stored* dx;
  const Stored *dy, *x;
  const float* mean;
  const float *scale, *mean_dy, *slope;  // [C] each; scale is rstd gamma
  uint64_t C;
  const float* beta;
  bool grouped = false;
};

template <int kLanes, int kVectors, GradientOf kOf, typename Stored>
REPRISE_INLINE void gradient_tile(const GradientColumns<Stored>& a, uint64_t row, uint64_t rows, uint64_t channel) {
  using Vector = typename VectorOf<kLanes>::type;
  Vector mean[kVectors], scale[kVectors], mean_dy[kVectors], slope[kVectors];
  [[maybe_unused]] Vector beta[kVectors];
  REPRISE_UNROLLED for (int j = 0; j < kVectors; ++j) {
    const uint64_t c = channel + static_cast<uint64_t>(j * kLanes);
    read_vector<kLanes>(mean[j], a.mean + c);
    read_vector<kLanes>(scale[j], a.scale + c);
    read_vector<kLanes>(mean_dy[j], a.mean_dy + c);
    read_vector<kLanes>(slope[j], a.slope + c);
    if constexpr (kOf == GradientOf::kNormRelu) read_vector<kLanes>(beta[j], a.beta + c);
  }
  for (uint64_t r = 0; r < rows; ++r) {
    const uint64_t at = (row + r) * a.C + channel;
    prefetch_next_block<kVectors * kLanes>(a.x, a.C, row, rows, channel, r);
    prefetch_next_block<kVectors * kLanes>(a.dy, a.C, row, rows, channel, r);
    REPRISE_UNROLLED for (int j = 0; j < kVectors; ++j) {
      Vector g, x;
      read_vector<kLanes>(g, a.dy + at + j * kLanes);
      read_vector<kLanes>(x, a.x + at + j * kLanes);
      const Vector d = x - mean[j];
      if constexpr (kOf == GradientOf::kNormRelu) keep_positive<kLanes>(g, d * scale[j] + beta[j]);
      if constexpr (kOf == GradientOf::kGroupNorm) {
        write_vector<kLanes>(a.dx + at + j * kLanes, (g * scale[j] - mean_dy[j]) - d * slope[j]);
      } else {
        write_vector<kLanes>(a.dx + at + j * kLanes, scale[j] * ((g - mean_dy[j]) - d * slope[j]));
      }
    }
  }
}

template <int kLanes, GradientOf kOf, typename Stored>
REPRISE_INLINE void gradient_rows(const GradientColumns<Stored>& a, uint64_t begin, uint64_t end) {
  constexpr int kAcross = kColumnLanes<kLanes>;
  const uint64_t C = a.C, step = block_rows(C);
  for (uint64_t row = begin; row < end; row += step) {
    const uint64_t rows = smaller(step, end - row);
    uint64_t c = 0;
    for (; c + 4 * kAcross <= C; c += 4 * kAcross) gradient_tile<kAcross, 4, kOf>(a, row, rows, c);
    for (; c + kAcross <= C; c += kAcross) gradient_tile<kAcross, 1, kOf>(a, row, rows, c);
    for (; c < C; ++c) gradient_tile<1, 1, kOf>(a, row, rows, c);
  }
}

template <int kLanes, typename Stored>
REPRISE_INLINE void gradient_body(const GradientColumns<Stored>& a, uint64_t begin, uint64_t end) {
  if (a.grouped) return gradient_rows<kLanes, GradientOf::kGroupNorm>(a, begin, end);
  if (a.beta != nullptr) return gradient_rows<kLanes, GradientOf::kNormRelu>(a, begin, end);
  gradient_rows<kLanes, GradientOf::kNorm>(a, begin, end);
}

REPRISE_STORAGE_LEVELS(chunk_moments, chunk_moments_body<kLanes>,
                      (double* mean, double* deviation, float* shift, const Stored* x, uint64_t C, uint64_t rows),
                      (mean, deviation, shift, x, C, rows))
REPRISE_STORAGE_LEVELS(chunk_gradient_sums, chunk_gradient_sums_body<kLanes>,
                      (const ColumnSums<Stored>& sums, uint64_t rows), (sums, rows))
REPRISE_STORAGE_LEVELS(normalise, normalise_body<kLanes>,
                       (const NormaliseColumns<Stored>& a, uint64_t begin, uint64_t end), (a, begin, end))
REPRISE_STORAGE_LEVELS(gradient, gradient_body<kLanes>,
                       (const GradientColumns<Stored>& a, uint64_t begin, uint64_t end), (a, begin, end))

// One chunk's part of the scratch: two rows of C doubles for partial sums, and C floats.
struct ChunkScratch {
  double *first, *second;
  float* shift;
};
ChunkScratch chunk_scratch(void* scratch, uint64_t M, uint64_t C, uint32_t chunk) {
  double* partials = static_cast<double*>(scratch);
  double* first = partials + uint64_t{chunk} * 2 * C;
  float* shifts = reinterpret_cast<float*>(partials + uint64_t{batch_norm_chunks(M, C).count()} * 2 * C);
  return {first, first + C, shifts + chunk * C};
}

template <typename Stored>
void take_chunk(VectorLevel level, const BatchNormStatisticsArgsOf<Stored>& args, const Partition& chunks, uint32_t k) {
  const ChunkScratch own = chunk_scratch(args.scratch, args.M, args.C, k);
  chunk_moments(level, own.first, own.second, own.shift, args.x + chunks.begin(k) * args.C, args.C,
                chunks.end(k) - chunks.begin(k));
}

// Returns 1 / sqrt(deviation / count + epsilon). Rounding may have made `deviation` negative, which
// counts as 0; NaN stays NaN.
float rstd_of(double deviation, double count, float epsilon) {
  const double variance = deviation > 0 || deviation != deviation ? deviation / count : 0;
  return static_cast<float>(1 / std::sqrt(variance + static_cast<double>(epsilon)));
}

// Computes mean and rstd of channels [begin, end) from the chunks' moments (Chan et al. 1983,
// section 2), in the order of the chunks.
template <typename Stored>
void combine_moments(const BatchNormStatisticsArgsOf<Stored>& args, const double* partials, uint64_t begin,
                     uint64_t end) {
  const Partition chunks = batch_norm_chunks(args.M, args.C);
  const double M = static_cast<double>(args.M);
  const uint64_t stride = uint64_t{2} * args.C;
  const auto rows = [&](uint32_t k) { return static_cast<double>(chunks.end(k) - chunks.begin(k)); };
  for (uint64_t c = begin; c < end; ++c) {
    double mean = 0, deviation = 0;
    for (uint32_t k = 0; k < chunks.count(); ++k) mean += rows(k) * partials[k * stride + c];
    mean /= M;
    for (uint32_t k = 0; k < chunks.count(); ++k) {
      const double d = partials[k * stride + c] - mean;
      deviation += partials[k * stride + args.C + c] + rows(k) * d * d;
    }
    args.mean[c] = static_cast<float>(mean);
    args.rstd[c] = rstd_of(deviation, M, args.epsilon);
  }
}

template <typename Stored>
void combine_gradient_sums(const BatchNormBackwardArgsOf<Stored>& args, const double* partials, float* scale,
                           float* mean_dy, float* slope, uint64_t begin, uint64_t end) {
  const uint32_t chunks = batch_norm_chunks(args.M, args.C).count();
  const double inverse = 1 / static_cast<double>(args.M);
  const uint64_t stride = uint64_t{2} * args.C;
  for (uint64_t c = begin; c < end; ++c) {
    double sum_dy = 0, sum_dy_x = 0;
    for (uint32_t k = 0; k < chunks; ++k) {
      sum_dy += partials[k * stride + c];
      sum_dy_x += partials[k * stride + args.C + c];
    }
    const double rstd = static_cast<double>(args.rstd[c]);
    const float dgamma = static_cast<float>(sum_dy_x * rstd), dbeta = static_cast<float>(sum_dy);
    if (args.dgamma != nullptr) args.dgamma[c] = args.accumulate_dgamma ? args.dgamma[c] + dgamma : dgamma;
    if (args.dbeta != nullptr) args.dbeta[c] = args.accumulate_dbeta ? args.dbeta[c] + dbeta : dbeta;
    scale[c] = args.gamma[c] * args.rstd[c];
    mean_dy[c] = static_cast<float>(sum_dy * inverse);
    slope[c] = static_cast<float>(sum_dy_x * rstd * rstd * inverse);
  }
}

constexpr uint64_t kCombineChannels = 128;

template <typename Stored>
void combine_chunks(const Workers& workers, const BatchNormStatisticsArgsOf<Stored>& args) {
  const double* partials = static_cast<const double*>(args.scratch);
  for_each_piece(workers, {args.C, kCombineChannels},
                 [&](uint64_t begin, uint64_t end) { combine_moments(args, partials, begin, end); });
}

// ---- group-norm: a sample's chunks are summed as for batch-norm, then a group's channels ----

// A call of group-norm: its arguments, the split of its samples, and the layout of its scratch.
template <typename Args>
struct GroupedSamples {
  const Args& args;
  Partition chunks;  // chunks of a sample's pixels
  GroupNormScratch at;

  GroupedSamples(const Args& of, Pass pass)
      : args(of), chunks(group_norm_chunks(of.N, of.HW)), at(group_norm_scratch(of.N, of.HW, of.C, pass)) {}

  ChunkScratch chunk(uint64_t n, uint32_t k) const {
    unsigned char* scratch = static_cast<unsigned char*>(args.scratch);
    double* first = reinterpret_cast<double*>(scratch + at.sums(n, k));
    return {first, first + args.C, reinterpret_cast<float*>(scratch + at.shift(n, k))};
  }
  float* vector(uint64_t n, uint32_t i) const {
    return reinterpret_cast<float*>(static_cast<unsigned char*>(args.scratch) + at.vector(n, i));
  }
  uint64_t sample(uint64_t n) const { return n * args.HW * args.C; }
  uint64_t first_element(uint64_t n, uint32_t k) const { return sample(n) + chunks.begin(k) * args.C; }
  uint64_t rows(uint32_t k) const { return chunks.end(k) - chunks.begin(k); }
  uint64_t group_channels() const { return args.C / args.G; }
  double count() const { return static_cast<double>(args.HW * group_channels()); }

  // Calls sum(n, k) for every chunk, then combine(n) for every sample, then write(n, k) for every
  // chunk. If a sample is one chunk, one worker makes all three calls while the sample is in its
  // cache.
  template <typename Sum, typename Combine, typename Write>
  void run(const Workers& workers, const Sum& sum, const Combine& combine, const Write& write) const {
    const uint32_t count = chunks.count();
    if (count == 1) return parallel_for(workers, args.N, [&](uint32_t n) { sum(n, 0), combine(n), write(n, 0); });
    parallel_for(workers, args.N * count, [&](uint32_t i) { sum(i / count, i % count); });
    parallel_for(workers, args.N, combine);
    parallel_for(workers, args.N * count, [&](uint32_t i) { write(i / count, i % count); });
  }
};

// Computes mean and rstd of each group of sample n, from the moments of its channels in each chunk
// (Chan et al. 1983, section 2). Adds in the order of chunks and channels. Also writes each
// channel's mean and rstd to vectors 0 and 1 of the sample's scratch.
template <typename Stored>
void combine_group_moments(const GroupedSamples<GroupNormForwardArgsOf<Stored>>& samples, uint64_t n) {
  const auto& args = samples.args;
  const uint64_t D = samples.group_channels();
  float *means = samples.vector(n, 0), *rstds = samples.vector(n, 1);
  for (uint64_t g = 0; g < args.G; ++g) {
    double mean = 0, deviation = 0;
    for (uint32_t k = 0; k < samples.chunks.count(); ++k) {
      const double* chunk_means = samples.chunk(n, k).first + g * D;
      double sum = 0;
      for (uint64_t c = 0; c < D; ++c) sum += chunk_means[c];
      mean += static_cast<double>(samples.rows(k)) * sum;
    }
    mean /= samples.count();
    for (uint32_t k = 0; k < samples.chunks.count(); ++k) {
      const ChunkScratch chunk = samples.chunk(n, k);
      for (uint64_t c = g * D; c < (g + 1) * D; ++c) {
        const double d = chunk.first[c] - mean;
        deviation += chunk.second[c] + static_cast<double>(samples.rows(k)) * d * d;
      }
    }
    const uint64_t at = n * args.G + g;
    args.mean[at] = static_cast<float>(mean);
    args.rstd[at] = rstd_of(deviation, samples.count(), args.epsilon);
    for (uint64_t c = g * D; c < (g + 1) * D; ++c) means[c] = args.mean[at], rstds[c] = args.rstd[at];
  }
}

// Computes for each channel the sums of dy and of dy (x - mean) over a chunk's pixels.
template <typename Stored>
void sum_group_gradients(VectorLevel level, const GroupedSamples<GroupNormBackwardArgsOf<Stored>>& samples, uint64_t n,
                         uint32_t k) {
  const auto& args = samples.args;
  const ChunkScratch own = samples.chunk(n, k);
  for (uint64_t c = 0; c < args.C; ++c) own.shift[c] = args.mean[n * args.G + c / samples.group_channels()];
  const uint64_t at = samples.first_element(n, k);
  chunk_gradient_sums<Stored>(level, {own.first, own.second, args.x + at, args.dy + at, own.shift, args.C, {}},
                              samples.rows(k));
}

// Adds the sums of sample n's chunks, in order, to those of its first chunk, and multiplies the
// sums of dy (x - mean) by rstd. The first chunk's scratch then has, for each channel, the sums of
// dy and of dy z, with z = (x - mean) rstd. Writes scale, mean_dy and slope, with which gradient()
// computes the sample's dx, to vectors 0 to 2 of the sample's scratch.
template <typename Stored>
void combine_group_gradients(const GroupedSamples<GroupNormBackwardArgsOf<Stored>>& samples, uint64_t n) {
  const auto& args = samples.args;
  const uint64_t D = samples.group_channels();
  const ChunkScratch sums = samples.chunk(n, 0);
  for (uint32_t k = 1; k < samples.chunks.count(); ++k) {
    const ChunkScratch chunk = samples.chunk(n, k);
    for (uint64_t c = 0; c < args.C; ++c) sums.first[c] += chunk.first[c];
    for (uint64_t c = 0; c < args.C; ++c) sums.second[c] += chunk.second[c];
  }
  float *scale = samples.vector(n, 0), *mean_dy = samples.vector(n, 1), *slope = samples.vector(n, 2);
  for (uint64_t g = 0; g < args.G; ++g) {
    const float rstd = args.rstd[n * args.G + g];
    double gradient = 0, projection = 0;  // sums over the group of dy gamma and of dy gamma z
    for (uint64_t c = g * D; c < (g + 1) * D; ++c) {
      sums.second[c] *= static_cast<double>(rstd);
      gradient += sums.first[c] * static_cast<double>(args.gamma[c]);
      projection += sums.second[c] * static_cast<double>(args.gamma[c]);
    }
    const double factor = static_cast<double>(rstd) / samples.count();
    const float group_mean = static_cast<float>(gradient * factor);
    const float group_slope = static_cast<float>(projection * factor * static_cast<double>(rstd));
    for (uint64_t c = g * D; c < (g + 1) * D; ++c)
      scale[c] = args.gamma[c] * rstd, mean_dy[c] = group_mean, slope[c] = group_slope;
  }
}

// Computes dgamma and dbeta of channels [begin, end) by adding the samples' sums in order.
template <typename Stored>
void store_group_gradients(const GroupedSamples<GroupNormBackwardArgsOf<Stored>>& samples, uint64_t begin,
                           uint64_t end) {
  const auto& args = samples.args;
  for (uint64_t c = begin; c < end; ++c) {
    double sum_dy = 0, sum_dy_z = 0;
    for (uint64_t n = 0; n < args.N; ++n) {
      const ChunkScratch sums = samples.chunk(n, 0);
      sum_dy += sums.first[c];
      sum_dy_z += sums.second[c];
    }
    const float dgamma = static_cast<float>(sum_dy_z), dbeta = static_cast<float>(sum_dy);
    if (args.dgamma != nullptr) args.dgamma[c] = args.accumulate_dgamma ? args.dgamma[c] + dgamma : dgamma;
    if (args.dbeta != nullptr) args.dbeta[c] = args.accumulate_dbeta ? args.dbeta[c] + dbeta : dbeta;
  }
}

}  // namespace

template <typename Stored>
Status cpu_batch_norm_statistics(const KernelContext& context, const BatchNormStatisticsArgsOf<Stored>& args) {
  const Partition chunks = batch_norm_chunks(args.M, args.C);
  parallel_for(*context.workers, chunks.count(),
               [&](uint32_t k) { take_chunk(cpu_machine(context).level, args, chunks, k); });
  combine_chunks(*context.workers, args);
  return ok_status();
}

template <typename Stored>
OutputStatistics<Stored>::OutputStatistics(const KernelContext& context, const BatchNormStatisticsArgsOf<Stored>& args)
    : context_(context), args_(args), missing_(static_cast<uint32_t*>(args.scratch)) {
  args_.scratch = static_cast<unsigned char*>(args.scratch) + output_statistics_counts_bytes(args.M, args.C);
  const Partition chunks = batch_norm_chunks(args.M, args.C);
  for (uint32_t k = 0; k < chunks.count(); ++k)
    missing_[k] = static_cast<uint32_t>((chunks.end(k) - chunks.begin(k)) * args.C);
}

// Uses acquire and release, so that the worker that completes a chunk sees the elements that other
// workers wrote.
template <typename Stored>
void OutputStatistics<Stored>::written(uint64_t begin, uint64_t end, uint64_t columns) const {
  const Partition chunks = batch_norm_chunks(args_.M, args_.C);
  for (uint32_t k = static_cast<uint32_t>(begin / chunks.size); k < chunks.count() && chunks.begin(k) < end; ++k) {
    const uint32_t elements =
        static_cast<uint32_t>((smaller(end, chunks.end(k)) - larger(begin, chunks.begin(k))) * columns);
    const uint32_t missing = std::atomic_ref<uint32_t>(missing_[k]).fetch_sub(elements, std::memory_order_acq_rel);
    if (missing == elements) take_chunk(cpu_machine(context_).level, args_, chunks, k);
  }
}

template <typename Stored>
void OutputStatistics<Stored>::finish() const {
  combine_chunks(*context_.workers, args_);
}
template class OutputStatistics<float>;
template class OutputStatistics<Bf16>;

Status cpu_batch_norm_running(const KernelContext&, const BatchNormRunningArgs& args) {
  const double momentum = static_cast<double>(args.momentum);
  const double M = static_cast<double>(args.M);
  const double unbias = args.M > 1 ? M / (M - 1) : 1;
  for (uint32_t c = 0; c < args.C; ++c) {
    const double rstd = static_cast<double>(args.rstd[c]);
    const double biased = 1 / (rstd * rstd) - static_cast<double>(args.epsilon);
    const double variance = biased < 0 ? 0 : biased * unbias;
    const double mean = static_cast<double>(args.mean[c]);
    // Values that are not finite change no average. Training discards such a step, and the averages
    // must stay valid for the next step.
    if (!std::isfinite(mean) || !std::isfinite(variance)) continue;
    args.running_mean[c] =
        static_cast<float>((1 - momentum) * static_cast<double>(args.running_mean[c]) + momentum * mean);
    args.running_var[c] =
        static_cast<float>((1 - momentum) * static_cast<double>(args.running_var[c]) + momentum * variance);
  }
  *args.batches += 1;
  return ok_status();
}

template <typename Stored>
Status cpu_batch_norm_forward(const KernelContext& context, const BatchNormForwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const NormaliseColumns<Stored> columns{args.y, args.x, {args.mean, args.rstd, args.gamma, args.beta},
                                         args.C, args.C, nullptr};
  for_each_piece(*context.workers, piece_rows(args.M, args.C),
                 [&](uint64_t begin, uint64_t end) { normalise(level, columns, begin, end); });
  return ok_status();
}

template <typename Stored>
Status cpu_norm_add_relu_forward(const KernelContext& context, const NormAddReluArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const NormaliseColumns<Stored> columns{args.y, args.x, {args.mean, args.rstd, args.gamma, args.beta},
                                         args.C, args.C, args.b};
  for_each_piece(*context.workers, piece_rows(args.M, args.C),
                 [&](uint64_t begin, uint64_t end) { normalise(level, columns, begin, end); });
  return ok_status();
}

template <typename Stored>
Status cpu_batch_norm_inference(const KernelContext& context, const BatchNormInferenceArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, piece_rows(args.M, args.C), [&](uint64_t begin, uint64_t end) {
    REPRISE_STACK_BUFFER(float, rstd, smaller(args.C, kTile));
    const Partition tiles{args.C, kTile};
    for (uint32_t tile = 0; tile < tiles.count(); ++tile) {
      const uint64_t channel = tiles.begin(tile), n = tiles.end(tile) - channel;
      for (uint64_t c = 0; c < n; ++c) rstd[c] = 1.0f / std::sqrt(args.running_var[channel + c] + args.epsilon);
      normalise<Stored>(level,
                        {args.y + channel,
                         args.x + channel,
                         {args.running_mean + channel, rstd, args.gamma + channel, args.beta + channel},
                         args.C,
                         n,
                         nullptr},
                        begin, end);
    }
  });
  return ok_status();
}

// Computes dx by the formula of inference, applied to dy with a mean and a beta of zero.
template <typename Stored>
Status cpu_batch_norm_backward_data(const KernelContext& context, const BatchNormBackwardDataArgsOf<Stored>& args) {
  static constexpr float kZeros[kTile] = {};
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, piece_rows(args.M, args.C), [&](uint64_t begin, uint64_t end) {
    REPRISE_STACK_BUFFER(float, rstd, smaller(args.C, kTile));
    const Partition tiles{args.C, kTile};
    for (uint32_t tile = 0; tile < tiles.count(); ++tile) {
      const uint64_t channel = tiles.begin(tile), n = tiles.end(tile) - channel;
      for (uint64_t c = 0; c < n; ++c) rstd[c] = 1.0f / std::sqrt(args.running_var[channel + c] + args.epsilon);
      normalise<Stored>(
          level,
          {args.dx + channel, args.dy + channel, {kZeros, rstd, args.gamma + channel, kZeros}, args.C, n, nullptr},
          begin, end);
    }
  });
  return ok_status();
}

template <typename Stored>
Status cpu_batch_norm_backward(const KernelContext& context, const BatchNormBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const double* partials = static_cast<const double*>(args.scratch);
  float* scale = chunk_scratch(args.scratch, args.M, args.C, 0).shift;
  float *mean_dy = scale + args.C, *slope = mean_dy + args.C;
  const Partition chunks = batch_norm_chunks(args.M, args.C);
  const InputNorm mask = args.beta == nullptr ? InputNorm{} : InputNorm{args.mean, args.rstd, args.gamma, args.beta};
  parallel_for(*context.workers, chunks.count(), [&](uint32_t k) {
    const ChunkScratch own = chunk_scratch(args.scratch, args.M, args.C, k);
    const uint64_t offset = chunks.begin(k) * args.C;
    chunk_gradient_sums<Stored>(level,
                                {own.first, own.second, args.x + offset, args.dy + offset, args.mean, args.C, mask},
                                chunks.end(k) - chunks.begin(k));
  });
  for_each_piece(*context.workers, {args.C, kCombineChannels}, [&](uint64_t begin, uint64_t end) {
    combine_gradient_sums(args, partials, scale, mean_dy, slope, begin, end);
  });
  const GradientColumns<Stored> columns{args.dx, args.dy, args.x, args.mean, scale, mean_dy, slope, args.C, args.beta};
  for_each_piece(*context.workers, piece_rows(args.M, args.C),
                 [&](uint64_t begin, uint64_t end) { gradient(level, columns, begin, end); });
  return ok_status();
}

template <typename Stored>
Status cpu_group_norm_forward(const KernelContext& context, const GroupNormForwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const GroupedSamples<GroupNormForwardArgsOf<Stored>> samples(args, Pass::kForward);
  const auto sum = [&](uint32_t n, uint32_t k) {
    const ChunkScratch own = samples.chunk(n, k);
    chunk_moments(level, own.first, own.second, own.shift, args.x + samples.first_element(n, k), args.C,
                  samples.rows(k));
  };
  const auto write = [&](uint32_t n, uint32_t k) {
    const InputNorm norm{samples.vector(n, 0), samples.vector(n, 1), args.gamma, args.beta};
    const uint64_t at = samples.sample(n);
    normalise<Stored>(level, {args.y + at, args.x + at, norm, args.C, args.C, nullptr}, samples.chunks.begin(k),
                      samples.chunks.end(k));
  };
  samples.run(*context.workers, sum, [&](uint32_t n) { combine_group_moments(samples, n); }, write);
  return ok_status();
}

template <typename Stored>
Status cpu_group_norm_backward(const KernelContext& context, const GroupNormBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const GroupedSamples<GroupNormBackwardArgsOf<Stored>> samples(args, Pass::kBackward);
  const auto sum = [&](uint32_t n, uint32_t k) { sum_group_gradients(level, samples, n, k); };
  const auto write = [&](uint32_t n, uint32_t k) {
    const uint64_t at = samples.sample(n);
    const GradientColumns<Stored> columns{args.dx + at,
                                          args.dy + at,
                                          args.x + at,
                                          samples.chunk(n, 0).shift,
                                          samples.vector(n, 0),
                                          samples.vector(n, 1),
                                          samples.vector(n, 2),
                                          args.C,
                                          nullptr,
                                          true};
    gradient(level, columns, samples.chunks.begin(k), samples.chunks.end(k));
  };
  samples.run(*context.workers, sum, [&](uint32_t n) { combine_group_gradients(samples, n); }, write);
  if (args.dgamma == nullptr && args.dbeta == nullptr) return ok_status();
  for_each_piece(*context.workers, {args.C, kCombineChannels},
                 [&](uint64_t begin, uint64_t end) { store_group_gradients(samples, begin, end); });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_batch_norm_statistics, BatchNormStatisticsArgs)
REPRISE_INSTANTIATE(cpu_batch_norm_forward, BatchNormForwardArgs)
REPRISE_INSTANTIATE(cpu_norm_add_relu_forward, NormAddReluArgs)
REPRISE_INSTANTIATE(cpu_batch_norm_inference, BatchNormInferenceArgs)
REPRISE_INSTANTIATE(cpu_batch_norm_backward, BatchNormBackwardArgs)
REPRISE_INSTANTIATE(cpu_batch_norm_backward_data, BatchNormBackwardDataArgs)
REPRISE_INSTANTIATE(cpu_group_norm_forward, GroupNormForwardArgs)
REPRISE_INSTANTIATE(cpu_group_norm_backward, GroupNormBackwardArgs)

}  // namespace reprise
