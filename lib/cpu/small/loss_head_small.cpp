// The loss head on a small core: logits, softmax cross-entropy and their gradients. A few rows are
// computed at a time, so that the matrix of all logits never exists.
#include <cmath>
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/data_fault.h"
#include "lib/cpu/small/loss_head_small_rules.h"
#include "lib/cpu/small/small_products.h"
#include "lib/cpu/vector_math.h"
#include "lib/portable_math.h"

namespace reprise {
namespace {

constexpr Status kScratchTooSmall = {Code::kBadPlan, "a small core's loss head must have the scratch bytes of its rule",
                                     0};

// Returns the number of rows with a label. If a label is not a class, notes a fault and returns 0.
template <typename Stored>
uint64_t count_labels(const KernelContext& context, const LossHeadInputOf<Stored>& in) {
  uint64_t labelled = 0;
  for (uint64_t i = 0; i < in.M; ++i) {
    const int32_t label = in.labels[i];
    if (label == kIgnoredLabel) continue;
    if (label < 0 || static_cast<uint32_t>(label) >= in.V) {
      note_fault(context, DataFault::kLabel, i);
      return 0;
    }
    ++labelled;
  }
  return labelled;
}

// Computes rows [first, first + rows) of x W^T + b, soft-capped if the layer has a cap.
template <typename Stored>
void compute_logits(const LossHeadInputOf<Stored>& in, uint64_t first, uint64_t rows, float* logits, float* scratch) {
  const small::Factor<Stored> factors[2] = {{in.x + first * in.C, in.C, small::weights_of(in.w, in.V, in.C, false),
                                             1.0f},
                                            {nullptr, 0, {}, 1.0f}};
  small::multiply<Stored, float>(factors, rows, in.V, {logits, static_cast<ptrdiff_t>(in.V), in.b, false}, scratch);
  if (!(in.softcap > 0)) return;
  for (uint64_t i = 0; i < rows * in.V; ++i) logits[i] = in.softcap * vector_tanh(logits[i] / in.softcap);
}

struct RowLoss {
  double loss;
  float largest, sum;  // largest logit of the row; sum of e^(logit - largest)
  bool is_hit;
};
// Returns the loss of a row. NaN is never the largest; its exponential makes the loss NaN.
RowLoss loss_of(const float* logits, uint32_t V, int32_t label) {
  RowLoss row = {0, -INFINITY, 0, false};
  uint32_t best = 0;
  for (uint32_t v = 0; v < V; ++v) {
    if (logits[v] > row.largest) row.largest = logits[v], best = v;
  }
  for (uint32_t v = 0; v < V; ++v) row.sum += vector_exp_at_most_88(logits[v] - row.largest);
  row.loss = portable_log(static_cast<double>(row.sum)) + static_cast<double>(row.largest) -
             static_cast<double>(logits[label]);
  row.is_hit = best == static_cast<uint32_t>(label);
  return row;
}

// Replaces the row's logits by their gradients. `share` is the weight of the row's loss in the loss
// of the step.
void make_gradients(float* logits, uint32_t V, int32_t label, const RowLoss& row, double share, float softcap) {
  const float factor = static_cast<float>(share / static_cast<double>(row.sum));
  for (uint32_t v = 0; v < V; ++v) {
    float gradient = vector_exp_at_most_88(logits[v] - row.largest) * factor;
    if (v == static_cast<uint32_t>(label)) gradient = gradient - static_cast<float>(share);
    if (softcap > 0) {
      const float bent = logits[v] / softcap;
      gradient = gradient * (1.0f - bent * bent);
    }
    logits[v] = gradient;
  }
}

// Computes db (+)= the sum of the rows' gradients.
void add_bias_gradients(float* db, bool accumulate, const float* gradients, uint64_t rows, uint32_t V) {
  for (uint32_t v = 0; v < V; ++v) {
    float sum = 0;
    for (uint64_t i = 0; i < rows; ++i) sum += gradients[i * V + v];
    db[v] = accumulate ? db[v] + sum : sum;
  }
}

// Computes the gradients of rows [first, first + rows). Returns `sum` plus the losses of these
// rows.
template <typename Stored>
double train_rows(const LossHeadBackwardArgsOf<Stored>& args, uint64_t first, uint64_t rows, float* logits,
                  float* scratch, double sum) {
  const LossHeadInputOf<Stored>& in = args.in;
  compute_logits(in, first, rows, logits, scratch);
  const double scale = args.row_weights != nullptr ? 1.0 : 1.0 / static_cast<double>(args.scalars->step_labelled);
  for (uint64_t i = 0; i < rows; ++i) {
    float* of_row = logits + i * in.V;
    const int32_t label = in.labels[first + i];
    const double share = args.row_weights != nullptr ? static_cast<double>(args.row_weights[first + i]) : scale;
    if (label == kIgnoredLabel || share == 0) {
      std::memset(of_row, 0, in.V * sizeof *of_row);
      continue;
    }
    const RowLoss row = loss_of(of_row, in.V, label);
    sum += row.loss;
    make_gradients(of_row, in.V, label, row, share, in.softcap);
  }
  if (args.db != nullptr) add_bias_gradients(args.db, args.accumulate_db || first > 0, logits, rows, in.V);
  if (args.dw != nullptr)
    small::add_gradient(args.dw, args.accumulate_dw || first > 0, logits, in.V, in.x + first * in.C, in.C, rows,
                        scratch);
  const small::Factor<float> factors[2] = {{logits, in.V, small::weights_of(in.w, in.C, in.V, true), 1.0f},
                                           {nullptr, 0, {}, 1.0f}};
  small::multiply<float, Stored>(factors, rows, in.C,
                                 {args.dx + first * in.C, static_cast<ptrdiff_t>(in.C), nullptr, false}, scratch);
  return sum;
}

template <typename Stored>
SmallLossHeadScratch scratch_of(const LossHeadInputOf<Stored>& in, bool backward) {
  return small_loss_head_scratch(in.M, in.C, in.V, backward, kStoredAs<Stored>);
}

}  // namespace

template <typename Stored>
Status cpu_small_loss_head_backward(const KernelContext& context, const LossHeadBackwardArgsOf<Stored>& args) {
  const LossHeadInputOf<Stored>& in = args.in;
  const SmallLossHeadScratch layout = scratch_of(in, true);
  if (in.scratch_bytes < align_up(4 * layout.floats)) return kScratchTooSmall;
  float* logits = static_cast<float*>(in.scratch);
  if (count_labels(context, in) == 0) {
    std::memset(args.dx, 0, in.M * in.C * sizeof(Stored));
    if (args.dw != nullptr && !args.accumulate_dw) std::memset(args.dw, 0, uint64_t{in.V} * in.C * sizeof(float));
    if (args.db != nullptr && !args.accumulate_db) std::memset(args.db, 0, in.V * sizeof(float));
    return ok_status();
  }
  double sum = 0;
  for (uint64_t first = 0; first < in.M; first += layout.rows) {
    sum = train_rows(args, first, smaller(layout.rows, in.M - first), logits, logits + layout.products, sum);
  }
  if (args.row_weights != nullptr) return ok_status();
  const double loss = sum / static_cast<double>(args.scalars->step_labelled);
  args.scalars->loss_sum += loss;
  if (!std::isfinite(loss)) args.scalars->skip = 1;
  return ok_status();
}

template <typename Stored>
Status cpu_small_loss_head_forward(const KernelContext& context, const LossHeadForwardArgsOf<Stored>& args) {
  const LossHeadInputOf<Stored>& in = args.in;
  const SmallLossHeadScratch layout = scratch_of(in, false);
  if (in.scratch_bytes < align_up(4 * layout.floats)) return kScratchTooSmall;
  float* logits = static_cast<float*>(in.scratch);
  const bool has_labels = count_labels(context, in) > 0;
  for (uint64_t first = 0; first < in.M; first += layout.rows) {
    const uint64_t rows = smaller(layout.rows, in.M - first);
    if (has_labels) compute_logits(in, first, rows, logits, logits + layout.products);
    for (uint64_t i = 0; i < rows; ++i) {
      const int32_t label = in.labels[first + i];
      args.losses[first + i] = has_labels && label != kIgnoredLabel ? loss_of(logits + i * in.V, in.V, label).loss : 0;
    }
  }
  return ok_status();
}

template <typename Stored>
Status cpu_small_loss_head_evaluate(const KernelContext& context, const LossHeadEvaluateArgsOf<Stored>& args) {
  const LossHeadInputOf<Stored>& in = args.in;
  const SmallLossHeadScratch layout = scratch_of(in, false);
  if (in.scratch_bytes < align_up(4 * layout.floats)) return kScratchTooSmall;
  float* logits = static_cast<float*>(in.scratch);
  const uint64_t labelled = count_labels(context, in);
  if (labelled == 0) return ok_status();
  double sum = 0;
  uint64_t correct = 0;
  for (uint64_t first = 0; first < in.M; first += layout.rows) {
    const uint64_t rows = smaller(layout.rows, in.M - first);
    compute_logits(in, first, rows, logits, logits + layout.products);
    for (uint64_t i = 0; i < rows; ++i) {
      const int32_t label = in.labels[first + i];
      if (label == kIgnoredLabel) continue;
      const RowLoss row = loss_of(logits + i * in.V, in.V, label);
      sum += row.loss;
      correct += row.is_hit;
    }
  }
  args.scalars->loss_sum += sum;
  args.scalars->labelled += labelled;
  args.scalars->correct += correct;
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_small_loss_head_backward, LossHeadBackwardArgs)
REPRISE_INSTANTIATE(cpu_small_loss_head_forward, LossHeadForwardArgs)
REPRISE_INSTANTIATE(cpu_small_loss_head_evaluate, LossHeadEvaluateArgs)

}  // namespace reprise
