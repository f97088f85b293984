// SGD, AdamW and Lion over a contiguous group of tensors, the first two with torch's definitions.
// Each is one pass in f32. An f32 group is updated in place. Otherwise one tensor is updated block
// by block: numbers that are not f32 are read to the stack and written back. The padding between
// tensors is zero and stays zero.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/state_blocks.h"
#include "lib/portable_math.h"
#include "lib/stack_buffer.h"

namespace reprise {
namespace {

// Operands of an update, as f32.
struct Plain {
  float *parameters, *first, *second;  // first, second: the moments; null if the update has none
  const float* gradients;
};

struct SgdBody {
  const SgdArgs& args;

  REPRISE_INLINE void operator()(const Plain& at, uint64_t count) const {
    float *p = at.parameters, *m = at.first;
    const float* gradient = at.gradients;
    const float clip = args.scalars->clip_factor, decay = args.weight_decay,
                rate = args.scalars->learning_rate * args.rate;
    if (m == nullptr) {
      REPRISE_INDEPENDENT
      for (uint64_t i = 0; i < count; ++i) p[i] -= rate * (clip * gradient[i] + decay * p[i]);
      return;
    }
    const float momentum = args.momentum;
    // The step is a * g + b * velocity: (a, b) is (0, 1), or (1, momentum) for Nesterov's.
    const float a = args.nesterov ? 1.0f : 0.0f, b = args.nesterov ? momentum : 1.0f;
    REPRISE_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) {
      const float g = clip * gradient[i] + decay * p[i];
      const float velocity = momentum * m[i] + g;
      m[i] = velocity;
      p[i] -= rate * (a * g + b * velocity);
    }
  }
};

struct AdamWFactors {
  float keep;             // 1 - lr * weight_decay
  float step;             // lr / (1 - beta1^t)
  float root_correction;  // 1 / sqrt(1 - beta2^t)
  float gain1, gain2;     // 1 - beta1 and 1 - beta2, each rounded once
};

AdamWFactors adamw_factors(const AdamWArgs& args) {
  const double rate = static_cast<double>(args.scalars->learning_rate * args.rate);
  const double t = static_cast<double>(args.scalars->step) + 1;
  const double beta1 = args.beta1, beta2 = args.beta2;
  return {.keep = static_cast<float>(1 - rate * static_cast<double>(args.weight_decay)),
          .step = static_cast<float>(rate / (1 - portable_power(beta1, t))),
          .root_correction = static_cast<float>(1 / std::sqrt(1 - portable_power(beta2, t))),
          .gain1 = static_cast<float>(1 - beta1),
          .gain2 = static_cast<float>(1 - beta2)};
}

struct AdamWBody {
  const AdamWArgs& args;
  AdamWFactors factors;

  REPRISE_INLINE void operator()(const Plain& at, uint64_t count) const {
    float *p = at.parameters, *m = at.first, *v = at.second;
    const float* gradient = at.gradients;
    const float clip = args.scalars->clip_factor, beta2 = static_cast<float>(args.beta2), epsilon = args.epsilon;
    const AdamWFactors f = factors;
    REPRISE_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) {
      const float g = clip * gradient[i];
      const float first = m[i] + f.gain1 * (g - m[i]);
      const float second = beta2 * v[i] + f.gain2 * (g * g);
      m[i] = first;
      v[i] = second;
      p[i] = f.keep * p[i] - f.step * first / (std::sqrt(second) * f.root_correction + epsilon);
    }
  }
};

// Lion's update. Means are m + (1 - beta) (g - m), with each product in the expression that adds it
// (vector_level.h).
struct LionBody {
  const LionArgs& args;

  REPRISE_INLINE void operator()(const Plain& at, uint64_t count) const {
    float *p = at.parameters, *m = at.first;
    const float* gradient = at.gradients;
    const float clip = args.scalars->clip_factor, decay = args.weight_decay,
                rate = args.scalars->learning_rate * args.rate;
    const float gain1 = static_cast<float>(1 - args.beta1), gain2 = static_cast<float>(1 - args.beta2);
    REPRISE_INDEPENDENT
    for (uint64_t i = 0; i < count; ++i) {
      const float old = m[i], away = clip * gradient[i] - old;
      const float mean = old + gain1 * away;
      const float sign = mean > 0.0f ? 1.0f : (mean < 0.0f ? -1.0f : 0.0f);
      p[i] -= rate * (sign + decay * p[i]);
      m[i] = old + gain2 * away;
    }
  }
};

// ---- where the numbers are ----

// The parameters and moments of an update. A moment that the optimizer does not have has null data.
struct Numbers {
  StateNumbers parameters, first, second;
  const float* gradients;
  StateRounding rounding;

  bool are_f32() const {
    return parameters.type == DType::kF32 && first.type == DType::kF32 && second.type == DType::kF32;
  }
  uint64_t blocks_on_stack() const {
    return uint64_t{parameters.type != DType::kF32} + (first.type != DType::kF32) + (second.type != DType::kF32);
  }
};

REPRISE_INLINE float* moved(const StateNumbers& numbers, uint64_t by) {
  return numbers.data == nullptr ? nullptr : numbers.f32() + by;
}

// Calls body(plain, count) for elements [begin, end), in place. `begin` must be the first element
// of a block, as in update_blocks_body().
template <typename Body>
REPRISE_INLINE void update_plain_body(const Numbers& n, uint64_t begin, uint64_t end, const Body& body) {
  body(Plain{moved(n.parameters, begin), moved(n.first, begin), moved(n.second, begin), n.gradients + begin},
       end - begin);
}
// Returns a block as f32: in place, or read to `space`, which is then advanced past the block.
REPRISE_INLINE float* open_block(const StateNumbers& numbers, float*& space, uint64_t block, uint32_t count) {
  if (numbers.type == DType::kF32) return moved(numbers, block * kStateBlock);
  float* const to = space;
  space += kStateBlock;
  read_state(to, numbers, block, count);
  return to;
}
template <typename Body>
REPRISE_INLINE void update_blocks_body(const Numbers& n, uint64_t begin, uint64_t end, const Body& body) {
  REPRISE_STACK_BUFFER(float, buffers, n.blocks_on_stack() * kStateBlock);
  for (uint64_t block = begin / kStateBlock; block * kStateBlock < end; ++block) {
    const uint32_t count = static_cast<uint32_t>(smaller(kStateBlock, end - block * kStateBlock));
    float* space = buffers;
    float* const p = open_block(n.parameters, space, block, count);
    float* const first = open_block(n.first, space, block, count);
    float* const second = open_block(n.second, space, block, count);
    body(Plain{p, first, second, n.gradients + block * kStateBlock}, count);
    if (n.parameters.type != DType::kF32)
      write_state(n.parameters, p, n.rounding, RoundedPart::kParameter, block, count);
    if (n.first.type != DType::kF32) write_state(n.first, first, n.rounding, RoundedPart::kFirstMoment, block, count);
    if (n.second.type != DType::kF32)
      write_state(n.second, second, n.rounding, RoundedPart::kSecondMoment, block, count);
  }
}

REPRISE_LEVELS_OF(template <typename Body>, update_plain, update_plain_body,
                  (const Numbers& n, uint64_t begin, uint64_t end, const Body& body), (n, begin, end, body))
REPRISE_LEVELS_OF(template <typename Body>, update_blocks, update_blocks_body,
                  (const Numbers& n, uint64_t begin, uint64_t end, const Body& body), (n, begin, end, body))

// Updates all elements. If kBlocks is false, State must be f32, and no code for other storage is
// linked.
template <bool kBlocks, typename Body>
Status update_all(const KernelContext& context, const Numbers& n, uint64_t elements, const Body& body) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {elements, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    if constexpr (kBlocks) {
      if (!n.are_f32()) return update_blocks<Body>(level, n, begin, end, body);
    }
    update_plain<Body>(level, n, begin, end, body);
  });
  return ok_status();
}

}  // namespace

template <bool kBlocks>
Status cpu_sgd_update(const KernelContext& context, const SgdArgs& args) {
  if (args.scalars->skip != 0) return ok_status();
  const Numbers n = {args.parameters, args.momenta, {}, args.gradients, rounding_of(*args.scalars, args.stream)};
  return update_all<kBlocks>(context, n, args.n, SgdBody{args});
}

template <bool kBlocks>
Status cpu_lion_update(const KernelContext& context, const LionArgs& args) {
  if (args.scalars->skip != 0) return ok_status();
  const Numbers n = {args.parameters, args.momenta, {}, args.gradients, rounding_of(*args.scalars, args.stream)};
  return update_all<kBlocks>(context, n, args.n, LionBody{args});
}

template <bool kBlocks>
Status cpu_adamw_update(const KernelContext& context, const AdamWArgs& args) {
  if (args.scalars->skip != 0) return ok_status();
  const Numbers n = {args.parameters, args.first_moments, args.second_moments, args.gradients,
                     rounding_of(*args.scalars, args.stream)};
  return update_all<kBlocks>(context, n, args.n, AdamWBody{args, adamw_factors(args)});
}

template Status cpu_sgd_update<true>(const KernelContext&, const SgdArgs&);
template Status cpu_sgd_update<false>(const KernelContext&, const SgdArgs&);
template Status cpu_lion_update<true>(const KernelContext&, const LionArgs&);
template Status cpu_lion_update<false>(const KernelContext&, const LionArgs&);
template Status cpu_adamw_update<true>(const KernelContext&, const AdamWArgs&);
template Status cpu_adamw_update<false>(const KernelContext&, const AdamWArgs&);

}  // namespace reprise
