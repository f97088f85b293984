// Max pooling, average pooling and global average pooling: cases, data, reference and gradient
// check.
#include <limits>
#include <tuple>
#include <utility>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"
#include "tests/ref/window.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference, written like the definition ----

struct Pooled {
  Array y;
  Array index;  // r * S + s of the first maximum of the window, which is never padding
};

Pooled max_pool_forward(const Array& x_in, const WindowAttribute& window) {
  const auto x = view<4>(x_in);
  const size_t P = window_rows(x.shape(1), window), Q = window_columns(x.shape(2), window);
  const double lowest = -std::numeric_limits<double>::infinity();
  Pooled out{Array({x.shape(0), P, Q, x.shape(3)}, lowest), Array({x.shape(0), P, Q, x.shape(3)}, -1.0)};
  auto y = view<4>(out.y), index = view<4>(out.index);
  for_each_tap(x.shape(0), x.shape(1), x.shape(2), P, Q, window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t r, size_t s) {
                 for (size_t c = 0; c < x.shape(3); ++c) {
                   if (!(x(n, i, j, c) > y(n, p, q, c))) continue;
                   y(n, p, q, c) = x(n, i, j, c);
                   index(n, p, q, c) = static_cast<double>(r * window.kernel_w + s);
                 }
               });
  return out;
}

Array max_pool_backward(const Array& index_in, const Array& dy_in, size_t H, size_t W, const WindowAttribute& window) {
  const auto index = view<4>(index_in), dy = view<4>(dy_in);
  Array dx_out = zeros({dy.shape(0), H, W, dy.shape(3)});
  auto dx = view<4>(dx_out);
  for_each_tap(dy.shape(0), H, W, dy.shape(1), dy.shape(2), window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t r, size_t s) {
                 for (size_t c = 0; c < dy.shape(3); ++c) {
                   if (index(n, p, q, c) == static_cast<double>(r * window.kernel_w + s))
                     dx(n, i, j, c) += dy(n, p, q, c);
                 }
               });
  return dx_out;
}

// Returns [P,Q]: for each output, 1 / the number of positions that its window averages.
Array shares(size_t H, size_t W, const WindowAttribute& window) {
  const size_t P = window_rows(H, window), Q = window_columns(W, window);
  Array places_out = zeros({P, Q});
  auto places = view<2>(places_out);
  for_each_tap(1, H, W, P, Q, window,
               [&](size_t, size_t p, size_t q, size_t, size_t, size_t, size_t) { places(p, q) += 1; });
  if (window.counts_padding != 0) places_out.fill(window.kernel_h * window.kernel_w);
  return 1.0 / places_out;
}

Array avg_pool_forward(const Array& x_in, const WindowAttribute& window) {
  const auto x = view<4>(x_in);
  const Array share_out = shares(x.shape(1), x.shape(2), window);
  const auto share = view<2>(share_out);
  Array y_out = zeros({x.shape(0), share.shape(0), share.shape(1), x.shape(3)});
  auto y = view<4>(y_out);
  for_each_tap(x.shape(0), x.shape(1), x.shape(2), share.shape(0), share.shape(1), window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t, size_t) {
                 for (size_t c = 0; c < x.shape(3); ++c) y(n, p, q, c) += x(n, i, j, c) * share(p, q);
               });
  return y_out;
}

Array avg_pool_backward(const Array& dy_in, size_t H, size_t W, const WindowAttribute& window) {
  const auto dy = view<4>(dy_in);
  const Array share_out = shares(H, W, window);
  const auto share = view<2>(share_out);
  Array dx_out = zeros({dy.shape(0), H, W, dy.shape(3)});
  auto dx = view<4>(dx_out);
  for_each_tap(dy.shape(0), H, W, dy.shape(1), dy.shape(2), window,
               [&](size_t n, size_t p, size_t q, size_t i, size_t j, size_t, size_t) {
                 for (size_t c = 0; c < dy.shape(3); ++c) dx(n, i, j, c) += dy(n, p, q, c) * share(p, q);
               });
  return dx_out;
}

// Returns the weight of each pixel or position in the mean of its sample. Without starts, all
// positions have equal weights. With starts, only the positions of the first document have a
// weight.
Array pool_shares(size_t N, size_t HW, const std::optional<Array>& starts) {
  Array share = zeros({N, HW});
  for (size_t n = 0; n < N; ++n) {
    size_t end = 1;
    while (end < HW && (!starts || (*starts)(n, end) == 0)) ++end;
    for (size_t i = 0; i < end; ++i) share(n, i) = 1.0 / static_cast<double>(end);
  }
  return share;
}

// Returns the mean of each image or sequence.
Array global_pool_forward(const Array& x, const std::optional<Array>& starts) {
  const size_t N = x.shape(0), C = x.shape(x.dimension() - 1), HW = x.size() / N / C;
  const Array share = pool_shares(N, HW, starts);
  Array y = zeros({N, C});
  for (size_t i = 0; i < x.size(); ++i) y(i / C / HW, i % C) += x.flat(i) * share.flat(i / C);
  return y;
}

Array global_pool_backward(const Array& dy, const Tensor& dx, const std::optional<Array>& starts) {
  Array each = Array(Array::shape_type(dx.shape, dx.shape + dx.rank), 0.0);
  const size_t N = dy.shape(0), C = dy.shape(1), HW = each.size() / N / C;
  const Array share = pool_shares(N, HW, starts);
  for (size_t i = 0; i < each.size(); ++i) each.flat(i) = dy(i / C / HW, i % C) * share.flat(i / C);
  return each;
}
template <typename K>
std::optional<Array> starts_of(const KernelCase& c, const std::vector<Array>& v) {
  return c.has(K::kDocumentStart) ? std::optional(v[K::kDocumentStart]) : std::nullopt;
}

// ---- cases ----

// The input, the output and the index of a pool, and the name of its cases.
struct PoolLayer {
  std::optional<Tensor> x, y, index;
  std::string tag;
};
PoolLayer pool_layer(uint32_t N, uint32_t H, uint32_t W, uint32_t C, const WindowAttribute& a) {
  const uint32_t P = static_cast<uint32_t>(window_rows(H, a)), Q = static_cast<uint32_t>(window_columns(W, a));
  std::string tag = "n" + str(N) + "_" + str(H) + "x" + str(W) + "_c" + str(C) + "_r" + str(a.kernel_h) + "s" +
                    str(a.kernel_w) + "_stride" + str(a.stride_h) + "_pad" + str(a.pad_top);
  const WindowAttribute alike = {a.kernel_h, a.kernel_w, a.stride_h, a.pad_top};
  if (a.rows() != alike.rows() || a.columns() != alike.columns()) {
    for (const WindowSide& side : {a.rows(), a.columns()})
      tag += "_" + str(side.stride) + "d" + str(side.dilation) + "p" + str(side.pad) + "p" + str(side.far_pad);
  }
  return {shaped({N, H, W, C}), shaped({N, P, Q, C}), shaped({N, P, Q, C}, DType::kU8), tag};
}

void add_max_pool(CaseTable& table, uint32_t N, uint32_t H, uint32_t W, uint32_t C, WindowAttribute window,
                  CaseValues data = CaseValues::kPlain, const char* name = "") {
  const auto [x, y, index, layer] = pool_layer(N, H, W, C, window);
  const std::string tag = layer + name;
  using Forward = MaxPoolForward;
  using Backward = MaxPoolBackward;
  table.add<Forward>(tag, {{Forward::kY, y}, {Forward::kIndex, index}, {Forward::kX, x}}, window).data = data;
  table.add<Backward>(tag, {{Backward::kDx, x}, {Backward::kIndex, index}, {Backward::kDy, y}}, window).data = data;
  table.again_accumulating({Backward::kDx});
}

void add_avg_pool(CaseTable& table, uint32_t N, uint32_t H, uint32_t W, uint32_t C, WindowAttribute window) {
  const PoolLayer layer = pool_layer(N, H, W, C, window);
  for (const uint32_t counts_padding : {0u, 1u}) {
    window.counts_padding = counts_padding;
    const std::string tag = layer.tag + (counts_padding != 0 ? "_counts" : "");
    table.add<AvgPoolForward>(tag, {{AvgPoolForward::kY, layer.y}, {AvgPoolForward::kX, layer.x}}, window);
    table.add<AvgPoolBackward>(tag, {{AvgPoolBackward::kDx, layer.x}, {AvgPoolBackward::kDy, layer.y}}, window);
    table.again_accumulating({AvgPoolBackward::kDx});
  }
}

void add_global_pool(CaseTable& table, uint32_t N, uint32_t H, uint32_t W, uint32_t C) {
  const auto x = shaped({N, H, W, C}), y = shaped({N, C});
  const std::string tag = "n" + str(N) + "_" + str(H) + "x" + str(W) + "_c" + str(C);
  table.add<GlobalPoolForward>(tag, {{GlobalPoolForward::kY, y}, {GlobalPoolForward::kX, x}});
  table.add<GlobalPoolBackward>(tag, {{GlobalPoolBackward::kDx, x}, {GlobalPoolBackward::kDy, y}});
  table.again_accumulating({GlobalPoolBackward::kDx});
}

// Adds the mean of sequences, with and without documents.
void add_sequence_pool(CaseTable& table, uint32_t N, uint32_t T, uint32_t C) {
  const auto x = shaped({N, T, C}), y = shaped({N, C});
  const std::string tag = "n" + str(N) + "_t" + str(T) + "_c" + str(C);
  for (const bool documents : {false, true}) {
    const auto starts = documents ? shaped({N, T}, DType::kI32) : std::nullopt;
    const std::string name = tag + (documents ? "_documents" : "");
    table.add<GlobalPoolForward>(name, {{GlobalPoolForward::kY, y},
                                        {GlobalPoolForward::kX, x},
                                        {GlobalPoolForward::kDocumentStart, starts}});
    table.add<GlobalPoolBackward>(name, {{GlobalPoolBackward::kDx, x},
                                         {GlobalPoolBackward::kDy, y},
                                         {GlobalPoolBackward::kDocumentStart, starts}});
    table.again_accumulating({GlobalPoolBackward::kDx});
  }
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) {
    add_max_pool(table, 4, 112, 112, 64, {3, 3, 2, 1});
    return add_avg_pool(table, 4, 56, 56, 64, {3, 3, 1, 1});  // a layer of PoolFormer
  }
  add_max_pool(table, 1, 1, 1, 1, {1, 1, 1, 0});
  add_max_pool(table, 2, 8, 8, 5, {2, 2, 2, 0});
  add_max_pool(table, 2, 9, 7, 17, {3, 3, 2, 1});
  add_max_pool(table, 1, 7, 8, 3, {3, 3, 1, 1});
  add_max_pool(table, 1, 9, 9, 4, {2, 3, 4, 1});     // gaps between the windows
  add_max_pool(table, 1, 8, 7, 35, {3, 3, 2, 1}, CaseValues::kTies, "_ties");
  add_max_pool(table, 2, 5, 5, 6, {3, 3, 2, 1}, CaseValues::kNegative, "_negative");
  add_max_pool(table, 2, 6, 7, 130, {3, 3, 2, 1});
  add_max_pool(table, 1, 5, 9, 64, {1, 3, 1, 0});
  add_max_pool(table, 1, 40, 36, 3, {15, 17, 8, 7}); // the index of a tap is up to 254

  // Windows with unequal sides, with a number of outputs that is rounded up (the last window begins
  // in the last row), with dilation, and with a common divisor of stride and dilation.
  const WindowAttribute unequal = {.kernel_h = 3,
                                   .kernel_w = 2,
                                   .stride_h = 2,
                                   .pad_top = 1,
                                   .stride_w = 3,
                                   .pad_left = 0,
                                   .pad_bottom = 2,
                                   .pad_right = 1};
  const WindowAttribute rounded_up = {
      .kernel_h = 2, .kernel_w = 2, .stride_h = 2, .pad_top = 0, .pad_bottom = 1, .pad_right = 1};
  const WindowAttribute apart = {
      .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .pad_top = 2, .stride_w = 3, .dilation_h = 2, .dilation_w = 3};
  const WindowAttribute common = {
      .kernel_h = 3, .kernel_w = 2, .stride_h = 4, .pad_top = 0, .stride_w = 2, .dilation_h = 6, .dilation_w = 4};
  for (const auto& [H, W, C, window] : {std::tuple(8u, 9u, 7u, unequal), std::tuple(7u, 9u, 20u, rounded_up),
                                        std::tuple(11u, 12u, 18u, apart), std::tuple(17u, 11u, 5u, common)}) {
    add_max_pool(table, 2, H, W, C, window);
    add_avg_pool(table, 2, H, W, C, window);
  }
  add_max_pool(table, 1, 9, 8, 70, {5, 5, 1, 2});
  add_avg_pool(table, 1, 1, 1, 1, {1, 1, 1, 0});
  add_avg_pool(table, 2, 7, 9, 35, {3, 3, 1, 1});
  add_avg_pool(table, 1, 8, 8, 144, {2, 2, 2, 0});
  add_avg_pool(table, 1, 9, 9, 4, {2, 3, 4, 1});

  add_global_pool(table, 1, 1, 1, 1);
  add_global_pool(table, 3, 7, 5, 19);
  add_global_pool(table, 2, 31, 33, 6);
  add_global_pool(table, 1, 2, 2, 130);
  add_sequence_pool(table, 3, 17, 40);
  add_sequence_pool(table, 2, 1, 5);
  add_sequence_pool(table, 7, 33, 16);
}

// ---- data ----

// Sets x to shuffled values that are 1/64 apart, so that in f32 each window has only one maximum.
// For kTies sets -1, 0 or 1 at random, and for kNegative values of at most -1.
void set_pool_input(CaseDraft& draft, Array& x) {
  std::vector<double> order(x.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<double>(i);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draft.random.below(i)]);
  size_t i = 0;
  for (double& element : x) {
    element = as_f32((order[i++] - 0.5 * static_cast<double>(x.size())) / 64);
    if (draft.c.data == CaseValues::kTies) element = static_cast<double>(draft.random.below(3)) - 1;
    if (draft.c.data == CaseValues::kNegative) element = as_f32(-1 - std::abs(element));
  }
}

// Draws a text of random length for each sample. The positions after the text are padding, which is
// a second document. The text of the first sample fills the sample; the text of the second sample
// has one position.
void draw_texts(CaseDraft& draft, Array& starts) {
  for (size_t n = 0; n < starts.shape(0); ++n) {
    const uint64_t T = starts.shape(1), end = n == 0 ? T : n == 1 ? 1 : 1 + draft.random.below(T);
    for (uint64_t t = 0; t < T; ++t) starts(n, t) = t < end ? 0.0 : static_cast<double>(end);
  }
}

void fit_data(CaseDraft& draft) {
  const bool forward = draft.c.pass == Pass::kForward;
  const uint32_t starts = forward ? uint32_t{GlobalPoolForward::kDocumentStart} : GlobalPoolBackward::kDocumentStart;
  if (draft.c.op == Op::kGlobalPool && draft.c.has(starts)) draw_texts(draft, draft.value(starts));
  if (draft.c.op != Op::kMaxPool) return;
  if (draft.c.pass == Pass::kForward) return set_pool_input(draft, draft.value(MaxPoolForward::kX));
  const Tensor& t = draft.c.tensor(MaxPoolBackward::kDx);
  Array x = zeros({t.shape[0], t.shape[1], t.shape[2], t.shape[3]});
  set_pool_input(draft, x);
  draft.value(MaxPoolBackward::kIndex) = max_pool_forward(x, draft.c.as<WindowAttribute>()).index;
}

// ---- results ----

void expect_max_pool(Oracle& o) {
  using A = MaxPoolForward;
  const Pooled pooled = max_pool_forward(o.value(A::kX), o.c.as<WindowAttribute>());
  o.expect(A::kY, exact(pooled.y));
  o.expect(A::kIndex, exact(pooled.index));
}
void expect_max_pool_backward(Oracle& o) {
  using A = MaxPoolBackward;
  const WindowAttribute& window = o.c.as<WindowAttribute>();
  const uint32_t* dx = o.c.tensor(A::kDx).shape;
  const auto spread = [&](const Array& dy) { return max_pool_backward(o.value(A::kIndex), dy, dx[1], dx[2], window); };
  const double overlaps = window.kernel_h * window.kernel_w;
  o.expect(A::kDx, {spread(o.value(A::kDy)), spread(magnitudes(o.value(A::kDy))), overlaps});
}

void expect_avg_pool(Oracle& o) {
  using A = AvgPoolForward;
  const WindowAttribute& window = o.c.as<WindowAttribute>();
  const Array& x = o.value(A::kX);
  o.expect(A::kY, {avg_pool_forward(x, window), avg_pool_forward(magnitudes(x), window),
                   window.kernel_h * window.kernel_w + 2.0});
}
void expect_avg_pool_backward(Oracle& o) {
  using A = AvgPoolBackward;
  const WindowAttribute& window = o.c.as<WindowAttribute>();
  const uint32_t* dx = o.c.tensor(A::kDx).shape;
  const auto spread = [&](const Array& dy) { return avg_pool_backward(dy, dx[1], dx[2], window); };
  o.expect(A::kDx,
           {spread(o.value(A::kDy)), spread(magnitudes(o.value(A::kDy))), window.kernel_h * window.kernel_w + 2.0});
}

void expect_global_pool(Oracle& o) {
  using A = GlobalPoolForward;
  const Array& x = o.value(A::kX);
  const auto starts = starts_of<A>(o.c, o.data.values);
  o.expect(A::kY, {global_pool_forward(x, starts), global_pool_forward(magnitudes(x), starts),
                   static_cast<double>(x.size() / x.shape(0) / x.shape(x.dimension() - 1))});
}
void expect_global_pool_backward(Oracle& o) {
  using A = GlobalPoolBackward;
  const Array dx = global_pool_backward(o.value(A::kDy), o.c.tensor(A::kDx), starts_of<A>(o.c, o.data.values));
  o.expect(A::kDx, {dx, magnitudes(dx), 2});
}

void expect(Oracle& o) {
  const bool forward = o.c.pass == Pass::kForward;
  if (o.c.op == Op::kMaxPool) return forward ? expect_max_pool(o) : expect_max_pool_backward(o);
  if (o.c.op == Op::kAvgPool) return forward ? expect_avg_pool(o) : expect_avg_pool_backward(o);
  forward ? expect_global_pool(o) : expect_global_pool_backward(o);
}

// ---- gradient check ----

// Returns shuffled values with distances of 1/64, so that finite differences do not change the
// maximum.
Array distinct_like(const Tensor& tensor, const std::string& seed) {
  CaseRandom random(seed);
  Array a = random_like(tensor, seed);
  for (size_t i = 0; i < a.size(); ++i) a.flat(i) = static_cast<double>(i) / 64;
  for (size_t i = a.size(); i > 1; --i) std::swap(a.flat(i - 1), a.flat(random.below(i)));
  return a;
}

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  std::vector<Array>& v = data.values;
  using Global = GlobalPoolBackward;
  if (c.op == Op::kGlobalPool) {
    return {{random_like(c.tensor(Global::kDx), c.id)}, {Global::kDx}, [&](const auto& at) {
              return dot(v[Global::kDy], global_pool_forward(at[0], starts_of<Global>(c, v)));
            }};
  }
  const WindowAttribute& window = c.as<WindowAttribute>();
  using Avg = AvgPoolBackward;
  if (c.op == Op::kAvgPool) {
    return {{random_like(c.tensor(Avg::kDx), c.id)}, {Avg::kDx}, [&](const auto& at) {
              return dot(v[Avg::kDy], avg_pool_forward(at[0], window));
            }};
  }
  using A = MaxPoolBackward;
  const Array x = distinct_like(c.tensor(A::kDx), c.id);
  v[A::kIndex] = max_pool_forward(x, window).index;
  return {{x}, {A::kDx}, [&](const auto& at) { return dot(v[A::kDy], max_pool_forward(at[0], window).y); }};
}

std::vector<KnownValue> known_values() {
  Array x = xt::arange(1.0, 10.0);
  x.reshape({1, 3, 3, 1});
  WindowAttribute window = {2, 2, 2, 0};
  window.pad_bottom = window.pad_right = 1;
  const Array inside = avg_pool_forward(x, window);
  window.counts_padding = 1;
  Array texts = {1.0, 3.0, 50.0, 2.0, 4.0, 9.0}, starts = {0.0, 0.0, 2.0, 0.0, 0.0, 0.0}, means = {2.0, 5.0};
  texts.reshape({2, 3, 1}), starts.reshape({2, 3}), means.reshape({2, 1});
  return {{"a mean is of what lies inside", inside, {3, 4.5, 7.5, 9}},
          {"or of the padding too", avg_pool_forward(x, window), {3, 2.25, 3.75, 2.25}},
          {"a text's is without its padding", global_pool_forward(texts, starts), means}};
}

// ---- wrong kernels ----

using GlobalPool = GlobalPoolArgsOf<float>;
template <typename Kernel>
Status of_whole_sequences(const KernelContext& k, const GlobalPool& a, const Kernel& kernel) {
  GlobalPool whole = a;
  whole.document_start = nullptr;
  return kernel(k, whole);
}

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<GlobalPoolForward, [](const KernelContext& k, const GlobalPool& a) {
      return of_whole_sequences(k, a, cpu_global_pool_forward<float>);
    }>("global_pool_of_the_padding_too"),
    wrong_kernel<GlobalPoolForward, [](const KernelContext& k, const GlobalPool& a) {
      const Status status = cpu_global_pool_forward<float>(k, a);
      for (uint64_t i = 0; a.document_start != nullptr && i < uint64_t{a.N} * a.C; ++i) {
        a.out[i] *= static_cast<float>(pooled_positions(a, i / a.C)) / static_cast<float>(a.HW);
      }
      return status;
    }>("global_pool_divides_by_the_padding_too"),
    wrong_kernel<GlobalPoolBackward, [](const KernelContext& k, const GlobalPool& a) {
      return of_whole_sequences(k, a, cpu_global_pool_backward<float>);
    }>("global_pool_backward_of_the_padding_too"),
    wrong_kernel<GlobalPoolBackward, [](const KernelContext& k, const GlobalPool& a) {
      std::vector<float> before(a.out, a.out + uint64_t{a.N} * a.HW * a.C);
      const Status status = cpu_global_pool_backward<float>(k, a);
      for (uint64_t i = 0; i < before.size(); ++i) {
        if (i / a.C % a.HW >= pooled_positions(a, i / a.C / a.HW)) a.out[i] = before[i];
      }
      return status;
    }>("global_pool_backward_leaves_the_padding_as_it_was"),
};

constexpr Op kFamilyOps[] = {Op::kMaxPool, Op::kAvgPool, Op::kGlobalPool};

}  // namespace

extern constinit const OpFamily kPoolFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable,
    .known_values = known_values, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
