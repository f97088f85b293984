// Updates by optimizers that treat a parameter as a matrix. Adafactor, AdaLomo and APOLLO store
// less than one moment for each element of a matrix; Muon stores one. Each tensor has its own row.
// A tensor [a, b, ...] is a matrix of a rows and b * ... columns.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// All kernels read scalars->learning_rate and clip_factor, and do nothing if scalars->skip is set.
// g = clip_factor * gradient, lr = rate * learning_rate, t = scalars->step + 1. Parameters that are
// stored as bf16 are rounded at random (lib/state_format.h). Sums are in double, in an order that
// depends on the shape only.

// Adafactor (Shazeer & Stern 2018, algorithms 4 and 5) without momentum, as torch.optim.Adafactor.
// AdaLomo (Lv et al. 2023): its lr has no cap, and its weight decay is scaled like its step.
// With k = 1 - t^-decay_power and rms x = sqrt(mean of x^2):
//   row = k row + (1 - k) (mean of g^2 over columns + epsilon); column in the same way over rows
//   v = row column / mean of row; u = g / sqrt v; u /= max(1, rms(u) / clip)
//   s = max(min_scale, rms p)
//   Adafactor: p = (1 - lr weight_decay) p - min(lr, 1 / sqrt t) s u
//   AdaLomo:   p = (1 - lr s weight_decay) p - lr s u
// If the parameter is not a matrix, `column` is null, and `row` has a mean of squares for each
// element.
struct AdafactorArgs {
  StateNumbers parameters;  // [rows, columns]
  float* row;               // [rows], or [rows, columns] without column
  float* column;            // [columns] or null
  const float* gradients;   // [rows, columns]
  const StepScalars* scalars;
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t rows, columns;
  float weight_decay;
  double decay_power;
  float epsilon, min_scale, clip, rate;
  bool adalomo;
  uint32_t stream;
};

// APOLLO and, if by_tensor, APOLLO-Mini (Zhu et al. 2024). The elements of the projection P are
// random signs / sqrt r. They preserve lengths as normal numbers do (Achlioptas 2003) and are exact
// on every machine. Every step computes the signs again by Philox, so that they need no bytes of
// State; they change every `period` steps. The longer side of the matrix has L channels; the
// shorter side is projected to r numbers:
//   R = g P, or g^T P if there are fewer rows than columns                    [L, r]
//   m, v = Adam's moments of R; R^ = m / (sqrt v + epsilon)                   [L, r]
//   f = |R^| / (|R| + 1e-8), of each channel or of the whole tensor
//   u = g f sqrt(scale); u /= max(|u| / (growth + 1e-8), 1.01) / 1.01; growth = |u|
//       (u of the first step is not limited)
//   p = (1 - lr weight_decay) p - lr sqrt(1 - beta2^t) / (1 - beta1^t) u
struct ApolloArgs {
  StateNumbers parameters;  // [rows, columns]
  float *first_moments, *second_moments;  // [L, r]
  float* growth;                          // [1]
  const float* gradients;                 // [rows, columns]
  const StepScalars* scalars;
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t rows, columns;
  uint32_t rank;  // r
  float weight_decay;
  double beta1, beta2;
  float epsilon, scale, rate;
  bool by_tensor;
  uint32_t period;
  uint32_t stream;
};

// Muon (Jordan et al. 2024; torch.optim.Muon): the momentum's direction, made orthogonal by five
// Newton-Schulz steps in f32.
//   m = momentum m + (1 - momentum) g; x = nesterov ? g + momentum (m - g) : m
//   x /= max(|x|, epsilon)
//   five times: A = x x^T; x = 3.4445 x + (-4.7750 A + 2.0315 A^2) x
//       (if there are more rows than columns, A = x^T x, on the right side of x)
//   p = (1 - lr weight_decay) p - lr x
//       (only the second lr has the factor `rate`, which depends on the tensor's shape)
struct MuonArgs {
  StateNumbers parameters;  // [rows, columns]
  StateNumbers momenta;     // [rows, columns]
  const float* gradients;   // [rows, columns]
  const StepScalars* scalars;
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t rows, columns;
  float weight_decay, momentum, epsilon, rate;
  bool nesterov;
  uint32_t stream;
};

// Element i of APOLLO's projection [shorter side, r] has the sign of bit i % kProjectionSigns of
// draw i / kProjectionSigns. kProjectionPart is the `part` of these draws (philox_update);
// RoundedPart (lib/state_format.h) has the other parts.
constexpr uint32_t kProjectionSigns = 128, kProjectionPart = 3;

// The number of Newton-Schulz steps of Muon, and the factors 3.4445, -4.7750, 2.0315 of its
// formula.
constexpr uint32_t kMuonSteps = 5;
constexpr float kMuonFactors[] = {3.4445f, -4.7750f, 2.0315f};
// The numbers 1e-8 and 1.01 of APOLLO's formula.
constexpr double kApolloSmall = 1e-8, kApolloGrowth = 1.01;

namespace contract {
// The value of KernelInfo::updates for these kernels.
constexpr uint8_t kUpdatesOneTensor = update_bit(StateKind::kParameter) | update_bit(StateKind::kOptimizer);

// The sizes of a parameter as a matrix.
struct MatrixShape {
  uint64_t rows, columns;
  // Returns the larger of the two numbers; shorter() returns the smaller.
  constexpr uint64_t longer() const { return rows < columns ? columns : rows; }
  constexpr uint64_t shorter() const { return rows < columns ? rows : columns; }
};
// Returns the sizes of tensor `t` as a matrix.
constexpr MatrixShape matrix_of(const Tensor& t) { return {t.shape[0], t.elements() / t.shape[0]}; }
// True if the group consists of `parameters` only.
constexpr bool is_one_tensor(const GroupAttribute& group, const Tensor& parameters) {
  return group.tensors == 1 && group.elements == parameters.elements();
}
}  // namespace contract

struct AdafactorUpdate {
  enum : uint32_t { kParameters, kRow, kColumn, kGradients, kScalars, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const Tensor& p = c[kParameters];
    const contract::MatrixShape matrix = contract::matrix_of(p);
    if (!contract::is_one_tensor(c.attribute<FactoredAttribute>().group, p)) return Fault::kGroup;
    if (!c.has(kColumn)) return shape::require(shape::has_elements(c, kRow, p.elements()));
    return shape::require(p.rank >= 2 && shape::is_vector(c, kRow, matrix.rows) &&
                          shape::is_vector(c, kColumn, matrix.columns));
  }
  static constexpr const char* kSynopsis =
      "parameters -= rate scalars.learning_rate max(least_scale, rms of parameters) u / max(1, rms of u / clip); "
      "where u = clipped gradients / sqrt(row column / mean of row)";
  static constexpr KernelInfo kInfo = {
      .op = Op::kAdafactor,
      .pass = Pass::kUpdate,
      .name = "adafactor.update",
      .attribute = kAttributeKind<FactoredAttribute>,
      .attribute_is_cost = false,
      .updates = contract::kUpdatesOneTensor,
      .arguments = {contract::group(contract::updated("parameters[K,C]", Storage::kTrained)),
                    contract::updated("row[K]"), contract::optional(contract::updated("column[C]")),
                    contract::group(contract::in("gradients[K,C]")), contract::scalars_in(), contract::scratch()},
      .shape_fault = fault};
  static AdafactorArgs arguments(const RowCall& c) {
    const FactoredAttribute& a = c.attribute<FactoredAttribute>();
    const contract::MatrixShape matrix = contract::matrix_of(c[kParameters]);
    return {.parameters = c.state_numbers(kParameters),
            .row = c.f32(kRow),
            .column = c.has(kColumn) ? c.f32(kColumn) : nullptr,
            .gradients = c.f32(kGradients),
            .scalars = c.scalars(kScalars),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .rows = matrix.rows,
            .columns = matrix.columns,
            .weight_decay = a.weight_decay,
            .decay_power = a.decay_power,
            .epsilon = a.epsilon,
            .min_scale = a.min_scale,
            .clip = a.clip,
            .rate = a.rate,
            .adalomo = a.adalomo != 0,
            .stream = a.stream};
  }
};

struct ApolloUpdate {
  enum : uint32_t { kParameters, kFirstMoments, kSecondMoments, kGrowth, kGradients, kScalars, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const Tensor& p = c[kParameters];
    const contract::MatrixShape matrix = contract::matrix_of(p);
    if (!contract::is_one_tensor(c.attribute<ProjectedAttribute>().group, p)) return Fault::kGroup;
    const uint64_t rank = c[kFirstMoments].last_dimension();
    return shape::require(
        p.rank >= 2 && rank <= matrix.shorter() && shape::is_matrix(c, kFirstMoments, matrix.longer(), rank) &&
        shape::is_matrix(c, kSecondMoments, matrix.longer(), rank) && shape::is_vector(c, kGrowth, 1));
  }
  static constexpr const char* kSynopsis =
      "parameters -= rate scalars.learning_rate u; where u = clipped gradients sqrt(scale) rms of step / rms of "
      "projected, "
      "step = first moments / sqrt(second moments), growth = rms of u";
  static constexpr KernelInfo kInfo = {
      .op = Op::kApollo,
      .pass = Pass::kUpdate,
      .name = "apollo.update",
      .attribute = kAttributeKind<ProjectedAttribute>,
      .attribute_is_cost = false,
      .updates = contract::kUpdatesOneTensor,
      .arguments = {contract::group(contract::updated("parameters[K,C]", Storage::kTrained)),
                    contract::updated("first moments[L,R]"), contract::updated("second moments[L,R]"),
                    contract::updated("growth[1]"), contract::group(contract::in("gradients[K,C]")),
                    contract::scalars_in(), contract::scratch()},
      .shape_fault = fault};
  static ApolloArgs arguments(const RowCall& c) {
    const ProjectedAttribute& a = c.attribute<ProjectedAttribute>();
    const contract::MatrixShape matrix = contract::matrix_of(c[kParameters]);
    return {.parameters = c.state_numbers(kParameters),
            .first_moments = c.f32(kFirstMoments),
            .second_moments = c.f32(kSecondMoments),
            .growth = c.f32(kGrowth),
            .gradients = c.f32(kGradients),
            .scalars = c.scalars(kScalars),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .rows = matrix.rows,
            .columns = matrix.columns,
            .rank = c.last(kFirstMoments),
            .weight_decay = a.weight_decay,
            .beta1 = a.beta1,
            .beta2 = a.beta2,
            .epsilon = a.epsilon,
            .scale = a.scale,
            .rate = a.rate,
            .by_tensor = a.by_tensor != 0,
            .period = a.period,
            .stream = a.stream};
  }
};

struct MuonUpdate {
  enum : uint32_t { kParameters, kMomenta, kGradients, kScalars, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const Tensor& p = c[kParameters];
    if (!contract::is_one_tensor(c.attribute<UpdateAttribute>().group, p)) return Fault::kGroup;
    return shape::require(p.rank >= 2);
  }
  static constexpr const char* kSynopsis =
      "parameters -= rate scalars.learning_rate orthogonal(momentum); "
      "where momentum = attribute.momentum momentum + (1 - attribute.momentum) clipped gradients";
  static constexpr KernelInfo kInfo = {
      .op = Op::kMuon, .pass = Pass::kUpdate, .name = "muon.update", .attribute = kAttributeKind<UpdateAttribute>,
      .attribute_is_cost = false, .updates = contract::kUpdatesOneTensor,
      .arguments = {contract::group(contract::updated("parameters[K,C]", Storage::kTrained)),
                    contract::group(contract::updated("momentum[K,C]", Storage::kMoment)),
                    contract::group(contract::in("gradients[K,C]")), contract::scalars_in(), contract::scratch()},
      .shape_fault = fault};
  static MuonArgs arguments(const RowCall& c) {
    const UpdateAttribute& u = c.attribute<UpdateAttribute>();
    const contract::MatrixShape matrix = contract::matrix_of(c[kParameters]);
    return {.parameters = c.state_numbers(kParameters),
            .momenta = c.state_numbers(kMomenta),
            .gradients = c.f32(kGradients),
            .scalars = c.scalars(kScalars),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .rows = matrix.rows,
            .columns = matrix.columns,
            .weight_decay = u.weight_decay,
            .momentum = u.momentum,
            .epsilon = u.epsilon,
            .rate = u.rate,
            .nesterov = u.nesterov != 0,
            .stream = u.stream};
  }
};

using MatrixUpdateKernels = TypeList<AdafactorUpdate, ApolloUpdate, MuonUpdate>;

}  // namespace reprise
