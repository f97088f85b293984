// The loss head: logits, softmax cross-entropy and their gradients in one loop over chunks of rows.
// Here as the twin of lib/cpu/loss_head.cpp: the matrix of all logits never exists (SPEED 8.5). Its products are plain tiles in f32 and do
// not use the tensor cores.
#include "cuda/cuda_kernels.h"
#include "cuda/data_fault.h"
#include "cuda/device_math.h"
#include "cuda/grid.h"
#include "cuda/loss_head_rules.h"
#include "cuda/loss_scalars.h"
#include "cuda/reduce.h"
#include "cuda/weight_format.h"

namespace reprise {
namespace {

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;

// ---- products: out[i,j] = sum over k of a(i,k) b(j,k), in the order of k ----

// Element (i, k) of an operand, which may be stored either way round.
template <typename Stored>
struct Matrix {
  const Stored* data;
  uint64_t row, column;

  __device__ float at(uint64_t i, uint64_t k) const { return data[i * row + k * column]; }
};
struct WeightMatrix {
  Weight weight;
  uint64_t row, column;

  __device__ float at(uint64_t i, uint64_t k) const { return decode_weight(weight, i * row + k * column); }
};
template <typename Stored>
struct ProductOutput {
  Stored* data;        // [I,J]
  const float* bias;   // [J] or null
  bool accumulate;
};
struct HeadProduct {
  uint64_t I, J, K;
};

constexpr uint32_t kTile = 64, kDepth = 16, kEdge = 4;  // of out by a block; of k at a time; of out by a thread
static_assert(kTile / kEdge * (kTile / kEdge) == kBlockThreads);

// shared[k][i] = operand(first_i + i, first_k + k), 0 outside. Neighbouring threads read neighbouring elements.
template <typename Shared, typename Operand>
__device__ void load_tile(Shared& shared, const Operand& operand, uint64_t first_i, uint64_t I, uint64_t first_k, uint64_t K) {
  for (uint32_t e = threadIdx.x; e < kTile * kDepth; e += kBlockThreads) {
    const uint32_t i = operand.column == 1 ? e / kDepth : e % kTile, k = operand.column == 1 ? e % kDepth : e / kTile;
    const bool inside = first_i + i < I && first_k + k < K;
    shared[k * (kTile + 1) + i] = inside ? operand.at(first_i + i, first_k + k) : 0.0f;
  }
}

template <typename A, typename B, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    tile_of_product(const ProductOutput<Stored> out, const A a, const B b, const HeadProduct shape) {
  REPRISE_SHARED(float, of_a, kDepth * (kTile + 1));
  REPRISE_SHARED(float, of_b, kDepth * (kTile + 1));
  const uint64_t tiles = parts(shape.J, kTile), first_i = blockIdx.x / tiles * kTile, first_j = blockIdx.x % tiles * kTile;
  const uint32_t i = threadIdx.x / (kTile / kEdge), j = threadIdx.x % (kTile / kEdge);  // and every 16th from there
  constexpr uint32_t kStep = kTile / kEdge;
  float sums[kEdge][kEdge] = {};
  for (uint64_t first_k = 0; first_k < shape.K; first_k += kDepth) {
    load_tile(of_a, a, first_i, shape.I, first_k, shape.K);
    load_tile(of_b, b, first_j, shape.J, first_k, shape.K);
    __syncthreads();
    const auto depth = static_cast<uint32_t>(least(kDepth, shape.K - first_k));
    for (uint32_t k = 0; k < depth; ++k) {
      float column[kEdge], row[kEdge];
      REPRISE_UNROLL
      for (uint32_t e = 0; e < kEdge; ++e) {
        column[e] = of_a[k * (kTile + 1) + i + e * kStep];
        row[e] = of_b[k * (kTile + 1) + j + e * kStep];
      }
      REPRISE_UNROLL
      for (uint32_t r = 0; r < kEdge; ++r) {
        REPRISE_UNROLL
        for (uint32_t c = 0; c < kEdge; ++c) sums[r][c] = fmaf(column[r], row[c], sums[r][c]);
      }
    }
    __syncthreads();
  }
  REPRISE_UNROLL
  for (uint32_t r = 0; r < kEdge; ++r) {
    REPRISE_UNROLL
    for (uint32_t c = 0; c < kEdge; ++c) {
      const uint64_t at_i = first_i + i + r * kStep, at_j = first_j + j + c * kStep;
      if (at_i >= shape.I || at_j >= shape.J) continue;
      Stored& to = out.data[at_i * shape.J + at_j];
      const float sum = out.bias != nullptr ? sums[r][c] + out.bias[at_j] : sums[r][c];
      to = out.accumulate ? float{to} + sum : sum;
    }
  }
}

template <typename A, typename B, typename Stored>
Status launch_product(const KernelContext& context, const ProductOutput<Stored>& out, const A& a, const B& b, const HeadProduct& shape) {
  const uint64_t blocks = parts(shape.I, kTile) * parts(shape.J, kTile);
  REPRISE_LAUNCH((tile_of_product<A, B, Stored>), static_cast<uint32_t>(blocks), kBlockThreads, context.queue, out, a, b, shape);
  return launch_status();
}

// ---- labels ----

struct Labels {
  const int32_t* at;  // [M]
  uint64_t M;
  uint32_t V;
  const float* row_weights;  // [M] or null: all rows are alike

  __device__ bool is_class(uint64_t i) const { return at[i] >= 0 && static_cast<uint32_t>(at[i]) < V; }
};

// *labelled = the rows with a label; 0 where one is no class, which is a fault.
__global__ void __launch_bounds__(kBlockThreads) count_labels(uint64_t* labelled, StepScalars* scalars, uint32_t row, const Labels labels) {
  REPRISE_SHARED(uint64_t, shared, kWarps);
  uint64_t count = 0, first_bad = kNoFault;
  for (uint64_t i = threadIdx.x; i < labels.M; i += kBlockThreads) {
    if (labels.at[i] == kIgnoredLabel) continue;
    ++count;
    if (first_bad == kNoFault && !labels.is_class(i)) first_bad = i;
  }
  count = block_sum<kWarps>(shared, count);
  first_bad = block_min<kWarps>(shared, first_bad);
  if (threadIdx.x != 0) return;
  *labelled = first_bad == kNoFault ? count : 0;
  note_fault(scalars, DataFault::kLabel, row, first_bad);
}

// ---- softmax and loss: a block takes a row ----

constexpr uint32_t kOneWarpClasses = 1024;  // up to so many a block is a single warp

struct RowResults {
  float softcap;             // of the logits; 0: none
  float* logits;             // [rows,V] of the chunk
  double* losses;            // [rows]
  uint32_t* hits;            // [rows]: 1 where the label is predicted; only evaluation asks
  const uint64_t* labelled;  // of all rows
};

// The largest over the block; NaN counts for nothing here, its exponential makes the row's loss NaN.
template <uint32_t kRowWarps, typename Shared>
__device__ float row_maximum(Shared& shared, const float* logits, uint32_t V) {
  float maximum = -__builtin_inff();
  for (uint32_t v = threadIdx.x; v < V; v += kRowWarps * kWarpLanes) maximum = logits[v] > maximum ? logits[v] : maximum;
  maximum = warp_max(maximum);
  if (lane_index() == 0) shared[warp_index()] = maximum;
  __syncthreads();
  for (uint32_t w = 0; w < kRowWarps; ++w) {
    const float other = shared[w];
    maximum = other > maximum ? other : maximum;
  }
  return maximum;
}

// logits[v] becomes softcap tanh(logits[v] / softcap).
template <uint32_t kRowWarps>
__device__ void cap_logits(float* logits, uint32_t V, float softcap) {
  for (uint32_t v = threadIdx.x; v < V; v += kRowWarps * kWarpLanes) logits[v] = softcap * device_tanh(logits[v] / softcap);
  __syncthreads();
}

// logits[v] becomes e^(logits[v] - maximum), or stays where it is still needed. Returns the sum of the exponentials.
template <uint32_t kRowWarps, typename Shared>
__device__ double exponentiate(Shared& shared, float* logits, uint32_t V, float maximum, bool stays) {
  constexpr uint32_t kRun = 64;  // exponentials that a thread sums in f32 before a double takes over
  double total = 0;
  float sum = 0;
  uint32_t run = 0;
  for (uint32_t v = threadIdx.x; v < V; v += kRowWarps * kWarpLanes) {
    const float e = device_exp(logits[v] - maximum);
    if (!stays) logits[v] = e;
    sum += e;
    if (++run == kRun) total += static_cast<double>(sum), sum = 0, run = 0;
  }
  return block_sum<kRowWarps>(shared, total + static_cast<double>(sum));
}

// Of several largest logits the first one is what the row predicts.
template <uint32_t kRowWarps, typename Shared>
__device__ bool is_first_maximum(Shared& shared, const float* logits, uint32_t target, float maximum) {
  double earlier = 0;
  for (uint32_t v = threadIdx.x; v < target; v += kRowWarps * kWarpLanes) earlier += logits[v] == maximum ? 1 : 0;
  return block_sum<kRowWarps>(shared, earlier) == 0 && logits[target] == maximum;
}

// Logits become gradients of the loss; zeros where the row has no label. Without gradients losses and hits are all that is asked for.
template <uint32_t kRowWarps>
__global__ void __launch_bounds__(kRowWarps* kWarpLanes)
    row_losses(const RowResults results, const Labels labels, uint64_t first, const StepScalars* scalars, bool gradients) {
  REPRISE_SHARED(double, shared, kRowWarps);
  REPRISE_SHARED(float, maxima, kRowWarps);
  const uint32_t V = labels.V;
  float* logits = results.logits + uint64_t{blockIdx.x} * V;
  const uint64_t row = first + blockIdx.x, labelled = *results.labelled;
  if (labelled == 0 || !labels.is_class(row)) {
    for (uint32_t v = threadIdx.x; v < V; v += kRowWarps * kWarpLanes) logits[v] = 0;
    if (threadIdx.x == 0) results.losses[row] = 0, results.hits[row] = 0;
    return;
  }
  const float softcap = results.softcap;
  if (softcap > 0) cap_logits<kRowWarps>(logits, V, softcap);
  const auto target = static_cast<uint32_t>(labels.at[row]);
  const float maximum = row_maximum<kRowWarps>(maxima, logits, V), of_target = logits[target];
  const bool hit = !gradients && is_first_maximum<kRowWarps>(shared, logits, target, maximum);
  __syncthreads();  // the logits that others own have been read
  const double total = exponentiate<kRowWarps>(shared, logits, V, maximum, softcap > 0);
  if (threadIdx.x == 0) {
    results.losses[row] = device_log(total) + (static_cast<double>(maximum) - static_cast<double>(of_target));
    results.hits[row] = hit ? 1 : 0;
  }
  if (!gradients) return;
  const double scale = labels.row_weights != nullptr ? static_cast<double>(labels.row_weights[row]) : 1.0 / static_cast<double>(scalars->step_labelled);
  const float factor = static_cast<float>(scale / total);
  for (uint32_t v = threadIdx.x; v < V; v += kRowWarps * kWarpLanes) {
    const float minus = v == target ? -static_cast<float>(scale) : 0.0f;
    if (softcap > 0) {
      const float bent = logits[v] / softcap;
      logits[v] = fmaf(device_exp(logits[v] - maximum), factor, minus) * fmaf(-bent, bent, 1.0f);
    } else {
      logits[v] = fmaf(logits[v], factor, minus);
    }
  }
}

// db (+)= the sums over the chunk's rows: a block takes 32 classes, a lane one, the warps the rows in turns.
__global__ void __launch_bounds__(kBlockThreads)
    sum_columns(float* db, const float* gradients, uint64_t rows, uint32_t V, bool accumulate) {
  REPRISE_SHARED(float, shared, kBlockThreads);
  const uint64_t v = uint64_t{blockIdx.x} * kWarpLanes + lane_index();
  float values[1] = {};
  for (uint64_t r = warp_index(); v < V && r < rows; r += kWarps) values[0] += gradients[r * V + v];
  const float sum = sum_across_warps<kWarps>(shared, values);
  if (warp_index() == 0 && v < V) db[v] = accumulate ? db[v] + sum : sum;
}

// ---- the scalars ----

__global__ void __launch_bounds__(kBlockThreads) finish_loss(StepScalars* scalars, const RowResults results, uint64_t M, bool training) {
  REPRISE_SHARED(double, shared, kWarps);
  REPRISE_SHARED(uint64_t, counts, kWarps);
  double loss = 0;
  uint64_t correct = 0;
  for (uint64_t i = threadIdx.x; i < M; i += kBlockThreads) {
    loss += results.losses[i];
    correct += results.hits[i];
  }
  loss = block_sum<kWarps>(shared, loss);
  correct = block_sum<kWarps>(counts, correct);
  const uint64_t labelled = *results.labelled;
  if (threadIdx.x == 0 && labelled > 0) add_loss(scalars, loss, labelled, correct, training);
}

// ---- the loop ----

template <typename Stored>
struct Head {
  const Stored* x;
  Weight w;
  const float* b;
  Labels labels;
  uint32_t C;
  uint64_t* labelled;
  RowResults results;

  explicit Head(const LossHeadInputOf<Stored>& in) : x(in.x), w(in.w), b(in.b), labels{in.labels, in.M, in.V, nullptr}, C(in.C) {
    const CudaLossHeadScratch layout = cuda_loss_head_scratch(in.M, in.V);
    unsigned char* base = static_cast<unsigned char*>(in.scratch);
    labelled = reinterpret_cast<uint64_t*>(base);
    results = {in.softcap, reinterpret_cast<float*>(base + layout.logits_at), reinterpret_cast<double*>(base + layout.losses_at),
               reinterpret_cast<uint32_t*>(base + layout.hits_at), labelled};
  }
};

template <typename Stored>
Status launch_count(const KernelContext& context, const Head<Stored>& head) {
  REPRISE_LAUNCH(count_labels, 1, kBlockThreads, context.queue, head.labelled, context.scalars, context.row, head.labels);
  return launch_status();
}

// Logits and losses of `rows` rows from `first` on.
template <typename Stored>
Status launch_losses(const KernelContext& context, const Head<Stored>& head, uint64_t first, uint64_t rows, const StepScalars* scalars,
                     bool gradients) {
  const uint32_t V = head.labels.V, C = head.C;
  REPRISE_RETURN_IF_ERROR(launch_product(context, ProductOutput<float>{head.results.logits, head.b, false},
                                         Matrix<Stored>{head.x + first * C, C, 1}, WeightMatrix{head.w, C, 1}, {rows, V, C}));
  const bool one_warp = V <= kOneWarpClasses;
  const auto kernel = one_warp ? row_losses<1> : row_losses<kWarps>;
  REPRISE_LAUNCH(kernel, static_cast<uint32_t>(rows), one_warp ? kWarpLanes : kBlockThreads, context.queue, head.results, head.labels, first,
                 scalars, gradients);
  return launch_status();
}

// The chunk's share of dx, dw and db from its logits' gradients.
template <typename Stored>
Status launch_gradients(const KernelContext& context, const Head<Stored>& head, const LossHeadBackwardArgsOf<Stored>& args, uint64_t first,
                        uint64_t rows) {
  const uint32_t V = head.labels.V, C = head.C;
  const float* gradients = head.results.logits;
  REPRISE_RETURN_IF_ERROR(launch_product(context, ProductOutput<Stored>{args.dx + first * C, nullptr, false},
                                         Matrix<float>{gradients, V, 1}, WeightMatrix{head.w, 1, C}, {rows, C, V}));
  if (args.dw != nullptr) {
    REPRISE_RETURN_IF_ERROR(launch_product(context, ProductOutput<float>{args.dw, nullptr, args.accumulate_dw || first > 0},
                                           Matrix<float>{gradients, 1, V}, Matrix<Stored>{head.x + first * C, 1, C}, {V, C, rows}));
  }
  if (args.db == nullptr) return ok_status();
  REPRISE_LAUNCH(sum_columns, static_cast<uint32_t>(parts(V, kWarpLanes)), kBlockThreads, context.queue, args.db, gradients, rows, V,
                 args.accumulate_db || first > 0);
  return launch_status();
}

template <typename Stored>
Status launch_finish(const KernelContext& context, const Head<Stored>& head, StepScalars* scalars, bool training) {
  REPRISE_LAUNCH(finish_loss, 1, kBlockThreads, context.queue, scalars, head.results, head.labels.M, training);
  return launch_status();
}

// Counts the labels, then calls visit(first, rows) for the rows of each chunk.
template <typename Stored, typename Visit>
Status for_each_chunk(const KernelContext& context, const LossHeadInputOf<Stored>& in, const Head<Stored>& head, const Visit& visit) {
  if (in.scratch_bytes < cuda_loss_head_scratch(in.M, in.V).bytes) {
    return {Code::kBadPlan, "the loss head's scratch must have the bytes of its scratch rule", 0};
  }
  REPRISE_RETURN_IF_ERROR(launch_count(context, head));
  const CudaRowChunks chunks = cuda_loss_head_chunks(in.M, in.V);
  for (uint32_t k = 0; k < chunks.count(); ++k) REPRISE_RETURN_IF_ERROR(visit(chunks.begin(k), chunks.end(k) - chunks.begin(k)));
  return ok_status();
}

}  // namespace

// Without a labelled row the logits' gradients are zeros, and so are the products of them.
template <typename Stored>
Status cuda_loss_head_backward(const KernelContext& context, const LossHeadBackwardArgsOf<Stored>& args) {
  Head<Stored> head(args.in);
  head.labels.row_weights = args.row_weights;
  REPRISE_RETURN_IF_ERROR(for_each_chunk(context, args.in, head, [&](uint64_t first, uint64_t rows) -> Status {
    REPRISE_RETURN_IF_ERROR(launch_losses(context, head, first, rows, args.scalars, true));
    return launch_gradients(context, head, args, first, rows);
  }));
  return args.row_weights != nullptr ? ok_status() : launch_finish(context, head, args.scalars, true);
}

template <typename Stored>
Status cuda_loss_head_forward(const KernelContext& context, const LossHeadForwardArgsOf<Stored>& args) {
  Head<Stored> head(args.in);
  head.results.losses = args.losses;
  return for_each_chunk(context, args.in, head,
                        [&](uint64_t first, uint64_t rows) { return launch_losses(context, head, first, rows, nullptr, false); });
}

template <typename Stored>
Status cuda_loss_head_evaluate(const KernelContext& context, const LossHeadEvaluateArgsOf<Stored>& args) {
  const Head<Stored> head(args.in);
  REPRISE_RETURN_IF_ERROR(for_each_chunk(context, args.in, head, [&](uint64_t first, uint64_t rows) {
    return launch_losses(context, head, first, rows, args.scalars, false);
  }));
  return launch_finish(context, head, args.scalars, false);
}

REPRISE_CUDA_INSTANTIATE(cuda_loss_head_backward, LossHeadBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_loss_head_forward, LossHeadForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_loss_head_evaluate, LossHeadEvaluateArgs)

}  // namespace reprise
