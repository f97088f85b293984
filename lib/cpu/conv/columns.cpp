// Copies a box, which is a part of a tensor, out of the tensor or into the tensor: the kernels of
// columns and pad, forward and backward.
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/runs.h"

namespace reprise {
namespace {

// Calls body(index in the box, index in the tensor, count) for each contiguous run of the box's
// elements [first, last).
template <typename F>
void for_each_run(const Box& box, uint64_t first, uint64_t last, const F& body) {
  const uint64_t length = box.part[3];
  uint64_t run = first / length, column = run % box.part[2], place = box.place_of_run(run);
  for (uint64_t begin = first % length; first < last; begin = 0) {
    const uint64_t count = smaller(length - begin, last - first);
    body(first, place + begin, count);
    first += count, ++run, ++column, place += box.whole[3];
    if (column == box.part[2]) column = 0, place = box.place_of_run(run);
  }
}

// Writes elements [begin, end) of one run of the tensor, which has box.whole[3] elements. Copies
// the elements inside the box from `part`, the box's run of these elements. All other elements
// become zeros. A null `part` means that the box has no element in this run.
template <typename Stored>
void overwrite_run(Stored* whole, const Stored* part, const Box& box, uint64_t begin, uint64_t end) {
  const uint64_t from = part == nullptr ? end : smaller(larger(begin, box.first[3]), end);
  const uint64_t to = part == nullptr ? end : larger(from, smaller(end, box.first[3] + box.part[3]));
  std::memset(static_cast<void*>(whole + begin), 0, (from - begin) * sizeof(Stored));
  if (to > from) std::memcpy(whole + from, part + (from - box.first[3]), (to - from) * sizeof(Stored));
  std::memset(static_cast<void*>(whole + to), 0, (end - to) * sizeof(Stored));
}

// Writes elements [first, last) of the tensor: copies those inside the box from args.part, and sets
// all others to zero.
template <typename Stored>
void overwrite(const PutBoxArgsOf<Stored>& args, uint64_t first, uint64_t last) {
  const Box& box = args.box;
  const uint64_t length = box.whole[3];
  uint64_t run = first / length, column = run % box.whole[2], row = box.row_in(run / box.whole[2]);
  for (uint64_t begin = first % length; first < last; begin = 0) {
    const uint64_t count = smaller(length - begin, last - first), inside = box.run_in(row, column);
    overwrite_run(args.whole + run * length, inside == Box::kNoRun ? nullptr : args.part + inside * box.part[3], box,
                  begin, begin + count);
    first += count, ++run, ++column;
    if (column == box.whole[2]) column = 0, row = box.row_in(run / box.whole[2]);
  }
}

}  // namespace

template <typename Stored>
Status cpu_take_box(const KernelContext& context, const TakeBoxArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {args.box.part_elements(), kBlockElements}, [&](uint64_t first, uint64_t last) {
    for_each_run(args.box, first, last, [&](uint64_t here, uint64_t there, uint64_t count) {
      store_run(level, args.part + here, args.whole + there, count, args.accumulate_part);
    });
  });
  return ok_status();
}

template <typename Stored>
Status cpu_put_box(const KernelContext& context, const PutBoxArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  if (!args.accumulate_whole) {
    for_each_piece(*context.workers, {args.box.whole_elements(), kBlockElements},
                   [&](uint64_t first, uint64_t last) { overwrite(args, first, last); });
    return ok_status();
  }
  for_each_piece(*context.workers, {args.box.part_elements(), kBlockElements}, [&](uint64_t first, uint64_t last) {
    for_each_run(args.box, first, last, [&](uint64_t here, uint64_t there, uint64_t count) {
      store_run(level, args.whole + there, args.part + here, count, true);
    });
  });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_take_box, TakeBoxArgs)
REPRISE_INSTANTIATE(cpu_put_box, PutBoxArgs)

}  // namespace reprise
