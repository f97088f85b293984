// The functions of lib/ops/unary.h and their derivatives, in f32. Processors and cards share this
// code; each passes its own functions as Math:
//
//   exp(x)                e^x
//   exp_at_most_88(x)     e^x for x <= 88
//   exp_minus_one(x)      e^x - 1 for x <= 0
//   one_plus_exp(x)       1 + e^x
//   log_one_plus(x)       log(1 + x) for x in [0, 1]
//   tanh(x), sqrt(x)
//   fused(a, b, c)        a b + c, rounded once where the backend fuses
//
// Each function is a struct with of(x, parameter) and slope(x, parameter), the derivative. Except
// in fused(), no sum here has a product that a compiler could fuse (lib/cpu/vector_level.h).
#pragma once

#include "lib/attributes.h"

namespace reprise::unary {

// The code is inlined into functions that are compiled for one vector level, or for a card.
#define REPRISE_FORMULA [[gnu::always_inline]] constexpr

// The logistic function: s = 1 / (1 + e^-x), and rest = 1 - s. Both are computed from e^-|x|, which
// does not overflow, and without a difference, so that both are accurate where they are small.
struct Logistic {
  float s, rest;
};
template <typename Math>
REPRISE_FORMULA Logistic logistic(float x) {
  const float e = Math::exp_at_most_88(x < 0.0f ? x : -x);
  const float larger = 1.0f / (1.0f + e), smaller = e * larger;
  return {x < 0.0f ? smaller : larger, x < 0.0f ? larger : smaller};
}

// Returns x s(kx), where s is the logistic function. swish_slope() returns the derivative with
// respect to x, which is s + kx s (1 - s).
template <typename Math>
REPRISE_FORMULA float swish(float x, float k) {
  return x / Math::one_plus_exp(-k * x);
}
template <typename Math>
REPRISE_FORMULA float swish_slope(float x, float k) {
  const Logistic l = logistic<Math>(k * x);
  return l.s * Math::fused(k * x, l.rest, 1.0f);
}

template <typename Math>
struct Silu {
  REPRISE_FORMULA static float of(float x, float) { return swish<Math>(x, 1.0f); }
  REPRISE_FORMULA static float slope(float x, float) { return swish_slope<Math>(x, 1.0f); }
};
constexpr float kQuick = 1.702f;
template <typename Math>
struct QuickGelu {
  REPRISE_FORMULA static float of(float x, float) { return swish<Math>(x, kQuick); }
  REPRISE_FORMULA static float slope(float x, float) { return swish_slope<Math>(x, kQuick); }
};

constexpr float kSixth = 1.0f / 6, kThird = 1.0f / 3;
REPRISE_FORMULA float clamp_to_6(float x) {
  const float above = x < 0.0f ? 0.0f : x;
  return above > 6.0f ? 6.0f : above;
}
template <typename>
struct Hardsigmoid {
  REPRISE_FORMULA static float of(float x, float) { return clamp_to_6(x + 3.0f) * kSixth; }
  REPRISE_FORMULA static float slope(float x, float) { return (x <= -3.0f) | (x >= 3.0f) ? 0.0f : kSixth; }
};
template <typename Math>
struct Hardswish {
  REPRISE_FORMULA static float of(float x, float) { return x * (clamp_to_6(x + 3.0f) * kSixth); }
  REPRISE_FORMULA static float slope(float x, float) {
    const float inside = Math::fused(x, kThird, 0.5f);
    const float above = x >= 3.0f ? 1.0f : inside;
    return x <= -3.0f ? 0.0f : above;
  }
};
template <typename>
struct Relu6 {
  REPRISE_FORMULA static float of(float x, float) { return clamp_to_6(x); }
  REPRISE_FORMULA static float slope(float x, float) { return (x <= 0.0f) | (x >= 6.0f) ? 0.0f : 1.0f; }
};

template <typename Math>
struct Sigmoid {
  REPRISE_FORMULA static float of(float x, float) { return logistic<Math>(x).s; }
  REPRISE_FORMULA static float slope(float x, float) {
    const Logistic l = logistic<Math>(x);
    return l.s * l.rest;
  }
};
template <typename>
struct LeakyRelu {
  REPRISE_FORMULA static float of(float x, float slope_below) { return x > 0.0f ? x : x * slope_below; }
  REPRISE_FORMULA static float slope(float x, float slope_below) { return x > 0.0f ? 1.0f : slope_below; }
};
template <typename Math>
struct Elu {
  REPRISE_FORMULA static float of(float x, float alpha) {
    const float below = alpha * Math::exp_minus_one(x > 0.0f ? 0.0f : x);
    return x > 0.0f ? x : below;
  }
  REPRISE_FORMULA static float slope(float x, float alpha) {
    const float below = alpha * Math::exp_at_most_88(x > 0.0f ? 0.0f : x);
    return x > 0.0f ? 1.0f : below;
  }
};
// The derivative is 1 - tanh^2 x = 4e / (1 + e)^2, e = e^-2|x|.
template <typename Math>
struct Tanh {
  REPRISE_FORMULA static float of(float x, float) { return Math::tanh(x); }
  REPRISE_FORMULA static float slope(float x, float) {
    const Logistic l = logistic<Math>(2.0f * x);
    return 4.0f * l.s * l.rest;
  }
};
// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
template <typename Math>
struct Softplus {
  REPRISE_FORMULA static float of(float x, float) {
    return (x < 0.0f ? 0.0f : x) + Math::log_one_plus(Math::exp_at_most_88(x < 0.0f ? x : -x));
  }
  REPRISE_FORMULA static float slope(float x, float) { return logistic<Math>(x).s; }
};

// t = tanh(log(1 + e^x)) = n / (n + q). For x < 0, let w = e^x: then n = w (w + 2) and q = 2.
// Otherwise let w = e^-x, and divide n and q by e^2x: then n = 1 + 2w and q = 2w^2. The derivative
// is t + x (1 - t^2) s with 1 - t^2 = q (2n + q) / (n + q)^2. In this form no digits cancel, except
// in the sum of the two terms.
template <typename Math>
struct Mish {
  struct Parts {
    // sum: n + q. For x >= 0 it is computed without q, because only one compiler would fuse q's
    // product.
    float n, q, sum;
  };
  REPRISE_FORMULA static Parts parts(float x) {
    const float w = Math::exp_at_most_88(x < 0.0f ? x : -x);
    const bool left = x < 0.0f;
    const float n = left ? w * (w + 2.0f) : Math::fused(2.0f, w, 1.0f);
    return {n, left ? 2.0f : 2.0f * w * w, left ? n + 2.0f : Math::fused(w, Math::fused(2.0f, w, 2.0f), 1.0f)};
  }
  REPRISE_FORMULA static float of(float x, float) {
    const Parts p = parts(x);
    return x * (p.n / p.sum);
  }
  REPRISE_FORMULA static float slope(float x, float) {
    const Parts p = parts(x);
    const float t = p.n / p.sum;
    return Math::fused(x, p.q / p.sum * (1.0f + t) * logistic<Math>(x).s, t);
  }
};
template <typename Math>
struct Exp {
  REPRISE_FORMULA static float of(float x, float) { return Math::exp(x); }
  REPRISE_FORMULA static float slope(float x, float) { return Math::exp(x); }
};

template <typename>
struct Scale {
  REPRISE_FORMULA static float of(float x, float factor) { return x * factor; }
  REPRISE_FORMULA static float slope(float, float factor) { return factor; }
};
template <typename>
struct AtLeast {
  REPRISE_FORMULA static float of(float x, float bound) { return x < bound ? bound : x; }
  REPRISE_FORMULA static float slope(float x, float bound) { return x < bound ? 0.0f : 1.0f; }
};
template <typename>
struct AtMost {
  REPRISE_FORMULA static float of(float x, float bound) { return x > bound ? bound : x; }
  REPRISE_FORMULA static float slope(float x, float bound) { return x > bound ? 0.0f : 1.0f; }
};
template <typename Math>
struct Sqrt {
  REPRISE_FORMULA static float of(float x, float) { return Math::sqrt(x); }
  REPRISE_FORMULA static float slope(float x, float) { return 0.5f / Math::sqrt(x); }
};
template <typename>
struct Reciprocal {
  REPRISE_FORMULA static float of(float x, float) { return 1.0f / x; }
  REPRISE_FORMULA static float slope(float x, float) {
    const float y = 1.0f / x;
    return -y * y;
  }
};

#undef REPRISE_FORMULA

// Calls visit with the struct of `function`, which makes_sense() has checked.
template <typename Math, typename Visit>
void with_function(uint32_t function, const Visit& visit) {
  switch (static_cast<UnaryFunction>(function)) {
    case UnaryFunction::kSilu: return visit(Silu<Math>{});
    case UnaryFunction::kHardswish: return visit(Hardswish<Math>{});
    case UnaryFunction::kHardsigmoid: return visit(Hardsigmoid<Math>{});
    case UnaryFunction::kSigmoid: return visit(Sigmoid<Math>{});
    case UnaryFunction::kRelu6: return visit(Relu6<Math>{});
    case UnaryFunction::kLeakyRelu: return visit(LeakyRelu<Math>{});
    case UnaryFunction::kElu: return visit(Elu<Math>{});
    case UnaryFunction::kTanh: return visit(Tanh<Math>{});
    case UnaryFunction::kSoftplus: return visit(Softplus<Math>{});
    case UnaryFunction::kMish: return visit(Mish<Math>{});
    case UnaryFunction::kQuickGelu: return visit(QuickGelu<Math>{});
    case UnaryFunction::kExp: return visit(Exp<Math>{});
    case UnaryFunction::kScale: return visit(Scale<Math>{});
    case UnaryFunction::kAtLeast: return visit(AtLeast<Math>{});
    case UnaryFunction::kAtMost: return visit(AtMost<Math>{});
    case UnaryFunction::kSqrt: return visit(Sqrt<Math>{});
    case UnaryFunction::kReciprocal: return visit(Reciprocal<Math>{});
  }
}

}  // namespace reprise::unary
