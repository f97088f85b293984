// Products of two activations: cases, reference and wrong kernels. Their gradients are also
// products, so there is no gradient check.
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

using Forward = ProductForward;

// ---- the reference ----

// Returns element (i, j) of a matrix [rows, columns]. If `transposed`, the matrix is stored
// transposed.
double element(const Array& x, size_t matrix, size_t rows, size_t columns, size_t i, size_t j, bool transposed) {
  return x.flat(matrix * rows * columns + (transposed ? j * rows + i : i * columns + j));
}
struct Sizes {
  size_t B, M, N, K;
};
Array product_of(const Array& a, const Array& b, const Sizes& s, const ProductAttribute& how) {
  Array c = Array(Array::shape_type{s.B, s.M, s.N}, 0.0);
  for (size_t m = 0; m < s.B; ++m) {
    for (size_t i = 0; i < s.M; ++i) {
      for (size_t j = 0; j < s.N; ++j) {
        double sum = 0;
        for (size_t k = 0; k < s.K; ++k)
          sum += element(a, m, s.M, s.K, i, k, how.transposed_a != 0) *
                 element(b, m, s.K, s.N, k, j, how.transposed_b != 0);
        c.flat((m * s.M + i) * s.N + j) = sum;
      }
    }
  }
  return c;
}

// ---- cases ----

void add_product(CaseTable& table, std::vector<uint32_t> matrices, uint32_t M, uint32_t N, uint32_t K) {
  const auto of = [&matrices](uint32_t rows, uint32_t columns) {
    Tensor tensor;
    for (const uint32_t d : matrices) tensor.shape[tensor.rank++] = d;
    tensor.shape[tensor.rank++] = rows, tensor.shape[tensor.rank++] = columns;
    tensor.bytes = align_up(tensor.used_bytes());
    return tensor;
  };
  uint64_t count = 1;
  for (const uint32_t d : matrices) count *= d;
  for (const ProductAttribute how :
       {ProductAttribute{0, 0}, ProductAttribute{0, 1}, ProductAttribute{1, 0}, ProductAttribute{1, 1}}) {
    const auto a = how.transposed_a != 0 ? of(K, M) : of(M, K), b = how.transposed_b != 0 ? of(N, K) : of(K, N);
    const std::string tag = "b" + str(count) + "_m" + str(M) + "_n" + str(N) + "_k" + str(K) +
                            (how.transposed_a != 0 ? "_a_turned" : "") + (how.transposed_b != 0 ? "_b_turned" : "");
    table.add<Forward>(tag, {{Forward::kC, of(M, N)}, {Forward::kA, a}, {Forward::kB, b}}, how).multiply_adds =
        count * M * N * K;
    table.again_accumulating({Forward::kC});
  }
}
void add_cases(CaseTable& table) {
  if (table.is_bench()) {
    add_product(table, {64, 3}, 49, 49, 32);
    return add_product(table, {8, 12}, 197, 197, 64);
  }
  add_product(table, {}, 1, 1, 1);
  add_product(table, {3}, 7, 5, 13);
  add_product(table, {2, 3}, 33, 65, 17);
  add_product(table, {20}, 9, 8, 4);      // more matrices than one run computes
  add_product(table, {3, 11}, 16, 20, 8);
  add_product(table, {2}, 130, 67, 300);  // several pieces of depth on a small core
  add_product(table, {}, 520, 530, 5);    // enough tiles for every multiprocessor of a small card
}

// ---- results ----

void expect(Oracle& o) {
  const auto& how = o.c.as<ProductAttribute>();
  const Tensor &c = o.c.tensor(Forward::kC), &a = o.c.tensor(Forward::kA);
  const size_t M = c.shape[c.rank - 2u], N = c.shape[c.rank - 1u],
               K = a.shape[a.rank - (how.transposed_a != 0 ? 2u : 1u)];
  const Sizes s{c.elements() / M / N, M, N, K};
  Expected e{product_of(o.value(Forward::kA), o.value(Forward::kB), s, how),
             product_of(magnitudes(o.value(Forward::kA)), magnitudes(o.value(Forward::kB)), s, how),
             static_cast<double>(K) + 1};
  e.value.reshape(Array::shape_type(c.shape, c.shape + c.rank));
  e.magnitude.reshape(Array::shape_type(c.shape, c.shape + c.rank));
  o.expect(Forward::kC, e);
}

std::vector<KnownValue> known_values() {
  const Array a{1.0, 2.0, 3.0, 4.0}, b{5.0, 6.0, 7.0, 8.0};  // the matrices [1 2; 3 4] and [5 6; 7 8]
  const auto flat = [&](ProductAttribute how) { return Array(xt::flatten(product_of(a, b, {1, 2, 2, 2}, how))); };
  return {{"a product", flat({0, 0}), Array{19.0, 22.0, 43.0, 50.0}, 0},
          {"with the second turned", flat({0, 1}), Array{17.0, 23.0, 39.0, 53.0}, 0},
          {"with the first turned", flat({1, 0}), Array{26.0, 30.0, 38.0, 44.0}, 0}};
}

// ---- wrong kernels ----

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<Forward, [](const KernelContext& k, const ProductArgsOf<float>& a) {
      ProductArgsOf<float> other = a;
      if (a.N == a.K || a.transposed_b) other.transposed_b = false;
      return cpu_product_forward(k, other);
    }>("product_forgets_that_b_is_turned"),
    wrong_kernel<Forward, [](const KernelContext& k, const ProductArgsOf<float>& a) {
      ProductArgsOf<float> other = a;
      other.accumulate_c = false;
      return cpu_product_forward(k, other);
    }>("product_overwrites"),
    wrong_kernel<Forward, [](const KernelContext& k, const ProductArgsOf<float>& a) {
      ProductArgsOf<float> other = a;
      other.B = 1 < a.B ? a.B - 1 : a.B;
      return cpu_product_forward(k, other);
    }>("product_leaves_the_last_matrix_out"),
};

constexpr Op kFamilyOps[] = {Op::kProduct};

}  // namespace

extern constinit const OpFamily kProductFamily = {
    .ops = kFamilyOps, .multiplies = true, .add_cases = add_cases, .expect = expect, .known_values = known_values,
    .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
