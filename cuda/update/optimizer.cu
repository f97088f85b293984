// SGD, AdamW and Lion over a contiguous group of tensors. SGD and AdamW have torch's definitions.
// The counterpart of lib/cpu/update/optimizer.cpp: one pass over parameters, moments and gradients.
// If all are f32, a thread reads 16 bytes of each at a time. Otherwise a block of threads processes
// one block of numbers (state_blocks.h). The padding between the tensors of a group is zero and
// stays zero, so the kernels treat a group as one array.
#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "cuda/state_blocks.h"

namespace reprise {
namespace {

constexpr uint32_t kWide = kPackWidth<float>;
constexpr uint32_t kUpdateBlocks = 1024;  // maximum; each block reads the scalars and computes AdamW's powers once

// Calls update(p, m, gradient) for every element of a pack and writes p and m back. If `m` is null,
// the moments are 0 and are not written.
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

// The arguments of a launch: the arrays of an update, and the values that all elements share. A
// moment that the optimizer does not have has null data.
struct Numbers {
  StateNumbers parameters, first, second;
  const float* gradients;
  const StepScalars* scalars;
  uint64_t n;
  uint32_t stream;

  bool are_f32() const {
    return parameters.type == DType::kF32 && first.type == DType::kF32 && second.type == DType::kF32;
  }
};

// Calls update(p, first, second, gradient) for every element, one block of numbers at a time, and
// writes p, first and second back.
template <typename Shared, typename Update>
__device__ void update_blocks_of(Shared& shared, const DynamicMaps& maps, const Numbers& s, const Update& update) {
  StateBlocks<Shared> blocks(shared, maps, rounding_of(*s.scalars, s.stream));
  const bool has_first = s.first.data != nullptr, has_second = s.second.data != nullptr;
  const uint32_t drawn = drawn_bit(s.parameters, RoundedPart::kParameter) |
                         drawn_bit(s.first, RoundedPart::kFirstMoment) |
                         drawn_bit(s.second, RoundedPart::kSecondMoment);
  for (uint64_t block = blockIdx.x; block * kStateBlock < s.n; block += gridDim.x) {
    blocks.start(block, drawn);
    blocks.settle();
    const uint64_t i = block * kStateBlock + threadIdx.x;
    const bool is_there = i < s.n;
    float p = blocks.read(s.parameters, block, is_there);
    float first = has_first ? blocks.read(s.first, block, is_there) : 0,
          second = has_second ? blocks.read(s.second, block, is_there) : 0;
    if (is_there) update(p, first, second, s.gradients[i]);
    blocks.write(s.parameters, RoundedPart::kParameter, block, is_there, p);
    if (has_first) blocks.write(s.first, RoundedPart::kFirstMoment, block, is_there, first);
    if (has_second) blocks.write(s.second, RoundedPart::kSecondMoment, block, is_there, second);
  }
}

constexpr uint32_t kStateGrid = 2048;
uint32_t state_blocks(uint64_t n) {
  return static_cast<uint32_t>(maximum(1, minimum(parts(n, kStateBlock), kStateGrid)));
}

struct SgdElement {
  float rate, clip, weight_decay, momentum, a, b;  // p -= rate (a g + b m); a = 0, b = 1; Nesterov: a = 1, b = momentum

  __device__ SgdElement(const SgdArgs& args, const StepScalars& s)
      : rate(s.learning_rate * args.rate),
        clip(s.clip_factor),
        weight_decay(args.weight_decay),
        momentum(args.momenta.data != nullptr ? args.momentum : 0.0f),
        a(args.nesterov ? 1.0f : 0.0f),
        b(args.nesterov ? momentum : 1.0f) {}
  __device__ void operator()(float& p, float& m, float gradient) const {
    const float g = fmaf(weight_decay, p, clip * gradient);
    m = fmaf(momentum, m, g);
    p = fmaf(-rate, fmaf(b, m, a * g), p);
  }
  __device__ void operator()(float& p, float& m, float&, float gradient) const { (*this)(p, m, gradient); }
};

// Lion's update of one element. A mean is computed as m + (1 - beta) * (g - m).
struct LionElement {
  float rate, clip, weight_decay, gain1, gain2;

  __device__ LionElement(const LionArgs& args, const StepScalars& s, float one_less_beta1, float one_less_beta2)
      : rate(s.learning_rate * args.rate),
        clip(s.clip_factor),
        weight_decay(args.weight_decay),
        gain1(one_less_beta1),
        gain2(one_less_beta2) {}
  __device__ void operator()(float& p, float& m, float gradient) const {
    const float away = fmaf(clip, gradient, -m);
    const float mean = fmaf(gain1, away, m);
    const float sign = mean > 0.0f ? 1.0f : (mean < 0.0f ? -1.0f : 0.0f);
    p = fmaf(-rate, fmaf(weight_decay, p, sign), p);
    m = fmaf(gain2, away, m);
  }
  __device__ void operator()(float& p, float& m, float&, float gradient) const { (*this)(p, m, gradient); }
};

__global__ void __launch_bounds__(kBlockThreads) sgd_update(const SgdArgs args) {
  const StepScalars s = *args.scalars;
  if (s.skip == 0)
    update_all(SgdElement(args, s), plain_numbers(args.parameters), plain_numbers(args.momenta), args.gradients,
               args.n);
}
__global__ void __launch_bounds__(kBlockThreads)
    sgd_blocks(const SgdArgs args, const Numbers numbers, const DynamicMaps maps) {
  REPRISE_SHARED(float, shared, kStateShared);
  if (args.scalars->skip == 0) update_blocks_of(shared, maps, numbers, SgdElement(args, *args.scalars));
}

__global__ void __launch_bounds__(kBlockThreads) lion_update(const LionArgs args, float gain1, float gain2) {
  const StepScalars s = *args.scalars;
  if (s.skip == 0)
    update_all(LionElement(args, s, gain1, gain2), plain_numbers(args.parameters), plain_numbers(args.momenta),
               args.gradients, args.n);
}
__global__ void __launch_bounds__(kBlockThreads)
lion_blocks(const LionArgs args, float gain1, float gain2, const Numbers numbers, const DynamicMaps maps) {
  REPRISE_SHARED(float, shared, kStateShared);
  if (args.scalars->skip == 0) update_blocks_of(shared, maps, numbers, LionElement(args, *args.scalars, gain1, gain2));
}

// ---- AdamW ----

enum : uint32_t { kKeep, kStep, kRootCorrection, kFactors };

// Stores the factors 1 - lr * weight_decay, lr / (1 - beta1^t) and 1 / sqrt(1 - beta2^t). The
// scalars are read from memory, not passed, so that a recorded launch can be replayed in later
// steps.
template <typename Shared>
__device__ void store_adamw_factors(Shared& factors, const AdamWArgs& args) {
  const auto rate = static_cast<double>(args.scalars->learning_rate * args.rate);
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

template <typename Shared>
__device__ AdamWElement adamw_element(Shared& factors, const AdamWArgs& args, float gain1, float gain2) {
  return {.keep = factors[kKeep],
          .step = factors[kStep],
          .root_correction = factors[kRootCorrection],
          .gain1 = gain1,
          .gain2 = gain2,
          .beta2 = static_cast<float>(args.beta2),
          .clip = args.scalars->clip_factor,
          .epsilon = args.epsilon};
}

template <uint32_t kWidth>
__device__ void adamw_at(const AdamWArgs& args, const AdamWElement& update, uint64_t i) {
  Pack<kWidth> p = load_pack<kWidth>(plain_numbers(args.parameters) + i),
               m = load_pack<kWidth>(plain_numbers(args.first_moments) + i);
  Pack<kWidth> v = load_pack<kWidth>(plain_numbers(args.second_moments) + i);
  const Pack<kWidth> gradient = load_pack<kWidth>(args.gradients + i);
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) update(p.at[k], m.at[k], v.at[k], gradient.at[k]);
  store_pack(plain_numbers(args.parameters) + i, p);
  store_pack(plain_numbers(args.first_moments) + i, m);
  store_pack(plain_numbers(args.second_moments) + i, v);
}

// Updates all elements. One thread of a block computes the factors, because they need double
// precision and are equal for all elements. The launch bounds request four blocks on a
// multiprocessor. With more blocks, the compiler would spill registers around the divisions.
__global__ void __launch_bounds__(kBlockThreads, 4) adamw_update(const AdamWArgs args, float gain1, float gain2) {
  REPRISE_SHARED(float, shared, kFactors);
  if (args.scalars->skip != 0) return;
  if (threadIdx.x == 0) store_adamw_factors(shared, args);
  __syncthreads();
  const AdamWElement update = adamw_element(shared, args, gain1, gain2);
  for (uint64_t i = grid_thread() * kWide; i < args.n; i += grid_threads() * kWide) {
    if (i + kWide <= args.n) {
      adamw_at<kWide>(args, update, i);
    } else {
      for (uint64_t last = i; last < args.n; ++last) adamw_at<1>(args, update, last);
    }
  }
}

__global__ void __launch_bounds__(kBlockThreads, 4)
adamw_blocks(const AdamWArgs args, float gain1, float gain2, const Numbers numbers, const DynamicMaps maps) {
  REPRISE_SHARED(float, factors, kFactors);
  REPRISE_SHARED(float, shared, kStateShared);
  if (args.scalars->skip != 0) return;
  if (threadIdx.x == 0) store_adamw_factors(factors, args);
  __syncthreads();
  update_blocks_of(shared, maps, numbers, adamw_element(factors, args, gain1, gain2));
}

constexpr uint32_t update_blocks(uint64_t n) { return blocks_for(parts(n, kWide), kUpdateBlocks); }

}  // namespace

Status cuda_sgd_update(const KernelContext& context, const SgdArgs& args) {
  const Numbers numbers = {args.parameters, args.momenta, {}, args.gradients, args.scalars, args.n, args.stream};
  if (numbers.are_f32()) {
    REPRISE_LAUNCH(sgd_update, update_blocks(args.n), kBlockThreads, context.queue, args);
  } else {
    REPRISE_LAUNCH(sgd_blocks, state_blocks(args.n), kBlockThreads, context.queue, args, numbers, kDynamicMaps);
  }
  return launch_status();
}

Status cuda_adamw_update(const KernelContext& context, const AdamWArgs& args) {
  const Numbers numbers = {args.parameters, args.first_moments, args.second_moments, args.gradients, args.scalars,
                           args.n,          args.stream};
  const float gain1 = static_cast<float>(1 - args.beta1), gain2 = static_cast<float>(1 - args.beta2);
  if (numbers.are_f32()) {
    REPRISE_LAUNCH(adamw_update, update_blocks(args.n), kBlockThreads, context.queue, args, gain1, gain2);
  } else {
    REPRISE_LAUNCH(adamw_blocks, state_blocks(args.n), kBlockThreads, context.queue, args, gain1, gain2, numbers,
                   kDynamicMaps);
  }
  return launch_status();
}

Status cuda_lion_update(const KernelContext& context, const LionArgs& args) {
  const Numbers numbers = {args.parameters, args.momenta, {}, args.gradients, args.scalars, args.n, args.stream};
  const float gain1 = static_cast<float>(1 - args.beta1), gain2 = static_cast<float>(1 - args.beta2);
  if (numbers.are_f32()) {
    REPRISE_LAUNCH(lion_update, update_blocks(args.n), kBlockThreads, context.queue, args, gain1, gain2);
  } else {
    REPRISE_LAUNCH(lion_blocks, state_blocks(args.n), kBlockThreads, context.queue, args, gain1, gain2, numbers,
                   kDynamicMaps);
  }
  return launch_status();
}

}  // namespace reprise
