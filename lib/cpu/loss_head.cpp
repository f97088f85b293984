// The loss head: logits, softmax cross-entropy and their gradients in one loop over chunks of rows.
// Here because the matrix of all logits must never exist (DESIGN 8).
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

struct Chunk {
  float* logits;   // [rows, V]
  double* losses;  // [rows]
  uint32_t* hits;  // [rows]: 1 where the label is predicted
  float* dx;       // [rows, C]: where dx is stored as bf16
  float* sums;     // of the columns
  void* gemm;
  uint64_t first, rows;
};

Chunk chunk_at(const LossHeadScratch& layout, void* scratch, uint64_t M, uint64_t first) {
  unsigned char* base = static_cast<unsigned char*>(scratch);
  return {reinterpret_cast<float*>(base),
          reinterpret_cast<double*>(base + layout.losses_at),
          reinterpret_cast<uint32_t*>(base + layout.hits_at),
          reinterpret_cast<float*>(base + layout.dx_at),
          reinterpret_cast<float*>(base + layout.sums_at),
          base + layout.gemm_at,
          first,
          smaller(layout.rows, M - first)};
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
    for (uint32_t v = first; v < end; ++v) logits[v] = vector_exp(logits[v] - maximum);
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

template <typename Stored>
void compute_logits(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk) {
  const BiasedOutputOf<float> logits{{chunk.logits, head.V}, head.b};
  const int64_t C = head.C;
  gemm(context, {chunk.rows, head.V, head.C}, MatrixPackerOf<Stored>{head.x + chunk.first * head.C, C, 1},
       WeightPacker{head.w, C, 1}, logits, false, chunk.gemm);
}

// Losses and hits of the chunk's rows; with `scale` above 0 logits become gradients, else they are left as garbage.
template <typename Stored>
void compute_losses(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, double scale) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, split_rows(chunk.rows, head.V), [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      float* logits = chunk.logits + i * head.V;
      const int32_t label = head.labels[chunk.first + i];
      if (label == kIgnoredLabel) {
        std::memset(logits, 0, head.V * sizeof(float));
        chunk.losses[i] = 0;
        chunk.hits[i] = 0;
        continue;
      }
      const uint32_t target = static_cast<uint32_t>(label);
      float maximum;
      find_maximum(level, logits, head.V, &maximum);
      chunk.hits[i] = is_first_maximum(logits, target, maximum);
      double total;
      chunk.losses[i] = row_loss(level, logits, head.V, target, maximum, &total);
      if (scale <= 0) continue;
      scale_row(level, logits, head.V, static_cast<float>(scale / total));
      logits[target] -= static_cast<float>(scale);
    }
  });
}

double sum_losses(const Chunk& chunk, double sum) {
  for (uint64_t i = 0; i < chunk.rows; ++i) sum += chunk.losses[i];
  return sum;
}

// Where the chunk's dx is computed: the packed weights of all classes would be too many for gemm() to round it.
float* f32_rows(float* dx, const Chunk&) { return dx; }
float* f32_rows(Bf16*, const Chunk& chunk) { return chunk.dx; }
void store_rows(const KernelContext&, float*, const float*, uint64_t) {}
void store_rows(const KernelContext& context, Bf16* dx, const float* rows, uint64_t count) {
  for_each_piece(*context.workers, {count, kBlockElements},
                 [&](uint64_t begin, uint64_t end) { narrow(cpu_machine(context).level, dx + begin, rows + begin, end - begin, nullptr, false); });
}

// The chunk's share of dx, dw and db from its logits' gradients.
template <typename Stored>
void add_gradients(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, const LossHeadBackwardArgsOf<Stored>& args) {
  const int64_t C = head.C, V = head.V;
  const uint64_t first = chunk.first * head.C;
  float* dx = f32_rows(args.dx + first, chunk);
  gemm(context, {chunk.rows, head.C, head.V}, MatrixPacker{chunk.logits, V, 1}, WeightPacker{head.w, 1, C}, MatrixOutput{dx, C}, false,
       chunk.gemm);
  store_rows(context, args.dx + first, dx, chunk.rows * head.C);
  if (args.dw != nullptr) {
    gemm_split(context, {head.V, head.C, chunk.rows}, MatrixPacker{chunk.logits, 1, V},
               MatrixPackerOf<Stored>{head.x + first, 1, C}, args.dw, args.accumulate_dw || chunk.first > 0, chunk.gemm);
  }
  if (args.db != nullptr) {
    column_sums(context, args.db, chunk.logits, chunk.rows, head.V, args.accumulate_db || chunk.first > 0, chunk.sums);
  }
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
  const double scale = 1.0 / static_cast<double>(args.scalars->step_labelled);
  double sum = 0;
  for (uint64_t first = 0; first < head.M; first += layout.rows) {
    const Chunk chunk = chunk_at(layout, args.scratch, head.M, first);
    compute_logits(context, head, chunk);
    compute_losses(context, head, chunk, scale);
    sum = sum_losses(chunk, sum);
    add_gradients(context, head, chunk, args);
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
    const Chunk chunk = chunk_at(layout, args.scratch, head.M, first);
    compute_logits(context, head, chunk);
    compute_losses(context, head, chunk, 0);
    sum = sum_losses(chunk, sum);
    for (uint64_t i = 0; i < chunk.rows; ++i) correct += chunk.hits[i];
  }
  args.scalars->loss_sum += sum;
  args.scalars->labelled += labelled;
  args.scalars->correct += correct;
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_loss_head_backward, LossHeadBackwardArgs)
REPRISE_INSTANTIATE(cpu_loss_head_evaluate, LossHeadEvaluateArgs)

}  // namespace reprise
