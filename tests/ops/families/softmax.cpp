// The softmax of rows: cases, data, reference, gradient check and wrong kernels.
#include <algorithm>
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

using Forward = SoftmaxForward;
using Backward = SoftmaxBackward;

// ---- the reference ----

// Softmax of each row, and the magnitude of its error, which comes from rounding each exponential's
// argument and the sum.
struct Softmax {
  Array y, magnitude;
};
Softmax softmax_of(const Array& x) {
  Softmax result{zeros_like(x), zeros_like(x)};
  const size_t C = x.shape(x.dimension() - 1);
  for (size_t first = 0; first < x.size(); first += C) {
    double largest = x.flat(first), sum = 0, moved = 0;
    for (size_t c = 1; c < C; ++c) largest = std::max(largest, x.flat(first + c));
    for (size_t c = 0; c < C; ++c) sum += std::exp(x.flat(first + c) - largest);
    for (size_t c = 0; c < C; ++c) moved += std::exp(x.flat(first + c) - largest) / sum * (largest - x.flat(first + c));
    for (size_t c = 0; c < C; ++c) {
      const double below = largest - x.flat(first + c), y = std::exp(-below) / sum;
      result.y.flat(first + c) = y;
      result.magnitude.flat(first + c) = y * (1 + below + moved);
    }
  }
  return result;
}

// ---- cases ----

void add_softmax(CaseTable& table, std::vector<uint32_t> shape) {
  Tensor x;
  for (const uint32_t d : shape) x.shape[x.rank++] = d;
  x.bytes = align_up(x.used_bytes());
  const std::string tag = "m" + str(x.leading_elements()) + "_c" + str(shape.back());
  table.add<Forward>(tag, {{Forward::kY, x}, {Forward::kX, x}});
  table.add<Backward>(tag, {{Backward::kDx, x}, {Backward::kY, x}, {Backward::kDy, x}});
}
void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_softmax(table, {64, 12, 197, 197});
  add_softmax(table, {1, 1});
  add_softmax(table, {3, 7});
  add_softmax(table, {2, 3, 16});
  add_softmax(table, {2, 2, 49, 49});
  add_softmax(table, {5, 2051});
  add_softmax(table, {700, 33});
}

// ---- data: rows with one number far above or far below the others; y is the softmax of data ----

void fit_data(CaseDraft& draft) {
  const bool backward = draft.c.pass == Pass::kBackward;
  Array& x = draft.value(backward ? uint32_t{Backward::kY} : uint32_t{Forward::kX});
  const size_t C = x.shape(x.dimension() - 1);
  for (double& element : x) element = as_f32(7 * element);
  if (C > 3) x.flat(1) = 1000, x.flat(C - 1) = x.size() > C ? -1000 : x.flat(C - 1);
  if (backward) x = as_f32(softmax_of(x).y);
}

// ---- results of an exponential, a division and a balanced sum of sixteen lanes ----

void expect(Oracle& o) {
  if (o.c.pass == Pass::kForward) {
    const Softmax softmax = softmax_of(o.value(Forward::kX));
    const double C = o.value(Forward::kX).shape().back();
    return o.expect(Forward::kY, {softmax.y, softmax.magnitude, 12 + C / 16});
  }
  const Array &y = o.value(Backward::kY), &dy = o.value(Backward::kDy);
  Expected e{zeros_like(y), zeros_like(y), 0};
  const size_t C = y.shape(y.dimension() - 1);
  for (size_t first = 0; first < y.size(); first += C) {
    double sum = 0, size = 0;
    for (size_t c = first; c < first + C; ++c) sum += y.flat(c) * dy.flat(c), size += std::abs(y.flat(c) * dy.flat(c));
    for (size_t c = first; c < first + C; ++c) {
      e.value.flat(c) = y.flat(c) * (dy.flat(c) - sum);
      e.magnitude.flat(c) = y.flat(c) * (std::abs(dy.flat(c)) + size);
    }
  }
  e.terms = 8 + static_cast<double>(C) / 16;
  o.expect(Backward::kDx, e);
}

// Replaces the saved y by the softmax of a random x, and returns the function of x whose derivative
// the kernel computes.
Differentiable differentiable(const KernelCase& c, CaseData& data) {
  const Array x = random_like(c.tensor(Backward::kDx), c.id);
  data.values[Backward::kY] = softmax_of(x).y;
  return {{x}, {Backward::kDx}, [&data](const auto& at) {
            return dot(data.values[Backward::kDy], softmax_of(at[0]).y);
          }};
}

std::vector<KnownValue> known_values() {
  return {{"softmax of 0 and log 3", softmax_of(Array{0.0, std::log(3.0)}).y, Array{0.25, 0.75}, 1e-15}};
}

// ---- wrong kernels ----

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<Forward, [](const KernelContext&, const SoftmaxForwardArgsOf<float>& a) {
      for (uint64_t r = 0; r < a.M; ++r) {
        float sum = 0;
        for (uint64_t c = 0; c < a.C; ++c) sum += std::exp(a.x[r * a.C + c]);
        for (uint64_t c = 0; c < a.C; ++c) a.y[r * a.C + c] = std::exp(a.x[r * a.C + c]) / sum;
      }
      return ok_status();
    }>("softmax_overflows"),
    wrong_kernel<Forward, [](const KernelContext& k, const SoftmaxForwardArgsOf<float>& a) {
      return cpu_softmax_forward(k, SoftmaxForwardArgsOf<float>{a.y, a.x, 1, static_cast<uint32_t>(a.M * a.C)});
    }>("softmax_of_all_rows_together"),
    wrong_kernel<Backward, [](const KernelContext&, const SoftmaxBackwardArgsOf<float>& a) {
      for (uint64_t i = 0; i < a.M * a.C; ++i) a.dx[i] = a.y[i] * a.dy[i] * (1 - a.y[i]);
      return ok_status();
    }>("softmax_backward_has_the_diagonal_alone"),
};

constexpr Op kFamilyOps[] = {Op::kSoftmax};

}  // namespace

extern constinit const OpFamily kSoftmaxFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable,
    .known_values = known_values, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
