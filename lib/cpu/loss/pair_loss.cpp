// Losses of pairs of vectors, and their gradients. Vectors are first scaled to unit length. The
// contrastive loss computes three products of all unit vectors. All other work is passes over rows,
// in an order that depends on shape and targets alone.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/gemm/gemm.h"
#include "lib/cpu/loss/pair_loss_rules.h"
#include "lib/cpu/norm/square_sums.h"
#include "lib/cpu/vector_math.h"
#include "lib/portable_math.h"

namespace reprise {
namespace {

constexpr double kShortest = 1e-12;  // a shorter vector has no direction: its unit vector is zero

// A call's input and scratch, and the values that all pairs use.
template <typename Stored>
struct PairLoss : PairLossInputOf<Stored> {
  Stored* dx;      // null in evaluation
  float share;     // factor of the gradient of each pair
  uint64_t V = 0;  // number of pairs with a target
  LossTally* tallies;
  uint32_t* numbers;
  float *inverses, *units, *cosines, *largest, *sums, *column_largest, *column_sums, *slopes;
  void* product;

  PairLoss(const KernelContext& context, const PairLossInputOf<Stored>& in, Stored* slope_of_x, float factor)
      : PairLossInputOf<Stored>(in), dx(slope_of_x), share(factor) {
    const PairLossScratch s =
        pair_loss_scratch(in.B, in.D, contrasts(in.loss), dx != nullptr, cpu_machine(context).size);
    unsigned char* base = static_cast<unsigned char*>(in.scratch);
    const auto floats = [base](uint64_t at) { return reinterpret_cast<float*>(base + at); };
    tallies = reinterpret_cast<LossTally*>(base);
    numbers = reinterpret_cast<uint32_t*>(base + s.numbers_at);
    inverses = floats(s.inverses_at), units = floats(s.units_at), cosines = floats(s.cosines_at),
    slopes = floats(s.slopes_at);
    largest = floats(s.sums_at), sums = largest + in.B, column_largest = sums + in.B,
    column_sums = column_largest + in.B;
    product = base + s.product_at;
  }

  float target(uint64_t v) const { return this->targets[numbers[v]]; }
  uint64_t row_of_x(uint32_t side, uint64_t v) const { return 2 * uint64_t{numbers[v]} + side; }
  float* unit(uint32_t side, uint64_t v) const { return units + (side * V + v) * this->D; }
  float& inverse(uint32_t side, uint64_t v) const { return inverses[side * V + v]; }
  float sharpness() const { return 1.0f / this->loss.temperature; }
};

// ---- vectors ----

// Lists the pairs with a target. Writes zeros to dx of the pairs without a target.
template <typename Stored>
void list_pairs(PairLoss<Stored>& all) {
  const uint64_t length = 2 * uint64_t{all.D};
  for (uint64_t i = 0; i < all.B; ++i) {
    if (all.targets[i] == all.targets[i]) {
      all.numbers[all.V++] = static_cast<uint32_t>(i);
    } else {
      for (uint64_t c = 0; all.dx != nullptr && c < length; ++c) all.dx[i * length + c] = 0.0f;
    }
  }
}

template <typename Stored>
REPRISE_INLINE void make_units_body(const PairLoss<Stored>& all, uint64_t begin, uint64_t end) {
  const uint32_t D = all.D;
  for (uint64_t v = begin; v < end; ++v) {
    for (uint32_t side = 0; side < 2; ++side) {
      const Stored* x = all.x + all.row_of_x(side, v) * D;
      float* unit = all.unit(side, v);
      for (uint32_t c = 0; c < D; ++c) unit[c] = x[c];
      SquareSums squares;
      squares.add(unit, D);
      const double length = __builtin_sqrt(squares.total()), inverse = length < kShortest ? 0.0 : 1.0 / length;
      for (uint32_t c = 0; c < D; ++c) unit[c] = static_cast<float>(static_cast<double>(unit[c]) * inverse);
      all.inverse(side, v) = static_cast<float>(inverse);
    }
  }
}
REPRISE_STORAGE_LEVELS(make_units, make_units_body, (const PairLoss<Stored>& all, uint64_t begin, uint64_t end),
                       (all, begin, end))

// Computes dx from the gradients of the unit vectors. Removes the component along the unit vector,
// because the length of x has no effect on the loss.
template <typename Stored>
REPRISE_INLINE void write_slopes_body(const PairLoss<Stored>& all, uint64_t begin, uint64_t end) {
  const uint32_t D = all.D;
  for (uint64_t v = begin; v < end; ++v) {
    for (uint32_t side = 0; side < 2; ++side) {
      const float *unit = all.unit(side, v), *slope = all.slopes + (side * all.V + v) * D;
      const float along = sum_of_products(slope, unit, D), inverse = all.inverse(side, v);
      Stored* dx = all.dx + all.row_of_x(side, v) * D;
      REPRISE_INDEPENDENT
      for (uint32_t c = 0; c < D; ++c) dx[c] = (slope[c] - along * unit[c]) * inverse;
    }
  }
}
REPRISE_STORAGE_LEVELS(write_slopes, write_slopes_body, (const PairLoss<Stored>& all, uint64_t begin, uint64_t end),
                       (all, begin, end))

// ---- a single pair ----

struct Judged {
  float loss, slope;  // slope: derivative of the loss with respect to the cosine
  bool is_right;
};
REPRISE_INLINE Judged judge_cosine(const PairLossAttribute& loss, float cosine, float target) {
  if (loss.kind == static_cast<uint32_t>(PairLossKind::kSimilarity)) {
    const float d = cosine - target;
    return {d * d, 2.0f * d, false};
  }
  const bool is_near = cosine > 0.5f * (1.0f + loss.margin);
  if (target > 0.0f) return {1.0f - cosine, -1.0f, is_near};
  const float within = cosine * 0.0f;  // 0, or NaN if the cosine is NaN
  return {cosine > loss.margin ? cosine - loss.margin : within, cosine > loss.margin ? 1.0f : within, !is_near};
}

template <typename Stored>
REPRISE_INLINE void judge_alone_body(const PairLoss<Stored>& all, uint64_t begin, uint64_t end, LossTally& tally) {
  const uint32_t D = all.D;
  for (uint64_t v = begin; v < end; ++v) {
    const float *a = all.unit(0, v), *b = all.unit(1, v);
    const float cosine = sum_of_products(a, b, D);
    const Judged judged = judge_cosine(all.loss, cosine, all.target(v));
    tally.loss += static_cast<double>(judged.loss);
    tally.correct += judged.is_right;
    if (all.dx == nullptr) continue;
    const float by_cosine = judged.slope * all.share, of_a = by_cosine * all.inverse(0, v),
                of_b = by_cosine * all.inverse(1, v);
    Stored *da = all.dx + all.row_of_x(0, v) * D, *db = all.dx + all.row_of_x(1, v) * D;
    REPRISE_INDEPENDENT
    for (uint32_t c = 0; c < D; ++c) da[c] = (b[c] - cosine * a[c]) * of_a;
    REPRISE_INDEPENDENT
    for (uint32_t c = 0; c < D; ++c) db[c] = (a[c] - cosine * b[c]) * of_b;
  }
}
REPRISE_STORAGE_LEVELS(judge_alone, judge_alone_body,
                       (const PairLoss<Stored>& all, uint64_t begin, uint64_t end, LossTally& tally),
                       (all, begin, end, tally))

// ---- a pair among the others ----

// Sets the cosine in row i, column j to -infinity if pairs i and j are not negatives of each other,
// for rows [begin, end). Its exponential and its gradient are then 0.
template <typename Stored>
void leave_out_equal(const PairLoss<Stored>& all, uint64_t begin, uint64_t end) {
  for (uint64_t i = begin; i < end; ++i) {
    for (uint64_t j = 0; j < all.V; ++j) {
      if (j != i && is_no_negative(all.target(i), all.target(j))) all.cosines[i * all.V + j] = -__builtin_inff();
    }
  }
}

// Returns -log of the softmax of `own`. `sum` is the sum of exponentials relative to `largest`.
REPRISE_INLINE double log_share(float sum, float largest, float own, float sharpness) {
  return portable_log(static_cast<double>(sum)) + static_cast<double>(largest - own) * static_cast<double>(sharpness);
}

// Computes each row's largest cosine and sum of exponentials, and adds the row's loss. Counts the
// rows in which the pair's own second vector is the first with the largest cosine.
template <typename Stored>
REPRISE_INLINE void sum_rows_body(const PairLoss<Stored>& all, uint64_t begin, uint64_t end, LossTally& tally) {
  const uint64_t V = all.V;
  const float sharpness = all.sharpness();
  for (uint64_t i = begin; i < end; ++i) {
    const float* cosine = all.cosines + i * V;
    const float largest = largest_of(cosine, static_cast<uint32_t>(V));
    float lanes[kSumLanes] = {};
    for (uint64_t j = 0; j < V; j += kSumLanes) {
      const uint64_t count = V - j < kSumLanes ? V - j : kSumLanes;
      for (uint64_t k = 0; k < count; ++k) lanes[k] += vector_exp_at_most_88((cosine[j + k] - largest) * sharpness);
    }
    all.largest[i] = largest, all.sums[i] = sum_lanes(lanes);
    tally.loss += (all.loss.symmetric != 0 ? 0.5 : 1.0) * log_share(all.sums[i], largest, cosine[i], sharpness);
    uint64_t first = 0;
    while (first < V && !(cosine[first] == largest)) ++first;
    tally.correct += first == i;
  }
}
REPRISE_STORAGE_LEVELS(sum_rows, sum_rows_body,
                       (const PairLoss<Stored>& all, uint64_t begin, uint64_t end, LossTally& tally),
                       (all, begin, end, tally))

// Computes the largest cosines, sums and losses of columns [begin, end): one pass over all rows for
// the largest cosines, one for the sums.
template <typename Stored>
REPRISE_INLINE void sum_columns_body(const PairLoss<Stored>& all, uint64_t begin, uint64_t end, LossTally& tally) {
  const uint64_t V = all.V;
  const float sharpness = all.sharpness();
  float *largest = all.column_largest, *sums = all.column_sums;
  for (uint64_t j = begin; j < end; ++j) largest[j] = -__builtin_inff(), sums[j] = 0.0f;
  for (uint64_t i = 0; i < V; ++i) {
    const float* cosine = all.cosines + i * V;
    REPRISE_INDEPENDENT
    for (uint64_t j = begin; j < end; ++j) largest[j] = cosine[j] > largest[j] ? cosine[j] : largest[j];
  }
  for (uint64_t i = 0; i < V; ++i) {
    const float* cosine = all.cosines + i * V;
    REPRISE_INDEPENDENT
    for (uint64_t j = begin; j < end; ++j) sums[j] += vector_exp_at_most_88((cosine[j] - largest[j]) * sharpness);
  }
  for (uint64_t j = begin; j < end; ++j)
    tally.loss += 0.5 * log_share(sums[j], largest[j], all.cosines[j * V + j], sharpness);
}
REPRISE_STORAGE_LEVELS(sum_columns, sum_columns_body,
                       (const PairLoss<Stored>& all, uint64_t begin, uint64_t end, LossTally& tally),
                       (all, begin, end, tally))

// Replaces rows of cosines by the derivatives of the loss with respect to these cosines. The sum
// has two quotients and no products, because different compilers could fuse different products.
template <typename Stored>
REPRISE_INLINE void slope_rows_body(const PairLoss<Stored>& all, uint64_t begin, uint64_t end) {
  const uint64_t V = all.V;
  const float sharpness = all.sharpness(), scale = all.share * sharpness, half = 0.5f * scale;
  const float *column_largest = all.column_largest, *column_sums = all.column_sums;
  for (uint64_t i = begin; i < end; ++i) {
    float* cosine = all.cosines + i * V;
    const float largest = all.largest[i], sum = all.sums[i];
    if (all.loss.symmetric != 0) {
      REPRISE_INDEPENDENT
      for (uint64_t j = 0; j < V; ++j) {
        const float of_row = vector_exp_at_most_88((cosine[j] - largest) * sharpness),
                    of_column = vector_exp_at_most_88((cosine[j] - column_largest[j]) * sharpness);
        cosine[j] = (of_row / sum + of_column / column_sums[j]) * half;
      }
    } else {
      REPRISE_INDEPENDENT
      for (uint64_t j = 0; j < V; ++j)
        cosine[j] = vector_exp_at_most_88((cosine[j] - largest) * sharpness) / sum * scale;
    }
    cosine[i] = static_cast<float>(static_cast<double>(cosine[i]) - static_cast<double>(scale));
  }
}
REPRISE_STORAGE_LEVELS(slope_rows, slope_rows_body, (const PairLoss<Stored>& all, uint64_t begin, uint64_t end),
                       (all, begin, end))

// ---- all pairs ----

// Calls judge(begin, end, tally) for each piece; adds the tallies in their order.
template <typename Stored, typename Judge>
LossTally tally_pieces(const KernelContext& context, const PairLoss<Stored>& all, const Partition& pieces,
                       const Judge& judge) {
  parallel_for(*context.workers, pieces.count(), [&](uint32_t i) {
    all.tallies[i] = {};
    judge(pieces.begin(i), pieces.end(i), all.tallies[i]);
  });
  LossTally sum{};
  for (uint32_t i = 0; i < pieces.count(); ++i) sum.loss += all.tallies[i].loss, sum.correct += all.tallies[i].correct;
  return sum;
}

// Computes dA = G B and dB = G^T A. A and B are the units of first and second vectors, G the
// gradients of their cosines.
template <typename Stored>
void multiply_slopes(const KernelContext& context, const PairLoss<Stored>& all) {
  const uint64_t V = all.V, D = all.D;
  const auto rows = static_cast<int64_t>(V), columns = static_cast<int64_t>(D);
  const MatrixPacker firsts{all.units, 1, columns}, seconds{all.units + V * D, 1, columns};
  gemm(context, {V, D, V}, MatrixPacker{all.cosines, rows, 1}, seconds, MatrixOutput{all.slopes, columns}, false,
       all.product);
  gemm(context, {V, D, V}, MatrixPacker{all.cosines, 1, rows}, firsts, MatrixOutput{all.slopes + V * D, columns}, false,
       all.product);
}

template <typename Stored>
LossTally contrast(const KernelContext& context, const PairLoss<Stored>& all) {
  const VectorLevel level = cpu_machine(context).level;
  const uint64_t V = all.V, D = all.D;
  const Partition pieces = split_rows(V, V);
  const auto stride = static_cast<int64_t>(D);
  gemm(context, {V, V, D}, MatrixPacker{all.units, stride, 1}, MatrixPacker{all.units + V * D, stride, 1},
       MatrixOutput{all.cosines, static_cast<int64_t>(V)}, false, all.product);
  for_each_piece(*context.workers, pieces, [&](uint64_t begin, uint64_t end) { leave_out_equal(all, begin, end); });
  const auto rows = [&](uint64_t begin, uint64_t end, LossTally& tally) { sum_rows(level, all, begin, end, tally); };
  const auto columns = [&](uint64_t begin, uint64_t end, LossTally& tally) {
    sum_columns(level, all, begin, end, tally);
  };
  LossTally sum = tally_pieces(context, all, pieces, rows);
  if (all.loss.symmetric != 0) sum.loss += tally_pieces(context, all, pieces, columns).loss;
  if (all.dx == nullptr) return sum;
  for_each_piece(*context.workers, pieces, [&](uint64_t begin, uint64_t end) { slope_rows(level, all, begin, end); });
  multiply_slopes(context, all);
  for_each_piece(*context.workers, split_rows(V, 2 * D),
                 [&](uint64_t begin, uint64_t end) { write_slopes(level, all, begin, end); });
  return sum;
}

// Returns the counts and the sum of the losses, which is not divided by the number of pairs. Writes
// gradients to `dx` unless it is null.
template <typename Stored>
LossTally judge(const KernelContext& context, const PairLossInputOf<Stored>& in, Stored* dx, float share) {
  const VectorLevel level = cpu_machine(context).level;
  PairLoss<Stored> all(context, in, dx, share);
  list_pairs(all);
  if (all.V == 0) return {};
  const Partition pieces = split_rows(all.V, 2 * uint64_t{in.D});
  for_each_piece(*context.workers, pieces, [&](uint64_t begin, uint64_t end) { make_units(level, all, begin, end); });
  const auto alone = [&](uint64_t begin, uint64_t end, LossTally& tally) {
    judge_alone(level, all, begin, end, tally);
  };
  LossTally sum = contrasts(in.loss) ? contrast(context, all) : tally_pieces(context, all, pieces, alone);
  sum.labelled = all.V;
  return sum;
}

}  // namespace

template <typename Stored>
Status cpu_pair_loss_backward(const KernelContext& context, const PairLossBackwardArgsOf<Stored>& args) {
  StepScalars& scalars = *args.scalars;
  const double step = static_cast<double>(scalars.step_labelled);
  const LossTally all = judge(context, args.in, args.dx, static_cast<float>(1.0 / step));
  const double loss = all.labelled == 0 ? 0 : all.loss / step;
  if (!std::isfinite(loss)) scalars.skip = 1;
  scalars.loss_sum += loss;
  return ok_status();
}

template <typename Stored>
Status cpu_pair_loss_evaluate(const KernelContext& context, const PairLossEvaluateArgsOf<Stored>& args) {
  const LossTally all = judge(context, args.in, static_cast<Stored*>(nullptr), 0.0f);
  args.scalars->loss_sum += all.loss;
  args.scalars->labelled += all.labelled;
  args.scalars->correct += all.correct;
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_pair_loss_backward, PairLossBackwardArgs)
REPRISE_INSTANTIATE(cpu_pair_loss_evaluate, PairLossEvaluateArgs)

}  // namespace reprise
