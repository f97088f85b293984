// Linear layers: cases, reference and slope.
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
    add(Pass::kForward, tag, {y, x, w, b});
    if (!table.is_bench()) add(Pass::kForward, tag + "_no_bias", {y, x, w, {}});
    add(Pass::kBackwardData, tag, {x, y, w});
    table.again_accumulating(1);
    add(Pass::kBackwardWeight, tag, {w, x, y});
    table.again_accumulating(1);
  }
  table.add(Op::kLinear, Pass::kBackwardBias, "m" + str(M) + "_k" + str(K) + "_c" + str(C), {b, y});
  table.again_accumulating(1);
}

void add_bench_cases(CaseTable& table) {
  add_linear(table, 1024, 768, 768);
  add_linear(table, 1024, 768, 3072);
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
  for (const char* tag : {"m7_c13_k5", "m65_c130_k67", "m40_c300_k530"}) table.again_with_bf16_weights(tag);
}

// ---- results ----

void expect(Oracle& o) {
  const Array &a = o.value(1), a_magnitude = magnitudes(a);
  if (o.c.pass == Pass::kBackwardBias) return o.expect(0, {xt::sum(a, {0}), xt::sum(a_magnitude, {0}), o.dimension(1, 0)});
  const bool by_input = o.c.as<LinearAttribute>().input_major != 0;
  const Array &b = o.value(2), b_magnitude = magnitudes(b);
  if (o.c.pass == Pass::kForward) {
    const Array bias_magnitude = o.c.has(3) ? magnitudes(o.value(3)) : Array();
    return o.expect(0, {linear_forward(a, b, o.optional(3), by_input),
                        linear_forward(a_magnitude, b_magnitude, o.c.has(3) ? &bias_magnitude : nullptr, by_input), o.dimension(1, 1) + 1});
  }
  if (o.c.pass == Pass::kBackwardData) {
    return o.expect(0, {linear_backward_data(a, b, by_input), linear_backward_data(a_magnitude, b_magnitude, by_input), o.dimension(1, 1)});
  }
  o.expect(0, {linear_backward_weight(a, b, by_input), linear_backward_weight(a_magnitude, b_magnitude, by_input), o.dimension(1, 0)});
}

// Where the depth of the product is even.
std::optional<uint32_t> rounded_weights(const KernelCase& c) {
  const bool reads_weights = c.pass == Pass::kForward || c.pass == Pass::kBackwardData;
  return reads_weights && c.tensor(1).last_dimension() % 2 == 0 ? std::optional(2u) : std::nullopt;
}

// ---- slope ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  const std::vector<Array>& v = data.values;
  const Array point = random_like(c.tensor(0), c.id);
  if (c.pass == Pass::kBackwardBias) return {{point}, {0}, [&](const auto& at) { return dot(v[1], xt::zeros_like(v[1]) + at[0]); }};
  const bool by_input = c.as<LinearAttribute>().input_major != 0;
  if (c.pass == Pass::kBackwardData) {
    return {{point}, {0}, [&, by_input](const auto& at) { return dot(v[1], linear_forward(at[0], v[2], nullptr, by_input)); }};
  }
  return {{point}, {0}, [&, by_input](const auto& at) { return dot(v[2], linear_forward(v[1], at[0], nullptr, by_input)); }};
}

constexpr Op kFamilyOps[] = {Op::kLinear};

}  // namespace

extern constinit const OpFamily kLinearFamily = {.ops = kFamilyOps, .multiplies = true, .add_cases = add_cases, .expect = expect,
                                                 .differentiable = differentiable, .rounded_weights = rounded_weights};

}  // namespace reprise::test
