// Runs the layer-norm family on a GPU: against the double-precision reference, twice for the same bits, then timed.
// Here because fibres prove neither speed nor that a real device agrees. `make gpu` builds and runs it.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_kernels.h"
#include "cuda/layer_norm_scratch.h"
#include "tests/ports/cuda_layer_norm_reference.h"

namespace reprise::test {
namespace {

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "gpu_layer_norm: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "gpu_layer_norm: %s (%llu)\n", status.message, static_cast<unsigned long long>(status.detail));
  std::exit(1);
}

class DeviceFloats {
 public:
  explicit DeviceFloats(uint64_t count) : count_(count) {
    require(cudaMalloc(&data_, std::max<uint64_t>(1, count) * sizeof(float)), "cudaMalloc");
    require(cudaMemset(data_, 0xff, count * sizeof(float)), "cudaMemset");  // NaN
  }
  explicit DeviceFloats(const Floats& values) : DeviceFloats(values.size()) {
    require(cudaMemcpy(data_, values.data(), count_ * sizeof(float), cudaMemcpyHostToDevice), "copy to the device");
  }
  ~DeviceFloats() { (void)cudaFree(data_); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;

  float* get() const { return data_; }
  Floats read() const {
    Floats values(count_);
    require(cudaMemcpy(values.data(), data_, count_ * sizeof(float), cudaMemcpyDeviceToHost), "copy from the device");
    return values;
  }

 private:
  float* data_ = nullptr;
  uint64_t count_;
};

// One problem on the device, ready to be run any number of times.
class Run {
 public:
  explicit Run(const Problem& p)
      : x_(p.x),
        gamma_(p.gamma),
        beta_(p.beta),
        dy_(p.dy),
        y_(p.M * p.C),
        mean_(p.M),
        rstd_(p.M),
        dx_(p.M * p.C),
        dgamma_(p.C),
        dbeta_(p.C),
        scratch_(cuda_layer_norm_backward_scratch_bytes(p.M, p.C) / sizeof(float)) {
    forward_ = {y_.get(), mean_.get(), rstd_.get(), x_.get(), gamma_.get(), beta_.get(), p.M, p.C, kEpsilon};
    backward_.dx = dx_.get(), backward_.dgamma = dgamma_.get(), backward_.dbeta = dbeta_.get();
    backward_.x = x_.get(), backward_.mean = mean_.get(), backward_.rstd = rstd_.get();
    backward_.gamma = gamma_.get(), backward_.dy = dy_.get();
    backward_.scratch = scratch_.get(), backward_.scratch_bytes = cuda_layer_norm_backward_scratch_bytes(p.M, p.C);
    backward_.M = p.M, backward_.C = p.C;
  }

  void forward() const { require(cuda_layer_norm_forward({}, forward_)); }
  void backward() const { require(cuda_layer_norm_backward({}, backward_)); }

  // y, mean, rstd, dx, dgamma, dbeta.
  std::vector<Floats> results() const {
    require(cudaDeviceSynchronize(), "the kernels");
    return {y_.read(), mean_.read(), rstd_.read(), dx_.read(), dgamma_.read(), dbeta_.read()};
  }

 private:
  DeviceFloats x_, gamma_, beta_, dy_, y_, mean_, rstd_, dx_, dgamma_, dbeta_, scratch_;
  LayerNormForwardArgsOf<float> forward_{};
  LayerNormBackwardArgsOf<float> backward_{};
};

// The largest error, in units of what is allowed.
double worst_error(const Floats& got, const std::vector<double>& want, const std::vector<double>& size, double terms) {
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(got[i] - want[i]) / error_bound(size[i], terms, 0);
    worst = error <= worst ? worst : std::isnan(error) ? HUGE_VAL : error;
  }
  return worst;
}

bool same_bits(const std::vector<Floats>& a, const std::vector<Floats>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

bool check(uint64_t M, uint32_t C) {
  const Problem problem(M, C);
  const Reference want(problem);
  std::vector<Floats> results[2];
  for (std::vector<Floats>& result : results) {
    const Run run(problem);
    run.forward();
    run.backward();
    result = run.results();
  }
  const std::vector<Floats>& got = results[0];
  const double columns = C, rows = static_cast<double>(M);
  const double worst = std::max(
      {worst_error(got[0], want.y, want.y_size, columns), worst_error(got[1], want.mean, want.mean_size, columns),
       worst_error(got[2], want.rstd, want.rstd_size, columns), worst_error(got[3], want.dx, want.dx_size, columns),
       worst_error(got[4], want.dgamma, want.dgamma_size, rows),
       worst_error(got[5], want.dbeta, want.dbeta_size, rows)});
  const bool repeats = same_bits(results[0], results[1]), ok = worst <= 1 && repeats;
  std::printf("%8llu x %-6u %s  worst error %.3f of the bound, %s\n", static_cast<unsigned long long>(M), C,
              ok ? "ok    " : "FAILED", worst, repeats ? "the same bits twice" : "OTHER BITS the second time");
  return ok;
}

struct Seconds {
  double best, median;
};

template <typename F>
Seconds measure(const F& launch) {
  constexpr int kWarmUp = 5, kRuns = 50;
  cudaEvent_t start, stop;
  require(cudaEventCreate(&start), "cudaEventCreate");
  require(cudaEventCreate(&stop), "cudaEventCreate");
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUp + kRuns; ++i) {
    require(cudaEventRecord(start), "cudaEventRecord");
    launch();
    require(cudaEventRecord(stop), "cudaEventRecord");
    require(cudaEventSynchronize(stop), "the kernels");
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, start, stop), "cudaEventElapsedTime");
    if (i >= kWarmUp) seconds.push_back(milliseconds * 1e-3);
  }
  require(cudaEventDestroy(start), "cudaEventDestroy");
  require(cudaEventDestroy(stop), "cudaEventDestroy");
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

// What the device's own copy reaches, bytes read plus bytes written: the peer that the kernels are measured by.
double copy_bytes_per_second() {
  constexpr uint64_t kFloats = 64u << 20;
  const DeviceFloats from(kFloats), to(kFloats);
  const Seconds seconds = measure([&] {
    require(cudaMemcpyAsync(to.get(), from.get(), kFloats * sizeof(float), cudaMemcpyDeviceToDevice),
            "copy on the device");
  });
  return 2.0 * kFloats * sizeof(float) / seconds.best;
}

void print_speed(const char* name, uint64_t M, uint32_t C, Seconds seconds, double bytes, double peak) {
  std::printf("| %s | %llu x %u | %.1f | %.1f | %.0f | %.0f%% |\n", name, static_cast<unsigned long long>(M), C,
              seconds.best * 1e6, seconds.median * 1e6, bytes / seconds.best * 1e-9, 100 * bytes / seconds.best / peak);
}

// Bytes that must move: forward reads x and writes y; backward reads x and dy and writes dx.
void time_shape(uint64_t M, uint32_t C, double peak) {
  const Run run{Problem(M, C)};
  const double matrix = static_cast<double>(M) * C * sizeof(float);
  run.forward();
  print_speed("forward", M, C, measure([&] { run.forward(); }), 2 * matrix, peak);
  print_speed("backward", M, C, measure([&] { run.backward(); }), 3 * matrix, peak);
}

int main_on_device() {
  cudaDeviceProp device{};
  CudaMachine machine;
  require(cudaGetDeviceProperties(&device, 0), "no usable CUDA device");
  choose_cuda_machine(machine);
  std::printf("%s, sm_%d%d, %d multiprocessors, kernel set %s\n\n", device.name, device.major, device.minor,
              device.multiProcessorCount, machine.kernel_set);
  bool ok = true;
  for (const uint64_t M : {1, 7, 33, 257, 2100}) {
    for (const uint32_t C : {1, 3, 4, 33, 128, 130, 256, 260, 512, 516, 768, 772, 1024, 1028, 1031, 5000})
      ok = check(M, C) && ok;
  }
  const double peak = copy_bytes_per_second();
  std::printf(
      "\nThe device's own copy: %.0f GB/s.\n\n| pass | shape | best us | median us | GB/s | of the copy "
      "|\n|---|---|---|---|---|---|\n",
      peak * 1e-9);
  for (const uint64_t M : {1024, 8192, 32768}) {
    for (const uint32_t C : {128, 768, 1024, 1600, 4096}) time_shape(M, C, peak);
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace reprise::test

int main() { return reprise::test::main_on_device(); }
