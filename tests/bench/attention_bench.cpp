// Compares causal attention, forward and backward, with the measured peak of one and of two cores.
// The cases are heads of each width, groups of queries that share keys and values, long sequences,
// documents in a row, and dropout. Operands are stored as f32 and as bf16. Language models spend
// their time in attention if sequences are long. Flops count only for pairs of a query and a key
// that the query may see. So the rate for a row of documents must be as high as for a row with one
// document.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>
#include <vector>

#include "lib/cpu/attention/attention_rules.h"
#include "lib/cpu/cpu_kernels.h"
#include "tests/bench/machine_peak.h"
#include "tests/ops/random_floats.h"
#include "tests/ports/test_machine.h"

namespace reprise::bench {
namespace {

double peak_flops;
Workers workers_by_count[3];

struct AttentionCase {
  uint32_t T, D, heads, kv_heads;
  uint32_t document = 0;  // tokens of each document; 0: the row is one document
  float dropout = 0;

  std::string name() const {
    return "T:" + std::to_string(T) + "/D:" + std::to_string(D) + "/heads:" + std::to_string(heads) +
           "/kv_heads:" + std::to_string(kv_heads) +
           (document != 0 ? "/documents_of:" + std::to_string(document) : "") + (dropout > 0 ? "/dropout" : "");
  }
  // Returns the flops (two for each multiply-add) of one product over all heads, for example q k^T.
  double product() const {
    double pairs = 0;
    for (uint32_t t = 0; t < T; ++t) pairs += document != 0 ? t % document + 1 : t + 1;
    return 2.0 * pairs * heads * D;
  }
};
const AttentionCase kCases[] = {{256, 64, 12, 12},      {256, 64, 12, 12, 0, 0.1f}, {512, 64, 9, 9},
                                {512, 64, 9, 3},        {512, 64, 9, 3, 64},        {2048, 64, 9, 9},
                                {2048, 64, 9, 3},       {2048, 64, 9, 3, 64},       {2048, 64, 9, 3, 512},
                                {2048, 80, 8, 8},       {2048, 80, 8, 2},           {2048, 96, 8, 8},
                                {2048, 96, 8, 2},       {2048, 128, 8, 8},          {2048, 128, 8, 2},
                                {2048, 128, 8, 2, 256}, {4096, 64, 9, 9},           {4096, 128, 8, 8}};

// Inputs and outputs of a call for one sequence.
template <typename Stored>
struct Operands {
  explicit Operands(const AttentionCase& c)
      : width((c.heads + 2 * c.kv_heads) * c.D),
        qkv(stored(size_t{c.T} * width, 1)),
        dqkv(qkv.size()),
        y(size_t{c.T} * c.heads * c.D),
        dy(stored(y.size(), 2)),
        lse(size_t{c.T} * c.heads),
        scratch(size_t{1} << 26) {
    for (uint32_t t = 0; t < c.T; ++t) starts.push_back(static_cast<int32_t>(c.document != 0 ? t - t % c.document : 0));
  }
  static std::vector<Stored> stored(size_t count, uint32_t seed) {
    const std::vector<float> floats = random_floats(count, seed);
    return {floats.begin(), floats.end()};
  }
  uint32_t width;
  std::vector<Stored> qkv, dqkv, y, dy;
  std::vector<float> lse;
  std::vector<int32_t> starts;
  std::vector<unsigned char> scratch;
  StepScalars scalars = {};
};

template <typename Stored>
void run_attention(benchmark::State& state, const AttentionCase& c, bool is_backward, uint32_t count) {
  Operands<Stored> o(c);
  o.scalars.seed = 1;
  const KernelContext context{.workers = &workers_by_count[count], .machine = test::test_backend().machine};
  const AttentionAttribute attention{c.heads, c.kv_heads, c.dropout, 3};
  const int32_t* starts = c.document != 0 ? o.starts.data() : nullptr;
  const auto forward = [&] {
    return cpu_attention_forward<Stored>(context, {.y = o.y.data(),
                                                   .lse = o.lse.data(),
                                                   .qkv = o.qkv.data(),
                                                   .document_start = starts,
                                                   .scalars = &o.scalars,
                                                   .scratch = o.scratch.data(),
                                                   .scratch_bytes = o.scratch.size(),
                                                   .B = 1,
                                                   .T = c.T,
                                                   .C = c.heads * c.D,
                                                   .attention = attention});
  };
  const auto backward = [&] {
    return cpu_attention_backward<Stored>(context, {.dqkv = o.dqkv.data(),
                                                    .qkv = o.qkv.data(),
                                                    .y = o.y.data(),
                                                    .lse = o.lse.data(),
                                                    .dy = o.dy.data(),
                                                    .document_start = starts,
                                                    .scalars = &o.scalars,
                                                    .scratch = o.scratch.data(),
                                                    .scratch_bytes = o.scratch.size(),
                                                    .B = 1,
                                                    .T = c.T,
                                                    .C = c.heads * c.D,
                                                    .attention = attention});
  };
  const Status first = forward();
  if (!first.ok()) return state.SkipWithError(first.message);
  Stopwatch watch;
  for (auto _ : state) {
    watch.start();
    const Status status = is_backward ? backward() : forward();
    state.SetIterationTime(watch.stop());
    if (!status.ok()) return state.SkipWithError(status.message);
  }
  report_rates(state, watch, (is_backward ? 5 : 2) * c.product(), peak_flops, count);
}

template <typename Stored>
void register_cases(const char* type) {
  for (const AttentionCase& c : kCases) {
    for (const bool is_backward : {false, true}) {
      for (const uint32_t count : {1u, 2u}) {
        const std::string name = std::string(is_backward ? "backward/" : "forward/") + type + "/" + c.name() +
                                 "/workers:" + std::to_string(count);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [&c, is_backward, count](benchmark::State& s) {
                                       run_attention<Stored>(s, c, is_backward, count);
                                     })
            ->UseManualTime()
            ->MinTime(0.2);
      }
    }
  }
}

}  // namespace
}  // namespace reprise::bench

int main(int argc, char** argv) {
  using namespace reprise;
  benchmark::Initialize(&argc, argv);
  if (!linux_port().start_workers(2, &bench::workers_by_count[2]).ok()) return 1;
  bench::peak_flops = bench::measure_peak_flops();
  std::printf("peak of one core, measured: %.1f GFLOP/s (%s)\n", bench::peak_flops / 1e9,
              vector_level_name(best_vector_level()));
  bench::register_cases<float>("f32");
  bench::register_cases<Bf16>("bf16");
  benchmark::RunSpecifiedBenchmarks();
  linux_port().stop_workers(&bench::workers_by_count[2]);
  return 0;
}
