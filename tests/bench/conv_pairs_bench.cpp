// Compares two ways to compute convolutions of activations stored as bf16: the f32 algorithm, which
// converts them to f32, and a product of bf16 pairs. The two run alternately. The results decide
// CpuCore::paired_winograd_tiles and the figures of conv_pairs.h for the direct kernel. Prints rows
// of Markdown for tests/bench/pages/RESULTS.md, in per cent of the measured f32 peak of one core.
// Each figure is the best of several runs.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "lib/cpu/conv/conv_pairs.h"
#include "lib/cpu/cpu_kernels.h"
#include "tests/bench/machine_peak.h"
#include "tests/ops/random_floats.h"
#include "tests/ports/test_machine.h"

namespace reprise::bench {
namespace {

struct Layer {
  uint32_t N, size, C, K;
  uint16_t kernel, stride;
  bool folds;  // true: batch-norm and ReLU of the input are folded in
};
constexpr Layer kLayers[] = {
    {4, 224, 3, 64, 7, 2, false},   {4, 56, 64, 64, 3, 1, true},     {4, 28, 128, 128, 3, 1, true},
    {4, 14, 256, 256, 3, 1, true},  {4, 7, 512, 512, 3, 1, true},    {4, 56, 128, 128, 3, 2, true},
    {4, 28, 256, 256, 3, 2, true},  {4, 14, 512, 512, 3, 2, true},   {4, 56, 256, 64, 1, 1, true},
    {4, 28, 512, 128, 1, 1, true},  {4, 14, 1024, 256, 1, 1, true},  {4, 56, 64, 256, 1, 1, true},
    {4, 56, 256, 512, 1, 2, false}, {4, 28, 512, 1024, 1, 2, false}, {16, 32, 16, 16, 3, 1, true},
    {16, 16, 32, 32, 3, 1, true},   {16, 8, 64, 64, 3, 1, true},     {16, 32, 32, 64, 3, 2, true},
    {4, 28, 48, 48, 3, 1, true},    {4, 56, 24, 144, 1, 1, false},
};

ConvShape shape_of(const Layer& l) {
  const uint16_t pad = l.kernel / 2;
  const uint32_t P = (l.size + 2u * pad - l.kernel) / l.stride + 1;
  return {l.N, l.size, l.size, l.C, P, P, l.K, {l.kernel, l.kernel, l.stride, pad}};
}

std::vector<Bf16> random_bf16(uint64_t count, uint32_t seed) {
  const std::vector<float> values = random_floats(count, seed);
  return {values.begin(), values.end()};
}

// Inputs and outputs of the three passes of a layer.
struct LayerData {
  ConvShape s;
  std::vector<Bf16> x, y;
  std::vector<float> w, dw, channels;
  InputNorm norm = {};

  explicit LayerData(const Layer& l)
      : s(shape_of(l)),
        x(random_bf16(uint64_t{s.N} * s.H * s.W * s.C, 1)),
        y(random_bf16(uint64_t{s.N} * s.P * s.Q * s.K, 2)),
        w(random_floats(conv_weights(s), 3)),
        dw(w.size()),
        channels(s.C, 0.5f) {
    if (l.folds) norm = {channels.data(), channels.data(), channels.data(), channels.data()};
  }

  uint64_t scratch_bytes(ConvPass pass) const {
    switch (pass) {
      case ConvPass::kForward: return conv_forward_scratch(s, DType::kBf16, DType::kF32, false).bytes;
      case ConvPass::kData: return conv_backward_data_scratch(s, DType::kBf16, DType::kF32).bytes;
      case ConvPass::kWeight: return conv_backward_weight_scratch(s, DType::kBf16).bytes;
    }
    return 0;
  }
  Status run(ConvPass pass, const KernelContext& context, void* scratch, uint64_t bytes) {
    switch (pass) {
      case ConvPass::kForward:
        return cpu_conv_forward<Bf16>(context,
                                      {y.data(), x.data(), w.data(), scratch, bytes, s, norm, nullptr, nullptr});
      case ConvPass::kData:
        return cpu_conv_backward_data<Bf16>(context, {x.data(), y.data(), w.data(), scratch, bytes, s, false});
      case ConvPass::kWeight: break;
    }
    return cpu_conv_backward_weight<Bf16>(context, {dw.data(), x.data(), y.data(), scratch, bytes, s, false, norm});
  }
};

// Best seconds of a pass, computed as f32 and by products of bf16 pairs; 0 if the pass failed.
struct Pair {
  double of_f32 = 1e9, of_pairs = 1e9;
};
Pair measure(LayerData& data, ConvPass pass, const CpuMachine& f32, const CpuMachine& pairs) {
  const Workers one{};
  const uint64_t bytes = data.scratch_bytes(pass);
  std::vector<unsigned char> memory(bytes + 64);
  void* scratch = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  Pair best;
  for (int turn = 0; turn < 12; ++turn) {
    for (const bool by_pairs : {false, true}) {
      const double start = seconds_now();
      if (!data.run(pass, {.workers = &one, .machine = by_pairs ? &pairs : &f32}, scratch, bytes).ok()) return {0, 0};
      double& seconds = by_pairs ? best.of_pairs : best.of_f32;
      seconds = std::min(seconds, seconds_now() - start);
    }
  }
  return best;
}

const char* name_of(ConvAlgorithm algorithm) {
  switch (algorithm) {
    case ConvAlgorithm::kProduct: return "product";
    case ConvAlgorithm::kDirect: return "direct";
    case ConvAlgorithm::kWinograd: return "Winograd";
    case ConvAlgorithm::kDepthwise: return "depthwise";
  }
  return "";
}

void print_row(const Layer& l, const CpuMachine& f32, CpuMachine pairs, double peak) {
  LayerData data(l);
  const double flops = 2.0 * static_cast<double>(conv_weights(data.s)) * data.s.N * data.s.P * data.s.Q;
  std::printf("| %u x %u^2, %u to %u, %ux%u/%u%s | %s |", l.N, l.size, l.C, l.K, l.kernel, l.kernel, l.stride,
              l.folds ? ", norm" : "", name_of(conv_algorithm(data.s)));
  for (const ConvPass pass : {ConvPass::kForward, ConvPass::kData, ConvPass::kWeight}) {
    CpuMachine always = pairs;
    always.paired_winograd_tiles = ~0u;
    const bool is_linear = is_pointwise(data.s) && !l.folds;
    const bool here = is_linear || conv_multiplies_pairs(pairs, data.s, pass),
               ever = here || conv_multiplies_pairs(always, data.s, pass);
    const Pair t = measure(data, pass, f32, always);
    const auto share = [&](double seconds) { return 100 * flops / seconds / peak; };
    if (ever)
      std::printf(" %.0f, %.0f: %.2f%s |", share(t.of_f32), share(t.of_pairs), t.of_pairs / t.of_f32,
                  here ? "" : " (f32)");
    if (!ever) std::printf(" %.0f |", share(t.of_f32));
  }
  std::printf("\n");
}

}  // namespace
}  // namespace reprise::bench

int main() {
  using namespace reprise;
  CpuMachine f32, pairs;
  const CpuMachine& here = *static_cast<const CpuMachine*>(test::test_backend().machine);
  const bool has_f32 =
      choose_cpu_machine(f32, GemmTileChoice::kFastest, std::min(here.level, VectorLevel::kAvx512), here.caches).ok();
  if (here.pairs == nullptr || !has_f32) {
    std::printf("no products of bf16 here: nothing is compared\n");
    return 0;
  }
  pairs = here;
  const double peak = bench::measure_peak_flops();
  std::printf("peak %.1f GFLOP/s of a core, %s; f32, pairs: time by pairs in that of f32\n", peak / 1e9,
              here.kernel_set);
  std::printf("| layer | f32 is | forward | data | weight |\n|---|---|---|---|---|\n");
  for (const bench::Layer& layer : bench::kLayers) bench::print_row(layer, f32, pairs, peak);
}
