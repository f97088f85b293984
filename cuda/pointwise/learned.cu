// Reads a parameter, or rows of it, as an activation, and computes the parameter's gradient. The
// counterpart of lib/cpu/pointwise/learned.cpp. These tensors are small, so a thread processes one
// number at a time.
#include "cuda/cuda_kernels.h"
#include "cuda/data_fault.h"
#include "cuda/grid.h"

namespace reprise {
namespace {

template <typename To, typename From>
__global__ void __launch_bounds__(kBlockThreads) write_elements(To* to, const From* from, bool accumulate, uint64_t n) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads())
    to[i] = accumulate ? float{to[i]} + float{from[i]} : float{from[i]};
}

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;

static __global__ void __launch_bounds__(kBlockThreads)
    note_bad_rows(StepScalars* scalars, uint32_t row, const float* rows, uint64_t R, uint32_t V) {
  REPRISE_SHARED(uint64_t, shared, kWarps);
  uint64_t first = kNoFault;
  for (uint64_t r = threadIdx.x; r < R; r += kBlockThreads) {
    if (first == kNoFault && named_row(rows[r], V) == V) first = r;
  }
  first = block_min<kWarps>(shared, first);
  if (threadIdx.x == 0) note_fault(scalars, DataFault::kToken, row, first);
}

template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) take_rows(const LearnedRowsForwardArgsOf<Stored> a) {
  for (uint64_t i = grid_thread(); i < a.R * a.C; i += grid_threads()) {
    const uint32_t row = named_row(a.rows[i / a.C], a.V);
    a.y[i] = row < a.V ? a.w[uint64_t{row} * a.C + i % a.C] : 0.0f;
  }
}

// Computes dw. A thread computes one element of dw. The thread searches all rows of dy, in order,
// for the rows that read the element's row of w.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) add_rows(const LearnedRowsBackwardArgsOf<Stored> a) {
  for (uint64_t i = grid_thread(); i < uint64_t{a.V} * a.C; i += grid_threads()) {
    const uint64_t row = i / a.C, c = i % a.C;
    float sum = a.accumulate_dw ? a.dw[i] : 0.0f;
    for (uint64_t r = 0; r < a.R; ++r) {
      if (named_row(a.rows[r], a.V) == row) sum += float{a.dy[r * a.C + c]};
    }
    a.dw[i] = sum;
  }
}

}  // namespace

template <typename Stored>
Status cuda_learned_rows_forward(const KernelContext& context, const LearnedRowsForwardArgsOf<Stored>& args) {
  REPRISE_LAUNCH(note_bad_rows, 1, kBlockThreads, context.queue, context.scalars, context.row, args.rows, args.R,
                 args.V);
  REPRISE_LAUNCH(take_rows<Stored>, blocks_for(args.R * args.C), kBlockThreads, context.queue, args);
  return launch_status();
}

template <typename Stored>
Status cuda_learned_rows_backward(const KernelContext& context, const LearnedRowsBackwardArgsOf<Stored>& args) {
  REPRISE_LAUNCH(note_bad_rows, 1, kBlockThreads, context.queue, context.scalars, context.row, args.rows, args.R,
                 args.V);
  REPRISE_LAUNCH(add_rows<Stored>, blocks_for(uint64_t{args.V} * args.C), kBlockThreads, context.queue, args);
  return launch_status();
}

template <typename Stored>
Status cuda_learned_forward(const KernelContext& context, const LearnedForwardArgsOf<Stored>& args) {
  REPRISE_LAUNCH((write_elements<Stored, float>), blocks_for(args.n), kBlockThreads, context.queue, args.y, args.w,
                 false, args.n);
  return launch_status();
}

template <typename Stored>
Status cuda_learned_backward(const KernelContext& context, const LearnedBackwardArgsOf<Stored>& args) {
  REPRISE_LAUNCH((write_elements<float, Stored>), blocks_for(args.n), kBlockThreads, context.queue, args.dw, args.dy,
                 args.accumulate_dw, args.n);
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_learned_rows_forward, LearnedRowsForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_learned_rows_backward, LearnedRowsBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_learned_forward, LearnedForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_learned_backward, LearnedBackwardArgs)

}  // namespace reprise
