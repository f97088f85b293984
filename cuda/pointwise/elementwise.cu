// ReLU, addition, copy, GELU, SwiGLU, GeGLU, cap and move. An output element depends only on the
// input elements at the same index. The counterpart of lib/cpu/pointwise/elementwise.cpp. Memory
// bounds the time of all kernels, so a thread reads 16 bytes of each tensor at a time.
#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"

namespace reprise {
namespace {

// ---- functions of one element ----

struct Relu {
  __device__ static float of(float x) { return x <= 0.0f ? 0.0f : x; }  // NaN stays NaN: a faulty step is detected
};
struct ReluGradient {
  __device__ static float of(float y, float dy) { return y > 0.0f ? dy : 0.0f; }
};
struct Sum {
  __device__ static float of(float a, float b) { return a + b; }
};

// GELU (Hendrycks & Gimpel 2016) is x P(Z < x), with a standard normal Z. Its tanh form is
// x (1 + tanh u) / 2 = x / (1 + e^(-2u)), with u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;
constexpr float kInverseRootTwoPi = 0.39894228040143268f;

__device__ inline float minus_two_u(float x) { return -kTwoRootTwoOverPi * fmaf(kCubic * x * x, x, x); }

struct GeluTanh {
  __device__ static float of(float x) { return x / (1.0f + device_exp(minus_two_u(x))); }
};
// With e = e^(-2u) and s = 1 / (1 + e): dy/dx = s + x s (1 - s) 2 du/dx, and 1 - s = e s.
struct GeluTanhGradient {
  __device__ static float of(float x, float dy) {
    const float argument = minus_two_u(x);
    const float e = device_exp(argument > 87.0f ? 87.0f : argument);
    const float s = 1.0f / (1.0f + e);
    const float slope = kTwoRootTwoOverPi * fmaf(3.0f * kCubic * x, x, 1.0f);
    return dy * fmaf(x * s * (e * s), slope, s);
  }
};
__device__ inline float normal_below(float x, float exp_minus_half_square) {
  const float tail = normal_tail(x < 0.0f ? -x : x, exp_minus_half_square);
  return x < 0.0f ? tail : 1.0f - tail;
}
struct GeluErf {
  __device__ static float of(float x) { return x * normal_below(x, device_exp(-0.5f * x * x)); }
};
// dy/dx = P(Z < x) + x density(x), with the density of the standard normal distribution.
struct GeluErfGradient {
  __device__ static float of(float x, float dy) {
    const float e = device_exp(-0.5f * x * x);
    return dy * fmaf(x, kInverseRootTwoPi * e, normal_below(x, e));
  }
};

__device__ inline float logistic(float x) { return 1.0f / (1.0f + device_exp(-x)); }
struct Swiglu {
  __device__ static float of(float gate, float up) { return gate / (1.0f + device_exp(-gate)) * up; }
};
struct Geglu {
  __device__ static float of(float gate, float up) { return GeluTanh::of(gate) * up; }
};

// ---- all elements ----

template <typename Map, uint32_t kWidth, typename... Packs>
__device__ Pack<kWidth> map_pack(const Pack<kWidth>& first, const Packs&... others) {
  Pack<kWidth> y;
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) y.at[k] = Map::of(first.at[k], others.at[k]...);
  return y;
}

// Writes y[i] = Map::of(in[i]...). y may be the same tensor as one of `in`.
template <typename Map, typename Stored, typename... In>
__global__ void __launch_bounds__(kBlockThreads) map_elements(Stored* y, uint64_t n, const In*... in) {
  constexpr uint32_t kWidth = kPackWidth<Stored>;
  for (uint64_t i = grid_thread() * kWidth; i < n; i += grid_threads() * kWidth) {
    if (i + kWidth <= n) {
      store_pack(y + i, map_pack<Map>(load_pack<kPackWidth<In>>(in + i)...));
    } else {
      for (uint64_t last = i; last < n; ++last) y[last] = Map::of(float{in[last]}...);
    }
  }
}

template <typename Map, typename Stored, typename... In>
Status launch_map(const KernelContext& context, Stored* y, uint64_t n, const In*... in) {
  REPRISE_LAUNCH((map_elements<Map, Stored, In...>), blocks_for(parts(n, kPackWidth<Stored>)), kBlockThreads,
                 context.queue, y, n, in...);
  return launch_status();
}

// ---- the gradients of SwiGLU and GeGLU: two tensors at once ----

struct GateGradients {
  float of_gate, of_up;
};
// Let silu(gate) = gate s with s = 1 / (1 + e^-gate). Then dsilu/dgate = s (1 + gate (1 - s)),
// which is 0 if the exponential overflows.
struct SwigluGradient {
  __device__ static GateGradients of(float gate, float up, float dy) {
    const float s = logistic(gate);
    return {dy * up * (s * fmaf(gate, 1.0f - s, 1.0f)), dy * (gate * s)};
  }
};
// Computes dy/dgate by the formula of GeluTanhGradient.
struct GegluGradient {
  __device__ static GateGradients of(float gate, float up, float dy) {
    const float argument = minus_two_u(gate);
    const float e = device_exp(argument > 87.0f ? 87.0f : argument);
    const float s = 1.0f / (1.0f + e);
    const float slope = kTwoRootTwoOverPi * fmaf(3.0f * kCubic * gate, gate, 1.0f);
    return {dy * up * fmaf(gate * s * (e * s), slope, s), dy * (gate * s)};
  }
};
template <typename Gradient, uint32_t kWidth, typename Stored>
__device__ void gate_gradient_pack(const GatedBackwardArgsOf<Stored>& args, uint64_t i) {
  const Pack<kWidth> gate = load_pack<kWidth>(args.gate + i), up = load_pack<kWidth>(args.up + i),
                     dy = load_pack<kWidth>(args.dy + i);
  Pack<kWidth> dgate, dup;
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) {
    const GateGradients gradients = Gradient::of(gate.at[k], up.at[k], dy.at[k]);
    dgate.at[k] = gradients.of_gate, dup.at[k] = gradients.of_up;
  }
  store_pack(args.dgate + i, dgate);
  store_pack(args.dup + i, dup);
}
template <typename Gradient, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) gate_gradient(const GatedBackwardArgsOf<Stored> args) {
  constexpr uint32_t kWidth = kPackWidth<Stored>;
  for (uint64_t i = grid_thread() * kWidth; i < args.n; i += grid_threads() * kWidth) {
    if (i + kWidth <= args.n) {
      gate_gradient_pack<Gradient, kWidth>(args, i);
    } else {
      for (uint64_t last = i; last < args.n; ++last) gate_gradient_pack<Gradient, 1>(args, last);
    }
  }
}

template <typename Gradient, typename Stored>
Status launch_gate_gradient(const KernelContext& context, const GatedBackwardArgsOf<Stored>& args) {
  REPRISE_LAUNCH((gate_gradient<Gradient, Stored>), blocks_for(parts(args.n, kPackWidth<Stored>)), kBlockThreads,
                 context.queue, args);
  return launch_status();
}

// ---- cap ----

template <uint32_t kWidth, typename Stored>
__device__ void cap_pack(const CapArgsOf<Stored>& args, uint64_t i) {
  Pack<kWidth> x = load_pack<kWidth>(args.x + i);
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) x.at[k] = args.softcap * device_tanh(x.at[k] / args.softcap);
  store_pack(args.y + i, x);
}
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) cap_elements(const CapArgsOf<Stored> args) {
  constexpr uint32_t kWidth = kPackWidth<Stored>;
  for (uint64_t i = grid_thread() * kWidth; i < args.n; i += grid_threads() * kWidth) {
    if (i + kWidth <= args.n) {
      cap_pack<kWidth>(args, i);
    } else {
      for (uint64_t last = i; last < args.n; ++last) cap_pack<1>(args, last);
    }
  }
}

// ---- copy and move ----

using Chunk = Words<uint32_t, 4>;  // 16 bytes, which a thread copies at once
constexpr uint32_t kAhead = 8;     // chunks that are read before the first of them is written

// A move from x to y, which may overlap. A chunk of y overwrites the chunk of x that is `period`
// chunks away. So only chunks whose distance is a multiple of `period` touch the same bytes; these
// chunks form one chain. One thread moves a chain, from the end that is nearer to y, so that each
// chunk is read before it is overwritten.
struct Chains {
  unsigned char* y;
  const unsigned char* x;
  uint64_t bytes;
  uint64_t chunks, period;  // chunks of x; period is at least 1, and equals `chunks` if y and x do not overlap
  bool downwards;           // true if y is at a lower address than x

  __device__ uint64_t chunk(uint64_t chain, uint64_t step) const {
    const uint64_t at = chain + step * period;
    return downwards ? at : chunks - 1 - at;
  }
  __device__ uint64_t steps(uint64_t chain) const { return (chunks - chain + period - 1) / period; }
};

// Moves the last chunk, which may be shorter than 16 bytes.
__device__ inline void move_partial_chunk(const Chains& c, uint64_t chunk) {
  for (uint64_t b = chunk * sizeof(Chunk); b < c.bytes; b += sizeof(uint16_t)) {
    *reinterpret_cast<Words<uint16_t, 1>*>(c.y + b) = *reinterpret_cast<const Words<uint16_t, 1>*>(c.x + b);
  }
}

__global__ void __launch_bounds__(kBlockThreads) move_chains(const Chains c) {
  const uint64_t whole = c.bytes / sizeof(Chunk);
  for (uint64_t chain = grid_thread(); chain < c.period; chain += grid_threads()) {
    const uint64_t steps = c.steps(chain);
    for (uint64_t step = 0; step < steps; step += kAhead) {
      Chunk held[kAhead];
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kAhead; ++k) {
        const uint64_t at = c.chunk(chain, step + k);
        if (step + k < steps && at < whole) held[k] = reinterpret_cast<const Chunk*>(c.x)[at];
      }
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kAhead; ++k) {
        const uint64_t at = c.chunk(chain, step + k);
        if (step + k >= steps) continue;
        if (at < whole) reinterpret_cast<Chunk*>(c.y)[at] = held[k];
        else move_partial_chunk(c, at);
      }
    }
  }
}

}  // namespace

template <typename Stored>
Status cuda_relu_forward(const KernelContext& context, const UnaryArgsOf<Stored>& args) {
  return launch_map<Relu>(context, args.y, args.n, args.x);
}

template <typename Stored>
Status cuda_relu_backward(const KernelContext& context, const ActivationBackwardArgsOf<Stored>& args) {
  return launch_map<ReluGradient>(context, args.dx, args.n, args.saved, args.dy);
}

template <typename Stored>
Status cuda_add_forward(const KernelContext& context, const AddArgsOf<Stored>& args) {
  return launch_map<Sum>(context, args.y, args.n, args.a, args.b);
}

template <typename Stored>
Status cuda_gelu_forward(const KernelContext& context, const UnaryArgsOf<Stored>& args) {
  return (args.tanh_form ? launch_map<GeluTanh, Stored, Stored> : launch_map<GeluErf, Stored, Stored>)(context, args.y,
                                                                                                       args.n, args.x);
}

template <typename Stored>
Status cuda_gelu_backward(const KernelContext& context, const ActivationBackwardArgsOf<Stored>& args) {
  const auto launch = args.tanh_form ? launch_map<GeluTanhGradient, Stored, Stored, Stored>
                                     : launch_map<GeluErfGradient, Stored, Stored, Stored>;
  return launch(context, args.dx, args.n, args.saved, args.dy);
}

template <typename Stored>
Status cuda_swiglu_forward(const KernelContext& context, const GatedArgsOf<Stored>& args) {
  return launch_map<Swiglu>(context, args.y, args.n, args.gate, args.up);
}

template <typename Stored>
Status cuda_swiglu_backward(const KernelContext& context, const GatedBackwardArgsOf<Stored>& args) {
  return launch_gate_gradient<SwigluGradient>(context, args);
}

template <typename Stored>
Status cuda_cap_forward(const KernelContext& context, const CapArgsOf<Stored>& args) {
  REPRISE_LAUNCH(cap_elements<Stored>, blocks_for(parts(args.n, kPackWidth<Stored>)), kBlockThreads, context.queue,
                 args);
  return launch_status();
}

template <typename Stored>
Status cuda_geglu_forward(const KernelContext& context, const GatedArgsOf<Stored>& args) {
  return launch_map<Geglu>(context, args.y, args.n, args.gate, args.up);
}

template <typename Stored>
Status cuda_geglu_backward(const KernelContext& context, const GatedBackwardArgsOf<Stored>& args) {
  return launch_gate_gradient<GegluGradient>(context, args);
}

// Moves x to y, which may overlap. Both are aligned slots, so their distance is a whole number of
// chunks.
template <typename Stored>
Status cuda_move(const KernelContext& context, const UnaryArgsOf<Stored>& args) {
  const auto y = reinterpret_cast<uintptr_t>(args.y), x = reinterpret_cast<uintptr_t>(args.x);
  if (y == x || args.n == 0) return ok_status();
  const uint64_t bytes = args.n * sizeof(Stored), chunks = parts(bytes, sizeof(Chunk));
  const uint64_t distance = (y < x ? x - y : y - x) / sizeof(Chunk);
  const Chains chains{reinterpret_cast<unsigned char*>(args.y),
                      reinterpret_cast<const unsigned char*>(args.x),
                      bytes,
                      chunks,
                      minimum(chunks, distance),
                      y < x};
  REPRISE_LAUNCH(move_chains, blocks_for(chains.period), kBlockThreads, context.queue, chains);
  return launch_status();
}

template <typename Stored>
Status cuda_copy_forward(const KernelContext& context, const UnaryArgsOf<Stored>& args) {
  if (!args.accumulate_y) return cuda_move(context, args);
  return launch_map<Sum>(context, args.y, args.n, args.y, args.x);
}

REPRISE_CUDA_INSTANTIATE(cuda_relu_forward, UnaryArgs)
REPRISE_CUDA_INSTANTIATE(cuda_relu_backward, ActivationBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_add_forward, AddArgs)
REPRISE_CUDA_INSTANTIATE(cuda_gelu_forward, UnaryArgs)
REPRISE_CUDA_INSTANTIATE(cuda_gelu_backward, ActivationBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_swiglu_forward, GatedArgs)
REPRISE_CUDA_INSTANTIATE(cuda_swiglu_backward, GatedBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_cap_forward, CapArgs)
REPRISE_CUDA_INSTANTIATE(cuda_geglu_forward, GatedArgs)
REPRISE_CUDA_INSTANTIATE(cuda_geglu_backward, GatedBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_move, UnaryArgs)
REPRISE_CUDA_INSTANTIATE(cuda_copy_forward, UnaryArgs)

}  // namespace reprise
