// SGD, AdamW and Lion over a contiguous group of tensors, the first two with torch's definitions.
// Here as the twin of lib/cpu/optimizer.cpp: one pass over parameters, state and gradients, 16 bytes of each at a time.
// It must not know where one tensor of the group ends: the padding between them is zero and stays zero.
#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/grid.h"
#include "cuda/pack.h"

namespace reprise {
namespace {

constexpr uint32_t kWide = kPackWidth<float>;
constexpr uint32_t kUpdateBlocks = 1024;  // each reads the scalars, and AdamW's its powers, once

// Calls update(p, m, gradient) for every element of a pack and writes p and m back; m is 0 and goes nowhere where there are no moments.
template <uint32_t kWidth, typename Update>
__device__ void update_at(const Update& update, float* p, float* m, const float* gradients, uint64_t i) {
  Pack<kWidth> pack = load_pack<kWidth>(p + i), moment = {};
  if (m != nullptr) moment = load_pack<kWidth>(m + i);
  const Pack<kWidth> gradient = load_pack<kWidth>(gradients + i);
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) update(pack.at[k], moment.at[k], gradient.at[k]);
  store_pack(p + i, pack);
  if (m != nullptr) store_pack(m + i, moment);
}
template <typename Update>
__device__ void update_all(const Update& update, float* p, float* m, const float* gradients, uint64_t n) {
  for (uint64_t i = grid_thread() * kWide; i < n; i += grid_threads() * kWide) {
    if (i + kWide <= n) {
      update_at<kWide>(update, p, m, gradients, i);
    } else {
      for (uint64_t last = i; last < n; ++last) update_at<1>(update, p, m, gradients, last);
    }
  }
}

__global__ void __launch_bounds__(kBlockThreads) sgd_update(const SgdArgs args) {
  const StepScalars s = *args.scalars;
  if (s.skip != 0) return;
  const float momentum = args.momenta != nullptr ? args.momentum : 0.0f;
  // The step is a * g + b * m: (0, 1), or (1, momentum) for Nesterov's.
  const float a = args.nesterov ? 1.0f : 0.0f, b = args.nesterov ? momentum : 1.0f;
  const auto update = [&](float& p, float& m, float gradient) {
    const float g = fmaf(args.weight_decay, p, s.clip_factor * gradient);
    m = fmaf(momentum, m, g);
    p = fmaf(-s.learning_rate, fmaf(b, m, a * g), p);
  };
  update_all(update, args.parameters, args.momenta, args.gradients, args.n);
}

// The means as m + (1 - beta) (g - m).
__global__ void __launch_bounds__(kBlockThreads) lion_update(const LionArgs args, float gain1, float gain2) {
  const StepScalars s = *args.scalars;
  if (s.skip != 0) return;
  const auto update = [&](float& p, float& m, float gradient) {
    const float away = fmaf(s.clip_factor, gradient, -m);
    const float mean = fmaf(gain1, away, m);
    const float sign = mean > 0.0f ? 1.0f : (mean < 0.0f ? -1.0f : 0.0f);
    p = fmaf(-s.learning_rate, fmaf(args.weight_decay, p, sign), p);
    m = fmaf(gain2, away, m);
  };
  update_all(update, args.parameters, args.momenta, args.gradients, args.n);
}

// ---- AdamW ----

enum : uint32_t { kKeep, kStep, kRootCorrection, kFactors };

// 1 - lr * weight_decay; lr / (1 - beta1^t); 1 / sqrt(1 - beta2^t). From the scalars in memory, so that a captured step can be replayed.
template <typename Shared>
__device__ void store_adamw_factors(Shared& factors, const AdamWArgs& args) {
  const auto rate = static_cast<double>(args.scalars->learning_rate);
  const uint64_t t = uint64_t{args.scalars->step} + 1;
  factors[kKeep] = static_cast<float>(1 - rate * static_cast<double>(args.weight_decay));
  factors[kStep] = static_cast<float>(rate / (1 - device_power(args.beta1, t)));
  factors[kRootCorrection] = static_cast<float>(1 / sqrt(1 - device_power(args.beta2, t)));
}

struct AdamWElement {
  float keep, step, root_correction, gain1, gain2, beta2, clip, epsilon;

  __device__ void operator()(float& p, float& m, float& v, float gradient) const {
    const float g = clip * gradient;
    m = fmaf(gain1, g - m, m);
    v = fmaf(beta2, v, gain2 * (g * g));
    p = fmaf(keep, p, -(step * m / fmaf(sqrtf(v), root_correction, epsilon)));
  }
};

template <uint32_t kWidth>
__device__ void adamw_at(const AdamWArgs& args, const AdamWElement& update, uint64_t i) {
  Pack<kWidth> p = load_pack<kWidth>(args.parameters + i), m = load_pack<kWidth>(args.first_moments + i);
  Pack<kWidth> v = load_pack<kWidth>(args.second_moments + i);
  const Pack<kWidth> gradient = load_pack<kWidth>(args.gradients + i);
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) update(p.at[k], m.at[k], v.at[k], gradient.at[k]);
  store_pack(args.parameters + i, p);
  store_pack(args.first_moments + i, m);
  store_pack(args.second_moments + i, v);
}

// One thread of a block computes the powers, which take double precision and are the same for all. Four blocks at once: for more, the
// compiler would spill what lives across the divisions.
__global__ void __launch_bounds__(kBlockThreads, 4) adamw_update(const AdamWArgs args, float gain1, float gain2) {
  REPRISE_SHARED(float, shared, kFactors);
  if (args.scalars->skip != 0) return;
  if (threadIdx.x == 0) store_adamw_factors(shared, args);
  __syncthreads();
  const AdamWElement update{.keep = shared[kKeep],
                            .step = shared[kStep],
                            .root_correction = shared[kRootCorrection],
                            .gain1 = gain1,
                            .gain2 = gain2,
                            .beta2 = static_cast<float>(args.beta2),
                            .clip = args.scalars->clip_factor,
                            .epsilon = args.epsilon};
  for (uint64_t i = grid_thread() * kWide; i < args.n; i += grid_threads() * kWide) {
    if (i + kWide <= args.n) {
      adamw_at<kWide>(args, update, i);
    } else {
      for (uint64_t last = i; last < args.n; ++last) adamw_at<1>(args, update, last);
    }
  }
}

constexpr uint32_t update_blocks(uint64_t n) { return blocks_for(parts(n, kWide), kUpdateBlocks); }

}  // namespace

Status cuda_sgd_update(const KernelContext& context, const SgdArgs& args) {
  REPRISE_LAUNCH(sgd_update, update_blocks(args.n), kBlockThreads, context.queue, args);
  return launch_status();
}

Status cuda_adamw_update(const KernelContext& context, const AdamWArgs& args) {
  REPRISE_LAUNCH(adamw_update, update_blocks(args.n), kBlockThreads, context.queue, args, static_cast<float>(1 - args.beta1),
                 static_cast<float>(1 - args.beta2));
  return launch_status();
}

Status cuda_lion_update(const KernelContext& context, const LionArgs& args) {
  REPRISE_LAUNCH(lion_update, update_blocks(args.n), kBlockThreads, context.queue, args, static_cast<float>(1 - args.beta1),
                 static_cast<float>(1 - args.beta2));
  return launch_status();
}

}  // namespace reprise
