// Small complete training plans: a convolutional net, a transformer, and a net with gradient
// release. Tests of the proof use them as correct plans that do not come from the planner, and
// break them. Arguments of rows are in the order of the table in op.h.
#pragma once

#include "tests/judges/plan_builder.h"

namespace reprise::testing {

// The backend's rules for these plans. Convolutions need 1,024 bytes of scratch and
// kSampleStackBytes of a worker's stack.
constexpr uint64_t kSampleStackBytes = 512;
constexpr BackendRules make_sample_rules() {
  BackendRules rules = {.name = "sample", .header = "tests/judges/sample_plans.h", .constant = "testing::kSampleRules"};
  rules.have(Kernels{});
  for (uint32_t i = 0; i < kKernelCount; ++i) {
    if (kOps[i].op != Op::kConv) continue;
    rules.kernels[i].scratch_bytes = [](const ShapedCall&) -> uint64_t { return 1024; };
    rules.kernels[i].stack_bytes = [](const ShapedCall&) -> uint64_t { return kSampleStackBytes; };
  }
  return rules;
}
inline constexpr BackendRules kSampleRules = make_sample_rules();

constexpr uint16_t bits(bool on, uint32_t mask) { return static_cast<uint16_t>(on ? mask : 0); }

// conv 3x3 - batch-norm - ReLU - max pool - add - global pool - loss head. Two micro-batches, SGD
// with momentum and clipping. The convolution is recomputed before its backward.
class SampleConvNet {
 public:
  OwnedPlan make() {
    b_.plan.accumulate = 2;
    b_.plan.attributes.of<WindowAttribute>() = {{3, 3, 1, 1}, {2, 2, 2, 0}};
    b_.plan.attributes.of<NormAttribute>() = {{1e-5f, 0.1f, 2 * 6 * 6}};
    b_.plan.attributes.of<ClipAttribute>() = {{1.0f}};
    b_.plan.attributes.of<CapAttribute>() = {{}};
    add_state();
    micro(ProgramId::kMicroFirst, false);
    micro(ProgramId::kMicroAdd, true);
    update();
    evaluate();
    return b_.finish(kSampleStackBytes);
  }

 private:
  void add_state() {
    norms_ = b_.state(StateKind::kNorms, "norms", {5}, DType::kF64);
    w_ = b_.state(StateKind::kParameter, "conv.weight", {4, 3, 3, 3});
    gamma_ = b_.state(StateKind::kParameter, "bn.weight", {4});
    beta_ = b_.state(StateKind::kParameter, "bn.bias", {4});
    fc_ = b_.state(StateKind::kParameter, "fc.weight", {5, 4});
    fc_bias_ = b_.state(StateKind::kParameter, "fc.bias", {5});
    running_mean_ = b_.state(StateKind::kBuffer, "bn.running_mean", {4});
    running_var_ = b_.state(StateKind::kBuffer, "bn.running_var", {4});
    batches_ = b_.state(StateKind::kBuffer, "bn.num_batches_tracked", {}, DType::kI64);
    momenta_ = b_.state(StateKind::kOptimizer, "momentum.conv.weight", {4, 3, 3, 3});
    for (uint32_t size : {4u, 4u}) b_.state(StateKind::kOptimizer, "momentum", {size});
    b_.state(StateKind::kOptimizer, "momentum.fc.weight", {5, 4});
    b_.state(StateKind::kOptimizer, "momentum.fc.bias", {5});
    dw_ = b_.carried({4, 3, 3, 3});
    dgamma_ = b_.carried({4});
    dbeta_ = b_.carried({4});
    dfc_ = b_.carried({5, 4});
    dfc_bias_ = b_.carried({5});
    b_.plan.attributes.of<GroupAttribute>() = {{5, 0, b_.plan.carried_bytes / sizeof(float)}};
    b_.plan.attributes.of<UpdateAttribute>() = {
        {b_.plan.attributes.of<GroupAttribute>()[0], 1e-4f, 0.9f, 1, 0, 0, 1e-8f}};
  }

  void micro(ProgramId id, bool add) {
    b_.begin(id);
    const Ref x = b_.input({2, 6, 6, 3}), labels = b_.labels({2});
    const Ref conv = convolve(x), mean = b_.slot({4}), rstd = b_.slot({4}), y = b_.slot({2, 6, 6, 4});
    b_.row(Op::kBatchNorm, Pass::kStatistics, {mean, rstd, conv, kNoRef});
    b_.row(Op::kBatchNorm, Pass::kRunning, {running_mean_, running_var_, batches_, mean, rstd});
    b_.row(Op::kBatchNorm, Pass::kForward, {y, conv, mean, rstd, gamma_, beta_});
    b_.row(Op::kRelu, Pass::kForward, {y, y});
    const Ref p = b_.slot({2, 3, 3, 4}), index = b_.slot({2, 3, 3, 4}, DType::kU8), twin = b_.slot({2, 3, 3, 4}),
              g = b_.slot({2, 4});
    b_.row(Op::kMaxPool, Pass::kForward, {p, index, y}, 1);
    b_.row(Op::kCopy, Pass::kForward, {twin, p});
    b_.row(Op::kAdd, Pass::kForward, {p, p, twin});
    b_.row(Op::kGlobalPool, Pass::kForward, {g, p, kNoRef});
    const Ref dg = b_.slot({2, 4}), dp = b_.slot({2, 3, 3, 4}), dy = b_.slot({2, 6, 6, 4});
    b_.row(Op::kLossHead, Pass::kBackward,
           {dg, dfc_, dfc_bias_, PlanBuilder::scalars(), g, fc_, fc_bias_, labels, kNoRef, kNoRef}, 0, bits(add, 6));
    b_.row(Op::kGlobalPool, Pass::kBackward, {dp, dg, kNoRef});
    b_.row(Op::kCopy, Pass::kForward, {dp, twin}, 0, 1);
    b_.row(Op::kMaxPool, Pass::kBackward, {dy, index, dp}, 1);
    b_.row(Op::kRelu, Pass::kBackward, {dy, y, dy});
    const Ref again = convolve(x), scratch = b_.slot({1024}, DType::kU8, SlotKind::kScratch);
    b_.row(Op::kBatchNorm, Pass::kBackward, {dy, dgamma_, dbeta_, again, mean, rstd, gamma_, dy, kNoRef}, 0,
           bits(add, 6));
    b_.row(Op::kConv, Pass::kBackwardWeight, {dw_, x, dy, scratch}, 0, bits(add, 1));
    b_.end();
  }

  Ref convolve(Ref x) {
    const Ref y = b_.slot({2, 6, 6, 4}), scratch = b_.slot({1024}, DType::kU8, SlotKind::kScratch);
    b_.row(Op::kConv, Pass::kForward, {y, kNoRef, kNoRef, x, w_, kNoRef, scratch});
    return y;
  }

  void update() {
    b_.begin(ProgramId::kUpdate);
    b_.row(Op::kGradNorm, Pass::kReduce, {norms_, dw_, kNoRef});
    b_.row(Op::kGradNorm, Pass::kFinish, {PlanBuilder::scalars(), norms_});
    b_.row(Op::kSgd, Pass::kUpdate, {w_, momenta_, dw_, PlanBuilder::scalars()});
    b_.end();
  }

  void evaluate() {
    b_.begin(ProgramId::kEvaluate);
    const Ref x = b_.input({2, 6, 6, 3}), labels = b_.labels({2}), y = convolve(x), g = b_.slot({2, 4});
    b_.row(Op::kBatchNorm, Pass::kInference, {y, y, running_mean_, running_var_, gamma_, beta_});
    b_.row(Op::kRelu, Pass::kForward, {y, y});
    b_.row(Op::kGlobalPool, Pass::kForward, {g, y, kNoRef});
    b_.row(Op::kLossHead, Pass::kEvaluate, {PlanBuilder::scalars(), g, fc_, fc_bias_, labels, kNoRef});
    b_.end();
  }

  PlanBuilder b_;
  Ref w_ = 0, gamma_ = 0, beta_ = 0, fc_ = 0, fc_bias_ = 0, running_mean_ = 0, running_var_ = 0, batches_ = 0,
      momenta_ = 0, norms_ = 0;
  Ref dw_ = 0, dgamma_ = 0, dbeta_ = 0, dfc_ = 0, dfc_bias_ = 0;
};

// embedding - dropout - layer-norm - attention - residual - GELU - tied loss head. There is one
// micro-batch; the optimizer is AdamW.
class SampleTransformer {
 public:
  OwnedPlan make() {
    b_.plan.attributes.of<NormAttribute>() = {{1e-5f, 0, 0}};
    b_.plan.attributes.of<LinearAttribute>() = {{1}};
    b_.plan.attributes.of<GeluAttribute>() = {{1}};
    b_.plan.attributes.of<AttentionAttribute>() = {{2, 2, 0.1f, 7}};
    b_.plan.attributes.of<DropoutAttribute>() = {{0.1f, 3}};
    b_.plan.attributes.of<EmbeddingAttribute>() = {{}};
    b_.plan.attributes.of<CapAttribute>() = {{}};
    add_state();
    train();
    b_.begin(ProgramId::kUpdate);
    b_.row(Op::kGradNorm, Pass::kReduce, {norms_, dtable_, kNoRef});
    b_.row(Op::kGradNorm, Pass::kFinish, {PlanBuilder::scalars(), norms_});
    b_.row(Op::kAdamW, Pass::kUpdate, {table_, first_, second_, dtable_, PlanBuilder::scalars()});
    b_.end();
    return b_.finish();
  }

 private:
  void add_state() {
    norms_ = b_.state(StateKind::kNorms, "norms", {6}, DType::kF64);
    table_ = b_.state(StateKind::kParameter, "wte.weight", {7, 6});
    positions_ = b_.state(StateKind::kParameter, "wpe.weight", {5, 6});
    gamma_ = b_.state(StateKind::kParameter, "ln.weight", {6});
    beta_ = b_.state(StateKind::kParameter, "ln.bias", {6});
    w_ = b_.state(StateKind::kParameter, "c_attn.weight", {6, 18});
    bias_ = b_.state(StateKind::kParameter, "c_attn.bias", {18});
    first_ = add_moments("first");
    second_ = add_moments("second");
    dtable_ = b_.carried({7, 6});
    dpositions_ = b_.carried({5, 6});
    dgamma_ = b_.carried({6});
    dbeta_ = b_.carried({6});
    dw_ = b_.carried({6, 18});
    dbias_ = b_.carried({18});
    b_.plan.attributes.of<GroupAttribute>() = {{6, 0, b_.plan.carried_bytes / sizeof(float)}};
    b_.plan.attributes.of<ClipAttribute>() = {{0}};
    b_.plan.attributes.of<CapAttribute>() = {{}};
    b_.plan.attributes.of<UpdateAttribute>() = {
        {b_.plan.attributes.of<GroupAttribute>()[0], 0.01f, 0, 0, 0.9, 0.999, 1e-8f}};
  }

  Ref add_moments(const std::string& name) {
    const Ref first = b_.state(StateKind::kOptimizer, name + ".wte.weight", {7, 6});
    b_.state(StateKind::kOptimizer, name + ".wpe.weight", {5, 6});
    b_.state(StateKind::kOptimizer, name + ".ln.weight", {6});
    b_.state(StateKind::kOptimizer, name + ".ln.bias", {6});
    b_.state(StateKind::kOptimizer, name + ".c_attn.weight", {6, 18});
    b_.state(StateKind::kOptimizer, name + ".c_attn.bias", {18});
    return first;
  }

  void train() {
    b_.begin(ProgramId::kMicroFirst);
    const Ref tokens = b_.input({2, 4}, DType::kI32), labels = b_.labels({2, 4}), starts = b_.document_start({2, 4}),
              scalars = PlanBuilder::scalars();
    const Ref e = b_.slot({2, 4, 6}), n = b_.slot({2, 4, 6}), mean = b_.slot({8}), rstd = b_.slot({8}),
              qkv = b_.slot({2, 4, 18});
    const Ref a = b_.slot({2, 4, 6}), lse = b_.slot({2, 2, 4}), h = b_.slot({2, 4, 6}), g = b_.slot({2, 4, 6});
    b_.row(Op::kEmbedding, Pass::kForward, {e, tokens, table_, positions_});
    b_.row(Op::kDropout, Pass::kForward, {e, e, scalars});
    b_.row(Op::kLayerNorm, Pass::kForward, {n, mean, rstd, e, gamma_, beta_});
    b_.row(Op::kLinear, Pass::kForward, {qkv, n, w_, bias_, kNoRef, kNoRef, kNoRef});
    b_.row(Op::kAttention, Pass::kForward, {a, lse, qkv, starts, scalars, kNoRef});
    b_.row(Op::kAdd, Pass::kForward, {h, e, a});
    b_.row(Op::kGelu, Pass::kForward, {g, h});
    const Ref dh = b_.slot({2, 4, 6}), dqkv = b_.slot({2, 4, 18}), dn = b_.slot({2, 4, 6});
    b_.row(Op::kLossHead, Pass::kBackward, {dh, dtable_, kNoRef, scalars, g, table_, kNoRef, labels, kNoRef, kNoRef});
    b_.row(Op::kGelu, Pass::kBackward, {dh, h, dh});
    b_.row(Op::kAttention, Pass::kBackward, {dqkv, qkv, a, lse, dh, starts, scalars, kNoRef});
    b_.row(Op::kLinear, Pass::kBackwardWeight, {dw_, n, dqkv, kNoRef});
    b_.row(Op::kLinear, Pass::kBackwardBias, {dbias_, dqkv, kNoRef});
    b_.row(Op::kLinear, Pass::kBackwardData, {dn, dqkv, w_, kNoRef});
    b_.row(Op::kLayerNorm, Pass::kBackward, {dh, dgamma_, dbeta_, e, mean, rstd, gamma_, dn, kNoRef}, 0, 1);
    b_.row(Op::kDropout, Pass::kBackward, {dh, dh, scalars});
    b_.row(Op::kEmbedding, Pass::kBackward, {dtable_, dpositions_, tokens, dh}, 0, 1);
    b_.end();
  }

  PlanBuilder b_;
  Ref norms_ = 0, table_ = 0, positions_ = 0, gamma_ = 0, beta_ = 0, w_ = 0, bias_ = 0, first_ = 0, second_ = 0;
  Ref dtable_ = 0, dpositions_ = 0, dgamma_ = 0, dbeta_ = 0, dw_ = 0, dbias_ = 0;
};

// layer-norm - layer-norm - frozen loss head. SGD without momentum. Each weight is updated directly
// after its gradient, whose slot then dies. All trained parameters have one shape.
class SampleReleased {
 public:
  // Whether and when the rows write a gradient a second time. Only kNever is correct.
  enum class Again { kNever, kBeforeUpdate, kAfterUpdate };
  explicit SampleReleased(Again again = Again::kNever) : again_(again) {}

  OwnedPlan make() {
    b_.plan.attributes.of<NormAttribute>() = {{1e-5f, 0, 0}};
    b_.plan.attributes.of<ClipAttribute>() = {{0}};
    b_.plan.attributes.of<CapAttribute>() = {{}};
    b_.plan.attributes.of<UpdateAttribute>() = {{{1, 0, 6}, 0, 0, 0, 0, 0, 1e-8f}};
    norms_ = b_.state(StateKind::kNorms, "norms", {4}, DType::kF64);
    const char* names[] = {"ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"};
    for (uint32_t i = 0; i < 4; ++i) {
      trained_[i] = b_.state(StateKind::kParameter, names[i], {6});
      b_.plan.attributes.of<GroupAttribute>().push_back({1, i, 6});
    }
    head_ = b_.state(StateKind::kParameter, "head.weight", {7, 6});
    train();
    b_.begin(ProgramId::kUpdate);
    b_.row(Op::kGradNorm, Pass::kFinish, {PlanBuilder::scalars(), norms_});
    b_.end();
    return b_.finish();
  }

 private:
  void train() {
    b_.begin(ProgramId::kMicroFirst);
    const Ref x = b_.input({8, 6}), labels = b_.labels({8});
    const Ref y = b_.slot({8, 6}), mean = b_.slot({8}), rstd = b_.slot({8});
    const Ref z = b_.slot({8, 6}), mean_of_y = b_.slot({8}), rstd_of_y = b_.slot({8});
    b_.row(Op::kLayerNorm, Pass::kForward, {y, mean, rstd, x, trained_[0], trained_[1]});
    b_.row(Op::kLayerNorm, Pass::kForward, {z, mean_of_y, rstd_of_y, y, trained_[2], trained_[3]});
    const Ref dz = b_.slot({8, 6}), dy = b_.slot({8, 6}), dx = b_.slot({8, 6});
    b_.row(Op::kLossHead, Pass::kBackward,
           {dz, kNoRef, kNoRef, PlanBuilder::scalars(), z, head_, kNoRef, labels, kNoRef, kNoRef});
    backward_and_update(2, dy, y, mean_of_y, rstd_of_y, dz);
    backward_and_update(0, dx, x, mean, rstd, dy);
    b_.end();
  }

  void backward_and_update(uint32_t first, Ref dx, Ref x, Ref mean, Ref rstd, Ref dy) {
    const Ref gradients[] = {b_.slot({6}), b_.slot({6})};
    const auto backward = [&] {
      b_.row(Op::kLayerNorm, Pass::kBackward,
             {dx, gradients[0], gradients[1], x, mean, rstd, trained_[first], dy, kNoRef});
    };
    backward();
    for (uint32_t i = 0; i < 2; ++i) {
      b_.row(Op::kGradNorm, Pass::kReduce, {norms_, gradients[i], kNoRef}, first + i);
      if (again_ == Again::kBeforeUpdate) backward();
      b_.row(Op::kSgd, Pass::kUpdate, {trained_[first + i], kNoRef, gradients[i], PlanBuilder::scalars()});
    }
    if (again_ == Again::kAfterUpdate) backward();
  }

  PlanBuilder b_;
  Again again_;
  Ref norms_ = 0, head_ = 0, trained_[4] = {};
};

}  // namespace reprise::testing
