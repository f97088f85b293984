// Prints the machine's limits as JSON: the flop/s of one core, and the bytes per second that its
// workers move when they read, copy and add in memory. peers_bench.py runs this program before and
// after each of its parts, and reports its figures in per cent of these limits.
#include <cstdio>
#include <cstdlib>

#include "lib/backend.h"
#include "ports/linux/linux_port.h"
#include "tests/bench/machine_bandwidth.h"
#include "tests/bench/machine_peak.h"

int main(int argc, char** argv) {
  using namespace reprise;
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  Workers workers;
  Backend backend;
  if (argc > 2 || threads < 1 || !linux_port().open_backend("cpu", &backend).ok() ||
      !linux_port().start_workers(static_cast<uint32_t>(threads), &workers).ok()) {
    std::fprintf(stderr, "usage: machine_bench [THREADS]\n");
    return 2;
  }
  const double peak = bench::measure_peak_flops();
  const bench::Bandwidth bandwidth = bench::measure_bandwidth(workers);
  std::printf(
      "{\"threads\": %u, \"core_flops\": %.5g, \"read\": %.5g, \"copy\": %.5g, \"triad\": %.5g, \"kernels\": \"%s\"}\n",
      workers.count, peak, bandwidth.read, bandwidth.copy, bandwidth.triad, backend.kernel_set);
  linux_port().stop_workers(&workers);
  return 0;
}
