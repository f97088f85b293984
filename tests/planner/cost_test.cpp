// Compares flops and bytes of kernel calls and of complete steps with numbers that were computed by
// hand, counted by a loop, or published. Plans without a profile are priced by flops and bytes, and
// measured kernels are compared with them. The test must not use the formulas of cost.cpp.
#include <gtest/gtest.h>

#include <set>

#include "tests/runtime/training_harness.h"
#include "tools/plan/costs/step_cost.h"
#include "tools/plan/graph/call.h"
#include "tools/plan/graph/rules.h"

namespace reprise {
namespace {

// The shape and type of a tensor that a call reads or writes.
struct Stored {
  Stored(std::initializer_list<uint32_t> dimensions, DType type = DType::kF32) : shape(dimensions), dtype(type) {}
  Stored(Shape dimensions, DType type = DType::kF32) : shape(std::move(dimensions)), dtype(type) {}
  Shape shape;
  DType dtype;
};

struct OneCall {
  Graph graph;
  Call call;

  OneCall& accumulate(uint16_t outputs) {
    call.accumulate = outputs;
    return *this;
  }
  template <typename A>
  OneCall& attribute(const A& its) {
    call.attribute = graph.attributes.intern(its);
    return *this;
  }
  OneCall& update(uint64_t elements) {
    UpdateAttribute update{};
    update.group = {3, 0, elements};
    return attribute(update);
  }
};
// Returns a call of kernel K. The test lists the tensor of each argument that is present.
template <typename K>
OneCall one_call(const std::vector<NamedArgument<K, Stored>>& arguments) {
  OneCall one;
  std::vector<NamedArgument<K, ValueId>> values;
  for (const auto& [argument, tensor] : arguments) {
    values.push_back({argument, one.graph.add_value("v" + std::to_string(values.size()), ValueKind::kActivation,
                                                    tensor.shape, tensor.dtype)});
  }
  one.call = call<K>(values);
  return one;
}

void expect_cost(const OneCall& one, double flops, double bytes) {
  const CallCost cost = call_cost(one.graph, one.call);
  EXPECT_EQ(cost.flops, flops);
  EXPECT_EQ(cost.bytes, bytes);
}

constexpr uint32_t kScalarsBytes = sizeof(StepScalars);

TEST(Cost, LinearReadsEachOperandOnceAndCountsTwoFlopsAProduct) {
  const double flops = 2 * 10 * 3 * 5;
  using A = LinearForward;
  const std::vector<NamedArgument<A, Stored>> plain = {{A::kY, {10, 5}}, {A::kX, {10, 3}}, {A::kW, {5, 3}}};
  std::vector<NamedArgument<A, Stored>> with_bias = plain, adapted = plain;
  with_bias.push_back({A::kB, {5}});
  adapted.insert(adapted.end(), {{A::kH, {10, 2}}, {A::kU, {5, 2}}});
  expect_cost(one_call<A>(with_bias), flops, 4 * (50 + 30 + 15 + 5));
  expect_cost(one_call<A>(plain), flops, 4 * (50 + 30 + 15));
  expect_cost(one_call<A>(adapted), flops + 2 * 10 * 2 * 5, 4 * (50 + 30 + 15 + 20 + 10));
  using Data = LinearBackwardData;
  using Weight = LinearBackwardWeight;
  using Bias = LinearBackwardBias;
  expect_cost(one_call<Data>({{Data::kDx, {10, 3}}, {Data::kDy, {10, 5}}, {Data::kW, {5, 3}}}), flops,
              4 * (30 + 50 + 15));
  expect_cost(one_call<Weight>({{Weight::kDw, {5, 3}}, {Weight::kX, {10, 3}}, {Weight::kDy, {10, 5}}}), flops,
              4 * (15 + 30 + 50));
  expect_cost(one_call<Bias>({{Bias::kDb, {5}}, {Bias::kDy, {10, 5}}}), 0, 4 * (5 + 50));
}

TEST(Cost, WhatIsAddedToOrUpdatedMovesTwice) {
  using Copy = CopyForward;
  expect_cost(one_call<Copy>({{Copy::kY, {100}}, {Copy::kX, {100}}}), 0, 4 * 200);
  expect_cost(one_call<Copy>({{Copy::kY, {100}}, {Copy::kX, {100}}}).accumulate(1u << Copy::kY), 0, 4 * 300);
  using A = BatchNormBackward;
  expect_cost(one_call<A>({{A::kDx, {2, 4, 4, 8}},
                           {A::kDgamma, {8}},
                           {A::kDbeta, {8}},
                           {A::kX, {2, 4, 4, 8}},
                           {A::kMean, {8}},
                           {A::kRstd, {8}},
                           {A::kGamma, {8}},
                           {A::kDy, {2, 4, 4, 8}}})
                  .accumulate(1u << A::kDgamma),
              0, 4 * (3 * 256 + 5 * 8 + 8));
  using Running = BatchNormRunning;
  expect_cost(one_call<Running>({{Running::kRunningMean, {8}},
                                 {Running::kRunningVar, {8}},
                                 {Running::kBatches, {{}, DType::kI64}},
                                 {Running::kMean, {8}},
                                 {Running::kRstd, {8}}}),
              0, 4 * 6 * 8 + 2 * 8);
}

TEST(Cost, OptimizersTouchTheWholeGroupNotItsFirstTensor) {
  const Stored first = {7}, scalars = {{kScalarsBytes}, DType::kU8};
  using Sgd = SgdUpdate;
  expect_cost(
      one_call<Sgd>(
          {{Sgd::kParameters, first}, {Sgd::kMomenta, first}, {Sgd::kGradients, first}, {Sgd::kScalars, scalars}})
          .update(1000),
      0, 4 * 5 * 1000 + kScalarsBytes);
  expect_cost(
      one_call<Sgd>({{Sgd::kParameters, first}, {Sgd::kGradients, first}, {Sgd::kScalars, scalars}}).update(1000), 0,
      4 * 3 * 1000 + kScalarsBytes);
  using Adam = AdamWUpdate;
  expect_cost(one_call<Adam>({{Adam::kParameters, first},
                              {Adam::kFirstMoments, first},
                              {Adam::kSecondMoments, first},
                              {Adam::kGradients, first},
                              {Adam::kScalars, scalars}})
                  .update(1000),
              0, 4 * 7 * 1000 + kScalarsBytes);
  using Lion = LionUpdate;
  expect_cost(
      one_call<Lion>(
          {{Lion::kParameters, first}, {Lion::kMomenta, first}, {Lion::kGradients, first}, {Lion::kScalars, scalars}})
          .update(1000),
      0, 4 * 5 * 1000 + kScalarsBytes);
  using Reduce = GradNormReduce;
  expect_cost(
      one_call<Reduce>({{Reduce::kNorms, {6}}, {Reduce::kGradients, first}}).attribute(GroupAttribute{3, 0, 1000}), 0,
      4 * (1000 + 2 * 6));
}

// Counts of a convolution for one pair of channels, by a loop: `products` is the number of
// multiplications, `pixels` the number of different pixels that are read.
struct WindowWalk {
  double products = 0, pixels = 0;
};
WindowWalk walk(uint32_t H, uint32_t W, WindowAttribute w) {
  WindowWalk sum;
  std::set<std::pair<int, int>> touched;
  for (uint32_t p = 0; p < w.rows().outputs(H); ++p) {
    for (uint32_t q = 0; q < w.columns().outputs(W); ++q) {
      for (int r = 0; r < w.kernel_h; ++r) {
        for (int s = 0; s < w.kernel_w; ++s) {
          const int h = static_cast<int>(p * w.stride_h) - w.pad_top + r * w.dilation_h,
                    v = static_cast<int>(q * w.stride_w) - w.pad_left + s * w.dilation_w;
          ++sum.products;  // taps in the padding also count, as is usual
          if (h >= 0 && v >= 0 && h < static_cast<int>(H) && v < static_cast<int>(W)) touched.insert({h, v});
        }
      }
    }
  }
  sum.pixels = static_cast<double>(touched.size());
  return sum;
}

TEST(Cost, ConvolutionsCountTheirProductsAndThePixelsUnderTheirWindows) {
  const uint32_t N = 2, C = 6, K = 10;
  const WindowAttribute grouped = {.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .pad_top = 1, .groups = 2};
  const WindowAttribute unequal = {.kernel_h = 2,
                                   .kernel_w = 3,
                                   .stride_h = 3,
                                   .pad_top = 1,
                                   .stride_w = 1,
                                   .pad_left = 0,
                                   .dilation_h = 1,
                                   .dilation_w = 2};
  const struct {
    uint32_t H, W;
    WindowAttribute window;
  } cases[] = {{8, 9, grouped},        {9, 11, unequal},       {8, 9, {3, 3, 1, 1}},
               {8, 8, {3, 3, 2, 1}},   {8, 8, {1, 1, 2, 0}},   {9, 7, {1, 1, 2, 0}},
               {11, 11, {7, 7, 2, 3}}, {12, 12, {2, 2, 3, 0}}, {8, 8, {1, 1, 1, 0}}};
  for (const auto& c : cases) {
    const WindowWalk counted = walk(c.H, c.W, c.window);
    const uint32_t P = static_cast<uint32_t>(c.window.rows().outputs(c.H)),
                   Q = static_cast<uint32_t>(c.window.columns().outputs(c.W));
    const uint32_t of_group = C / c.window.groups;
    const Shape x = {N, c.H, c.W, C}, y = {N, P, Q, K}, w = {K, c.window.kernel_h, c.window.kernel_w, of_group};
    const double flops = 2 * counted.products * N * of_group * K, x_read = counted.pixels * N * C,
                 x_all = N * c.H * c.W * C, y_all = N * P * Q * K,
                 w_all = K * c.window.kernel_h * c.window.kernel_w * of_group;
    using Conv = ConvForward;
    expect_cost(one_call<Conv>({{Conv::kY, y}, {Conv::kX, x}, {Conv::kW, w}}).attribute(c.window), flops,
                4 * (y_all + x_read + w_all));
    // If the convolution also computes statistics of y, it costs two more vectors, and no second
    // pass over y.
    expect_cost(one_call<Conv>(
                    {{Conv::kY, y}, {Conv::kMeanOfY, {K}}, {Conv::kRstdOfY, {K}}, {Conv::kX, x}, {Conv::kW, w}})
                    .attribute(c.window),
                flops, 4 * (y_all + x_read + w_all + 2 * K));
    expect_cost(one_call<Conv>({{Conv::kY, y}, {Conv::kX, x}, {Conv::kW, w}, {Conv::kB, {K}}}).attribute(c.window),
                flops, 4 * (y_all + x_read + w_all + K));
    using Data = ConvBackwardData;
    using Weight = ConvBackwardWeight;
    expect_cost(one_call<Data>({{Data::kDx, x}, {Data::kDy, y}, {Data::kW, w}}).attribute(c.window), flops,
                4 * (x_all + y_all + w_all));
    expect_cost(one_call<Weight>({{Weight::kDw, w}, {Weight::kX, x}, {Weight::kDy, y}}).attribute(c.window), flops,
                4 * (w_all + x_read + y_all));
    if (c.window.groups != 1) continue;
    // If a norm is folded into the convolution, it costs the norm's four vectors, and no second
    // pass over x.
    const auto with_norm = [&]<typename A>(std::vector<NamedArgument<A, Stored>> arguments) {
      arguments.insert(arguments.end(), {{A::kMean, {C}}, {A::kRstd, {C}}, {A::kGamma, {C}}, {A::kBeta, {C}}});
      return one_call<A>(arguments).attribute(c.window);
    };
    using Norm = NormConvForward;
    using NormWeight = NormConvBackwardWeight;
    const std::vector<NamedArgument<Norm, Stored>> forward = {{Norm::kY, y}, {Norm::kX, x}, {Norm::kW, w}};
    const std::vector<NamedArgument<NormWeight, Stored>> weight = {{NormWeight::kDw, w},
                                                                   {NormWeight::kX, x},
                                                                   {NormWeight::kDy, y}};
    expect_cost(with_norm(forward), flops, 4 * (y_all + x_read + w_all + 4 * C));
    expect_cost(with_norm(weight), flops, 4 * (w_all + x_read + y_all + 4 * C));
  }
}

TEST(Cost, EmbeddingsTouchTheRowsOfTheirTokens) {
  const uint32_t B = 2, T = 3, C = 8, V = 50, L = 16;
  const double y = B * T * C, tokens = B * T;
  using Forward = EmbeddingForward;
  expect_cost(one_call<Forward>({{Forward::kY, {B, T, C}},
                                 {Forward::kTokens, {{B, T}, DType::kI32}},
                                 {Forward::kTable, {V, C}},
                                 {Forward::kPositions, {L, C}}}),
              0, 4 * (y + tokens + B * T * C + T * C));
  using Backward = EmbeddingBackward;
  const auto backward = [&](uint32_t vocabulary) {
    return one_call<Backward>({{Backward::kDtable, {vocabulary, C}},
                               {Backward::kDpositions, {L, C}},
                               {Backward::kTokens, {{B, T}, DType::kI32}},
                               {Backward::kDy, {B, T, C}}});
  };
  constexpr uint16_t kTable = 1u << Backward::kDtable, kPositions = 1u << Backward::kDpositions;
  expect_cost(backward(V), 0, 4 * (V * C + L * C + tokens + y));
  expect_cost(backward(V).accumulate(kTable), 0, 4 * (2 * B * T * C + L * C + tokens + y));
  expect_cost(backward(V).accumulate(kTable | kPositions), 0, 4 * (2 * B * T * C + 2 * T * C + tokens + y));
  expect_cost(backward(4).accumulate(kTable), 0, 4 * (2 * 4 * C + L * C + tokens + y));  // fewer rows than tokens
}

TEST(Cost, CausalAttentionCountsThePairsItLooksAt) {
  const uint32_t B = 2, T = 5, C = 6, heads = 2;
  double pairs = 0;
  for (uint32_t t = 0; t < T; ++t) {
    for (uint32_t u = 0; u <= t; ++u) ++pairs;
  }
  const double product = 2 * B * pairs * C, y = B * T * C, lse = B * heads * T;
  const AttentionAttribute all{heads, heads, 0, 0};
  using A = AttentionForward;
  expect_cost(one_call<A>({{A::kY, {B, T, C}},
                           {A::kLse, {B, heads, T}},
                           {A::kQkv, {B, T, 3 * C}},
                           {A::kScalars, {{kScalarsBytes}, DType::kU8}}})
                  .attribute(all),
              2 * product, 4 * (y + lse + 3 * y) + kScalarsBytes);
  using Back = AttentionBackward;
  expect_cost(one_call<Back>({{Back::kDqkv, {B, T, 3 * C}},
                              {Back::kQkv, {B, T, 3 * C}},
                              {Back::kY, {B, T, C}},
                              {Back::kLse, {B, heads, T}},
                              {Back::kDy, {B, T, C}},
                              {Back::kScalars, {{kScalarsBytes}, DType::kU8}}})
                  .attribute(all),
              5 * product, 4 * (6 * y + 2 * y + lse) + kScalarsBytes);
}

TEST(Cost, AttentionThatIsNotCausalCountsAllPairs) {
  const uint32_t B = 2, T = 9, C = 4;
  Graph graph;
  const ValueId x = graph.input = graph.add_value("qkv", ValueKind::kActivation, {B, T, 3 * C});
  const ValueId qkv = graph.linear(x, "below", 3 * C, true, false, 1);
  const ValueId y = graph.attention(qkv, "a", {.heads = 2, .kv_heads = 2, .dropout = 0, .stream = 0, .causal = 0});
  const double product = 2 * B * double(T * T) * C;
  EXPECT_EQ(call_cost(graph, forward_calls(graph, graph.nodes.back())[0]).flops, 2 * product);
  const ValueId dy = graph.add_value("dy", ValueKind::kGradient, {B, T, C});
  EXPECT_EQ(call_cost(graph, BackwardBuilder(graph).build(0, graph.nodes.size(), x, y, dy).calls.at(0)).flops,
            5 * product);
}

TEST(Cost, AWindowCountsThePairsThatItLeaves) {
  const uint32_t T = 9, C = 4;
  for (const uint32_t window : {1u, 3u, 8u, 9u, 20u}) {
    Graph graph;
    graph.attention(graph.add_value("qkv", ValueKind::kActivation, {1, T, 3 * C}), "a",
                    {.heads = 1, .kv_heads = 1, .dropout = 0, .stream = 0, .window = window});
    double pairs = 0;
    for (uint32_t t = 0; t < T; ++t) pairs += std::min(t + 1, window);
    EXPECT_EQ(call_cost(graph, forward_calls(graph, graph.nodes.back())[0]).flops, 2 * 2 * pairs * C) << window;
  }
}

TEST(Cost, RopeReadsWhatItRotatesItsPositionsAndItsTable) {
  const uint32_t B = 2, T = 5, columns = 24, pairs = 3;
  const double x = B * T * columns;
  const auto forward = [&](DType stored) -> std::vector<NamedArgument<RopeForward, Stored>> {
    using A = RopeForward;
    return {{A::kQkv, {{B, T, columns}, stored}},
            {A::kQ, {{B, T, 12}, stored}},
            {A::kK, {{B, T, 6}, stored}},
            {A::kV, {{B, T, 6}, stored}}};
  };
  const auto backward = [&](DType stored) -> std::vector<NamedArgument<RopeBackward, Stored>> {
    using A = RopeBackward;
    return {{A::kDq, {{B, T, 12}, stored}},
            {A::kDk, {{B, T, 6}, stored}},
            {A::kDv, {{B, T, 6}, stored}},
            {A::kDqkv, {{B, T, columns}, stored}}};
  };
  const auto expect_transposed = [&]<typename A>(A, const auto& transposed) {
    auto placed = transposed(DType::kF32);
    placed.insert(placed.end(), {{A::kDocumentStart, {{B, T}, DType::kI32}}, {A::kFrequencies, {pairs}}});
    expect_cost(one_call<A>(transposed(DType::kF32)), 0, 4 * 2 * x);
    expect_cost(one_call<A>(placed), 0, 4 * (2 * x + B * T + pairs));
    expect_cost(one_call<A>(transposed(DType::kBf16)), 0, 2 * 2 * x);
  };
  expect_transposed(RopeForward(), forward);
  expect_transposed(RopeBackward(), backward);
}

TEST(Cost, RmsNormMovesItsRowsAndOneVectorOfThem) {
  const uint32_t M = 10, C = 6;
  const double x = M * C;
  using Forward = RmsNormForward;
  using Backward = RmsNormBackward;
  expect_cost(one_call<Forward>(
                  {{Forward::kY, {M, C}}, {Forward::kRstd, {M}}, {Forward::kX, {M, C}}, {Forward::kGamma, {C}}}),
              0, 4 * (2 * x + M + C));
  const auto backward = [&] {
    return one_call<Backward>({{Backward::kDx, {M, C}},
                               {Backward::kDgamma, {C}},
                               {Backward::kX, {M, C}},
                               {Backward::kRstd, {M}},
                               {Backward::kGamma, {C}},
                               {Backward::kDy, {M, C}}});
  };
  expect_cost(backward(), 0, 4 * (3 * x + M + 2 * C));
  expect_cost(backward().accumulate(1u << Backward::kDx | 1u << Backward::kDgamma), 0, 4 * (4 * x + M + 3 * C));
}

TEST(Cost, SwigluReadsTwoColumnsForEachThatItWrites) {
  const uint32_t M = 10, F = 6;
  using A = SwigluForward;
  expect_cost(one_call<A>({{A::kY, {M, F}}, {A::kGate, {M, F}}, {A::kUp, {M, F}}}), 0, 4 * 3 * M * F);
  using Back = SwigluBackward;
  expect_cost(one_call<Back>({{Back::kDgate, {M, F}},
                              {Back::kDup, {M, F}},
                              {Back::kGate, {M, F}},
                              {Back::kUp, {M, F}},
                              {Back::kDy, {M, F}}}),
              0, 4 * 5 * M * F);
}

TEST(Cost, AFunctionReadsWhatItWrites) {
  const uint32_t M = 10, F = 6;
  const UnaryAttribute silu{};
  using A = UnaryForward;
  expect_cost(one_call<A>({{A::kY, {M, F}}, {A::kX, {M, F}}}).attribute(silu), 0, 4 * 2 * M * F);
  using Back = UnaryBackward;
  expect_cost(one_call<Back>({{Back::kDx, {M, F}}, {Back::kX, {M, F}}, {Back::kDy, {M, F}}}).attribute(silu), 0,
              4 * 3 * M * F);
}

TEST(Cost, ARepeatedFactorIsReadOnce) {
  const Stored a = {2, 5, 7, 3}, b = {2, 1, 1, 3};
  const double n = 2 * 5 * 7 * 3, few = 2 * 3;
  using A = MultiplyForward;
  expect_cost(one_call<A>({{A::kY, a}, {A::kA, a}, {A::kB, b}}), 0, 4 * (2 * n + few));
  using Data = MultiplyBackwardData;
  expect_cost(one_call<Data>({{Data::kDa, a}, {Data::kDy, a}, {Data::kB, b}}), 0, 4 * (2 * n + few));
  using Weight = MultiplyBackwardWeight;
  expect_cost(one_call<Weight>({{Weight::kDb, b}, {Weight::kDy, a}, {Weight::kA, a}}), 0, 4 * (2 * n + few));
  using Sum = BroadcastAddBackward;
  expect_cost(one_call<Sum>({{Sum::kDb, b}, {Sum::kDy, a}}), 0, 4 * (n + few));
  using Leaf = LearnedForward;
  expect_cost(one_call<Leaf>({{Leaf::kY, b}, {Leaf::kW, b}}), 0, 4 * 2 * few);
}

TEST(Cost, AProductCountsTwoFlopsForEachPairHoweverItsFactorsLie) {
  const uint32_t B = 6, M = 5, N = 4, K = 7;
  using A = ProductForward;
  const double flops = 2.0 * B * M * N * K, bytes = 4 * B * (M * N + M * K + K * N);
  expect_cost(one_call<A>({{A::kC, {2, 3, M, N}}, {A::kA, {2, 3, M, K}}, {A::kB, {2, 3, K, N}}})
                  .attribute(ProductAttribute{0, 0}),
              flops, bytes);
  expect_cost(
      one_call<A>({{A::kC, {B, M, N}}, {A::kA, {B, K, M}}, {A::kB, {B, N, K}}}).attribute(ProductAttribute{1, 1}),
      flops, bytes);
  expect_cost(one_call<A>({{A::kC, {B, M, N}}, {A::kA, {B, M, K}}, {A::kB, {B, K, N}}})
                  .attribute(ProductAttribute{0, 0})
                  .accumulate(1),
              flops, bytes + 4 * B * M * N);
  using Softmax = SoftmaxBackward;
  expect_cost(one_call<Softmax>({{Softmax::kDx, {B, M}}, {Softmax::kY, {B, M}}, {Softmax::kDy, {B, M}}}), 0,
              4 * 3 * B * M);
  using Rows = LearnedRowsForward;
  expect_cost(one_call<Rows>({{Rows::kY, {B, M}}, {Rows::kW, {B, M}}, {Rows::kRows, {B}}}), 0, 4 * (2 * B * M + B));
}

TEST(Cost, ColumnsReadWhatTheyWrite) {
  const uint32_t M = 10, K = 12, C = 5;
  using A = ColumnsForward;
  expect_cost(one_call<A>({{A::kY, {M, C}}, {A::kX, {M, K}}}), 0, 4 * 2 * M * C);
  using Back = ColumnsBackward;
  expect_cost(one_call<Back>({{Back::kDx, {M, K}}, {Back::kDy, {M, C}}}), 0, 4 * (M * K + M * C));
  expect_cost(one_call<Back>({{Back::kDx, {M, K}}, {Back::kDy, {M, C}}}).accumulate(1u << Back::kDx), 0, 4 * 3 * M * C);
  expect_cost(one_call<A>({{A::kY, {M, C}}, {A::kX, {M, K}}}).accumulate(1u << A::kY), 0, 4 * 3 * M * C);
}

TEST(Cost, PaddingWritesItsZerosAndReadsNoneBack) {
  const uint32_t N = 2, small = 3 * 4 * 5, large = 6 * 5 * 5;
  using A = PadForward;
  expect_cost(one_call<A>({{A::kY, {N, 6, 5, 5}}, {A::kX, {N, 3, 4, 5}}}), 0, 4 * N * (small + large));
  using Back = PadBackward;
  expect_cost(one_call<Back>({{Back::kDx, {N, 3, 4, 5}}, {Back::kDy, {N, 6, 5, 5}}}), 0, 4 * N * 2 * small);
}

TEST(Cost, ConcatMovesEachOfItsPartsOnce) {
  using A = ConcatForward;
  expect_cost(one_call<A>({{A::kY, {2, 9}}, {A::kA, {2, 3}}, {A::kB, {2, 4}}, {A::kD, {2, 2}}}), 0, 4 * 2 * 18);
}

TEST(Cost, TheLossHeadComputesItsLogitsInTheBackward) {
  const uint32_t M = 6, C = 4, V = 9;
  const double logits = 2 * M * C * V;
  using A = LossHeadBackward;
  expect_cost(one_call<A>({{A::kDx, {M, C}},
                           {A::kDw, {V, C}},
                           {A::kScalars, {{kScalarsBytes}, DType::kU8}},
                           {A::kX, {M, C}},
                           {A::kW, {V, C}},
                           {A::kLabels, {{M}, DType::kI32}}}),
              3 * logits, 4 * (2 * M * C + 2 * V * C + M) + 2 * kScalarsBytes);
}

TEST(Cost, PairsAmongOthersAreThreeProducts) {
  const uint32_t B = 6, D = 5;
  const double cosines = 2 * B * B * D, numbers = 4 * (2 * B * D + B) + 2 * kScalarsBytes;
  using A = PairLossBackward;
  const OneCall backward = one_call<A>(
      {{A::kDx, {2 * B, D}}, {A::kScalars, {{kScalarsBytes}, DType::kU8}}, {A::kX, {2 * B, D}}, {A::kLabels, {B}}});
  expect_cost(OneCall(backward).attribute(PairLossAttribute{0, 0.5f}), 3 * cosines, numbers + 4 * 2 * B * D);
  expect_cost(OneCall(backward).attribute(PairLossAttribute{1}), 0, numbers + 4 * 2 * B * D);
  using E = PairLossEvaluate;
  expect_cost(one_call<E>({{E::kScalars, {{kScalarsBytes}, DType::kU8}}, {E::kX, {2 * B, D}}, {E::kLabels, {B}}})
                  .attribute(PairLossAttribute{0, 0.5f, 1}),
              cosines, numbers);
}

TEST(Cost, ATransferMovesItsBlockOnce) {
  expect_cost(one_call<TransferStart>({{TransferStart::kY, {100}}, {TransferStart::kX, {100}}}), 0, 400);
  expect_cost(one_call<TransferWait>({{TransferWait::kY, {100}}, {TransferWait::kX, {100}}}), 0, 0);
}

// torchvision publishes 4.09 billion multiply-adds for the forward of ResNet-50 at 224 x 224, with
// the classifier. A step costs three times as much, except for the gradient of the images, which is
// not computed.
TEST(Cost, ResNet50HasThePublishedFlops) {
  const Recipe recipe = recipe_from(
      R"({"name": "r50", "model": {"family": "resnet", "block": "bottleneck", "units": [3, 4, 6, 3], "width": 64, "stem": "imagenet",
      "classes": 1000, "image": [224, 224, 3]}, "data": {"kind": "synthetic"}, "batch": 2, "steps": 1, "optimizer": {"name": "sgd", "lr": 0.1}})");
  const PlannedRun run = plan_run(recipe, "none");
  const double stem = 2.0 * 2 * 112 * 112 * 64 * 7 * 7 * 3;  // flops that a gradient of the images would need
  EXPECT_NEAR((step_cost(run.planned.plan).flops + stem) / 3 / 2 / 2, 4.09e9, 0.005e9);
}

TEST(Cost, AStepCountsItsRecomputationAndItsMicroBatches) {
  const Recipe once = recipe_from(resnet_recipe()), thrice = recipe_from(resnet_recipe(R"(, "accumulate": 3)"));
  const CallCost all = step_cost(plan_run(once, "none").planned.plan),
                 minimum = step_cost(plan_run(once, "optimal", 0).planned.plan);
  EXPECT_GT(minimum.flops, all.flops);
  EXPECT_GT(minimum.bytes, all.bytes);
  EXPECT_EQ(step_cost(plan_run(thrice, "none").planned.plan).flops, 3 * all.flops);
}

}  // namespace
}  // namespace reprise
