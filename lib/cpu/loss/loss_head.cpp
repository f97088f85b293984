// The loss head: logits, softmax cross-entropy and their gradients in one loop over chunks of rows,
// so that the matrix of all logits never exists (SPEED 8.5). In training, rows without a label are
// left out: in conversations two of three may have none.
//
// A chunk's logits are transposed, [class, row]. The weights of the vocabulary are then the left
// operand of two products, read in place or packed on a worker's stack. Only the smaller operand,
// from the chunk, is packed in memory. A chunk with at least as many rows as channels computes dx =
// dlogits^T w instead.
//
//   logits [V, rows] = w [V, C] x^T      dw [V, C] = dlogits [V, rows] x
//   dx^T [C, rows] = w^T [C, V] dlogits
//
// If x is stored as bf16 and the machine multiplies pairs (bf16_pairs.h), all three products use
// pairs. Weights are rounded while they are packed. The logits' gradients are rounded once, in
// place, after the labels are subtracted. Sums, softmax and losses stay f32 and f64.
#include <cmath>
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/data_fault.h"
#include "lib/cpu/gemm/bf16_pairs.h"
#include "lib/cpu/loss/loss_head_rules.h"
#include "lib/cpu/vector_math.h"
#include "lib/cpu/vector_of.h"
#include "lib/portable_math.h"

namespace reprise {
namespace {

// The tiles for pairs of bf16, one for each depth of a product: channels, a chunk's rows, and
// classes. All are null if the products are computed in f32.
struct PairTiles {
  const GemmTile *channels = nullptr, *rows = nullptr, *classes = nullptr;
};

template <typename Stored>
struct LossHead : LossHeadInputOf<Stored> {
  const float* row_weights = nullptr;  // [M], in training; null: equal weights
  PairTiles tiles = {};

  bool takes_part(uint64_t row) const {
    return this->labels[row] != kIgnoredLabel && (row_weights == nullptr || row_weights[row] != 0);
  }
};

struct HeadRow {
  uint32_t at : 31;     // index among the M rows
  uint32_t is_hit : 1;  // the label is the first class with the largest logit
};
static_assert(sizeof(HeadRow) == 4);

// A chunk: `count` of the rows [first, end), either all of them or those that take part in the
// loss.
struct Chunk {
  uint64_t stride;    // floats from one class's logits to the next class's
  float* logits;      // [V, stride]
  float* largest;     // [blocks, stride]: largest logit of the block; then the factor of the block's exponentials
  uint32_t* classes;  // [blocks, stride]: the first class with the largest logit
  float* sums;        // [blocks, stride]: sums of e^(logit - largest)
  double* losses;     // [count]: loss of each row
  HeadRow* rows;      // [count]: the rows, in ascending order
  bool transposes_dx;
  float* dx;  // in training: [C, stride] if transposed, else [count, C] if dx is bf16; otherwise unused
  void* gemm;
  uint64_t first, end, count;  // `count` rows of the range [first, end) of all M rows

  float& logit(int32_t label, uint64_t r) const { return logits[static_cast<uint64_t>(label) * stride + r]; }
  // Returns the gradients in bf16. A class's gradients begin at the address of its logits.
  Bf16* rounded_gradients() const { return reinterpret_cast<Bf16*>(logits); }
  uint64_t rounded_pitch() const { return 2 * stride; }
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
          .transposes_dx = loss_head_transposes_dx(layout.rows, C),
          .dx = reinterpret_cast<float*>(base + layout.dx_at),
          .gemm = base + layout.gemm_at,
          .first = first,
          .end = first,
          .count = 0};
}

// Finds the tiles by shape alone. A chunk with fewer rows uses the same tiles, because its padding
// fits the scratch, too.
template <typename Stored>
PairTiles find_pair_tiles(const KernelContext& context, const LossHeadInputOf<Stored>& in, uint64_t chunk_rows) {
  if (kStoredAs<Stored> != DType::kBf16 || in.C % 2 != 0) return {};
  const PairTiles tiles{find_pair_tile(context, in.C), find_pair_tile(context, chunk_rows),
                        find_pair_tile(context, in.V)};
  return tiles.channels != nullptr && tiles.rows != nullptr && tiles.classes != nullptr ? tiles : PairTiles{};
}

// Adds rows to the chunk, from chunk.end on, until it has `count` rows. Adds only rows that take
// part in the loss if `parts_only` is set, else all rows.
template <typename Stored>
void take_rows(const LossHead<Stored>& head, Chunk& chunk, uint64_t count, bool parts_only) {
  for (; chunk.count < count; ++chunk.end) {
    if (parts_only && !head.takes_part(chunk.end)) continue;
    chunk.rows[chunk.count++] = {static_cast<uint32_t>(chunk.end) & 0x7fffffffu, 0};
  }
}

// Returns the number of rows that take part in the loss. If a label is not a class, notes a fault
// and returns 0: labels are data and may have any value.
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

// Calls use() with the weights of the classes as an operand, which can be read in place if it is
// f32.
template <typename Use>
void with_weights(const Weight& w, int64_t line_stride, int64_t depth_stride, const Use& use) {
  if (w.type == DType::kF32) return use(MatrixPacker{w.f32(), line_stride, depth_stride});
  use(WeightPacker{w, line_stride, depth_stride});
}

// Computes logits without the bias. `x` has the chunk's rows, contiguous.
template <typename Stored>
void compute_logits(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, const Stored* x) {
  const MatrixOutput logits{chunk.logits, static_cast<int64_t>(chunk.stride)};
  if constexpr (kStoredAs<Stored> == DType::kBf16) {
    if (const GemmTile* tile = head.tiles.channels; tile != nullptr) {
      return multiply_pairs(context, *tile, {head.V, chunk.count, head.C},
                            PairedWeights{{head.w, head.C, 1}, head.C, tile->group_of_a},
                            PairedLines{x, head.C, head.C, tile->group_of_b}, logits, false, chunk.gemm);
    }
  }
  with_weights(head.w, head.C, 1, [&](const auto& w) {
    gemm(context, {head.V, chunk.count, head.C}, w, MatrixPackerOf<Stored>{x, head.C, 1}, logits, false, chunk.gemm);
  });
}

// The logits of classes [begin, end), all rows.
struct ClassBlock {
  float* logits;
  uint64_t stride;
  const float* bias;  // bias of the first class; null for none
  float softcap;      // 0 for none
  uint32_t begin, end;
  float* largest;
  uint32_t* classes;
  float* sums;
};

// Returns the derivative of a capped logit with respect to the logit.
REPRISE_INLINE float cap_slope(float capped, float softcap) {
  const float bent = capped / softcap;
  return 1.0f - bent * bent;
}

// Adds the bias to the logits and caps them.
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

// Finds each row's largest logit among the classes of the block. Also adds the bias, unless
// cap_body() has added it. Ignores NaN: the exponential of a NaN makes the row's loss NaN.
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

// Replaces logits by e^(logit - largest), and sums these in each row. All are 0 in a row that has
// only -infinity.
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

// Computes the sums of exponentiate_body(). Keeps the capped logits, because their derivatives are
// computed later.
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

// Replaces capped logits by e^(logit - largest) times the block's factors, which are in `sums`, and
// times the derivative of the cap.
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

// Multiplies exponentials by their block's factors, which are in `largest`.
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

// Combines the blocks of row r. Sets the row's loss, and whether `label` is the first class with
// the largest logit. `logit` is the label's logit. The factors of the blocks' exponentials replace
// the blocks' largest logits, or their sums if `keeps_largest` is set. The factors include `scale`
// unless it is 0.
void join_blocks(const Chunk& chunk, uint64_t r, uint32_t blocks, uint32_t label, double logit, double scale,
                 bool keeps_largest) {
  float *largest = chunk.largest + r, *sums = chunk.sums + r, *factors = keeps_largest ? sums : largest,
        maximum = -__builtin_inff();
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
    total += static_cast<double>(sums[i * chunk.stride]) *
             (largest[i * chunk.stride] == -__builtin_inff() ? 1.0 : static_cast<double>(factor));
    factors[i * chunk.stride] = factor;
  }
  chunk.rows[r].is_hit = predicted == label;
  chunk.losses[r] = portable_log(total) + static_cast<double>(maximum) - logit;
  const float every = static_cast<float>(scale / total);
  for (uint64_t i = 0; scale != 0 && i < blocks; ++i) factors[i * chunk.stride] *= every;
}

// Returns the weight of a row's loss, by which the gradients of its logits are multiplied.
template <typename Stored>
double share_of(const LossHead<Stored>& head, const Chunk& chunk, uint64_t r, double scale) {
  return head.row_weights == nullptr ? scale : scale * static_cast<double>(head.row_weights[chunk.rows[r].at]);
}

// Computes losses and hits of the chunk's rows; the loss of a row without a label is 0. Overwrites
// the logits: with the input of finish_gradients() if `scale` is not 0, else with undefined values.
template <typename Stored>
void compute_losses(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, double scale) {
  const VectorLevel level = cpu_machine(context).level;
  const uint32_t blocks = loss_head_blocks(head.V, chunk.stride).count();
  const auto label_of = [&](uint64_t r) { return head.labels[chunk.rows[r].at]; };
  const bool caps = head.softcap > 0;
  if (caps) for_each_block(context, head, chunk, [&](const ClassBlock& block) { cap_block(level, block); });
  for (uint64_t r = 0; r < chunk.count; ++r) {
    const int32_t label = label_of(r);
    if (label == kIgnoredLabel) continue;
    chunk.losses[r] = static_cast<double>(chunk.logit(label, r) + (head.b == nullptr || caps ? 0.0f : head.b[label]));
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
        join_blocks(chunk, r, blocks, static_cast<uint32_t>(label_of(r)), chunk.losses[r],
                    share_of(head, chunk, r, scale), caps);
      }
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
    for (uint64_t i = begin; i < end; ++i)
      std::memcpy(to + i * head.C, head.x + chunk.rows[i].at * uint64_t{head.C}, head.C * sizeof(Stored));
  });
}

// Computes db[v] (+)= the sum of the class's gradients.
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
REPRISE_VECTOR_LEVELS(sum_classes, sum_classes_body,
                      (float* db, const ClassBlock& block, uint64_t count, bool accumulate),
                      (db, block, count, accumulate))

// Rounds the gradients of each class to bf16, in place. Appends a zero if their number is odd, so
// that all pairs are whole.
REPRISE_INLINE void round_gradients_body(const ClassBlock& block, uint64_t count) {
  float* row = block.logits;
  for (uint32_t v = block.begin; v < block.end; ++v, row += block.stride) {
    Bf16* rounded = reinterpret_cast<Bf16*>(row);
    typename VectorOf<kLossHeadLine>::type part;
    for (uint64_t r = 0; r < count; r += kLossHeadLine) {
      read_vector<kLossHeadLine>(part, row + r);
      write_vector<kLossHeadLine>(rounded + r, part);
    }
    std::memset(rounded + count, 0, count % 2 * sizeof(Bf16));
  }
}
REPRISE_VECTOR_LEVELS(round_gradients, round_gradients_body, (const ClassBlock& block, uint64_t count), (block, count))

// Computes the logits' gradients from the result of compute_losses(), and adds them to db.
template <typename Stored>
void finish_gradients(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, double scale,
                      const LossHeadBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const bool caps = head.softcap > 0, adds_db = args.accumulate_db || chunk.first > 0;
  const auto label_of = [&](uint64_t r) { return head.labels[chunk.rows[r].at]; };
  // The values that are subtracted at the labels are stored in place of the first block's classes,
  // which compute_losses() has already used.
  float* at_labels = reinterpret_cast<float*>(chunk.classes);
  for (uint64_t r = 0; r < chunk.count; ++r) {
    const float slope = caps ? cap_slope(chunk.logit(label_of(r), r), head.softcap) : 1.0f;
    at_labels[r] = static_cast<float>(share_of(head, chunk, r, scale)) * slope;
  }
  for_each_block(context, head, chunk, [&](const ClassBlock& block) {
    (caps ? scale_capped : scale_block)(level, block);
    for (uint64_t r = 0; r < chunk.count; ++r) {
      const uint32_t label = static_cast<uint32_t>(label_of(r));
      if (label >= block.begin && label < block.end) chunk.logit(label_of(r), r) -= at_labels[r];
    }
    if (args.db != nullptr) sum_classes(level, args.db, block, chunk.count, adds_db);
    if (head.tiles.rows != nullptr) round_gradients(level, block, chunk.count);
  });
}

// Adds the chunk's part of dw. `x` has the chunk's rows, contiguous.
template <typename Stored>
void add_weight_gradients(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk,
                          const Stored* x, const LossHeadBackwardArgsOf<Stored>& args) {
  const bool adds = args.accumulate_dw || chunk.first > 0;
  if constexpr (kStoredAs<Stored> == DType::kBf16) {
    if (const GemmTile* tile = head.tiles.rows; tile != nullptr) {
      const PairedLines gradients{chunk.rounded_gradients(), chunk.count, chunk.rounded_pitch(), tile->group_of_a};
      return gemm_split(context, {head.V, head.C, pair_depths(*tile, chunk.count)}, gradients,
                        PairedRows{x, chunk.count, head.C, tile->group_of_b}, args.dw, adds, chunk.gemm, tile);
    }
  }
  gemm_split(context, {head.V, head.C, chunk.count}, MatrixPacker{chunk.logits, static_cast<int64_t>(chunk.stride), 1},
             MatrixPackerOf<Stored>{x, 1, head.C}, args.dw, adds, chunk.gemm);
}

// The output dx, as a matrix of the chunk's rows.
struct HeadRowsOutput {
  static constexpr bool kUniformRows = false;
  float* dx;
  const HeadRow* rows;
  uint64_t C;

  float* row(uint64_t i) const { return dx + rows[i].at * C; }
};
template <typename Stored, typename Output>
void multiply_gradients(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk,
                        const Output& output) {
  if constexpr (kStoredAs<Stored> == DType::kBf16) {
    if (const GemmTile* tile = head.tiles.classes; tile != nullptr) {
      return multiply_pairs(context, *tile, {chunk.count, head.C, head.V},
                            PairedRows{chunk.rounded_gradients(), head.V, chunk.rounded_pitch(), tile->group_of_a},
                            PairedWeights{{head.w, 1, head.C}, head.V, tile->group_of_b}, output, false, chunk.gemm);
    }
  }
  const MatrixPacker gradients{chunk.logits, 1, static_cast<int64_t>(chunk.stride)};
  gemm(context, {chunk.count, head.C, head.V}, gradients, WeightPacker{head.w, 1, head.C}, output, false, chunk.gemm);
}
void compute_plain_dx(const KernelContext& context, const LossHead<float>& head, const Chunk& chunk, float* dx) {
  multiply_gradients(context, head, chunk, HeadRowsOutput{dx, chunk.rows, head.C});
}
// Computes dx in f32, then rounds it. gemm() itself would round only if it packed the weights of
// all classes at once, which are too many.
void compute_plain_dx(const KernelContext& context, const LossHead<Bf16>& head, const Chunk& chunk, Bf16* dx) {
  multiply_gradients(context, head, chunk, MatrixOutput{chunk.dx, head.C});
  for_each_piece(*context.workers, split_rows(chunk.count, head.C), [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      narrow(cpu_machine(context).level, dx + chunk.rows[i].at * uint64_t{head.C}, chunk.dx + i * head.C, head.C,
             nullptr, false);
    }
  });
}

// Computes dx^T as f32 in the chunk.
template <typename Stored>
void multiply_transposed_gradients(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk) {
  const MatrixOutput transposed{chunk.dx, static_cast<int64_t>(chunk.stride)};
  if constexpr (kStoredAs<Stored> == DType::kBf16) {
    if (const GemmTile* tile = head.tiles.classes; tile != nullptr) {
      return multiply_pairs(context, *tile, {head.C, chunk.count, head.V},
                            PairedWeights{{head.w, 1, head.C}, head.V, tile->group_of_a},
                            PairedRows{chunk.rounded_gradients(), head.V, chunk.rounded_pitch(), tile->group_of_b},
                            transposed, false, chunk.gemm);
    }
  }
  with_weights(head.w, 1, head.C, [&](const auto& w) {
    gemm(context, {head.C, chunk.count, head.V}, w, MatrixPacker{chunk.logits, 1, transposed.row_stride}, transposed,
         false, chunk.gemm);
  });
}

template <typename Stored>
void compute_transposed_dx(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk, Stored* dx) {
  multiply_transposed_gradients(context, head, chunk);
  for_each_piece(*context.workers, Partition{chunk.count, kLossHeadLine}, [&](uint64_t begin, uint64_t end) {
    for (uint64_t c = 0; c < head.C; ++c) {
      for (uint64_t r = begin; r < end; ++r)
        dx[chunk.rows[r].at * uint64_t{head.C} + c] = chunk.dx[c * chunk.stride + r];
    }
  });
}

// Computes the chunk's part of all gradients. Returns `sum` plus the chunk's losses. The chunk's
// rows of x are gathered in the memory to which their dx is written later.
template <typename Stored>
double train_chunk(const KernelContext& context, const LossHead<Stored>& head, const Chunk& chunk,
                   const LossHeadBackwardArgsOf<Stored>& args, double sum) {
  Stored* x = args.dx + chunk.first * head.C;
  copy_rows(context, x, head, chunk);
  compute_logits(context, head, chunk, x);
  const double scale = head.row_weights != nullptr ? 1.0 : 1.0 / static_cast<double>(args.scalars->step_labelled);
  compute_losses(context, head, chunk, scale);
  finish_gradients(context, head, chunk, scale, args);
  if (args.dw != nullptr) add_weight_gradients(context, head, chunk, x, args);
  if (chunk.transposes_dx) {
    compute_transposed_dx(context, head, chunk, args.dx);
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

template <typename Stored>
LossHeadScratch layout_of(const LossHeadInputOf<Stored>& in, bool backward) {
  return loss_head_scratch(in.M, in.C, in.V, backward, kStoredAs<Stored>);
}

constexpr Status kScratchTooSmall = {Code::kBadPlan, "the loss head's scratch must have the bytes of its scratch rule",
                                     0};

}  // namespace

template <typename Stored>
Status cpu_loss_head_backward(const KernelContext& context, const LossHeadBackwardArgsOf<Stored>& args) {
  const LossHeadScratch layout = layout_of(args.in, true);
  const LossHead<Stored> head{args.in, args.row_weights, find_pair_tiles(context, args.in, layout.rows)};
  if (head.scratch_bytes < layout.bytes) return kScratchTooSmall;
  const uint64_t labelled = count_labels(context, head);
  if (labelled == 0) {
    clear_gradients(head, args);
    return ok_status();
  }
  // All chunks have about equal heights, because a short last chunk would cost as much as a full
  // one.
  const uint64_t height = divide_up(labelled, divide_up(labelled, layout.rows));
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
  const LossHeadScratch layout = layout_of(args.in, false);
  const LossHead<Stored> head{args.in, nullptr, find_pair_tiles(context, args.in, layout.rows)};
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
  const LossHeadScratch layout = layout_of(args.in, false);
  const LossHead<Stored> head{args.in, nullptr, find_pair_tiles(context, args.in, layout.rows)};
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
