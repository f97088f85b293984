// Loss of classes from cross-entropy and Dice's coefficient, and its gradient, in one pass over
// pieces of rows. Dice needs two passes, because its derivatives depend on sums over a whole
// sample. Exponentials are computed again for each use, because storing them would take as much
// memory as the logits.
#include <cmath>
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/data_fault.h"
#include "lib/cpu/loss/loss_rules.h"
#include "lib/cpu/vector_math.h"
#include "lib/portable_math.h"

namespace reprise {
namespace {

constexpr double kDiceSmoothing = 1e-5;

// ---- one row: logits x[C] ----

// Sums over one row's classes, with p = exp(x - largest). `e` sums p, `of_slopes` sums p * slopes,
// and `of_weights` sums weights * (x - largest). Null slopes count as 0, null weights as 1.
struct RowSums {
  float largest, e, of_slopes, of_weights;
};
template <bool kSlopes, bool kWeights, typename Stored>
REPRISE_INLINE RowSums sums_with(const Stored* x, uint32_t C, const float* slopes, const float* weights) {
  const float largest = largest_of(x, C);
  float e[kSumLanes] = {}, of_slopes[kSumLanes] = {}, of_weights[kSumLanes] = {};
  for (uint32_t c = 0; c < C; c += kSumLanes) {
    const uint32_t count = C - c < kSumLanes ? C - c : kSumLanes;
    for (uint32_t k = 0; k < count; ++k) {
      const float above = x[c + k] - largest, power = vector_exp_at_most_88(above);
      e[k] += power;
      if constexpr (kSlopes) of_slopes[k] += power * slopes[c + k];
      if constexpr (kWeights) of_weights[k] += above * weights[c + k];
      if constexpr (!kWeights) of_weights[k] += above;
    }
  }
  return {largest, sum_lanes(e), sum_lanes(of_slopes), sum_lanes(of_weights)};
}
// Computes the sums. Each combination of null and given pointers has its own instance, so that no
// sum has a condition inside. With a condition, only some compilers would fuse a product with its
// sum, and bits would differ.
template <typename Stored>
REPRISE_INLINE RowSums sums_of(const Stored* x, uint32_t C, const float* slopes, const float* weights) {
  if (slopes == nullptr)
    return weights == nullptr ? sums_with<false, false>(x, C, slopes, weights)
                              : sums_with<false, true>(x, C, slopes, weights);
  return weights == nullptr ? sums_with<true, false>(x, C, slopes, weights)
                            : sums_with<true, true>(x, C, slopes, weights);
}

// ---- all rows ----

// A call's input and scratch, its divisors, and other values that all rows use.
template <typename Stored>
struct ClassLoss : ClassLossInputOf<Stored> {
  double labelled, weight;  // StepScalars::step_labelled and step_weight; in evaluation, those of this micro-batch
  double all_weights;       // sum of the weights of all classes
  float* smoothing;         // [C]: what label smoothing subtracts from the gradient of each logit
  LossTally* tallies;       // one for each piece of rows
  double* sums;             // [pieces, 3, C]: sums of the label's probability, of all probabilities, of labels
  // [N, 2, C], for Dice: its derivative with respect to each probability, and the number that is
  // subtracted from this derivative at the label's class.
  float* slopes;
  ClassLossPieces pieces;

  bool has_dice() const { return this->loss.dice > 0; }
  double weight_of(uint32_t c) const { return this->weights == nullptr ? 1.0 : static_cast<double>(this->weights[c]); }
  double smoothed() const { return static_cast<double>(this->loss.label_smoothing); }
  double share_of_entropy() const { return 1.0 - static_cast<double>(this->loss.dice); }
};

// A range of rows, all of one sample.
struct RowRange {
  uint64_t begin, end;
};
template <typename Stored>
RowRange rows_of_piece(const ClassLoss<Stored>& all, uint32_t piece) {
  const uint32_t parts = all.pieces.rows.count(), part = piece % parts;
  const uint64_t first = piece / parts * all.pieces.rows.total;
  return {first + all.pieces.rows.begin(part), first + all.pieces.rows.end(part)};
}

template <typename Stored>
REPRISE_INLINE void add_overlaps_body(const ClassLoss<Stored>& all, const RowRange& range, double* sums) {
  const uint32_t C = all.C;
  double *hits = sums, *predicted = sums + C, *wanted = sums + 2 * uint64_t{C};
  for (uint64_t row = range.begin; row < range.end; ++row) {
    if (!all.is_labelled(row)) continue;
    const Stored* x = all.x + row * C;
    const RowSums of_row = sums_of(x, C, nullptr, nullptr);
    const float whole = 1.0f / of_row.e;
    REPRISE_INDEPENDENT
    for (uint32_t c = 0; c < C; ++c)
      predicted[c] += static_cast<double>(vector_exp_at_most_88(x[c] - of_row.largest) * whole);
    const int32_t label = all.label(row);
    hits[label] += static_cast<double>(vector_exp_at_most_88(x[label] - of_row.largest) * whole);
    wanted[label] += 1.0;
  }
}
REPRISE_STORAGE_LEVELS(add_overlaps, add_overlaps_body,
                       (const ClassLoss<Stored>& all, const RowRange& range, double* sums), (all, range, sums))

// Adds the sums of a sample's pieces. Writes Dice's derivatives with respect to the probabilities,
// which judge_piece() reads. Returns the part of the loss that the sample's Dice coefficients
// contribute.
template <typename Stored>
double settle_overlaps(const ClassLoss<Stored>& all, uint64_t sample) {
  const uint32_t C = all.C, parts = all.pieces.rows.count();
  double* sums = all.sums + sample * parts * 3 * C;
  for (uint32_t part = 1; part < parts; ++part) {
    for (uint64_t i = 0; i < uint64_t{3} * C; ++i) sums[i] += sums[part * uint64_t{3} * C + i];
  }
  double labelled = 0, coefficients = 0;
  for (uint32_t c = 0; c < C; ++c) labelled += sums[2 * uint64_t{C} + c];
  const double share = static_cast<double>(all.loss.dice) * labelled / all.labelled;
  float* slopes = all.slopes + sample * 2 * C;
  for (uint32_t c = 0; c < C; ++c) {
    const double both = sums[C + c] + sums[2 * uint64_t{C} + c] + kDiceSmoothing,
                 coefficient = (2 * sums[c] + kDiceSmoothing) / both;
    coefficients += coefficient;
    slopes[c] = static_cast<float>(share * coefficient / (both * C));
    slopes[C + c] = static_cast<float>(share * 2 / (both * C));
  }
  return labelled == 0 ? 0 : share * (1 - coefficients / C);
}

// Adds the cross-entropy of the piece's rows to `tally`, without dividing by the sum of weights.
// Writes dx of these rows. If `all_dx` is null, instead counts the rows whose label has the largest
// logit.
template <typename Stored>
REPRISE_INLINE void judge_piece_body(const ClassLoss<Stored>& all, Stored* all_dx, const RowRange& range,
                                     const float* slopes, LossTally& tally) {
  const uint32_t C = all.C;
  const double smoothed = all.smoothed(), even = smoothed / C, share = all.share_of_entropy() / all.weight;
  for (uint64_t row = range.begin; row < range.end; ++row) {
    Stored* dx = all_dx == nullptr ? nullptr : all_dx + row * C;
    if (!all.is_labelled(row)) {
      for (uint32_t c = 0; dx != nullptr && c < C; ++c) dx[c] = 0.0f;
      continue;
    }
    const Stored* x = all.x + row * C;
    const RowSums of_row = sums_of(x, C, slopes, all.weights);
    const auto label = static_cast<uint32_t>(all.label(row));
    const float of_label = x[label] - of_row.largest;
    const double log_sum = portable_log(static_cast<double>(of_row.e)), own = (1 - smoothed) * all.weight_of(label);
    tally.loss += own * (log_sum - static_cast<double>(of_label));
    tally.loss += even * (all.all_weights * log_sum - static_cast<double>(of_row.of_weights));
    ++tally.labelled;
    if (dx == nullptr) {
      uint32_t first = 0;
      while (first < C && !(x[first] == of_row.largest)) ++first;
      tally.correct += first == label;
      continue;
    }
    const float whole = 1.0f / of_row.e, scale = static_cast<float>(share * (own + even * all.all_weights));
    const float hit = static_cast<float>(share * own), takes = slopes == nullptr ? 0.0f : slopes[C + label];
    const float power = vector_exp_at_most_88(of_label), dot = (of_row.of_slopes - power * takes) * whole;
    const float before = slopes == nullptr ? 0.0f : slopes[label];
    if (slopes == nullptr) {
      const float factor = scale * whole;
      REPRISE_INDEPENDENT
      for (uint32_t c = 0; c < C; ++c) dx[c] = vector_exp_at_most_88(x[c] - of_row.largest) * factor - all.smoothing[c];
    } else {
      REPRISE_INDEPENDENT
      for (uint32_t c = 0; c < C; ++c)
        dx[c] = vector_exp_at_most_88(x[c] - of_row.largest) * whole * (scale + (slopes[c] - dot)) - all.smoothing[c];
    }
    dx[label] = (power * whole * (scale + ((before - takes) - dot)) - all.smoothing[label]) - hit;
  }
}
REPRISE_STORAGE_LEVELS(judge_piece, judge_piece_body,
                       (const ClassLoss<Stored>& all, Stored* dx, const RowRange& range, const float* slopes,
                        LossTally& tally),
                       (all, dx, range, slopes, tally))

// Returns this micro-batch's share of the step's loss, and its counts. If `entropy` is not null,
// the cross-entropy is added to `*entropy` instead, without dividing by the sum of weights.
template <typename Stored>
LossTally judge(const KernelContext& context, const ClassLoss<Stored>& all, Stored* dx, double* entropy = nullptr) {
  const VectorLevel level = cpu_machine(context).level;
  const auto count = static_cast<uint32_t>(all.pieces.count());
  const double share = all.share_of_entropy() / all.weight;
  LossTally sum{};
  if (all.has_dice()) {
    parallel_for(*context.workers, count, [&](uint32_t piece) {
      double* sums = all.sums + piece * uint64_t{3} * all.C;
      for (uint64_t i = 0; i < uint64_t{3} * all.C; ++i) sums[i] = 0;
      add_overlaps(level, all, rows_of_piece(all, piece), sums);
    });
    for (uint64_t sample = 0; sample < all.pieces.samples; ++sample) sum.loss += settle_overlaps(all, sample);
  }
  parallel_for(*context.workers, count, [&](uint32_t piece) {
    const float* slopes = all.has_dice() ? all.slopes + piece / all.pieces.rows.count() * 2 * all.C : nullptr;
    all.tallies[piece] = {};
    judge_piece(level, all, dx, rows_of_piece(all, piece), slopes, all.tallies[piece]);
  });
  for (uint32_t piece = 0; piece < count; ++piece) {
    if (entropy == nullptr) sum.loss += all.tallies[piece].loss * share;
    else *entropy += all.tallies[piece].loss * all.share_of_entropy();
    sum.labelled += all.tallies[piece].labelled, sum.correct += all.tallies[piece].correct;
  }
  return sum;
}

// Counts the labelled rows and sums their weights. If the label of such a row is not a class, notes
// a fault at the first one and returns false: labels are data and may have any value.
template <typename Stored>
bool count_labels(const KernelContext& context, const ClassLossInputOf<Stored>& in, double& labelled, double& weight) {
  labelled = weight = 0;
  for (uint64_t row = 0; row < in.M; ++row) {
    if (!in.is_labelled(row)) continue;
    const int32_t label = in.label(row);
    if (label < 0 || static_cast<uint32_t>(label) >= in.C) {
      note_fault(context, DataFault::kLabel, row);
      return false;
    }
    labelled += 1;
    weight += in.weights == nullptr ? 1.0 : static_cast<double>(in.weights[label]);
  }
  return true;
}

template <typename Stored>
ClassLoss<Stored> begin(const ClassLossInputOf<Stored>& in, double labelled, double weight) {
  unsigned char* base = static_cast<unsigned char*>(in.scratch);
  const bool by_sample = in.loss.dice > 0;
  const ClassLossScratch layout = class_loss_scratch(in.M, in.N, in.C, by_sample);
  ClassLoss<Stored> all = {in,
                           labelled,
                           weight,
                           0,
                           reinterpret_cast<float*>(base + layout.smoothing_at),
                           reinterpret_cast<LossTally*>(base),
                           reinterpret_cast<double*>(base + layout.sums_at),
                           reinterpret_cast<float*>(base + layout.slopes_at),
                           class_loss_pieces(in.M, in.N, in.C, by_sample)};
  for (uint32_t c = 0; c < in.C; ++c) {
    all.all_weights += all.weight_of(c);
    all.smoothing[c] = static_cast<float>(all.share_of_entropy() / weight * (all.smoothed() / in.C) * all.weight_of(c));
  }
  return all;
}

}  // namespace

template <typename Stored>
Status cpu_class_loss_backward(const KernelContext& context, const ClassLossBackwardArgsOf<Stored>& args) {
  StepScalars& scalars = *args.scalars;
  double labelled, weight;
  if (!count_labels(context, args.in, labelled, weight)) return ok_status();
  const double loss =
      judge(context, begin(args.in, static_cast<double>(scalars.step_labelled), scalars.step_weight), args.dx).loss;
  if (!std::isfinite(loss)) scalars.skip = 1;
  scalars.loss_sum += loss;
  return ok_status();
}

template <typename Stored>
Status cpu_class_loss_evaluate(const KernelContext& context, const ClassLossEvaluateArgsOf<Stored>& args) {
  double labelled, weight;
  if (!count_labels(context, args.in, labelled, weight) || labelled == 0) return ok_status();
  const bool weighs = args.in.weights != nullptr;
  double entropy = 0;
  const LossTally all =
      judge(context, begin(args.in, labelled, weight), static_cast<Stored*>(nullptr), weighs ? &entropy : nullptr);
  args.scalars->loss_sum += all.loss * labelled;
  if (weighs) args.scalars->weighted_loss += entropy, args.scalars->step_weight += weight;
  args.scalars->labelled += all.labelled;
  args.scalars->correct += all.correct;
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_class_loss_backward, ClassLossBackwardArgs)
REPRISE_INSTANTIATE(cpu_class_loss_evaluate, ClassLossEvaluateArgs)

}  // namespace reprise
