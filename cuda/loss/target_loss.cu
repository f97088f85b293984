// Losses that compare each output with a target number, and their gradients. The counterpart of
// lib/cpu/loss/target_loss.cpp. A block processes kTargetsOfBlock neighbouring outputs. Another
// launch of one block adds the blocks' tallies.
#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/grid.h"
#include "cuda/loss/loss_rules.h"
#include "cuda/loss/loss_scalars.h"
#include "cuda/reduce.h"

namespace reprise {
namespace {

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;

struct Judged {
  float loss, slope;
};

struct Mse {
  static constexpr bool kCounts = false;
  __device__ static Judged of(float x, float t, float, float) {
    const float d = x - t;
    return {d * d, 2.0f * d};
  }
};
struct L1 {
  static constexpr bool kCounts = false;
  __device__ static Judged of(float x, float t, float, float) {
    const float d = x - t;
    return {d < 0.0f ? -d : d, d > 0.0f ? 1.0f : (d < 0.0f ? -1.0f : d)};  // NaN stays NaN
  }
};
struct Huber {
  static constexpr bool kCounts = false;
  __device__ static Judged of(float x, float t, float delta, float) {
    const float d = x - t, distance = d < 0.0f ? -d : d;
    return {distance > delta ? delta * fmaf(-0.5f, delta, distance) : 0.5f * d * d,
            distance > delta ? (d < 0.0f ? -delta : delta) : d};
  }
};
// Binary cross-entropy. Let s be the logistic function and e = e^-|x|. Then log s(|x|) is -log(1 +
// e), and log s(-|x|) is -|x| - log(1 + e).
struct Binary {
  static constexpr bool kCounts = true;
  __device__ static Judged of(float x, float t, float, float weight) {
    const float e = device_exp(x < 0.0f ? x : -x), more = device_log_one_plus(e);
    const float larger = 1.0f / (1.0f + e), smaller = e * larger;
    const float positive = weight * t, negative = 1.0f - t;
    const float loss = fmaf(positive, (x < 0.0f ? -x : 0.0f) + more, negative * ((x < 0.0f ? 0.0f : x) + more));
    return {loss, fmaf(-positive, x < 0.0f ? larger : smaller, negative * (x < 0.0f ? smaller : larger))};
  }
};

template <typename Stored>
struct Targets {
  Stored* dx;  // null in evaluation
  const Stored* x;
  const float* targets;
  const float* weights;  // [C] or null
  uint64_t n;
  uint32_t C;
  float delta;
  CudaLossTally* tallies;
};

template <typename Function, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) judge_targets(const Targets<Stored> all, const StepScalars* scalars) {
  REPRISE_SHARED(double, shared, kWarps);
  REPRISE_SHARED(uint64_t, counts, kWarps);
  const float share = all.dx == nullptr ? 0.0f : static_cast<float>(1.0 / static_cast<double>(scalars->step_labelled));
  const uint64_t first = uint64_t{blockIdx.x} * kTargetsOfBlock, end = minimum(all.n, first + kTargetsOfBlock);
  double loss = 0;
  uint64_t labelled = 0, correct = 0;
  for (uint64_t i = first + threadIdx.x; i < end; i += kBlockThreads) {
    const float t = all.targets[i], x = all.x[i];
    const bool there = t == t;
    const Judged judged =
        Function::of(x, there ? t : 0.0f, all.delta, all.weights == nullptr ? 1.0f : all.weights[i % all.C]);
    if (there) loss += static_cast<double>(judged.loss);
    labelled += there;
    if (Function::kCounts) correct += there && (x > 0.0f) == (t > 0.5f);
    if (all.dx != nullptr) all.dx[i] = there ? judged.slope * share : 0.0f;
  }
  loss = block_sum<kWarps>(shared, loss);
  labelled = block_sum<kWarps>(counts, labelled);
  correct = block_sum<kWarps>(counts, correct);
  if (threadIdx.x == 0) all.tallies[blockIdx.x] = {loss, labelled, correct};
}

__global__ void __launch_bounds__(kBlockThreads)
    add_target_tallies(StepScalars* scalars, const CudaLossTally* tallies, uint64_t blocks, bool training) {
  REPRISE_SHARED(double, shared, kWarps);
  REPRISE_SHARED(uint64_t, counts, kWarps);
  double loss = 0;
  uint64_t labelled = 0, correct = 0;
  for (uint64_t i = threadIdx.x; i < blocks; i += kBlockThreads) {
    loss += tallies[i].loss;
    labelled += tallies[i].labelled;
    correct += tallies[i].correct;
  }
  loss = block_sum<kWarps>(shared, loss);
  labelled = block_sum<kWarps>(counts, labelled);
  correct = block_sum<kWarps>(counts, correct);
  if (threadIdx.x == 0 && labelled > 0) add_loss(scalars, loss, labelled, correct, training);
}

template <typename Function, typename Stored>
void launch(const KernelContext& context, const Targets<Stored>& all, const StepScalars* scalars, uint32_t blocks) {
  REPRISE_LAUNCH((judge_targets<Function, Stored>), blocks, kBlockThreads, context.queue, all, scalars);
}

template <typename Stored>
Status judge(const KernelContext& context, Stored* dx, const TargetLossInputOf<Stored>& in, StepScalars* scalars) {
  const uint64_t n = in.M * in.C, blocks = cuda_target_loss_blocks(n);
  const Targets<Stored> all = {dx, in.x, in.targets,    in.positive_weights,
                               n,  in.C, in.loss.delta, static_cast<CudaLossTally*>(in.scratch)};
  const auto grid = static_cast<uint32_t>(blocks);
  switch (static_cast<TargetLossKind>(in.loss.kind)) {
    case TargetLossKind::kMse: launch<Mse>(context, all, scalars, grid); break;
    case TargetLossKind::kL1: launch<L1>(context, all, scalars, grid); break;
    case TargetLossKind::kHuber: launch<Huber>(context, all, scalars, grid); break;
    case TargetLossKind::kBinary: launch<Binary>(context, all, scalars, grid); break;
  }
  REPRISE_RETURN_IF_ERROR(launch_status());
  REPRISE_LAUNCH(add_target_tallies, 1, kBlockThreads, context.queue, scalars, all.tallies, blocks, dx != nullptr);
  return launch_status();
}

}  // namespace

template <typename Stored>
Status cuda_target_loss_backward(const KernelContext& context, const TargetLossBackwardArgsOf<Stored>& args) {
  return judge(context, args.dx, args.in, args.scalars);
}
template <typename Stored>
Status cuda_target_loss_evaluate(const KernelContext& context, const TargetLossEvaluateArgsOf<Stored>& args) {
  return judge(context, static_cast<Stored*>(nullptr), args.in, args.scalars);
}

REPRISE_CUDA_INSTANTIATE(cuda_target_loss_backward, TargetLossBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_target_loss_evaluate, TargetLossEvaluateArgs)

}  // namespace reprise
