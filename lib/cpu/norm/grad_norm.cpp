// The gradients' norm: a sum of squares for each tensor, then one norm and the clip factor. There
// are two kernels, because a group is reduced as soon as its gradients are complete, but the norm
// needs all groups. These kernels change no gradient: the optimizer applies the factor.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/norm/square_sums.h"
#include "lib/cpu/partition.h"

namespace reprise {
namespace {

constexpr uint64_t kNormBlock = 32768;
// Maximum number of blocks, from any tensors, that are reduced together. The blocks are on the
// stack; no sum depends on this number.
constexpr uint32_t kWave = 256, kSmallWave = 8;

struct NormBlock {
  const float* x;
  uint64_t n;
  uint32_t tensor;
  double sum;
};

REPRISE_INLINE void sum_squares_body(NormBlock& block) {
  SquareSums squares;
  squares.add(block.x, block.n);
  block.sum = squares.total();
}

REPRISE_VECTOR_LEVELS(sum_squares, sum_squares_body, (NormBlock & block), (block))

void reduce_wave(const KernelContext& context, double* norms, NormBlock* wave, uint32_t count) {
  parallel_for(*context.workers, count, [&](uint32_t i) { sum_squares(cpu_machine(context).level, wave[i]); });
  for (uint32_t i = 0; i < count; ++i) norms[wave[i].tensor] += wave[i].sum;
}

template <uint32_t kBlocks>
[[gnu::noinline]] void reduce(const KernelContext& context, const GradNormReduceArgs& args) {
  NormBlock wave[kBlocks];
  uint32_t waiting = 0;
  for (uint32_t t = 0; t < args.count; ++t) {
    const Tensor& tensor = args.tensors[t];
    const float* x = args.gradients + (tensor.offset - args.tensors[0].offset) / sizeof(float);
    const Partition blocks{tensor.elements(), kNormBlock};
    args.norms[t] = 0;
    for (uint32_t i = 0; i < blocks.count(); ++i) {
      wave[waiting++] = {x + blocks.begin(i), blocks.end(i) - blocks.begin(i), t, 0};
      if (waiting == kBlocks) {
        reduce_wave(context, args.norms, wave, waiting);
        waiting = 0;
      }
    }
  }
  reduce_wave(context, args.norms, wave, waiting);
}

}  // namespace

Status cpu_grad_norm_reduce(const KernelContext& context, const GradNormReduceArgs& args) {
  (cpu_machine(context).size == CpuSize::kSmall ? reduce<kSmallWave> : reduce<kWave>)(context, args);
  return ok_status();
}

Status cpu_grad_norm_finish(const KernelContext&, const GradNormFinishArgs& args) {
  double sum = 0;
  for (uint32_t i = 0; i < args.count; ++i) sum += args.norms[i];
  const double norm = std::sqrt(sum);
  const double factor = static_cast<double>(args.max_norm) / (norm + 1e-6);
  args.scalars->gradient_norm = static_cast<float>(norm);
  args.scalars->clip_factor = args.max_norm == 0 || !(factor < 1) ? 1.0f : static_cast<float>(factor);
  if (!std::isfinite(norm)) args.scalars->skip = 1;
  return ok_status();
}

}  // namespace reprise
