// Measures the three passes of a convolution on layers of ResNet-20 (28 x 28 images, batch 128) and
// ResNet-50 (batch 16). Also measures the two passes that read x again, with batch-norm and ReLU
// folded in (_norm). Training a ResNet spends its time in these layers.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lib/cpu/conv/conv_rules.h"
#include "lib/cpu/cpu_kernels.h"
#include "ports/linux/linux_port.h"
#include "tests/bench/machine_peak.h"
#include "tests/ops/random_floats.h"
#include "tests/ports/test_machine.h"

namespace reprise::bench {
namespace {

double peak_flops;
Workers workers_by_count[3];

struct LayerCase {
  const char* name;
  uint32_t N, size, C, K;
  uint16_t kernel, stride, pad;
};
const LayerCase kLayers[] = {
    {"resnet20_stem", 128, 28, 1, 16, 3, 1, 1},        {"resnet20_16", 128, 28, 16, 16, 3, 1, 1},
    {"resnet20_16_32", 128, 28, 16, 32, 3, 2, 1},      {"resnet20_32", 128, 14, 32, 32, 3, 1, 1},
    {"resnet20_32_64", 128, 14, 32, 64, 3, 2, 1},      {"resnet20_64", 128, 7, 64, 64, 3, 1, 1},
    {"resnet20_skip_16_32", 128, 28, 16, 32, 1, 2, 0}, {"resnet18_64", 32, 32, 64, 64, 3, 1, 1},
    {"resnet18_64_128", 32, 32, 64, 128, 3, 2, 1},     {"resnet18_128", 32, 16, 128, 128, 3, 1, 1},
    // Every distinct layer of ResNet-50.
    {"resnet50_stem", 16, 224, 3, 64, 7, 2, 3},
    {"resnet50_c2_1x1_64_64", 16, 56, 64, 64, 1, 1, 0},      {"resnet50_c2_3x3", 16, 56, 64, 64, 3, 1, 1},
    {"resnet50_c2_1x1_64_256", 16, 56, 64, 256, 1, 1, 0},    {"resnet50_c2_1x1_256_64", 16, 56, 256, 64, 1, 1, 0},
    {"resnet50_c3_1x1_256_128", 16, 56, 256, 128, 1, 1, 0},  {"resnet50_c3_3x3_down", 16, 56, 128, 128, 3, 2, 1},
    {"resnet50_c3_1x1_down", 16, 56, 256, 512, 1, 2, 0},     {"resnet50_c3_1x1_128_512", 16, 28, 128, 512, 1, 1, 0},
    {"resnet50_c3_1x1_512_128", 16, 28, 512, 128, 1, 1, 0},  {"resnet50_c3_3x3", 16, 28, 128, 128, 3, 1, 1},
    {"resnet50_c4_1x1_512_256", 16, 28, 512, 256, 1, 1, 0},  {"resnet50_c4_3x3_down", 16, 28, 256, 256, 3, 2, 1},
    {"resnet50_c4_1x1_down", 16, 28, 512, 1024, 1, 2, 0},    {"resnet50_c4_1x1_256_1024", 16, 14, 256, 1024, 1, 1, 0},
    {"resnet50_c4_1x1_1024_256", 16, 14, 1024, 256, 1, 1, 0}, {"resnet50_c4_3x3", 16, 14, 256, 256, 3, 1, 1},
    {"resnet50_c5_1x1_1024_512", 16, 14, 1024, 512, 1, 1, 0}, {"resnet50_c5_3x3_down", 16, 14, 512, 512, 3, 2, 1},
    {"resnet50_c5_1x1_down", 16, 14, 1024, 2048, 1, 2, 0},   {"resnet50_c5_1x1_512_2048", 16, 7, 512, 2048, 1, 1, 0},
    {"resnet50_c5_1x1_2048_512", 16, 7, 2048, 512, 1, 1, 0}, {"resnet50_c5_3x3", 16, 7, 512, 512, 3, 1, 1},
};

enum class ConvPass { kForward, kBackwardData, kBackwardWeight };

Tensor tensor(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  Tensor t;
  t.rank = 4;
  t.shape[0] = a, t.shape[1] = b, t.shape[2] = c, t.shape[3] = d;
  t.bytes = 4 * t.elements();
  return t;
}

// Memory as in a program: consecutive slots in an arena of the port.
class Slots {
 public:
  explicit Slots(uint64_t bytes) {
    if (!linux_port().acquire_arena(bytes, &arena_).ok()) std::abort();
  }
  ~Slots() { linux_port().release_arena(&arena_); }
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  float* take(uint64_t bytes) {
    float* slot = reinterpret_cast<float*>((arena_.base + used_).for_kernels);
    used_ += align_up(bytes);
    return slot;
  }
  float* take(const std::vector<float>& values) {
    float* slot = take(4 * values.size());
    std::copy(values.begin(), values.end(), slot);
    return slot;
  }

 private:
  Arena arena_;
  uint64_t used_ = 0;
};

void run_layer(benchmark::State& state, const LayerCase& c, ConvPass pass, bool folds, uint32_t workers) {
  const uint32_t P = (c.size + 2u * c.pad - c.kernel) / c.stride + 1;
  const ConvShape s{c.N, c.size, c.size, c.C, P, P, c.K, {c.kernel, c.kernel, c.stride, c.pad}};
  const Tensor tx = tensor(s.N, s.H, s.W, s.C), tw = tensor(s.K, c.kernel, c.kernel, s.C),
               ty = tensor(s.N, s.P, s.Q, s.K);
  const std::vector<float> channel = random_floats(c.C, 1);
  const InputNorm norm =
      folds ? InputNorm{channel.data(), channel.data(), channel.data(), channel.data()} : InputNorm{};
  const uint64_t bytes = pass == ConvPass::kForward ? conv_forward_scratch(s, DType::kF32, DType::kF32, false).bytes
                         : pass == ConvPass::kBackwardData
                             ? conv_backward_data_scratch(s, DType::kF32, DType::kF32).bytes
                             : conv_backward_weight_scratch(s, DType::kF32).bytes;
  Slots slots(align_up(tx.bytes) + align_up(tw.bytes) + align_up(ty.bytes) + align_up(bytes));
  float *x = slots.take(random_floats(tx.elements(), 1)), *w = slots.take(random_floats(tw.elements(), 1)),
        *y = slots.take(random_floats(ty.elements(), 1)), *scratch = slots.take(bytes);
  const KernelContext context{.workers = &workers_by_count[workers], .machine = test::test_backend().machine};
  Stopwatch watch;
  for (auto _ : state) {
    watch.start();
    Status status;
    switch (pass) {
      case ConvPass::kForward:
        status = cpu_conv_forward<float>(context, {y, x, w, scratch, bytes, s, norm, nullptr, nullptr});
        break;
      case ConvPass::kBackwardData:
        status = cpu_conv_backward_data<float>(context, {x, y, w, scratch, bytes, s, false});
        break;
      case ConvPass::kBackwardWeight:
        status = cpu_conv_backward_weight<float>(context, {w, x, y, scratch, bytes, s, false, norm});
        break;
    }
    state.SetIterationTime(watch.stop());
    if (!status.ok()) state.SkipWithError(status.message);
  }
  report_rates(state, watch, 2.0 * static_cast<double>(ty.elements()) * c.kernel * c.kernel * c.C, peak_flops, workers);
  state.counters["scratch_KiB"] = static_cast<double>(bytes) / 1024;
}

void register_all() {
  const struct {
    const char* name;
    ConvPass pass;
    bool folds;
  } passes[] = {{"forward", ConvPass::kForward, false},
                {"forward_norm", ConvPass::kForward, true},
                {"backward_data", ConvPass::kBackwardData, false},
                {"backward_weight", ConvPass::kBackwardWeight, false},
                {"backward_weight_norm", ConvPass::kBackwardWeight, true}};
  for (const LayerCase& c : kLayers) {
    for (const auto& p : passes) {
      for (uint32_t workers : {1u, 2u}) {
        const std::string name = std::string(c.name) + "/" + p.name + "/workers:" + std::to_string(workers);
        const ConvPass pass = p.pass;
        const bool folds = p.folds;
        benchmark::RegisterBenchmark(name.c_str(), [&c, pass, folds, workers](
                                                       benchmark::State& s) { run_layer(s, c, pass, folds, workers); })
            ->UseManualTime()
            ->MinTime(0.1);
      }
    }
  }
}

}  // namespace
}  // namespace reprise::bench

int main(int argc, char** argv) {
  using namespace reprise;
  if (!linux_port().start_workers(2, &bench::workers_by_count[2]).ok()) return 1;
  const CpuMachine& cpu = *static_cast<const CpuMachine*>(test::test_backend().machine);
  bench::peak_flops = bench::measure_peak_flops();
  std::printf("peak of one core, measured: %.1f GFLOP/s (%s); tile %s\n", bench::peak_flops / 1e9,
              vector_level_name(cpu.level), cpu.tile.name);
  bench::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  linux_port().stop_workers(&bench::workers_by_count[2]);
  return 0;
}
