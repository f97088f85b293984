// Linear layers on a small core: forward and the gradients of data and weight, by the tiles of
// small_tile.h. linear.cpp has the bias's gradient. A low-rank adapter adds depths to the same
// sums, as in linear.cpp.
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/small/small_products.h"

namespace reprise {
namespace {

constexpr Status kScratchTooSmall = {Code::kBadPlan,
                                     "a small core's linear kernel must have the scratch bytes of its rule", 0};

}  // namespace

template <typename Stored>
Status cpu_small_linear_forward(const KernelContext&, const LinearForwardArgsOf<Stored>& args) {
  if (args.scratch_bytes < align_up(4 * small_linear_floats(uint64_t{args.C} + args.R, args.K, kStoredAs<Stored>)))
    return kScratchTooSmall;
  const small::Factor<Stored> factors[2] = {{args.x, args.C,
                                             small::weights_of(args.w, args.K, args.C, args.input_major), args.scale},
                                            {args.h, args.R, small::weights_of(args.u, args.K, args.R, false), 1.0f}};
  small::multiply<Stored, Stored>(factors, args.M, args.K, {args.y, static_cast<ptrdiff_t>(args.K), args.b, false},
                                  static_cast<float*>(args.scratch));
  return ok_status();
}

template <typename Stored>
Status cpu_small_linear_backward_data(const KernelContext&, const LinearBackwardDataArgsOf<Stored>& args) {
  if (args.scratch_bytes < align_up(4 * small_linear_floats(args.K, args.C, kStoredAs<Stored>)))
    return kScratchTooSmall;
  const small::Factor<Stored> factors[2] = {{args.dy, args.K,
                                             small::weights_of(args.w, args.C, args.K, !args.input_major), args.scale},
                                            {nullptr, 0, {}, 1.0f}};
  small::multiply<Stored, Stored>(factors, args.M, args.C,
                                  {args.dx, static_cast<ptrdiff_t>(args.C), nullptr, args.accumulate_dx},
                                  static_cast<float*>(args.scratch));
  return ok_status();
}

template <typename Stored>
Status cpu_small_linear_backward_weight(const KernelContext&, const LinearBackwardWeightArgsOf<Stored>& args) {
  if (args.scratch_bytes < align_up(4 * small_linear_gradient_floats(args.input_major ? args.C : args.K)))
    return kScratchTooSmall;
  float* scratch = static_cast<float*>(args.scratch);
  if (args.input_major)
    small::add_gradient(args.dw, args.accumulate_dw, args.x, args.C, args.dy, args.K, args.M, scratch);
  else small::add_gradient(args.dw, args.accumulate_dw, args.dy, args.K, args.x, args.C, args.M, scratch);
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_small_linear_forward, LinearForwardArgs)
REPRISE_INSTANTIATE(cpu_small_linear_backward_data, LinearBackwardDataArgs)
REPRISE_INSTANTIATE(cpu_small_linear_backward_weight, LinearBackwardWeightArgs)

}  // namespace reprise
