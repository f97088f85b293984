// The contract of every kernel: arity, roles, shapes, in-place rules.
// Here so that planner, checker and dispatch read arity and roles in one place, never from a row.
// It must not know how a kernel works, nor how much scratch a backend wants.
//
// Letters used for shapes, here and in the kernels' argument structs:
//   N images in a micro-batch   H W height and width of the input   P Q of the output   C channels   K output channels
//   R S height and width of a window   B sequences   T positions   V vocabulary or classes   M rows (all leading dimensions)
#pragma once

#include "lib/plan.h"

namespace reprise {

enum class Role : uint8_t { kNone, kOutput, kUpdated, kInput, kScratch };  // updated: read and written
enum class AttributeKind : uint8_t { kNone, kWindow, kNorm, kLinear, kGelu, kAttention, kDropout, kGroup, kClip, kUpdate };

struct ArgumentInfo {
  const char* name = "";
  Role role = Role::kNone;
  DType dtype = DType::kF32;
  bool optional = false;
  bool may_accumulate = false;  // an output that a row may add to
  bool activation = false;      // stored as f32 or bf16, all activations of a row alike; `dtype` says nothing then
};

constexpr uint32_t kMaxArguments = 10;
// D = C / heads of attention, in every backend: a head's transposed tiles stand on the worker's stack, 64 KiB each.
constexpr uint32_t kAttentionMaxHead = 256;

// Outputs first, then updated, inputs, scratch last.
struct KernelInfo {
  Op op;
  Pass pass;
  const char* name;
  AttributeKind attribute = AttributeKind::kNone;
  // Output `in_place_output` may share its slot with input `in_place_input` (arguments' indices); -1 for never.
  int8_t in_place_output = -1;
  int8_t in_place_input = -1;
  ArgumentInfo arguments[kMaxArguments];

  constexpr uint32_t arity() const {
    uint32_t n = 0;
    while (n < kMaxArguments && arguments[n].role != Role::kNone) ++n;
    return n;
  }
};

namespace contract {
constexpr ArgumentInfo out(const char* name, DType dtype = DType::kF32) { return {name, Role::kOutput, dtype, false, false}; }
constexpr ArgumentInfo optional_out(const char* name) { return {name, Role::kOutput, DType::kF32, true, false}; }
constexpr ArgumentInfo sum(const char* name) { return {name, Role::kOutput, DType::kF32, false, true}; }
constexpr ArgumentInfo optional_sum(const char* name) { return {name, Role::kOutput, DType::kF32, true, true}; }
constexpr ArgumentInfo updated(const char* name, DType dtype = DType::kF32) { return {name, Role::kUpdated, dtype, false, false}; }
constexpr ArgumentInfo optional_updated(const char* name) { return {name, Role::kUpdated, DType::kF32, true, false}; }
constexpr ArgumentInfo in(const char* name, DType dtype = DType::kF32) { return {name, Role::kInput, dtype, false, false}; }
constexpr ArgumentInfo optional_in(const char* name) { return {name, Role::kInput, DType::kF32, true, false}; }
// Activations and their gradients.
constexpr ArgumentInfo act_out(const char* name) { return {name, Role::kOutput, DType::kF32, false, false, true}; }
constexpr ArgumentInfo act_sum(const char* name) { return {name, Role::kOutput, DType::kF32, false, true, true}; }
constexpr ArgumentInfo act_updated(const char* name) { return {name, Role::kUpdated, DType::kF32, false, false, true}; }
constexpr ArgumentInfo act_in(const char* name) { return {name, Role::kInput, DType::kF32, false, false, true}; }
constexpr ArgumentInfo scratch() { return {"scratch", Role::kScratch, DType::kU8, true, false}; }
constexpr DType kScalars = DType::kU8;  // StepScalars travel as bytes; norms are doubles, each two f32 of its tensor

// clang-format off
inline constexpr KernelInfo kTable[] = {
  {Op::kConv, Pass::kForward, "conv.forward", AttributeKind::kWindow, -1, -1,
    {act_out("y[N,P,Q,K]"), optional_out("mean of y[K]"), optional_out("rstd of y[K]"), act_in("x[N,H,W,C]"), in("w[K,R,S,C]"), scratch()}},
  {Op::kConv, Pass::kBackwardData, "conv.backward_data", AttributeKind::kWindow, -1, -1,
    {act_sum("dx[N,H,W,C]"), act_in("dy[N,P,Q,K]"), in("w[K,R,S,C]"), scratch()}},
  {Op::kConv, Pass::kBackwardWeight, "conv.backward_weight", AttributeKind::kWindow, -1, -1,
    {sum("dw[K,R,S,C]"), act_in("x[N,H,W,C]"), act_in("dy[N,P,Q,K]"), scratch()}},
  {Op::kBatchNorm, Pass::kStatistics, "batch_norm.statistics", AttributeKind::kNorm, -1, -1,
    {out("mean[C]"), out("rstd[C]"), act_in("x[N,H,W,C]"), scratch()}},
  {Op::kBatchNorm, Pass::kRunning, "batch_norm.running", AttributeKind::kNorm, -1, -1,
    {updated("running_mean[C]"), updated("running_var[C]"), updated("batches[]", DType::kI64), in("mean[C]"), in("rstd[C]")}},
  {Op::kBatchNorm, Pass::kForward, "batch_norm.forward", AttributeKind::kNorm, 0, 1,
    {act_out("y[N,H,W,C]"), act_in("x[N,H,W,C]"), in("mean[C]"), in("rstd[C]"), in("gamma[C]"), in("beta[C]")}},
  {Op::kBatchNorm, Pass::kInference, "batch_norm.inference", AttributeKind::kNorm, 0, 1,
    {act_out("y[N,H,W,C]"), act_in("x[N,H,W,C]"), in("running_mean[C]"), in("running_var[C]"), in("gamma[C]"), in("beta[C]")}},
  {Op::kBatchNorm, Pass::kBackward, "batch_norm.backward", AttributeKind::kNorm, 0, 7,
    {act_out("dx[N,H,W,C]"), optional_sum("dgamma[C]"), optional_sum("dbeta[C]"),
     act_in("x[N,H,W,C]"), in("mean[C]"), in("rstd[C]"), in("gamma[C]"), act_in("dy[N,H,W,C]"), scratch()}},
  {Op::kRelu, Pass::kForward, "relu.forward", AttributeKind::kNone, 0, 1, {act_out("y[...]"), act_in("x[...]")}},
  {Op::kRelu, Pass::kBackward, "relu.backward", AttributeKind::kNone, 0, 2, {act_out("dx[...]"), act_in("y[...]"), act_in("dy[...]")}},
  {Op::kAdd, Pass::kForward, "add.forward", AttributeKind::kNone, 0, 1, {act_out("y[...]"), act_in("a[...]"), act_in("b[...]")}},
  {Op::kCopy, Pass::kForward, "copy.forward", AttributeKind::kNone, -1, -1, {act_sum("y[...]"), act_in("x[...]")}},
  {Op::kMaxPool, Pass::kForward, "max_pool.forward", AttributeKind::kWindow, -1, -1,
    {act_out("y[N,P,Q,C]"), out("index[N,P,Q,C]", DType::kU8), act_in("x[N,H,W,C]")}},
  {Op::kMaxPool, Pass::kBackward, "max_pool.backward", AttributeKind::kWindow, -1, -1,
    {act_sum("dx[N,H,W,C]"), in("index[N,P,Q,C]", DType::kU8), act_in("dy[N,P,Q,C]")}},
  {Op::kGlobalPool, Pass::kForward, "global_pool.forward", AttributeKind::kNone, -1, -1, {act_out("y[N,C]"), act_in("x[N,H,W,C]")}},
  {Op::kGlobalPool, Pass::kBackward, "global_pool.backward", AttributeKind::kNone, -1, -1, {act_sum("dx[N,H,W,C]"), act_in("dy[N,C]")}},
  {Op::kLinear, Pass::kForward, "linear.forward", AttributeKind::kLinear, -1, -1,
    {act_out("y[M,K]"), act_in("x[M,C]"), in("w[K,C] or [C,K]"), optional_in("b[K]"), scratch()}},
  {Op::kLinear, Pass::kBackwardData, "linear.backward_data", AttributeKind::kLinear, -1, -1,
    {act_sum("dx[M,C]"), act_in("dy[M,K]"), in("w[K,C] or [C,K]"), scratch()}},
  {Op::kLinear, Pass::kBackwardWeight, "linear.backward_weight", AttributeKind::kLinear, -1, -1,
    {sum("dw[K,C] or [C,K]"), act_in("x[M,C]"), act_in("dy[M,K]"), scratch()}},
  {Op::kLinear, Pass::kBackwardBias, "linear.backward_bias", AttributeKind::kNone, -1, -1, {sum("db[K]"), act_in("dy[M,K]"), scratch()}},
  {Op::kLayerNorm, Pass::kForward, "layer_norm.forward", AttributeKind::kNorm, -1, -1,
    {act_out("y[M,C]"), out("mean[M]"), out("rstd[M]"), act_in("x[M,C]"), in("gamma[C]"), in("beta[C]")}},
  {Op::kLayerNorm, Pass::kBackward, "layer_norm.backward", AttributeKind::kNorm, -1, -1,
    {act_sum("dx[M,C]"), optional_sum("dgamma[C]"), optional_sum("dbeta[C]"),
     act_in("x[M,C]"), in("mean[M]"), in("rstd[M]"), in("gamma[C]"), act_in("dy[M,C]"), scratch()}},
  {Op::kGelu, Pass::kForward, "gelu.forward", AttributeKind::kGelu, 0, 1, {act_out("y[...]"), act_in("x[...]")}},
  {Op::kGelu, Pass::kBackward, "gelu.backward", AttributeKind::kGelu, 0, 2, {act_out("dx[...]"), act_in("x[...]"), act_in("dy[...]")}},
  {Op::kEmbedding, Pass::kForward, "embedding.forward", AttributeKind::kNone, -1, -1,
    {act_out("y[B,T,C]"), in("tokens[B,T]", DType::kI32), in("table[V,C]"), optional_in("positions[L,C]")}},
  {Op::kEmbedding, Pass::kBackward, "embedding.backward", AttributeKind::kNone, -1, -1,
    {optional_sum("dtable[V,C]"), optional_sum("dpositions[L,C]"), in("tokens[B,T]", DType::kI32), act_in("dy[B,T,C]")}},
  {Op::kAttention, Pass::kForward, "attention.forward", AttributeKind::kAttention, -1, -1,
    {act_out("y[B,T,C]"), out("lse[B,heads,T]"), act_in("qkv[B,T,3C]"), in("scalars", kScalars), scratch()}},
  {Op::kAttention, Pass::kBackward, "attention.backward", AttributeKind::kAttention, -1, -1,
    {act_out("dqkv[B,T,3C]"), act_in("qkv[B,T,3C]"), act_in("y[B,T,C]"), in("lse[B,heads,T]"), act_in("dy[B,T,C]"), in("scalars", kScalars), scratch()}},
  {Op::kDropout, Pass::kForward, "dropout.forward", AttributeKind::kDropout, 0, 1, {act_out("y[...]"), act_in("x[...]"), in("scalars", kScalars)}},
  {Op::kDropout, Pass::kBackward, "dropout.backward", AttributeKind::kDropout, 0, 1, {act_out("dx[...]"), act_in("dy[...]"), in("scalars", kScalars)}},
  {Op::kLossHead, Pass::kBackward, "loss_head.backward", AttributeKind::kNone, -1, -1,
    {act_out("dx[M,C]"), optional_sum("dw[V,C]"), optional_sum("db[V]"), updated("scalars", kScalars),
     act_in("x[M,C]"), in("w[V,C]"), optional_in("b[V]"), in("labels[M]", DType::kI32), scratch()}},
  {Op::kLossHead, Pass::kEvaluate, "loss_head.evaluate", AttributeKind::kNone, -1, -1,
    {updated("scalars", kScalars), act_in("x[M,C]"), in("w[V,C]"), optional_in("b[V]"), in("labels[M]", DType::kI32), scratch()}},
  {Op::kGradNorm, Pass::kReduce, "grad_norm.reduce", AttributeKind::kGroup, -1, -1, {updated("norms[]"), in("gradients (a group)")}},
  {Op::kGradNorm, Pass::kFinish, "grad_norm.finish", AttributeKind::kClip, -1, -1, {updated("scalars", kScalars), in("norms[]")}},
  {Op::kSgd, Pass::kUpdate, "sgd.update", AttributeKind::kUpdate, -1, -1,
    {updated("parameters (a group)"), optional_updated("momentum (a group)"), in("gradients (a group)"), in("scalars", kScalars)}},
  {Op::kAdamW, Pass::kUpdate, "adamw.update", AttributeKind::kUpdate, -1, -1,
    {updated("parameters (a group)"), updated("first moments (a group)"), updated("second moments (a group)"),
     in("gradients (a group)"), in("scalars", kScalars)}},
  {Op::kMove, Pass::kForward, "move.forward", AttributeKind::kNone, -1, -1, {act_out("y[...]"), act_in("x[...]")}},
  {Op::kTransfer, Pass::kStart, "transfer.start", AttributeKind::kNone, -1, -1, {act_out("y[...]"), act_in("x[...]")}},
  {Op::kTransfer, Pass::kWait, "transfer.wait", AttributeKind::kNone, -1, -1, {act_updated("y[...]"), act_in("x[...]")}},
  // Batch-norm folded into what reads it: norm(x) is batch_norm.forward's y, a is relu(norm(x)), and neither is stored.
  {Op::kNormConv, Pass::kForward, "norm_conv.forward", AttributeKind::kWindow, -1, -1,  // the convolution of a
    {act_out("y[N,P,Q,K]"), optional_out("mean of y[K]"), optional_out("rstd of y[K]"), act_in("x[N,H,W,C]"), in("w[K,R,S,C]"),
     in("mean[C]"), in("rstd[C]"), in("gamma[C]"), in("beta[C]"), scratch()}},
  {Op::kNormConv, Pass::kBackwardWeight, "norm_conv.backward_weight", AttributeKind::kWindow, -1, -1,
    {sum("dw[K,R,S,C]"), act_in("x[N,H,W,C]"), act_in("dy[N,P,Q,K]"), in("mean[C]"), in("rstd[C]"), in("gamma[C]"), in("beta[C]"), scratch()}},
  {Op::kNormRelu, Pass::kBackward, "norm_relu.backward", AttributeKind::kNorm, 0, 8,  // from the gradient of a
    {act_out("dx[N,H,W,C]"), optional_sum("dgamma[C]"), optional_sum("dbeta[C]"),
     act_in("x[N,H,W,C]"), in("mean[C]"), in("rstd[C]"), in("gamma[C]"), in("beta[C]"), act_in("da[N,H,W,C]"), scratch()}},
  {Op::kNormAddRelu, Pass::kForward, "norm_add_relu.forward", AttributeKind::kNorm, 0, 1,  // relu(norm(x) + b)
    {act_out("y[N,H,W,C]"), act_in("x[N,H,W,C]"), act_in("b[N,H,W,C]"), in("mean[C]"), in("rstd[C]"), in("gamma[C]"), in("beta[C]")}},
};
// clang-format on
}  // namespace contract

inline constexpr auto& kOps = contract::kTable;
constexpr uint32_t kKernelCount = sizeof(kOps) / sizeof(kOps[0]);

// The first argument that is an activation, or kMaxArguments for a kernel without any.
constexpr uint32_t first_activation(const KernelInfo& info) {
  for (uint32_t i = 0; i < kMaxArguments; ++i) {
    if (info.arguments[i].activation) return i;
  }
  return kMaxArguments;
}

// Index into kOps, or kKernelCount where no such kernel exists.
constexpr uint32_t kernel_index(Op op, Pass pass) {
  for (uint32_t i = 0; i < kKernelCount; ++i) {
    if (kOps[i].op == op && kOps[i].pass == pass) return i;
  }
  return kKernelCount;
}

}  // namespace reprise
