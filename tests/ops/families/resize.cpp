// Resizing of images: cases, reference, gradient check and wrong kernels.
#include <algorithm>
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

// Returns the input pixels that output pixel `p` reads, with their weights, in one dimension. `in`
// and `out` are the lengths of input and output. The definition is that of PyTorch's interpolate.
std::vector<std::pair<size_t, double>> weights_of(ResizeKind kind, size_t in, size_t out, size_t p) {
  if (kind == ResizeKind::kNearest) return {{p * in / out, 1.0}};
  const double of_in = static_cast<double>(in), of_out = static_cast<double>(out), at = static_cast<double>(p);
  double place = out > 1 ? at * (of_in - 1) / (of_out - 1) : 0;
  if (kind == ResizeKind::kBilinear) place = std::max(0.0, (at + 0.5) * of_in / of_out - 0.5);
  const size_t low = std::min(in - 1, static_cast<size_t>(place)), high = std::min(in - 1, low + 1);
  const double share = place - static_cast<double>(low);
  return {{low, 1 - share}, {high, share}};
}

// Calls visit(n, i, j, p, q, weight) for each input pixel (i, j) that output pixel (p, q) reads.
template <typename Visit>
void for_each_weight(ResizeKind kind, const Tensor& x, const Tensor& y, const Visit& visit) {
  for (size_t n = 0; n < x.shape[0]; ++n) {
    for (size_t p = 0; p < y.shape[1]; ++p) {
      for (size_t q = 0; q < y.shape[2]; ++q) {
        for (const auto& [i, down] : weights_of(kind, x.shape[1], y.shape[1], p)) {
          for (const auto& [j, across] : weights_of(kind, x.shape[2], y.shape[2], q))
            visit(n, i, j, p, q, down * across);
        }
      }
    }
  }
}

Array resized(const Array& of_x, const Tensor& x, const Tensor& y, ResizeKind kind) {
  Array result = zeros({y.shape[0], y.shape[1], y.shape[2], y.shape[3]});
  auto out = view<4>(result);
  const auto in = view<4>(of_x);
  for_each_weight(kind, x, y, [&](size_t n, size_t i, size_t j, size_t p, size_t q, double weight) {
    for (size_t c = 0; c < x.shape[3]; ++c) out(n, p, q, c) += weight * in(n, i, j, c);
  });
  return result;
}
Array gathered(const Array& of_dy, const Tensor& dx, const Tensor& dy, ResizeKind kind) {
  Array result = zeros({dx.shape[0], dx.shape[1], dx.shape[2], dx.shape[3]});
  auto out = view<4>(result);
  const auto in = view<4>(of_dy);
  for_each_weight(kind, dx, dy, [&](size_t n, size_t i, size_t j, size_t p, size_t q, double weight) {
    for (size_t c = 0; c < dx.shape[3]; ++c) out(n, i, j, c) += weight * in(n, p, q, c);
  });
  return result;
}

ResizeKind kind_of(const KernelCase& c) { return static_cast<ResizeKind>(c.as<ResizeAttribute>().kind); }

void add_resize(CaseTable& table, uint32_t N, uint32_t H, uint32_t W, uint32_t C, uint32_t P, uint32_t Q) {
  const auto x = shaped({N, H, W, C}), y = shaped({N, P, Q, C});
  for (const ResizeKind kind : {ResizeKind::kNearest, ResizeKind::kBilinear, ResizeKind::kBilinearCorners}) {
    const ResizeAttribute attribute = {static_cast<uint32_t>(kind)};
    const std::string tag = "kind" + str(attribute.kind) + "_n" + str(N) + "_" + str(H) + "x" + str(W) + "_to_" +
                            str(P) + "x" + str(Q) + "_c" + str(C);
    using Forward = ResizeForward;
    using Backward = ResizeBackward;
    table.add<Forward>(tag, {{Forward::kY, y}, {Forward::kX, x}}, attribute);
    table.add<Backward>(tag, {{Backward::kDx, x}, {Backward::kDy, y}}, attribute);
    table.again_accumulating({Backward::kDx});
  }
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return;
  add_resize(table, 1, 1, 1, 1, 1, 1);
  add_resize(table, 2, 4, 3, 8, 8, 6);        // twice the size
  add_resize(table, 2, 5, 7, 3, 9, 4);        // larger along one side and smaller along the other
  add_resize(table, 1, 12, 10, 5, 3, 2);      // some input pixels are not read
  add_resize(table, 1, 1, 1, 70, 19, 21);     // all outputs read one pixel; more than 16 rows of dy
  add_resize(table, 1, 6, 1, 4, 1, 5);
  add_resize(table, 2, 7, 6, 130, 14, 13);    // more than 64 channels, which the CPU sums at once
}

// Returns the number of roundings in an element. For a gradient this is an upper bound: at most
// along() output pixels in each dimension read an input pixel.
double terms_of(const KernelCase& c) {
  const bool forward = c.pass == Pass::kForward;
  const Tensor &x = c.tensor(forward ? 1 : 0), &y = c.tensor(forward ? 0 : 1);
  if (forward) return kind_of(c) == ResizeKind::kNearest ? 0 : 6;
  const auto along = [](double in, double out) { return 2 * std::ceil(out / in) + 1; };
  return 2 + along(x.shape[1], y.shape[1]) * along(x.shape[2], y.shape[2]);
}

void expect(Oracle& o) {
  const bool forward = o.c.pass == Pass::kForward;
  const auto result = [&](const Array& in) {
    return forward ? resized(in, o.c.tensor(1), o.c.tensor(0), kind_of(o.c))
                   : gathered(in, o.c.tensor(0), o.c.tensor(1), kind_of(o.c));
  };
  o.expect(0, {result(o.value(1)), result(magnitudes(o.value(1))), terms_of(o.c)});
}

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  using A = ResizeBackward;
  return {{random_like(c.tensor(A::kDx), c.id)}, {A::kDx}, [&c, &data](const auto& at) {
            return dot(data.values[A::kDy], resized(at[0], c.tensor(A::kDx), c.tensor(A::kDy), kind_of(c)));
          }};
}

// Returns the values of PyTorch 2: interpolate([[0, 1, 2]] as an image of one row, size=(1, 5)).
std::vector<KnownValue> known_values() {
  const Tensor x = *shaped({1, 1, 3, 1}), y = *shaped({1, 1, 5, 1});
  Array row = zeros({1, 1, 3, 1});
  for (size_t i = 0; i < 3; ++i) row(0, 0, i, 0) = static_cast<double>(i);
  const auto made = [&](ResizeKind kind) { return Array(xt::flatten(resized(row, x, y, kind))); };
  return {{"the nearest of three pixels", made(ResizeKind::kNearest), Array{0, 0, 1, 1, 2}, 0},
          {"between three pixels", made(ResizeKind::kBilinear), Array{0, 0.4, 1, 1.6, 2}, 1e-15},
          {"between three pixels whose corners stay", made(ResizeKind::kBilinearCorners), Array{0, 0.5, 1, 1.5, 2},
           1e-15}};
}

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<ResizeForward, [](const KernelContext& k, const ResizeForwardArgsOf<float>& a) {
      ResizeForwardArgsOf<float> other = a;
      other.shape.height.interpolates = other.shape.width.interpolates = false;
      return cpu_resize_forward(k, other);
    }>("resize_takes_the_pixel_before"),
    wrong_kernel<ResizeForward, [](const KernelContext& k, const ResizeForwardArgsOf<float>& a) {
      ResizeForwardArgsOf<float> other = a;
      other.shape.width.begin = other.shape.height.begin = 0;
      return cpu_resize_forward(k, other);
    }>("resize_forgets_half_a_pixel"),
    wrong_kernel<ResizeBackward, [](const KernelContext& k, const ResizeBackwardArgsOf<float>& a) {
      ResizeBackwardArgsOf<float> other = a;
      other.accumulate_dx = false;
      return cpu_resize_backward(k, other);
    }>("resize_overwrites_what_it_must_add_to"),
};

constexpr Op kFamilyOps[] = {Op::kResize};

}  // namespace

extern constinit const OpFamily kResizeFamily = {.ops = kFamilyOps,
                                                 .add_cases = add_cases,
                                                 .expect = expect,
                                                 .differentiable = differentiable,
                                                 .known_values = known_values,
                                                 .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
