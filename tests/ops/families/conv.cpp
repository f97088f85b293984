// Convolution, and convolution of an x with folded batch-norm and ReLU: cases, data, reference and
// gradient check.
#include "lib/bf16.h"
#include "lib/cpu/conv/conv_pairs.h"
#include "tests/ops/normalised_input.h"
#include "tests/ref/window.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference, written like the definition ----

// Calls f(k, c, d) for every channel d of x that output channel k reads. c is the channel's index
// in w, which is d's position within its group.
template <typename F>
void for_each_pair(size_t C, size_t K, size_t groups, const F& f) {
  for (size_t k = 0; k < K; ++k)
    for (size_t c = 0; c < C / groups; ++c) f(k, c, k / (K / groups) * (C / groups) + c);
}

Array conv_forward(const Array& x_in, const Array& w_in, const WindowAttribute& window) {
  const auto x = view<4>(x_in), w = view<4>(w_in);
  const size_t P = window_rows(x.shape(1), window), Q = window_columns(x.shape(2), window);
  Array y_out = zeros({x.shape(0), P, Q, w.shape(0)});
  auto y = view<4>(y_out);
  for_each_tap(x.shape(0), x.shape(1), x.shape(2), P, Q, window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t r, size_t s) {
                 for_each_pair(x.shape(3), w.shape(0), window.groups,
                               [&](size_t k, size_t c, size_t d) { y(n, p, q, k) += x(n, i, j, d) * w(k, r, s, c); });
               });
  return y_out;
}

Array conv_backward_data(const Array& dy_in, const Array& w_in, size_t H, size_t W, const WindowAttribute& window) {
  const auto dy = view<4>(dy_in), w = view<4>(w_in);
  const size_t C = w.shape(3) * window.groups;
  Array dx_out = zeros({dy.shape(0), H, W, C});
  auto dx = view<4>(dx_out);
  for_each_tap(dy.shape(0), H, W, dy.shape(1), dy.shape(2), window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t r, size_t s) {
                 for_each_pair(C, w.shape(0), window.groups,
                               [&](size_t k, size_t c, size_t d) { dx(n, i, j, d) += dy(n, p, q, k) * w(k, r, s, c); });
               });
  return dx_out;
}

Array conv_backward_weight(const Array& x_in, const Array& dy_in, const WindowAttribute& window) {
  const auto x = view<4>(x_in), dy = view<4>(dy_in);
  Array dw_out = zeros({dy.shape(3), window.kernel_h, window.kernel_w, x.shape(3) / window.groups});
  auto dw = view<4>(dw_out);
  for_each_tap(x.shape(0), x.shape(1), x.shape(2), dy.shape(1), dy.shape(2), window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t r, size_t s) {
                 for_each_pair(x.shape(3), dy.shape(3), window.groups,
                               [&](size_t k, size_t c, size_t d) { dw(k, r, s, c) += dy(n, p, q, k) * x(n, i, j, d); });
               });
  return dw_out;
}

// ---- cases ----

// Returns for example "_stride2_pad1". Always includes the vertical stride and the padding above.
// Includes the other stride and paddings only if they differ from these, and dilation and groups
// only if they are not 1.
std::string window_tag(const WindowAttribute& a) {
  std::string tag =
      "_stride" + str(a.stride_h) + (a.stride_w == a.stride_h ? "" : "x" + str(a.stride_w)) + "_pad" + str(a.pad_top);
  if (a.pad_left != a.pad_top || a.pad_bottom != a.pad_top || a.pad_right != a.pad_top) {
    tag += "_" + str(a.pad_left) + "_" + str(a.pad_bottom) + "_" + str(a.pad_right);
  }
  if (a.dilation_h != 1 || a.dilation_w != 1) tag += "_dilation" + str(a.dilation_h) + "x" + str(a.dilation_w);
  return a.groups == 1 ? tag : tag + "_groups" + str(a.groups);
}

enum class Bias { kNo, kYes };

void add_conv(CaseTable& table, uint32_t N, uint32_t H, uint32_t W, uint32_t C, uint32_t K, WindowAttribute window,
              Bias bias = Bias::kNo) {
  const uint32_t R = window.kernel_h, S = window.kernel_w, C_of_group = C / window.groups;
  const uint32_t P = static_cast<uint32_t>(window_rows(H, window)),
                 Q = static_cast<uint32_t>(window_columns(W, window));
  const auto x = shaped({N, H, W, C}), y = shaped({N, P, Q, K}), w = shaped({K, R, S, C_of_group});
  const std::string tag = "n" + str(N) + "_" + str(H) + "x" + str(W) + "_c" + str(C) + "_k" + str(K) + "_r" + str(R) +
                          "s" + str(S) + window_tag(window);
  window.statistics_epsilon = 1e-5f;
  const uint64_t work = uint64_t{N} * P * Q * K * R * S * C_of_group;
  const auto c = shaped({C});
  const auto add_forward = [&](const std::string& name, const std::optional<Tensor>& statistics,
                               const std::optional<Tensor>& b = {}) {
    using A = ConvForward;
    table
        .add<A>(name,
                {{A::kY, y}, {A::kMeanOfY, statistics}, {A::kRstdOfY, statistics}, {A::kX, x}, {A::kW, w}, {A::kB, b}},
                window)
        .multiply_adds = work;
  };
  const auto add_norm_forward = [&](const std::string& name, const std::optional<Tensor>& statistics,
                                    const std::optional<Tensor>& b = {}) {
    using A = NormConvForward;
    table
        .add<A>(name,
                {{A::kY, y},
                 {A::kMeanOfY, statistics},
                 {A::kRstdOfY, statistics},
                 {A::kX, x},
                 {A::kW, w},
                 {A::kB, b},
                 {A::kMean, c},
                 {A::kRstd, c},
                 {A::kGamma, c},
                 {A::kBeta, c}},
                window)
        .multiply_adds = work;
  };
  using Data = ConvBackwardData;
  using Weight = ConvBackwardWeight;
  using NormWeight = NormConvBackwardWeight;
  add_forward(tag, {});
  table.add<Data>(tag, {{Data::kDx, x}, {Data::kDy, y}, {Data::kW, w}}, window).multiply_adds = work;
  table.again_accumulating({Data::kDx});
  table.add<Weight>(tag, {{Weight::kDw, w}, {Weight::kX, x}, {Weight::kDy, y}}, window).multiply_adds = work;
  table.again_accumulating({Weight::kDw});
  if (table.is_bench()) return;
  add_forward(tag + "_statistics", shaped({K}));
  if (bias == Bias::kYes) {
    add_forward(tag + "_bias", {}, shaped({K}));
    add_forward(tag + "_bias_statistics", shaped({K}), shaped({K}));
    if (window.groups == 1) add_norm_forward(tag + "_bias", {}, shaped({K}));
    using Transposed = ConvTransposeForward;
    for (const std::optional<Tensor>& b : {std::optional<Tensor>(), c}) {
      table
          .add<Transposed>(tag + (b ? "_bias" : ""),
                           {{Transposed::kY, x}, {Transposed::kX, y}, {Transposed::kW, w}, {Transposed::kB, b}}, window)
          .multiply_adds = work;
    }
  }
  if (window.groups != 1) return;  // batch-norm is not folded into grouped convolutions
  add_norm_forward(tag, {});
  add_norm_forward(tag + "_statistics", shaped({K}));
  table
      .add<NormWeight>(tag,
                       {{NormWeight::kDw, w},
                        {NormWeight::kX, x},
                        {NormWeight::kDy, y},
                        {NormWeight::kMean, c},
                        {NormWeight::kRstd, c},
                        {NormWeight::kGamma, c},
                        {NormWeight::kBeta, c}},
                       window)
      .multiply_adds = work;
  table.again_accumulating({NormWeight::kDw});
}

WindowAttribute grouped(uint32_t groups, WindowAttribute window) {
  window.groups = groups;
  return window;
}
WindowAttribute dilated(uint16_t h, uint16_t w, WindowAttribute window) {
  window.dilation_h = h, window.dilation_w = w;
  return window;
}
WindowAttribute strided(uint16_t h, uint16_t w, WindowAttribute window) {
  window.stride_h = h, window.stride_w = w;
  return window;
}
WindowAttribute padded(uint16_t top, uint16_t left, uint16_t bottom, uint16_t right, WindowAttribute window) {
  window.pad_top = top, window.pad_left = left, window.pad_bottom = bottom, window.pad_right = right;
  return window;
}

void add_bench_cases(CaseTable& table) {
  add_conv(table, 32, 32, 32, 16, 16, {3, 3, 1, 1});  // the three stages of ResNet-20
  add_conv(table, 32, 16, 16, 32, 32, {3, 3, 1, 1});
  add_conv(table, 32, 8, 8, 64, 64, {3, 3, 1, 1});
  add_conv(table, 4, 56, 56, 64, 64, {3, 3, 1, 1});   // layers of ResNet-50
  add_conv(table, 4, 56, 56, 64, 256, {1, 1, 1, 0});
  add_conv(table, 4, 224, 224, 3, 64, {7, 7, 2, 3});
  add_conv(table, 4, 112, 112, 96, 96, grouped(96, {3, 3, 1, 1}));  // layers of MobileNet
  add_conv(table, 4, 56, 56, 144, 144, grouped(144, {3, 3, 2, 1}));
  add_conv(table, 4, 28, 28, 120, 120, grouped(120, {5, 5, 1, 2}));
  add_conv(table, 4, 28, 28, 240, 240, grouped(240, {5, 5, 2, 2}));
  add_conv(table, 4, 56, 56, 96, 96, grouped(96, {7, 7, 1, 3}));  // a layer of ConvNeXt
  add_conv(table, 4, 28, 28, 256, 256, grouped(32, {3, 3, 1, 1}));  // a layer of ResNeXt
}
// Adds windows whose sides differ, windows with dilation or with wide padding, and convolutions
// with a bias; none has groups.
void add_unequal_cases(CaseTable& table) {
  // The next six convolutions have a bias. Depending on the shape, they use a product, Winograd or
  // the direct kernel.
  add_conv(table, 2, 5, 6, 3, 4, {1, 1, 1, 0}, Bias::kYes);
  add_conv(table, 1, 9, 8, 19, 33, {3, 3, 1, 1}, Bias::kYes);
  add_conv(table, 1, 18, 17, 64, 64, padded(1, 0, 1, 2, {3, 3, 1, 1}), Bias::kYes);
  add_conv(table, 2, 9, 8, 16, 48, padded(0, 1, 1, 0, {3, 3, 2, 0}), Bias::kYes);
  add_conv(table, 1, 12, 8, 8, 24, {4, 4, 4, 0}, Bias::kYes);  // each window is a separate patch
  add_conv(table, 2, 5, 6, 3, 4, {1, 1, 2, 0}, Bias::kYes);  // some outputs of the transpose are only the bias
  add_conv(table, 1, 14, 15, 64, 64, {3, 3, 1, 3});  // some windows are entirely in the padding
  add_conv(table, 1, 9, 8, 16, 16, strided(2, 1, {3, 3, 1, 1}));
  add_conv(table, 2, 8, 9, 5, 7, strided(1, 3, {3, 5, 1, 2}));
  add_conv(table, 1, 11, 13, 16, 16, dilated(2, 2, {3, 3, 1, 2}));
  add_conv(table, 1, 9, 9, 3, 5, dilated(2, 2, {3, 3, 2, 1}));  // no tap reads some pixels
  add_conv(table, 2, 10, 11, 4, 6, dilated(2, 3, strided(3, 2, padded(2, 3, 1, 4, {3, 3, 1, 0}))));
  // Stride and dilation have a common divisor larger than 1.
  add_conv(table, 1, 17, 15, 24, 8, dilated(6, 4, strided(4, 6, {3, 3, 1, 5})));
  add_conv(table, 1, 1, 24, 6, 9, padded(0, 4, 0, 0, dilated(1, 2, {1, 3, 1, 0})));  // an image of one line, like sound
}

void add_depthwise_cases(CaseTable& table) {
  add_conv(table, 2, 9, 7, 8, 8, grouped(8, {3, 3, 1, 1}), Bias::kYes);
  add_conv(table, 1, 12, 13, 24, 24, grouped(24, {3, 3, 2, 1}), Bias::kYes);
  add_conv(table, 2, 7, 9, 37, 37, grouped(37, {3, 3, 1, 1}));
  // More than sixteen outputs of a row have all their taps inside the image.
  add_conv(table, 1, 14, 23, 40, 40, grouped(40, {5, 5, 1, 2}));
  add_conv(table, 1, 13, 15, 72, 72, grouped(72, {5, 5, 2, 2}));
  add_conv(table, 1, 9, 10, 19, 19, grouped(19, {7, 7, 1, 3}));
  add_conv(table, 1, 1, 1, 4, 4, grouped(4, {3, 3, 1, 1}));
  add_conv(table, 2, 2, 3, 2, 2, grouped(2, {5, 5, 1, 2}));  // no output has all its taps inside the image
  add_conv(table, 3, 33, 31, 6, 6, grouped(6, {3, 3, 1, 1}));
  add_conv(table, 1, 6, 7, 5, 15, grouped(5, {3, 3, 1, 1}), Bias::kYes);  // several output channels for each input
  add_conv(table, 2, 8, 8, 16, 32, grouped(16, {3, 3, 2, 1}));
  add_conv(table, 1, 11, 9, 20, 20, grouped(20, dilated(2, 2, {3, 3, 1, 2})));
  add_conv(table, 1, 10, 12, 20, 20, grouped(20, dilated(3, 2, strided(2, 3, padded(0, 1, 3, 0, {3, 3, 1, 0})))));
  add_conv(table, 1, 7, 7, 33, 33, grouped(33, {1, 1, 2, 0}));  // no window reads some rows
}

// Adds windows that read common columns at neighbouring positions. The input lengths have all
// remainders modulo 8, the length of a tile. The output lengths have all remainders modulo 4 and
// modulo 16, the length of a run.
void add_depthwise_row_cases(CaseTable& table) {
  for (const uint16_t taps : {uint16_t{3}, uint16_t{5}}) {
    for (uint32_t W = 17; W <= 24; ++W)
      add_conv(table, 1, 3, W, 19, 19, grouped(19, {taps, taps, 1, static_cast<uint16_t>(taps / 2)}));
    for (uint32_t W = 17; W <= 32; ++W)
      add_conv(table, 1, 4, W, 19, 19, grouped(19, {taps, taps, 2, static_cast<uint16_t>(taps / 2)}));
  }
  for (const uint16_t stride : {uint16_t{1}, uint16_t{2}}) {
    add_conv(table, 2, 7, 7, 48, 48, grouped(48, {5, 5, stride, 2}),
             Bias::kYes);  // in most rows some output has a tap outside the image
    add_conv(table, 1, 8, 12, 35, 35, grouped(35, padded(1, 0, 0, 3, {3, 5, stride, 0})), Bias::kYes);  // unequal sides
    add_conv(table, 1, 8, 11, 35, 35, grouped(35, padded(0, 1, 2, 0, {5, 3, stride, 0})), Bias::kYes);
    add_conv(table, 1, 5, 6, 18, 18, grouped(18, padded(2, 4, 4, 4, {3, 3, stride, 0})));  // some windows are outside x
    add_conv(table, 1, 3, 1, 17, 17, grouped(17, {5, 5, stride, 4}));  // more output positions than input columns
  }
  add_conv(table, 1, 7, 18, 21, 21, grouped(21, {7, 7, 1, 3}), Bias::kYes);
}

void add_grouped_cases(CaseTable& table) {
  add_conv(table, 2, 7, 6, 12, 18, grouped(3, {3, 3, 2, 1}), Bias::kYes);
  add_conv(table, 1, 8, 9, 64, 32, grouped(2, {3, 3, 1, 1}));
  add_conv(table, 1, 6, 5, 32, 64, grouped(2, {1, 1, 1, 0}), Bias::kYes);
  add_conv(table, 2, 5, 6, 40, 20, grouped(20, {3, 3, 1, 1}));
  add_conv(table, 1, 9, 9, 16, 16, grouped(4, dilated(2, 2, {3, 3, 2, 2})));
  add_conv(table, 2, 7, 9, 32, 48, grouped(2, {3, 3, 1, 1}));
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_bench_cases(table);
  add_conv(table, 1, 1, 1, 1, 1, {1, 1, 1, 0});
  add_conv(table, 2, 5, 7, 3, 5, {1, 1, 1, 0});
  add_conv(table, 3, 7, 5, 19, 17, {1, 1, 2, 0});    // no window reads some rows
  add_conv(table, 2, 7, 6, 3, 16, {3, 3, 1, 1});
  add_conv(table, 1, 9, 8, 16, 33, {3, 3, 2, 1});
  add_conv(table, 2, 8, 8, 4, 6, {3, 3, 2, 0});      // no window reads the last row and column
  add_conv(table, 1, 1, 1, 5, 3, {3, 3, 1, 1});      // the image is smaller than the window
  add_conv(table, 1, 2, 3, 2, 3, {5, 5, 1, 2});
  add_conv(table, 2, 6, 5, 3, 4, {3, 3, 1, 2});      // the output is larger than the image
  add_conv(table, 1, 8, 9, 2, 3, {2, 2, 3, 0});      // gaps between the windows
  add_conv(table, 2, 9, 7, 3, 4, {5, 3, 2, 1});
  add_conv(table, 1, 6, 11, 2, 3, {1, 4, 1, 0});
  add_conv(table, 1, 17, 19, 3, 10, {7, 7, 2, 3});
  add_conv(table, 1, 14, 11, 3, 36, {7, 7, 2, 3});   // an odd depth, and enough columns for pairs of bf16
  add_conv(table, 1, 3, 43, 16, 72, {1, 1, 1, 0});   // 129 pixels: one more than a CUDA tile
  add_conv(table, 1, 1, 127, 8, 136, {1, 1, 1, 0});  // 127 pixels: one fewer than a CUDA tile
  add_conv(table, 1, 4, 5, 131, 37, {3, 3, 1, 1});   // a sum of 1179 terms
  add_conv(table, 1, 3, 3, 70, 129, {1, 1, 1, 0});
  add_conv(table, 1, 5, 4, 600, 9, {1, 1, 1, 0});    // a sum of 600 terms: more depths than a piece
  add_conv(table, 2, 33, 31, 3, 8, {3, 3, 1, 1});    // 2046 rows and few channels
  add_conv(table, 5, 32, 32, 2, 3, {3, 3, 1, 1});    // a weight's gradient sums 5120 terms
  add_conv(table, 2, 6, 5, 15, 31, {3, 3, 1, 1});    // sizes below, at and above a register
  add_conv(table, 1, 6, 7, 32, 32, {3, 3, 1, 1});
  add_conv(table, 3, 5, 6, 64, 47, {1, 1, 1, 0});
  add_conv(table, 1, 12, 10, 17, 96, {3, 3, 2, 1});
  add_conv(table, 1, 3, 40, 7, 9, {1, 7, 1, 3});
  add_conv(table, 1, 40, 3, 7, 9, {7, 1, 1, 3});     // the padding is wider than the window
  add_conv(table, 2, 4, 4, 8, 520, {1, 1, 1, 0});
  add_conv(table, 1, 8, 8, 30, 300, {3, 3, 1, 1});   // a weight's gradient has 81000 elements
  add_conv(table, 1, 16, 15, 64, 64, {3, 3, 1, 1});  // enough channels and tiles for Winograd
  add_conv(table, 2, 9, 7, 8, 16, {3, 3, 2, 1});     // on tensor cores: a slab contains several taps
  add_conv(table, 1, 11, 13, 24, 8, {7, 7, 2, 3});   // the depths of a tap end inside a slab
  add_conv(table, 2, 7, 9, 136, 40, {1, 1, 2, 0});   // no window reads some rows; the depth ends inside a slab
  add_conv(table, 3, 14, 13, 16, 24, {3, 3, 1, 1});  // more rows than a tile; a weight's gradient in two parts
  add_unequal_cases(table);
  add_depthwise_cases(table);
  add_depthwise_row_cases(table);
  add_grouped_cases(table);
  for (const char* tag :
       {"n2_9x7_c8_k16", "n1_12x13_c24_k24_r3s3_stride2_pad1_groups24", "n2_7x6_c12_k18_r3s3_stride2_pad1_groups3",
        "n3_5x6_c64_k47", "n1_12x10_c17_k96", "n1_16x15_c64_k64"})
    table.again_with_weights(tag, kPlainWeights);
}

// ---- data ----

void fit_data(CaseDraft& draft) {
  if (draft.c.op != Op::kNormConv) return;
  draft.c.pass == Pass::kForward ? set_norm<NormConvForward>(draft) : set_norm<NormConvBackwardWeight>(draft);
}

// ---- results ----

// Indices of the arguments of a product out = a * b. A norm may be folded into operand `a`.
struct Product {
  uint32_t out, a, b;
};
// True if the case computes the gradient of x, or a transposed convolution, which is the same
// computation. The static_assert below checks that the two kernels have the same order of
// arguments.
bool gives_back(const KernelCase& c) { return c.pass == Pass::kBackwardData || c.op == Op::kConvTranspose; }
Product product_of(const KernelCase& c) {
  using Data = ConvBackwardData;
  static_assert(uint32_t{Data::kDx} == ConvTransposeForward::kY && uint32_t{Data::kDy} == ConvTransposeForward::kX);
  if (gives_back(c)) return {Data::kDx, Data::kDy, Data::kW};
  const auto forward = []<typename A>(A) -> Product { return {A::kY, A::kX, A::kW}; };
  const auto weight = []<typename A>(A) -> Product { return {A::kDw, A::kX, A::kDy}; };
  if (c.op == Op::kConv) return c.pass == Pass::kForward ? forward(ConvForward()) : weight(ConvBackwardWeight());
  return c.pass == Pass::kForward ? forward(NormConvForward()) : weight(NormConvBackwardWeight());
}

// Returns the number of terms in the sum that gives one element of the output.
double product_terms(const KernelCase& c) {
  const WindowAttribute& window = c.as<WindowAttribute>();
  const Product product = product_of(c);
  if (c.pass == Pass::kBackwardWeight) return static_cast<double>(c.tensor(product.b).leading_elements());
  return window.kernel_h * window.kernel_w * static_cast<double>(c.tensor(product.a).last_dimension()) / window.groups;
}

// True if the machine multiplies this case in pairs of bf16. A pointwise convolution is computed as
// a linear layer, which multiplies pairs if the depth is even.
bool multiplies_pairs(const KernelCase& c, const CpuMachine& machine) {
  const Product product = product_of(c);
  const Tensor &a = c.tensor(product.a), &b = c.tensor(product.b), &out = c.tensor(product.out);
  const auto& window = c.as<WindowAttribute>();
  const ConvShape s =
      gives_back(c) ? conv_shape(out, a, window) : conv_shape(a, c.pass == Pass::kForward ? out : b, window);
  if (is_pointwise(s) && c.op != Op::kNormConv) return a.last_dimension() % 2 == 0;
  return conv_multiplies_pairs(machine, s,
                               gives_back(c)              ? ConvPass::kData
                               : c.pass == Pass::kForward ? ConvPass::kForward
                                                          : ConvPass::kWeight);
}

// Sets the expected product of a (x or dy) and b (w or dy). For the tolerance, `a_magnitude`
// replaces |a|, and `more_terms` is added to the number of terms.
void expect_product(Oracle& o, const Array& a, const Array& a_magnitude, const Array& b, double more_terms) {
  const WindowAttribute& window = o.c.as<WindowAttribute>();
  const uint32_t out = product_of(o.c).out;
  const auto multiply = [&](const Array& left, const Array& right) {
    const uint32_t* dx = o.c.tensor(out).shape;
    if (gives_back(o.c)) return conv_backward_data(left, right, dx[1], dx[2], window);
    if (o.c.pass == Pass::kForward) return conv_forward(left, right, window);
    return conv_backward_weight(left, right, window);
  };
  Expected expected = {multiply(a, b), multiply(a_magnitude, magnitudes(b)), product_terms(o.c) + more_terms};
  static_assert(uint32_t{ConvForward::kB} == NormConvForward::kB);
  const uint32_t b_at = o.c.op == Op::kConvTranspose ? uint32_t{ConvTransposeForward::kB} : uint32_t{ConvForward::kB};
  if (o.c.pass == Pass::kForward && o.c.has(b_at)) {
    const Array& bias = o.value(b_at);
    expected = {expected.value + bias, expected.magnitude + magnitudes(bias), expected.terms + 1};
  }
  o.expect(out, std::move(expected));
}

// Returns the operand as a kernel multiplies it: rounded to bf16 if `math` is f32, and otherwise
// converted by `math`.
Array operand_of(const Array& a, ProductMath math) {
  Array rounded = a;
  for (double& element : rounded) {
    element = math == ProductMath::kF32 ? double{float{Bf16(static_cast<float>(element))}}
                                        : as_multiplied(math, double{static_cast<float>(element)});
  }
  return rounded;
}
// Returns the distance between the operands to which a - error and a + error are rounded. A
// kernel's f32 operand is between a - error and a + error. The distance is zero for nearly all
// elements.
Array operand_magnitude(const Array& a, const Array& error, ProductMath math) {
  return operand_of(xt::maximum(a + error, 0.0), math) - operand_of(xt::maximum(a - error, 0.0), math);
}

// Sets the expected result of a product whose operand a is relu(norm(x)). ReLU does not enlarge an
// error. norm(x) has four roundings, which add four to the number of terms.
template <typename K>
void expect_folded(Oracle& o, const Array& b) {
  const Array norm = normalised_input<K>(o), a = xt::maximum(norm, 0.0), magnitude = normalised_input_magnitude<K>(o);
  const Multiplier& multiplier = o.data.multiplier;
  const bool rounds = multiplier.tensor_cores || multiplier.math != ProductMath::kF32 ||
                      (multiplier.pairs != nullptr && multiplies_pairs(o.c, *multiplier.pairs));
  if (!rounds) return expect_product(o, a, magnitude, b, 4);
  // If the kernel rounds operand a, the f32 error of an element vanishes, unless the element is
  // near a tie and may round to either side. Then the error is the distance of the two rounded
  // values, which is added to the magnitude.
  const double terms = product_terms(o.c);
  const Array space = operand_magnitude(norm, kSafety * kRounding * std::sqrt(4.0) * magnitude, multiplier.math);
  const Array rounded = operand_of(a, multiplier.math);
  expect_product(o, rounded, rounded + space / (kSafety * kRounding * std::sqrt(terms)), b, 0);
}
void expect(Oracle& o) {
  const Product product = product_of(o.c);
  const Array &a = o.value(product.a), &b = o.value(product.b);
  if (o.c.op != Op::kNormConv) return expect_product(o, a, magnitudes(a), b, 0);
  o.c.pass == Pass::kForward ? expect_folded<NormConvForward>(o, b) : expect_folded<NormConvBackwardWeight>(o, b);
}

// Sets the expected statistics of y, computed from y as the kernel stored it.
template <typename K>
void expect_statistics(const KernelCase& c, const StoredOutput& stored, CaseExpected& want) {
  if (!c.has(K::kMeanOfY)) return;
  const ExpectedStatistics statistics =
      expected_statistics(stored(K::kY), static_cast<double>(c.as<WindowAttribute>().statistics_epsilon));
  want.outputs[K::kMeanOfY] = statistics.mean;
  want.outputs[K::kRstdOfY] = statistics.rstd;
}
void expect_from_stored(const KernelCase& c, const StoredOutput& stored, CaseExpected& want) {
  if (c.pass != Pass::kForward || c.op == Op::kConvTranspose) return;
  c.op == Op::kConv ? expect_statistics<ConvForward>(c, stored, want)
                    : expect_statistics<NormConvForward>(c, stored, want);
}

// Returns the arguments that tensor cores multiply. Requires that both operands have a multiple of
// four channels, that the second operand is f32, and that there are neither groups nor dilation.
// The window's lines and columns must together be fewer than 32. Otherwise returns none. An operand
// with a folded norm is omitted, because it is converted after the norm.
std::optional<std::vector<uint32_t>> tensor_operands(const KernelCase& c) {
  const WindowAttribute& window = c.as<WindowAttribute>();
  const Product product = product_of(c);
  const auto fills = [&](uint32_t argument) { return c.tensor(argument).last_dimension() % 4 == 0; };
  const bool plain =
      window.groups == 1 && window.dilation_h == 1 && window.dilation_w == 1 && window.kernel_h + window.kernel_w < 32;
  if (!plain || !fills(product.a) || !fills(product.b) || c.tensor(product.b).dtype != DType::kF32) return std::nullopt;
  if (c.op == Op::kNormConv) return std::vector<uint32_t>{product.b};
  return std::vector<uint32_t>{product.a, product.b};
}

std::vector<uint32_t> rounded_weights(const KernelCase& c, const CpuMachine& machine) {
  if (c.pass == Pass::kBackwardWeight || !multiplies_pairs(c, machine)) return {};
  return {product_of(c).b};
}

// ---- gradient check ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  const std::vector<Array>& v = data.values;
  const WindowAttribute& window = c.as<WindowAttribute>();
  const Product product = product_of(c);
  const Array &a = v[product.a], &b = v[product.b], point = random_like(c.tensor(product.out), c.id);
  if (c.pass == Pass::kBackwardData) {
    return {{point}, {product.out}, [&](const auto& at) { return dot(a, conv_forward(at[0], b, window)); }};
  }
  using A = NormConvBackwardWeight;
  const auto cut = [&]() -> Array {
    return xt::maximum(batch_norm_forward(a, {v[A::kMean], v[A::kRstd]}, v[A::kGamma], v[A::kBeta]), 0.0);
  };
  const Array x = c.op == Op::kConv ? a : cut();
  return {{point}, {product.out}, [&, x](const auto& at) { return dot(b, conv_forward(x, at[0], window)); }};
}

std::vector<KnownValue> known_values() {
  const Array taps = conv_forward(Array({1, 3, 4, 2}, 1.0), Array({1, 3, 3, 2}, 1.0), {3, 3, 1, 1});
  Array x = xt::arange(25.0), w = xt::arange(1.0, 5.0);
  x.reshape({1, 5, 5, 1});
  w.reshape({1, 2, 2, 1});
  const Array strided = conv_forward(x, w, {2, 2, 3, 1});  // windows start at rows and columns -1 and 2
  Array line = xt::arange(1.0, 4.0), ramp = {10.0, 1.0}, pair = {3.0, 5.0}, each = {2.0, 7.0, 9.0, 4.0};
  line.reshape({1, 1, 3, 1}), ramp.reshape({1, 1, 2, 1}), pair.reshape({1, 1, 1, 2}), each.reshape({4, 1, 1, 1});
  return {{"a convolution counts the taps inside", taps, {8, 12, 12, 8, 12, 18, 18, 12, 8, 12, 12, 8}},
          {"a convolution is a correlation with a stride",
           strided,
           {0, 3 * 2 + 4 * 3.0, 2 * 10 + 4 * 15.0, 12 + 2 * 13 + 3 * 17 + 4 * 18.0}},
          {"a dilated window leaves pixels out",
           conv_forward(x, w, dilated(2, 2, {2, 2, 1, 0})),
           {82, 92, 102, 132, 142, 152, 182, 192, 202}},
          {"padding may be on one side", conv_forward(line, ramp, padded(0, 1, 0, 0, {1, 2, 1, 0})), {1, 12, 23}},
          {"the channels of a group see their own inputs alone",
           conv_forward(pair, each, grouped(2, {1, 1, 1, 0})),
           {2 * 3, 7 * 3, 9 * 5, 4 * 5}}};
}

constexpr Op kFamilyOps[] = {Op::kConv, Op::kNormConv, Op::kConvTranspose};

}  // namespace

extern constinit const OpFamily kConvFamily = {.ops = kFamilyOps,
                                               .multiplies = true,
                                               .add_cases = add_cases,
                                               .fit_data = fit_data,
                                               .expect = expect,
                                               .expect_from_stored = expect_from_stored,
                                               .differentiable = differentiable,
                                               .rounded_weights = rounded_weights,
                                               .tensor_operands = tensor_operands,
                                               .known_values = known_values};

}  // namespace reprise::test
