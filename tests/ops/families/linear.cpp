// Linear layers, with adapters and scales: cases, reference, gradient check and wrong kernels.
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"
#include "tests/ref/linear.h"

namespace reprise::test {
namespace {

using namespace ref;
using Forward = LinearForward;
using BackwardData = LinearBackwardData;
using BackwardWeight = LinearBackwardWeight;
using BackwardBias = LinearBackwardBias;

// ---- cases ----

void add_linear(CaseTable& table, uint32_t M, uint32_t C, uint32_t K) {
  const auto x = shaped({M, C}), y = shaped({M, K}), b = shaped({K});
  for (const uint32_t input_major : {0u, 1u}) {
    const auto w = input_major != 0 ? shaped({C, K}) : shaped({K, C});
    const std::string tag = "m" + str(M) + "_c" + str(C) + "_k" + str(K) + (input_major != 0 ? "_input_major" : "");
    const LinearAttribute linear{input_major};
    const uint64_t work = uint64_t{M} * C * K;
    table.add<Forward>(tag, {{Forward::kY, y}, {Forward::kX, x}, {Forward::kW, w}, {Forward::kB, b}}, linear)
        .multiply_adds = work;
    if (!table.is_bench()) {
      table.add<Forward>(tag + "_no_bias", {{Forward::kY, y}, {Forward::kX, x}, {Forward::kW, w}}, linear)
          .multiply_adds = work;
    }
    table.add<BackwardData>(tag, {{BackwardData::kDx, x}, {BackwardData::kDy, y}, {BackwardData::kW, w}}, linear)
        .multiply_adds = work;
    table.again_accumulating({BackwardData::kDx});
    table
        .add<BackwardWeight>(tag, {{BackwardWeight::kDw, w}, {BackwardWeight::kX, x}, {BackwardWeight::kDy, y}}, linear)
        .multiply_adds = work;
    table.again_accumulating({BackwardWeight::kDw});
  }
  table.add<BackwardBias>("m" + str(M) + "_k" + str(K) + "_c" + str(C),
                          {{BackwardBias::kDb, b}, {BackwardBias::kDy, y}});
  table.again_accumulating({BackwardBias::kDb});
}

// Adds a layer with an adapter of rank R. If `scale` is not 1, also adds a forward and a backward
// by data with this scale and without an adapter.
void add_adapter(CaseTable& table, uint32_t M, uint32_t C, uint32_t K, uint32_t R, float scale = 1) {
  const auto x = shaped({M, C}), y = shaped({M, K}), b = shaped({K}), h = shaped({M, R}), u = shaped({K, R});
  for (const uint32_t input_major : {0u, 1u}) {
    const auto w = input_major != 0 ? shaped({C, K}) : shaped({K, C});
    const LinearAttribute linear{input_major, scale};
    const std::string tag = "m" + str(M) + "_c" + str(C) + "_k" + str(K) + "_r" + str(R) +
                            (scale != 1 ? "_scaled" : "") + (input_major != 0 ? "_input_major" : "");
    table
        .add<Forward>(tag,
                      {{Forward::kY, y},
                       {Forward::kX, x},
                       {Forward::kW, w},
                       {Forward::kB, b},
                       {Forward::kH, h},
                       {Forward::kU, u}},
                      linear)
        .multiply_adds = uint64_t{M} * (C + R) * K;
    if (table.is_bench()) continue;
    table.add<Forward>(tag + "_no_bias",
                       {{Forward::kY, y}, {Forward::kX, x}, {Forward::kW, w}, {Forward::kH, h}, {Forward::kU, u}},
                       linear);
    if (scale == 1) continue;
    table.add<Forward>(tag + "_alone", {{Forward::kY, y}, {Forward::kX, x}, {Forward::kW, w}, {Forward::kB, b}},
                       linear);
    table.add<BackwardData>(tag, {{BackwardData::kDx, x}, {BackwardData::kDy, y}, {BackwardData::kW, w}}, linear);
    table.again_accumulating({BackwardData::kDx});
  }
}

void add_bench_cases(CaseTable& table) {
  add_linear(table, 1024, 768, 768);
  add_linear(table, 1024, 768, 3072);
  add_adapter(table, 1024, 768, 768, 8);
}
void add_cases(CaseTable& table) {
  add_linear(table, 200, 16, 40);  // many rows and few columns: CUDA's tall tile
  if (table.is_bench()) return add_bench_cases(table);
  add_linear(table, 1, 1, 1);
  add_linear(table, 1, 9, 10);
  add_linear(table, 7, 13, 5);
  add_linear(table, 65, 130, 67);
  add_linear(table, 33, 300, 10);
  add_linear(table, 257, 9, 3);
  add_linear(table, 5, 2049, 9);
  add_linear(table, 6, 16, 513);
  add_linear(table, 3000, 3, 5);
  add_linear(table, 130, 1, 129);
  add_linear(table, 16, 8, 16);                      // sizes below, at and above those of registers and panels
  add_linear(table, 31, 5, 33);
  add_linear(table, 32, 16, 32);
  add_linear(table, 33, 257, 31);
  add_linear(table, 48, 256, 48);
  add_linear(table, 12, 255, 64);
  add_linear(table, 64, 64, 65);
  add_linear(table, 8, 4, 97);
  add_linear(table, 40, 300, 530);
  add_linear(table, 520, 40, 260);                   // dw, dx and y have 10400, 20800 and 135200 elements
  add_linear(table, 1100, 33, 70);
  // Sizes of one row more and one column fewer than whole CUDA tiles, and of one row fewer and one
  // column more. Some cases run on tensor cores, whose operands are chunks of eight.
  add_linear(table, 129, 24, 127);
  add_linear(table, 255, 16, 257);
  add_linear(table, 129, 16, 136);
  add_linear(table, 257, 8, 56);
  add_linear(table, 63, 24, 264);
  add_linear(table, 127, 136, 120);                  // a weight gradient's depth of 127, one less than whole slabs
  add_adapter(table, 1, 1, 1, 1);
  add_adapter(table, 7, 13, 5, 3, 0.75f);
  add_adapter(table, 33, 16, 40, 8);
  add_adapter(table, 65, 130, 67, 4, 2);
  add_adapter(table, 40, 255, 70, 9, 1.5f);          // the adapter's depths begin in the weight's last slab
  add_adapter(table, 14, 256, 33, 2);                // the adapter's depths begin a new slab after the weight's
  add_adapter(table, 30, 300, 530, 300);
  add_adapter(table, 200, 16, 40, 8);                // CUDA's tall tile
  add_adapter(table, 40, 72, 200, 40);               // CUDA's wide tile; the sums over C and R have several slabs
  add_adapter(table, 520, 40, 260, 6);               // CUDA's large tile for f32
  add_linear(table, 37, 416, 96);  // for weights in blocks: a piece of the depth is not whole blocks
  add_adapter(table, 21, 800, 64, 32);               // the depths are blocks of the weight, then of the adapter
  add_linear(table, 5, 512, 256);                    // blocks of 256 or 512 weights; a piece may end inside one
  add_adapter(table, 3, 256, 20, 256);
  for (const char* tag :
       {"m7_c13_k5", "m65_c130_k67", "m40_c300_k530", "m37_c416_k96", "m21_c800_k64", "m5_c512_k256", "m3_c256_k20"}) {
    table.again_with_weights(tag, kEveryWeight);
  }
}

// ---- results ----

// Returns scale * x W^T + b + h U^T.
Array adapted(const Array& x, const Array& w, const Array* bias, const Array* h, const Array* u, double scale,
              bool by_input) {
  Array y = scale * linear_forward(x, w, nullptr, by_input);
  if (bias != nullptr) y = y + *bias;
  return h != nullptr ? Array(y + linear_forward(*h, *u, nullptr, false)) : y;
}

void expect_forward(Oracle& o, double scale, bool by_input) {
  using A = Forward;
  std::vector<Array> sizes(A::kScratch);
  for (const uint32_t i : {A::kX, A::kW, A::kB, A::kH, A::kU}) sizes[i] = o.c.has(i) ? magnitudes(o.value(i)) : Array();
  const auto size = [&](uint32_t i) { return o.c.has(i) ? &sizes[i] : nullptr; };
  const double rank = o.c.has(A::kH) ? o.dimension(A::kH, 1) : 0;
  o.expect(A::kY, {adapted(o.value(A::kX), o.value(A::kW), o.optional(A::kB), o.optional(A::kH), o.optional(A::kU),
                           scale, by_input),
                   adapted(sizes[A::kX], sizes[A::kW], size(A::kB), size(A::kH), size(A::kU), scale, by_input),
                   o.dimension(A::kX, 1) + rank + 2});
}
void expect_data(Oracle& o, double scale, bool by_input) {
  using A = BackwardData;
  const Array &dy = o.value(A::kDy), &w = o.value(A::kW);
  o.expect(A::kDx, {scale * linear_backward_data(dy, w, by_input),
                    scale * linear_backward_data(magnitudes(dy), magnitudes(w), by_input), o.dimension(A::kDy, 1) + 1});
}
void expect_weight(Oracle& o, bool by_input) {
  using A = BackwardWeight;
  const Array &x = o.value(A::kX), &dy = o.value(A::kDy);
  o.expect(A::kDw, {linear_backward_weight(x, dy, by_input),
                    linear_backward_weight(magnitudes(x), magnitudes(dy), by_input), o.dimension(A::kX, 0)});
}
void expect_bias(Oracle& o) {
  using A = BackwardBias;
  const Array& dy = o.value(A::kDy);
  o.expect(A::kDb, {xt::sum(dy, {0}), xt::sum(magnitudes(dy), {0}), o.dimension(A::kDy, 0)});
}

void expect(Oracle& o) {
  if (o.c.pass == Pass::kBackwardBias) return expect_bias(o);
  const bool by_input = o.c.as<LinearAttribute>().input_major != 0;
  const double scale = static_cast<double>(o.c.as<LinearAttribute>().scale);
  if (o.c.pass == Pass::kForward) return expect_forward(o, scale, by_input);
  o.c.pass == Pass::kBackwardData ? expect_data(o, scale, by_input) : expect_weight(o, by_input);
}

// Returns the weights that the CPU rounds to bf16. It rounds none in a scaled layer, or if a depth
// of the product or of its adapter is odd: then it multiplies in f32.
std::vector<uint32_t> rounded_weights(const KernelCase& c, const CpuMachine&) {
  const auto is_even = [&](uint32_t operand) { return c.tensor(operand).last_dimension() % 2 == 0; };
  const bool reads_weights = c.pass == Pass::kForward || c.pass == Pass::kBackwardData;
  if (!reads_weights || c.as<LinearAttribute>().scale != 1) return {};
  if (c.pass == Pass::kBackwardData)
    return is_even(BackwardData::kDy) ? std::vector<uint32_t>{BackwardData::kW} : std::vector<uint32_t>{};
  using A = Forward;
  if (!is_even(A::kX)) return {};
  if (!c.has(A::kH)) return {A::kW};
  return is_even(A::kH) ? std::vector<uint32_t>{A::kW, A::kU} : std::vector<uint32_t>{};
}

// Returns the arguments that tensor cores multiply. Returns none for the gradient of the bias, and
// if rows of an operand are not whole chunks of four. Also returns none for a scaled layer with an
// adapter. The scale applies to only one of its two products, so the layer is not computed on
// tensor cores.
std::optional<std::vector<uint32_t>> tensor_operands(const KernelCase& c) {
  using A = Forward;
  if (c.pass == Pass::kBackwardBias) return std::nullopt;
  const auto fills = [&](uint32_t argument) { return c.tensor(argument).last_dimension() % 4 == 0; };
  if (c.pass == Pass::kBackwardData)
    return fills(BackwardData::kDy) && fills(BackwardData::kW)
               ? std::optional(std::vector<uint32_t>{BackwardData::kDy, BackwardData::kW})
               : std::nullopt;
  if (c.pass == Pass::kBackwardWeight)
    return fills(BackwardWeight::kX) && fills(BackwardWeight::kDy)
               ? std::optional(std::vector<uint32_t>{BackwardWeight::kX, BackwardWeight::kDy})
               : std::nullopt;
  if (!fills(A::kX) || !fills(A::kW)) return std::nullopt;
  if (!c.has(A::kH)) return std::vector<uint32_t>{A::kX, A::kW};
  if (!fills(A::kY) || !fills(A::kH) || c.as<LinearAttribute>().scale != 1) return std::nullopt;
  return std::vector<uint32_t>{A::kX, A::kW, A::kH, A::kU};
}

// ---- gradient check ----

Differentiable data_slope(const KernelCase& c, const std::vector<Array>& v) {
  using A = BackwardData;
  const LinearAttribute linear = c.as<LinearAttribute>();
  return {{random_like(c.tensor(A::kDx), c.id)}, {A::kDx}, [&v, linear](const auto& at) {
            return static_cast<double>(linear.scale) *
                   dot(v[A::kDy], linear_forward(at[0], v[A::kW], nullptr, linear.input_major != 0));
          }};
}
Differentiable weight_slope(const KernelCase& c, const std::vector<Array>& v) {
  using A = BackwardWeight;
  const bool by_input = c.as<LinearAttribute>().input_major != 0;
  return {{random_like(c.tensor(A::kDw), c.id)}, {A::kDw}, [&v, by_input](const auto& at) {
            return dot(v[A::kDy], linear_forward(v[A::kX], at[0], nullptr, by_input));
          }};
}
Differentiable bias_slope(const KernelCase& c, const std::vector<Array>& v) {
  using A = BackwardBias;
  return {{random_like(c.tensor(A::kDb), c.id)}, {A::kDb}, [&v](const auto& at) {
            return dot(v[A::kDy], xt::zeros_like(v[A::kDy]) + at[0]);
          }};
}
Differentiable differentiable(const KernelCase& c, CaseData& data) {
  if (c.pass == Pass::kBackwardBias) return bias_slope(c, data.values);
  return c.pass == Pass::kBackwardData ? data_slope(c, data.values) : weight_slope(c, data.values);
}

// ---- wrong kernels ----

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<LinearForward, [](const KernelContext& k, const LinearForwardArgsOf<float>& a) {
      LinearForwardArgsOf<float> alone = a;
      alone.h = nullptr, alone.u = {}, alone.R = 0;
      return cpu_linear_forward(k, alone);
    }>("linear_forgets_its_adapter"),
    wrong_kernel<LinearForward, [](const KernelContext& k, const LinearForwardArgsOf<float>& a) {
      const Status status = cpu_linear_forward(k, a);
      for (uint64_t i = 0; a.b != nullptr && i < a.M * a.K; ++i) a.y[i] += (a.scale - 1) * a.b[i % a.K];
      return status;
    }>("linear_scales_its_bias"),
    wrong_kernel<LinearForward, [](const KernelContext& k, const LinearForwardArgsOf<float>& a) {
      const Status status = cpu_linear_forward(k, a);
      for (uint64_t i = 0; i < a.M * a.K; ++i) {
        for (uint32_t r = 0; r < a.R; ++r)
          a.y[i] += (a.scale - 1) * a.h[i / a.K * a.R + r] * a.u.f32()[i % a.K * a.R + r];
      }
      return status;
    }>("linear_scales_its_adapter"),
    wrong_kernel<LinearBackwardData, [](const KernelContext& k, const LinearBackwardDataArgsOf<float>& a) {
      LinearBackwardDataArgsOf<float> unscaled = a;
      unscaled.scale = 1;
      return cpu_linear_backward_data(k, unscaled);
    }>("linear_gradient_forgets_the_scale"),
    wrong_kernel<LinearBackwardData, [](const KernelContext& k, const LinearBackwardDataArgsOf<float>& a) {
      for (uint64_t i = 0; a.accumulate_dx && i < a.M * a.C; ++i) a.dx[i] *= a.scale;
      return cpu_linear_backward_data(k, a);
    }>("linear_gradient_scales_what_it_adds_to"),
};

constexpr Op kFamilyOps[] = {Op::kLinear};

}  // namespace

extern constinit const OpFamily kLinearFamily = {.ops = kFamilyOps,
                                                 .multiplies = true,
                                                 .add_cases = add_cases,
                                                 .expect = expect,
                                                 .differentiable = differentiable,
                                                 .rounded_weights = rounded_weights,
                                                 .tensor_operands = tensor_operands,
                                                 .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
