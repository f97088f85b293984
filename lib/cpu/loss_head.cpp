// The loss head: logits, softmax cross-entropy and their gradients in one loop over chunks of rows.
// Here because the matrix of all logits must never exist (DESIGN 8). In training, rows without a label take no part: of conversations two in
// three may have none.
#include <cmath>
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/data_fault.h"
#include "lib/cpu/gemm.h"
#include "lib/cpu/loss_head_rules.h"
#include "lib/cpu/vector_math.h"
#include "lib/cpu/vector_of.h"

namespace reprise {
namespace {

template <typename Stored>
struct LossHead {
  const Stored* x;
  Weight w;
  const float* b;
  const int32_t* labels;
  uint64_t M;
  uint32_t C, V;
};

struct HeadRow {
  uint32_t at : 31;      // of the M rows
  uint32_t is_hit : 1;  // whether the label is predicted
};
static_assert(sizeof(HeadRow) == 4);

// So many rows of the M, of which the chunk's are all or those with a label.
struct Chunk {
  float* logits;   // [count, V]
  double* losses;  // [count]
  HeadRow* rows;   // [count], rising
  float* dx;       // [count, C]: where dx is stored as bf16
  float* sums;     // of the columns
  void* gemm;
  uint64_t first, end, count;  // rows [first, end) of the M
};

Chunk chunk_at(const LossHeadScratch& layout, void* scratch, uint64_t first) {
  unsigned char* base = static_cast<unsigned char*>(scratch);
  return {.logits = reinterpret_cast<float*>(base),
          .losses = reinterpret_cast<double*>(base + layout.losses_at),
          .rows = reinterpret_cast<HeadRow*>(base + layout.rows_at),
          .dx = reinterpret_cast<float*>(base + layout.dx_at),
          .sums = reinterpret_cast<float*>(base + layout.sums_at),
          .gemm = base + layout.gemm_at,
          .first = first,
          .end = first,
          .count = 0};
}

// The chunk's rows: `count` of those from its first on, all or with a label.
template <typename Stored>
void take_rows(const LossHead<Stored>& head, Chunk& chunk, uint64_t count, bool labelled_only) {
  for (; chunk.count < count; ++chunk.end) {
    if (labelled_only && head.labels[chunk.end] == kIgnoredLabel) continue;
    chunk.rows[chunk.count++] = {static_cast<uint32_t>(chunk.end) & 0x7fffffffu, 0};
  }
}

// Counts the rows with a label; the labels are data and may be anything. The first that is no class is a fault, and then none counts.
template <typename Stored>
uint64_t count_labels(const KernelContext& context, const LossHead<Stored>& head) {
  uint64_t labelled = 0;
  for (uint64_t i = 0; i < head.M; ++i) {
    const int32_t label = head.labels[i];
    if (label == kIgnoredLabel) continue;
    if (label < 0 || static_cast<uint32_t>(label) >= head.V) {
      note_fault(context, DataFault::kLabel, i);
      return 0;
    }
    ++labelled;
  }
  return labelled;
}

// The largest logit; NaN counts for nothing here, its exponential makes the row's loss NaN.
REPRISE_INLINE void find_maximum_body(const float* logits, uint32_t V, float* maximum) {
  using Lanes = typename VectorOf<kSumLanes>::type;
  constexpr uint32_t kVectors = 4;  // each waits for its last comparison
  Lanes largest[kVectors], logit;
  for (Lanes& lanes : largest) lanes = Lanes{} - __builtin_inff();
  uint32_t v = 0;
  for (; v + kVectors * kSumLanes <= V; v += kVectors * kSumLanes) {
    for (uint32_t i = 0; i < kVectors; ++i) {
      read_vector<kSumLanes>(logit, logits + v + i * kSumLanes);
      largest[i] = logit > largest[i] ? logit : largest[i];
    }
  }
  *maximum = -__builtin_inff();
  for (const Lanes& lanes : largest) {
    for (uint32_t i = 0; i < kSumLanes; ++i) *maximum = lanes[i] > *maximum ? lanes[i] : *maximum;
  }
  for (; v < V; ++v) *maximum = logits[v] > *maximum ? logits[v] : *maximum;
}
REPRISE_VECTOR_LEVELS(find_maximum, find_maximum_body, (const float* logits, uint32_t V, float* maximum), (logits, V, maximum))

// Of several largest logits the first one is what the row predicts.
bool is_first_maximum(const float* logits, uint32_t v, float maximum) {
  if (logits[v] != maximum) return false;
  for (uint32_t u = 0; u < v; ++u) {
    if (logits[u] == maximum) return false;
  }
  return true;
}

constexpr uint32_t kExpBlock = 1024;  // exponentials summed in float before a double takes over

// logits[v] becomes e^(logits[v] - maximum); returns their sum.
REPRISE_INLINE void exponentiate_body(float* logits, uint32_t V, float maximum, double* total) {
  *total = 0;
  for (uint32_t first = 0; first < V; first += kExpBlock) {
    const uint32_t end = V - first < kExpBlock ? V : first + kExpBlock;
    REPRISE_INDEPENDENT
    for (uint32_t v = first; v < end; ++v) logits[v] = vector_exp_at_most_88(logits[v] - maximum);
    typename VectorOf<kSumLanes>::type sum = {}, part;
    uint32_t v = first;
    for (; v + kSumLanes <= end; v += kSumLanes) {
      read_vector<kSumLanes>(part, logits + v);
      sum += part;
    }
    float lanes[kSumLanes];
    write_vector<kSumLanes>(lanes, sum);
    for (uint32_t i = 0; v < end; ++v, ++i) lanes[i] += logits[v];
    *total += static_cast<double>(sum_lanes(lanes));
  }
}
REPRISE_VECTOR_LEVELS(exponentiate, exponentiate_body, (float* logits, uint32_t V, float maximum, double* total),
                      (logits, V, maximum, total))

REPRISE_INLINE void scale_body(float* values, uint32_t count, float factor) {
  REPRISE_INDEPENDENT
  for (uint32_t i = 0; i < count; ++i) values[i] *= factor;
}
REPRISE_VECTOR_LEVELS(scale_row, scale_body, (float* values, uint32_t count, float factor), (values, count, factor))

// The row's loss; its logits become e^(logit - maximum), whose sum goes to `total`.
double row_loss(VectorLevel level, float* logits, uint32_t V, uint32_t label, float maximum, double* total) {
  const double margin = static_cast<double>(maximum) - static_cast<double>(logits[label]);
  exponentiate(level, logits, V, maximum, total);
  return std::log(*total) + margin;
}

// `x`: the chunk's rows, one behind the other.
template <typename Stored>
void compute_logits(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, const Stored* x) {
  const BiasedOutputOf<float> logits{{chunk.logits, head.V}, head.b};
  const int64_t C = head.C;
  gemm(context, {chunk.count, head.V, head.C}, MatrixPackerOf<Stored>{x, C, 1}, WeightPacker{head.w, C, 1}, logits, false, chunk.gemm);
}

// Losses and hits of the chunk's rows, zeros where there is no label; with `scale` above 0 logits become gradients, else they are left as
// garbage.
template <typename Stored>
void compute_losses(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, double scale) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, split_rows(chunk.count, head.V), [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      float* logits = chunk.logits + i * head.V;
      const int32_t label = head.labels[chunk.rows[i].at];
      if (label == kIgnoredLabel) {
        chunk.losses[i] = 0;
        continue;
      }
      const uint32_t target = static_cast<uint32_t>(label);
      float maximum;
      find_maximum(level, logits, head.V, &maximum);
      chunk.rows[i].is_hit = is_first_maximum(logits, target, maximum);
      double total;
      chunk.losses[i] = row_loss(level, logits, head.V, target, maximum, &total);
      if (scale <= 0) continue;
      scale_row(level, logits, head.V, static_cast<float>(scale / total));
      logits[target] -= static_cast<float>(scale);
    }
  });
}

double sum_losses(const Chunk& chunk, double sum) {
  for (uint64_t i = 0; i < chunk.count; ++i) sum += chunk.losses[i];
  return sum;
}

template <typename Stored>
void copy_rows(const KernelContext& context, Stored* to, const LossHead<Stored>& head, const Chunk& chunk) {
  for_each_piece(*context.workers, split_rows(chunk.count, head.C), [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) std::memcpy(to + i * head.C, head.x + chunk.rows[i].at * uint64_t{head.C}, head.C * sizeof(Stored));
  });
}

// The chunk's share of dw and db. `x`: its rows, one behind the other.
template <typename Stored>
void add_weight_gradients(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, const Stored* x,
                          const LossHeadBackwardArgsOf<Stored>& args, bool is_first) {
  const int64_t C = head.C, V = head.V;
  if (args.dw != nullptr) {
    gemm_split(context, {head.V, head.C, chunk.count}, MatrixPacker{chunk.logits, 1, V}, MatrixPackerOf<Stored>{x, 1, C}, args.dw,
               args.accumulate_dw || !is_first, chunk.gemm);
  }
  if (args.db != nullptr) column_sums(context, args.db, chunk.logits, chunk.count, head.V, args.accumulate_db || !is_first, chunk.sums);
}

// dx at the chunk's rows.
struct HeadRowsOutput {
  static constexpr bool kUniformRows = false;
  float* dx;
  const HeadRow* rows;
  uint64_t C;

  float* row(uint64_t i) const { return dx + rows[i].at * C; }
};
template <typename Output>
void multiply_gradients(const KernelContext& context, const Weight& w, int64_t C, int64_t V, const Chunk& chunk, const Output& output) {
  gemm(context, {chunk.count, static_cast<uint64_t>(C), static_cast<uint64_t>(V)}, MatrixPacker{chunk.logits, V, 1}, WeightPacker{w, 1, C},
       output, false, chunk.gemm);
}
void compute_dx(const KernelContext& context, const LossHead<float>& head, const Chunk& chunk, float* dx) {
  multiply_gradients(context, head.w, head.C, head.V, chunk, HeadRowsOutput{dx, chunk.rows, head.C});
}
// In f32 first: the packed weights of all classes would be too many for gemm() to round it.
void compute_dx(const KernelContext& context, const LossHead<Bf16>& head, const Chunk& chunk, Bf16* dx) {
  multiply_gradients(context, head.w, head.C, head.V, chunk, MatrixOutput{chunk.dx, head.C});
  for_each_piece(*context.workers, split_rows(chunk.count, head.C), [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      narrow(cpu_machine(context).level, dx + chunk.rows[i].at * uint64_t{head.C}, chunk.dx + i * head.C, head.C, nullptr, false);
    }
  });
}

// The chunk's share of all gradients and its losses, added to `sum`. Its rows of x are put together where its dx will stand.
template <typename Stored>
double train_chunk(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, const LossHeadBackwardArgsOf<Stored>& args,
                   double sum) {
  Stored* x = args.dx + chunk.first * head.C;
  copy_rows(context, x, head, chunk);
  compute_logits(context, head, chunk, x);
  compute_losses(context, head, chunk, 1.0 / static_cast<double>(args.scalars->step_labelled));
  add_weight_gradients(context, head, chunk, x, args, chunk.first == 0);
  compute_dx(context, head, chunk, args.dx);
  for (uint64_t i = chunk.first; i < chunk.end; ++i) {
    if (head.labels[i] == kIgnoredLabel) std::memset(args.dx + i * head.C, 0, head.C * sizeof(Stored));
  }
  return sum_losses(chunk, sum);
}

template <typename Stored>
void clear_gradients(const LossHead<Stored>& head, const LossHeadBackwardArgsOf<Stored>& args) {
  std::memset(args.dx, 0, head.M * head.C * sizeof(Stored));
  if (args.dw != nullptr && !args.accumulate_dw) std::memset(args.dw, 0, uint64_t{head.V} * head.C * sizeof(float));
  if (args.db != nullptr && !args.accumulate_db) std::memset(args.db, 0, head.V * sizeof(float));
}

constexpr Status kScratchTooSmall = {Code::kBadPlan, "the loss head's scratch must have the bytes of its scratch rule",
                                     0};

}  // namespace

template <typename Stored>
Status cpu_loss_head_backward(const KernelContext& context, const LossHeadBackwardArgsOf<Stored>& args) {
  const LossHead<Stored> head{args.x, args.w, args.b, args.labels, args.M, args.C, args.V};
  const LossHeadScratch layout = loss_head_scratch(head.M, head.C, head.V, true, kStoredAs<Stored>);
  if (args.scratch_bytes < layout.bytes) return kScratchTooSmall;
  const uint64_t labelled = count_labels(context, head);
  if (labelled == 0) {
    clear_gradients(head, args);
    return ok_status();
  }
  const uint64_t height = divide_up(labelled, divide_up(labelled, layout.rows));  // a thin last one would cost as much as a full one
  double sum = 0;
  for (uint64_t done = 0, first = 0; done < labelled; done += height) {
    Chunk chunk = chunk_at(layout, args.scratch, first);
    take_rows(head, chunk, smaller(height, labelled - done), true);
    if (done + chunk.count == labelled) chunk.end = head.M;
    sum = train_chunk(context, head, chunk, args, sum);
    first = chunk.end;
  }
  const double loss = sum / static_cast<double>(args.scalars->step_labelled);
  args.scalars->loss_sum += loss;
  if (!std::isfinite(loss)) args.scalars->skip = 1;
  return ok_status();
}

template <typename Stored>
Status cpu_loss_head_evaluate(const KernelContext& context, const LossHeadEvaluateArgsOf<Stored>& args) {
  const LossHead<Stored> head{args.x, args.w, args.b, args.labels, args.M, args.C, args.V};
  const LossHeadScratch layout = loss_head_scratch(head.M, head.C, head.V, false, kStoredAs<Stored>);
  if (args.scratch_bytes < layout.bytes) return kScratchTooSmall;
  const uint64_t labelled = count_labels(context, head);
  if (labelled == 0) return ok_status();
  double sum = 0;
  uint64_t correct = 0;
  for (uint64_t first = 0; first < head.M; first += layout.rows) {
    Chunk chunk = chunk_at(layout, args.scratch, first);
    take_rows(head, chunk, smaller(layout.rows, head.M - first), false);
    compute_logits(context, head, chunk, head.x + first * head.C);
    compute_losses(context, head, chunk, 0);
    sum = sum_losses(chunk, sum);
    for (uint64_t i = 0; i < chunk.count; ++i) correct += chunk.rows[i].is_hit;
  }
  args.scalars->loss_sum += sum;
  args.scalars->labelled += labelled;
  args.scalars->correct += correct;
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_loss_head_backward, LossHeadBackwardArgs)
REPRISE_INSTANTIATE(cpu_loss_head_evaluate, LossHeadEvaluateArgs)

}  // namespace reprise
