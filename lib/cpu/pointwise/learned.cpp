// Copies a parameter to an activation, and the activation's gradient to the parameter's. Converts
// between their types, because parameters are f32, whatever the storage type of activations.
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/data_fault.h"
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
REPRISE_LEVELS_OF(REPRISE_LISTED(template <typename To, typename From>), write_block, write_body,
                  (To * to, const From* from, bool accumulate, uint64_t n), (to, from, accumulate, n))

template <typename To, typename From>
Status write_all(const KernelContext& context, To* to, const From* from, bool accumulate, uint64_t n) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    write_block(level, to + begin, from + begin, accumulate, end - begin);
  });
  return ok_status();
}

// True if w has all rows that `rows` names; otherwise notes the first missing row as a fault.
bool rows_are_right(const KernelContext& context, const float* rows, uint64_t R, uint32_t V) {
  for (uint64_t r = 0; r < R; ++r) {
    if (named_row(rows[r], V) < V) continue;
    note_fault(context, DataFault::kToken, r);
    return false;
  }
  return true;
}

constexpr uint64_t kOwnedColumns = 64;  // columns of dw that one task writes

}  // namespace

template <typename Stored>
Status cpu_learned_forward(const KernelContext& context, const LearnedForwardArgsOf<Stored>& args) {
  return write_all(context, args.y, args.w, false, args.n);
}

template <typename Stored>
Status cpu_learned_backward(const KernelContext& context, const LearnedBackwardArgsOf<Stored>& args) {
  return write_all(context, args.dw, args.dy, args.accumulate_dw, args.n);
}

template <typename Stored>
Status cpu_learned_rows_forward(const KernelContext& context, const LearnedRowsForwardArgsOf<Stored>& args) {
  const uint64_t C = args.C;
  if (!rows_are_right(context, args.rows, args.R, args.V)) {
    std::memset(args.y, 0, args.R * C * sizeof(Stored));
    return ok_status();
  }
  for_each_piece(*context.workers, split_rows(args.R, C), [&](uint64_t begin, uint64_t end) {
    for (uint64_t r = begin; r < end; ++r)
      write_block(cpu_machine(context).level, args.y + r * C, args.w + named_row(args.rows[r], args.V) * C, false, C);
  });
  return ok_status();
}

template <typename Stored>
Status cpu_learned_rows_backward(const KernelContext& context, const LearnedRowsBackwardArgsOf<Stored>& args) {
  const uint64_t C = args.C;
  const bool right = rows_are_right(context, args.rows, args.R, args.V);
  if (!args.accumulate_dw) std::memset(args.dw, 0, args.V * C * sizeof(float));
  if (!right) return ok_status();
  for_each_piece(*context.workers, {C, kOwnedColumns}, [&](uint64_t begin, uint64_t end) {
    for (uint64_t r = 0; r < args.R; ++r) {
      float* sum = args.dw + named_row(args.rows[r], args.V) * C + begin;
      write_block(cpu_machine(context).level, sum, args.dy + r * C + begin, true, end - begin);
    }
  });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_learned_rows_forward, LearnedRowsForwardArgs)
REPRISE_INSTANTIATE(cpu_learned_rows_backward, LearnedRowsBackwardArgs)
REPRISE_INSTANTIATE(cpu_learned_forward, LearnedForwardArgs)
REPRISE_INSTANTIATE(cpu_learned_backward, LearnedBackwardArgs)

}  // namespace reprise
