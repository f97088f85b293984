// The optimizers' updates: one row for a group of parameters that lie side by side, with their moments and gradients.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// All read scalars->learning_rate and clip_factor and do nothing when scalars->skip is set. g = clip_factor * gradient.
// SGD as torch.optim.SGD: g += weight_decay * p; m = momentum * m + g; p -= lr * (nesterov ? g + momentum * m : m).
struct SgdArgs {
  float* parameters;  // [n]
  float* momenta;     // [n] or null (momentum 0)
  const float* gradients;
  const StepScalars* scalars;
  uint64_t n;
  float weight_decay, momentum;
  bool nesterov;
};
// AdamW as torch.optim.AdamW (Loshchilov & Hutter 2019): p -= lr * weight_decay * p, then Adam's step with bias correction for
// step scalars->step + 1 (computed in double).
struct AdamWArgs {
  float* parameters;
  float* first_moments;
  float* second_moments;
  const float* gradients;
  const StepScalars* scalars;
  uint64_t n;
  float weight_decay;
  double beta1, beta2;
  float epsilon;
};

// Lion (Chen et al. 2023, algorithm 2): p -= lr * (sign(beta1 m + (1 - beta1) g) + weight_decay * p); m = beta2 m + (1 - beta2) g.
struct LionArgs {
  float* parameters;  // [n]
  float* momenta;     // [n]
  const float* gradients;
  const StepScalars* scalars;
  uint64_t n;
  float weight_decay;
  double beta1, beta2;
};

namespace contract {
constexpr uint8_t kUpdatesParameters = update_bit(StateKind::kParameter) | update_bit(StateKind::kOptimizer);
}  // namespace contract

struct SgdUpdate {
  enum : uint32_t { kParameters, kMomenta, kGradients, kScalars, kArity };
  static constexpr Fault fault(const ShapedCall&) { return Fault::kNone; }  // check.h compares a group with its partners
  static constexpr const char* kSynopsis =
      "momentum = attribute.momentum momentum + g; parameters -= scalars.learning_rate momentum; "
      "where g = clipped gradients + weight_decay parameters";
  static constexpr KernelInfo kInfo = {
      .op = Op::kSgd, .pass = Pass::kUpdate, .name = "sgd.update", .attribute = kAttributeKind<UpdateAttribute>, .attribute_is_cost = false,
      .updates = contract::kUpdatesParameters,
      .arguments = {contract::group(contract::updated("parameters (a group)")),
                    contract::optional(contract::group(contract::updated("momentum (a group)"))),
                    contract::group(contract::in("gradients (a group)")), contract::scalars_in()},
      .shape_fault = fault};
  static SgdArgs arguments(const RowCall& c) {
    const UpdateAttribute& u = c.attribute<UpdateAttribute>();
    return {.parameters = c.f32(kParameters), .momenta = c.f32(kMomenta), .gradients = c.f32(kGradients), .scalars = c.scalars(kScalars),
            .n = u.group.elements, .weight_decay = u.weight_decay, .momentum = u.momentum, .nesterov = u.nesterov != 0};
  }
};

struct AdamWUpdate {
  enum : uint32_t { kParameters, kFirstMoments, kSecondMoments, kGradients, kScalars, kArity };
  static constexpr Fault fault(const ShapedCall&) { return Fault::kNone; }
  static constexpr const char* kSynopsis =
      "parameters -= scalars.learning_rate (m / (sqrt(v) + epsilon) + weight_decay parameters); "
      "where m, v = first moments, second moments of clipped gradients by beta1, beta2";
  static constexpr KernelInfo kInfo = {
      .op = Op::kAdamW, .pass = Pass::kUpdate, .name = "adamw.update", .attribute = kAttributeKind<UpdateAttribute>, .attribute_is_cost = false,
      .updates = contract::kUpdatesParameters,
      .arguments = {contract::group(contract::updated("parameters (a group)")), contract::group(contract::updated("first moments (a group)")),
                    contract::group(contract::updated("second moments (a group)")), contract::group(contract::in("gradients (a group)")),
                    contract::scalars_in()},
      .shape_fault = fault};
  static AdamWArgs arguments(const RowCall& c) {
    const UpdateAttribute& u = c.attribute<UpdateAttribute>();
    return {.parameters = c.f32(kParameters), .first_moments = c.f32(kFirstMoments), .second_moments = c.f32(kSecondMoments),
            .gradients = c.f32(kGradients), .scalars = c.scalars(kScalars), .n = u.group.elements, .weight_decay = u.weight_decay,
            .beta1 = u.beta1, .beta2 = u.beta2, .epsilon = u.epsilon};
  }
};

struct LionUpdate {
  enum : uint32_t { kParameters, kMomenta, kGradients, kScalars, kArity };
  static constexpr Fault fault(const ShapedCall&) { return Fault::kNone; }
  static constexpr const char* kSynopsis =
      "parameters -= scalars.learning_rate (sign(beta1 momentum + (1 - beta1) g) + weight_decay parameters); "
      "momentum = beta2 momentum + (1 - beta2) g; where g = clipped gradients";
  static constexpr KernelInfo kInfo = {
      .op = Op::kLion, .pass = Pass::kUpdate, .name = "lion.update", .attribute = kAttributeKind<UpdateAttribute>, .attribute_is_cost = false,
      .updates = contract::kUpdatesParameters,
      .arguments = {contract::group(contract::updated("parameters (a group)")), contract::group(contract::updated("momentum (a group)")),
                    contract::group(contract::in("gradients (a group)")), contract::scalars_in()},
      .shape_fault = fault};
  static LionArgs arguments(const RowCall& c) {
    const UpdateAttribute& u = c.attribute<UpdateAttribute>();
    return {.parameters = c.f32(kParameters), .momenta = c.f32(kMomenta), .gradients = c.f32(kGradients), .scalars = c.scalars(kScalars),
            .n = u.group.elements, .weight_decay = u.weight_decay, .beta1 = u.beta1, .beta2 = u.beta2};
  }
};

using OptimizerKernels = TypeList<SgdUpdate, AdamWUpdate, LionUpdate>;

}  // namespace reprise
