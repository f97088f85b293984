// Repeats one product y[M,N] = x[M,K] w[N,K]^T in this library's linear layer. sgemm_peer.py runs
// this program and other libraries alternately.
//
//   sgemm_bench M N K THREADS SECONDS    prints the measured peak of one core, then the seconds of
//                                        every call but the first, at least one
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/gemm/gemm.h"
#include "ports/linux/linux_port.h"
#include "tests/bench/machine_peak.h"
#include "tests/ops/random_floats.h"

int main(int argc, char** argv) {
  using namespace reprise;
  if (argc != 6) {
    std::fprintf(stderr, "usage: sgemm_bench M N K THREADS SECONDS\n");
    return 2;
  }
  const uint32_t M = static_cast<uint32_t>(std::atoi(argv[1])), N = static_cast<uint32_t>(std::atoi(argv[2]));
  const uint32_t K = static_cast<uint32_t>(std::atoi(argv[3])), threads = static_cast<uint32_t>(std::atoi(argv[4]));
  Workers workers;
  Backend backend;
  if (!linux_port().open_backend("cpu", &backend).ok() || !linux_port().start_workers(threads, &workers).ok()) return 1;
  const std::vector<float> x = random_floats(size_t{M} * K, 1), w = random_floats(size_t{N} * K, 2);
  std::vector<float> y(size_t{M} * N);
  const uint64_t bytes = gemm_scratch_bytes(N, K);
  void* scratch = std::aligned_alloc(64, bytes);
  const KernelContext context{.workers = &workers, .machine = backend.machine};
  std::printf("%.4g\n", bench::measure_peak_flops());
  const double end = bench::seconds_now() + std::atof(argv[5]);
  for (int calls = 0; calls < 2 || bench::seconds_now() < end; ++calls) {
    const double start = bench::seconds_now();
    const Status status = cpu_linear_forward<float>(context, {.y = y.data(),
                                                              .x = x.data(),
                                                              .w = w.data(),
                                                              .b = nullptr,
                                                              .h = nullptr,
                                                              .u = {},
                                                              .scratch = scratch,
                                                              .scratch_bytes = bytes,
                                                              .M = M,
                                                              .C = K,
                                                              .K = N,
                                                              .R = 0,
                                                              .input_major = false,
                                                              .scale = 1});
    if (!status.ok()) return 1;
    if (calls > 0) std::printf("%.9f\n", bench::seconds_now() - start);
  }
  std::free(scratch);
  linux_port().stop_workers(&workers);
  return 0;
}
