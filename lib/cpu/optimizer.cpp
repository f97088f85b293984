// SGD, AdamW and Lion over a contiguous group of tensors, the first two with torch's definitions.
// Here together because each is one pass over parameters, state and gradients.
// It must not know where one tensor of the group ends: the padding between them is zero and stays zero.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"

namespace reprise {
namespace {

REPRISE_INLINE void sgd_plain_body(const SgdArgs& args, uint64_t begin, uint64_t end) {
  float* p = args.parameters;
  const float* gradient = args.gradients;
  const float clip = args.scalars->clip_factor, decay = args.weight_decay, rate = args.scalars->learning_rate;
  REPRISE_INDEPENDENT
  for (uint64_t i = begin; i < end; ++i) p[i] -= rate * (clip * gradient[i] + decay * p[i]);
}

REPRISE_INLINE void sgd_momentum_body(const SgdArgs& args, uint64_t begin, uint64_t end) {
  float *p = args.parameters, *m = args.momenta;
  const float* gradient = args.gradients;
  const float clip = args.scalars->clip_factor, decay = args.weight_decay, rate = args.scalars->learning_rate;
  const float momentum = args.momentum;
  // The step is a * g + b * m: (0, 1), or (1, momentum) for Nesterov's.
  const float a = args.nesterov ? 1.0f : 0.0f, b = args.nesterov ? momentum : 1.0f;
  REPRISE_INDEPENDENT
  for (uint64_t i = begin; i < end; ++i) {
    const float g = clip * gradient[i] + decay * p[i];
    const float velocity = momentum * m[i] + g;
    m[i] = velocity;
    p[i] -= rate * (a * g + b * velocity);
  }
}

struct AdamWFactors {
  float keep;             // 1 - lr * weight_decay
  float step;             // lr / (1 - beta1^t)
  float root_correction;  // 1 / sqrt(1 - beta2^t)
  float gain1, gain2;     // 1 - beta, rounded once
};

AdamWFactors adamw_factors(const AdamWArgs& args) {
  const double rate = static_cast<double>(args.scalars->learning_rate);
  const double t = static_cast<double>(args.scalars->step) + 1;
  const double beta1 = args.beta1, beta2 = args.beta2;
  return {.keep = static_cast<float>(1 - rate * static_cast<double>(args.weight_decay)),
          .step = static_cast<float>(rate / (1 - std::pow(beta1, t))),
          .root_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, t))),
          .gain1 = static_cast<float>(1 - beta1),
          .gain2 = static_cast<float>(1 - beta2)};
}

REPRISE_INLINE void adamw_body(const AdamWArgs& args, const AdamWFactors& factors, uint64_t begin, uint64_t end) {
  float *p = args.parameters, *m = args.first_moments, *v = args.second_moments;
  const float* gradient = args.gradients;
  const float clip = args.scalars->clip_factor, beta2 = static_cast<float>(args.beta2), epsilon = args.epsilon;
  const AdamWFactors f = factors;
  REPRISE_INDEPENDENT
  for (uint64_t i = begin; i < end; ++i) {
    const float g = clip * gradient[i];
    const float first = m[i] + f.gain1 * (g - m[i]);
    const float second = beta2 * v[i] + f.gain2 * (g * g);
    m[i] = first;
    v[i] = second;
    p[i] = f.keep * p[i] - f.step * first / (std::sqrt(second) * f.root_correction + epsilon);
  }
}

// The means as m + (1 - beta) (g - m), each product in the expression that adds it.
REPRISE_INLINE void lion_body(const LionArgs& args, uint64_t begin, uint64_t end) {
  float *p = args.parameters, *m = args.momenta;
  const float* gradient = args.gradients;
  const float clip = args.scalars->clip_factor, decay = args.weight_decay, rate = args.scalars->learning_rate;
  const float gain1 = static_cast<float>(1 - args.beta1), gain2 = static_cast<float>(1 - args.beta2);
  REPRISE_INDEPENDENT
  for (uint64_t i = begin; i < end; ++i) {
    const float old = m[i], away = clip * gradient[i] - old;
    const float mean = old + gain1 * away;
    const float sign = mean > 0.0f ? 1.0f : (mean < 0.0f ? -1.0f : 0.0f);
    p[i] -= rate * (sign + decay * p[i]);
    m[i] = old + gain2 * away;
  }
}

REPRISE_VECTOR_LEVELS(lion, lion_body, (const LionArgs& args, uint64_t begin, uint64_t end), (args, begin, end))
REPRISE_VECTOR_LEVELS(sgd_plain, sgd_plain_body, (const SgdArgs& args, uint64_t begin, uint64_t end),
                      (args, begin, end))
REPRISE_VECTOR_LEVELS(sgd_momentum, sgd_momentum_body, (const SgdArgs& args, uint64_t begin, uint64_t end),
                      (args, begin, end))
REPRISE_VECTOR_LEVELS(adamw, adamw_body,
                      (const AdamWArgs& args, const AdamWFactors& factors, uint64_t begin, uint64_t end),
                      (args, factors, begin, end))

}  // namespace

Status cpu_sgd_update(const KernelContext& context, const SgdArgs& args) {
  const VectorLevel level = cpu_machine(context).level;
  if (args.scalars->skip != 0) return ok_status();
  for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    (args.momenta == nullptr ? sgd_plain : sgd_momentum)(level, args, begin, end);
  });
  return ok_status();
}

Status cpu_lion_update(const KernelContext& context, const LionArgs& args) {
  const VectorLevel level = cpu_machine(context).level;
  if (args.scalars->skip != 0) return ok_status();
  for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) { lion(level, args, begin, end); });
  return ok_status();
}

Status cpu_adamw_update(const KernelContext& context, const AdamWArgs& args) {
  const VectorLevel level = cpu_machine(context).level;
  if (args.scalars->skip != 0) return ok_status();
  const AdamWFactors factors = adamw_factors(args);
  for_each_piece(*context.workers, {args.n, kBlockElements},
                 [&](uint64_t begin, uint64_t end) { adamw(level, args, factors, begin, end); });
  return ok_status();
}

}  // namespace reprise
