// Boxes cut from tensors, and boxes padded with zeros: cases, reference, gradient check and wrong
// kernels.
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

using Place = std::array<size_t, kMaxRank>;

// Calls body(index in the whole tensor, index in the part) for each element of the box.
template <typename Visit>
void for_each_in_box(const Tensor& part, const ColumnsAttribute& box, const Visit& visit) {
  Place begin = {};
  if (part.rank > 0) begin[part.rank - 1u] = box.first;
  if (part.rank > 1) begin[part.rank - 2u] = box.second_last;
  if (part.rank > 2) begin[part.rank - 3u] = box.third_last;
  Place at = {};
  for (at[0] = 0; at[0] < part.shape[0]; ++at[0]) {
    for (at[1] = 0; at[1] < part.shape[1]; ++at[1]) {
      for (at[2] = 0; at[2] < part.shape[2]; ++at[2]) {
        for (at[3] = 0; at[3] < part.shape[3]; ++at[3])
          visit(Place{begin[0] + at[0], begin[1] + at[1], begin[2] + at[2], begin[3] + at[3]}, at);
      }
    }
  }
}
size_t index_in(const Tensor& t, const Place& at) {
  return ((at[0] * t.shape[1] + at[1]) * t.shape[2] + at[2]) * t.shape[3] + at[3];
}

Array empty(const Tensor& t) { return Array(Array::shape_type(t.shape, t.shape + t.rank), 0.0); }

Array taken(const Array& whole, const Tensor& of_whole, const Tensor& of_part, const ColumnsAttribute& box) {
  Array part = empty(of_part);
  for_each_in_box(of_part, box, [&](const Place& there, const Place& here) {
    part.flat(index_in(of_part, here)) = whole.flat(index_in(of_whole, there));
  });
  return part;
}
Array put(const Array& part, const Tensor& of_part, const Tensor& of_whole, const ColumnsAttribute& box) {
  Array whole = empty(of_whole);
  for_each_in_box(of_part, box, [&](const Place& there, const Place& here) {
    whole.flat(index_in(of_whole, there)) = part.flat(index_in(of_part, here));
  });
  return whole;
}

void add_box(CaseTable& table, std::initializer_list<uint32_t> of_whole, std::initializer_list<uint32_t> of_part,
             ColumnsAttribute box) {
  const auto whole = shaped(of_whole), part = shaped(of_part);
  std::string tag;
  for (const uint32_t d : of_whole) tag += (tag.empty() ? "x" : "_") + str(d);
  for (const uint32_t d : of_part) tag += "_" + str(d);
  tag += "_at" + str(box.third_last) + "_" + str(box.second_last) + "_" + str(box.first);
  using Forward = ColumnsForward;
  using Backward = ColumnsBackward;
  table.add<Forward>(tag, {{Forward::kY, part}, {Forward::kX, whole}}, box);
  table.again_accumulating({Forward::kY});
  table.add<Backward>(tag, {{Backward::kDx, whole}, {Backward::kDy, part}}, box);
  table.again_accumulating({Backward::kDx});
  table.add<PadForward>(tag, {{PadForward::kY, whole}, {PadForward::kX, part}}, box);
  table.add<PadBackward>(tag, {{PadBackward::kDx, part}, {PadBackward::kDy, whole}}, box);
  table.again_accumulating({PadBackward::kDx});
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return;
  const struct {
    uint32_t M, K, first, C;
  } columns[] = {{1, 1, 0, 1},     {5, 7, 0, 3},       {5, 7, 3, 4},    {67, 96, 32, 32},
                 {67, 96, 64, 32}, {3, 2000, 9, 1025}, {700, 24, 8, 8}, {2, 48, 0, 48}};
  for (const auto& [M, K, first, C] : columns) add_box(table, {M, K}, {M, C}, {first});
  add_box(table, {9}, {4}, {5});
  add_box(table, {3, 5, 7}, {3, 1, 7}, {0, 0});          // the box is a class token
  add_box(table, {3, 5, 8}, {3, 4, 8}, {0, 1});          // the box is the tokens after a class token
  add_box(table, {2, 4, 6}, {2, 3, 2}, {3, 1});
  add_box(table, {2, 6, 5, 3}, {2, 4, 5, 3}, {0, 0, 2});  // the box is some rows of an image
  add_box(table, {2, 6, 5, 16}, {2, 4, 3, 16}, {0, 1, 2});
  add_box(table, {1, 7, 9, 3}, {1, 4, 8, 2}, {1, 0, 3});
  add_box(table, {2, 3, 4, 12}, {2, 3, 4, 8}, {4});
  add_box(table, {1, 30, 40, 32}, {1, 28, 37, 32}, {0, 1, 1});  // so large that the work is divided among workers
}

// Returns the argument that is the whole tensor. The other argument is the part.
uint32_t whole_argument(const KernelCase& c) { return (c.op == Op::kPad) == (c.pass == Pass::kBackward) ? 1 : 0; }

void expect(Oracle& o) {
  const uint32_t whole = whole_argument(o.c), part = 1 - whole;
  const auto& box = o.c.as<ColumnsAttribute>();
  const Array result = whole == 1 ? taken(o.value(1), o.c.tensor(whole), o.c.tensor(part), box)
                                  : put(o.value(1), o.c.tensor(part), o.c.tensor(whole), box);
  o.expect(0, exact(result));
}

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  return {{random_like(c.tensor(0), c.id)}, {0}, [&c, &data](const auto& at) {
            const auto& box = c.as<ColumnsAttribute>();
            const bool pads = c.op == Op::kPad;
            return dot(data.values[1],
                       pads ? put(at[0], c.tensor(0), c.tensor(1), box) : taken(at[0], c.tensor(0), c.tensor(1), box));
          }};
}

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<ColumnsForward, [](const KernelContext& k, const TakeBoxArgsOf<float>& a) {
      TakeBoxArgsOf<float> other = a;
      uint64_t& first = other.box.first[3];
      first = first == 0 && a.box.part[3] < a.box.whole[3] ? 1 : first == 0 ? 0 : first - 1;
      return cpu_take_box(k, other);
    }>("columns_begin_one_aside"),
    wrong_kernel<ColumnsForward, [](const KernelContext& k, const TakeBoxArgsOf<float>& a) {
      TakeBoxArgsOf<float> other = a;
      other.accumulate_part = false;
      return cpu_take_box(k, other);
    }>("columns_overwrite_what_they_must_add_to"),
    wrong_kernel<ColumnsBackward, [](const KernelContext& k, const PutBoxArgsOf<float>& a) {
      PutBoxArgsOf<float> other = a;
      other.accumulate_whole = false;
      return cpu_put_box(k, other);
    }>("columns_backward_clears_what_it_must_add_to"),
    wrong_kernel<ColumnsBackward, [](const KernelContext& k, const PutBoxArgsOf<float>& a) {
      PutBoxArgsOf<float> other = a;
      other.accumulate_whole = true;
      return cpu_put_box(k, other);
    }>("columns_backward_leaves_the_other_columns"),
    wrong_kernel<PadForward, [](const KernelContext& k, const PutBoxArgsOf<float>& a) {
      PutBoxArgsOf<float> other = a;
      other.box.first[2] = 0;
      return cpu_put_box(k, other);
    }>("pad_pads_behind_alone"),
};

constexpr Op kFamilyOps[] = {Op::kColumns, Op::kPad};

}  // namespace

extern constinit const OpFamily kColumnsFamily = {.ops = kFamilyOps,
                                                  .add_cases = add_cases,
                                                  .expect = expect,
                                                  .differentiable = differentiable,
                                                  .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
