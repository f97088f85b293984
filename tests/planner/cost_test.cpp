// Flops and bytes of kernel calls and of whole steps, against figures worked out by hand, by counting, and published ones.
// Here because plans without a profile are priced by them, and measured kernels judged.
// It must not use cost.cpp's own formulas.
#include <gtest/gtest.h>

#include <set>

#include "tests/runtime/training_harness.h"
#include "tools/planning/step_cost.h"

namespace reprise {
namespace {

// One call over tensors that the test names.
class OneCall {
 public:
  OneCall(Op op, Pass pass) : op_(op), pass_(pass) {}
  OneCall& add(const Shape& shape, DType dtype = DType::kF32) {
    values_.push_back(graph_.add_value("v" + std::to_string(values_.size()), ValueKind::kActivation, shape, dtype));
    return *this;
  }
  OneCall& absent() {
    values_.push_back(kNoValue);
    return *this;
  }
  OneCall& accumulate(uint8_t outputs) {
    accumulate_ = outputs;
    return *this;
  }
  OneCall& window(WindowAttribute window) {
    graph_.attributes.of<WindowAttribute>().push_back(window);
    return *this;
  }
  OneCall& update(uint64_t elements) {
    UpdateAttribute update{};
    update.group = {3, 0, elements};
    graph_.attributes.of<UpdateAttribute>().push_back(update);
    return *this;
  }
  OneCall& group(uint64_t elements) {
    graph_.attributes.of<GroupAttribute>().push_back({3, 0, elements});
    return *this;
  }
  CallCost cost() const { return call_cost(graph_, {op_, pass_, 0, values_, accumulate_}); }

 private:
  Graph graph_;
  Op op_;
  Pass pass_;
  std::vector<ValueId> values_;
  uint8_t accumulate_ = 0;
};

void expect_cost(const OneCall& call, double flops, double bytes) {
  EXPECT_EQ(call.cost().flops, flops);
  EXPECT_EQ(call.cost().bytes, bytes);
}

TEST(Cost, LinearReadsEachOperandOnceAndCountsTwoFlopsAProduct) {
  const double flops = 2 * 10 * 3 * 5;
  const auto forward = [] { return OneCall(Op::kLinear, Pass::kForward).add({10, 5}).add({10, 3}).add({5, 3}); };
  expect_cost(forward().add({5}).absent().absent(), flops, 4 * (50 + 30 + 15 + 5));
  expect_cost(forward().absent().absent().absent(), flops, 4 * (50 + 30 + 15));
  expect_cost(forward().absent().add({10, 2}).add({5, 2}), flops + 2 * 10 * 2 * 5, 4 * (50 + 30 + 15 + 20 + 10));
  expect_cost(OneCall(Op::kLinear, Pass::kBackwardData).add({10, 3}).add({10, 5}).add({5, 3}), flops, 4 * (30 + 50 + 15));
  expect_cost(OneCall(Op::kLinear, Pass::kBackwardWeight).add({5, 3}).add({10, 3}).add({10, 5}), flops, 4 * (15 + 30 + 50));
  expect_cost(OneCall(Op::kLinear, Pass::kBackwardBias).add({5}).add({10, 5}), 0, 4 * (5 + 50));
}

TEST(Cost, WhatIsAddedToOrUpdatedMovesTwice) {
  expect_cost(OneCall(Op::kCopy, Pass::kForward).add({100}).add({100}), 0, 4 * 200);
  expect_cost(OneCall(Op::kCopy, Pass::kForward).add({100}).add({100}).accumulate(1), 0, 4 * 300);
  // The second output of three is added to.
  OneCall backward(Op::kBatchNorm, Pass::kBackward);
  backward.add({2, 4, 4, 8}).add({8}).add({8}).add({2, 4, 4, 8}).add({8}).add({8}).add({8}).add({2, 4, 4, 8}).accumulate(2);
  expect_cost(backward, 0, 4 * (3 * 256 + 5 * 8 + 8));
  expect_cost(OneCall(Op::kBatchNorm, Pass::kRunning).add({8}).add({8}).add({}, DType::kI64).add({8}).add({8}), 0, 4 * 6 * 8 + 2 * 8);
}

TEST(Cost, OptimizersTouchTheWholeGroupNotItsFirstTensor) {
  const double scalars = sizeof(StepScalars);
  const auto with_scalars = [&](OneCall call) { return call.add({static_cast<uint32_t>(scalars)}, DType::kU8); };
  expect_cost(with_scalars(OneCall(Op::kSgd, Pass::kUpdate).update(1000).add({7}).add({7}).add({7})), 0, 4 * 5 * 1000 + scalars);
  expect_cost(with_scalars(OneCall(Op::kSgd, Pass::kUpdate).update(1000).add({7}).absent().add({7})), 0, 4 * 3 * 1000 + scalars);
  expect_cost(with_scalars(OneCall(Op::kAdamW, Pass::kUpdate).update(1000).add({7}).add({7}).add({7}).add({7})), 0, 4 * 7 * 1000 + scalars);
  expect_cost(with_scalars(OneCall(Op::kLion, Pass::kUpdate).update(1000).add({7}).add({7}).add({7})), 0, 4 * 5 * 1000 + scalars);
  expect_cost(OneCall(Op::kGradNorm, Pass::kReduce).group(1000).add({6}).add({7}), 0, 4 * (1000 + 2 * 6));
}

// By walking over every product of a convolution: what the cost must find without walking.
struct WindowWalk {
  double products = 0, pixels = 0;
};
WindowWalk walk(uint32_t H, uint32_t W, WindowAttribute w) {
  WindowWalk sum;
  std::set<std::pair<int, int>> touched;
  for (uint32_t p = 0; p < window_output(H, w.kernel_h, w.stride, w.pad); ++p) {
    for (uint32_t q = 0; q < window_output(W, w.kernel_w, w.stride, w.pad); ++q) {
      for (int r = 0; r < w.kernel_h; ++r) {
        for (int s = 0; s < w.kernel_w; ++s) {
          const int h = static_cast<int>(p * w.stride) - w.pad + r, v = static_cast<int>(q * w.stride) - w.pad + s;
          ++sum.products;  // on the padding too, as everybody counts them
          if (h >= 0 && v >= 0 && h < static_cast<int>(H) && v < static_cast<int>(W)) touched.insert({h, v});
        }
      }
    }
  }
  sum.pixels = static_cast<double>(touched.size());
  return sum;
}

TEST(Cost, ConvolutionsCountTheirProductsAndThePixelsUnderTheirWindows) {
  const uint32_t N = 2, C = 3, K = 5;
  const struct {
    uint32_t H, W;
    WindowAttribute window;
  } cases[] = {{8, 9, {3, 3, 1, 1}}, {8, 8, {3, 3, 2, 1}}, {8, 8, {1, 1, 2, 0}}, {9, 7, {1, 1, 2, 0}}, {11, 11, {7, 7, 2, 3}}, {12, 12, {2, 2, 3, 0}}, {8, 8, {1, 1, 1, 0}}};
  for (const auto& c : cases) {
    const WindowWalk counted = walk(c.H, c.W, c.window);
    const uint32_t P = window_output(c.H, c.window.kernel_h, c.window.stride, c.window.pad), Q = window_output(c.W, c.window.kernel_w, c.window.stride, c.window.pad);
    const Shape x = {N, c.H, c.W, C}, y = {N, P, Q, K}, w = {K, c.window.kernel_h, c.window.kernel_w, C};
    const double flops = 2 * counted.products * N * C * K, x_read = counted.pixels * N * C, x_all = N * c.H * c.W * C, y_all = N * P * Q * K,
                 w_all = K * c.window.kernel_h * c.window.kernel_w * C;
    expect_cost(OneCall(Op::kConv, Pass::kForward).window(c.window).add(y).absent().absent().add(x).add(w), flops, 4 * (y_all + x_read + w_all));
    // Statistics of what is written: two vectors, no pass over y of their own.
    expect_cost(OneCall(Op::kConv, Pass::kForward).window(c.window).add(y).add({K}).add({K}).add(x).add(w), flops, 4 * (y_all + x_read + w_all + 2 * K));
    expect_cost(OneCall(Op::kConv, Pass::kBackwardData).window(c.window).add(x).add(y).add(w), flops, 4 * (x_all + y_all + w_all));
    expect_cost(OneCall(Op::kConv, Pass::kBackwardWeight).window(c.window).add(w).add(x).add(y), flops, 4 * (w_all + x_read + y_all));
    // With a norm folded in: its four vectors, no pass over x of its own.
    const auto with_norm = [&](OneCall call) { return call.add({C}).add({C}).add({C}).add({C}); };
    expect_cost(with_norm(OneCall(Op::kNormConv, Pass::kForward).window(c.window).add(y).absent().absent().add(x).add(w)), flops, 4 * (y_all + x_read + w_all + 4 * C));
    expect_cost(with_norm(OneCall(Op::kNormConv, Pass::kBackwardWeight).window(c.window).add(w).add(x).add(y)), flops,
                4 * (w_all + x_read + y_all + 4 * C));
  }
}

TEST(Cost, EmbeddingsTouchTheRowsOfTheirTokens) {
  const uint32_t B = 2, T = 3, C = 8, V = 50, L = 16;
  const double y = B * T * C, tokens = B * T;
  expect_cost(OneCall(Op::kEmbedding, Pass::kForward).add({B, T, C}).add({B, T}, DType::kI32).add({V, C}).add({L, C}), 0, 4 * (y + tokens + B * T * C + T * C));
  const auto backward = [&](uint32_t vocabulary) {
    OneCall call(Op::kEmbedding, Pass::kBackward);
    return call.add({vocabulary, C}).add({L, C}).add({B, T}, DType::kI32).add({B, T, C});
  };
  expect_cost(backward(V), 0, 4 * (V * C + L * C + tokens + y));
  expect_cost(backward(V).accumulate(1), 0, 4 * (2 * B * T * C + L * C + tokens + y));
  expect_cost(backward(V).accumulate(3), 0, 4 * (2 * B * T * C + 2 * T * C + tokens + y));
  expect_cost(backward(4).accumulate(1), 0, 4 * (2 * 4 * C + L * C + tokens + y));  // fewer rows than tokens
}

TEST(Cost, CausalAttentionCountsThePairsItLooksAt) {
  const uint32_t B = 2, T = 5, C = 6, heads = 2;
  double pairs = 0;
  for (uint32_t t = 0; t < T; ++t) {
    for (uint32_t u = 0; u <= t; ++u) ++pairs;
  }
  const double product = 2 * B * pairs * C, y = B * T * C, lse = B * heads * T, scalars = sizeof(StepScalars);
  expect_cost(OneCall(Op::kAttention, Pass::kForward).add({B, T, C}).add({B, heads, T}).add({B, T, 3 * C}).absent().add({static_cast<uint32_t>(scalars)}, DType::kU8), 2 * product,
              4 * (y + lse + 3 * y) + scalars);
  expect_cost(OneCall(Op::kAttention, Pass::kBackward)
                  .add({B, T, 3 * C}).add({B, T, 3 * C}).add({B, T, C}).add({B, heads, T}).add({B, T, C}).absent().add({static_cast<uint32_t>(scalars)}, DType::kU8),
              5 * product, 4 * (6 * y + 2 * y + lse) + scalars);
}

TEST(Cost, RopeReadsWhatItTurnsItsPositionsAndItsTable) {
  const uint32_t B = 2, T = 5, columns = 24, pairs = 3;
  const double x = B * T * columns;
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    const auto turned = [&](DType stored) {
      OneCall call(Op::kRope, pass);
      if (pass == Pass::kForward) call.add({B, T, columns}, stored);
      call.add({B, T, 12}, stored).add({B, T, 6}, stored).add({B, T, 6}, stored);
      if (pass == Pass::kBackward) call.add({B, T, columns}, stored);
      return call;
    };
    expect_cost(turned(DType::kF32).absent().absent(), 0, 4 * 2 * x);
    expect_cost(turned(DType::kF32).add({B, T}, DType::kI32).add({pairs}), 0, 4 * (2 * x + B * T + pairs));
    expect_cost(turned(DType::kBf16).absent().absent(), 0, 2 * 2 * x);
  }
}

TEST(Cost, RmsNormMovesItsRowsAndOneVectorOfThem) {
  const uint32_t M = 10, C = 6;
  const double x = M * C;
  expect_cost(OneCall(Op::kRmsNorm, Pass::kForward).add({M, C}).add({M}).add({M, C}).add({C}), 0, 4 * (2 * x + M + C));
  const auto backward = [&] { return OneCall(Op::kRmsNorm, Pass::kBackward).add({M, C}).add({C}).add({M, C}).add({M}).add({C}).add({M, C}); };
  expect_cost(backward(), 0, 4 * (3 * x + M + 2 * C));
  expect_cost(backward().accumulate(3), 0, 4 * (4 * x + M + 3 * C));
}

TEST(Cost, SwigluReadsTwoColumnsForEachThatItWrites) {
  const uint32_t M = 10, F = 6;
  expect_cost(OneCall(Op::kSwiglu, Pass::kForward).add({M, F}).add({M, F}).add({M, F}), 0, 4 * 3 * M * F);
  expect_cost(OneCall(Op::kSwiglu, Pass::kBackward).add({M, F}).add({M, F}).add({M, F}).add({M, F}).add({M, F}), 0, 4 * 5 * M * F);
}

TEST(Cost, TheLossHeadComputesItsLogitsInTheBackward) {
  const uint32_t M = 6, C = 4, V = 9;
  const double logits = 2 * M * C * V, scalars = sizeof(StepScalars);
  OneCall head(Op::kLossHead, Pass::kBackward);
  head.add({M, C}).add({V, C}).absent().add({static_cast<uint32_t>(scalars)}, DType::kU8).add({M, C}).add({V, C}).absent().add({M}, DType::kI32);
  expect_cost(head, 3 * logits, 4 * (2 * M * C + 2 * V * C + M) + 2 * scalars);
}

TEST(Cost, ATransferMovesItsBlockOnce) {
  expect_cost(OneCall(Op::kTransfer, Pass::kStart).add({100}).add({100}), 0, 400);
  expect_cost(OneCall(Op::kTransfer, Pass::kWait).add({100}).add({100}), 0, 0);
}

// torchvision publishes 4.09 billion multiply-adds for ResNet-50 at 224, classifier included: a third of a step less the images' own gradient.
TEST(Cost, ResNet50HasThePublishedFlops) {
  const Recipe recipe = recipe_from(R"({"name": "r50", "model": {"family": "resnet", "block": "bottleneck", "units": [3, 4, 6, 3], "width": 64, "stem": "imagenet",
      "classes": 1000, "image": [224, 224, 3]}, "data": {"kind": "synthetic"}, "batch": 2, "steps": 1, "optimizer": {"name": "sgd", "lr": 0.1}})");
  const PlannedRun run = plan_run(recipe, "none");
  const double stem = 2.0 * 2 * 112 * 112 * 64 * 7 * 7 * 3;  // has no backward_data
  EXPECT_NEAR((step_cost(run.planned.plan).flops + stem) / 3 / 2 / 2, 4.09e9, 0.005e9);
}

TEST(Cost, AStepCountsItsRecomputationAndItsMicroBatches) {
  const Recipe once = recipe_from(resnet_recipe()), thrice = recipe_from(resnet_recipe(R"(, "accumulate": 3)"));
  const CallCost all = step_cost(plan_run(once, "none").planned.plan), least = step_cost(plan_run(once, "optimal", 0).planned.plan);
  EXPECT_GT(least.flops, all.flops);
  EXPECT_GT(least.bytes, all.bytes);
  EXPECT_EQ(step_cost(plan_run(thrice, "none").planned.plan).flops, 3 * all.flops);
}

}  // namespace
}  // namespace reprise
