// DoRA: the norms of the adapted weight's rows, the scale of each row, and the gradients. Cases,
// data, reference, gradient check and wrong kernels.
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"
#include "tests/ref/linear.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- cases ----

void add_norms(CaseTable& table, uint32_t C, uint32_t K, uint32_t R, float scale) {
  using A = DoraNorms;
  for (const uint32_t input_major : {0u, 1u}) {
    const auto w = input_major != 0 ? shaped({C, K}) : shaped({K, C});
    const std::string tag = "c" + str(C) + "_k" + str(K) + "_r" + str(R) + (input_major != 0 ? "_input_major" : "");
    table.add<A>(tag, {{A::kNorms, shaped({K})}, {A::kW, w}, {A::kA, shaped({R, C})}, {A::kB, shaped({K, R})}},
                 LinearAttribute{input_major, scale}).multiply_adds = uint64_t{C} * K * (R + 1);
  }
}

void add_scale(CaseTable& table, uint32_t M, uint32_t K) {
  const auto y = shaped({M, K}), k = shaped({K});
  const std::string tag = "m" + str(M) + "_k" + str(K);
  using F = DoraForward;
  table.add<F>(tag, {{F::kY, y}, {F::kZ, y}, {F::kMagnitudes, k}, {F::kNorms, k}});
  using B = DoraBackward;
  table.add<B>(tag, {{B::kDz, y}, {B::kDmagnitudes, k}, {B::kZ, y}, {B::kMagnitudes, k}, {B::kNorms, k}, {B::kDy, y}});
  table.again_accumulating({B::kDmagnitudes});
  if (table.is_bench()) return;
  table.add<F>(tag + "_bias", {{F::kY, y}, {F::kZ, y}, {F::kMagnitudes, k}, {F::kNorms, k}, {F::kBias, k}});
  table.add<B>(tag + "_frozen", {{B::kDz, y}, {B::kZ, y}, {B::kMagnitudes, k}, {B::kNorms, k}, {B::kDy, y}});
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) {
    add_norms(table, 2048, 2048, 16, 2);
    return add_scale(table, 1024, 2048);
  }
  add_norms(table, 1, 1, 1, 1);
  add_norms(table, 5, 5, 2, 2);           // a square weight: its rows and columns can be confused
  add_norms(table, 13, 7, 3, 0.5f);
  add_norms(table, 130, 67, 4, 2);         // more work than one CPU task
  add_norms(table, 300, 40, 9, 1.5f);      // more columns than a card's block has threads
  add_norms(table, 16, 300, 5, 0.25f);
  add_norms(table, 64, 96, 32, 2);         // dimensions that are whole blocks, for weights in blocks
  add_norms(table, 256, 256, 256, 0.125f);
  for (const char* tag : {"c64_k96_r32", "c256_k256_r256"}) table.again_with_weights(tag, kEveryWeight);
  add_scale(table, 1, 1);
  add_scale(table, 7, 5);
  add_scale(table, 33, 16);
  add_scale(table, 70, 130);
  add_scale(table, 3, 600);
  add_scale(table, 1200, 24);
}

// Makes one row of the adapted weight zero, so that the row has no direction and its norm is 0. In
// a case that reads norms, sets one norm to 0 and makes the others positive.
void fit_data(CaseDraft& draft) {
  if (draft.c.pass == Pass::kStatistics) {
    Array& b = draft.value(DoraNorms::kB);
    if (b.shape(0) < 3 || draft.c.as<LinearAttribute>().input_major != 0) return;
    xt::view(b, 1) = 0.0;
    xt::view(draft.value(DoraNorms::kW), 1) = 0.0;
    return;
  }
  Array& norms =
      draft.value(draft.c.pass == Pass::kForward ? uint32_t{DoraForward::kNorms} : uint32_t{DoraBackward::kNorms});
  for (double& norm : norms) norm = as_f32(0.25 + std::abs(norm));
  if (norms.size() > 2) norms(1) = 0;
}

// ---- results ----

Array lengths(const Array& w, const Array& a, const Array& b, double scale, bool by_input) {
  const Array v = (by_input ? transposed(w) : w) + scale * product(b, a);
  return xt::sqrt(xt::sum(v * v, {1}));
}
Array factors(const Array& magnitudes, const Array& norms) {
  Array f = magnitudes;
  for (size_t k = 0; k < f.size(); ++k) f(k) = norms(k) > 0 ? magnitudes(k) / norms(k) : 0;
  return f;
}

void expect_norms(Oracle& o) {
  using A = DoraNorms;
  const LinearAttribute linear = o.c.as<LinearAttribute>();
  const Array &w = o.value(A::kW), &a = o.value(A::kA), &b = o.value(A::kB);
  const bool by_input = linear.input_major != 0;
  const double scale = static_cast<double>(linear.scale);
  o.expect(A::kNorms, {lengths(w, a, b, scale, by_input),
                       lengths(magnitudes(w), magnitudes(a), magnitudes(b), std::abs(scale), by_input),
                       o.dimension(A::kA, 0) + 3});
}
void expect_forward(Oracle& o) {
  using A = DoraForward;
  Array y = o.value(A::kZ) * factors(o.value(A::kMagnitudes), o.value(A::kNorms)), size = magnitudes(y);
  if (const Array* bias = o.optional(A::kBias)) y = y + *bias, size = size + magnitudes(*bias);
  o.expect(A::kY, {y, size, 3});
}
void expect_backward(Oracle& o) {
  using A = DoraBackward;
  const Array &z = o.value(A::kZ), &dy = o.value(A::kDy), &norms = o.value(A::kNorms);
  const Array dz = dy * factors(o.value(A::kMagnitudes), norms),
              by_norm = factors(Array(zeros_like(norms) + 1.0), norms);
  o.expect(A::kDz, {dz, magnitudes(dz), 2});
  o.expect(A::kDmagnitudes,
           {xt::sum(dy * z, {0}) * by_norm, xt::sum(magnitudes(dy * z), {0}) * by_norm, o.dimension(A::kZ, 0) + 1});
}
void expect(Oracle& o) {
  if (o.c.pass == Pass::kStatistics) return expect_norms(o);
  o.c.pass == Pass::kForward ? expect_forward(o) : expect_backward(o);
}

// Returns sum(dy * y) as a function of z and the magnitudes. The norms are constants.
Differentiable differentiable(const KernelCase&, CaseData& data) {
  using A = DoraBackward;
  std::vector<Array>& v = data.values;
  return {{v[A::kZ], v[A::kMagnitudes]}, {A::kDz, A::kDmagnitudes}, [&v](const auto& at) {
            return dot(v[A::kDy], at[0] * factors(at[1], v[A::kNorms]));
          }};
}

std::vector<KnownValue> known_values() {
  // The first row of the adapted weight has length 3. The second row is (1, 2) + 2 * 0.5 * (1, 2) =
  // (2, 4).
  const Array w = {{3.0, 0.0}, {1.0, 2.0}}, a = {{1.0, 2.0}, {7.0, 7.0}}, b = {{0.0, 0.0}, {0.5, 0.0}};
  return {{"the lengths of two adapted rows", lengths(w, a, b, 2, false), Array{3.0, std::sqrt(20.0)}, 1e-15}};
}

// ---- wrong kernels ----

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<DoraNorms, [](const KernelContext& k, const DoraNormsArgs& a) {
      DoraNormsArgs unscaled = a;
      unscaled.scale = 1;
      return cpu_dora_norms(k, unscaled);
    }>("dora_norms_forget_the_scale"),
    wrong_kernel<DoraNorms, [](const KernelContext& k, const DoraNormsArgs& a) {
      DoraNormsArgs alone = a;
      alone.scale = 0;
      return cpu_dora_norms(k, alone);
    }>("dora_norms_forget_the_adapter"),
    wrong_kernel<DoraNorms, [](const KernelContext& k, const DoraNormsArgs& a) {
      DoraNormsArgs other_major = a;
      other_major.input_major = a.C == a.K ? !a.input_major : a.input_major;
      return cpu_dora_norms(k, other_major);
    }>("dora_norms_of_columns"),
    wrong_kernel<DoraNorms, [](const KernelContext& k, const DoraNormsArgs& a) {
      const Status status = cpu_dora_norms(k, a);
      for (uint32_t i = 0; i < a.K; ++i) a.norms[i] *= a.norms[i];
      return status;
    }>("dora_norms_squared"),
    wrong_kernel<DoraForward, [](const KernelContext& k, const DoraForwardArgsOf<float>& a) {
      const Status status = cpu_dora_forward(k, a);
      for (uint64_t i = 0; a.bias != nullptr && i < a.M * a.K; ++i) {
        const uint64_t c = i % a.K;
        if (0 < a.norms[c]) a.y[i] += (a.magnitudes[c] / a.norms[c] - 1) * a.bias[c];
      }
      return status;
    }>("dora_scales_its_bias"),
    wrong_kernel<DoraForward, [](const KernelContext& k, const DoraForwardArgsOf<float>& a) {
      const Status status = cpu_dora_forward(k, a);
      for (uint64_t i = 0; i < a.M * a.K; ++i) {
        if (a.norms[i % a.K] == 0) a.y[i] = a.z[i];
      }
      return status;
    }>("dora_keeps_a_row_without_direction"),
    wrong_kernel<DoraBackward, [](const KernelContext& k, const DoraBackwardArgsOf<float>& a) {
      const Status status = cpu_dora_backward(k, a);
      for (uint64_t c = 0; a.dmagnitudes != nullptr && !a.accumulate_dmagnitudes && c < a.K; ++c)
        a.dmagnitudes[c] *= a.magnitudes[c];
      return status;
    }>("dora_gradient_by_the_whole_factor"),
    wrong_kernel<DoraBackward, [](const KernelContext& k, const DoraBackwardArgsOf<float>& a) {
      DoraBackwardArgsOf<float> forgets = a;
      forgets.accumulate_dmagnitudes = false;
      return cpu_dora_backward(k, forgets);
    }>("dora_forgets_to_accumulate"),
};

constexpr Op kFamilyOps[] = {Op::kDora};

}  // namespace

extern constinit const OpFamily kDoraFamily = {.ops = kFamilyOps,
                                               .add_cases = add_cases,
                                               .fit_data = fit_data,
                                               .expect = expect,
                                               .differentiable = differentiable,
                                               .known_values = known_values,
                                               .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
