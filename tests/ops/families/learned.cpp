// Learned parameters as activations: cases, reference, gradient check and wrong kernels.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

using Forward = LearnedForward;
using Backward = LearnedBackward;

void add_learned(CaseTable& table, const std::string& tag, const std::optional<Tensor>& w) {
  table.add<Forward>(tag, {{Forward::kY, w}, {Forward::kW, w}});
  table.add<Backward>(tag, {{Backward::kDw, w}, {Backward::kDy, w}});
  table.again_accumulating({Backward::kDw});
}
using RowsForward = LearnedRowsForward;
using RowsBackward = LearnedRowsBackward;

void add_rows(CaseTable& table, uint32_t R, uint32_t V, uint32_t C) {
  const auto y = shaped({R, C}), w = shaped({V, C}), rows = shaped({R});
  const std::string tag = "r" + str(R) + "_v" + str(V) + "_c" + str(C);
  table.add<RowsForward>(tag, {{RowsForward::kY, y}, {RowsForward::kW, w}, {RowsForward::kRows, rows}});
  table.add<RowsForward>(tag + "_bad_low", {{RowsForward::kY, y}, {RowsForward::kW, w}, {RowsForward::kRows, rows}})
      .data = CaseValues::kBadLow;
  table.add<RowsForward>(tag + "_bad_high", {{RowsForward::kY, y}, {RowsForward::kW, w}, {RowsForward::kRows, rows}})
      .data = CaseValues::kBadHigh;
  table.add<RowsBackward>(tag, {{RowsBackward::kDw, w}, {RowsBackward::kRows, rows}, {RowsBackward::kDy, y}});
  table.again_accumulating({RowsBackward::kDw});
}
void add_cases(CaseTable& table) {
  if (table.is_bench()) return;
  add_rows(table, 1, 1, 1);
  add_rows(table, 49 * 49, 169, 3);  // a relative position for each pair of positions in a window
  add_rows(table, 9, 30, 130);       // most rows of w are not read
  add_learned(table, "n1", shaped({1}));
  add_learned(table, "n20001", shaped({20001}));
  add_learned(table, "cls_token", shaped({1, 1, 48}));
  add_learned(table, "pos_embed", shaped({1, 17, 36}));
  add_learned(table, "four", shaped({2, 3, 5, 7}));
}

void fit_data(CaseDraft& draft) {
  if (draft.c.op != Op::kLearnedRows) return;
  const bool forward = draft.c.pass == Pass::kForward;
  const uint32_t V = draft.c.tensor(forward ? uint32_t{RowsForward::kW} : uint32_t{RowsBackward::kDw}).shape[0];
  Array& rows = draft.value(forward ? uint32_t{RowsForward::kRows} : uint32_t{RowsBackward::kRows});
  for (double& row : rows) row = static_cast<double>(draft.random.below(V));
  if (!draft.c.expects_bad_index()) return;
  draft.data.bad_data = DataFault::kToken;
  draft.data.bad_position = rows.size() * 2 / 3;
  rows.flat(draft.data.bad_position) = draft.c.data == CaseValues::kBadLow ? -1.0 : V;
}

Array taken(const Array& w, const Array& rows) {
  const size_t C = w.shape(1);
  Array y = zeros({rows.size(), C});
  for (size_t i = 0; i < y.size(); ++i) y.flat(i) = w.flat(static_cast<size_t>(rows.flat(i / C)) * C + i % C);
  return y;
}

void expect_rows(Oracle& o) {
  if (o.c.pass == Pass::kForward) {
    const Array y = taken(o.value(RowsForward::kW), o.value(RowsForward::kRows));
    return o.expect(RowsForward::kY, stores_bf16(o.c) ? rounded(y) : exact(y));
  }
  const Array &rows = o.value(RowsBackward::kRows), &dy = o.value(RowsBackward::kDy);
  const size_t C = dy.shape(1);
  Expected e{zeros({o.c.tensor(RowsBackward::kDw).shape[0], C}), zeros({o.c.tensor(RowsBackward::kDw).shape[0], C}),
             static_cast<double>(rows.size())};
  for (size_t i = 0; i < dy.size(); ++i) {
    const size_t to = static_cast<size_t>(rows.flat(i / C)) * C + i % C;
    e.value.flat(to) += dy.flat(i);
    e.magnitude.flat(to) += std::abs(dy.flat(i));
  }
  o.expect(RowsBackward::kDw, e);
}

void expect(Oracle& o) {
  if (o.c.op == Op::kLearnedRows) return expect_rows(o);
  if (o.c.pass == Pass::kForward) {
    // The kernel only copies. So there is no error in f32, and one rounding in bf16.
    return o.expect(Forward::kY, stores_bf16(o.c) ? rounded(o.value(Forward::kW)) : exact(o.value(Forward::kW)));
  }
  o.expect(Backward::kDw, exact(o.value(Backward::kDy)));
}

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  if (c.op == Op::kLearnedRows) {
    return {{random_like(c.tensor(RowsBackward::kDw), c.id)}, {RowsBackward::kDw}, [&data](const auto& at) {
              return dot(data.values[RowsBackward::kDy], taken(at[0], data.values[RowsBackward::kRows]));
            }};
  }
  return {{random_like(c.tensor(Backward::kDw), c.id)}, {Backward::kDw}, [&data](const auto& at) {
            return dot(data.values[Backward::kDy], at[0]);
          }};
}

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<Forward, [](const KernelContext& k, const LearnedForwardArgsOf<float>& a) {
      LearnedForwardArgsOf<float> other = a;
      other.n = 1 < a.n ? a.n - 1 : a.n;
      return cpu_learned_forward(k, other);
    }>("learned_leaves_the_last_out"),
    wrong_kernel<Backward, [](const KernelContext& k, const LearnedBackwardArgsOf<float>& a) {
      LearnedBackwardArgsOf<float> other = a;
      other.accumulate_dw = false;
      return cpu_learned_backward(k, other);
    }>("learned_backward_overwrites"),
    wrong_kernel<RowsForward, [](const KernelContext&, const LearnedRowsForwardArgsOf<float>& a) {
      for (uint64_t i = 0; i < a.R * a.C; ++i) a.y[i] = a.w[i % (uint64_t{a.V} * a.C)];
      return ok_status();
    }>("learned_rows_in_their_own_order"),
    wrong_kernel<RowsBackward, [](const KernelContext& k, const LearnedRowsBackwardArgsOf<float>& a) {
      LearnedRowsBackwardArgsOf<float> other = a;
      other.R = 1 < a.R ? a.R - 1 : a.R;
      return cpu_learned_rows_backward(k, other);
    }>("learned_rows_leave_the_last_out"),
};

constexpr Op kFamilyOps[] = {Op::kLearned, Op::kLearnedRows};

}  // namespace

extern constinit const OpFamily kLearnedFamily = {.ops = kFamilyOps,
                                                  .add_cases = add_cases,
                                                  .fit_data = fit_data,
                                                  .expect = expect,
                                                  .differentiable = differentiable,
                                                  .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
