// ReLU, addition, copy, GELU, SwiGLU, GeGLU, cap and move: each output element depends on the input
// elements at its position. Each kernel except move is one loop over blocks. Memory limits the
// speed of all.
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/vector_math.h"

namespace reprise {
namespace {

template <typename Stored>
REPRISE_INLINE void relu_body(Stored* y, const Stored* x, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) {
    const float v = x[i];
    y[i] = v <= 0.0f ? 0.0f : v;  // keeps NaN, so that a broken step is detected
  }
}

template <typename Stored>
REPRISE_INLINE void relu_gradient_body(Stored* dx, const Stored* y, const Stored* dy, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) {
    const float passed = dy[i];  // read unconditionally: a load under a condition does not vectorise
    dx[i] = float{y[i]} > 0.0f ? passed : 0.0f;
  }
}

template <typename Stored>
REPRISE_INLINE void add_body(Stored* y, const Stored* a, const Stored* b, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) y[i] = float{a[i]} + float{b[i]};
}

// GELU is x P(Z < x) (Hendrycks & Gimpel 2016). `tanh_form` selects the approximation of the paper:
// x (1 + tanh u) / 2 = x / (1 + e^(-2u)), with u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;
constexpr float kInverseRootTwoPi = 0.39894228040143268f;

REPRISE_INLINE float minus_two_u(float x) { return -kTwoRootTwoOverPi * (x + kCubic * x * x * x); }

// Returns exp(-2u) for the derivative: 0 if the result would be denormal, and at most exp(87),
// because the quotient e / (1 + e) is 1 for such an e. Undefined if the argument is NaN: the
// derivative is then NaN whatever this function returns, because it contains a product with x.
REPRISE_INLINE float bounded_exp(float argument) {
  const float e = exp_in_range(argument > 87.0f ? 87.0f : argument);
  return argument < -87.33f ? 0.0f : e;
}

template <typename Stored>
REPRISE_INLINE void gelu_tanh_body(Stored* y, const Stored* x, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) {
    const float v = x[i];
    y[i] = v / vector_one_plus_exp(minus_two_u(v));
  }
}

// Computes dx = dy y'(x). With e = e^(-2u) and s = 1 / (1 + e), y'(x) = s + x s (1 - s) 2 du/dx,
// and 1 - s = e s.
template <typename Stored>
REPRISE_INLINE void gelu_tanh_gradient_body(Stored* dx, const Stored* x, const Stored* dy, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) {
    const float v = x[i];
    const float e = bounded_exp(minus_two_u(v));
    const float s = 1.0f / (1.0f + e);
    const float slope = kTwoRootTwoOverPi * (1.0f + 3.0f * kCubic * v * v);
    dx[i] = float{dy[i]} * (s + v * s * (e * s) * slope);
  }
}

template <typename Stored>
REPRISE_INLINE void gelu_erf_body(Stored* y, const Stored* x, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) {
    const float v = x[i];
    const float magnitude = v < 0.0f ? -v : v;
    const float tail = normal_tail(magnitude, vector_exp_at_most_88(-0.5f * v * v));
    y[i] = v * (v < 0.0f ? tail : 1.0f - tail);
  }
}

// Computes dx = dy y'(x) with y'(x) = P(Z < x) + x density(x).
template <typename Stored>
REPRISE_INLINE void gelu_erf_gradient_body(Stored* dx, const Stored* x, const Stored* dy, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) {
    const float v = x[i];
    const float magnitude = v < 0.0f ? -v : v;
    const float e = vector_exp_at_most_88(-0.5f * v * v);
    const float tail = normal_tail(magnitude, e);
    dx[i] = float{dy[i]} * ((v < 0.0f ? tail : 1.0f - tail) + v * (kInverseRootTwoPi * e));
  }
}

// The gradients of one element of a gated unit's gate and up, given dy.
struct GateGradients {
  float of_gate, of_up;
};

struct Silu {
  REPRISE_INLINE static float of(float gate) { return gate / vector_one_plus_exp(-gate); }
  // Computes the gradients. With s = 1 / (1 + e^-gate): dsilu/dgate = s (1 + gate (1 - s)), which
  // is 0 if the exponential overflows.
  REPRISE_INLINE static GateGradients gradients(float gate, float up, float dy) {
    const float s = 1.0f / vector_one_plus_exp(-gate);
    return {dy * up * (s * (1.0f + gate * (1.0f - s))), dy * (gate * s)};
  }
};

// GELU's tanh form; see gelu_tanh_body() and its gradient.
struct GeluTanh {
  REPRISE_INLINE static float of(float gate) { return gate / vector_one_plus_exp(minus_two_u(gate)); }
  REPRISE_INLINE static GateGradients gradients(float gate, float up, float dy) {
    const float e = bounded_exp(minus_two_u(gate));
    const float s = 1.0f / (1.0f + e);
    const float slope = kTwoRootTwoOverPi * (1.0f + 3.0f * kCubic * gate * gate);
    return {dy * up * (s + gate * s * (e * s) * slope), dy * (gate * s)};
  }
};

template <typename Gate, typename Stored>
REPRISE_INLINE void gated_body(Gate, Stored* y, const Stored* gate, const Stored* up, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) y[i] = Gate::of(gate[i]) * float{up[i]};
}

template <typename Gate, typename Stored>
REPRISE_INLINE void gated_gradient_body(Gate, Stored* dgate, Stored* dup, const Stored* gate, const Stored* up,
                                        const Stored* dy, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) {
    const GateGradients gradients = Gate::gradients(gate[i], up[i], dy[i]);
    dgate[i] = gradients.of_gate;
    dup[i] = gradients.of_up;
  }
}

template <typename Stored>
REPRISE_INLINE void cap_body(Stored* y, const Stored* x, float softcap, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) y[i] = softcap * vector_tanh(float{x[i]} / softcap);
}
REPRISE_STORAGE_LEVELS(cap_block, cap_body, (Stored* y, const Stored* x, float softcap, uint64_t n), (y, x, softcap, n))

REPRISE_LEVELS_OF(REPRISE_LISTED(template <typename Gate, typename Stored>), gated_block, gated_body,
                  (Gate with, Stored* y, const Stored* gate, const Stored* up, uint64_t n), (with, y, gate, up, n))
REPRISE_LEVELS_OF(REPRISE_LISTED(template <typename Gate, typename Stored>), gated_gradient_block, gated_gradient_body,
                  (Gate with, Stored* dgate, Stored* dup, const Stored* gate, const Stored* up, const Stored* dy,
                   uint64_t n),
                  (with, dgate, dup, gate, up, dy, n))
REPRISE_STORAGE_LEVELS(relu_block, relu_body, (Stored* y, const Stored* x, uint64_t n), (y, x, n))
REPRISE_STORAGE_LEVELS(relu_gradient_block, relu_gradient_body,
                       (Stored * dx, const Stored* y, const Stored* dy, uint64_t n), (dx, y, dy, n))
REPRISE_STORAGE_LEVELS(add_block, add_body, (Stored* y, const Stored* a, const Stored* b, uint64_t n), (y, a, b, n))
REPRISE_STORAGE_LEVELS(gelu_tanh_block, gelu_tanh_body, (Stored* y, const Stored* x, uint64_t n), (y, x, n))
REPRISE_STORAGE_LEVELS(gelu_tanh_gradient_block, gelu_tanh_gradient_body,
                      (Stored* dx, const Stored* x, const Stored* dy, uint64_t n), (dx, x, dy, n))
REPRISE_STORAGE_LEVELS(gelu_erf_block, gelu_erf_body, (Stored* y, const Stored* x, uint64_t n), (y, x, n))
REPRISE_STORAGE_LEVELS(gelu_erf_gradient_block, gelu_erf_gradient_body,
                      (Stored* dx, const Stored* x, const Stored* dy, uint64_t n), (dx, x, dy, n))

template <typename Gate, typename Stored>
Status compute_gated(const KernelContext& context, Gate with, const GatedArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    gated_block(level, with, args.y + begin, args.gate + begin, args.up + begin, end - begin);
  });
  return ok_status();
}

template <typename Gate, typename Stored>
Status compute_gated_gradients(const KernelContext& context, Gate with, const GatedBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    gated_gradient_block(level, with, args.dgate + begin, args.dup + begin, args.gate + begin, args.up + begin,
                         args.dy + begin, end - begin);
  });
  return ok_status();
}

}  // namespace

template <typename Stored>
Status cpu_relu_forward(const KernelContext& context, const UnaryArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {args.n, kBlockElements},
                 [&](uint64_t begin, uint64_t end) { relu_block(level, args.y + begin, args.x + begin, end - begin); });
  return ok_status();
}

template <typename Stored>
Status cpu_relu_backward(const KernelContext& context, const ActivationBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    relu_gradient_block(level, args.dx + begin, args.saved + begin, args.dy + begin, end - begin);
  });
  return ok_status();
}

template <typename Stored>
Status cpu_add_forward(const KernelContext& context, const AddArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    add_block(level, args.y + begin, args.a + begin, args.b + begin, end - begin);
  });
  return ok_status();
}

template <typename Stored>
Status cpu_copy_forward(const KernelContext& context, const UnaryArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    if (args.accumulate_y) {
      add_block(level, args.y + begin, args.y + begin, args.x + begin, end - begin);
    } else {
      std::memcpy(args.y + begin, args.x + begin, (end - begin) * sizeof(Stored));
    }
  });
  return ok_status();
}

template <typename Stored>
Status cpu_gelu_forward(const KernelContext& context, const UnaryArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    (args.tanh_form ? gelu_tanh_block<Stored> : gelu_erf_block<Stored>)(level, args.y + begin, args.x + begin,
                                                                        end - begin);
  });
  return ok_status();
}

template <typename Stored>
Status cpu_gelu_backward(const KernelContext& context, const ActivationBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    (args.tanh_form ? gelu_tanh_gradient_block<Stored> : gelu_erf_gradient_block<Stored>)(level, args.dx + begin,
                                                                                          args.saved + begin,
                                                                                          args.dy + begin, end - begin);
  });
  return ok_status();
}

template <typename Stored>
Status cpu_swiglu_forward(const KernelContext& context, const GatedArgsOf<Stored>& args) {
  return compute_gated(context, Silu{}, args);
}

template <typename Stored>
Status cpu_swiglu_backward(const KernelContext& context, const GatedBackwardArgsOf<Stored>& args) {
  return compute_gated_gradients(context, Silu{}, args);
}

template <typename Stored>
Status cpu_geglu_forward(const KernelContext& context, const GatedArgsOf<Stored>& args) {
  return compute_gated(context, GeluTanh{}, args);
}

template <typename Stored>
Status cpu_geglu_backward(const KernelContext& context, const GatedBackwardArgsOf<Stored>& args) {
  return compute_gated_gradients(context, GeluTanh{}, args);
}

template <typename Stored>
Status cpu_cap_forward(const KernelContext& context, const CapArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    cap_block(level, args.y + begin, args.x + begin, args.softcap, end - begin);
  });
  return ok_status();
}

// Moves n elements; source and destination may overlap. A stretch of elements that is no longer
// than the distance between source and destination does not overlap its own destination. So all
// workers together move one stretch after another, beginning with the one nearest to the
// destination. If the distance is short, memmove moves all elements.
template <typename Stored>
Status cpu_move(const KernelContext& context, const UnaryArgsOf<Stored>& args) {
  const uint64_t distance = static_cast<uint64_t>(args.y < args.x ? args.x - args.y : args.y - args.x);
  if (distance == 0 || args.n == 0) return ok_status();
  const uint64_t stretch = smaller(args.n, distance);
  if (stretch < args.n && stretch < 4 * kBlockElements) {
    std::memmove(args.y, args.x, args.n * sizeof(Stored));
    return ok_status();
  }
  const Partition stretches{args.n, stretch};
  for (uint32_t i = 0; i < stretches.count(); ++i) {
    const uint32_t which = args.y < args.x ? i : stretches.count() - 1 - i;
    const uint64_t first = stretches.begin(which);
    for_each_piece(*context.workers, {stretches.end(which) - first, kBlockElements}, [&](uint64_t begin, uint64_t end) {
      std::memcpy(args.y + first + begin, args.x + first + begin, (end - begin) * sizeof(Stored));
    });
  }
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_relu_forward, UnaryArgs)
REPRISE_INSTANTIATE(cpu_relu_backward, ActivationBackwardArgs)
REPRISE_INSTANTIATE(cpu_add_forward, AddArgs)
REPRISE_INSTANTIATE(cpu_copy_forward, UnaryArgs)
REPRISE_INSTANTIATE(cpu_gelu_forward, UnaryArgs)
REPRISE_INSTANTIATE(cpu_gelu_backward, ActivationBackwardArgs)
REPRISE_INSTANTIATE(cpu_swiglu_forward, GatedArgs)
REPRISE_INSTANTIATE(cpu_swiglu_backward, GatedBackwardArgs)
REPRISE_INSTANTIATE(cpu_cap_forward, CapArgs)
REPRISE_INSTANTIATE(cpu_geglu_forward, GatedArgs)
REPRISE_INSTANTIATE(cpu_geglu_backward, GatedBackwardArgs)
REPRISE_INSTANTIATE(cpu_move, UnaryArgs)

}  // namespace reprise
