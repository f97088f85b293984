// Linear layers, with adapters and scales: cases, reference, slope and wrong kernels.
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"
#include "tests/ref/linear.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- cases ----

void add_linear(CaseTable& table, uint32_t M, uint32_t C, uint32_t K) {
  const auto x = shaped({M, C}), y = shaped({M, K}), b = shaped({K});
  for (const uint32_t input_major : {0u, 1u}) {
    const auto w = input_major != 0 ? shaped({C, K}) : shaped({K, C});
    const std::string tag = "m" + str(M) + "_c" + str(C) + "_k" + str(K) + (input_major != 0 ? "_input_major" : "");
    const auto add = [&](Pass pass, const std::string& name, CaseTable::Arguments arguments) {
      table.add(Op::kLinear, pass, name, std::move(arguments), LinearAttribute{input_major}).multiply_adds = uint64_t{M} * C * K;
    };
    add(Pass::kForward, tag, {y, x, w, b, {}, {}});
    if (!table.is_bench()) add(Pass::kForward, tag + "_no_bias", {y, x, w, {}, {}, {}});
    add(Pass::kBackwardData, tag, {x, y, w});
    table.again_accumulating(1);
    add(Pass::kBackwardWeight, tag, {w, x, y});
    table.again_accumulating(1);
  }
  table.add(Op::kLinear, Pass::kBackwardBias, "m" + str(M) + "_k" + str(K) + "_c" + str(C), {b, y});
  table.again_accumulating(1);
}

// A layer with an adapter of rank R, and the two products with a scale that adapters have.
void add_adapter(CaseTable& table, uint32_t M, uint32_t C, uint32_t K, uint32_t R, float scale = 1) {
  const auto x = shaped({M, C}), y = shaped({M, K}), b = shaped({K}), h = shaped({M, R}), u = shaped({K, R});
  for (const uint32_t input_major : {0u, 1u}) {
    const auto w = input_major != 0 ? shaped({C, K}) : shaped({K, C});
    const LinearAttribute linear{input_major, scale};
    const std::string tag = "m" + str(M) + "_c" + str(C) + "_k" + str(K) + "_r" + str(R) + (scale != 1 ? "_scaled" : "") +
                            (input_major != 0 ? "_input_major" : "");
    table.add(Op::kLinear, Pass::kForward, tag, {y, x, w, b, h, u}, linear).multiply_adds = uint64_t{M} * (C + R) * K;
    if (table.is_bench()) continue;
    table.add(Op::kLinear, Pass::kForward, tag + "_no_bias", {y, x, w, {}, h, u}, linear);
    if (scale == 1) continue;
    table.add(Op::kLinear, Pass::kForward, tag + "_alone", {y, x, w, b, {}, {}}, linear);
    table.add(Op::kLinear, Pass::kBackwardData, tag, {x, y, w}, linear);
    table.again_accumulating(1);
  }
}

void add_bench_cases(CaseTable& table) {
  add_linear(table, 1024, 768, 768);
  add_linear(table, 1024, 768, 3072);
  add_adapter(table, 1024, 768, 768, 8);
}
void add_cases(CaseTable& table) {
  add_linear(table, 200, 16, 40);  // many rows of few columns: the tall tile of CUDA
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
  add_linear(table, 16, 8, 16);                      // around the sizes of registers and panels
  add_linear(table, 31, 5, 33);
  add_linear(table, 32, 16, 32);
  add_linear(table, 33, 257, 31);
  add_linear(table, 48, 256, 48);
  add_linear(table, 12, 255, 64);
  add_linear(table, 64, 64, 65);
  add_linear(table, 8, 4, 97);
  add_linear(table, 40, 300, 530);
  add_linear(table, 520, 40, 260);                   // 10400 .. 135200 outputs
  add_linear(table, 1100, 33, 70);
  add_adapter(table, 1, 1, 1, 1);
  add_adapter(table, 7, 13, 5, 3, 0.75f);
  add_adapter(table, 33, 16, 40, 8);
  add_adapter(table, 65, 130, 67, 4, 2);
  add_adapter(table, 40, 255, 70, 9, 1.5f);          // the adapter's depths begin in the panel of the weight's last
  add_adapter(table, 14, 256, 33, 2);                // and right behind it
  add_adapter(table, 30, 300, 530, 300);
  add_adapter(table, 200, 16, 40, 8);                // CUDA's tall tile,
  add_adapter(table, 40, 72, 200, 40);               // its wide one, with both depths of more than one slab,
  add_adapter(table, 520, 40, 260, 6);               // and the large one of f32
  add_linear(table, 37, 416, 96);                    // weights in blocks, of which a panel of depths is not a whole number of rows,
  add_adapter(table, 21, 800, 64, 32);               // and with an adapter's behind them
  add_linear(table, 5, 512, 256);                    // the same in blocks of 256, with depths that are cut inside one
  add_adapter(table, 3, 256, 20, 256);
  for (const char* tag : {"m7_c13_k5", "m65_c130_k67", "m40_c300_k530", "m37_c416_k96", "m21_c800_k64", "m5_c512_k256", "m3_c256_k20"}) {
    table.again_with_weights(tag, kEveryWeight);
  }
}

// ---- results ----

// scale * x W^T + b + h U^T.
Array adapted(const Array& x, const Array& w, const Array* bias, const Array* h, const Array* u, double scale, bool by_input) {
  Array y = scale * linear_forward(x, w, nullptr, by_input);
  if (bias != nullptr) y = y + *bias;
  return h != nullptr ? Array(y + linear_forward(*h, *u, nullptr, false)) : y;
}

void expect_forward(Oracle& o, double scale, bool by_input) {
  std::vector<Array> sizes;
  for (uint32_t i = 0; i < 6; ++i) sizes.push_back(o.c.has(i) && i > 0 ? magnitudes(o.value(i)) : Array());
  const auto size = [&](uint32_t i) { return o.c.has(i) ? &sizes[i] : nullptr; };
  const double rank = o.c.has(4) ? o.dimension(4, 1) : 0;
  o.expect(0, {adapted(o.value(1), o.value(2), o.optional(3), o.optional(4), o.optional(5), scale, by_input),
               adapted(sizes[1], sizes[2], size(3), size(4), size(5), scale, by_input), o.dimension(1, 1) + rank + 2});
}

void expect(Oracle& o) {
  const Array &a = o.value(1), a_magnitude = magnitudes(a);
  if (o.c.pass == Pass::kBackwardBias) return o.expect(0, {xt::sum(a, {0}), xt::sum(a_magnitude, {0}), o.dimension(1, 0)});
  const bool by_input = o.c.as<LinearAttribute>().input_major != 0;
  const double scale = static_cast<double>(o.c.as<LinearAttribute>().scale);
  if (o.c.pass == Pass::kForward) return expect_forward(o, scale, by_input);
  const Array &b = o.value(2), b_magnitude = magnitudes(b);
  if (o.c.pass == Pass::kBackwardData) {
    return o.expect(0, {scale * linear_backward_data(a, b, by_input), scale * linear_backward_data(a_magnitude, b_magnitude, by_input),
                        o.dimension(1, 1) + 1});
  }
  o.expect(0, {linear_backward_weight(a, b, by_input), linear_backward_weight(a_magnitude, b_magnitude, by_input), o.dimension(1, 0)});
}

// Where the depth of the product is even, and that of the adapter's too; with a scale the CPU multiplies in f32.
std::vector<uint32_t> rounded_weights(const KernelCase& c) {
  const bool reads_weights = c.pass == Pass::kForward || c.pass == Pass::kBackwardData;
  if (!reads_weights || c.as<LinearAttribute>().scale != 1 || c.tensor(1).last_dimension() % 2 != 0) return {};
  if (!c.has(4)) return {2};
  return c.tensor(4).last_dimension() % 2 == 0 ? std::vector<uint32_t>{2, 5} : std::vector<uint32_t>{};
}

// ---- slope ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  const std::vector<Array>& v = data.values;
  const Array point = random_like(c.tensor(0), c.id);
  if (c.pass == Pass::kBackwardBias) return {{point}, {0}, [&](const auto& at) { return dot(v[1], xt::zeros_like(v[1]) + at[0]); }};
  const bool by_input = c.as<LinearAttribute>().input_major != 0;
  if (c.pass == Pass::kBackwardData) {
    const double scale = static_cast<double>(c.as<LinearAttribute>().scale);
    return {{point}, {0}, [&, by_input, scale](const auto& at) { return scale * dot(v[1], linear_forward(at[0], v[2], nullptr, by_input)); }};
  }
  return {{point}, {0}, [&, by_input](const auto& at) { return dot(v[2], linear_forward(v[1], at[0], nullptr, by_input)); }};
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
        for (uint32_t r = 0; r < a.R; ++r) a.y[i] += (a.scale - 1) * a.h[i / a.K * a.R + r] * a.u.f32()[i % a.K * a.R + r];
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

extern constinit const OpFamily kLinearFamily = {.ops = kFamilyOps, .multiplies = true, .add_cases = add_cases, .expect = expect,
                                                 .differentiable = differentiable, .rounded_weights = rounded_weights,
                                                 .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
