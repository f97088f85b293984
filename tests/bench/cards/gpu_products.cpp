// Compares this library's products with those of cuBLASLt on this machine's card: the linear layers
// of GPT-2 small (T 1024, batch 8) and the convolutions of ResNet-50 (224 x 224, batch 64). The
// passes are forward and both gradients, in f32 and bf16. Prints Markdown tables: microseconds by
// CUDA events (medians of 20), and per cent of the card's peak. The peak is the rate of a large
// product of cuBLASLt. A check of a kernel's instructions predicts its limit, but only a card shows
// its speed.
//
// This library's products are rows as in a plan: f32 weights are rounded during the product, and a
// convolution reads pixels in place. cuBLASLt multiplies prepared matrices of the same sizes; for a
// convolution this is less work than cuDNN's. Each product runs the fastest of cuBLASLt's first
// four proposals, with 32 MiB of workspace.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "lib/trainer.h"
#include "ports/cuda/cuda_port.h"
#include "tests/bench/cards/card_here.h"
#include "tests/ops/case_plan.h"
#include "tools/files/io/error.h"

namespace reprise::bench {
namespace {

using test::CasePlan;
using test::KernelCase;
using test::named_case;
using test::shaped;

constexpr int kWarmUp = 3, kRuns = 20;
constexpr uint64_t kWorkspaceBytes = uint64_t{32} << 20;

void require(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw UserError(std::string(what) + ": " + cudaGetErrorString(error));
}
void require(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw UserError(std::string(what) + ": cuBLASLt's status " + std::to_string(static_cast<int>(status)));
}
void require(const Status& status, const std::string& what) {
  if (!status.ok()) throw UserError(what + ": " + status.message);
}

class DeviceMemory {
 public:
  explicit DeviceMemory(uint64_t bytes) { require(cudaMalloc(&data_, std::max<uint64_t>(bytes, 1)), "cudaMalloc"); }
  ~DeviceMemory() { (void)cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  unsigned char* get() const { return static_cast<unsigned char*>(data_); }

 private:
  void* data_ = nullptr;
};

// Writes numbers in [-1, 1), repeating one random sequence. If all numbers were zero, the card
// would need less power, and so less time.
void fill_random(unsigned char* to, uint64_t elements, DType dtype) {
  constexpr uint64_t kPiece = (uint64_t{1} << 20) + 3;
  static const std::vector<float> floats = [] {
    std::mt19937 generator(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(kPiece);
    for (float& value : values) value = uniform(generator);
    return values;
  }();
  static const std::vector<Bf16> halves(floats.begin(), floats.end());
  const void* from = dtype == DType::kBf16 ? static_cast<const void*>(halves.data()) : floats.data();
  for (uint64_t done = 0; done < elements; done += kPiece) {
    const uint64_t count = std::min(kPiece, elements - done);
    require(cudaMemcpy(to + stored_bytes(dtype, done), from, stored_bytes(dtype, count), cudaMemcpyHostToDevice),
            "copy to the card");
  }
}

// The card, its queue, and cuBLASLt.
struct Bench {
  Backend backend;
  cudaStream_t stream = nullptr;
  cublasLtHandle_t blas = nullptr;
  std::optional<DeviceMemory> workspace;

  Bench() {
    require(cuda_port().open_backend(backend_here(), &backend), "the card");
    stream = static_cast<cudaStream_t>(backend.queue);
    require(cublasLtCreate(&blas), "cublasLtCreate");
    workspace.emplace(kWorkspaceBytes);
  }

  // Returns the median seconds of the work that `launch` enqueues.
  double time(const std::function<void()>& launch) const {
    cudaEvent_t start, stop;
    require(cudaEventCreate(&start), "cudaEventCreate");
    require(cudaEventCreate(&stop), "cudaEventCreate");
    std::vector<double> seconds;
    for (int i = 0; i < kWarmUp + kRuns; ++i) {
      require(cudaEventRecord(start, stream), "cudaEventRecord");
      launch();
      require(cudaEventRecord(stop, stream), "cudaEventRecord");
      require(cudaEventSynchronize(stop), "the kernels");
      float milliseconds = 0;
      require(cudaEventElapsedTime(&milliseconds, start, stop), "cudaEventElapsedTime");
      if (i >= kWarmUp) seconds.push_back(milliseconds * 1e-3);
    }
    (void)cudaEventDestroy(start);
    (void)cudaEventDestroy(stop);
    std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
    return seconds[kRuns / 2];
  }
};

// ---- the products of this library ----

double time_ours(const Bench& bench, const KernelCase& c) {
  const CasePlan plan(bench.backend, c);
  const DeviceMemory memory(plan.plan().arena_bytes + CasePlan::kGuard);
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (c.has(i)) fill_random(memory.get() + plan.offset(i), c.tensor(i).elements(), c.tensor(i).dtype);
  }
  const Workers alone;
  Trainer trainer;
  trainer.plan = &plan.plan();
  trainer.backend = &bench.backend;
  trainer.context.workers = &alone;
  trainer.context.machine = bench.backend.machine;
  trainer.context.queue = bench.backend.queue;
  trainer.arena = {{memory.get()}, plan.plan().arena_bytes};
  return bench.time([&] { require(dispatch(trainer, plan.program(), plan.row(), false), c.id); });
}

// ---- cuBLASLt ----

// A product c[n][m] = sum over k, column-major as in BLAS. c is m x n, a is m x k or transposed,
// and b is k x n or transposed.
struct Product {
  uint64_t m, n, k;
  bool transpose_a, transpose_b;
  cudaDataType_t in, out;
  cublasComputeType_t compute;

  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

DType dtype_of(cudaDataType_t type) { return type == CUDA_R_16BF ? DType::kBf16 : DType::kF32; }

class Layout {
 public:
  Layout(cudaDataType_t type, uint64_t rows, uint64_t columns) {
    require(cublasLtMatrixLayoutCreate(&layout_, type, rows, columns, static_cast<int64_t>(rows)),
            "cublasLtMatrixLayoutCreate");
  }
  ~Layout() { (void)cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Operation {
 public:
  explicit Operation(const Product& p) {
    const cublasOperation_t of_a = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                            of_b = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    require(cublasLtMatmulDescCreate(&operation_, p.compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
    require(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &of_a, sizeof of_a), "transa");
    require(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSB, &of_b, sizeof of_b), "transb");
  }
  ~Operation() { (void)cublasLtMatmulDescDestroy(operation_); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  cublasLtMatmulDesc_t get() const { return operation_; }

 private:
  cublasLtMatmulDesc_t operation_ = nullptr;
};

std::vector<cublasLtMatmulHeuristicResult_t> proposals(const Bench& bench, const Operation& operation, const Layout& a,
                                                       const Layout& b, const Layout& c) {
  constexpr int kMax = 4;
  cublasLtMatmulPreference_t preference = nullptr;
  require(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const size_t workspace = kWorkspaceBytes;
  require(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                               sizeof workspace),
          "workspace");
  std::vector<cublasLtMatmulHeuristicResult_t> found(kMax);
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(bench.blas, operation.get(), a.get(), b.get(), c.get(),
                                                               c.get(), preference, kMax, found.data(), &count);
  (void)cublasLtMatmulPreferenceDestroy(preference);
  require(status, "cublasLtMatmulAlgoGetHeuristic");
  found.resize(static_cast<size_t>(count));
  return found;
}

double time_blas(const Bench& bench, const Product& p) {
  const Layout a(p.in, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k),
      b(p.in, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n);
  const Layout c(p.out, p.m, p.n);
  const Operation operation(p);
  const DeviceMemory of_a(stored_bytes(dtype_of(p.in), p.m * p.k)), of_b(stored_bytes(dtype_of(p.in), p.k * p.n)),
      of_c(stored_bytes(dtype_of(p.out), p.m * p.n));
  fill_random(of_a.get(), p.m * p.k, dtype_of(p.in));
  fill_random(of_b.get(), p.k * p.n, dtype_of(p.in));
  const float one = 1, zero = 0;
  double best = 0;
  for (const cublasLtMatmulHeuristicResult_t& proposal : proposals(bench, operation, a, b, c)) {
    if (proposal.state != CUBLAS_STATUS_SUCCESS) continue;
    const double seconds = bench.time([&] {
      require(cublasLtMatmul(bench.blas, operation.get(), &one, of_a.get(), a.get(), of_b.get(), b.get(), &zero,
                             of_c.get(), c.get(), of_c.get(), c.get(), &proposal.algo, bench.workspace->get(),
                             kWorkspaceBytes, bench.stream),
              "cublasLtMatmul");
    });
    if (best == 0 || seconds < best) best = seconds;
  }
  if (best == 0) throw UserError("cuBLASLt proposes no algorithm");
  return best;
}

// ---- the products ----

// One pass of a layer in both libraries.
struct Work {
  std::string name;
  KernelCase ours;
  Product theirs;
};

struct Layer {
  std::string name;
  uint64_t rows, inputs, outputs;  // rows: tokens or output pixels; inputs: terms of the sum of one output
  bool is_linear;
  KernelCase forward, weight;
  std::optional<KernelCase> data;  // none for a first layer, whose input needs no gradient
};

Layer linear(const char* name, uint32_t M, uint32_t C, uint32_t K, DType stored) {
  const auto x = shaped({M, C}, stored), y = shaped({M, K}, stored), w = shaped({C, K}), b = shaped({K});
  const LinearAttribute linear{.input_major = 1};
  using Forward = LinearForward;
  using Weight = LinearBackwardWeight;
  using Data = LinearBackwardData;
  return {std::string(name) + " " + std::to_string(M) + " x " + std::to_string(C) + " -> " + std::to_string(K),
          M,
          C,
          K,
          true,
          named_case<Forward>({{Forward::kY, y}, {Forward::kX, x}, {Forward::kW, w}, {Forward::kB, b}}, linear),
          named_case<Weight>({{Weight::kDw, w}, {Weight::kX, x}, {Weight::kDy, y}}, linear),
          named_case<Data>({{Data::kDx, x}, {Data::kDy, y}, {Data::kW, w}}, linear)};
}

Layer conv(uint32_t N, uint32_t size, uint32_t C, uint32_t K, uint16_t kernel, uint16_t stride, DType stored) {
  const WindowAttribute window = {.kernel_h = kernel,
                                  .kernel_w = kernel,
                                  .stride_h = stride,
                                  .pad_top = static_cast<uint16_t>(kernel / 2)};
  const uint32_t P = (size + 2u * window.pad_top - kernel) / stride + 1;
  const auto x = shaped({N, size, size, C}, stored), y = shaped({N, P, P, K}, stored),
             w = shaped({K, kernel, kernel, C});
  const std::string sides =
      std::to_string(kernel) + " x " + std::to_string(kernel) + (stride == 1 ? "" : " / " + std::to_string(stride));
  using Forward = ConvForward;
  using Weight = ConvBackwardWeight;
  using Data = ConvBackwardData;
  return {sides + ", " + std::to_string(size) + " x " + std::to_string(size) + ", " + std::to_string(C) + " -> " +
              std::to_string(K),
          uint64_t{N} * P * P,
          uint64_t{kernel} * kernel * C,
          K,
          false,
          named_case<Forward>({{Forward::kY, y}, {Forward::kX, x}, {Forward::kW, w}}, window),
          named_case<Weight>({{Weight::kDw, w}, {Weight::kX, x}, {Weight::kDy, y}}, window),
          named_case<Data>({{Data::kDx, x}, {Data::kDy, y}, {Data::kW, w}}, window)};
}

KernelCase case_of(const Layer& layer, KernelCase c) {
  c.id = layer.name;
  return c;
}

// Returns the passes of a layer. Linear layers are multiplied as with weights [inputs, outputs],
// and convolutions as with weights [outputs, inputs].
std::vector<Work> passes(const Layer& layer, DType stored) {
  const cudaDataType_t in = stored == DType::kBf16 ? CUDA_R_16BF : CUDA_R_32F;
  const auto product = [&](uint64_t m, uint64_t n, uint64_t k, bool transpose_a, bool transpose_b, cudaDataType_t out) {
    return Product{m, n, k, transpose_a, transpose_b, in, out, CUBLAS_COMPUTE_32F};
  };
  const uint64_t rows = layer.rows, inputs = layer.inputs, outputs = layer.outputs;
  std::vector<Work> all = {{layer.name + ", forward", case_of(layer, layer.forward),
                            product(outputs, rows, inputs, !layer.is_linear, false, in)},
                           {layer.name + ", weight", case_of(layer, layer.weight),
                            product(outputs, inputs, rows, false, true, CUDA_R_32F)}};
  if (!layer.data) return all;
  all.insert(all.begin() + 1, {layer.name + ", data", case_of(layer, *layer.data),
                               product(inputs, rows, outputs, layer.is_linear, false, in)});
  return all;
}

std::vector<Layer> gpt2_small(DType stored) {
  constexpr uint32_t kTokens = 8 * 1024, kWidth = 768;
  return {linear("qkv", kTokens, kWidth, 3 * kWidth, stored), linear("projection", kTokens, kWidth, kWidth, stored),
          linear("mlp in", kTokens, kWidth, 4 * kWidth, stored),
          linear("mlp out", kTokens, 4 * kWidth, kWidth, stored)};
}

std::vector<Layer> resnet50(DType stored) {
  constexpr uint32_t kBatch = 64;
  std::vector<Layer> layers = {conv(kBatch, 224, 3, 64, 7, 2, stored)};
  layers.front().data.reset();
  for (uint32_t size = 56, width = 64; size >= 7; size /= 2, width *= 2) {
    layers.push_back(conv(kBatch, size, width, width, 3, 1, stored));
    layers.push_back(conv(kBatch, size, width, 4 * width, 1, 1, stored));
    layers.push_back(conv(kBatch, size, 4 * width, width, 1, 1, stored));
  }
  layers.push_back(conv(kBatch, 56, 128, 128, 3, 2, stored));
  return layers;
}

// ---- tables ----

double tera(double flops, double seconds) { return flops / seconds * 1e-12; }

struct Peaks {
  double bf16, f32, tf32, copy;  // flop/s, flop/s, flop/s, byte/s
};

Peaks measure_peaks(const Bench& bench) {
  const auto large = [&](uint64_t side, cudaDataType_t type, cublasComputeType_t compute) {
    const Product p = {side, side, side, true, false, type, type, compute};
    return p.flops() / time_blas(bench, p);
  };
  constexpr uint64_t kCopied = uint64_t{512} << 20;
  const DeviceMemory from(kCopied), to(kCopied);
  const double copied = bench.time([&] {
    require(cudaMemcpyAsync(to.get(), from.get(), kCopied, cudaMemcpyDeviceToDevice, bench.stream), "copy on the card");
  });
  return {large(8192, CUDA_R_16BF, CUBLAS_COMPUTE_32F), large(4096, CUDA_R_32F, CUBLAS_COMPUTE_32F),
          large(8192, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32), 2.0 * kCopied / copied};
}

void print_row(const Bench& bench, const Work& work, double peak) {
  const double theirs = time_blas(bench, work.theirs), flops = work.theirs.flops();
  std::string tf32;
  if (work.theirs.in == CUDA_R_32F) {
    Product p = work.theirs;
    p.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    tf32 = " " + std::to_string(static_cast<int>(tera(flops, time_blas(bench, p)))) + " |";
  }
  const double ours = time_ours(bench, work.ours);
  std::printf("| %s | %.1f | %.1f | %.1f%% | %.1f | %.1f | %.2f |%s\n", work.name.c_str(), ours * 1e6,
              tera(flops, ours), 100 * flops / ours / peak, theirs * 1e6, tera(flops, theirs), theirs / ours,
              tf32.c_str());
  std::fflush(stdout);
}

void print_table(const Bench& bench, const char* what, const std::vector<Layer>& layers, DType stored, double peak) {
  const bool is_f32 = stored == DType::kF32;
  std::printf(
      "\n%s, %s:\n\n| product | ours us | TF/s | of the peak | cuBLASLt us | TF/s | ours as a ratio of it "
      "|%s\n|---|---|---|---|---|---|---|%s\n",
      what, is_f32 ? "f32" : "bf16", is_f32 ? " cuBLASLt tf32 TF/s |" : "", is_f32 ? "---|" : "");
  for (const Layer& layer : layers) {
    for (const Work& work : passes(layer, stored)) print_row(bench, work, peak);
  }
}

void run() {
  const Bench bench;
  const Peaks peaks = measure_peaks(bench);
  std::printf(
      "Kernel set %s, cuBLASLt %zu. Measured peaks, cuBLASLt's own large products: bf16 %.0f TF/s (8192),\n"
      "f32 %.1f TF/s (4096), tf32 %.0f TF/s (8192); copy on the card %.0f GB/s, bytes read plus bytes written.\n",
      bench.backend.kernel_set, cublasLtGetVersion(), peaks.bf16 * 1e-12, peaks.f32 * 1e-12, peaks.tf32 * 1e-12,
      peaks.copy * 1e-9);
  print_table(bench, "GPT-2 small, T 1024, batch 8", gpt2_small(DType::kBf16), DType::kBf16, peaks.bf16);
  print_table(bench, "ResNet-50, 224 x 224, batch 64", resnet50(DType::kBf16), DType::kBf16, peaks.bf16);
  print_table(bench, "GPT-2 small, T 1024, batch 8", gpt2_small(DType::kF32), DType::kF32, peaks.f32);
  print_table(bench, "ResNet-50, 224 x 224, batch 64", resnet50(DType::kF32), DType::kF32, peaks.f32);
}

}  // namespace
}  // namespace reprise::bench

int main() {
  try {
    reprise::bench::run();
    return 0;
  } catch (const reprise::UserError& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "gpu_products: %s\n", error.what());
    return error.status;
  }
}
