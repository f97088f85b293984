// Concatenation of tensors: cases, reference and wrong kernels.
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

using Forward = ConcatForward;

// Adds a case that concatenates parts of these lengths along `axis`. The other dimensions of all
// parts are those of `shape`, whose dimension `axis` is ignored.
void add_concat(CaseTable& table, std::vector<uint32_t> shape, uint32_t axis, const std::vector<uint32_t>& lengths) {
  std::string tag = "axis" + str(axis);
  for (const uint32_t d : shape) tag += "_" + str(d);
  const auto tensor_of = [&](uint32_t length) {
    shape[axis] = length;
    Tensor tensor;
    for (const uint32_t d : shape) tensor.shape[tensor.rank++] = d;
    tensor.bytes = align_up(tensor.used_bytes());
    return tensor;
  };
  std::optional<Tensor> parts[kMaxConcatParts];
  uint32_t all = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    parts[i] = tensor_of(lengths[i]);
    all += lengths[i];
    tag += (i == 0 ? "_of" : "_") + str(lengths[i]);
  }
  table.add<Forward>(tag, {{Forward::kY, tensor_of(all)},
                           {Forward::kA, parts[0]},
                           {Forward::kB, parts[1]},
                           {Forward::kC, parts[2]},
                           {Forward::kD, parts[3]},
                           {Forward::kE, parts[4]},
                           {Forward::kF, parts[5]},
                           {Forward::kG, parts[6]},
                           {Forward::kH, parts[7]}});
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return;
  add_concat(table, {2, 0}, 1, {1, 1});
  add_concat(table, {3, 0}, 1, {5, 2, 9});
  add_concat(table, {3, 0, 7}, 1, {1, 6});                      // a class token before the other tokens
  add_concat(table, {2, 0, 16}, 1, {1, 4});
  add_concat(table, {2, 5, 4, 0}, 3, {8, 8});                   // channels of images
  add_concat(table, {1, 3, 3, 0}, 3, {3, 1, 4, 1, 5, 9, 2, 6});
  add_concat(table, {2, 0, 3, 5}, 1, {2, 2});
  add_concat(table, {2, 3, 0, 5}, 2, {1, 4, 1});
  add_concat(table, {2, 40, 30, 0}, 3, {8, 16, 8});             // so large that the work is divided among workers
}

// Returns the concatenation, element by element. The position along `axis` determines the part.
Array joined(const Oracle& o) {
  const Tensor& y = o.c.tensor(Forward::kY);
  uint32_t axis = 0;
  while (y.shape[axis] == o.c.tensor(Forward::kA).shape[axis]) ++axis;
  Array result = Array(Array::shape_type(y.shape, y.shape + y.rank), 0.0);
  uint64_t inner = 1;
  for (uint32_t d = axis + 1; d < y.rank; ++d) inner *= y.shape[d];
  for (uint64_t i = 0; i < result.size(); ++i) {
    uint64_t at = i / inner % y.shape[axis];
    uint32_t part = Forward::kA;
    for (; at >= o.c.tensor(part).shape[axis]; ++part) at -= o.c.tensor(part).shape[axis];
    const uint64_t outer = i / inner / y.shape[axis];
    result.flat(i) = o.value(part).flat((outer * o.c.tensor(part).shape[axis] + at) * inner + i % inner);
  }
  return result;
}

void expect(Oracle& o) { o.expect(Forward::kY, exact(joined(o))); }

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<ConcatForward, [](const KernelContext& k, const ConcatArgsOf<float>& a) {
      ConcatArgsOf<float> other = a;
      if (a.ends[0] == a.ends[1] - a.ends[0]) std::swap(other.parts[0], other.parts[1]);
      return cpu_concat_forward(k, other);
    }>("concat_swaps_parts_that_are_alike"),
    wrong_kernel<ConcatForward, [](const KernelContext& k, const ConcatArgsOf<float>& a) {
      ConcatArgsOf<float> other = a;  // wrong: writes each complete part after the previous part
      other.K = a.M * a.K, other.M = 1;
      for (uint64_t& end : other.ends) end *= a.M;
      return cpu_concat_forward(k, other);
    }>("concat_joins_along_the_first_dimension"),
};

constexpr Op kFamilyOps[] = {Op::kConcat};

}  // namespace

extern constinit const OpFamily kConcatFamily = {.ops = kFamilyOps,
                                                 .add_cases = add_cases,
                                                 .expect = expect,
                                                 .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
