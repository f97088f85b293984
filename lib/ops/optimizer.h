// The updates of optimizers: one row updates a group of adjacent parameters, with their moments and
// gradients.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// All kernels read scalars->learning_rate and clip_factor, and do nothing if scalars->skip is set.
// g = clip_factor * gradient, lr = rate * learning_rate. If parameters or moments are not f32, each
// number is computed in f32 and rounded when it is stored (lib/state_format.h). Parameters are
// updated with the unrounded moments.
//
// SGD as torch.optim.SGD: g += weight_decay * p; m = momentum * m + g; p -= lr * (nesterov ? g +
// momentum * m : m).
struct SgdArgs {
  StateNumbers parameters;  // [n]
  StateNumbers momenta;     // [n]; null: momentum is 0
  const float* gradients;   // [n]
  const StepScalars* scalars;
  uint64_t n;
  float weight_decay, momentum, rate;
  bool nesterov;
  uint32_t stream;  // Number of the tensor; it selects the random bits for rounding.
};
// AdamW as torch.optim.AdamW (Loshchilov & Hutter 2019): p -= lr * weight_decay * p, then Adam's
// step with bias correction for step scalars->step + 1, computed in double.
struct AdamWArgs {
  StateNumbers parameters;  // [n]
  StateNumbers first_moments, second_moments;  // [n]
  const float* gradients;                      // [n]
  const StepScalars* scalars;
  uint64_t n;
  float weight_decay;
  double beta1, beta2;
  float epsilon, rate;
  uint32_t stream;
};

// Lion (Chen et al. 2023, algorithm 2): p -= lr * (sign(beta1 m + (1 - beta1) g) + weight_decay *
// p); m = beta2 m + (1 - beta2) g.
struct LionArgs {
  StateNumbers parameters;  // [n]
  StateNumbers momenta;     // [n]
  const float* gradients;   // [n]
  const StepScalars* scalars;
  uint64_t n;
  float weight_decay;
  double beta1, beta2;
  float rate;
  uint32_t stream;
};

namespace contract {
// The value of KernelInfo::updates for these kernels.
constexpr uint8_t kUpdatesParameters = update_bit(StateKind::kParameter) | update_bit(StateKind::kOptimizer);
}  // namespace contract

struct SgdUpdate {
  enum : uint32_t { kParameters, kMomenta, kGradients, kScalars, kArity };
  static constexpr Fault fault(const ShapedCall&) { return Fault::kNone; }  // check.h checks the tensors of the group
  static constexpr const char* kSynopsis =
      "momentum = attribute.momentum momentum + g; parameters -= rate scalars.learning_rate momentum; "
      "where g = clipped gradients + weight_decay parameters";
  static constexpr KernelInfo kInfo = {
      .op = Op::kSgd,
      .pass = Pass::kUpdate,
      .name = "sgd.update",
      .attribute = kAttributeKind<UpdateAttribute>,
      .attribute_is_cost = false,
      .updates = contract::kUpdatesParameters,
      .arguments = {contract::group(contract::updated("parameters (a group)", Storage::kTrained)),
                    contract::optional(contract::group(contract::updated("momentum (a group)", Storage::kMoment))),
                    contract::group(contract::in("gradients (a group)")), contract::scalars_in()},
      .shape_fault = fault};
  static SgdArgs arguments(const RowCall& c) {
    const UpdateAttribute& u = c.attribute<UpdateAttribute>();
    return {.parameters = c.state_numbers(kParameters),
            .momenta = c.state_numbers(kMomenta),
            .gradients = c.f32(kGradients),
            .scalars = c.scalars(kScalars),
            .n = u.group.elements,
            .weight_decay = u.weight_decay,
            .momentum = u.momentum,
            .rate = u.rate,
            .nesterov = u.nesterov != 0,
            .stream = u.stream};
  }
};

struct AdamWUpdate {
  enum : uint32_t { kParameters, kFirstMoments, kSecondMoments, kGradients, kScalars, kArity };
  static constexpr Fault fault(const ShapedCall&) { return Fault::kNone; }
  static constexpr const char* kSynopsis =
      "parameters -= rate scalars.learning_rate (m / (sqrt(v) + epsilon) + weight_decay parameters); "
      "where m, v = first moments, second moments of clipped gradients by beta1, beta2";
  static constexpr KernelInfo kInfo = {
      .op = Op::kAdamW,
      .pass = Pass::kUpdate,
      .name = "adamw.update",
      .attribute = kAttributeKind<UpdateAttribute>,
      .attribute_is_cost = false,
      .updates = contract::kUpdatesParameters,
      .arguments = {contract::group(contract::updated("parameters (a group)", Storage::kTrained)),
                    contract::group(contract::updated("first moments (a group)", Storage::kMoment)),
                    contract::group(contract::updated("second moments (a group)", Storage::kSquareMoment)),
                    contract::group(contract::in("gradients (a group)")), contract::scalars_in()},
      .shape_fault = fault};
  static AdamWArgs arguments(const RowCall& c) {
    const UpdateAttribute& u = c.attribute<UpdateAttribute>();
    return {.parameters = c.state_numbers(kParameters),
            .first_moments = c.state_numbers(kFirstMoments),
            .second_moments = c.state_numbers(kSecondMoments),
            .gradients = c.f32(kGradients),
            .scalars = c.scalars(kScalars),
            .n = u.group.elements,
            .weight_decay = u.weight_decay,
            .beta1 = u.beta1,
            .beta2 = u.beta2,
            .epsilon = u.epsilon,
            .rate = u.rate,
            .stream = u.stream};
  }
};

struct LionUpdate {
  enum : uint32_t { kParameters, kMomenta, kGradients, kScalars, kArity };
  static constexpr Fault fault(const ShapedCall&) { return Fault::kNone; }
  static constexpr const char* kSynopsis =
      "parameters -= rate scalars.learning_rate (sign(beta1 momentum + (1 - beta1) g) + weight_decay parameters); "
      "momentum = beta2 momentum + (1 - beta2) g; where g = clipped gradients";
  static constexpr KernelInfo kInfo = {
      .op = Op::kLion,
      .pass = Pass::kUpdate,
      .name = "lion.update",
      .attribute = kAttributeKind<UpdateAttribute>,
      .attribute_is_cost = false,
      .updates = contract::kUpdatesParameters,
      .arguments = {contract::group(contract::updated("parameters (a group)", Storage::kTrained)),
                    contract::group(contract::updated("momentum (a group)", Storage::kMoment)),
                    contract::group(contract::in("gradients (a group)")), contract::scalars_in()},
      .shape_fault = fault};
  static LionArgs arguments(const RowCall& c) {
    const UpdateAttribute& u = c.attribute<UpdateAttribute>();
    return {.parameters = c.state_numbers(kParameters),
            .momenta = c.state_numbers(kMomenta),
            .gradients = c.f32(kGradients),
            .scalars = c.scalars(kScalars),
            .n = u.group.elements,
            .weight_decay = u.weight_decay,
            .beta1 = u.beta1,
            .beta2 = u.beta2,
            .rate = u.rate,
            .stream = u.stream};
  }
};

using OptimizerKernels = TypeList<SgdUpdate, AdamWUpdate, LionUpdate>;

}  // namespace reprise
