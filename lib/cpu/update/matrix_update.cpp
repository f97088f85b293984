// The updates of lib/ops/matrix_update.h: Adafactor, APOLLO and Muon. Each update sums squares over
// a tensor, in pieces, and then moves the parameters one step along an update u. Products of
// matrices are those of linear layers.
#include "lib/cpu/update/matrix_update_rules.h"

#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/norm/square_sums.h"
#include "lib/cpu/state_blocks.h"
#include "lib/portable_math.h"

namespace reprise {
namespace {

template <typename T>
T* at(void* scratch, uint64_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(scratch) + offset);
}

constexpr Status kScratchTooSmall = {Code::kBadPlan, "an update's scratch must have the bytes of its scratch rule", 0};

double sum_of(const double* sums, uint32_t count) {
  double sum = 0;
  for (uint32_t i = 0; i < count; ++i) sum += sums[i];
  return sum;
}

// Splits elements [first, first + count) of a matrix into runs within one row, and calls
// visit.run(from, row, column, n) for each. A run has n elements and starts at element first +
// from.
template <typename Visit>
REPRISE_INLINE void for_each_run(uint64_t first, uint32_t count, uint64_t columns, const Visit& visit) {
  uint64_t row = first / columns, column = first % columns;
  for (uint32_t from = 0; from < count;) {
    const uint32_t n = static_cast<uint32_t>(smaller(count - from, columns - column));
    visit.run(from, row, column, n);
    from += n, ++row, column = 0;
  }
}

// ---- common to all updates: sums of squares, and steps of the parameters along an update u ----

// Computes the sum of u^2 over elements [begin, end). update.fill(u, first, count) writes elements
// [first, first + count) of the update.
template <typename Update>
REPRISE_INLINE void sum_update_body(const Update& update, uint64_t begin, uint64_t end, double& sum) {
  SquareSums sums;
  float u[kStateBlock];
  for (uint64_t first = begin; first < end; first += kStateBlock) {
    const uint32_t count = static_cast<uint32_t>(smaller(kStateBlock, end - first));
    update.fill(u, first, count);
    sums.add(u, count);
  }
  sum = sums.total();
}
REPRISE_LEVELS_OF(template <typename Update>, sum_update, sum_update_body,
                  (const Update& update, uint64_t begin, uint64_t end, double& sum), (update, begin, end, sum))

// Operands of p = keep p - step u. The formula is computed in double, because in f32 the vector
// levels could fuse different products and so give different bits.
struct Step {
  StateNumbers parameters;
  StateRounding rounding;
  double keep, step;
};
Step step_of(const StateNumbers& parameters, const StepScalars& s, uint32_t stream, double decay, double step) {
  return {parameters, rounding_of(s, stream), 1 - decay, step};
}
template <typename Update>
REPRISE_INLINE void step_body(const Update& update, const Step& s, uint64_t begin, uint64_t end) {
  float u[kStateBlock], p[kStateBlock];
  for (uint64_t first = begin; first < end; first += kStateBlock) {
    const uint32_t count = static_cast<uint32_t>(smaller(kStateBlock, end - first));
    const uint64_t block = first / kStateBlock;
    update.fill(u, first, count);
    read_state(p, s.parameters, block, count);
    for (uint32_t i = 0; i < count; ++i)
      p[i] = static_cast<float>(s.keep * static_cast<double>(p[i]) - s.step * static_cast<double>(u[i]));
    write_state(s.parameters, p, s.rounding, RoundedPart::kParameter, block, count);
  }
}
REPRISE_LEVELS_OF(template <typename Update>, step_along, step_body,
                  (const Update& update, const Step& s, uint64_t begin, uint64_t end), (update, s, begin, end))

// Returns the sum of u^2 over the tensor. `sums` has space for kUpdatePieces numbers.
template <typename Update>
double sum_squares(const KernelContext& context, const Update& update, uint64_t elements, double* sums) {
  const Partition pieces = update_pieces(elements);
  parallel_for(*context.workers, pieces.count(), [&](uint32_t i) {
    sum_update(cpu_machine(context).level, update, pieces.begin(i), pieces.end(i), sums[i]);
  });
  return sum_of(sums, pieces.count());
}
template <typename Update>
void step_all(const KernelContext& context, const Update& update, const Step& step, uint64_t elements) {
  const Partition pieces = update_pieces(elements);
  parallel_for(*context.workers, pieces.count(), [&](uint32_t i) {
    step_along(cpu_machine(context).level, update, step, pieces.begin(i), pieces.end(i));
  });
}

// Has the interface of an update, but fill() writes the parameters themselves. So sum_squares() can
// also compute the sum of their squares.
struct Parameters {
  StateNumbers numbers;

  REPRISE_INLINE void fill(float* u, uint64_t first, uint32_t count) const {
    read_state(u, numbers, first / kStateBlock, count);
  }
};

// Products of matrices in f32, computed by the kernels of linear layers.
struct Products {
  const KernelContext& context;
  void* scratch;
  uint64_t scratch_bytes;

  // Computes y[M,K] = x[M,C] w, or x w^T if `transposed`.
  Status multiply(float* y, const float* x, const float* w, uint64_t M, uint64_t C, uint64_t K, bool transposed) const {
    return cpu_linear_forward<float>(context, {.y = y,
                                               .x = x,
                                               .w = w,
                                               .b = nullptr,
                                               .h = nullptr,
                                               .u = {},
                                               .scratch = scratch,
                                               .scratch_bytes = scratch_bytes,
                                               .M = M,
                                               .C = static_cast<uint32_t>(C),
                                               .K = static_cast<uint32_t>(K),
                                               .R = 0,
                                               .input_major = !transposed,
                                               .scale = 1});
  }
  // Computes y[K,C] = a^T x for a[M,K] and x[M,C].
  Status multiply_transposed(float* y, const float* a, const float* x, uint64_t M, uint64_t C, uint64_t K) const {
    return cpu_linear_backward_weight<float>(context, {.dw = y,
                                                       .x = x,
                                                       .dy = a,
                                                       .scratch = scratch,
                                                       .scratch_bytes = scratch_bytes,
                                                       .M = M,
                                                       .C = static_cast<uint32_t>(C),
                                                       .K = static_cast<uint32_t>(K),
                                                       .input_major = false,
                                                       .accumulate_dw = false});
  }
};

// ---- Adafactor ----

// Adafactor's update: the gradient times a factor of its row and a factor of its column. If the
// parameter is not a matrix, each gradient is divided by the square root of its own mean of
// squares.
struct FactoredUpdate {
  const float* gradients;
  const float *row_factors, *column_factors;  // null: `means` has a value for each element
  const float* means;
  uint64_t columns;
  float clip;

  struct Filler {
    const FactoredUpdate& of;
    float* u;
    uint64_t first;
    REPRISE_INLINE void run(uint32_t from, uint64_t row, uint64_t column, uint32_t n) const {
      const float* gradient = of.gradients + first + from;
      const float factor = of.row_factors[row] * of.clip;
      for (uint32_t i = 0; i < n; ++i) u[from + i] = gradient[i] * factor * of.column_factors[column + i];
    }
  };
  REPRISE_INLINE void fill(float* u, uint64_t first, uint32_t count) const {
    if (row_factors != nullptr) return for_each_run(first, count, columns, Filler{*this, u, first});
    for (uint32_t i = 0; i < count; ++i) u[i] = clip * gradients[first + i] / std::sqrt(means[first + i]);
  }
};

// A step of a mean of squares: mean = keep mean + gain (new mean + epsilon), in double.
struct MeanStep {
  double keep, gain, epsilon;
  float next(float mean, double fresh) const {
    return static_cast<float>(keep * static_cast<double>(mean) + gain * (fresh + epsilon));
  }
};

// The gradient as rows. Its squares are summed for each row, and, in the order of rows, for each
// column.
struct GradientRows {
  const float* gradients;
  uint64_t columns;
  double clip_square;
};
REPRISE_INLINE void sum_rows_body(const GradientRows& s, const MeanStep& step, float* row, double* column_sums,
                                  uint64_t begin, uint64_t end) {
  for (uint64_t c = 0; c < s.columns; ++c) column_sums[c] = 0;
  for (uint64_t r = begin; r < end; ++r) {
    const float* gradient = s.gradients + r * s.columns;
    SquareSums sums;
    sums.add(gradient, s.columns);
    for (uint64_t c = 0; c < s.columns; ++c)
      column_sums[c] += static_cast<double>(gradient[c]) * static_cast<double>(gradient[c]);
    row[r] = step.next(row[r], s.clip_square * sums.total() / static_cast<double>(s.columns));
  }
}
REPRISE_VECTOR_LEVELS(sum_rows, sum_rows_body,
                      (const GradientRows& s, const MeanStep& step, float* row, double* column_sums, uint64_t begin,
                       uint64_t end),
                      (s, step, row, column_sums, begin, end))

MeanStep mean_step(const AdafactorArgs& args) {
  const double gain = portable_power(static_cast<double>(args.scalars->step) + 1, -args.decay_power);
  return {.keep = 1 - gain, .gain = gain, .epsilon = static_cast<double>(args.epsilon)};
}

FactoredUpdate factor_matrix(const KernelContext& context, const AdafactorArgs& args, const AdafactorScratch& places) {
  const MeanStep step = mean_step(args);
  const float clip = args.scalars->clip_factor;
  const GradientRows squares = {args.gradients, args.columns, static_cast<double>(clip) * static_cast<double>(clip)};
  double* column_sums = at<double>(args.scratch, places.column_sums);
  const Partition chunks = update_rows(args.rows, args.columns);
  parallel_for(*context.workers, chunks.count(), [&](uint32_t i) {
    sum_rows(cpu_machine(context).level, squares, step, args.row, column_sums + i * args.columns, chunks.begin(i),
             chunks.end(i));
  });
  float *row_factors = at<float>(args.scratch, places.row_factors),
        *column_factors = at<float>(args.scratch, places.column_factors);
  for_each_piece(*context.workers, {args.columns, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    for (uint64_t c = begin; c < end; ++c) {
      double sum = 0;
      for (uint32_t i = 0; i < chunks.count(); ++i) sum += column_sums[i * args.columns + c];
      args.column[c] = step.next(args.column[c], squares.clip_square * sum / static_cast<double>(args.rows));
      column_factors[c] = static_cast<float>(1 / std::sqrt(static_cast<double>(args.column[c])));
    }
  });
  double mean = 0;
  for (uint64_t r = 0; r < args.rows; ++r) mean += static_cast<double>(args.row[r]);
  mean /= static_cast<double>(args.rows);
  for (uint64_t r = 0; r < args.rows; ++r)
    row_factors[r] = static_cast<float>(std::sqrt(mean / static_cast<double>(args.row[r])));
  return {args.gradients, row_factors, column_factors, nullptr, args.columns, clip};
}

FactoredUpdate mean_elements(const KernelContext& context, const AdafactorArgs& args) {
  const MeanStep step = mean_step(args);
  const float clip = args.scalars->clip_factor;
  for_each_piece(*context.workers, {args.rows * args.columns, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      const double g = static_cast<double>(clip) * static_cast<double>(args.gradients[i]);
      args.row[i] = step.next(args.row[i], g * g);
    }
  });
  return {args.gradients, nullptr, nullptr, args.row, args.columns, clip};
}

// ---- APOLLO ----

// Writes the projection, whose elements are +-1 / sqrt(rank). Each word of a draw gives 32 signs.
void draw_signs(const KernelContext& context, const ApolloArgs& args, uint64_t elements, float* projection) {
  const float size = static_cast<float>(1 / std::sqrt(static_cast<double>(args.rank)));
  const uint32_t round = args.scalars->step / args.period;
  for_each_piece(*context.workers, {elements, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    for (uint64_t first = begin; first < end; first += kProjectionSigns) {
      const PhiloxBlock draw =
          philox_update(args.scalars->seed, round, kProjectionPart, args.stream, first / kProjectionSigns);
      const uint64_t count = smaller(kProjectionSigns, end - first);
      for (uint32_t i = 0; i < count; ++i)
        projection[first + i] = (draw.word[i / 32] >> (i % 32) & 1u) != 0 ? size : -size;
    }
  });
}

// Computes R = g P [rows, r], or R = g^T P [columns, r] if there are fewer rows than columns.
Status project(const KernelContext& context, const ApolloArgs& args, const ApolloScratch& places) {
  const float* projection = at<float>(args.scratch, places.projection);
  float* projected = at<float>(args.scratch, places.projected);
  const Products products = {context, at<void>(args.scratch, places.product), places.product_bytes};
  if (args.rows < args.columns)
    return products.multiply_transposed(projected, args.gradients, projection, args.rows, args.rank, args.columns);
  return products.multiply(projected, args.gradients, projection, args.rows, args.columns, args.rank, false);
}

// Sums of squares over one channel: of Adam's step, which follows from the moments, and of the
// projected gradient R.
struct ChannelSums {
  double step = 0, projected = 0;
};
ChannelSums step_channel(const ApolloArgs& args, const float* projected, uint64_t first) {
  float *m = args.first_moments + first, *v = args.second_moments + first;
  const double clip = static_cast<double>(args.scalars->clip_factor);
  ChannelSums sums;
  for (uint32_t k = 0; k < args.rank; ++k) {
    const double r = clip * static_cast<double>(projected[first + k]);
    m[k] = static_cast<float>(static_cast<double>(m[k]) + (1 - args.beta1) * (r - static_cast<double>(m[k])));
    v[k] = static_cast<float>(args.beta2 * static_cast<double>(v[k]) + (1 - args.beta2) * r * r);
    const double step =
        static_cast<double>(m[k]) / (std::sqrt(static_cast<double>(v[k])) + static_cast<double>(args.epsilon));
    sums.step += step * step;
    sums.projected += r * r;
  }
  return sums;
}
float factor_of(const ChannelSums& sums) {
  return static_cast<float>(std::sqrt(sums.step) / (std::sqrt(sums.projected) + kApolloSmall));
}

void find_factors(const KernelContext& context, const ApolloArgs& args, const ApolloScratch& places) {
  const float* projected = at<float>(args.scratch, places.projected);
  float* factors = at<float>(args.scratch, places.factors);
  const uint64_t channels = larger(args.rows, args.columns);
  const Partition pieces = update_rows(channels, args.rank);
  double *step_sums = at<double>(args.scratch, places.sums), *projected_sums = step_sums + kUpdatePieces;
  parallel_for(*context.workers, pieces.count(), [&](uint32_t i) {
    ChannelSums all;
    for (uint64_t c = pieces.begin(i); c < pieces.end(i); ++c) {
      const ChannelSums own = step_channel(args, projected, c * args.rank);
      factors[c] = factor_of(own);
      all.step += own.step, all.projected += own.projected;
    }
    step_sums[i] = all.step, projected_sums[i] = all.projected;
  });
  if (!args.by_tensor) return;
  const float factor = factor_of({sum_of(step_sums, pieces.count()), sum_of(projected_sums, pieces.count())});
  for (uint64_t c = 0; c < channels; ++c) factors[c] = factor;
}

// APOLLO's update: the gradient times `scale`, times the factor of its channel. A channel is a row
// or a column.
struct ScaledUpdate {
  const float *gradients, *factors;
  uint64_t columns;
  bool by_row;
  float scale;

  struct Filler {
    const ScaledUpdate& of;
    float* u;
    uint64_t first;
    REPRISE_INLINE void run(uint32_t from, uint64_t row, uint64_t column, uint32_t n) const {
      const float* gradient = of.gradients + first + from;
      if (of.by_row) {
        const float factor = of.scale * of.factors[row];
        for (uint32_t i = 0; i < n; ++i) u[from + i] = gradient[i] * factor;
      } else {
        for (uint32_t i = 0; i < n; ++i) u[from + i] = gradient[i] * (of.scale * of.factors[column + i]);
      }
    }
  };
  REPRISE_INLINE void fill(float* u, uint64_t first, uint32_t count) const {
    for_each_run(first, count, columns, Filler{*this, u, first});
  }
};

// ---- Muon ----

REPRISE_INLINE void momentum_body(const MuonArgs& args, float* x, uint64_t begin, uint64_t end) {
  float m[kStateBlock];
  const double clip = static_cast<double>(args.scalars->clip_factor), momentum = static_cast<double>(args.momentum),
               gain = 1 - momentum;
  const StateRounding rounding = rounding_of(*args.scalars, args.stream);
  for (uint64_t first = begin; first < end; first += kStateBlock) {
    const uint32_t count = static_cast<uint32_t>(smaller(kStateBlock, end - first));
    read_state(m, args.momenta, first / kStateBlock, count);
    for (uint32_t i = 0; i < count; ++i) {
      const double g = clip * static_cast<double>(args.gradients[first + i]), old = static_cast<double>(m[i]);
      const double mean = old + gain * (g - old);
      m[i] = static_cast<float>(mean);
      x[first + i] = static_cast<float>(args.nesterov ? g + momentum * (mean - g) : mean);
    }
    write_state(args.momenta, m, rounding, RoundedPart::kFirstMoment, first / kStateBlock, count);
  }
}
REPRISE_VECTOR_LEVELS(step_momentum, momentum_body, (const MuonArgs& args, float* x, uint64_t begin, uint64_t end),
                      (args, x, begin, end))

// A tensor of f32 in memory, as an update.
struct Matrix {
  const float* numbers;

  REPRISE_INLINE void fill(float* u, uint64_t first, uint32_t count) const {
    std::memcpy(u, numbers + first, count * sizeof(float));
  }
};

// Computes to = a to + b other, in pieces.
void add_scaled(const KernelContext& context, float* to, double a, const float* other, double b, uint64_t elements) {
  for_each_piece(*context.workers, {elements, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i)
      to[i] = static_cast<float>(a * static_cast<double>(to[i]) + b * static_cast<double>(other[i]));
  });
}

// Replaces x by one Newton-Schulz step: a x + (b A + c A^2) x with A = x x^T and the numbers a, b,
// c of kMuonFactors. If there are more rows than columns: a x + x (b A + c A^2) with A = x^T x.
Status newton_schulz(const KernelContext& context, const MuonArgs& args, const MuonScratch& places) {
  const uint64_t rows = args.rows, columns = args.columns, side = smaller(rows, columns);
  const Products products = {context, at<void>(args.scratch, places.product), places.product_bytes};
  float *x = at<float>(args.scratch, places.x), *next = at<float>(args.scratch, places.next);
  float *square = at<float>(args.scratch, places.square), *factors = at<float>(args.scratch, places.factors);
  REPRISE_RETURN_IF_ERROR(rows > columns ? products.multiply_transposed(square, x, x, rows, columns, columns)
                                         : products.multiply(square, x, x, rows, columns, rows, true));
  REPRISE_RETURN_IF_ERROR(products.multiply(factors, square, square, side, side, side, true));
  add_scaled(context, factors, static_cast<double>(kMuonFactors[2]), square, static_cast<double>(kMuonFactors[1]),
             side * side);
  REPRISE_RETURN_IF_ERROR(rows > columns ? products.multiply(next, x, factors, rows, columns, columns, true)
                                         : products.multiply(next, factors, x, rows, rows, columns, false));
  add_scaled(context, x, static_cast<double>(kMuonFactors[0]), next, 1, rows * columns);
  return ok_status();
}

}  // namespace

Status cpu_adafactor_update(const KernelContext& context, const AdafactorArgs& args) {
  const StepScalars& s = *args.scalars;
  const AdafactorScratch places = adafactor_scratch({args.rows, args.columns}, args.column != nullptr);
  if (args.scratch_bytes < places.bytes) return kScratchTooSmall;
  if (s.skip != 0) return ok_status();
  const uint64_t elements = args.rows * args.columns;
  double* sums = at<double>(args.scratch, places.sums);
  const FactoredUpdate update =
      args.column != nullptr ? factor_matrix(context, args, places) : mean_elements(context, args);
  const double n = static_cast<double>(elements);
  const double scale = std::sqrt(sum_squares(context, Parameters{args.parameters}, elements, sums) / n);
  const double size = std::sqrt(sum_squares(context, update, elements, sums) / n);
  const double rate = static_cast<double>(s.learning_rate) * static_cast<double>(args.rate),
               cap = 1 / std::sqrt(static_cast<double>(s.step) + 1);
  const double minimum = static_cast<double>(args.min_scale), over = size / static_cast<double>(args.clip);
  const double scaled = scale > minimum ? scale : minimum, alpha = (!args.adalomo && cap < rate ? cap : rate) * scaled;
  const double decay = (args.adalomo ? alpha : rate) * static_cast<double>(args.weight_decay);
  step_all(context, update, step_of(args.parameters, s, args.stream, decay, alpha / (over > 1 ? over : 1.0)), elements);
  return ok_status();
}

Status cpu_apollo_update(const KernelContext& context, const ApolloArgs& args) {
  const StepScalars& s = *args.scalars;
  const ApolloScratch places = apollo_scratch({args.rows, args.columns}, args.rank, cpu_machine(context).size);
  if (args.scratch_bytes < places.bytes) return kScratchTooSmall;
  if (s.skip != 0) return ok_status();
  const uint64_t elements = args.rows * args.columns;
  draw_signs(context, args, smaller(args.rows, args.columns) * args.rank, at<float>(args.scratch, places.projection));
  REPRISE_RETURN_IF_ERROR(project(context, args, places));
  find_factors(context, args, places);
  const float scale =
      static_cast<float>(static_cast<double>(s.clip_factor) * std::sqrt(static_cast<double>(args.scale)));
  const ScaledUpdate update = {args.gradients, at<float>(args.scratch, places.factors), args.columns,
                               args.rows >= args.columns, scale};
  const double norm = std::sqrt(sum_squares(context, update, elements, at<double>(args.scratch, places.sums)));
  const double grown = norm / (static_cast<double>(*args.growth) + kApolloSmall);
  const double limit = *args.growth > 0 && grown > kApolloGrowth ? grown / kApolloGrowth : 1.0;
  *args.growth = static_cast<float>(norm / limit);
  const double rate = static_cast<double>(s.learning_rate) * static_cast<double>(args.rate);
  const double t = static_cast<double>(s.step) + 1,
               corrected = std::sqrt(1 - portable_power(args.beta2, t)) / (1 - portable_power(args.beta1, t));
  step_all(context, update,
           step_of(args.parameters, s, args.stream, rate * static_cast<double>(args.weight_decay),
                   rate * corrected / limit),
           elements);
  return ok_status();
}

Status cpu_muon_update(const KernelContext& context, const MuonArgs& args) {
  const StepScalars& s = *args.scalars;
  const MuonScratch places = muon_scratch({args.rows, args.columns}, cpu_machine(context).size);
  if (args.scratch_bytes < places.bytes) return kScratchTooSmall;
  if (s.skip != 0) return ok_status();
  const uint64_t elements = args.rows * args.columns;
  float* x = at<float>(args.scratch, places.x);
  for_each_piece(*context.workers, {elements, kBlockElements},
                 [&](uint64_t begin, uint64_t end) { step_momentum(cpu_machine(context).level, args, x, begin, end); });
  const double norm = std::sqrt(sum_squares(context, Matrix{x}, elements, at<double>(args.scratch, places.sums)));
  const double minimum = static_cast<double>(args.epsilon);
  add_scaled(context, x, 1 / (norm > minimum ? norm : minimum), x, 0, elements);
  for (uint32_t i = 0; i < kMuonSteps; ++i) REPRISE_RETURN_IF_ERROR(newton_schulz(context, args, places));
  const double rate = static_cast<double>(s.learning_rate), decay = rate * static_cast<double>(args.weight_decay);
  step_all(context, Matrix{x}, step_of(args.parameters, s, args.stream, decay, rate * static_cast<double>(args.rate)),
           elements);
  return ok_status();
}

}  // namespace reprise
