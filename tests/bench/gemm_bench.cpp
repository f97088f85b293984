// Compares large products of this library's GEMM with the machine's measured f32 peak, for each
// tile, with 1 or 2 workers. Then measures the passes of a linear layer stored as bf16, multiplied
// as f32, and as bf16 if the machine supports it. Every linear layer and pointwise convolution is
// such a product. The goal is at least 60% of a core's peak.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/gemm/gemm.h"
#include "tests/bench/machine_peak.h"
#include "tests/ops/random_floats.h"
#include "tests/ports/test_machine.h"

namespace reprise::bench {
namespace {

double peak_flops;
Workers workers_by_count[3];

struct ProductCase {
  const char* name;
  uint32_t M, N, K;
};
const ProductCase kProducts[] = {{"square_2048", 2048, 2048, 2048},
                                 {"gpt2_up", 1024, 3072, 768},
                                 {"gpt2_down", 1024, 768, 3072},
                                 {"tall", 65536, 64, 576},
                                 {"deep", 512, 512, 8192}};

void run_product(benchmark::State& state, const ProductCase& c, const Backend& backend, uint32_t count) {
  const std::vector<float> a = random_floats(size_t{c.M} * c.K, 1), b = random_floats(size_t{c.N} * c.K, 1);
  std::vector<float> out(size_t{c.M} * c.N);
  std::vector<double> scratch(gemm_scratch_bytes(c.N, c.K) / 8 + 8);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  const KernelContext context{.workers = &workers_by_count[count], .machine = backend.machine};
  Stopwatch watch;
  for (auto _ : state) {
    watch.start();
    const Status status = cpu_linear_forward<float>(context, {.y = out.data(),
                                                              .x = a.data(),
                                                              .w = b.data(),
                                                              .b = nullptr,
                                                              .h = nullptr,
                                                              .u = {},
                                                              .scratch = aligned,
                                                              .scratch_bytes = gemm_scratch_bytes(c.N, c.K),
                                                              .M = c.M,
                                                              .C = c.K,
                                                              .K = c.N,
                                                              .R = 0,
                                                              .input_major = false,
                                                              .scale = 1});
    state.SetIterationTime(watch.stop());
    if (!status.ok()) state.SkipWithError(status.message);
  }
  report_rates(state, watch, 2.0 * c.M * c.N * c.K, peak_flops, count);
}

constexpr const char* kPassNames[] = {"forward", "data", "weight"};

// Runs one pass of a layer with K inputs and N outputs over M rows.
void run_bf16_pass(benchmark::State& state, const ProductCase& c, int pass, const Backend& backend, uint32_t count) {
  const std::vector<float> x_floats = random_floats(size_t{c.M} * c.K, 1),
                           y_floats = random_floats(size_t{c.M} * c.N, 1);
  std::vector<Bf16> x(x_floats.begin(), x_floats.end()), y(y_floats.begin(), y_floats.end());
  std::vector<float> w = random_floats(size_t{c.K} * c.N, 1);
  const uint64_t bytes =
      std::max({gemm_scratch_bytes(c.N, c.K, DType::kBf16), gemm_scratch_bytes(c.K, c.N, DType::kBf16),
                gemm_split_scratch_bytes(c.N, c.K, c.M)});
  std::vector<double> scratch(bytes / 8 + 8);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  const KernelContext context{.workers = &workers_by_count[count], .machine = backend.machine};
  Stopwatch watch;
  for (auto _ : state) {
    watch.start();
    Status status;
    if (pass == 0) {
      status = cpu_linear_forward<Bf16>(context, {.y = y.data(),
                                                  .x = x.data(),
                                                  .w = w.data(),
                                                  .b = nullptr,
                                                  .h = nullptr,
                                                  .u = {},
                                                  .scratch = aligned,
                                                  .scratch_bytes = bytes,
                                                  .M = c.M,
                                                  .C = c.K,
                                                  .K = c.N,
                                                  .R = 0,
                                                  .input_major = false,
                                                  .scale = 1});
    } else if (pass == 1) {
      status = cpu_linear_backward_data<Bf16>(context, {.dx = x.data(),
                                                        .dy = y.data(),
                                                        .w = w.data(),
                                                        .scratch = aligned,
                                                        .scratch_bytes = bytes,
                                                        .M = c.M,
                                                        .C = c.K,
                                                        .K = c.N,
                                                        .input_major = false,
                                                        .scale = 1,
                                                        .accumulate_dx = false});
    } else {
      status = cpu_linear_backward_weight<Bf16>(context, {w.data(), x.data(), y.data(), aligned, bytes, c.M, c.K, c.N,
                                                          false, false});
    }
    state.SetIterationTime(watch.stop());
    if (!status.ok()) state.SkipWithError(status.message);
  }
  report_rates(state, watch, 2.0 * c.M * c.N * c.K, peak_flops, count);
}

void register_bf16(const ProductCase& c) {
  for (const VectorLevel level : {VectorLevel::kAvx512, VectorLevel::kAvx512Bf16}) {
    const Backend* backend = test::backend_with(GemmTileChoice::kWidest, level);
    if (backend == nullptr) continue;
    for (int pass = 0; pass < 3; ++pass) {
      for (uint32_t count : {1u, 2u}) {
        const std::string name = std::string("bf16/") + c.name + "/" + kPassNames[pass] + "/" +
                                 vector_level_name(level) + "/workers:" + std::to_string(count);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [&c, pass, backend, count](benchmark::State& s) {
                                       run_bf16_pass(s, c, pass, *backend, count);
                                     })
            ->UseManualTime()
            ->MinTime(0.3);
      }
    }
  }
}

void register_all() {
  for (const ProductCase& c : kProducts) {
    for (GemmTileChoice choice :
         {GemmTileChoice::kBaseline, GemmTileChoice::kAvx2, GemmTileChoice::kAvx512, GemmTileChoice::kBlis}) {
      const Backend* backend = test::backend_with(choice);
      if (backend == nullptr) continue;  // not on this machine, or not in this build
      for (uint32_t count : {1u, 2u}) {
        const std::string name = std::string("sgemm/") + c.name + "/" +
                                 static_cast<const CpuMachine*>(backend->machine)->tile.name +
                                 "/workers:" + std::to_string(count);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [&c, backend, count](benchmark::State& s) { run_product(s, c, *backend, count); })
            ->UseManualTime()
            ->MinTime(0.3);
      }
    }
    register_bf16(c);
  }
}

}  // namespace
}  // namespace reprise::bench

int main(int argc, char** argv) {
  using namespace reprise;
  if (!linux_port().start_workers(2, &bench::workers_by_count[2]).ok()) return 1;
  bench::peak_flops = bench::measure_peak_flops();
  std::printf("peak of one core, measured: %.1f GFLOP/s (%s)\n", bench::peak_flops / 1e9,
              vector_level_name(best_vector_level()));
  bench::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  linux_port().stop_workers(&bench::workers_by_count[2]);
  return 0;
}
