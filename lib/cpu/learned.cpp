// A parameter as an activation, and its gradient. Here because parameters are f32 whatever activations are.
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/vector_level.h"

namespace reprise {
namespace {

template <typename To, typename From>
REPRISE_INLINE void write_body(To* to, const From* from, bool accumulate, uint64_t n) {
  if (accumulate) {
    REPRISE_INDEPENDENT
    for (uint64_t i = 0; i < n; ++i) to[i] = float{to[i]} + float{from[i]};
  } else {
    REPRISE_INDEPENDENT
    for (uint64_t i = 0; i < n; ++i) to[i] = float{from[i]};
  }
}
REPRISE_LEVELS_OF(REPRISE_LISTED(template <typename To, typename From>), write_block, write_body, (To * to, const From* from, bool accumulate, uint64_t n),
                  (to, from, accumulate, n))

template <typename To, typename From>
Status write_all(const KernelContext& context, To* to, const From* from, bool accumulate, uint64_t n) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {n, kBlockElements},
                 [&](uint64_t begin, uint64_t end) { write_block(level, to + begin, from + begin, accumulate, end - begin); });
  return ok_status();
}

}  // namespace

template <typename Stored>
Status cpu_learned_forward(const KernelContext& context, const LearnedForwardArgsOf<Stored>& args) {
  return write_all(context, args.y, args.w, false, args.n);
}

template <typename Stored>
Status cpu_learned_backward(const KernelContext& context, const LearnedBackwardArgsOf<Stored>& args) {
  return write_all(context, args.dw, args.dy, args.accumulate_dw, args.n);
}

REPRISE_INSTANTIATE(cpu_learned_forward, LearnedForwardArgs)
REPRISE_INSTANTIATE(cpu_learned_backward, LearnedBackwardArgs)

}  // namespace reprise
