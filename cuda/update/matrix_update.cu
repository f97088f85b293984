// The updates of lib/ops/matrix_update.h: Adafactor, APOLLO and Muon. The counterpart of
// lib/cpu/update/matrix_update.cpp. First kSumBlocks blocks sum over the tensor. Then one pass
// changes the parameters by an update u, whose size follows from the sums. Every block of that pass
// adds the kSumBlocks sums itself, so no separate launch is needed for the total. Products of
// matrices use the kernels of linear layers.
#include "cuda/cuda_backend.h"
#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/grid.h"
#include "cuda/reduce.h"
#include "cuda/state_blocks.h"
#include "cuda/update/matrix_update_rules.h"

namespace reprise {
namespace {

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;
static_assert(kSumBlocks == kBlockThreads, "a thread takes a block's sum");

template <typename T>
T* at(void* scratch, uint64_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(scratch) + offset);
}

// Returns the total of the kSumBlocks sums to every thread.
template <typename Shared>
__device__ double whole_sum(Shared& shared, const double* sums) {
  return block_sum<kWarps>(shared, sums[threadIdx.x]);
}

__device__ inline double square(float x) { return static_cast<double>(x) * static_cast<double>(x); }

// ---- common: an update u, whose squares are summed and along which the parameters step ----

// Writes sums[block]: the sum of update.at(i)^2 over the elements of the block. The grid must have
// kSumBlocks blocks.
template <typename Update>
__global__ void __launch_bounds__(kBlockThreads)
    sum_update_squares(double* sums, const Update update, const StepScalars* scalars, uint64_t n) {
  REPRISE_SHARED(double, shared, kWarps);
  if (scalars->skip != 0) return;
  double sum = 0;
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) sum += square(update.at(i));
  sum = block_sum<kWarps>(shared, sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kBlockThreads)
sum_parameter_squares(double* sums, const StateNumbers parameters, const StepScalars* scalars, uint64_t n) {
  REPRISE_SHARED(double, shared, kWarps);
  if (scalars->skip != 0) return;
  double sum = 0;
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) {
    sum += square(parameters.type == DType::kBf16 ? float{static_cast<const Bf16*>(parameters.data)[i]}
                                                  : plain_numbers(parameters)[i]);
  }
  sum = block_sum<kWarps>(shared, sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// The arguments of step_along(), which computes p = keep * p - step * u in blocks of numbers.
struct Stepped {
  StateNumbers parameters;
  const StepScalars* scalars;
  uint64_t n;
  uint32_t stream;
};
template <typename Shared, typename Update>
__device__ void step_along(Shared& shared, const DynamicMaps& maps, const Stepped& s, const Update& update, double keep,
                           double step) {
  StateBlocks<Shared> blocks(shared, maps, rounding_of(*s.scalars, s.stream));
  const uint32_t drawn = drawn_bit(s.parameters, RoundedPart::kParameter);
  for (uint64_t block = blockIdx.x; block * kStateBlock < s.n; block += gridDim.x) {
    blocks.start(block, drawn);
    blocks.settle();
    const uint64_t i = block * kStateBlock + threadIdx.x;
    const bool is_there = i < s.n;
    const float p = blocks.read(s.parameters, block, is_there), u = is_there ? update.at(i) : 0;
    const double along = step * static_cast<double>(u);
    blocks.write(s.parameters, RoundedPart::kParameter, block, is_there,
                 static_cast<float>(fma(keep, static_cast<double>(p), -along)));
  }
}

constexpr uint32_t kStepGrid = 2048;
uint32_t step_grid(uint64_t n) { return static_cast<uint32_t>(maximum(1, minimum(parts(n, kStateBlock), kStepGrid))); }

// Multiplies matrices with the kernels of linear layers. The products are always in f32, because
// the plan's math is only for products of activations and weights.
struct Products {
  void* scratch;
  uint64_t scratch_bytes;
  CudaMachine machine = {};
  KernelContext context;

  Products(const KernelContext& of_row, void* scratch_of_row, uint64_t bytes)
      : scratch(scratch_of_row), scratch_bytes(bytes), context(of_row) {
    if (of_row.machine != nullptr) machine = *static_cast<const CudaMachine*>(of_row.machine);
    machine.math = ProductMath::kF32;
    context.machine = &machine;
  }
  Products(const Products&) = delete;

  // Computes y[M,K] = x[M,C] w[C,K], or x w^T with w[K,C] if `transposed`.
  Status multiply(float* y, const float* x, const float* w, uint64_t M, uint64_t C, uint64_t K, bool transposed) const {
    return cuda_linear_forward<float>(context, {.y = y,
                                                .x = x,
                                                .w = w,
                                                .b = nullptr,
                                                .h = nullptr,
                                                .u = {},
                                                .scratch = nullptr,
                                                .scratch_bytes = 0,
                                                .M = M,
                                                .C = static_cast<uint32_t>(C),
                                                .K = static_cast<uint32_t>(K),
                                                .R = 0,
                                                .input_major = !transposed,
                                                .scale = 1});
  }
  // Computes y[K,C] = a^T x, with a[M,K] and x[M,C].
  Status multiply_transposed(float* y, const float* a, const float* x, uint64_t M, uint64_t C, uint64_t K) const {
    return cuda_linear_backward_weight<float>(context, {.dw = y,
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

// Returns the next mean of squares. `gain` is the weight of the new square `fresh`: t^-decay_power.
__device__ inline float next_mean(float mean, double fresh, double gain, double epsilon) {
  return static_cast<float>(fma(gain, fresh + epsilon, (1 - gain) * static_cast<double>(mean)));
}

struct FactoredUpdate {
  const float* gradients;
  const float *row_factors, *column_factors;  // [rows], [columns]; null if `means` has a mean for each element
  const float* means;
  const StepScalars* scalars;
  uint64_t columns;

  __device__ float at(uint64_t i) const {
    const float g = scalars->clip_factor * gradients[i];
    if (row_factors == nullptr) return g / sqrtf(means[i]);
    return g * row_factors[i / columns] * column_factors[i % columns];
  }
};

struct MeanStep {
  double power, epsilon;
  const StepScalars* scalars;

  // Returns t^-power, as e^(-power log t). t is the number of the step, from 1 on.
  __device__ double gain() const {
    const double t = static_cast<double>(scalars->step) + 1, exponent = -power * device_log(t);
    // e^x = (e^(x / 2^10))^(2^10), in double. A short series suffices for the small exponent.
    const double small = exponent / 1024;
    double e = 1;
    for (uint32_t k = 12; k > 0; --k) e = fma(e, small / k, 1.0);
    for (uint32_t k = 0; k < 10; ++k) e *= e;
    return e;
  }
};

// Updates `row`, the means of squares over each row of the gradients. A block processes one row at
// a time.
__global__ void __launch_bounds__(kBlockThreads)
mean_rows(float* row, const float* gradients, const MeanStep step, uint64_t rows, uint64_t columns) {
  REPRISE_SHARED(double, shared, kWarps);
  if (step.scalars->skip != 0) return;
  const double gain = step.gain(), clip = square(step.scalars->clip_factor);
  for (uint64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    double sum = 0;
    for (uint64_t c = threadIdx.x; c < columns; c += kBlockThreads) sum += square(gradients[r * columns + c]);
    sum = block_sum<kWarps>(shared, sum);
    if (threadIdx.x == 0) row[r] = next_mean(row[r], clip * sum / static_cast<double>(columns), gain, step.epsilon);
  }
}

// Writes sums[chunk][column], the sums of squares. A thread sums one column of a chunk.
__global__ void __launch_bounds__(kBlockThreads)
    sum_column_squares(float* sums, const float* gradients, const StepScalars* scalars, const CudaRowChunks chunks,
                       uint64_t columns) {
  if (scalars->skip != 0) return;
  const uint32_t chunk = blockIdx.y;
  for (uint64_t c = grid_thread(); c < columns; c += grid_threads()) {
    double sum = 0;
    for (uint64_t r = chunks.begin(chunk); r < chunks.end(chunk); ++r) sum += square(gradients[r * columns + c]);
    sums[chunk * columns + c] = static_cast<float>(sum);
  }
}
__global__ void __launch_bounds__(kBlockThreads)
    mean_columns(float* column, float* factors, const float* sums, const MeanStep step, const CudaRowChunks chunks,
                 uint64_t columns) {
  if (step.scalars->skip != 0) return;
  const double gain = step.gain(), clip = square(step.scalars->clip_factor);
  for (uint64_t c = grid_thread(); c < columns; c += grid_threads()) {
    double sum = 0;
    for (uint32_t k = 0; k < chunks.count(); ++k) sum += static_cast<double>(sums[k * columns + c]);
    column[c] = next_mean(column[c], clip * sum / static_cast<double>(chunks.M), gain, step.epsilon);
    factors[c] = static_cast<float>(1 / sqrt(static_cast<double>(column[c])));
  }
}
// Computes the mean of all elements of `row`. Runs as one block.
__global__ void __launch_bounds__(kBlockThreads)
    mean_of_rows(double* mean, const float* row, const StepScalars* scalars, uint64_t rows) {
  REPRISE_SHARED(double, shared, kWarps);
  if (scalars->skip != 0) return;
  double sum = 0;
  for (uint64_t r = threadIdx.x; r < rows; r += kBlockThreads) sum += static_cast<double>(row[r]);
  sum = block_sum<kWarps>(shared, sum);
  if (threadIdx.x == 0) *mean = sum / static_cast<double>(rows);
}
__global__ void __launch_bounds__(kBlockThreads)
factor_rows(float* factors, const float* row, const double* mean, const StepScalars* scalars, uint64_t rows) {
  if (scalars->skip != 0) return;
  for (uint64_t r = grid_thread(); r < rows; r += grid_threads())
    factors[r] = static_cast<float>(sqrt(*mean / static_cast<double>(row[r])));
}
__global__ void __launch_bounds__(kBlockThreads)
    mean_elements(float* means, const float* gradients, const MeanStep step, uint64_t n) {
  if (step.scalars->skip != 0) return;
  const double gain = step.gain(), clip = square(step.scalars->clip_factor);
  for (uint64_t i = grid_thread(); i < n; i += grid_threads())
    means[i] = next_mean(means[i], clip * square(gradients[i]), gain, step.epsilon);
}

__global__ void __launch_bounds__(kBlockThreads)
    adafactor_step(const AdafactorArgs args, const FactoredUpdate update, const double* of_parameters,
                   const double* of_update, const DynamicMaps maps) {
  REPRISE_SHARED(float, shared, kStateShared);
  REPRISE_SHARED(double, sums, kWarps);
  const StepScalars& s = *args.scalars;
  if (s.skip != 0) return;
  const uint64_t n = args.rows * args.columns;
  const double scale = sqrt(whole_sum(sums, of_parameters) / static_cast<double>(n)),
               size = sqrt(whole_sum(sums, of_update) / static_cast<double>(n));
  const double rate = static_cast<double>(s.learning_rate) * static_cast<double>(args.rate),
               cap = 1 / sqrt(static_cast<double>(s.step) + 1);
  const double min_scale = static_cast<double>(args.min_scale), over = size / static_cast<double>(args.clip);
  const double scaled = scale > min_scale ? scale : min_scale,
               alpha = (!args.adalomo && cap < rate ? cap : rate) * scaled;
  const double decay = (args.adalomo ? alpha : rate) * static_cast<double>(args.weight_decay);
  step_along(shared, maps, {args.parameters, args.scalars, n, args.stream}, update, 1 - decay,
             alpha / (over > 1 ? over : 1.0));
}

void find_factors(const KernelContext& context, const AdafactorArgs& args, const CudaAdafactorScratch& places,
                  const MeanStep& step) {
  const CudaRowChunks chunks = update_row_chunks(args.rows);
  float *column_sums = at<float>(args.scratch, places.column_sums),
        *row_factors = at<float>(args.scratch, places.row_factors);
  double* mean = at<double>(args.scratch, places.mean);
  const uint32_t column_blocks = blocks_for(args.columns);
  REPRISE_LAUNCH(mean_rows, static_cast<uint32_t>(minimum(args.rows, kMaxBlocks)), kBlockThreads, context.queue,
                 args.row, args.gradients, step, args.rows, args.columns);
  REPRISE_LAUNCH(sum_column_squares, grid_of(column_blocks, chunks.count()), kBlockThreads, context.queue, column_sums,
                 args.gradients, args.scalars, chunks, args.columns);
  REPRISE_LAUNCH(mean_columns, column_blocks, kBlockThreads, context.queue, args.column,
                 at<float>(args.scratch, places.column_factors), column_sums, step, chunks, args.columns);
  REPRISE_LAUNCH(mean_of_rows, 1, kBlockThreads, context.queue, mean, args.row, args.scalars, args.rows);
  REPRISE_LAUNCH(factor_rows, blocks_for(args.rows), kBlockThreads, context.queue, row_factors, args.row, mean,
                 args.scalars, args.rows);
}

// ---- APOLLO ----

__global__ void __launch_bounds__(kBlockThreads) draw_signs(float* projection, const ApolloArgs args, uint64_t n) {
  if (args.scalars->skip != 0) return;
  const float size = static_cast<float>(1 / sqrt(static_cast<double>(args.rank)));
  for (uint64_t d = grid_thread(); d * kProjectionSigns < n; d += grid_threads()) {
    const PhiloxBlock draw =
        philox_update(args.scalars->seed, args.scalars->step / args.period, kProjectionPart, args.stream, d);
    for (uint32_t w = 0; w < 4; ++w) {
      for (uint32_t b = 0; b < 32; ++b) {
        const uint64_t i = d * kProjectionSigns + w * 32 + b;
        if (i < n) projection[i] = (draw.word[w] >> b & 1u) != 0 ? size : -size;
      }
    }
  }
}

// Computes the projected gradients: g P [rows, rank], or g^T P [columns, rank] if there are fewer
// rows than columns.
Status project(const KernelContext& context, const ApolloArgs& args, const CudaApolloScratch& places) {
  const float* projection = at<float>(args.scratch, places.projection);
  float* projected = at<float>(args.scratch, places.projected);
  const Products products(context, at<void>(args.scratch, places.product), places.bytes - places.product);
  if (args.rows < args.columns)
    return products.multiply_transposed(projected, args.gradients, projection, args.rows, args.rank, args.columns);
  return products.multiply(projected, args.gradients, projection, args.rows, args.columns, args.rank, false);
}

__device__ inline float factor_of(double step, double projected) {
  return static_cast<float>(sqrt(step) / (sqrt(projected) + kApolloSmall));
}

// Updates the moments of the projected gradients, and computes the factor of each channel. A thread
// processes one channel at a time. The grid must have kSumBlocks blocks.
__global__ void __launch_bounds__(kBlockThreads)
    step_channels(float* factors, double* of_steps, double* of_projected, const float* projected, const ApolloArgs args,
                  uint64_t channels) {
  REPRISE_SHARED(double, shared, kWarps);
  if (args.scalars->skip != 0) return;
  const float clip = args.scalars->clip_factor, gain1 = static_cast<float>(1 - args.beta1),
              gain2 = static_cast<float>(1 - args.beta2);
  const float beta2 = static_cast<float>(args.beta2);
  double steps = 0, projections = 0;
  for (uint64_t c = grid_thread(); c < channels; c += grid_threads()) {
    double own_steps = 0, own_projections = 0;
    for (uint64_t i = c * args.rank; i < (c + 1) * args.rank; ++i) {
      const float r = clip * projected[i], old = args.first_moments[i];
      const float m = fmaf(gain1, r - old, old), v = fmaf(beta2, args.second_moments[i], gain2 * (r * r));
      args.first_moments[i] = m;
      args.second_moments[i] = v;
      own_steps += square(m / (sqrtf(v) + args.epsilon));
      own_projections += square(r);
    }
    factors[c] = factor_of(own_steps, own_projections);
    steps += own_steps;
    projections += own_projections;
  }
  steps = block_sum<kWarps>(shared, steps);
  projections = block_sum<kWarps>(shared, projections);
  if (threadIdx.x == 0) of_steps[blockIdx.x] = steps, of_projected[blockIdx.x] = projections;
}
// Sets the factors of all channels to the factor of the whole tensor.
__global__ void __launch_bounds__(kBlockThreads)
    level_factors(float* factors, const double* of_steps, const double* of_projected, const StepScalars* scalars,
                  uint64_t channels) {
  REPRISE_SHARED(double, shared, kWarps);
  if (scalars->skip != 0) return;
  const double steps = whole_sum(shared, of_steps), projections = whole_sum(shared, of_projected);
  for (uint64_t c = grid_thread(); c < channels; c += grid_threads()) factors[c] = factor_of(steps, projections);
}

struct ScaledUpdate {
  const float *gradients, *factors;
  const StepScalars* scalars;
  uint64_t columns;
  bool by_row;
  float scale;

  __device__ float at(uint64_t i) const {
    return scalars->clip_factor * gradients[i] * (scale * factors[by_row ? i / columns : i % columns]);
  }
};

struct Growth {
  double norm, limit;
};
template <typename Shared>
__device__ Growth growth_of(Shared& shared, const double* of_update, float before) {
  const double norm = sqrt(whole_sum(shared, of_update)), grown = norm / (static_cast<double>(before) + kApolloSmall);
  return {norm, before > 0 && grown > kApolloGrowth ? grown / kApolloGrowth : 1.0};
}

__global__ void __launch_bounds__(kBlockThreads)
apollo_step(const ApolloArgs args, const ScaledUpdate update, const double* of_update, const DynamicMaps maps) {
  REPRISE_SHARED(float, shared, kStateShared);
  REPRISE_SHARED(double, sums, kWarps);
  const StepScalars& s = *args.scalars;
  if (s.skip != 0) return;
  const Growth growth = growth_of(sums, of_update, *args.growth);
  const uint64_t t = uint64_t{s.step} + 1;
  const double rate = static_cast<double>(s.learning_rate) * static_cast<double>(args.rate);
  const double corrected = sqrt(1 - device_power(args.beta2, t)) / (1 - device_power(args.beta1, t));
  step_along(shared, maps, {args.parameters, args.scalars, args.rows * args.columns, args.stream}, update,
             1 - rate * static_cast<double>(args.weight_decay), rate * corrected / growth.limit);
}
// Stores the norm of the update, after its growth is limited. Runs as one block, after every block
// of apollo_step() has read the earlier norm.
__global__ void __launch_bounds__(kBlockThreads)
    note_growth(float* growth, const double* of_update, const StepScalars* scalars) {
  REPRISE_SHARED(double, shared, kWarps);
  if (scalars->skip != 0) return;
  const Growth now = growth_of(shared, of_update, *growth);
  if (threadIdx.x == 0) *growth = static_cast<float>(now.norm / now.limit);
}

// ---- Muon ----

__global__ void __launch_bounds__(kBlockThreads) step_momentum(float* x, const MuonArgs args, const DynamicMaps maps) {
  REPRISE_SHARED(float, shared, kStateShared);
  if (args.scalars->skip != 0) return;
  StateBlocks<decltype(shared)> blocks(shared, maps, rounding_of(*args.scalars, args.stream));
  const uint32_t drawn = drawn_bit(args.momenta, RoundedPart::kFirstMoment);
  const double clip = static_cast<double>(args.scalars->clip_factor), momentum = static_cast<double>(args.momentum);
  const uint64_t n = args.rows * args.columns;
  for (uint64_t block = blockIdx.x; block * kStateBlock < n; block += gridDim.x) {
    blocks.start(block, drawn);
    blocks.settle();
    const uint64_t i = block * kStateBlock + threadIdx.x;
    const bool is_there = i < n;
    const double old = static_cast<double>(blocks.read(args.momenta, block, is_there)),
                 g = is_there ? clip * static_cast<double>(args.gradients[i]) : 0;
    const double mean = fma(1 - momentum, g - old, old);
    if (is_there) x[i] = static_cast<float>(args.nesterov ? fma(momentum, mean - g, g) : mean);
    blocks.write(args.momenta, RoundedPart::kFirstMoment, block, is_there, static_cast<float>(mean));
  }
}

struct Matrix {
  const float* numbers;
  __device__ float at(uint64_t i) const { return numbers[i]; }
};

__global__ void __launch_bounds__(kBlockThreads)
divide_by_norm(float* x, const double* sums, double min_norm, const StepScalars* scalars, uint64_t n) {
  REPRISE_SHARED(double, shared, kWarps);
  if (scalars->skip != 0) return;
  const double norm = sqrt(whole_sum(shared, sums)), divisor = norm > min_norm ? norm : min_norm;
  for (uint64_t i = grid_thread(); i < n; i += grid_threads())
    x[i] = static_cast<float>(static_cast<double>(x[i]) / divisor);
}

// Computes to = a * to + b * other.
__global__ void __launch_bounds__(kBlockThreads)
    add_scaled(float* to, float a, const float* other, float b, const StepScalars* scalars, uint64_t n) {
  if (scalars->skip != 0) return;
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) to[i] = fmaf(a, to[i], b * other[i]);
}

__global__ void __launch_bounds__(kBlockThreads)
    muon_step(const MuonArgs args, const float* x, const DynamicMaps maps) {
  REPRISE_SHARED(float, shared, kStateShared);
  const StepScalars& s = *args.scalars;
  if (s.skip != 0) return;
  const double rate = static_cast<double>(s.learning_rate);
  step_along(shared, maps, {args.parameters, args.scalars, args.rows * args.columns, args.stream}, Matrix{x},
             1 - rate * static_cast<double>(args.weight_decay), rate * static_cast<double>(args.rate));
}

// Applies one Newton-Schulz step to x.
Status newton_schulz(const KernelContext& context, const MuonArgs& args, const CudaMuonScratch& places) {
  const uint64_t rows = args.rows, columns = args.columns, side = minimum(rows, columns);
  const Products products(context, at<void>(args.scratch, places.product), places.bytes - places.product);
  float *x = at<float>(args.scratch, places.x), *next = at<float>(args.scratch, places.next);
  float *squared = at<float>(args.scratch, places.square), *factors = at<float>(args.scratch, places.factors);
  REPRISE_RETURN_IF_ERROR(rows > columns ? products.multiply_transposed(squared, x, x, rows, columns, columns)
                                         : products.multiply(squared, x, x, rows, columns, rows, true));
  REPRISE_RETURN_IF_ERROR(products.multiply(factors, squared, squared, side, side, side, true));
  REPRISE_LAUNCH(add_scaled, blocks_for(side * side), kBlockThreads, context.queue, factors, kMuonFactors[2], squared,
                 kMuonFactors[1], args.scalars, side * side);
  REPRISE_RETURN_IF_ERROR(rows > columns ? products.multiply(next, x, factors, rows, columns, columns, true)
                                         : products.multiply(next, factors, x, rows, rows, columns, false));
  REPRISE_LAUNCH(add_scaled, blocks_for(rows * columns), kBlockThreads, context.queue, x, kMuonFactors[0], next, 1.0f,
                 args.scalars, rows * columns);
  return launch_status();
}

}  // namespace

Status cuda_adafactor_update(const KernelContext& context, const AdafactorArgs& args) {
  const CudaAdafactorScratch places = cuda_adafactor_scratch({args.rows, args.columns}, args.column != nullptr);
  const MeanStep step = {args.decay_power, static_cast<double>(args.epsilon), args.scalars};
  const uint64_t n = args.rows * args.columns;
  FactoredUpdate update = {args.gradients, nullptr, nullptr, args.row, args.scalars, args.columns};
  if (args.column != nullptr) {
    find_factors(context, args, places, step);
    update.row_factors = at<float>(args.scratch, places.row_factors);
    update.column_factors = at<float>(args.scratch, places.column_factors);
  } else {
    REPRISE_LAUNCH(mean_elements, blocks_for(n), kBlockThreads, context.queue, args.row, args.gradients, step, n);
  }
  double *of_parameters = at<double>(args.scratch, places.of_parameters),
         *of_update = at<double>(args.scratch, places.of_update);
  REPRISE_LAUNCH(sum_parameter_squares, kSumBlocks, kBlockThreads, context.queue, of_parameters, args.parameters,
                 args.scalars, n);
  REPRISE_LAUNCH(sum_update_squares<FactoredUpdate>, kSumBlocks, kBlockThreads, context.queue, of_update, update,
                 args.scalars, n);
  REPRISE_LAUNCH(adafactor_step, step_grid(n), kBlockThreads, context.queue, args, update, of_parameters, of_update,
                 kDynamicMaps);
  return launch_status();
}

Status cuda_apollo_update(const KernelContext& context, const ApolloArgs& args) {
  const CudaApolloScratch places = cuda_apollo_scratch({args.rows, args.columns}, args.rank, card_size(context));
  const uint64_t n = args.rows * args.columns, channels = maximum(args.rows, args.columns),
                 signs = minimum(args.rows, args.columns) * args.rank;
  float* factors = at<float>(args.scratch, places.factors);
  double *of_steps = at<double>(args.scratch, places.of_steps),
         *of_projected = at<double>(args.scratch, places.of_projected);
  double* of_update = at<double>(args.scratch, places.of_update);
  REPRISE_LAUNCH(draw_signs, blocks_for(parts(signs, kProjectionSigns)), kBlockThreads, context.queue,
                 at<float>(args.scratch, places.projection), args, signs);
  REPRISE_RETURN_IF_ERROR(project(context, args, places));
  REPRISE_LAUNCH(step_channels, kSumBlocks, kBlockThreads, context.queue, factors, of_steps, of_projected,
                 at<float>(args.scratch, places.projected), args, channels);
  if (args.by_tensor) {
    REPRISE_LAUNCH(level_factors, blocks_for(channels), kBlockThreads, context.queue, factors, of_steps, of_projected,
                   args.scalars, channels);
  }
  const ScaledUpdate update = {args.gradients, factors, args.scalars, args.columns, args.rows >= args.columns,
                               static_cast<float>(std::sqrt(static_cast<double>(args.scale)))};
  REPRISE_LAUNCH(sum_update_squares<ScaledUpdate>, kSumBlocks, kBlockThreads, context.queue, of_update, update,
                 args.scalars, n);
  REPRISE_LAUNCH(apollo_step, step_grid(n), kBlockThreads, context.queue, args, update, of_update, kDynamicMaps);
  REPRISE_LAUNCH(note_growth, 1, kBlockThreads, context.queue, args.growth, of_update, args.scalars);
  return launch_status();
}

Status cuda_muon_update(const KernelContext& context, const MuonArgs& args) {
  const CudaMuonScratch places = cuda_muon_scratch({args.rows, args.columns}, card_size(context));
  const uint64_t n = args.rows * args.columns;
  float* x = at<float>(args.scratch, places.x);
  double* sums = at<double>(args.scratch, places.sums);
  REPRISE_LAUNCH(step_momentum, step_grid(n), kBlockThreads, context.queue, x, args, kDynamicMaps);
  REPRISE_LAUNCH(sum_update_squares<Matrix>, kSumBlocks, kBlockThreads, context.queue, sums, Matrix{x}, args.scalars,
                 n);
  REPRISE_LAUNCH(divide_by_norm, blocks_for(n), kBlockThreads, context.queue, x, sums,
                 static_cast<double>(args.epsilon), args.scalars, n);
  for (uint32_t i = 0; i < kMuonSteps; ++i) REPRISE_RETURN_IF_ERROR(newton_schulz(context, args, places));
  REPRISE_LAUNCH(muon_step, step_grid(n), kBlockThreads, context.queue, args, x, kDynamicMaps);
  return launch_status();
}

}  // namespace reprise
