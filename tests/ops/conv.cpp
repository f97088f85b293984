// Convolution, and convolution of what a folded batch-norm and ReLU make of x: cases, data, reference and slope.
#include "lib/bf16.h"
#include "tests/ops/normalised_input.h"
#include "tests/ref/window.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference, straight from the definition ----

Array conv_forward(const Array& x_in, const Array& w_in, const WindowAttribute& window) {
  const auto x = view<4>(x_in), w = view<4>(w_in);
  const size_t P = window_positions(x.shape(1), window.kernel_h, window);
  const size_t Q = window_positions(x.shape(2), window.kernel_w, window);
  Array y_out = zeros({x.shape(0), P, Q, w.shape(0)});
  auto y = view<4>(y_out);
  for_each_tap(x.shape(0), x.shape(1), x.shape(2), P, Q, window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t r, size_t s) {
                 for (size_t k = 0; k < w.shape(0); ++k)
                   for (size_t c = 0; c < w.shape(3); ++c) y(n, p, q, k) += x(n, i, j, c) * w(k, r, s, c);
               });
  return y_out;
}

Array conv_backward_data(const Array& dy_in, const Array& w_in, size_t H, size_t W, const WindowAttribute& window) {
  const auto dy = view<4>(dy_in), w = view<4>(w_in);
  Array dx_out = zeros({dy.shape(0), H, W, w.shape(3)});
  auto dx = view<4>(dx_out);
  for_each_tap(dy.shape(0), H, W, dy.shape(1), dy.shape(2), window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t r, size_t s) {
                 for (size_t k = 0; k < w.shape(0); ++k)
                   for (size_t c = 0; c < w.shape(3); ++c) dx(n, i, j, c) += dy(n, p, q, k) * w(k, r, s, c);
               });
  return dx_out;
}

Array conv_backward_weight(const Array& x_in, const Array& dy_in, const WindowAttribute& window) {
  const auto x = view<4>(x_in), dy = view<4>(dy_in);
  Array dw_out = zeros({dy.shape(3), window.kernel_h, window.kernel_w, x.shape(3)});
  auto dw = view<4>(dw_out);
  for_each_tap(x.shape(0), x.shape(1), x.shape(2), dy.shape(1), dy.shape(2), window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t r, size_t s) {
                 for (size_t k = 0; k < dy.shape(3); ++k)
                   for (size_t c = 0; c < x.shape(3); ++c) dw(k, r, s, c) += dy(n, p, q, k) * x(n, i, j, c);
               });
  return dw_out;
}

// ---- cases ----

void add_conv(CaseTable& table, uint32_t N, uint32_t H, uint32_t W, uint32_t C, uint32_t K, WindowAttribute window) {
  const uint32_t R = window.kernel_h, S = window.kernel_w;
  const uint32_t P = (H + 2u * window.pad - R) / window.stride + 1, Q = (W + 2u * window.pad - S) / window.stride + 1;
  const auto x = shaped({N, H, W, C}), y = shaped({N, P, Q, K}), w = shaped({K, R, S, C});
  const std::string tag = "n" + str(N) + "_" + str(H) + "x" + str(W) + "_c" + str(C) + "_k" + str(K) + "_r" + str(R) + "s" + str(S) +
                          "_stride" + str(window.stride) + "_pad" + str(window.pad);
  window.statistics_epsilon = 1e-5f;
  const auto add = [&](Op op, Pass pass, const std::string& name, CaseTable::Arguments arguments) {
    table.add(op, pass, name, std::move(arguments), window).multiply_adds = uint64_t{N} * P * Q * K * R * S * C;
  };
  const auto k = shaped({K}), c = shaped({C});
  add(Op::kConv, Pass::kForward, tag, {y, {}, {}, x, w});
  add(Op::kConv, Pass::kBackwardData, tag, {x, y, w});
  table.again_accumulating(1);
  add(Op::kConv, Pass::kBackwardWeight, tag, {w, x, y});
  table.again_accumulating(1);
  if (table.is_bench()) return;
  add(Op::kConv, Pass::kForward, tag + "_statistics", {y, k, k, x, w});
  add(Op::kNormConv, Pass::kForward, tag, {y, {}, {}, x, w, c, c, c, c});
  add(Op::kNormConv, Pass::kForward, tag + "_statistics", {y, k, k, x, w, c, c, c, c});
  add(Op::kNormConv, Pass::kBackwardWeight, tag, {w, x, y, c, c, c, c});
  table.again_accumulating(1);
}

void add_bench_cases(CaseTable& table) {
  add_conv(table, 32, 32, 32, 16, 16, {3, 3, 1, 1});  // ResNet-20's three stages
  add_conv(table, 32, 16, 16, 32, 32, {3, 3, 1, 1});
  add_conv(table, 32, 8, 8, 64, 64, {3, 3, 1, 1});
  add_conv(table, 4, 56, 56, 64, 64, {3, 3, 1, 1});   // ResNet-50
  add_conv(table, 4, 56, 56, 64, 256, {1, 1, 1, 0});
  add_conv(table, 4, 224, 224, 3, 64, {7, 7, 2, 3});
}
void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_bench_cases(table);
  add_conv(table, 1, 1, 1, 1, 1, {1, 1, 1, 0});
  add_conv(table, 2, 5, 7, 3, 5, {1, 1, 1, 0});
  add_conv(table, 3, 7, 5, 19, 17, {1, 1, 2, 0});    // rows that no window reads
  add_conv(table, 2, 7, 6, 3, 16, {3, 3, 1, 1});
  add_conv(table, 1, 9, 8, 16, 33, {3, 3, 2, 1});
  add_conv(table, 2, 8, 8, 4, 6, {3, 3, 2, 0});      // the last row and column are in no window
  add_conv(table, 1, 1, 1, 5, 3, {3, 3, 1, 1});      // the input is smaller than the window
  add_conv(table, 1, 2, 3, 2, 3, {5, 5, 1, 2});
  add_conv(table, 2, 6, 5, 3, 4, {3, 3, 1, 2});      // the output is larger than the input
  add_conv(table, 1, 8, 9, 2, 3, {2, 2, 3, 0});      // gaps between the windows
  add_conv(table, 2, 9, 7, 3, 4, {5, 3, 2, 1});
  add_conv(table, 1, 6, 11, 2, 3, {1, 4, 1, 0});
  add_conv(table, 1, 17, 19, 3, 10, {7, 7, 2, 3});
  add_conv(table, 1, 4, 5, 131, 37, {3, 3, 1, 1});   // a long reduction: 1179 terms
  add_conv(table, 1, 3, 3, 70, 129, {1, 1, 1, 0});
  add_conv(table, 1, 5, 4, 600, 9, {1, 1, 1, 0});    // longer than a usual K panel
  add_conv(table, 2, 33, 31, 3, 8, {3, 3, 1, 1});    // many rows: 2046, and few channels
  add_conv(table, 5, 32, 32, 2, 3, {3, 3, 1, 1});    // 5120 terms in a weight's gradient
  add_conv(table, 2, 6, 5, 15, 31, {3, 3, 1, 1});    // around the widths of registers
  add_conv(table, 1, 6, 7, 32, 32, {3, 3, 1, 1});
  add_conv(table, 3, 5, 6, 64, 47, {1, 1, 1, 0});
  add_conv(table, 1, 12, 10, 17, 96, {3, 3, 2, 1});
  add_conv(table, 1, 3, 40, 7, 9, {1, 7, 1, 3});
  add_conv(table, 1, 40, 3, 7, 9, {7, 1, 1, 3});     // padding beyond the window's width
  add_conv(table, 2, 4, 4, 8, 520, {1, 1, 1, 0});
  add_conv(table, 1, 8, 8, 30, 300, {3, 3, 1, 1});   // many outputs in a weight's gradient: 81000
  add_conv(table, 1, 16, 15, 64, 64, {3, 3, 1, 1});  // enough channels and tiles for a transform
  add_conv(table, 2, 9, 7, 8, 16, {3, 3, 2, 1});     // tensor cores: a chunk of channels, several taps in a slab
  add_conv(table, 1, 11, 13, 24, 8, {7, 7, 2, 3});   // a tap ends within a slab
  add_conv(table, 2, 7, 9, 136, 40, {1, 1, 2, 0});   // rows that no window reads, and a slab that ends within a stage
  add_conv(table, 3, 14, 13, 16, 24, {3, 3, 1, 1});  // more rows than a tile has, and a weight's gradient in two parts
  for (const char* tag : {"n2_9x7_c8_k16", "n3_5x6_c64_k47", "n1_12x10_c17_k96", "n1_16x15_c64_k64"}) table.again_with_weights(tag, kPlainWeights);
}

// ---- data ----

void fit_data(CaseDraft& draft) {
  if (draft.c.op == Op::kConv) return;
  draft.c.pass == Pass::kForward ? set_norm(draft, 3, 5) : set_norm(draft, 1, 3);
}

// ---- results ----

// Of each element's sum.
double product_terms(const KernelCase& c) {
  const auto dimension = [&](uint32_t argument, uint32_t d) { return static_cast<double>(c.tensor(argument).shape[d]); };
  const WindowAttribute& window = c.as<WindowAttribute>();
  if (c.pass == Pass::kBackwardWeight) return dimension(2, 0) * dimension(2, 1) * dimension(2, 2);
  return window.kernel_h * window.kernel_w * (c.pass == Pass::kForward ? dimension(3, 3) : dimension(1, 3));
}

// The operands x or dy, w or dy, and what stands in the place of their absolute values.
void expect_product(Oracle& o, const Array& a, const Array& a_magnitude, const Array& b, double more_terms) {
  const WindowAttribute& window = o.c.as<WindowAttribute>();
  const Array b_magnitude = magnitudes(b);
  const double terms = product_terms(o.c) + more_terms;
  if (o.c.pass == Pass::kForward) {
    return o.expect(0, {conv_forward(a, b, window), conv_forward(a_magnitude, b_magnitude, window), terms});
  }
  if (o.c.pass == Pass::kBackwardData) {
    const uint32_t* dx = o.c.tensor(0).shape;
    return o.expect(0, {conv_backward_data(a, b, dx[1], dx[2], window), conv_backward_data(a_magnitude, b_magnitude, dx[1], dx[2], window), terms});
  }
  o.expect(0, {conv_backward_weight(a, b, window), conv_backward_weight(a_magnitude, b_magnitude, window), terms});
}

// What may be rounded to bf16 either way, because an f32 that is off by `error` may lie beyond the middle between two of them: so far apart
// are the two. It is zero for nearly all.
Array bf16_of(const Array& a) {
  Array rounded = a;
  for (double& element : rounded) element = double{float{Bf16(static_cast<float>(element))}};
  return rounded;
}
Array spread_in_bf16(const Array& a, const Array& error) {
  return bf16_of(xt::maximum(a + error, 0.0)) - bf16_of(xt::maximum(a - error, 0.0));
}

// The error of a product is that of its sum, and that of a, which no cut makes larger. Four roundings make norm(x), so beside the
// sum's roundings each term has as many as norm(x) has.
void expect(Oracle& o) {
  const uint32_t in = o.c.pass == Pass::kForward ? 3 : 1;
  if (o.c.op == Op::kConv) return expect_product(o, o.value(in), magnitudes(o.value(in)), o.value(in + 1), 0);
  const Array a = xt::maximum(normalised_input(o, in, in + 2), 0.0);
  const Array magnitude = normalised_input_magnitude(o, in, in + 2);
  if (!o.data.rounds_folded) return expect_product(o, a, magnitude, o.value(in + 1), 4);
  // An operand that is rounded has no error but where it may be rounded either way: there it may be off by what lies between.
  const double terms = product_terms(o.c);
  const Array room = spread_in_bf16(normalised_input(o, in, in + 2), kSafety * kRounding * std::sqrt(4.0) * magnitude);
  const Array rounded = bf16_of(a);
  expect_product(o, rounded, rounded + room / (kSafety * kRounding * std::sqrt(terms)), o.value(in + 1), 0);
}

// Statistics are those of y as it lies in memory.
void expect_from_stored(const KernelCase& c, const StoredOutput& stored, CaseExpected& want) {
  if (c.pass != Pass::kForward || !c.has(1)) return;
  const ExpectedStatistics statistics = expected_statistics(stored(0), static_cast<double>(c.as<WindowAttribute>().statistics_epsilon));
  want.outputs[1] = statistics.mean;
  want.outputs[2] = statistics.rstd;
}

// A pointwise convolution is a linear layer, and rounds as one where the depth of the product is even.
std::vector<uint32_t> rounded_weights(const KernelCase& c) {
  const WindowAttribute& w = c.as<WindowAttribute>();
  const bool is_pointwise = c.op == Op::kConv && w.kernel_h * w.kernel_w * w.stride == 1 && w.pad == 0;
  if (!is_pointwise || c.pass == Pass::kBackwardWeight) return {};
  const uint32_t weights = c.pass == Pass::kForward ? 4 : 2;
  return c.tensor(weights - 1).last_dimension() % 2 == 0 ? std::vector<uint32_t>{weights} : std::vector<uint32_t>{};
}

// ---- slope ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  const std::vector<Array>& v = data.values;
  const WindowAttribute& window = c.as<WindowAttribute>();
  const Array point = random_like(c.tensor(0), c.id);
  if (c.pass == Pass::kBackwardData) {
    return {{point}, {0}, [&](const auto& at) { return dot(v[1], conv_forward(at[0], v[2], window)); }};
  }
  const Array x = c.op == Op::kConv ? v[1] : Array(xt::maximum(batch_norm_forward(v[1], {v[3], v[4]}, v[5], v[6]), 0.0));
  return {{point}, {0}, [&, x](const auto& at) { return dot(v[2], conv_forward(x, at[0], window)); }};
}

std::vector<KnownValue> known_values() {
  const Array taps = conv_forward(Array({1, 3, 4, 2}, 1.0), Array({1, 3, 3, 2}, 1.0), {3, 3, 1, 1});
  Array x = xt::arange(25.0), w = xt::arange(1.0, 5.0);
  x.reshape({1, 5, 5, 1});
  w.reshape({1, 2, 2, 1});
  const Array strided = conv_forward(x, w, {2, 2, 3, 1});  // windows start at rows and columns -1 and 2
  return {{"a convolution counts the taps inside", taps, {8, 12, 12, 8, 12, 18, 18, 12, 8, 12, 12, 8}},
          {"a convolution is a correlation with a stride", strided,
           {0, 3 * 2 + 4 * 3.0, 2 * 10 + 4 * 15.0, 12 + 2 * 13 + 3 * 17 + 4 * 18.0}}};
}

constexpr Op kFamilyOps[] = {Op::kConv, Op::kNormConv};

}  // namespace

extern constinit const OpFamily kConvFamily = {
    .ops = kFamilyOps, .multiplies = true, .add_cases = add_cases, .fit_data = fit_data, .expect = expect,
    .expect_from_stored = expect_from_stored, .differentiable = differentiable, .rounded_weights = rounded_weights,
    .known_values = known_values};

}  // namespace reprise::test
