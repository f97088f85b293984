// The table of kernels that a backend offers, and the argument struct of each.
// Here so that dispatch calls CPU and CUDA alike; each backend defines one constexpr table (DESIGN 3).
// It must not know plans, slots or rows.
//
// In every struct: outputs first, `d` for gradients, letters as in op.h, all tensors row-major and contiguous, f32 unless typed
// otherwise. No pointer may alias another, except where kOps names an in-place pair. `accumulate_x` adds to what x holds instead
// of overwriting it. A null pointer is an absent optional argument. Scratch has at least the bytes that the backend's scratch
// rule gives, aligned to kAlignment. The bits of a result depend on the shapes and the kernel set alone: never on the number of
// workers, on alignment, or on what scratch held before.
#pragma once

#include "lib/plan.h"
#include "lib/port.h"

namespace reprise {

struct KernelContext {
  const Workers* workers = nullptr;
  void* queue = nullptr;  // the backend's stream; null on the CPU
};

struct ConvShape {
  uint32_t N, H, W, C, P, Q, K;
  WindowAttribute window;
};
struct ConvForwardArgs {
  float* y;        // [N,P,Q,K]
  const float* x;  // [N,H,W,C]
  const float* w;  // [K,R,S,C]
  void* scratch;
  uint64_t scratch_bytes;
  ConvShape shape;
};
struct ConvBackwardDataArgs {
  float* dx;        // [N,H,W,C]
  const float* dy;  // [N,P,Q,K]
  const float* w;   // [K,R,S,C]
  void* scratch;
  uint64_t scratch_bytes;
  ConvShape shape;
  bool accumulate_dx;
};
struct ConvBackwardWeightArgs {
  float* dw;        // [K,R,S,C]
  const float* x;   // [N,H,W,C]
  const float* dy;  // [N,P,Q,K]
  void* scratch;
  uint64_t scratch_bytes;
  ConvShape shape;
  bool accumulate_dw;
};

// Batch-norm over M = N*H*W rows of C channels (Ioffe & Szegedy 2015): rstd = 1 / sqrt(biased variance + epsilon).
struct BatchNormStatisticsArgs {
  float* mean;     // [C]
  float* rstd;     // [C]
  const float* x;  // [M,C]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C;
  float epsilon;
};
// running = (1 - momentum) * running + momentum * batch; the variance unbiased, M / (M - 1), as torch has it. batches += 1.
// A channel whose mean or variance is not finite keeps what it has.
struct BatchNormRunningArgs {
  float* running_mean;  // [C]
  float* running_var;   // [C]
  int64_t* batches;     // []
  const float* mean;    // [C]
  const float* rstd;    // [C]
  uint64_t M;
  uint32_t C;
  float epsilon, momentum;
};
struct BatchNormForwardArgs {
  float* y;        // [M,C]; may be x
  const float* x;  // [M,C]
  const float* mean;
  const float* rstd;
  const float* gamma;
  const float* beta;
  uint64_t M;
  uint32_t C;
};
struct BatchNormInferenceArgs {
  float* y;        // [M,C]; may be x
  const float* x;  // [M,C]
  const float* running_mean;
  const float* running_var;
  const float* gamma;
  const float* beta;
  uint64_t M;
  uint32_t C;
  float epsilon;
};
struct BatchNormBackwardArgs {
  float* dx;      // [M,C]; may be dy
  float* dgamma;  // [C] or null
  float* dbeta;   // [C] or null
  const float* x;
  const float* mean;
  const float* rstd;
  const float* gamma;
  const float* dy;
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C;
  bool accumulate_dgamma, accumulate_dbeta;
};

struct UnaryArgs {  // relu, gelu, copy, move, transfer: y[n] from x[n]
  float* y;         // may be x for relu and gelu; may overlap x for move (memmove semantics)
  const float* x;
  uint64_t n;
  bool accumulate_y;  // copy only
  bool tanh_form;     // gelu only
};
struct ActivationBackwardArgs {  // relu: saved is y, dx = dy where y > 0; gelu: saved is x
  float* dx;                     // [n]; may be dy
  const float* saved;            // [n]
  const float* dy;               // [n]
  uint64_t n;
  bool tanh_form;  // gelu only
};
struct AddArgs {
  float* y;  // [n]; may be a
  const float* a;
  const float* b;
  uint64_t n;
};

struct PoolShape {
  uint32_t N, H, W, C, P, Q;
  WindowAttribute window;
};
// Padding never wins. index is r * S + s of the first maximum in the window.
struct MaxPoolForwardArgs {
  float* y;        // [N,P,Q,C]
  uint8_t* index;  // [N,P,Q,C]
  const float* x;  // [N,H,W,C]
  PoolShape shape;
};
struct MaxPoolBackwardArgs {
  float* dx;             // [N,H,W,C]
  const uint8_t* index;  // [N,P,Q,C]
  const float* dy;       // [N,P,Q,C]
  PoolShape shape;
  bool accumulate_dx;
};
struct GlobalPoolArgs {  // forward: y = mean over H, W of x. backward: y is dy, x is dx.
  float* out;
  const float* in;
  uint32_t N, HW, C;
  bool accumulate_out;  // backward only
};

// y[M,K] = x[M,C] * W^T + b, where W is [K,C], or [C,K] when input_major.
struct LinearForwardArgs {
  float* y;
  const float* x;
  const float* w;
  const float* b;  // [K] or null
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, K;
  bool input_major;
};
struct LinearBackwardDataArgs {
  float* dx;        // [M,C]
  const float* dy;  // [M,K]
  const float* w;
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, K;
  bool input_major;
  bool accumulate_dx;
};
struct LinearBackwardWeightArgs {
  float* dw;        // as w
  const float* x;   // [M,C]
  const float* dy;  // [M,K]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, K;
  bool input_major;
  bool accumulate_dw;
};
struct LinearBackwardBiasArgs {
  float* db;        // [K]
  const float* dy;  // [M,K]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t K;
  bool accumulate_db;
};

// Layer-norm over the last dimension (Ba et al. 2016), biased variance.
struct LayerNormForwardArgs {
  float* y;     // [M,C]
  float* mean;  // [M]
  float* rstd;  // [M]
  const float* x;
  const float* gamma;  // [C]
  const float* beta;   // [C]
  uint64_t M;
  uint32_t C;
  float epsilon;
};
struct LayerNormBackwardArgs {
  float* dx;      // [M,C]
  float* dgamma;  // [C] or null
  float* dbeta;   // [C] or null
  const float* x;
  const float* mean;
  const float* rstd;
  const float* gamma;
  const float* dy;
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C;
  bool accumulate_dx, accumulate_dgamma, accumulate_dbeta;
};

// y[b,t,:] = table[tokens[b,t],:] + positions[t,:]. A token outside [0,V) is kIndexOutOfRange.
struct EmbeddingForwardArgs {
  float* y;               // [B,T,C]
  const int32_t* tokens;  // [B,T]
  const float* table;     // [V,C]
  const float* positions; // [L,C], L >= T, or null
  uint32_t B, T, C, V, L;
};
// Rows are added in the order of the tokens, whatever the number of workers. Overwriting clears rows no token names.
struct EmbeddingBackwardArgs {
  float* dtable;      // [V,C] or null
  float* dpositions;  // [L,C] or null
  const int32_t* tokens;
  const float* dy;  // [B,T,C]
  uint32_t B, T, C, V, L;
  bool accumulate_dtable, accumulate_dpositions;
};

// Causal multi-head attention, softmax(q k^T / sqrt(D)) v with D = C / heads, in tiles: no T x T matrix (Dao et al. 2022; Rabe &
// Staats 2021). qkv holds q, k, v side by side in the last dimension. lse is the log of the sum of exponentials of each row.
// Dropout of the weights: element ((b*heads + h)*T + t)*T + s of the node's mask (rng.h), kept weights scaled by 1/(1-p).
struct AttentionForwardArgs {
  float* y;    // [B,T,C]
  float* lse;  // [B,heads,T]
  const float* qkv;  // [B,T,3C]
  const StepScalars* scalars;
  void* scratch;
  uint64_t scratch_bytes;
  uint32_t B, T, C;
  AttentionAttribute attention;
};
struct AttentionBackwardArgs {
  float* dqkv;  // [B,T,3C]
  const float* qkv;
  const float* y;
  const float* lse;
  const float* dy;
  const StepScalars* scalars;
  void* scratch;
  uint64_t scratch_bytes;
  uint32_t B, T, C;
  AttentionAttribute attention;
};

// y = x / (1-p) where element's draw >= dropout_threshold(p), else 0. The backward is the same function of dy.
struct DropoutArgs {
  float* y;  // [n]; may be x
  const float* x;
  const StepScalars* scalars;
  uint64_t n;
  DropoutAttribute dropout;
};

// Softmax cross-entropy over the logits x W^T + b, forward and backward in one loop over chunks of rows: no [M,V] matrix.
// loss = mean over the rows whose label is not kIgnoredLabel; scalars->loss_sum += loss; gradients are those of
// loss / scalars->micro_batches; a row without a label has a zero gradient; no labelled row at all: loss 0.
// A loss that is not finite sets scalars->skip. A label outside [0,V) is kIndexOutOfRange.
struct LossHeadBackwardArgs {
  float* dx;  // [M,C]
  float* dw;  // [V,C] or null
  float* db;  // [V] or null
  StepScalars* scalars;
  const float* x;  // [M,C]
  const float* w;  // [V,C]
  const float* b;  // [V] or null
  const int32_t* labels;  // [M]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, V;
  bool accumulate_dw, accumulate_db;
};
// scalars->loss_sum += the sum of the rows' losses; labelled += the rows with a label; correct += those predicted right.
struct LossHeadEvaluateArgs {
  StepScalars* scalars;
  const float* x;
  const float* w;
  const float* b;
  const int32_t* labels;
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, V;
};

// norms[t] = sum of squares of tensor t of the group, in double, in element order by fixed blocks.
struct GradNormReduceArgs {
  double* norms;           // [tensors], already at the group's first entry
  const float* gradients;  // the start of the group's first tensor
  const Tensor* tensors;   // [count], host memory: tensor t starts (tensors[t].offset - tensors[0].offset) bytes further on
  uint32_t count;
};
// gradient_norm = sqrt(sum of norms); clip_factor = min(1, max_norm / (norm + 1e-6)), torch's clip_grad_norm_, or 1 where
// max_norm is 0; a norm that is not finite sets skip.
struct GradNormFinishArgs {
  StepScalars* scalars;
  const double* norms;
  uint32_t count;
  float max_norm;
};

// All read scalars->learning_rate and clip_factor and do nothing when scalars->skip is set. g = clip_factor * gradient.
// SGD as torch.optim.SGD: g += weight_decay * p; m = momentum * m + g; p -= lr * (nesterov ? g + momentum * m : m).
struct SgdArgs {
  float* parameters;  // [n]
  float* momenta;     // [n] or null (momentum 0)
  const float* gradients;
  const StepScalars* scalars;
  uint64_t n;
  float weight_decay, momentum;
  bool nesterov;
};
// AdamW as torch.optim.AdamW (Loshchilov & Hutter 2019): p -= lr * weight_decay * p, then Adam's step with bias correction for
// step scalars->step + 1 (computed in double).
struct AdamWArgs {
  float* parameters;
  float* first_moments;
  float* second_moments;
  const float* gradients;
  const StepScalars* scalars;
  uint64_t n;
  float weight_decay;
  double beta1, beta2;
  float epsilon;
};

struct Backend {
  const char* name;  // "cpu", "cuda"
  // The kernel set's id, part of every snapshot: another id may give other bits. Known once the port has set the backend up.
  const char* (*kernel_set)();
  // Scratch bytes of a kernel (constexpr in the backend's own header), `tensors` the row's arguments in kOps order.
  uint64_t (*scratch_bytes)(Op op, Pass pass, const Tensor* const* tensors);

  Status (*conv_forward)(const KernelContext&, const ConvForwardArgs&);
  Status (*conv_backward_data)(const KernelContext&, const ConvBackwardDataArgs&);
  Status (*conv_backward_weight)(const KernelContext&, const ConvBackwardWeightArgs&);
  Status (*batch_norm_statistics)(const KernelContext&, const BatchNormStatisticsArgs&);
  Status (*batch_norm_running)(const KernelContext&, const BatchNormRunningArgs&);
  Status (*batch_norm_forward)(const KernelContext&, const BatchNormForwardArgs&);
  Status (*batch_norm_inference)(const KernelContext&, const BatchNormInferenceArgs&);
  Status (*batch_norm_backward)(const KernelContext&, const BatchNormBackwardArgs&);
  Status (*relu_forward)(const KernelContext&, const UnaryArgs&);
  Status (*relu_backward)(const KernelContext&, const ActivationBackwardArgs&);
  Status (*add_forward)(const KernelContext&, const AddArgs&);
  Status (*copy_forward)(const KernelContext&, const UnaryArgs&);
  Status (*max_pool_forward)(const KernelContext&, const MaxPoolForwardArgs&);
  Status (*max_pool_backward)(const KernelContext&, const MaxPoolBackwardArgs&);
  Status (*global_pool_forward)(const KernelContext&, const GlobalPoolArgs&);
  Status (*global_pool_backward)(const KernelContext&, const GlobalPoolArgs&);
  Status (*linear_forward)(const KernelContext&, const LinearForwardArgs&);
  Status (*linear_backward_data)(const KernelContext&, const LinearBackwardDataArgs&);
  Status (*linear_backward_weight)(const KernelContext&, const LinearBackwardWeightArgs&);
  Status (*linear_backward_bias)(const KernelContext&, const LinearBackwardBiasArgs&);
  Status (*layer_norm_forward)(const KernelContext&, const LayerNormForwardArgs&);
  Status (*layer_norm_backward)(const KernelContext&, const LayerNormBackwardArgs&);
  Status (*gelu_forward)(const KernelContext&, const UnaryArgs&);
  Status (*gelu_backward)(const KernelContext&, const ActivationBackwardArgs&);
  Status (*embedding_forward)(const KernelContext&, const EmbeddingForwardArgs&);
  Status (*embedding_backward)(const KernelContext&, const EmbeddingBackwardArgs&);
  Status (*attention_forward)(const KernelContext&, const AttentionForwardArgs&);
  Status (*attention_backward)(const KernelContext&, const AttentionBackwardArgs&);
  Status (*dropout)(const KernelContext&, const DropoutArgs&);
  Status (*loss_head_backward)(const KernelContext&, const LossHeadBackwardArgs&);
  Status (*loss_head_evaluate)(const KernelContext&, const LossHeadEvaluateArgs&);
  Status (*grad_norm_reduce)(const KernelContext&, const GradNormReduceArgs&);
  Status (*grad_norm_finish)(const KernelContext&, const GradNormFinishArgs&);
  Status (*sgd_update)(const KernelContext&, const SgdArgs&);
  Status (*adamw_update)(const KernelContext&, const AdamWArgs&);
  Status (*move)(const KernelContext&, const UnaryArgs&);
};

}  // namespace reprise
