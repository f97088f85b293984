// Flops of the matrix-like kernels, bytes of all.
// Here so that a plan can be made without a profile.
// It must not know the machine beyond one ratio.
#include "tools/graph/cost.h"

namespace reprise {

namespace {

double elements(const Graph& graph, ValueId v) { return v == kNoValue ? 0 : static_cast<double>(graph.tensor(v).elements()); }

double attention_flops(const Graph& graph, const Call& call, double products) {
  const Tensor& qkv = graph.tensor(call.arguments[call.pass == Pass::kForward ? 2 : 1]);
  const double B = qkv.shape[0], T = qkv.shape[1], C = qkv.shape[2] / 3.0;
  return products * B * T * T * C;  // causal: half of 2 * T * T * C for each product
}

double matrix_flops(const Graph& graph, const Call& call) {
  const auto& a = call.arguments;
  switch (call.op) {
    case Op::kConv: {
      const ValueId y = call.pass == Pass::kForward ? a[0] : call.pass == Pass::kBackwardData ? a[1] : a[2];
      const ValueId w = call.pass == Pass::kBackwardWeight ? a[0] : a[2];
      return 2 * elements(graph, y) * elements(graph, w) / graph.tensor(w).shape[0];
    }
    case Op::kLinear: {
      if (call.pass == Pass::kBackwardBias) return 0;
      const ValueId w = call.pass == Pass::kBackwardWeight ? a[0] : a[2];
      const ValueId x = call.pass == Pass::kBackwardData ? a[0] : a[1];
      return 2 * elements(graph, w) * static_cast<double>(graph.tensor(x).leading_elements());
    }
    case Op::kAttention: return attention_flops(graph, call, call.pass == Pass::kForward ? 2 : 5);
    case Op::kLossHead: {
      const bool backward = call.pass == Pass::kBackward;
      const double rows = static_cast<double>(graph.tensor(a[backward ? 4 : 1]).leading_elements());
      return (backward ? 6 : 2) * rows * elements(graph, a[backward ? 5 : 2]);
    }
    default: return 0;
  }
}

}  // namespace

CallCost call_cost(const Graph& graph, const Call& call) {
  CallCost cost;
  cost.flops = matrix_flops(graph, call);
  for (const ValueId v : call.arguments) {
    if (v != kNoValue && graph.values[v].kind != ValueKind::kScalars) {
      cost.bytes += static_cast<double>(graph.tensor(v).elements() * dtype_bytes(graph.tensor(v).dtype));
    }
  }
  return cost;
}

double call_price(const Graph& graph, const Call& call) {
  const CallCost cost = call_cost(graph, call);
  return cost.flops + kFlopsPerByte * cost.bytes;
}

}  // namespace reprise
