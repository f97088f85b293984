// Products and sums with a second operand that is broadcast: cases, reference, gradient check and
// wrong kernels.
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

using Dimensions = std::vector<uint32_t>;

std::optional<Tensor> tensor_of(const Dimensions& dimensions) {
  Tensor tensor;
  tensor.rank = 0;
  for (const uint32_t d : dimensions) tensor.shape[tensor.rank++] = d;
  tensor.bytes = align_up(tensor.used_bytes());
  return tensor;
}
std::string shape_tag(const Dimensions& dimensions) {
  std::string tag;
  for (const uint32_t d : dimensions) tag += (tag.empty() ? "" : "x") + str(d);
  return tag.empty() ? "scalar" : tag;
}

// ---- the reference: finds the element of b for each element of a by its coordinates ----

std::vector<size_t> places_in(const Tensor& a, const Tensor& b) {
  std::vector<size_t> places(a.elements());
  for (size_t i = 0; i < places.size(); ++i) {
    size_t rest = i, place = 0, stride = 1;
    for (uint32_t back = 1; back <= a.rank; ++back) {
      const size_t size = a.shape[a.rank - back], coordinate = rest % size;
      rest /= size;
      if (back > b.rank) continue;
      const size_t own = b.shape[b.rank - back];
      place += own == 1 ? 0 : coordinate * stride;
      stride *= own;
    }
    places[i] = place;
  }
  return places;
}

// ---- cases ----

void add_broadcast(CaseTable& table, const Dimensions& a_shape, const Dimensions& b_shape) {
  const auto a = tensor_of(a_shape), b = tensor_of(b_shape);
  const std::string tag = shape_tag(a_shape) + "_by_" + shape_tag(b_shape);
  using Multiply = MultiplyForward;
  using Add = BroadcastAddForward;
  using Data = MultiplyBackwardData;
  using Weight = MultiplyBackwardWeight;
  using Sum = BroadcastAddBackward;
  table.add<Multiply>(tag, {{Multiply::kY, a}, {Multiply::kA, a}, {Multiply::kB, b}});
  table.add<Add>(tag, {{Add::kY, a}, {Add::kA, a}, {Add::kB, b}});
  table.add<Data>(tag, {{Data::kDa, a}, {Data::kDy, a}, {Data::kB, b}});
  table.add<Weight>(tag, {{Weight::kDb, b}, {Weight::kDy, a}, {Weight::kA, a}});
  table.again_accumulating({Weight::kDb});
  table.add<Sum>(tag, {{Sum::kDb, b}, {Sum::kDy, a}});
  table.again_accumulating({Sum::kDb});
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) {
    add_broadcast(table, {16, 56, 56, 72}, {16, 1, 1, 72});
    return add_broadcast(table, {8, 56, 56, 96}, {96});
  }
  const struct { Dimensions a, b;
  } shapes[] = {{{2, 5, 7, 16}, {2, 1, 1, 16}},
                {{3, 9, 4, 10}, {3, 1, 1, 10}},
                {{1, 40, 30, 24}, {1, 1, 1, 24}},  // a gate as in squeeze-and-excitation: one factor for each channel
                {{2, 6, 5, 96}, {96}},
                {{700, 33}, {33}},
                {{3, 4, 130}, {130}},  // a scale for each channel of a layer
                {{4, 7, 48}, {1, 7, 48}},
                {{4, 7, 48}, {7, 48}},
                {{5, 3, 400}, {1, 3, 400}},  // learned positions, which are added to each sequence
                {{2, 6, 5, 7}, {2, 6, 5, 7}},
                {{20001}, {20001}},
                {{1}, {1}},  // equal shapes
                {{3, 5, 7, 9}, {3, 5, 7, 1}},
                {{2, 3, 4, 5}, {1, 3, 1, 5}},
                {{2, 3, 4, 5}, {2, 1, 4, 1}},  // broadcasts the second and the fourth dimension
                {{3, 4, 5}, {3, 1, 5}},
                {{3, 4, 5}, {4, 1}},
                {{2, 1, 3, 1}, {2, 1, 1, 1}},
                {{9, 1}, {1, 1}},
                {{5, 2000}, {1}},
                {{70, 300}, {}},
                {{2, 9000, 1}, {2, 1, 1}},
                {{2, 70, 65, 3}, {70, 1, 3}}};
  for (const auto& [a, b] : shapes) add_broadcast(table, a, b);
}

// ---- results ----

// Returns of(x, y) for each element x of `values`, the content of argument `a`. y is the element of
// `others`, the content of argument `b`, that is broadcast to x.
template <typename F>
Array mapped(const KernelCase& c, uint32_t a, uint32_t b, const Array& values, const Array& others, const F& of) {
  const std::vector<size_t> places = places_in(c.tensor(a), c.tensor(b));
  Array y = values;
  for (size_t i = 0; i < y.size(); ++i) y.flat(i) = of(values.flat(i), others.flat(places[i]));
  return y;
}

// Returns the gradient of the broadcast operand: for each element, the sum of `terms` over its
// repetitions. Also sets the result's magnitude and its number of terms.
Expected summed(const KernelCase& c, uint32_t dy, uint32_t db, const Array& terms) {
  const std::vector<size_t> places = places_in(c.tensor(dy), c.tensor(db));
  const Tensor& b = c.tensor(db);
  Array sum(Array::shape_type(b.shape, b.shape + b.rank), 0.0), magnitude = sum;
  for (size_t i = 0; i < terms.size(); ++i) {
    sum.flat(places[i]) += terms.flat(i);
    magnitude.flat(places[i]) += std::abs(terms.flat(i));
  }
  return {sum, magnitude, static_cast<double>(terms.size()) / static_cast<double>(b.elements()) + 1};
}

double times(double a, double b) { return a * b; }
double plus(double a, double b) { return a + b; }

void expect(Oracle& o) {
  if (o.c.op == Op::kMultiply && o.c.pass == Pass::kForward) {
    using A = MultiplyForward;
    return o.expect(A::kY, rounded(mapped(o.c, A::kA, A::kB, o.value(A::kA), o.value(A::kB), times)));
  }
  if (o.c.op == Op::kMultiply && o.c.pass == Pass::kBackwardData) {
    using A = MultiplyBackwardData;
    return o.expect(A::kDa, rounded(mapped(o.c, A::kDy, A::kB, o.value(A::kDy), o.value(A::kB), times)));
  }
  if (o.c.op == Op::kMultiply) {
    using A = MultiplyBackwardWeight;
    return o.expect(A::kDb, summed(o.c, A::kDy, A::kDb, o.value(A::kDy) * o.value(A::kA)));
  }
  if (o.c.pass == Pass::kForward) {
    using A = BroadcastAddForward;
    const Array y = mapped(o.c, A::kA, A::kB, o.value(A::kA), o.value(A::kB), plus);
    return o.expect(A::kY, rounded(y));
  }
  using A = BroadcastAddBackward;
  o.expect(A::kDb, summed(o.c, A::kDy, A::kDb, o.value(A::kDy)));
}

// ---- gradient check: derivatives of sum(dy f(a, b)) by a or b ----

template <typename K>
Differentiable of_b(const KernelCase& c, const CaseData& data, const Array& a, double (*f)(double, double)) {
  return {{random_like(c.tensor(K::kDb), c.id)}, {K::kDb}, [&c, &data, a, f](const auto& at) {
            return dot(data.values[K::kDy], mapped(c, K::kDy, K::kDb, a, at[0], f));
          }};
}
Differentiable differentiable(const KernelCase& c, CaseData& data) {
  if (c.op == Op::kBroadcastAdd)
    return of_b<BroadcastAddBackward>(c, data, random_like(c.tensor(BroadcastAddBackward::kDy), c.id + "a"), plus);
  if (c.pass == Pass::kBackwardWeight)
    return of_b<MultiplyBackwardWeight>(c, data, data.values[MultiplyBackwardWeight::kA], times);
  using A = MultiplyBackwardData;
  return {{random_like(c.tensor(A::kDa), c.id)}, {A::kDa}, [&c, &data](const auto& at) {
            return dot(data.values[A::kDy], mapped(c, A::kDy, A::kB, at[0], data.values[A::kB], times));
          }};
}

std::vector<KnownValue> known_values() {
  const Tensor a = *tensor_of({2, 2, 3}), b = *tensor_of({2, 1, 3}), column = *tensor_of({2, 1});
  const auto places = [](const std::vector<size_t>& of) {
    return Array(xt::adapt(std::vector<double>(of.begin(), of.end())));
  };
  return {{"b of [2,1,3] under a of [2,2,3]", places(places_in(a, b)), Array{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}, 0},
          {"b of [2,1] under a of [2,2,3]", places(places_in(a, column)), Array{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1},
           0}};
}

// ---- wrong kernels ----

// Returns the broadcast with outer and inner repetitions exchanged, which is wrong.
Broadcast exchanged(const Broadcast& s) {
  return {.outer = s.outer, .repeats = s.rows, .inner = s.inner, .rows = s.repeats, .columns = s.columns};
}

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<MultiplyForward,
                 [](const KernelContext& k, const BroadcastArgsOf<float>& a) { return cpu_broadcast_add(k, a); }>(
        "multiply_adds"),
    wrong_kernel<MultiplyForward,
                 [](const KernelContext& k, const BroadcastArgsOf<float>& a) {
                   BroadcastArgsOf<float> other = a;
                   other.shape = exchanged(a.shape);
                   return cpu_multiply(k, other);
                 }>("multiply_repeats_along_other_dimensions"),
    wrong_kernel<MultiplyBackwardData,
                 [](const KernelContext&, const BroadcastArgsOf<float>& a) {
                   for (uint64_t i = 0; i < a.shape.elements(); ++i) a.y[i] = a.a[i] * a.b[0];
                   return ok_status();
                 }>("multiply_backward_data_takes_the_first_factor"),
    wrong_kernel<MultiplyBackwardWeight,
                 [](const KernelContext& k, const BroadcastSumArgsOf<float>& a) {
                   BroadcastSumArgsOf<float> other = a;
                   other.a = nullptr;
                   return cpu_broadcast_sum(k, other);
                 }>("multiply_backward_weight_forgets_a"),
    wrong_kernel<MultiplyBackwardWeight,
                 [](const KernelContext& k, const BroadcastSumArgsOf<float>& a) {
                   BroadcastSumArgsOf<float> other = a;
                   other.accumulate_db = false;
                   return cpu_broadcast_sum(k, other);
                 }>("multiply_backward_weight_overwrites"),
    wrong_kernel<BroadcastAddBackward,
                 [](const KernelContext&, const BroadcastSumArgsOf<float>& a) {
                   const uint64_t elements = a.shape.segments() * a.shape.columns;
                   for (uint64_t i = 0; i < elements; ++i) a.db[i] = (a.accumulate_db ? a.db[i] : 0) + a.dy[i];
                   return ok_status();
                 }>("broadcast_add_backward_takes_one_use"),
    wrong_kernel<BroadcastAddForward,
                 [](const KernelContext&, const BroadcastArgsOf<float>& a) {
                   for (uint64_t i = 0; i < a.shape.elements(); ++i)
                     a.y[i] = a.a[i] + a.b[i % (a.shape.segments() * a.shape.columns)];
                   return ok_status();
                 }>("broadcast_add_repeats_b_as_it_lies"),
};

constexpr Op kFamilyOps[] = {Op::kMultiply, Op::kBroadcastAdd};

}  // namespace

extern constinit const OpFamily kBroadcastFamily = {.ops = kFamilyOps,
                                                    .add_cases = add_cases,
                                                    .expect = expect,
                                                    .differentiable = differentiable,
                                                    .known_values = known_values,
                                                    .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
