// Functions of one number, applied to every element, and their derivatives (lib/unary_math.h). All
// use one loop over blocks, and memory limits its speed. The row's attribute selects the function.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/vector_math.h"
#include "lib/unary_math.h"

namespace reprise {
namespace {

// The functions that lib/unary_math.h needs.
struct VectorMath {
  REPRISE_INLINE static float exp(float x) { return vector_exp(x); }
  REPRISE_INLINE static float exp_at_most_88(float x) { return vector_exp_at_most_88(x); }
  REPRISE_INLINE static float exp_minus_one(float x) { return vector_exp_minus_one(x); }
  REPRISE_INLINE static float one_plus_exp(float x) { return vector_one_plus_exp(x); }
  REPRISE_INLINE static float log_one_plus(float x) { return vector_log_one_plus(x); }
  REPRISE_INLINE static float tanh(float x) { return vector_tanh(x); }
  REPRISE_INLINE static float sqrt(float x) { return std::sqrt(x); }
  REPRISE_INLINE static float fused(float a, float b, float c) { return a * b + c; }
};

template <typename Function, typename Stored>
REPRISE_INLINE void apply_body(Function, Stored* y, const Stored* x, float parameter, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) y[i] = Function::of(x[i], parameter);
}
template <typename Function, typename Stored>
REPRISE_INLINE void apply_slope_body(Function, Stored* dx, const Stored* x, const Stored* dy, float parameter,
                                     uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) dx[i] = float{dy[i]} * Function::slope(x[i], parameter);
}
REPRISE_LEVELS_OF(REPRISE_LISTED(template <typename Function, typename Stored>), apply_block, apply_body,
                  (Function with, Stored* y, const Stored* x, float parameter, uint64_t n), (with, y, x, parameter, n))
REPRISE_LEVELS_OF(REPRISE_LISTED(template <typename Function, typename Stored>), apply_slope_block, apply_slope_body,
                  (Function with, Stored* dx, const Stored* x, const Stored* dy, float parameter, uint64_t n),
                  (with, dx, x, dy, parameter, n))

}  // namespace

template <typename Stored>
Status cpu_unary_forward(const KernelContext& context, const UnaryForwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  unary::with_function<VectorMath>(args.unary.function, [&](auto function) {
    for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
      apply_block(level, function, args.y + begin, args.x + begin, args.unary.parameter, end - begin);
    });
  });
  return ok_status();
}

template <typename Stored>
Status cpu_unary_backward(const KernelContext& context, const UnaryBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  unary::with_function<VectorMath>(args.unary.function, [&](auto function) {
    for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
      apply_slope_block(level, function, args.dx + begin, args.x + begin, args.dy + begin, args.unary.parameter,
                        end - begin);
    });
  });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_unary_forward, UnaryForwardArgs)
REPRISE_INSTANTIATE(cpu_unary_backward, UnaryBackwardArgs)

}  // namespace reprise
