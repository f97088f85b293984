// A run of neighbouring columns of rows, and its gradient. Here because parts of a wide layer's output go ways of their own.
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/vector_level.h"

namespace reprise {
namespace {

template <typename Stored>
REPRISE_INLINE void add_row_body(Stored* sum, const Stored* x, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t c = 0; c < n; ++c) sum[c] = float{sum[c]} + float{x[c]};
}
REPRISE_STORAGE_LEVELS(add_row, add_row_body, (Stored* sum, const Stored* x, uint64_t n), (sum, x, n))

}  // namespace

template <typename Stored>
Status cpu_columns_forward(const KernelContext& context, const ColumnsForwardArgsOf<Stored>& args) {
  for_each_piece(*context.workers, split_rows(args.M, args.C), [&](uint64_t begin, uint64_t end) {
    for (uint64_t m = begin; m < end; ++m) std::memcpy(args.y + m * args.C, args.x + m * args.K + args.first, args.C * sizeof(Stored));
  });
  return ok_status();
}

template <typename Stored>
Status cpu_columns_backward(const KernelContext& context, const ColumnsBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const uint64_t behind = uint64_t{args.first} + args.C;
  for_each_piece(*context.workers, split_rows(args.M, args.K), [&](uint64_t begin, uint64_t end) {
    for (uint64_t m = begin; m < end; ++m) {
      Stored* dx = args.dx + m * args.K;
      const Stored* dy = args.dy + m * args.C;
      if (args.accumulate_dx) {
        add_row(level, dx + args.first, dy, args.C);
      } else {
        std::memset(dx, 0, args.first * sizeof(Stored));
        std::memcpy(dx + args.first, dy, args.C * sizeof(Stored));
        std::memset(dx + behind, 0, (args.K - behind) * sizeof(Stored));
      }
    }
  });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_columns_forward, ColumnsForwardArgs)
REPRISE_INSTANTIATE(cpu_columns_backward, ColumnsBackwardArgs)

}  // namespace reprise
