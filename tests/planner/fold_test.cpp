// Tests which norms fold_norms() folds, from the calls that the graph then makes. A wrong fold
// gives a wrong net, and a missed fold costs memory without any other symptom. No kernels run here;
// replay_test compares folded plans with the unfolded net.
#include "tools/plan/graph/fold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/planner/deep_resnet.h"
#include "tools/plan/graph/call.h"
#include "tools/plan/graph/rules.h"
#include "tools/plan/recipes/recipe_graph.h"

namespace reprise {
namespace {

constexpr WindowAttribute kThree = {3, 3, 1, 1};

std::vector<std::string> names_of(const std::vector<Call>& calls) {
  std::vector<std::string> names;
  for (const Call& call : calls) names.push_back(kernel_info(call.op, call.pass).name);
  return names;
}

// The calls of a graph after folding, or without folding if `folds` is false.
struct Folded {
  std::vector<Call> forward, backward;

  explicit Folded(Graph& graph, bool folds = true) {
    if (folds) want_statistics(graph);
    for (const Node& node : graph.nodes) {
      for (const Call& call : forward_calls(graph, node)) forward.push_back(call);
    }
    if (!graph.nodes.empty() && graph.nodes.back().op == Op::kLossHead) {
      backward = BackwardBuilder(graph).build(0, graph.nodes.size(), graph.input, kNoValue, kNoValue).calls;
    }
    if (folds) fold_norms(graph, forward, backward);
  }
  // Returns the names of the calls, without the calls for statistics that every batch-norm makes.
  std::vector<std::string> names() const {
    std::vector<std::string> names = names_of(forward);
    std::erase_if(names, [](const std::string& name) {
      return name == "batch_norm.statistics" || name == "batch_norm.running";
    });
    return names;
  }
  Call named(const std::string& name) const {
    const auto found = std::find_if(forward.begin(), forward.end(),
                                    [&](const Call& call) { return kernel_info(call.op, call.pass).name == name; });
    return found == forward.end() ? Call{} : *found;
  }
};

size_t count_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<size_t>(std::count(names.begin(), names.end(), name));
}

using Names = std::vector<std::string>;

struct Net {
  Graph graph;
  ValueId x;

  Net() : x(graph.input = graph.add_value("images", ValueKind::kInput, {2, 8, 8, 4})) {
    x = graph.conv(x, "conv0", 16, kThree);
  }
  ValueId norm(ValueId v, const char* name) { return graph.batch_norm(v, name); }
  Names forward() { return Folded(graph).names(); }
};

TEST(Fold, AConvolutionNormalisesWhatItReads) {
  Net net;
  net.graph.conv(net.graph.relu(net.norm(net.x, "bn"), "relu"), "conv1", 16, kThree);
  const Folded folded(net.graph);
  EXPECT_EQ(folded.names(), (Names{"conv.forward", "norm_conv.forward"}));
  const Node &norm = net.graph.nodes[1], &conv = net.graph.nodes[3];
  using A = NormConvForward;
  EXPECT_EQ(folded.named("norm_conv.forward"), call<A>({{A::kY, conv.outputs[0]},
                                                        {A::kX, net.x},
                                                        {A::kW, conv.parameters[0]},
                                                        {A::kMean, norm.outputs[1]},
                                                        {A::kRstd, norm.outputs[2]},
                                                        {A::kGamma, norm.parameters[0]},
                                                        {A::kBeta, norm.parameters[1]}},
                                                       conv.attribute));
}

TEST(Fold, SoDoTwoThatReadTheSame) {
  Net net;
  const ValueId a = net.graph.relu(net.norm(net.x, "bn"), "relu");
  net.graph.conv(a, "conv1", 16, kThree);
  net.graph.conv(a, "conv2", 16, {1, 1, 1, 0});
  EXPECT_EQ(net.forward(), (Names{"conv.forward", "norm_conv.forward", "norm_conv.forward"}));
}

TEST(Fold, AnAdditionWithItsReluTakesTheNormOfItsFirstInput) {
  Net net;
  const ValueId b = net.norm(net.graph.conv(net.x, "conv1", 16, kThree), "bn1");
  net.graph.relu(net.graph.add(net.norm(net.x, "bn"), b, "add"), "relu");
  EXPECT_EQ(net.forward(), (Names{"conv.forward", "conv.forward", "batch_norm.forward", "norm_add_relu.forward"}));
}

// A norm with a frozen gamma uses running statistics, which are in State. It is not folded: no
// convolution computes its statistics, no convolution normalises with it, and it absorbs no ReLU.
TEST(Fold, ANormByRunningStatisticsStaysByItself) {
  for (const bool beta_trains : {false, true}) {
    Net net;
    Graph& g = net.graph;
    g.labels = g.add_value("labels", ValueKind::kLabels, {2}, DType::kI32);
    const ValueId a = g.relu(net.norm(g.conv(net.x, "conv1", 16, kThree), "bn"), "relu");
    g.loss_head(g.global_pool(g.conv(a, "conv2", 16, kThree), "pool"), "head",
                g.parameter("head.weight", {3, 16}, InitKind::kConstant, 1), kNoValue);
    for (Value& value : g.values)
      value.trainable = value.trainable && value.name != "bn.weight" && (beta_trains || value.name != "bn.bias");
    const Folded folded(g);
    EXPECT_EQ(names_of(folded.forward), (Names{"conv.forward", "conv.forward", "batch_norm.inference", "relu.forward",
                                               "conv.forward", "global_pool.forward"}));
    const Names backward = names_of(folded.backward);
    EXPECT_EQ(count_of(backward, "batch_norm.backward_data"), 1u);
    EXPECT_EQ(count_of(backward, "linear.backward_bias"), beta_trains ? 1u : 0u);
    EXPECT_EQ(count_of(backward, "batch_norm.backward") + count_of(backward, "norm_relu.backward"), 0u);
  }
}

TEST(Fold, WhatOthersReadStays) {
  const Names plain = {"conv.forward", "batch_norm.forward", "relu.forward", "conv.forward"};
  Net pooled, shared;
  const ValueId a = pooled.graph.relu(pooled.norm(pooled.x, "bn"), "relu");
  pooled.graph.conv(a, "conv1", 16, kThree);
  pooled.graph.global_pool(a, "pool");
  Names names = pooled.forward();
  names.pop_back();
  EXPECT_EQ(names, plain);

  const ValueId y = shared.norm(shared.x, "bn");
  shared.graph.conv(shared.graph.relu(y, "relu"), "conv1", 16, kThree);
  shared.graph.global_pool(y, "pool");
  names = shared.forward();
  names.pop_back();
  EXPECT_EQ(names, plain);
}

TEST(Fold, NothingIsFoldedAcrossACut) {
  for (const bool after_relu : {false, true}) {
    Net net;
    const ValueId y = net.norm(net.x, "bn"), a = net.graph.relu(y, "relu");
    net.graph.cut(after_relu ? a : y);
    net.graph.conv(a, "conv1", 16, kThree);
    EXPECT_EQ(net.forward(), (Names{"conv.forward", "batch_norm.forward", "relu.forward", "conv.forward"}))
        << after_relu;
  }
  for (const bool after_add : {false, true}) {
    Net net;
    const ValueId y = net.norm(net.x, "bn"), sum = net.graph.add(y, net.x, "add");
    net.graph.cut(after_add ? sum : y);
    net.graph.relu(sum, "relu");
    EXPECT_EQ(net.forward(), (Names{"conv.forward", "batch_norm.forward", "add.forward", "relu.forward"})) << after_add;
  }
}

TEST(Fold, AConvolutionTakesTheStatisticsOfWhatItWrites) {
  Net net;
  const ValueId y = net.graph.conv(net.graph.relu(net.norm(net.x, "bn0"), "relu"), "conv1", 16, kThree);
  net.norm(y, "bn1");
  net.norm(y, "bn2");  // a second norm of y computes the statistics again
  const std::vector<Call> calls = Folded(net.graph).forward;
  std::vector<Call> later;
  for (const Call& call : calls) {
    if (const auto again = repeated(call)) later.push_back(*again);
  }
  EXPECT_EQ(names_of(calls),
            (Names{"conv.forward", "batch_norm.running", "norm_conv.forward", "batch_norm.running",
                   "batch_norm.forward", "batch_norm.statistics", "batch_norm.running", "batch_norm.forward"}));
  const Node &bn0 = net.graph.nodes[1], &bn1 = net.graph.nodes[4];
  const auto statistics = [](const Call& call) {
    return std::vector<ValueId>{call.arguments[ConvForward::kMeanOfY], call.arguments[ConvForward::kRstdOfY]};
  };
  EXPECT_EQ(statistics(calls[0]), (std::vector<ValueId>{bn0.outputs[1], bn0.outputs[2]}));
  EXPECT_EQ(statistics(calls[2]), (std::vector<ValueId>{bn1.outputs[1], bn1.outputs[2]}));
  EXPECT_EQ(net.graph.attributes.of<WindowAttribute>()[calls[2].attribute].statistics_epsilon,
            net.graph.attributes.of<NormAttribute>()[bn1.attribute].epsilon);

  // A convolution that is recomputed computes no statistics.
  EXPECT_EQ(names_of(later), (Names{"conv.forward", "norm_conv.forward", "batch_norm.forward", "batch_norm.forward"}));
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(statistics(later[i]), (std::vector<ValueId>{kNoValue, kNoValue}));
}

// A norm is not folded into a convolution with groups, but such a convolution computes statistics
// of its output. A bias does not prevent folding; the folded convolution keeps it.
TEST(Fold, AConvolutionInGroupsDoesNotNormalise) {
  Net net;
  WindowAttribute depthwise = kThree;
  depthwise.groups = 16;
  const ValueId y = net.graph.conv(net.graph.relu(net.norm(net.x, "bn0"), "relu0"), "conv1", 16, depthwise, true);
  net.graph.conv(net.graph.relu(net.norm(y, "bn1"), "relu1"), "conv2", 16, kThree, true);
  const std::vector<Call> calls = Folded(net.graph).forward;
  EXPECT_EQ(names_of(calls), (Names{"conv.forward", "batch_norm.running", "batch_norm.forward", "relu.forward",
                                    "conv.forward", "batch_norm.running", "norm_conv.forward"}));
  EXPECT_NE(calls[4].arguments[ConvForward::kMeanOfY], kNoValue);
  EXPECT_EQ(calls[4].arguments[ConvForward::kB], net.graph.nodes[3].parameters[1]);
  EXPECT_EQ(calls[6].arguments[NormConvForward::kB], net.graph.nodes.back().parameters[1]);
}

TEST(Fold, NoStatisticsAreTakenAcrossACut) {
  Net net;
  net.graph.cut(net.x);
  net.norm(net.x, "bn");
  EXPECT_EQ(names_of(Folded(net.graph).forward),
            (Names{"conv.forward", "batch_norm.statistics", "batch_norm.running", "batch_norm.forward"}));
}

// A bottleneck unit stores the outputs of its three convolutions and its own output. The norms and
// ReLUs in between are folded. The stem and the projections of four units also store the output of
// their norm.
TEST(Fold, AResNetKeepsOnlyWhatConvolutionsWrote) {
  Graph graph = build_model(deep_resnet({2, 2, 2, 2}));
  Graph plain = graph;
  const Names before = Folded(plain, false).names();
  const Folded folded(graph);
  const Names after = folded.names();
  EXPECT_EQ(count_of(after, "norm_conv.forward"), 16u);       // the second and third convolution of each of eight units
  EXPECT_EQ(count_of(after, "norm_add_relu.forward"), 8u);
  EXPECT_EQ(count_of(after, "batch_norm.forward"), 5u);       // the stem and four projections
  EXPECT_EQ(count_of(after, "relu.forward"), 1u);             // the stem
  EXPECT_EQ(count_of(after, "add.forward"), 0u);
  EXPECT_EQ(count_of(before, "conv.forward"), count_of(after, "conv.forward") + count_of(after, "norm_conv.forward"));

  const Names backward = names_of(folded.backward);
  EXPECT_EQ(count_of(backward, "norm_conv.backward_weight"), 16u);
  EXPECT_EQ(count_of(backward, "norm_relu.backward"), 16u);
  EXPECT_EQ(count_of(backward, "batch_norm.backward"), 8u + 5u);
  EXPECT_EQ(count_of(backward, "relu.backward"), 8u + 1u);

  // Evaluation uses running statistics, so it folds nothing.
  const Names evaluation = names_of(evaluation_calls(graph));
  EXPECT_EQ(count_of(evaluation, "norm_conv.forward"), 0u);
  EXPECT_EQ(count_of(evaluation, "batch_norm.inference"), 16u + 8u + 5u);
}

}  // namespace
}  // namespace reprise
