// What an attention and a rope node of the graph call: with heads that share keys and values, with and without starts of documents.
// Here because no model has either yet.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/graph/rules.h"
#include "tools/profiling/profile.h"

namespace reprise {
namespace {

constexpr uint32_t kB = 2, kT = 5, kHeads = 6, kKvHeads = 2, kD = 4;

// x [B,T,D] -> q, k, v by a linear layer -> attention.
struct Net {
  Graph graph;
  ValueId x, starts = kNoValue, qkv, y, dy = kNoValue;

  Net(uint32_t kv_heads, bool documents) : x(graph.input = graph.add_value("x", ValueKind::kInput, {kB, kT, kD})) {
    if (documents) starts = graph.add_value("document_start", ValueKind::kInput, {kB, kT}, DType::kI32);
    qkv = graph.linear(x, "qkv", (kHeads + 2 * kv_heads) * kD, true, false, 0.02f);
    y = graph.attention(qkv, "attn", kHeads, kv_heads, 0.5f, starts);
  }
  const Node& node() const { return graph.nodes.back(); }
  Call forward() const { return forward_calls(graph, node()).at(0); }
  Call backward() {
    dy = graph.add_value("dy", ValueKind::kGradient, {kB, kT, kHeads * kD});
    return BackwardBuilder(graph).build(0, graph.nodes.size(), x, y, dy).calls.at(0);
  }
};

// x [B,T,D] -> q, k, v by a linear layer -> rope.
struct RopeNet {
  Graph graph;
  ValueId x, starts = kNoValue, table = kNoValue, qkv, y, dy = kNoValue;

  RopeNet(bool documents, bool has_table) : x(graph.input = graph.add_value("x", ValueKind::kInput, {kB, kT, kD})) {
    if (documents) starts = graph.add_value("document_start", ValueKind::kInput, {kB, kT}, DType::kI32);
    if (has_table) table = graph.add_value("frequencies", ValueKind::kBuffer, {kD / 2});
    qkv = graph.linear(x, "qkv", (kHeads + 2 * kKvHeads) * kD, true, false, 0.02f);
    y = graph.rope(qkv, "rope", {kHeads, kKvHeads, kD, 0, 10000}, starts, table);
  }
  const Node& node() const { return graph.nodes.back(); }
  Call forward() const { return forward_calls(graph, node()).at(0); }
  Call backward() {
    dy = graph.add_value("dy", ValueKind::kGradient, {kB, kT, (kHeads + 2 * kKvHeads) * kD});
    return BackwardBuilder(graph).build(0, graph.nodes.size(), x, y, dy).calls.at(0);
  }
};

// Whether the kernel's own contract accepts the call.
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
      EXPECT_EQ(forward.arguments, (std::vector<ValueId>{net.y, lse, net.qkv, net.starts, scalars}));
      EXPECT_EQ(evaluated.arguments, forward.arguments);
      EXPECT_EQ(backward.arguments, (std::vector<ValueId>{backward.arguments[0], net.qkv, net.y, lse, net.dy, net.starts, scalars}));
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
      EXPECT_EQ(forward.arguments, (std::vector<ValueId>{net.y, net.qkv, net.starts, net.table}));
      EXPECT_EQ(evaluated, forward);
      EXPECT_EQ(backward.arguments, (std::vector<ValueId>{backward.arguments[0], net.dy, net.starts, net.table}));
      EXPECT_EQ(backward.attribute, forward.attribute);
      for (const Call& call : {forward, backward}) EXPECT_EQ(fault_of(net.graph, call), Fault::kNone);
    }
  }
}

TEST(RopeCall, IsKeyedByItsDocumentsAndItsTable) {
  const RopeNet plain(false, false), documents(true, false), table(false, true);
  const std::string start = "rope.forward heads=6 kv_heads=2 rotary=4 neighbours=0 theta=10000 f32[2,5,40] f32[2,5,40]";
  EXPECT_EQ(call_key(plain.graph, plain.forward()), start + " - -");
  EXPECT_EQ(call_key(documents.graph, documents.forward()), start + " i32[2,5] -");
  EXPECT_EQ(call_key(table.graph, table.forward()), start + " - f32[2]");
}

// A profile made before attention could share heads or know documents still prices an attention that does neither.
TEST(AttentionCall, IsKeyedByWhatItSharesAndByItsDocuments) {
  const Net plain(kHeads, false), grouped(kKvHeads, false), documents(kHeads, true);
  const std::string scalars = " u8[" + std::to_string(sizeof(StepScalars)) + "]";
  EXPECT_EQ(call_key(plain.graph, plain.forward()), "attention.forward heads=6 dropout=0.5 f32[2,5,24] f32[2,6,5] f32[2,5,72]" + scalars);
  EXPECT_EQ(call_key(grouped.graph, grouped.forward()), "attention.forward heads=6 kv_heads=2 dropout=0.5 f32[2,5,24] f32[2,6,5] f32[2,5,40]" + scalars);
  EXPECT_EQ(call_key(documents.graph, documents.forward()), "attention.forward heads=6 dropout=0.5 f32[2,5,24] f32[2,6,5] f32[2,5,72] i32[2,5]" + scalars);
}

}  // namespace
}  // namespace reprise
