// Concatenates tensors: copies every row of y from its parts. Work is split into equal pieces of y,
// whatever the number of rows.
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/partition.h"

namespace reprise {
namespace {

// Writes elements [begin, end) of row m of y.
template <typename Stored>
void join_row(const ConcatArgsOf<Stored>& args, uint64_t m, uint64_t begin, uint64_t end) {
  uint64_t start = 0;  // index in the row at which the part begins
  for (uint32_t i = 0; i < kMaxConcatParts && start < end; ++i) {
    const uint64_t from = larger(begin, start), to = smaller(end, args.ends[i]);
    if (from < to)
      std::memcpy(args.y + m * args.K + from, args.parts[i] + m * (args.ends[i] - start) + (from - start),
                  (to - from) * sizeof(Stored));
    start = args.ends[i];
  }
}

}  // namespace

template <typename Stored>
Status cpu_concat_forward(const KernelContext& context, const ConcatArgsOf<Stored>& args) {
  for_each_piece(*context.workers, {args.M * args.K, kBlockElements}, [&](uint64_t first, uint64_t last) {
    for (uint64_t m = first / args.K; m * args.K < last; ++m) {
      join_row(args, m, larger(first, m * args.K) - m * args.K, smaller(args.K, last - m * args.K));
    }
  });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_concat_forward, ConcatArgs)

}  // namespace reprise
