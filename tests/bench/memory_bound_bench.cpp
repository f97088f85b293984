// Measures GB/s of the CPU kernels that memory bounds, on 1 and 2 workers. They are compared with a
// copy and a triad that are measured in the same run. Such a kernel is rated by the bytes that it
// must move: "of_copy" is its rate divided by the rate of the copy. tests/ops/kernels_test.cpp
// judges the results.
//
//   memory_bound_bench [--benchmark_filter=...]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"
#include "tests/ports/test_machine.h"

namespace reprise {
namespace {

constexpr uint64_t kElements = uint64_t{1} << 24;  // 64 MiB for each tensor: twice a large last-level cache

// Four tensors of kElements, and the small tensors. All of them are filled once.
struct Buffers {
  std::vector<float> a, b, c, d, channels;
  std::vector<int32_t> tokens;
  std::vector<unsigned char> scratch, index;
  StepScalars scalars{};

  Buffers()
      : a(kElements),
        b(kElements),
        c(kElements),
        d(kElements),
        channels(8 * 4096, 1.0f),
        scratch(1 << 26),
        index(kElements) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> some(4099);
    for (float& x : some) x = normal(random);
    for (std::vector<float>* v : {&a, &b, &c, &d}) {
      for (uint64_t i = 0; i < kElements; ++i) (*v)[i] = some[i % some.size()];
    }
    for (uint64_t i = 0; i < kElements / 768; ++i) tokens.push_back(static_cast<int32_t>(random() % 4096));
    scalars.seed = 1;
    scalars.learning_rate = 1e-6f;
    scalars.clip_factor = 1;
  }
};
Buffers& buffers() {
  static Buffers the_buffers;
  return the_buffers;
}

void triad(const KernelContext& context) {
  Buffers& u = buffers();
  for_each_piece(*context.workers, {kElements, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    float* __restrict__ y = u.c.data();
    const float *x = u.a.data(), *z = u.b.data();
    for (uint64_t i = begin; i < end; ++i) y[i] = x[i] + 3.0f * z[i];
  });
}

struct Case {
  std::string name;
  double work;  // bytes that must move
  std::function<void(const KernelContext&)> run;
};

void expect_ok(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "memory_bound_bench: %s\n", status.message);
  std::exit(1);
}

constexpr double tensor_bytes(double tensors) { return tensors * 4.0 * static_cast<double>(kElements); }

void add_elementwise(std::vector<Case>& cases) {
  Buffers& u = buffers();
  const uint64_t n = kElements;
  const auto add = [&](const char* name, double tensors, std::function<void(const KernelContext&)> run) {
    cases.push_back({name, tensor_bytes(tensors), std::move(run)});
  };
  add("copy", 2, [&](const KernelContext& c) {
    expect_ok(cpu_copy_forward<float>(c, {u.b.data(), u.a.data(), n, false, false}));
  });
  add("triad", 3, triad);
  add("copy.accumulate", 3, [&](const KernelContext& c) {
    expect_ok(cpu_copy_forward<float>(c, {u.b.data(), u.a.data(), n, true, false}));
  });
  add("move.overlapping", 2, [&, n](const KernelContext& c) {
    expect_ok(cpu_move<float>(c, {u.b.data(), u.b.data() + (1 << 20), n - (1 << 20), false, false}));
  });
  add("relu.forward", 2, [&, n](const KernelContext& c) {
    expect_ok(cpu_relu_forward<float>(c, {u.b.data(), u.a.data(), n, false, false}));
  });
  add("relu.forward in place", 2, [&, n](const KernelContext& c) {
    expect_ok(cpu_relu_forward<float>(c, {u.b.data(), u.b.data(), n, false, false}));
  });
  add("relu.backward in place", 3, [&, n](const KernelContext& c) {
    expect_ok(cpu_relu_backward<float>(c, {u.b.data(), u.a.data(), u.b.data(), n, false}));
  });
  add("add.forward in place", 3, [&, n](const KernelContext& c) {
    expect_ok(cpu_add_forward<float>(c, {u.b.data(), u.b.data(), u.a.data(), n}));
  });
  for (const bool tanh_form : {true, false}) {
    const std::string form = tanh_form ? " tanh" : " erf";
    add(("gelu.forward" + form).c_str(), 2, [&, n, tanh_form](const KernelContext& c) {
      expect_ok(cpu_gelu_forward<float>(c, {u.b.data(), u.a.data(), n, false, tanh_form}));
    });
    add(("gelu.backward" + form).c_str(), 3, [&, n, tanh_form](const KernelContext& c) {
      expect_ok(cpu_gelu_backward<float>(c, {u.b.data(), u.a.data(), u.d.data(), n, tanh_form}));
    });
  }
  add("dropout", 2, [&, n](const KernelContext& c) {
    expect_ok(cpu_dropout<float>(c, {u.b.data(), u.a.data(), &u.scalars, n, {0.1f, 1}}));
  });
  add("sgd.update momentum", 5, [&, n](const KernelContext& c) {
    expect_ok(cpu_sgd_update(c, {.parameters = u.a.data(),
                                 .momenta = u.b.data(),
                                 .gradients = u.d.data(),
                                 .scalars = &u.scalars,
                                 .n = n,
                                 .weight_decay = 1e-4f,
                                 .momentum = 0.9f,
                                 .rate = 1,
                                 .nesterov = false,
                                 .stream = 0}));
  });
  add("adamw.update", 7, [&, n](const KernelContext& c) {
    expect_ok(cpu_adamw_update(c, {.parameters = u.a.data(),
                                   .first_moments = u.b.data(),
                                   .second_moments = u.c.data(),
                                   .gradients = u.d.data(),
                                   .scalars = &u.scalars,
                                   .n = n,
                                   .weight_decay = 1e-4f,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .epsilon = 1e-8f,
                                   .rate = 1,
                                   .stream = 0}));
  });
  add("grad_norm.reduce", 1, [&, n](const KernelContext& c) {
    Tensor tensor;
    tensor.rank = 1;
    tensor.shape[0] = static_cast<uint32_t>(n);
    double norm;
    expect_ok(cpu_grad_norm_reduce(c, {.norms = &norm,
                                       .gradients = u.d.data(),
                                       .tensors = &tensor,
                                       .count = 1,
                                       .scratch = nullptr,
                                       .scratch_bytes = 0}));
  });
}

void add_norms(std::vector<Case>& cases, uint32_t C) {
  Buffers& u = buffers();
  const uint64_t M = kElements / C;
  float *mean = u.channels.data(), *rstd = mean + 4096, *gamma = rstd + 4096, *dgamma = gamma + 4096,
        *dbeta = dgamma + 4096;
  const auto add = [&](const char* name, double tensors, std::function<void(const KernelContext&)> run) {
    cases.push_back({std::string(name) + " C=" + std::to_string(C), tensor_bytes(tensors), std::move(run)});
  };
  const uint64_t space = u.scratch.size();
  add("batch_norm.statistics", 1, [=, &u](const KernelContext& c) {
    expect_ok(cpu_batch_norm_statistics<float>(c, {mean, rstd, u.a.data(), u.scratch.data(), space, M, C, 1e-5f}));
  });
  add("batch_norm.forward", 2, [=, &u](const KernelContext& c) {
    expect_ok(cpu_batch_norm_forward<float>(c, {u.b.data(), u.a.data(), mean, rstd, gamma, gamma, M, C}));
  });
  add("batch_norm.inference in place", 2, [=, &u](const KernelContext& c) {
    expect_ok(cpu_batch_norm_inference<float>(c, {u.b.data(), u.b.data(), mean, gamma, gamma, gamma, M, C, 1e-5f}));
  });
  add("batch_norm.backward in place", 5, [=, &u](const KernelContext& c) {
    expect_ok(cpu_batch_norm_backward<float>(c, {u.b.data(), dgamma, dbeta, u.a.data(), mean, rstd, gamma, u.b.data(),
                                        u.scratch.data(), space, M, C, false, false, nullptr}));
  });
  const uint32_t images = 64, pixels = static_cast<uint32_t>(M / images);
  add("global_pool.forward", 1, [=, &u](const KernelContext& c) {
    expect_ok(cpu_global_pool_forward<float>(c, {u.c.data(), u.a.data(), images, pixels, C, false}));
  });
  add("global_pool.backward", 1, [=, &u](const KernelContext& c) {
    expect_ok(cpu_global_pool_backward<float>(c, {u.b.data(), u.a.data(), images, pixels, C, false}));
  });
}

void add_max_pool(std::vector<Case>& cases) {
  Buffers& u = buffers();
  const PoolShape shape{20, 112, 112, 64, 56, 56, {3, 3, 2, 1}};
  const double in = 4.0 * 20 * 112 * 112 * 64, out = 5.0 * 20 * 56 * 56 * 64;
  cases.push_back({"max_pool.forward 112x112x64", in + out, [=, &u](const KernelContext& c) {
                     expect_ok(cpu_max_pool_forward<float>(c, {u.b.data(), u.index.data(), u.a.data(), shape}));
                   }});
  cases.push_back({"max_pool.backward 112x112x64", in + out, [=, &u](const KernelContext& c) {
                     expect_ok(cpu_max_pool_backward<float>(c, {u.b.data(), u.index.data(), u.a.data(), shape, false}));
                   }});
}

void add_language(std::vector<Case>& cases, uint32_t C) {
  Buffers& u = buffers();
  const uint32_t B = 64, T = static_cast<uint32_t>(kElements / C / B), V = 4096;
  const uint64_t M = uint64_t{B} * T;
  float *gamma = u.channels.data(), *dgamma = gamma + 4096, *dbeta = dgamma + 4096;
  float *mean = u.d.data(), *rstd = mean + M;
  const double bytes = 4.0 * static_cast<double>(M) * C;
  const std::string suffix = " C=" + std::to_string(C);
  const uint64_t space = u.scratch.size();
  cases.push_back(
      {"layer_norm.forward" + suffix, 2 * bytes, [=, &u](const KernelContext& c) {
         expect_ok(cpu_layer_norm_forward<float>(c, {u.b.data(), mean, rstd, u.a.data(), gamma, gamma, M, C, 1e-5f}));
       }});
  cases.push_back(
      {"layer_norm.backward add" + suffix, 4 * bytes, [=, &u](const KernelContext& c) {
         expect_ok(cpu_layer_norm_backward<float>(c, {u.b.data(), dgamma, dbeta, u.a.data(), mean, rstd, gamma,
                                                      u.c.data(), u.scratch.data(), space, M, C, true, false, false}));
       }});
  if (M > u.tokens.size()) return;
  cases.push_back({"embedding.forward" + suffix, 2 * bytes, [=, &u](const KernelContext& c) {
                     expect_ok(cpu_embedding_forward<float>(c, {.y = u.b.data(),
                                                                .tokens = u.tokens.data(),
                                                                .table = u.a.data(),
                                                                .positions = u.c.data(),
                                                                .B = B,
                                                                .T = T,
                                                                .C = C,
                                                                .V = V,
                                                                .L = T,
                                                                .scale = 1}));
                   }});
  cases.push_back({"embedding.backward add" + suffix, 3 * bytes, [=, &u](const KernelContext& c) {
                     expect_ok(cpu_embedding_backward<float>(c, {.dtable = u.b.data(),
                                                                 .dpositions = nullptr,
                                                                 .tokens = u.tokens.data(),
                                                                 .dy = u.a.data(),
                                                                 .B = B,
                                                                 .T = T,
                                                                 .C = C,
                                                                 .V = V,
                                                                 .L = T,
                                                                 .scale = 1,
                                                                 .accumulate_dtable = true,
                                                                 .accumulate_dpositions = false}));
                   }});
}

double seconds_of(const Case& one, const KernelContext& context) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    one.run(context);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// The process's only pool of workers, which lasts for one case.
class Pool {
 public:
  explicit Pool(uint32_t count) { expect_ok(linux_port().start_workers(count, &workers_)); }
  ~Pool() { linux_port().stop_workers(&workers_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  KernelContext context() const { return {.workers = &workers_, .machine = test::test_backend().machine}; }

 private:
  Workers workers_;
};

void register_cases(const std::vector<Case>& cases, uint32_t workers, double copy_rate) {
  for (const Case& one : cases) {
    const std::string name = one.name + " workers:" + std::to_string(workers);
    benchmark::RegisterBenchmark(
        name.c_str(),
        [&one, workers, copy_rate](benchmark::State& state) {
          const Pool pool(workers);
          const KernelContext context = pool.context();
          one.run(context);
          for (auto _ : state) one.run(context);
          const double work = one.work * static_cast<double>(state.iterations());
          state.counters["byte/s"] = benchmark::Counter(work, benchmark::Counter::kIsRate);
          state.counters["of_copy"] = benchmark::Counter(work / copy_rate, benchmark::Counter::kIsRate);
        })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond)
        ->MinTime(0.1);
  }
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  using namespace reprise;
  benchmark::Initialize(&argc, argv);
  std::vector<Case> cases;
  add_elementwise(cases);
  for (const uint32_t C : {16u, 64u, 1024u}) add_norms(cases, C);
  add_max_pool(cases);
  for (const uint32_t C : {128u, 768u}) add_language(cases, C);
  for (const uint32_t workers : {1u, 2u}) {
    const Pool pool(workers);
    const double copy_rate = cases[0].work / seconds_of(cases[0], pool.context());
    std::printf("%u workers: copy %.1f GB/s, triad %.1f GB/s\n", workers, copy_rate * 1e-9,
                cases[1].work / seconds_of(cases[1], pool.context()) * 1e-9);
    register_cases(cases, workers, copy_rate);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
