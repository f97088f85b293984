// Functions of one number, of every element, and their slopes: one loop over blocks for all of them, bound by memory.
// Here apart from elementwise.cpp because the function is a number of the row's attribute: a struct says what each computes, a switch picks it.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/vector_math.h"

namespace reprise {
namespace {

// s = 1 / (1 + e^-x) and rest = 1 - s. Of e^-|x|, which does not overflow, and without a difference, so that both are right where they are small.
struct Logistic {
  float s, rest;
};
REPRISE_INLINE Logistic logistic(float x) {
  const float e = vector_exp_at_most_88(x < 0.0f ? x : -x);
  const float larger = 1.0f / (1.0f + e), smaller = e * larger;
  return {x < 0.0f ? smaller : larger, x < 0.0f ? larger : smaller};
}

// x s(kx), and its slope s + kx s (1 - s).
REPRISE_INLINE float swish(float x, float k) { return x / vector_one_plus_exp(-k * x); }
REPRISE_INLINE float swish_slope(float x, float k) {
  const Logistic l = logistic(k * x);
  return l.s * (1.0f + (k * x) * l.rest);
}

struct Silu {
  REPRISE_INLINE static float of(float x, float) { return swish(x, 1.0f); }
  REPRISE_INLINE static float slope(float x, float) { return swish_slope(x, 1.0f); }
};
constexpr float kQuick = 1.702f;
struct QuickGelu {
  REPRISE_INLINE static float of(float x, float) { return swish(x, kQuick); }
  REPRISE_INLINE static float slope(float x, float) { return swish_slope(x, kQuick); }
};

constexpr float kSixth = 1.0f / 6, kThird = 1.0f / 3;
REPRISE_INLINE float clamp_to_6(float x) {
  const float above = x < 0.0f ? 0.0f : x;
  return above > 6.0f ? 6.0f : above;
}
struct Hardsigmoid {
  REPRISE_INLINE static float of(float x, float) { return clamp_to_6(x + 3.0f) * kSixth; }
  REPRISE_INLINE static float slope(float x, float) { return (x <= -3.0f) | (x >= 3.0f) ? 0.0f : kSixth; }
};
struct Hardswish {
  REPRISE_INLINE static float of(float x, float) { return x * (clamp_to_6(x + 3.0f) * kSixth); }
  REPRISE_INLINE static float slope(float x, float) {
    const float inside = x * kThird + 0.5f;
    const float above = x >= 3.0f ? 1.0f : inside;
    return x <= -3.0f ? 0.0f : above;
  }
};
struct Relu6 {
  REPRISE_INLINE static float of(float x, float) { return clamp_to_6(x); }
  REPRISE_INLINE static float slope(float x, float) { return (x <= 0.0f) | (x >= 6.0f) ? 0.0f : 1.0f; }
};

struct Sigmoid {
  REPRISE_INLINE static float of(float x, float) { return logistic(x).s; }
  REPRISE_INLINE static float slope(float x, float) {
    const Logistic l = logistic(x);
    return l.s * l.rest;
  }
};
struct LeakyRelu {
  REPRISE_INLINE static float of(float x, float slope_below) { return x > 0.0f ? x : x * slope_below; }
  REPRISE_INLINE static float slope(float x, float slope_below) { return x > 0.0f ? 1.0f : slope_below; }
};
struct Elu {
  REPRISE_INLINE static float of(float x, float alpha) {
    const float below = alpha * vector_exp_minus_one(x > 0.0f ? 0.0f : x);
    return x > 0.0f ? x : below;
  }
  REPRISE_INLINE static float slope(float x, float alpha) {
    const float below = alpha * vector_exp_at_most_88(x > 0.0f ? 0.0f : x);
    return x > 0.0f ? 1.0f : below;
  }
};
// 1 - tanh^2 x = 4e / (1 + e)^2, e = e^-2|x|.
struct Tanh {
  REPRISE_INLINE static float of(float x, float) { return vector_tanh(x); }
  REPRISE_INLINE static float slope(float x, float) {
    const Logistic l = logistic(2.0f * x);
    return 4.0f * l.s * l.rest;
  }
};
// max(x, 0) + log(1 + e^-|x|).
struct Softplus {
  REPRISE_INLINE static float of(float x, float) {
    return (x < 0.0f ? 0.0f : x) + vector_log_one_plus(vector_exp_at_most_88(x < 0.0f ? x : -x));
  }
  REPRISE_INLINE static float slope(float x, float) { return logistic(x).s; }
};

// t = tanh(log(1 + e^x)) = n / (n + q): of w = e^x, n = w (w + 2) and q = 2; where x > 0 of w = e^-x, both divided by e^2x, n = 1 + 2w and q = 2w^2.
// The slope t + x (1 - t^2) s has 1 - t^2 = q (2n + q) / (n + q)^2: nothing cancels but the sum itself.
struct Mish {
  struct Parts {
    float n, q, sum;  // n + q, where x > 0 without q: one compiler alone would fuse its product
  };
  REPRISE_INLINE static Parts parts(float x) {
    const float w = vector_exp_at_most_88(x < 0.0f ? x : -x);
    const bool left = x < 0.0f;
    const float n = left ? w * (w + 2.0f) : 1.0f + 2.0f * w;
    return {n, left ? 2.0f : 2.0f * w * w, left ? n + 2.0f : w * (2.0f * w + 2.0f) + 1.0f};
  }
  REPRISE_INLINE static float of(float x, float) {
    const Parts p = parts(x);
    return x * (p.n / p.sum);
  }
  REPRISE_INLINE static float slope(float x, float) {
    const Parts p = parts(x);
    const float t = p.n / p.sum;
    return t + x * (p.q / p.sum * (1.0f + t) * logistic(x).s);
  }
};
struct Exp {
  REPRISE_INLINE static float of(float x, float) { return vector_exp(x); }
  REPRISE_INLINE static float slope(float x, float) { return vector_exp(x); }
};

struct Scale {
  REPRISE_INLINE static float of(float x, float factor) { return x * factor; }
  REPRISE_INLINE static float slope(float, float factor) { return factor; }
};
struct AtLeast {
  REPRISE_INLINE static float of(float x, float bound) { return x < bound ? bound : x; }
  REPRISE_INLINE static float slope(float x, float bound) { return x < bound ? 0.0f : 1.0f; }
};
struct AtMost {
  REPRISE_INLINE static float of(float x, float bound) { return x > bound ? bound : x; }
  REPRISE_INLINE static float slope(float x, float bound) { return x > bound ? 0.0f : 1.0f; }
};
struct Sqrt {
  REPRISE_INLINE static float of(float x, float) { return std::sqrt(x); }
  REPRISE_INLINE static float slope(float x, float) { return 0.5f / std::sqrt(x); }
};
struct Reciprocal {
  REPRISE_INLINE static float of(float x, float) { return 1.0f / x; }
  REPRISE_INLINE static float slope(float x, float) {
    const float y = 1.0f / x;
    return -y * y;
  }
};

template <typename Function, typename Stored>
REPRISE_INLINE void apply_body(Function, Stored* y, const Stored* x, float parameter, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) y[i] = Function::of(x[i], parameter);
}
template <typename Function, typename Stored>
REPRISE_INLINE void apply_slope_body(Function, Stored* dx, const Stored* x, const Stored* dy, float parameter, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) dx[i] = float{dy[i]} * Function::slope(x[i], parameter);
}
REPRISE_LEVELS_OF(REPRISE_LISTED(template <typename Function, typename Stored>), apply_block, apply_body,
                  (Function with, Stored* y, const Stored* x, float parameter, uint64_t n), (with, y, x, parameter, n))
REPRISE_LEVELS_OF(REPRISE_LISTED(template <typename Function, typename Stored>), apply_slope_block, apply_slope_body,
                  (Function with, Stored* dx, const Stored* x, const Stored* dy, float parameter, uint64_t n), (with, dx, x, dy, parameter, n))

// Calls visit with the struct of the function, which makes_sense() knows to be one.
template <typename Visit>
void with_function(uint32_t function, const Visit& visit) {
  switch (static_cast<UnaryFunction>(function)) {
    case UnaryFunction::kSilu: return visit(Silu{});
    case UnaryFunction::kHardswish: return visit(Hardswish{});
    case UnaryFunction::kHardsigmoid: return visit(Hardsigmoid{});
    case UnaryFunction::kSigmoid: return visit(Sigmoid{});
    case UnaryFunction::kRelu6: return visit(Relu6{});
    case UnaryFunction::kLeakyRelu: return visit(LeakyRelu{});
    case UnaryFunction::kElu: return visit(Elu{});
    case UnaryFunction::kTanh: return visit(Tanh{});
    case UnaryFunction::kSoftplus: return visit(Softplus{});
    case UnaryFunction::kMish: return visit(Mish{});
    case UnaryFunction::kQuickGelu: return visit(QuickGelu{});
    case UnaryFunction::kExp: return visit(Exp{});
    case UnaryFunction::kScale: return visit(Scale{});
    case UnaryFunction::kAtLeast: return visit(AtLeast{});
    case UnaryFunction::kAtMost: return visit(AtMost{});
    case UnaryFunction::kSqrt: return visit(Sqrt{});
    case UnaryFunction::kReciprocal: return visit(Reciprocal{});
  }
}

}  // namespace

template <typename Stored>
Status cpu_unary_forward(const KernelContext& context, const UnaryForwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  with_function(args.unary.function, [&](auto function) {
    for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
      apply_block(level, function, args.y + begin, args.x + begin, args.unary.parameter, end - begin);
    });
  });
  return ok_status();
}

template <typename Stored>
Status cpu_unary_backward(const KernelContext& context, const UnaryBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  with_function(args.unary.function, [&](auto function) {
    for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
      apply_slope_block(level, function, args.dx + begin, args.x + begin, args.dy + begin, args.unary.parameter, end - begin);
    });
  });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_unary_forward, UnaryForwardArgs)
REPRISE_INSTANTIATE(cpu_unary_backward, UnaryBackwardArgs)

}  // namespace reprise
