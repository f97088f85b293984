// The softmax of rows, and its gradient. Each row is processed separately, in three passes that
// stay in L1.
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/vector_math.h"

namespace reprise {
namespace {

// Writes the softmax of each row. If y is f32, y stores the exponentials from one pass to the next.
// A y of bf16 would round the exponentials, so they are computed again.
template <typename Stored>
REPRISE_INLINE void softmax_body(Stored* y, const Stored* x, uint64_t rows, uint32_t C) {
  constexpr bool kKeeps = kStoredAs<Stored> == DType::kF32;
  for (uint64_t r = 0; r < rows; ++r, x += C, y += C) {
    const float largest = largest_of(x, C);
    float lanes[kSumLanes] = {};
    for (uint32_t c = 0; c < C; c += kSumLanes) {
      const uint32_t count = C - c < kSumLanes ? C - c : kSumLanes;
      for (uint32_t k = 0; k < count; ++k) {
        const float e = vector_exp_at_most_88(x[c + k] - largest);
        if constexpr (kKeeps) y[c + k] = e;
        lanes[k] += e;
      }
    }
    const float scale = 1.0f / sum_lanes(lanes);
    REPRISE_INDEPENDENT
    for (uint32_t c = 0; c < C; ++c) y[c] = scale * (kKeeps ? float{y[c]} : vector_exp_at_most_88(x[c] - largest));
  }
}

template <typename Stored>
REPRISE_INLINE void softmax_slope_body(Stored* dx, const Stored* y, const Stored* dy, uint64_t rows, uint32_t C) {
  for (uint64_t r = 0; r < rows; ++r, dx += C, y += C, dy += C) {
    const float sum = sum_of_products(y, dy, C);
    REPRISE_INDEPENDENT
    for (uint32_t c = 0; c < C; ++c) dx[c] = float{y[c]} * (float{dy[c]} - sum);
  }
}

REPRISE_STORAGE_LEVELS(softmax_rows, softmax_body, (Stored * y, const Stored* x, uint64_t rows, uint32_t C),
                       (y, x, rows, C))
REPRISE_STORAGE_LEVELS(softmax_slopes, softmax_slope_body,
                       (Stored * dx, const Stored* y, const Stored* dy, uint64_t rows, uint32_t C),
                       (dx, y, dy, rows, C))

}  // namespace

template <typename Stored>
Status cpu_softmax_forward(const KernelContext& context, const SoftmaxForwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, split_rows(args.M, args.C), [&](uint64_t begin, uint64_t end) {
    softmax_rows(level, args.y + begin * args.C, args.x + begin * args.C, end - begin, args.C);
  });
  return ok_status();
}

template <typename Stored>
Status cpu_softmax_backward(const KernelContext& context, const SoftmaxBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, split_rows(args.M, args.C), [&](uint64_t begin, uint64_t end) {
    const uint64_t at = begin * args.C;
    softmax_slopes(level, args.dx + at, args.y + at, args.dy + at, end - begin, args.C);
  });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_softmax_forward, SoftmaxForwardArgs)
REPRISE_INSTANTIATE(cpu_softmax_backward, SoftmaxBackwardArgs)

}  // namespace reprise
