// A skeleton to copy (channel_gain.h): the kernels for the CPU. It is built with the flags of lib:
// no heap, no exceptions, no globals.
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/vector_level.h"
#include "tests/skeleton/channel_gain_kernels.h"
#include "tests/skeleton/channel_gain_rules.h"

namespace reprise {
namespace {

// COPYING: a body, and every function that it calls, is REPRISE_INLINE, so that it is compiled once
// for each vector level. Without REPRISE_INLINE, a function is compiled only for the level of the
// file. A bf16 is converted to float without error, used in float, and rounded once, when it is
// written.
template <typename Stored>
REPRISE_INLINE void scale_body(Stored* to, const Stored* from, const float* gain, uint64_t rows, uint32_t C) {
  for (uint64_t r = 0; r < rows; ++r) {
    REPRISE_INDEPENDENT  // holds even if `to` is `from`: each iteration reads only its own element
    for (uint64_t c = 0; c < C; ++c) to[r * C + c] = from[r * C + c] * gain[c];
  }
}
REPRISE_STORAGE_LEVELS(scale, scale_body,
                       (Stored * to, const Stored* from, const float* gain, uint64_t rows, uint32_t C),
                       (to, from, gain, rows, C))

// Sums the rows of one chunk in their order. A product of two floats is exact in double, so the
// result is the same if the compiler fuses the product with the sum (vector_level.h).
template <typename Stored>
REPRISE_INLINE void sum_body(double* sums, const Stored* x, const Stored* dy, uint64_t rows, uint32_t C) {
  for (uint64_t c = 0; c < C; ++c) sums[c] = 0;  // COPYING: the content of scratch is unspecified before the call
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < C; ++c) {
      sums[c] += static_cast<double>(float{x[r * C + c]}) * static_cast<double>(float{dy[r * C + c]});
    }
  }
}
REPRISE_STORAGE_LEVELS(sum_chunk, sum_body,
                       (double* sums, const Stored* x, const Stored* dy, uint64_t rows, uint32_t C),
                       (sums, x, dy, rows, C))

}  // namespace

template <typename Stored>
Status cpu_channel_gain_forward(const KernelContext& context, const ChannelGainForwardArgsOf<Stored>& args) {
  const uint64_t C = args.C;
  for_each_piece(*context.workers, split_rows(args.M, C), [&](uint64_t begin, uint64_t end) {
    scale(cpu_machine(context).level, args.y + begin * C, args.x + begin * C, args.gain, end - begin, args.C);
  });
  return ok_status();
}

template <typename Stored>
Status cpu_channel_gain_backward(const KernelContext& context, const ChannelGainBackwardArgsOf<Stored>& args) {
  const uint64_t C = args.C;
  // COPYING: dx may be dy, so dy is read first.
  if (args.dgain != nullptr) {
    const Partition chunks = channel_gain_chunks(args.M);
    double* sums = static_cast<double*>(args.scratch);
    // COPYING: workers compute whole chunks in any order, and one thread adds the chunks in order.
    // No float is added atomically.
    parallel_for(*context.workers, chunks.count(), [&](uint32_t i) {
      const uint64_t begin = chunks.begin(i), end = chunks.end(i);
      sum_chunk(cpu_machine(context).level, sums + i * C, args.x + begin * C, args.dy + begin * C, end - begin, args.C);
    });
    for (uint64_t c = 0; c < C; ++c) {
      double sum = 0;
      for (uint32_t i = 0; i < chunks.count(); ++i) sum += sums[i * C + c];
      // COPYING: the sum is rounded, then added. So an accumulated gradient has the bits of the sum
      // of two gradients.
      args.dgain[c] = static_cast<float>(sum) + (args.accumulate_dgain ? args.dgain[c] : 0.0f);
    }
  }
  for_each_piece(*context.workers, split_rows(args.M, C), [&](uint64_t begin, uint64_t end) {
    scale(cpu_machine(context).level, args.dx + begin * C, args.dy + begin * C, args.gain, end - begin, args.C);
  });
  return ok_status();
}

// COPYING: instantiate every storage of activations. If one is missing, the table of kernels has a
// gap, which is noticed only with a plan in bf16.
REPRISE_INSTANTIATE(cpu_channel_gain_forward, ChannelGainForwardArgs)
REPRISE_INSTANTIATE(cpu_channel_gain_backward, ChannelGainBackwardArgs)

}  // namespace reprise
