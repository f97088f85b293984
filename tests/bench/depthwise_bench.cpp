// Compares the bandwidth of depthwise convolutions (forward, and the gradients of data and weight)
// with the bandwidth of the triad a = b + 3c. The shapes are those of MobileNetV2 and
// EfficientNet-B0, batch 16, 224 x 224. Such a layer multiplies only once or twice per byte. So it
// is rated by the bytes that must move, counting each tensor once. Each call uses the next of
// several copies, which together are larger than any cache. So no data is in a cache from the
// previous call.
//
//   depthwise_bench [THREADS]    (default 2) prints the shares as JSON
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lib/cpu/conv/conv_rules.h"
#include "lib/cpu/cpu_kernels.h"
#include "ports/linux/linux_port.h"
#include "tests/bench/machine_bandwidth.h"
#include "tests/ops/random_floats.h"
#include "tests/ports/test_machine.h"

namespace reprise::bench {
namespace {

struct Layer {
  const char* net;
  uint32_t size, C;
  uint16_t kernel, stride;
};
constexpr uint32_t kBatch = 16;
enum class ConvPass { kForward, kBackwardData, kBackwardWeight };
const Layer kLayers[] = {{"MobileNetV2", 112, 32, 3, 1},     {"MobileNetV2", 112, 96, 3, 2},
                         {"MobileNetV2", 56, 144, 3, 1},     {"MobileNetV2", 56, 144, 3, 2},
                         {"MobileNetV2", 28, 192, 3, 1},     {"MobileNetV2", 28, 192, 3, 2},
                         {"MobileNetV2", 14, 384, 3, 1},     {"MobileNetV2", 14, 576, 3, 1},
                         {"MobileNetV2", 14, 576, 3, 2},     {"MobileNetV2", 7, 960, 3, 1},
                         {"EfficientNet-B0", 56, 144, 5, 2}, {"EfficientNet-B0", 28, 240, 5, 1},
                         {"EfficientNet-B0", 28, 240, 3, 2}, {"EfficientNet-B0", 14, 480, 3, 1},
                         {"EfficientNet-B0", 14, 480, 5, 1}, {"EfficientNet-B0", 14, 672, 5, 1},
                         {"EfficientNet-B0", 14, 672, 5, 2}, {"EfficientNet-B0", 7, 1152, 5, 1},
                         {"EfficientNet-B0", 7, 1152, 3, 1}};

// Bytes of all copies of one layer: six times a last-level cache of 32 MiB.
constexpr uint64_t kApart = uint64_t{192} << 20;

// Frees memory that is aligned like the slots of an arena.
struct Free {
  void operator()(float* floats) const { std::free(floats); }
};
using Floats = std::unique_ptr<float[], Free>;

// Several copies of x and y of one layer, and the other data of a call.
class Copies {
 public:
  explicit Copies(const ConvShape& s)
      : s_(s), x_each_(uint64_t{s.N} * s.H * s.W * s.C), y_each_(uint64_t{s.N} * s.P * s.Q * s.K) {
    count_ = kApart / (4 * (x_each_ + y_each_)) + 1;
    x_ = filled(count_ * x_each_), y_ = filled(count_ * y_each_);
    weight_count_ = uint64_t{s.C} * s.window.kernel_h * s.window.kernel_w;
    weights_ = filled(weight_count_);
    scratch_bytes_ = std::max({conv_forward_scratch(s, DType::kF32, DType::kF32, false).bytes,
                               conv_backward_data_scratch(s, DType::kF32, DType::kF32).bytes,
                               conv_backward_weight_scratch(s, DType::kF32).bytes});
    scratch_ = filled(scratch_bytes_ / 4 + 1);
  }

  // Returns the bytes that a call of any pass must move.
  double bytes() const { return 4.0 * static_cast<double>(x_each_ + y_each_ + weight_count_); }
  Status call(const KernelContext& context, ConvPass pass) {
    next_ = (next_ + 1) % count_;
    float *x = x_.get() + next_ * x_each_, *y = y_.get() + next_ * y_each_;
    switch (pass) {
      case ConvPass::kForward:
        return cpu_conv_forward<float>(
            context, {y, x, weights_.get(), scratch_.get(), scratch_bytes_, s_, {}, nullptr, nullptr});
      case ConvPass::kBackwardData:
        return cpu_conv_backward_data<float>(context,
                                             {x, y, weights_.get(), scratch_.get(), scratch_bytes_, s_, false});
      case ConvPass::kBackwardWeight: break;
    }
    return cpu_conv_backward_weight<float>(context,
                                           {weights_.get(), x, y, scratch_.get(), scratch_bytes_, s_, false, {}});
  }

 private:
  static Floats filled(uint64_t elements) {
    const std::vector<float> some = random_floats(4099, 2);
    Floats floats(static_cast<float*>(std::aligned_alloc(kAlignment, align_up(4 * elements))));
    for (uint64_t i = 0; i < elements; i += some.size())
      std::memcpy(floats.get() + i, some.data(), 4 * std::min<uint64_t>(some.size(), elements - i));
    return floats;
  }

  const ConvShape s_;
  const uint64_t x_each_, y_each_;
  uint64_t count_, next_ = 0, scratch_bytes_, weight_count_;
  Floats x_, y_, scratch_, weights_;
};

// Returns bytes per second: the best of several runs, each over some of the copies.
double rate_of(Copies& copies, const KernelContext& context, ConvPass pass) {
  double best = 1e30;
  for (int trial = 0; trial < 12; ++trial) {
    const double start = seconds_now();
    for (int i = 0; i < 4; ++i) {
      if (const Status status = copies.call(context, pass); !status.ok())
        std::fprintf(stderr, "depthwise_bench: %s\n", status.message), std::exit(1);
    }
    if (trial > 0) best = std::min(best, (seconds_now() - start) / 4);
  }
  return copies.bytes() / best;
}

void print_layers(const KernelContext& context) {
  const double triad = measure_bandwidth(*context.workers).triad;
  std::printf("{\"triad\": %.4g, \"layers\": [", triad);
  const char* comma = "";
  for (const Layer& layer : kLayers) {
    const uint16_t pad = layer.kernel / 2;
    const uint32_t P = (layer.size + 2u * pad - layer.kernel) / layer.stride + 1;
    WindowAttribute window = {layer.kernel, layer.kernel, layer.stride, pad};
    window.groups = layer.C;
    Copies copies({kBatch, layer.size, layer.size, layer.C, P, P, layer.C, window});
    std::printf("%s\n {\"net\": \"%s\", \"size\": %u, \"channels\": %u, \"kernel\": %u, \"stride\": %u", comma,
                layer.net, layer.size, layer.C, layer.kernel, layer.stride);
    for (const auto& [name, pass] : {std::pair{"forward", ConvPass::kForward},
                                     {"data", ConvPass::kBackwardData},
                                     {"weight", ConvPass::kBackwardWeight}}) {
      std::printf(", \"%s\": %.3f", name, rate_of(copies, context, pass) / triad);
    }
    std::printf("}");
    comma = ",";
  }
  std::printf("]}\n");
}

}  // namespace
}  // namespace reprise::bench

int main(int argc, char** argv) {
  using namespace reprise;
  const uint32_t threads = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 2;
  Workers workers;
  if (threads == 0 || !linux_port().start_workers(threads, &workers).ok()) {
    std::fprintf(stderr, "depthwise_bench [THREADS]\n");
    return 2;
  }
  bench::print_layers({.workers = &workers, .machine = test::test_backend().machine});
  linux_port().stop_workers(&workers);
  return 0;
}
