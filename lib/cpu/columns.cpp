// A box taken out of a tensor, and one put into it. Here because parts of a tensor go ways of their own, and their gradients come back.
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/vector_level.h"

namespace reprise {
namespace {

template <typename Stored>
REPRISE_INLINE void add_run_body(Stored* sum, const Stored* x, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t c = 0; c < n; ++c) sum[c] = float{sum[c]} + float{x[c]};
}
REPRISE_STORAGE_LEVELS(add_run, add_run_body, (Stored* sum, const Stored* x, uint64_t n), (sum, x, n))

// Calls body(run, begin, end) for the elements [first, last), which lie in runs of so many: elements [begin, end) of each run.
template <typename F>
void for_each_run(uint64_t first, uint64_t last, uint64_t length, const F& body) {
  for (uint64_t run = first / length; first < last; ++run) {
    const uint64_t begin = first - run * length, end = smaller(length, last - run * length);
    body(run, begin, end);
    first = run * length + end;
  }
}

// Elements [begin, end) of one of the tensor's runs. `part`: the box's run that lies in it; null where none does.
template <typename Stored>
void overwrite_run(Stored* whole, const Stored* part, const Box& box, uint64_t begin, uint64_t end) {
  const uint64_t from = part == nullptr ? end : smaller(larger(begin, box.first[3]), end);
  const uint64_t to = part == nullptr ? end : larger(from, smaller(end, box.first[3] + box.part[3]));
  std::memset(static_cast<void*>(whole + begin), 0, (from - begin) * sizeof(Stored));
  if (to > from) std::memcpy(whole + from, part + (from - box.first[3]), (to - from) * sizeof(Stored));
  std::memset(static_cast<void*>(whole + to), 0, (end - to) * sizeof(Stored));
}

}  // namespace

template <typename Stored>
Status cpu_take_box(const KernelContext& context, const TakeBoxArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const Box& box = args.box;
  for_each_piece(*context.workers, {box.part_elements(), kBlockElements}, [&](uint64_t first, uint64_t last) {
    for_each_run(first, last, box.part[3], [&](uint64_t run, uint64_t begin, uint64_t end) {
      Stored* to = args.part + run * box.part[3] + begin;
      const Stored* from = args.whole + box.place_of_run(run) + begin;
      if (args.accumulate_part) {
        add_run(level, to, from, end - begin);
      } else {
        std::memcpy(to, from, (end - begin) * sizeof(Stored));
      }
    });
  });
  return ok_status();
}

template <typename Stored>
Status cpu_put_box(const KernelContext& context, const PutBoxArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const Box& box = args.box;
  if (args.accumulate_whole) {
    for_each_piece(*context.workers, {box.part_elements(), kBlockElements}, [&](uint64_t first, uint64_t last) {
      for_each_run(first, last, box.part[3], [&](uint64_t run, uint64_t begin, uint64_t end) {
        add_run(level, args.whole + box.place_of_run(run) + begin, args.part + run * box.part[3] + begin, end - begin);
      });
    });
    return ok_status();
  }
  for_each_piece(*context.workers, {box.whole_elements(), kBlockElements}, [&](uint64_t first, uint64_t last) {
    for_each_run(first, last, box.whole[3], [&](uint64_t run, uint64_t begin, uint64_t end) {
      const uint64_t inside = box.run_in(run);
      overwrite_run(args.whole + run * box.whole[3], inside == Box::kNoRun ? nullptr : args.part + inside * box.part[3], box, begin, end);
    });
  });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_take_box, TakeBoxArgs)
REPRISE_INSTANTIATE(cpu_put_box, PutBoxArgs)

}  // namespace reprise
