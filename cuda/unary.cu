// Functions of one number, of every element, and their slopes: the twin of lib/cpu/unary.cpp, where each is explained. Memory bounds them: a
// thread takes 16 bytes of each tensor at a time.
#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/grid.h"
#include "cuda/pack.h"

namespace reprise {
namespace {

__device__ inline float minus_magnitude(float x) { return x < 0.0f ? x : -x; }

struct Logistic {
  float s, rest;
};
__device__ inline Logistic logistic(float x) {
  const float e = device_exp(minus_magnitude(x));
  const float larger = 1.0f / (1.0f + e), smaller = e * larger;
  return {x < 0.0f ? smaller : larger, x < 0.0f ? larger : smaller};
}

__device__ inline float swish(float x, float k) { return x / (1.0f + device_exp(-k * x)); }
__device__ inline float swish_slope(float x, float k) {
  const Logistic l = logistic(k * x);
  return l.s * fmaf(k * x, l.rest, 1.0f);
}

struct Silu {
  __device__ static float of(float x, float) { return swish(x, 1.0f); }
  __device__ static float slope(float x, float) { return swish_slope(x, 1.0f); }
};
constexpr float kQuick = 1.702f;
struct QuickGelu {
  __device__ static float of(float x, float) { return swish(x, kQuick); }
  __device__ static float slope(float x, float) { return swish_slope(x, kQuick); }
};

constexpr float kSixth = 1.0f / 6, kThird = 1.0f / 3;
__device__ inline float clamp_to_6(float x) {
  const float above = x < 0.0f ? 0.0f : x;
  return above > 6.0f ? 6.0f : above;
}
struct Hardsigmoid {
  __device__ static float of(float x, float) { return clamp_to_6(x + 3.0f) * kSixth; }
  __device__ static float slope(float x, float) { return x <= -3.0f || x >= 3.0f ? 0.0f : kSixth; }
};
struct Hardswish {
  __device__ static float of(float x, float) { return x * (clamp_to_6(x + 3.0f) * kSixth); }
  __device__ static float slope(float x, float) { return x <= -3.0f ? 0.0f : x >= 3.0f ? 1.0f : fmaf(x, kThird, 0.5f); }
};
struct Relu6 {
  __device__ static float of(float x, float) { return clamp_to_6(x); }
  __device__ static float slope(float x, float) { return x <= 0.0f || x >= 6.0f ? 0.0f : 1.0f; }
};

struct Sigmoid {
  __device__ static float of(float x, float) { return logistic(x).s; }
  __device__ static float slope(float x, float) {
    const Logistic l = logistic(x);
    return l.s * l.rest;
  }
};
struct LeakyRelu {
  __device__ static float of(float x, float slope_below) { return x > 0.0f ? x : x * slope_below; }
  __device__ static float slope(float x, float slope_below) { return x > 0.0f ? 1.0f : slope_below; }
};
struct Elu {
  __device__ static float of(float x, float alpha) { return x > 0.0f ? x : alpha * device_exp_minus_one(x > 0.0f ? 0.0f : x); }
  __device__ static float slope(float x, float alpha) { return x > 0.0f ? 1.0f : alpha * device_exp(x); }
};
struct Tanh {
  __device__ static float of(float x, float) { return device_tanh(x); }
  __device__ static float slope(float x, float) {
    const Logistic l = logistic(2.0f * x);
    return 4.0f * l.s * l.rest;
  }
};
struct Softplus {
  __device__ static float of(float x, float) { return (x < 0.0f ? 0.0f : x) + device_log_one_plus(device_exp(minus_magnitude(x))); }
  __device__ static float slope(float x, float) { return logistic(x).s; }
};
struct Mish {
  struct Parts {
    float n, q;
  };
  __device__ static Parts parts(float x) {
    const float w = device_exp(minus_magnitude(x));
    return {x < 0.0f ? w * (w + 2.0f) : fmaf(2.0f, w, 1.0f), x < 0.0f ? 2.0f : 2.0f * w * w};
  }
  __device__ static float of(float x, float) {
    const Parts p = parts(x);
    return x * (p.n / (p.n + p.q));
  }
  __device__ static float slope(float x, float) {
    const Parts p = parts(x);
    const float whole = 1.0f / (p.n + p.q), t = p.n * whole;
    return fmaf(x, (p.q * whole) * (1.0f + t) * logistic(x).s, t);
  }
};
struct Exp {
  __device__ static float of(float x, float) { return device_exp(x); }
  __device__ static float slope(float x, float) { return device_exp(x); }
};

struct Scale {
  __device__ static float of(float x, float factor) { return x * factor; }
  __device__ static float slope(float, float factor) { return factor; }
};
struct AtLeast {
  __device__ static float of(float x, float bound) { return x < bound ? bound : x; }
  __device__ static float slope(float x, float bound) { return x < bound ? 0.0f : 1.0f; }
};
struct AtMost {
  __device__ static float of(float x, float bound) { return x > bound ? bound : x; }
  __device__ static float slope(float x, float bound) { return x > bound ? 0.0f : 1.0f; }
};
struct Sqrt {
  __device__ static float of(float x, float) { return sqrtf(x); }
  __device__ static float slope(float x, float) { return 0.5f / sqrtf(x); }
};
struct Reciprocal {
  __device__ static float of(float x, float) { return 1.0f / x; }
  __device__ static float slope(float x, float) {
    const float y = 1.0f / x;
    return -y * y;
  }
};

template <typename Function, uint32_t kWidth, typename Stored>
__device__ void apply(const UnaryForwardArgsOf<Stored>& args, uint64_t i) {
  Pack<kWidth> x = load_pack<kWidth>(args.x + i);
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) x.at[k] = Function::of(x.at[k], args.unary.parameter);
  store_pack(args.y + i, x);
}
template <typename Function, uint32_t kWidth, typename Stored>
__device__ void apply(const UnaryBackwardArgsOf<Stored>& args, uint64_t i) {
  const Pack<kWidth> x = load_pack<kWidth>(args.x + i);
  Pack<kWidth> dy = load_pack<kWidth>(args.dy + i);
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) dy.at[k] *= Function::slope(x.at[k], args.unary.parameter);
  store_pack(args.dx + i, dy);
}

// Of forward and backward alike.
template <typename Function, uint32_t kWidth, typename Args>
__global__ void __launch_bounds__(kBlockThreads) unary_elements(const Args args) {
  for (uint64_t i = grid_thread() * kWidth; i < args.n; i += grid_threads() * kWidth) {
    if (i + kWidth <= args.n) {
      apply<Function, kWidth>(args, i);
    } else {
      for (uint64_t last = i; last < args.n; ++last) apply<Function, 1>(args, last);
    }
  }
}

template <typename Function, uint32_t kWidth, typename Args>
void launch(const KernelContext& context, const Args& args) {
  REPRISE_LAUNCH((unary_elements<Function, kWidth, Args>), blocks_for(parts(args.n, kWidth)), kBlockThreads, context.queue, args);
}

template <uint32_t kWidth, typename Args>
Status launch_function(const KernelContext& context, const Args& args) {
  switch (static_cast<UnaryFunction>(args.unary.function)) {
    case UnaryFunction::kSilu: launch<Silu, kWidth>(context, args); break;
    case UnaryFunction::kHardswish: launch<Hardswish, kWidth>(context, args); break;
    case UnaryFunction::kHardsigmoid: launch<Hardsigmoid, kWidth>(context, args); break;
    case UnaryFunction::kSigmoid: launch<Sigmoid, kWidth>(context, args); break;
    case UnaryFunction::kRelu6: launch<Relu6, kWidth>(context, args); break;
    case UnaryFunction::kLeakyRelu: launch<LeakyRelu, kWidth>(context, args); break;
    case UnaryFunction::kElu: launch<Elu, kWidth>(context, args); break;
    case UnaryFunction::kTanh: launch<Tanh, kWidth>(context, args); break;
    case UnaryFunction::kSoftplus: launch<Softplus, kWidth>(context, args); break;
    case UnaryFunction::kMish: launch<Mish, kWidth>(context, args); break;
    case UnaryFunction::kQuickGelu: launch<QuickGelu, kWidth>(context, args); break;
    case UnaryFunction::kExp: launch<Exp, kWidth>(context, args); break;
    case UnaryFunction::kScale: launch<Scale, kWidth>(context, args); break;
    case UnaryFunction::kAtLeast: launch<AtLeast, kWidth>(context, args); break;
    case UnaryFunction::kAtMost: launch<AtMost, kWidth>(context, args); break;
    case UnaryFunction::kSqrt: launch<Sqrt, kWidth>(context, args); break;
    case UnaryFunction::kReciprocal: launch<Reciprocal, kWidth>(context, args); break;
  }
  return launch_status();
}

}  // namespace

template <typename Stored>
Status cuda_unary_forward(const KernelContext& context, const UnaryForwardArgsOf<Stored>& args) {
  return launch_function<kPackWidth<Stored>>(context, args);
}

template <typename Stored>
Status cuda_unary_backward(const KernelContext& context, const UnaryBackwardArgsOf<Stored>& args) {
  return launch_function<kPackWidth<Stored>>(context, args);
}

REPRISE_CUDA_INSTANTIATE(cuda_unary_forward, UnaryForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_unary_backward, UnaryBackwardArgs)

}  // namespace reprise
