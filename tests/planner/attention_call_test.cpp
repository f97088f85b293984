// Tests the kernel calls of attention, rope, and linear layers with adapters: with heads that share
// keys and values, with document starts, and with frozen weights.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/plan/graph/call.h"
#include "tools/plan/graph/rules.h"
#include "tools/run/profiling/profile.h"

namespace reprise {
namespace {

constexpr uint32_t kB = 2, kT = 5, kHeads = 6, kKvHeads = 2, kD = 4;

// x [B,T,D] -> one linear layer that computes q, k and v -> attention.
struct Net {
  Graph graph;
  ValueId x, starts = kNoValue, qkv, y, dy = kNoValue;

  Net(uint32_t kv_heads, bool documents, uint32_t causal = 1)
      : x(graph.input = graph.add_value("x", ValueKind::kInput, {kB, kT, kD})) {
    if (documents) starts = graph.add_value("document_start", ValueKind::kInput, {kB, kT}, DType::kI32);
    qkv = graph.linear(x, "qkv", (kHeads + 2 * kv_heads) * kD, true, false, 0.02f);
    y = graph.attention(qkv, "attn",
                        {.heads = kHeads, .kv_heads = kv_heads, .dropout = 0.5f, .stream = 0, .causal = causal},
                        starts);
  }
  const Node& node() const { return graph.nodes.back(); }
  Call forward() const { return forward_calls(graph, node()).at(0); }
  Call backward() {
    dy = graph.add_value("dy", ValueKind::kGradient, {kB, kT, kHeads * kD});
    return BackwardBuilder(graph).build(0, graph.nodes.size(), x, y, dy).calls.at(0);
  }
};

// x [B,T,D] -> three linear layers, for q, k and v -> rope.
struct RopeNet {
  Graph graph;
  ValueId x, starts = kNoValue, table = kNoValue, q, k, v, y, dy = kNoValue;

  RopeNet(bool documents, bool has_table) : x(graph.input = graph.add_value("x", ValueKind::kInput, {kB, kT, kD})) {
    if (documents)
      starts = graph.document_start = graph.add_value("document_start", ValueKind::kInput, {kB, kT}, DType::kI32);
    if (has_table) table = graph.add_value("frequencies", ValueKind::kBuffer, {kD / 2});
    q = graph.linear(x, "q", kHeads * kD, true, false, 0.02f);
    k = graph.linear(x, "k", kKvHeads * kD, true, false, 0.02f);
    v = graph.linear(x, "v", kKvHeads * kD, true, false, 0.02f);
    y = graph.rope(q, k, v, "rope", {kHeads, kKvHeads, kD, 0, 10000}, starts, table);
  }
  const Node& node() const { return graph.nodes.back(); }
  Call forward() const { return forward_calls(graph, node()).at(0); }
  Call backward() {
    dy = graph.add_value("dy", ValueKind::kGradient, {kB, kT, (kHeads + 2 * kKvHeads) * kD});
    return BackwardBuilder(graph).build(0, graph.nodes.size(), x, y, dy).calls.at(0);
  }
};

// Returns the fault that the contract of the call's kernel reports.
Fault fault_of(const Graph& graph, const Call& call) {
  const AttributePools pools = graph.attributes.pools();
  const KernelCall kernel = kernel_call(graph, call);
  const ShapedKernelCall shaped(kernel, pools);
  return kernel_info(call.op, call.pass).shape_fault(shaped.shaped());
}

TEST(AttentionCall, TakesWhatItsContractAsksFor) {
  for (const bool documents : {false, true}) {
    for (const uint32_t kv_heads : {1u, kKvHeads, kHeads}) {
      Net net(kv_heads, documents);
      const ValueId lse = net.node().outputs[1], scalars = net.graph.scalars;
      const Call forward = net.forward(), evaluated = evaluation_calls(net.graph).back(), backward = net.backward();
      using F = AttentionForward;
      EXPECT_EQ(forward, call<F>({{F::kY, net.y},
                                  {F::kLse, lse},
                                  {F::kQkv, net.qkv},
                                  {F::kDocumentStart, net.starts},
                                  {F::kScalars, scalars}},
                                 forward.attribute));
      EXPECT_EQ(evaluated.arguments, forward.arguments);
      using B = AttentionBackward;
      const ValueId dqkv = backward.arguments[B::kDqkv];
      EXPECT_EQ(backward, call<B>({{B::kDqkv, dqkv},
                                   {B::kQkv, net.qkv},
                                   {B::kY, net.y},
                                   {B::kLse, lse},
                                   {B::kDy, net.dy},
                                   {B::kDocumentStart, net.starts},
                                   {B::kScalars, scalars}},
                                  forward.attribute));
      for (const Call& call : {forward, evaluated, backward}) EXPECT_EQ(fault_of(net.graph, call), Fault::kNone);
      const AttentionAttribute& attribute = net.graph.attributes.of<AttentionAttribute>()[forward.attribute];
      EXPECT_EQ(attribute.heads, kHeads);
      EXPECT_EQ(attribute.kv_heads, kv_heads);
      EXPECT_EQ(net.graph.attributes.of<AttentionAttribute>()[evaluated.attribute].kv_heads, kv_heads);
    }
  }
}

TEST(RopeCall, TakesWhatItsContractAsksFor) {
  for (const bool documents : {false, true}) {
    for (const bool table : {false, true}) {
      RopeNet net(documents, table);
      const Call forward = net.forward(), evaluated = evaluation_calls(net.graph).back(), backward = net.backward();
      using F = RopeForward;
      EXPECT_EQ(forward, call<F>({{F::kQkv, net.y},
                                  {F::kQ, net.q},
                                  {F::kK, net.k},
                                  {F::kV, net.v},
                                  {F::kDocumentStart, net.starts},
                                  {F::kFrequencies, net.table}},
                                 forward.attribute));
      EXPECT_EQ(evaluated, forward);
      using B = RopeBackward;
      const std::vector<ValueId>& a = backward.arguments;
      EXPECT_EQ(backward, call<B>({{B::kDq, a[B::kDq]},
                                   {B::kDk, a[B::kDk]},
                                   {B::kDv, a[B::kDv]},
                                   {B::kDqkv, net.dy},
                                   {B::kDocumentStart, net.starts},
                                   {B::kFrequencies, net.table}},
                                  forward.attribute));
      for (const Call& call : {forward, backward}) EXPECT_EQ(fault_of(net.graph, call), Fault::kNone);
    }
  }
}

TEST(RopeCall, IsKeyedByItsDocumentsAndItsTable) {
  const RopeNet plain(false, false), documents(true, false), table(false, true);
  const std::string start =
      "rope.forward heads=6 kv_heads=2 rotary=4 neighbours=0 theta=10000 scale=1 f32[2,5,40] f32[2,5,24] f32[2,5,8] "
      "f32[2,5,8]";
  EXPECT_EQ(call_key(plain.graph, plain.forward()), start + " - -");
  EXPECT_EQ(call_key(documents.graph, documents.forward()), start + " i32[2,5] -");
  EXPECT_EQ(call_key(table.graph, table.forward()), start + " - f32[2]");
}

// A linear layer with an adapter, and the linear layer that computes h, the adapter's hidden
// values.
struct AdapterNet {
  Graph graph;
  ValueId x, h, u, y, dy = kNoValue;

  explicit AdapterNet(bool trains_weight) : x(graph.input = graph.add_value("x", ValueKind::kInput, {kB, kT, kD})) {
    const ValueId below = graph.linear(x, "below", kD, false, false, 0.02f);
    h = graph.low_rank(below, "q", 3, 2);
    u = graph.parameter("q.lora_B.weight", {7, 3}, InitKind::kConstant, 0);
    y = graph.linear(below, "q", 7, false, true, 0.02f, h, u);
    graph.values[graph.nodes[2].parameters[0]].trainable = graph.values[graph.nodes[2].parameters[1]].trainable =
        trains_weight;
  }
};

TEST(AdapterCall, TakesWhatItsContractAsksFor) {
  for (const bool trains_weight : {false, true}) {
    AdapterNet net(trains_weight);
    Graph& graph = net.graph;
    const Node second = graph.nodes[2];
    net.dy = graph.add_value("dy", ValueKind::kGradient, {kB, kT, 7});
    const Call forward = forward_calls(graph, second).at(0);
    using F = LinearForward;
    EXPECT_EQ(forward, call<F>({{F::kY, net.y},
                                {F::kX, second.inputs[0]},
                                {F::kW, second.parameters[0]},
                                {F::kB, second.parameters[1]},
                                {F::kH, net.h},
                                {F::kU, net.u}},
                               second.attribute));
    EXPECT_EQ(graph.tensor(net.h).shape[2], 3u);
    const std::vector<Call> backward = BackwardBuilder(graph).build(0, graph.nodes.size(), net.x, net.y, net.dy).calls;
    const auto scale = [&graph](const Call& call) {
      return graph.attributes.of<LinearAttribute>()[call.attribute].scale;
    };
    EXPECT_EQ(scale(forward_calls(graph, graph.nodes[1]).at(0)), 2);
    EXPECT_EQ(scale(forward), 1);
    std::vector<Pass> passes;
    std::vector<float> scales;
    for (const Call& call : backward) {
      EXPECT_EQ(fault_of(graph, call), Fault::kNone);
      passes.push_back(call.pass);
      if (call.pass != Pass::kBackwardBias) scales.push_back(scale(call));
    }
    const Pass dw = Pass::kBackwardWeight, db = Pass::kBackwardBias, dx = Pass::kBackwardData;
    // The order of the calls is: dW and db of the layer; dU, then e, the gradient of h; dx of the
    // layer; dA, then the part of dx that comes from e, which is added; dW of the layer below. Only
    // e is scaled.
    const std::vector<Pass> frozen = {dw, dx, dx, dw, dx, dw}, trained = {dw, db, dw, dx, dx, dw, dx, dw};
    EXPECT_EQ(passes, trains_weight ? trained : frozen);
    EXPECT_EQ(scales,
              trains_weight ? (std::vector<float>{1, 1, 2, 1, 1, 1, 1}) : (std::vector<float>{1, 2, 1, 1, 1, 1}));
    const Call& e = backward[trains_weight ? 3 : 1];
    EXPECT_EQ(e.arguments[LinearBackwardData::kDy], net.dy);
    EXPECT_EQ(e.arguments[LinearBackwardData::kW], net.u);
    EXPECT_EQ(backward[backward.size() - 2].accumulate, 1)
        << "the adapter adds to the gradient that the layer has written";
  }
}

// Shared heads, documents and attention that is not causal add parts to a call's key in a profile.
// The key of plain attention must not change, so that old profiles still give its price.
TEST(AttentionCall, IsKeyedByWhatItSharesAndByItsDocuments) {
  const Net plain(kHeads, false), grouped(kKvHeads, false), documents(kHeads, true), full(kHeads, false, 0);
  const std::string scalars = " u8[" + std::to_string(sizeof(StepScalars)) + "]";
  EXPECT_EQ(call_key(plain.graph, plain.forward()),
            "attention.forward heads=6 dropout=0.5 f32[2,5,24] f32[2,6,5] f32[2,5,72]" + scalars);
  EXPECT_EQ(call_key(grouped.graph, grouped.forward()),
            "attention.forward heads=6 kv_heads=2 dropout=0.5 f32[2,5,24] f32[2,6,5] f32[2,5,40]" + scalars);
  EXPECT_EQ(call_key(full.graph, full.forward()),
            "attention.forward heads=6 dropout=0.5 causal=0 f32[2,5,24] f32[2,6,5] f32[2,5,72]" + scalars);
  EXPECT_EQ(call_key(documents.graph, documents.forward()),
            "attention.forward heads=6 dropout=0.5 f32[2,5,24] f32[2,6,5] f32[2,5,72] i32[2,5]" + scalars);
}

}  // namespace
}  // namespace reprise
