// The loss head: logits, softmax cross-entropy and the gradients of both, in one loop over chunks
// of rows. The counterpart of lib/cpu/loss/loss_head.cpp. Memory only has the logits of one chunk
// of rows (SPEED 8.5). The three products are the same as in linear layers. The logits' gradients
// replace the logits in memory; if tensor cores multiply bf16, the gradients are rounded to bf16.
#include "cuda/cuda_kernels.h"
#include "cuda/data_fault.h"
#include "cuda/device_math.h"
#include "cuda/gemm/split_product.h"
#include "cuda/gemm/tile_mma.h"
#include "cuda/gemm/tile_source.h"
#include "cuda/grid.h"
#include "cuda/loss/loss_head_rules.h"
#include "cuda/loss/loss_scalars.h"
#include "cuda/reduce.h"
#include "cuda/weight_format.h"

namespace reprise {
namespace {

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;

// ---- labels ----

struct Labels {
  const int32_t* at;  // [M]
  uint64_t M;
  uint32_t V;
  const float* row_weights;  // [M]; null if all rows have the same weight

  __device__ bool is_class(uint64_t i) const { return at[i] >= 0 && static_cast<uint32_t>(at[i]) < V; }
};

// Sets *labelled to the number of rows with a label. If a label is not a class, sets *labelled to 0
// and records a fault.
__global__ void __launch_bounds__(kBlockThreads)
    count_labels(uint64_t* labelled, StepScalars* scalars, uint32_t row, const Labels labels) {
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

// ---- softmax and loss: a block for each row, four logits for a thread at a time ----

constexpr uint32_t kOneWarpClasses = 1024;  // up to this number of classes, a block has a single warp

struct RowResults {
  float softcap;             // cap of the logits; 0: none
  float* logits;             // [rows,pitch] of the chunk; a row has V logits and begins at a whole pack
  uint64_t pitch;
  double* losses;            // [rows]
  uint32_t* hits;            // [rows]: 1 if the row predicts its label; used in evaluation only
  const uint64_t* labelled;  // number of labelled rows in all chunks
};

constexpr uint32_t kWide = kPackWidth<float>;
template <uint32_t kRowWarps>
inline constexpr uint32_t kRound = kWide * kRowWarps * kWarpLanes;  // logits that a block processes at a time

// Returns the maximum of the row's V logits to every thread. The maximum ignores NaN, but the
// exponential of NaN makes the row's loss NaN.
template <uint32_t kRowWarps, typename Shared>
__device__ float row_maximum(Shared& shared, const float* logits, uint32_t V) {
  float maximum = -__builtin_inff();
  for (uint32_t v = kWide * threadIdx.x; v < V; v += kRound<kRowWarps>) {
    const Pack<kWide> four = load_pack<kWide>(logits + v);
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kWide; ++i) maximum = v + i < V && four.at[i] > maximum ? four.at[i] : maximum;
  }
  maximum = warp_max(maximum);
  if (lane_index() == 0) shared[warp_index()] = maximum;
  __syncthreads();
  for (uint32_t w = 0; w < kRowWarps; ++w) {
    const float other = shared[w];
    maximum = other > maximum ? other : maximum;
  }
  return maximum;
}

// Replaces logits[v] by softcap * tanh(logits[v] / softcap).
template <uint32_t kRowWarps>
__device__ void cap_logits(float* logits, uint32_t V, float softcap) {
  for (uint32_t v = threadIdx.x; v < V; v += kRowWarps * kWarpLanes)
    logits[v] = softcap * device_tanh(logits[v] / softcap);
  __syncthreads();
}

// Returns the sum of e^(logits[v] - maximum). Replaces each logit by its exponential, unless
// `stays` is true.
template <uint32_t kRowWarps, typename Shared>
__device__ double exponentiate(Shared& shared, float* logits, uint32_t V, float maximum, bool stays) {
  constexpr uint32_t kRun = 16;  // packs that a thread sums in f32 before it adds them to a double
  double total = 0;
  float sum = 0;
  uint32_t run = 0;
  for (uint32_t v = kWide * threadIdx.x; v < V; v += kRound<kRowWarps>) {
    Pack<kWide> four = load_pack<kWide>(logits + v);
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kWide; ++i) {
      four.at[i] = device_exp(four.at[i] - maximum);
      if (v + i < V) sum += four.at[i];
    }
    if (!stays) store_pack(logits + v, four);
    if (++run == kRun) total += static_cast<double>(sum), sum = 0, run = 0;
  }
  return block_sum<kRowWarps>(shared, total + static_cast<double>(sum));
}

// True if `target` is the class that the row predicts: the first of its largest logits.
template <uint32_t kRowWarps, typename Shared>
__device__ bool is_first_maximum(Shared& shared, const float* logits, uint32_t target, float maximum) {
  double earlier = 0;
  for (uint32_t v = threadIdx.x; v < target; v += kRowWarps * kWarpLanes) earlier += logits[v] == maximum ? 1 : 0;
  return block_sum<kRowWarps>(shared, earlier) == 0 && logits[target] == maximum;
}

// Replaces element v of a row by gradient(v, element), stored as f32 or bf16 in the memory of the
// row. Zeros follow the last class. With bf16, all threads of a round read before any thread
// writes, because two bf16 have the space of one logit.
template <uint32_t kRowWarps, typename Gradient, typename Visit>
__device__ void replace_by_gradients(float* logits, uint32_t V, uint64_t pitch, const Visit& gradient) {
  for (uint64_t first = 0; first < pitch; first += kRound<kRowWarps>) {
    const uint64_t v = first + kWide * threadIdx.x;
    Pack<kWide> four = v < pitch ? load_pack<kWide>(logits + v) : Pack<kWide>{};
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kWide; ++i)
      four.at[i] = v + i < V ? gradient(static_cast<uint32_t>(v + i), four.at[i]) : 0.0f;
    if constexpr (sizeof(Gradient) != sizeof(float)) __syncthreads();
    if (v < pitch) store_pack(reinterpret_cast<Gradient*>(logits) + v, four);
  }
}

// Computes the losses and hits of the chunk's rows. Unless Gradient is void, also computes the
// logits' gradients. A row without a label gets zeros.
template <uint32_t kRowWarps, typename Gradient>
__global__ void __launch_bounds__(kRowWarps* kWarpLanes)
    row_losses(const RowResults results, const Labels labels, uint64_t first, const StepScalars* scalars) {
  constexpr bool kGradients = !std::is_void_v<Gradient>;
  REPRISE_SHARED(double, shared, kRowWarps);
  REPRISE_SHARED(float, maxima, kRowWarps);
  const uint32_t V = labels.V;
  float* logits = results.logits + uint64_t{blockIdx.x} * results.pitch;
  const uint64_t row = first + blockIdx.x, labelled = *results.labelled;
  if (labelled == 0 || !labels.is_class(row)) {
    if (threadIdx.x == 0) results.losses[row] = 0, results.hits[row] = 0;
    if constexpr (kGradients) {
      replace_by_gradients<kRowWarps, Gradient>(logits, V, results.pitch, [](uint32_t, float) { return 0.0f; });
    }
    return;
  }
  const float softcap = results.softcap;
  if (softcap > 0) cap_logits<kRowWarps>(logits, V, softcap);
  const auto target = static_cast<uint32_t>(labels.at[row]);
  const float maximum = row_maximum<kRowWarps>(maxima, logits, V), of_target = logits[target];
  const bool hit = !kGradients && is_first_maximum<kRowWarps>(shared, logits, target, maximum);
  __syncthreads();  // all threads have read logits; they are overwritten next
  const double total = exponentiate<kRowWarps>(shared, logits, V, maximum, softcap > 0);
  if (threadIdx.x == 0) {
    results.losses[row] = device_log(total) + (static_cast<double>(maximum) - static_cast<double>(of_target));
    results.hits[row] = hit ? 1 : 0;
  }
  if constexpr (kGradients) {
    const double scale = labels.row_weights != nullptr ? static_cast<double>(labels.row_weights[row])
                                                       : 1.0 / static_cast<double>(scalars->step_labelled);
    const float factor = static_cast<float>(scale / total);
    replace_by_gradients<kRowWarps, Gradient>(logits, V, results.pitch, [&](uint32_t v, float z) {
      const float minus = v == target ? -static_cast<float>(scale) : 0.0f;
      if (softcap == 0) return fmaf(z, factor, minus);
      const float bent = z / softcap;
      return fmaf(device_exp(z - maximum), factor, minus) * fmaf(-bent, bent, 1.0f);
    });
  }
}

// Computes db, the sums of the gradients over the chunk's rows, or adds them to db if `accumulate`.
// A block processes 32 classes. A lane sums one class; each warp adds every kWarps-th row.
template <typename Gradient>
__global__ void __launch_bounds__(kBlockThreads)
    sum_columns(float* db, const Gradient* gradients, uint64_t pitch, uint64_t rows, uint32_t V, bool accumulate) {
  REPRISE_SHARED(float, shared, kBlockThreads);
  const uint64_t v = uint64_t{blockIdx.x} * kWarpLanes + lane_index();
  float values[1] = {};
  for (uint64_t r = warp_index(); v < V && r < rows; r += kWarps) values[0] += gradients[r * pitch + v];
  const float sum = sum_across_warps<kWarps>(shared, values);
  if (warp_index() == 0 && v < V) db[v] = accumulate ? db[v] + sum : sum;
}

// ---- the scalars ----

__global__ void __launch_bounds__(kBlockThreads)
    finish_loss(StepScalars* scalars, const RowResults results, uint64_t M, bool training) {
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

// A separate type of output. It makes the products of this file separate kernels, although
// linear.cu multiplies operands of the same types.
struct HeadOutput : TileOutput<float> {};

// A block of classes, with their weights in a format that the products can read.
struct ClassBlock {
  uint64_t first, classes;
  Weight w;  // [classes,C]
};

template <typename Stored>
struct Head {
  const Stored* x;
  Weight w;
  const float* b;
  Labels labels;
  uint32_t C;
  CudaLossHeadScratch layout;
  unsigned char* scratch;
  uint64_t* labelled;
  RowResults results;
  bool uses_mma;

  Head(const KernelContext& context, const LossHeadInputOf<Stored>& in, bool gradients)
      : x(in.x),
        w(in.w),
        b(in.b),
        labels{in.labels, in.M, in.V, nullptr},
        C(in.C),
        layout(cuda_loss_head_scratch(in.M, in.C, in.V, kStoredAs<Stored>, in.w.type, product_math(context),
                                      card_size(context), gradients)),
        scratch(static_cast<unsigned char*>(in.scratch)),
        uses_mma(loss_head_uses_mma(kStoredAs<Stored>, in.C)) {
    labelled = reinterpret_cast<uint64_t*>(scratch);
    results = {in.softcap,
               reinterpret_cast<float*>(scratch + layout.logits_at),
               layout.pitch,
               reinterpret_cast<double*>(scratch + layout.losses_at),
               reinterpret_cast<uint32_t*>(scratch + layout.hits_at),
               labelled};
  }

  // Returns block k of the classes. If the products cannot read the weights as stored, launches a
  // kernel that decodes them to scratch. If is_decoded, the scratch already contains the decoded
  // block. This is so if there is only one block, from its second use on.
  ClassBlock block(const KernelContext& context, uint64_t k, bool is_decoded) const {
    const uint64_t first = k * layout.block, classes = minimum(layout.block, labels.V - first), n = classes * C;
    const Weight here = {static_cast<const unsigned char*>(w.data) + stored_bytes(w.type, first * C), w.type};
    void* space = scratch + layout.weights_at;
    if (uses_mma ? here.type == DType::kBf16 : reads_weights(here.type, kStoredAs<Stored>, product_math(context)))
      return {first, classes, here};
    if (is_decoded) return {first, classes, {space, kStoredAs<Stored>}};
    if constexpr (kStoredAs<Stored> == DType::kBf16) {
      if (uses_mma) return {first, classes, weights_as_bf16(context, here, n, space)};
    }
    return {first, classes, plain_weights<Stored>(context, here, n, space)};
  }
  template <typename Visit>
  Status for_each_block(const KernelContext& context, bool is_first_use, const Visit& visit) const {
    const uint64_t count = layout.blocks(labels.V);
    for (uint64_t k = 0; k < count; ++k) REPRISE_RETURN_IF_ERROR(visit(block(context, k, count == 1 && !is_first_use)));
    return ok_status();
  }
};

template <typename Stored>
Status launch_count(const KernelContext& context, const Head<Stored>& head) {
  REPRISE_LAUNCH(count_labels, 1, kBlockThreads, context.queue, head.labelled, context.scalars, context.row,
                 head.labels);
  return launch_status();
}

// Launches the logits of `rows` rows from `first` on.
template <typename Stored>
Status launch_logits(const KernelContext& context, const Head<Stored>& head, uint64_t first, uint64_t rows) {
  const uint64_t C = head.C;
  const Stored* x = head.x + first * C;
  return head.for_each_block(context, first == 0, [&](const ClassBlock& block) {
    const float* bias = head.b == nullptr ? nullptr : head.b + block.first;
    const bool wide = bias == nullptr || block.classes % 4 == 0;  // columns after the last class may be overwritten
    const HeadOutput to = {{head.results.logits + block.first, {head.layout.pitch}, bias, false, wide, 0}};
    const ProductShape shape = {rows, block.classes, C};
    if constexpr (kStoredAs<Stored> == DType::kBf16) {
      if (head.uses_mma) {
        const RowChunks<Bf16> a = {x, rows, C}, w = {static_cast<const Bf16*>(block.w.data), block.classes, C};
        launch_mma(context, TileProduct<RowChunks<Bf16>, RowChunks<Bf16>, HeadOutput>{a, w, to, shape, C, nullptr});
        return launch_status();
      }
    }
    if constexpr (kStoredAs<Stored> == DType::kF32) {
      if (block.w.type == DType::kF32 && are_chunks(C, DType::kF32)) {
        const RowChunks<float> a = {x, rows, C}, w = {static_cast<const float*>(block.w.data), block.classes, C};
        launch_chunk_product(context,
                             TileProduct<RowChunks<float>, RowChunks<float>, HeadOutput>{a, w, to, shape, C, nullptr});
        return launch_status();
      }
    }
    launch_product(context, TileProduct<RowsSource<Stored>, WeightRowsSource<Stored>, HeadOutput>{
                                {x, rows, C}, {block.w, block.classes, C}, to, shape, C, nullptr});
    return launch_status();
  });
}

// Launches the logits and the losses of `rows` rows from `first` on. If `gradients` is true, the
// logits' gradients replace the logits.
template <typename Stored>
Status launch_losses(const KernelContext& context, const Head<Stored>& head, uint64_t first, uint64_t rows,
                     const StepScalars* scalars, bool gradients) {
  REPRISE_RETURN_IF_ERROR(launch_logits(context, head, first, rows));
  const bool one_warp = head.labels.V <= kOneWarpClasses;
  auto kernel = one_warp ? row_losses<1, void> : row_losses<kWarps, void>;
  if (gradients && head.uses_mma) {
    kernel = one_warp ? row_losses<1, Bf16> : row_losses<kWarps, Bf16>;
  } else if (gradients) {
    kernel = one_warp ? row_losses<1, float> : row_losses<kWarps, float>;
  }
  REPRISE_LAUNCH(kernel, static_cast<uint32_t>(rows), one_warp ? kWarpLanes : kBlockThreads, context.queue,
                 head.results, head.labels, first, scalars);
  return launch_status();
}

// The logits' gradients of a chunk, [rows,pitch]: bf16 if tensor cores multiply bf16, else f32.
template <typename Element>
struct LogitGradients {
  const Element* at;
  uint64_t pitch;
};

// Launches the product that adds the part of one block of classes to dx, as partial sums
// [part][rows][C]. The first block of classes overwrites the partial sums.
template <typename Stored>
void launch_data(const KernelContext& context, const LogitGradients<Bf16>& g, const ClassBlock& block,
                 const HeadOutput& to, const ProductShape& shape, const DepthSplit& split) {
  const RowChunks<Bf16> a = {g.at + block.first, shape.rows, g.pitch};
  const ColumnChunks<Bf16> w = {static_cast<const Bf16*>(block.w.data), shape.columns, shape.columns};
  launch_mma(context,
             TileProduct<RowChunks<Bf16>, ColumnChunks<Bf16>, HeadOutput>{a, w, to, shape, split.size, nullptr},
             split.count);
}
template <typename Stored>
void launch_data(const KernelContext& context, const LogitGradients<float>& g, const ClassBlock& block,
                 const HeadOutput& to, const ProductShape& shape, const DepthSplit& split) {
  if constexpr (kStoredAs<Stored> == DType::kF32) {
    if (loss_head_uses_math(DType::kF32, product_math(context), shape.columns)) {
      const RowChunks<float> a = {g.at + block.first, shape.rows, g.pitch};
      const ColumnChunks<float> w = {static_cast<const float*>(block.w.data), shape.columns, shape.columns};
      using Product = TileProduct<RowChunks<float>, ColumnChunks<float>, HeadOutput>;
      return launch_tensor_cores(context, Product{a, w, to, shape, split.size, nullptr}, split.count);
    }
  }
  const RowsSource<float> a = {g.at + block.first, shape.rows, g.pitch};
  const WeightColumnsSource<Stored> w = {block.w, shape.columns, shape.columns};
  launch_product(context,
                 TileProduct<RowsSource<float>, WeightColumnsSource<Stored>, HeadOutput>{a, w, to, shape, split.size,
                                                                                         nullptr},
                 split.count);
}

template <typename Stored, typename Element>
Status launch_dx(const KernelContext& context, const Head<Stored>& head, Stored* dx, const LogitGradients<Element>& g,
                 uint64_t rows) {
  const uint64_t C = head.C, outputs = rows * C;
  const DepthSplit& split = head.layout.split;
  float* sums = reinterpret_cast<float*>(head.scratch + head.layout.parts_at);
  REPRISE_RETURN_IF_ERROR(head.for_each_block(context, false, [&](const ClassBlock& block) {
    const HeadOutput to = {{sums, {C}, nullptr, block.first > 0, C % 4 == 0, outputs}};
    launch_data<Stored>(context, g, block, to, {rows, C, block.classes},
                        {split.size, static_cast<uint32_t>(whole_pieces(block.classes, split.size))});
    return launch_status();
  }));
  REPRISE_LAUNCH(add_parts<Stored>, blocks_for(outputs), kBlockThreads, context.queue, dx, sums, outputs, split.count,
                 false);
  return launch_status();
}

// Launches dw[V,C] (+)= g^T x over the chunk's rows.
inline Status launch_dw(const KernelContext& context, const HeadOutput& to, const LogitGradients<Bf16>& g,
                        const Bf16* x, const ProductShape& shape) {
  launch_mma(context,
             TileProduct<ColumnChunks<Bf16>, ColumnChunks<Bf16>, HeadOutput>{
                 {g.at, shape.rows, g.pitch}, {x, shape.columns, shape.columns}, to, shape, shape.depth, nullptr});
  return launch_status();
}
template <typename Stored>
Status launch_dw(const KernelContext& context, const HeadOutput& to, const LogitGradients<float>& g, const Stored* x,
                 const ProductShape& shape) {
  if constexpr (kStoredAs<Stored> == DType::kF32) {
    if (loss_head_uses_math(DType::kF32, product_math(context), shape.columns)) {
      launch_tensor_cores(
          context,
          TileProduct<ColumnChunks<float>, ColumnChunks<float>, HeadOutput>{
              {g.at, shape.rows, g.pitch}, {x, shape.columns, shape.columns}, to, shape, shape.depth, nullptr});
      return launch_status();
    }
  }
  launch_product(context,
                 TileProduct<ColumnsSource<float>, ColumnsSource<Stored>, HeadOutput>{
                     {g.at, shape.rows, g.pitch}, {x, shape.columns, shape.columns}, to, shape, shape.depth, nullptr});
  return launch_status();
}

// Launches dx of the chunk's rows, and the chunk's part of dw and db, from the logits' gradients.
template <typename Stored, typename Element>
Status launch_gradients(const KernelContext& context, const Head<Stored>& head,
                        const LossHeadBackwardArgsOf<Stored>& args, const LogitGradients<Element>& g, uint64_t first,
                        uint64_t rows) {
  const uint32_t V = head.labels.V, C = head.C;
  REPRISE_RETURN_IF_ERROR(launch_dx(context, head, args.dx + first * C, g, rows));
  if (args.dw != nullptr) {
    const HeadOutput to = {{args.dw, {C}, nullptr, args.accumulate_dw || first > 0, C % 4 == 0, 0}};
    REPRISE_RETURN_IF_ERROR(launch_dw(context, to, g, head.x + first * C, {V, C, rows}));
  }
  if (args.db == nullptr) return ok_status();
  REPRISE_LAUNCH(sum_columns<Element>, static_cast<uint32_t>(parts(V, kWarpLanes)), kBlockThreads, context.queue,
                 args.db, g.at, g.pitch, rows, V, args.accumulate_db || first > 0);
  return launch_status();
}
template <typename Stored>
Status launch_gradients(const KernelContext& context, const Head<Stored>& head,
                        const LossHeadBackwardArgsOf<Stored>& args, uint64_t first, uint64_t rows) {
  const RowResults& results = head.results;
  if constexpr (kStoredAs<Stored> == DType::kBf16) {
    if (head.uses_mma) {
      const LogitGradients<Bf16> rounded = {reinterpret_cast<const Bf16*>(results.logits), 2 * results.pitch};
      return launch_gradients(context, head, args, rounded, first, rows);
    }
  }
  return launch_gradients(context, head, args, LogitGradients<float>{results.logits, results.pitch}, first, rows);
}

template <typename Stored>
Status launch_finish(const KernelContext& context, const Head<Stored>& head, StepScalars* scalars, bool training) {
  REPRISE_LAUNCH(finish_loss, 1, kBlockThreads, context.queue, scalars, head.results, head.labels.M, training);
  return launch_status();
}

// Counts the labels, then calls visit(first, rows) for the rows of each chunk.
template <typename Stored, typename Visit>
Status for_each_chunk(const KernelContext& context, const LossHeadInputOf<Stored>& in, const Head<Stored>& head,
                      const Visit& visit) {
  if (in.scratch_bytes < head.layout.bytes) {
    return {Code::kBadPlan, "the loss head's scratch must have the bytes of its scratch rule", 0};
  }
  REPRISE_RETURN_IF_ERROR(launch_count(context, head));
  const CudaRowChunks& chunks = head.layout.chunks;
  for (uint32_t k = 0; k < chunks.count(); ++k)
    REPRISE_RETURN_IF_ERROR(visit(chunks.begin(k), chunks.end(k) - chunks.begin(k)));
  return ok_status();
}

}  // namespace

// Computes the loss and its gradients. If no row has a label, all gradients of the logits are zero,
// and so are dx and this call's part of dw and db.
template <typename Stored>
Status cuda_loss_head_backward(const KernelContext& context, const LossHeadBackwardArgsOf<Stored>& args) {
  Head<Stored> head(context, args.in, true);
  head.labels.row_weights = args.row_weights;
  REPRISE_RETURN_IF_ERROR(for_each_chunk(context, args.in, head, [&](uint64_t first, uint64_t rows) -> Status {
    REPRISE_RETURN_IF_ERROR(launch_losses(context, head, first, rows, args.scalars, true));
    return launch_gradients(context, head, args, first, rows);
  }));
  return args.row_weights != nullptr ? ok_status() : launch_finish(context, head, args.scalars, true);
}

template <typename Stored>
Status cuda_loss_head_forward(const KernelContext& context, const LossHeadForwardArgsOf<Stored>& args) {
  Head<Stored> head(context, args.in, false);
  head.results.losses = args.losses;
  return for_each_chunk(context, args.in, head, [&](uint64_t first, uint64_t rows) {
    return launch_losses(context, head, first, rows, nullptr, false);
  });
}

template <typename Stored>
Status cuda_loss_head_evaluate(const KernelContext& context, const LossHeadEvaluateArgsOf<Stored>& args) {
  const Head<Stored> head(context, args.in, false);
  REPRISE_RETURN_IF_ERROR(for_each_chunk(context, args.in, head, [&](uint64_t first, uint64_t rows) {
    return launch_losses(context, head, first, rows, args.scalars, false);
  }));
  return launch_finish(context, head, args.scalars, false);
}

REPRISE_CUDA_INSTANTIATE(cuda_loss_head_backward, LossHeadBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_loss_head_forward, LossHeadForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_loss_head_evaluate, LossHeadEvaluateArgs)

}  // namespace reprise
