// The loss head: logits, softmax cross-entropy and their gradients in one loop over chunks of rows.
// Here because the matrix of all logits must never exist (SPEED 8.5). In training, rows without a label take no part: of conversations two in
// three may have none.
//
// A chunk's logits stand transposed, [class, row]. So the vocabulary's weights are the left operand of both products that they take part in,
// and are read as they lie or packed on a worker's stack; what is packed in memory is the chunk's own, which is smaller (a chunk of more rows
// than channels computes dx = dlogits^T w instead):
//
//   logits [V, rows] = w [V, C] x^T       dw [V, C] = dlogits [V, rows] x       dx^T [C, rows] = w^T [C, V] dlogits
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
struct LossHead : LossHeadInputOf<Stored> {
  const float* row_weights = nullptr;  // [M], in training; null: all are alike

  bool takes_part(uint64_t row) const { return this->labels[row] != kIgnoredLabel && (row_weights == nullptr || row_weights[row] != 0); }
};

struct HeadRow {
  uint32_t at : 31;      // of the M rows
  uint32_t is_hit : 1;  // whether the label is predicted
};
static_assert(sizeof(HeadRow) == 4);

// So many rows of the M, of which the chunk's are all or those with a label.
struct Chunk {
  uint64_t stride;    // floats from class to class
  float* logits;      // [V, stride]
  float* largest;     // [blocks, stride]: of the block's logits; then what the block's exponentials are multiplied with
  uint32_t* classes;  // [blocks, stride]: which class has the largest logit, the first of several
  float* sums;        // [blocks, stride]: of e^(logit - largest)
  double* losses;     // [count]
  HeadRow* rows;      // [count], rising
  bool turns_dx;
  float* dx;          // in training: [C, stride] if it is turned, [count, C] if it is bf16
  void* gemm;
  uint64_t first, end, count;  // rows [first, end) of the M
};

Chunk chunk_at(const LossHeadScratch& layout, void* scratch, uint64_t first, uint32_t C) {
  unsigned char* base = static_cast<unsigned char*>(scratch);
  return {.stride = layout.stride,
          .logits = reinterpret_cast<float*>(base),
          .largest = reinterpret_cast<float*>(base + layout.largest_at),
          .classes = reinterpret_cast<uint32_t*>(base + layout.classes_at),
          .sums = reinterpret_cast<float*>(base + layout.sums_at),
          .losses = reinterpret_cast<double*>(base + layout.losses_at),
          .rows = reinterpret_cast<HeadRow*>(base + layout.rows_at),
          .turns_dx = loss_head_turns_dx(layout.rows, C),
          .dx = reinterpret_cast<float*>(base + layout.dx_at),
          .gemm = base + layout.gemm_at,
          .first = first,
          .end = first,
          .count = 0};
}

// The chunk's rows: `count` of those from its first on, all or those that take part.
template <typename Stored>
void take_rows(const LossHead<Stored>& head, Chunk& chunk, uint64_t count, bool parts_only) {
  for (; chunk.count < count; ++chunk.end) {
    if (parts_only && !head.takes_part(chunk.end)) continue;
    chunk.rows[chunk.count++] = {static_cast<uint32_t>(chunk.end) & 0x7fffffffu, 0};
  }
}

// Counts the rows that take part; the labels are data and may be anything. The first that is no class is a fault, and then none counts.
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
    labelled += head.takes_part(i);
  }
  return labelled;
}

// A factor of the classes' weights as it lies, or as each panel of it is packed.
template <typename Use>
void with_weights(const Weight& w, int64_t line_stride, int64_t depth_stride, const Use& use) {
  if (w.type == DType::kF32) return use(MatrixPacker{w.f32(), line_stride, depth_stride});
  use(WeightPacker{w, line_stride, depth_stride});
}

// `x`: the chunk's rows, one behind the other. Without the bias.
template <typename Stored>
void compute_logits(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, const Stored* x) {
  const MatrixOutput logits{chunk.logits, static_cast<int64_t>(chunk.stride)};
  with_weights(head.w, head.C, 1, [&](const auto& w) {
    gemm(context, {head.V, chunk.count, head.C}, w, MatrixPackerOf<Stored>{x, head.C, 1}, logits, false, chunk.gemm);
  });
}

// The logits of classes [begin, end), all rows.
struct ClassBlock {
  float* logits;
  uint64_t stride;
  const float* bias;  // of the first class, or null
  float softcap;      // 0: none
  uint32_t begin, end;
  float* largest;
  uint32_t* classes;
  float* sums;
};

// The derivative of a capped logit by the logit.
REPRISE_INLINE float cap_slope(float capped, float softcap) {
  const float bent = capped / softcap;
  return 1.0f - bent * bent;
}

// Caps logits with their bias.
REPRISE_INLINE void cap_body(const ClassBlock& block) {
  float* logits = block.logits;
  const float softcap = block.softcap;
  const uint64_t stride = block.stride;
  for (uint32_t v = block.begin; v < block.end; ++v, logits += stride) {
    const float bias = block.bias == nullptr ? 0.0f : block.bias[v - block.begin];
    REPRISE_INDEPENDENT
    for (uint64_t r = 0; r < stride; ++r) logits[r] = softcap * vector_tanh((logits[r] + bias) / softcap);
  }
}
REPRISE_VECTOR_LEVELS(cap_block, cap_body, (const ClassBlock& block), (block))

// Adds the bias, which capped logits have, and finds the largest logit of each row; NaN counts for nothing here, its exponential makes the row's
// loss NaN.
REPRISE_INLINE void find_largest_body(const ClassBlock& block) {
  float *largest = block.largest, *logits = block.logits;
  uint32_t* classes = block.classes;
  const uint64_t stride = block.stride;
  for (uint64_t r = 0; r < stride; ++r) largest[r] = -__builtin_inff();
  for (uint64_t r = 0; r < stride; ++r) classes[r] = block.begin;
  for (uint32_t v = block.begin; v < block.end; ++v, logits += stride) {
    const float bias = block.bias == nullptr || block.softcap > 0 ? 0.0f : block.bias[v - block.begin];
    REPRISE_INDEPENDENT
    for (uint64_t r = 0; r < stride; ++r) {
      const float logit = logits[r] + bias;
      logits[r] = logit;
      classes[r] = logit > largest[r] ? v : classes[r];
      largest[r] = logit > largest[r] ? logit : largest[r];
    }
  }
}
REPRISE_VECTOR_LEVELS(find_largest, find_largest_body, (const ClassBlock& block), (block))

// Logits become e^(logit - largest), of which a row that has only -infinity gets zeros.
REPRISE_INLINE void exponentiate_body(const ClassBlock& block) {
  float *sums = block.sums, *logits = block.logits;
  const float* largest = block.largest;
  const uint64_t stride = block.stride;
  for (uint64_t r = 0; r < stride; ++r) sums[r] = 0;
  for (uint32_t v = block.begin; v < block.end; ++v, logits += stride) {
    REPRISE_INDEPENDENT
    for (uint64_t r = 0; r < stride; ++r) {
      logits[r] = vector_exp_at_most_88(logits[r] - (largest[r] == -__builtin_inff() ? 0.0f : largest[r]));
      sums[r] += logits[r];
    }
  }
}
REPRISE_VECTOR_LEVELS(exponentiate, exponentiate_body, (const ClassBlock& block), (block))

// The same sums, but capped logits stay: their slopes are still to come.
REPRISE_INLINE void sum_exponentials_body(const ClassBlock& block) {
  float* sums = block.sums;
  const float *largest = block.largest, *logits = block.logits;
  const uint64_t stride = block.stride;
  for (uint64_t r = 0; r < stride; ++r) sums[r] = 0;
  for (uint32_t v = block.begin; v < block.end; ++v, logits += stride) {
    REPRISE_INDEPENDENT
    for (uint64_t r = 0; r < stride; ++r) sums[r] += vector_exp_at_most_88(logits[r] - largest[r]);
  }
}
REPRISE_VECTOR_LEVELS(sum_exponentials, sum_exponentials_body, (const ClassBlock& block), (block))

// Capped logits become their exponentials times their block's factors, which stand in its sums, and times their slopes.
REPRISE_INLINE void scale_capped_body(const ClassBlock& block) {
  float* logits = block.logits;
  const float *largest = block.largest, *factors = block.sums, softcap = block.softcap;
  const uint64_t stride = block.stride;
  for (uint32_t v = block.begin; v < block.end; ++v, logits += stride) {
    REPRISE_INDEPENDENT
    for (uint64_t r = 0; r < stride; ++r) {
      logits[r] = vector_exp_at_most_88(logits[r] - largest[r]) * factors[r] * cap_slope(logits[r], softcap);
    }
  }
}
REPRISE_VECTOR_LEVELS(scale_capped, scale_capped_body, (const ClassBlock& block), (block))

// Exponentials times their block's factors.
REPRISE_INLINE void scale_body(const ClassBlock& block) {
  float* logits = block.logits;
  const float* factors = block.largest;
  const uint64_t stride = block.stride;
  for (uint32_t v = block.begin; v < block.end; ++v, logits += stride) {
    REPRISE_INDEPENDENT
    for (uint64_t r = 0; r < stride; ++r) logits[r] *= factors[r];
  }
}
REPRISE_VECTOR_LEVELS(scale_block, scale_body, (const ClassBlock& block), (block))

template <typename Stored, typename Use>
void for_each_block(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, const Use& use) {
  const Partition blocks = loss_head_blocks(head.V, chunk.stride);
  parallel_for(*context.workers, blocks.count(), [&](uint32_t i) {
    const uint64_t begin = blocks.begin(i), line = i * chunk.stride;
    use(ClassBlock{.logits = chunk.logits + begin * chunk.stride,
                   .stride = chunk.stride,
                   .bias = head.b == nullptr ? nullptr : head.b + begin,
                   .softcap = head.softcap,
                   .begin = static_cast<uint32_t>(begin),
                   .end = static_cast<uint32_t>(blocks.end(i)),
                   .largest = chunk.largest + line,
                   .classes = chunk.classes + line,
                   .sums = chunk.sums + line});
  });
}

// Row r over all blocks: whether its label is the first of its largest logits, and its loss; a `scale` that is not 0 makes the blocks' factors
// of it, in the place of their largest logits or, where these are still needed, of their sums. `logit` is the label's.
void join_blocks(const Chunk& chunk, uint64_t r, uint32_t blocks, uint32_t label, double logit, double scale, bool keeps_largest) {
  float *largest = chunk.largest + r, *sums = chunk.sums + r, *factors = keeps_largest ? sums : largest, maximum = -__builtin_inff();
  uint32_t predicted = 0;
  for (uint64_t i = 0; i < blocks; ++i) {
    const float candidate = largest[i * chunk.stride];
    if (candidate > maximum || i == 0) predicted = chunk.classes[i * chunk.stride + r];
    if (candidate > maximum) maximum = candidate;
  }
  const float shift = maximum == -__builtin_inff() ? 0.0f : maximum;
  double total = 0;
  for (uint64_t i = 0; i < blocks; ++i) {
    const float factor = vector_exp_at_most_88(largest[i * chunk.stride] - shift);
    total += static_cast<double>(sums[i * chunk.stride]) * (largest[i * chunk.stride] == -__builtin_inff() ? 1.0 : static_cast<double>(factor));
    factors[i * chunk.stride] = factor;
  }
  chunk.rows[r].is_hit = predicted == label;
  chunk.losses[r] = std::log(total) + static_cast<double>(maximum) - logit;
  const float every = static_cast<float>(scale / total);
  for (uint64_t i = 0; scale != 0 && i < blocks; ++i) factors[i * chunk.stride] *= every;
}

// Losses and hits of the chunk's rows, zeros where there is no label; with a `scale` that is not 0 logits become gradients, of a head with row
// weights `scale` times the row's, else they are left as garbage.
template <typename Stored>
void compute_losses(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, double scale) {
  const VectorLevel level = cpu_machine(context).level;
  const uint32_t blocks = loss_head_blocks(head.V, chunk.stride).count();
  const auto label_of = [&](uint64_t r) { return head.labels[chunk.rows[r].at]; };
  const auto scale_of = [&](uint64_t r) { return head.row_weights == nullptr ? scale : scale * static_cast<double>(head.row_weights[chunk.rows[r].at]); };
  const auto at_label = [&](uint64_t r) -> float& { return chunk.logits[static_cast<uint64_t>(label_of(r)) * chunk.stride + r]; };
  const bool caps = head.softcap > 0;
  if (caps) for_each_block(context, head, chunk, [&](const ClassBlock& block) { cap_block(level, block); });
  for (uint64_t r = 0; r < chunk.count; ++r) {
    if (label_of(r) == kIgnoredLabel) continue;
    chunk.losses[r] = static_cast<double>(at_label(r) + (head.b == nullptr || caps ? 0.0f : head.b[label_of(r)]));
  }
  for_each_block(context, head, chunk, [&](const ClassBlock& block) {
    find_largest(level, block);
    (caps ? sum_exponentials : exponentiate)(level, block);
  });
  for_each_piece(*context.workers, Partition{chunk.count, kLossHeadLine}, [&](uint64_t begin, uint64_t end) {
    for (uint64_t r = begin; r < end; ++r) {
      if (label_of(r) == kIgnoredLabel) {
        chunk.losses[r] = 0;
      } else {
        join_blocks(chunk, r, blocks, static_cast<uint32_t>(label_of(r)), chunk.losses[r], scale_of(r), caps);
      }
    }
  });
  if (scale == 0) return;
  float* label_slopes = reinterpret_cast<float*>(chunk.classes);  // of the first block, which nobody reads any more
  for (uint64_t r = 0; r < chunk.count; ++r) label_slopes[r] = caps ? cap_slope(at_label(r), head.softcap) : 1.0f;
  for_each_block(context, head, chunk, [&](const ClassBlock& block) { (caps ? scale_capped : scale_block)(level, block); });
  for (uint64_t r = 0; r < chunk.count; ++r) at_label(r) -= static_cast<float>(scale_of(r)) * label_slopes[r];
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

// db[v] (+)= the sum of the class's gradients.
REPRISE_INLINE void sum_classes_body(float* db, const ClassBlock& block, uint64_t count, bool accumulate) {
  const float* row = block.logits;
  for (uint32_t v = block.begin; v < block.end; ++v, row += block.stride) {
    typename VectorOf<kSumLanes>::type sum = {}, part;
    uint64_t r = 0;
    for (; r + kSumLanes <= count; r += kSumLanes) {
      read_vector<kSumLanes>(part, row + r);
      sum += part;
    }
    float lanes[kSumLanes];
    write_vector<kSumLanes>(lanes, sum);
    for (uint32_t i = 0; r < count; ++r, ++i) lanes[i] += row[r];
    db[v] = accumulate ? db[v] + sum_lanes(lanes) : sum_lanes(lanes);
  }
}
REPRISE_VECTOR_LEVELS(sum_classes, sum_classes_body, (float* db, const ClassBlock& block, uint64_t count, bool accumulate),
                      (db, block, count, accumulate))

// The chunk's share of dw and db. `x`: its rows, one behind the other.
template <typename Stored>
void add_weight_gradients(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, const Stored* x,
                          const LossHeadBackwardArgsOf<Stored>& args, bool is_first) {
  if (args.dw != nullptr) {
    gemm_split(context, {head.V, head.C, chunk.count}, MatrixPacker{chunk.logits, static_cast<int64_t>(chunk.stride), 1},
               MatrixPackerOf<Stored>{x, 1, head.C}, args.dw, args.accumulate_dw || !is_first, chunk.gemm);
  }
  if (args.db == nullptr) return;
  const VectorLevel level = cpu_machine(context).level;
  for_each_block(context, head, chunk, [&](const ClassBlock& block) {
    sum_classes(level, args.db, block, chunk.count, args.accumulate_db || !is_first);
  });
}

// dx at the chunk's rows.
struct HeadRowsOutput {
  static constexpr bool kUniformRows = false;
  float* dx;
  const HeadRow* rows;
  uint64_t C;

  float* row(uint64_t i) const { return dx + rows[i].at * C; }
};
template <typename Stored, typename Output>
void multiply_gradients(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, const Output& output) {
  const MatrixPacker gradients{chunk.logits, 1, static_cast<int64_t>(chunk.stride)};
  gemm(context, {chunk.count, head.C, head.V}, gradients, WeightPacker{head.w, 1, head.C}, output, false, chunk.gemm);
}
void compute_plain_dx(const KernelContext& context, const LossHead<float>& head, const Chunk& chunk, float* dx) {
  multiply_gradients(context, head, chunk, HeadRowsOutput{dx, chunk.rows, head.C});
}
// In f32 first: the packed weights of all classes would be too many for gemm() to round it.
void compute_plain_dx(const KernelContext& context, const LossHead<Bf16>& head, const Chunk& chunk, Bf16* dx) {
  multiply_gradients(context, head, chunk, MatrixOutput{chunk.dx, head.C});
  for_each_piece(*context.workers, split_rows(chunk.count, head.C), [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      narrow(cpu_machine(context).level, dx + chunk.rows[i].at * uint64_t{head.C}, chunk.dx + i * head.C, head.C, nullptr, false);
    }
  });
}

template <typename Stored>
void compute_turned_dx(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, Stored* dx) {
  const int64_t stride = static_cast<int64_t>(chunk.stride);
  with_weights(head.w, 1, head.C, [&](const auto& w) {
    gemm(context, {head.C, chunk.count, head.V}, w, MatrixPacker{chunk.logits, 1, stride}, MatrixOutput{chunk.dx, stride}, false, chunk.gemm);
  });
  for_each_piece(*context.workers, Partition{chunk.count, kLossHeadLine}, [&](uint64_t begin, uint64_t end) {
    for (uint64_t c = 0; c < head.C; ++c) {
      for (uint64_t r = begin; r < end; ++r) dx[chunk.rows[r].at * uint64_t{head.C} + c] = chunk.dx[c * chunk.stride + r];
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
  compute_losses(context, head, chunk, head.row_weights != nullptr ? 1.0 : 1.0 / static_cast<double>(args.scalars->step_labelled));
  add_weight_gradients(context, head, chunk, x, args, chunk.first == 0);
  if (chunk.turns_dx) {
    compute_turned_dx(context, head, chunk, args.dx);
  } else {
    compute_plain_dx(context, head, chunk, args.dx);
  }
  for (uint64_t i = chunk.first; i < chunk.end; ++i) {
    if (!head.takes_part(i)) std::memset(args.dx + i * head.C, 0, head.C * sizeof(Stored));
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
  const LossHead<Stored> head{args.in, args.row_weights};
  const LossHeadScratch layout = loss_head_scratch(head.M, head.C, head.V, true, kStoredAs<Stored>, cpu_machine(context).size);
  if (head.scratch_bytes < layout.bytes) return kScratchTooSmall;
  const uint64_t labelled = count_labels(context, head);
  if (labelled == 0) {
    clear_gradients(head, args);
    return ok_status();
  }
  const uint64_t height = divide_up(labelled, divide_up(labelled, layout.rows));  // a thin last one would cost as much as a full one
  double sum = 0;
  for (uint64_t done = 0, first = 0; done < labelled; done += height) {
    Chunk chunk = chunk_at(layout, head.scratch, first, head.C);
    take_rows(head, chunk, smaller(height, labelled - done), true);
    if (done + chunk.count == labelled) chunk.end = head.M;
    sum = train_chunk(context, head, chunk, args, sum);
    first = chunk.end;
  }
  if (head.row_weights != nullptr) return ok_status();
  const double loss = sum / static_cast<double>(args.scalars->step_labelled);
  args.scalars->loss_sum += loss;
  if (!std::isfinite(loss)) args.scalars->skip = 1;
  return ok_status();
}

template <typename Stored>
Status cpu_loss_head_forward(const KernelContext& context, const LossHeadForwardArgsOf<Stored>& args) {
  const LossHead<Stored> head{args.in};
  const LossHeadScratch layout = loss_head_scratch(head.M, head.C, head.V, false, kStoredAs<Stored>, cpu_machine(context).size);
  if (head.scratch_bytes < layout.bytes) return kScratchTooSmall;
  const bool has_labels = count_labels(context, head) > 0;
  for (uint64_t first = 0; first < head.M; first += layout.rows) {
    Chunk chunk = chunk_at(layout, head.scratch, first, head.C);
    chunk.losses = args.losses + first;
    take_rows(head, chunk, smaller(layout.rows, head.M - first), false);
    if (!has_labels) {
      std::memset(chunk.losses, 0, chunk.count * sizeof(double));
      continue;
    }
    compute_logits(context, head, chunk, head.x + first * head.C);
    compute_losses(context, head, chunk, 0);
  }
  return ok_status();
}

template <typename Stored>
Status cpu_loss_head_evaluate(const KernelContext& context, const LossHeadEvaluateArgsOf<Stored>& args) {
  const LossHead<Stored> head{args.in};
  const LossHeadScratch layout = loss_head_scratch(head.M, head.C, head.V, false, kStoredAs<Stored>, cpu_machine(context).size);
  if (head.scratch_bytes < layout.bytes) return kScratchTooSmall;
  const uint64_t labelled = count_labels(context, head);
  if (labelled == 0) return ok_status();
  double sum = 0;
  uint64_t correct = 0;
  for (uint64_t first = 0; first < head.M; first += layout.rows) {
    Chunk chunk = chunk_at(layout, head.scratch, first, head.C);
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
REPRISE_INSTANTIATE(cpu_loss_head_forward, LossHeadForwardArgs)
REPRISE_INSTANTIATE(cpu_loss_head_evaluate, LossHeadEvaluateArgs)

}  // namespace reprise
