// The table of kernels that a backend offers, and the argument struct of each.
// Here so that dispatch calls CPU and CUDA alike; each backend defines one constexpr table (DESIGN 3).
// It must not know plans, slots or rows.
//
// In every struct: outputs first, `d` for gradients, letters as in op.h, all tensors row-major and contiguous, f32 unless typed
// otherwise. `Stored` is how activations and their gradients lie in memory, float or Bf16: a Bf16 is rounded once, when its f32
// value is complete; sums and statistics are f32 or more. No pointer may alias another, except where kOps names an in-place pair.
// `accumulate_x` adds to what x holds instead of overwriting it. A null pointer is an absent optional argument. Scratch has at
// least the bytes that the backend's scratch rule gives, aligned to kAlignment. The bits of a result depend on the shapes and the
// kernel set alone: never on the number of workers, on alignment, or on what scratch held before.
#pragma once

#include <type_traits>

#include "lib/bf16.h"
#include "lib/host_access.h"
#include "lib/plan.h"
#include "lib/port.h"

namespace reprise {

struct KernelContext {
  const Workers* workers = nullptr;
  void* queue = nullptr;  // the backend's stream; null on the CPU
  uint32_t row = 0;       // the number, in its program, of the row that calls
  // state[0]. A kernel that finds a fault in data notes it there and sets skip, whatever its arguments are; it then goes on without
  // touching what the data do not name, and its results are not promised. Null where nobody asks.
  StepScalars* scalars = nullptr;
};

// What an input stands for where `mean` is not null: relu((x - mean) * (rstd * gamma) + beta), channel by channel, in f32. Padding is
// zero of that, not of x.
struct InputNorm {
  const float *mean, *rstd, *gamma, *beta;  // [C]
};

struct ConvShape {
  uint32_t N, H, W, C, P, Q, K;
  WindowAttribute window;
};
template <typename Stored>
struct ConvForwardArgsOf {
  Stored* y;        // [N,P,Q,K]
  const Stored* x;  // [N,H,W,C]
  const float* w;  // [K,R,S,C]
  void* scratch;
  uint64_t scratch_bytes;
  ConvShape shape;
  InputNorm norm;      // of x
  float *mean, *rstd;  // [K], what batch_norm_statistics makes of y, with shape.window.epsilon; both null where nobody wants them
};
using ConvForwardArgs = ConvForwardArgsOf<float>;
template <typename Stored>
struct ConvBackwardDataArgsOf {
  Stored* dx;        // [N,H,W,C]
  const Stored* dy;  // [N,P,Q,K]
  const float* w;   // [K,R,S,C]
  void* scratch;
  uint64_t scratch_bytes;
  ConvShape shape;
  bool accumulate_dx;
};
using ConvBackwardDataArgs = ConvBackwardDataArgsOf<float>;
template <typename Stored>
struct ConvBackwardWeightArgsOf {
  float* dw;        // [K,R,S,C]
  const Stored* x;   // [N,H,W,C]
  const Stored* dy;  // [N,P,Q,K]
  void* scratch;
  uint64_t scratch_bytes;
  ConvShape shape;
  bool accumulate_dw;
  InputNorm norm;  // of x
};
using ConvBackwardWeightArgs = ConvBackwardWeightArgsOf<float>;

// Batch-norm over M = N*H*W rows of C channels (Ioffe & Szegedy 2015): rstd = 1 / sqrt(biased variance + epsilon).
template <typename Stored>
struct BatchNormStatisticsArgsOf {
  float* mean;     // [C]
  float* rstd;     // [C]
  const Stored* x;  // [M,C]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C;
  float epsilon;
};
using BatchNormStatisticsArgs = BatchNormStatisticsArgsOf<float>;
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
template <typename Stored>
struct BatchNormForwardArgsOf {
  Stored* y;        // [M,C]; may be x
  const Stored* x;  // [M,C]
  const float* mean;
  const float* rstd;
  const float* gamma;
  const float* beta;
  uint64_t M;
  uint32_t C;
};
using BatchNormForwardArgs = BatchNormForwardArgsOf<float>;
template <typename Stored>
struct BatchNormInferenceArgsOf {
  Stored* y;        // [M,C]; may be x
  const Stored* x;  // [M,C]
  const float* running_mean;
  const float* running_var;
  const float* gamma;
  const float* beta;
  uint64_t M;
  uint32_t C;
  float epsilon;
};
using BatchNormInferenceArgs = BatchNormInferenceArgsOf<float>;
template <typename Stored>
struct BatchNormBackwardArgsOf {
  Stored* dx;      // [M,C]; may be dy
  float* dgamma;  // [C] or null
  float* dbeta;   // [C] or null
  const Stored* x;
  const float* mean;
  const float* rstd;
  const float* gamma;
  const Stored* dy;
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C;
  bool accumulate_dgamma, accumulate_dbeta;
  const float* beta;  // [C] or null. Not null: dy is the gradient of relu(y), and counts where y > 0 alone.
};
using BatchNormBackwardArgs = BatchNormBackwardArgsOf<float>;

template <typename Stored>
struct UnaryArgsOf {  // relu, gelu, copy, move, transfer: y[n] from x[n]
  Stored* y;         // may be x for relu and gelu; may overlap x for move (memmove semantics)
  const Stored* x;
  uint64_t n;
  bool accumulate_y;  // copy only
  bool tanh_form;     // gelu only
};
using UnaryArgs = UnaryArgsOf<float>;
template <typename Stored>
struct ActivationBackwardArgsOf {  // relu: saved is y, dx = dy where y > 0; gelu: saved is x
  Stored* dx;                     // [n]; may be dy
  const Stored* saved;            // [n]
  const Stored* dy;               // [n]
  uint64_t n;
  bool tanh_form;  // gelu only
};
using ActivationBackwardArgs = ActivationBackwardArgsOf<float>;
template <typename Stored>
struct AddArgsOf {
  Stored* y;  // [n]; may be a
  const Stored* a;
  const Stored* b;
  uint64_t n;
};
using AddArgs = AddArgsOf<float>;

// y = relu(norm(x) + b), norm as BatchNormForwardArgs has it.
template <typename Stored>
struct NormAddReluArgsOf {
  Stored* y;        // [M,C]; may be x
  const Stored* x;  // [M,C]
  const Stored* b;  // [M,C]
  const float* mean;
  const float* rstd;
  const float* gamma;
  const float* beta;
  uint64_t M;
  uint32_t C;
};
using NormAddReluArgs = NormAddReluArgsOf<float>;

struct PoolShape {
  uint32_t N, H, W, C, P, Q;
  WindowAttribute window;
};
// Padding never wins. index is r * S + s of the first maximum in the window.
template <typename Stored>
struct MaxPoolForwardArgsOf {
  Stored* y;        // [N,P,Q,C]
  uint8_t* index;  // [N,P,Q,C]
  const Stored* x;  // [N,H,W,C]
  PoolShape shape;
};
using MaxPoolForwardArgs = MaxPoolForwardArgsOf<float>;
template <typename Stored>
struct MaxPoolBackwardArgsOf {
  Stored* dx;             // [N,H,W,C]
  const uint8_t* index;  // [N,P,Q,C]
  const Stored* dy;       // [N,P,Q,C]
  PoolShape shape;
  bool accumulate_dx;
};
using MaxPoolBackwardArgs = MaxPoolBackwardArgsOf<float>;
template <typename Stored>
struct GlobalPoolArgsOf {  // forward: y = mean over H, W of x. backward: y is dy, x is dx.
  Stored* out;
  const Stored* in;
  uint32_t N, HW, C;
  bool accumulate_out;  // backward only
};
using GlobalPoolArgs = GlobalPoolArgsOf<float>;

// y[M,K] = x[M,C] * W^T + b, where W is [K,C], or [C,K] when input_major.
template <typename Stored>
struct LinearForwardArgsOf {
  Stored* y;
  const Stored* x;
  const float* w;
  const float* b;  // [K] or null
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, K;
  bool input_major;
};
using LinearForwardArgs = LinearForwardArgsOf<float>;
template <typename Stored>
struct LinearBackwardDataArgsOf {
  Stored* dx;        // [M,C]
  const Stored* dy;  // [M,K]
  const float* w;
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, K;
  bool input_major;
  bool accumulate_dx;
};
using LinearBackwardDataArgs = LinearBackwardDataArgsOf<float>;
template <typename Stored>
struct LinearBackwardWeightArgsOf {
  float* dw;        // as w
  const Stored* x;   // [M,C]
  const Stored* dy;  // [M,K]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, K;
  bool input_major;
  bool accumulate_dw;
};
using LinearBackwardWeightArgs = LinearBackwardWeightArgsOf<float>;
template <typename Stored>
struct LinearBackwardBiasArgsOf {
  float* db;        // [K]
  const Stored* dy;  // [M,K]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t K;
  bool accumulate_db;
};
using LinearBackwardBiasArgs = LinearBackwardBiasArgsOf<float>;

// Layer-norm over the last dimension (Ba et al. 2016), biased variance.
template <typename Stored>
struct LayerNormForwardArgsOf {
  Stored* y;     // [M,C]
  float* mean;  // [M]
  float* rstd;  // [M]
  const Stored* x;
  const float* gamma;  // [C]
  const float* beta;   // [C]
  uint64_t M;
  uint32_t C;
  float epsilon;
};
using LayerNormForwardArgs = LayerNormForwardArgsOf<float>;
template <typename Stored>
struct LayerNormBackwardArgsOf {
  Stored* dx;      // [M,C]
  float* dgamma;  // [C] or null
  float* dbeta;   // [C] or null
  const Stored* x;
  const float* mean;
  const float* rstd;
  const float* gamma;
  const Stored* dy;
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C;
  bool accumulate_dx, accumulate_dgamma, accumulate_dbeta;
};
using LayerNormBackwardArgs = LayerNormBackwardArgsOf<float>;

// y[b,t,:] = table[tokens[b,t],:] + positions[t,:]. A token outside [0,V) is a fault (DataFault::kToken).
template <typename Stored>
struct EmbeddingForwardArgsOf {
  Stored* y;               // [B,T,C]
  const int32_t* tokens;  // [B,T]
  const float* table;     // [V,C]
  const float* positions; // [L,C], L >= T, or null
  uint32_t B, T, C, V, L;
};
using EmbeddingForwardArgs = EmbeddingForwardArgsOf<float>;
// Rows are added in the order of the tokens, whatever the number of workers. Overwriting clears rows no token names.
template <typename Stored>
struct EmbeddingBackwardArgsOf {
  float* dtable;      // [V,C] or null
  float* dpositions;  // [L,C] or null
  const int32_t* tokens;
  const Stored* dy;  // [B,T,C]
  uint32_t B, T, C, V, L;
  bool accumulate_dtable, accumulate_dpositions;
};
using EmbeddingBackwardArgs = EmbeddingBackwardArgsOf<float>;

// Causal multi-head attention, softmax(q k^T / sqrt(D)) v with D = C / heads, in tiles: no T x T matrix (Dao et al. 2022; Rabe &
// Staats 2021). qkv holds q, k, v side by side in the last dimension. lse is the log of the sum of exponentials of each row.
// Dropout of the weights: element ((b*heads + h)*T + t)*T + s of the node's mask (rng.h), kept weights scaled by 1/(1-p).
template <typename Stored>
struct AttentionForwardArgsOf {
  Stored* y;    // [B,T,C]
  float* lse;  // [B,heads,T]
  const Stored* qkv;  // [B,T,3C]
  const StepScalars* scalars;
  void* scratch;
  uint64_t scratch_bytes;
  uint32_t B, T, C;
  AttentionAttribute attention;
};
using AttentionForwardArgs = AttentionForwardArgsOf<float>;
template <typename Stored>
struct AttentionBackwardArgsOf {
  Stored* dqkv;  // [B,T,3C]
  const Stored* qkv;
  const Stored* y;
  const float* lse;
  const Stored* dy;
  const StepScalars* scalars;
  void* scratch;
  uint64_t scratch_bytes;
  uint32_t B, T, C;
  AttentionAttribute attention;
};
using AttentionBackwardArgs = AttentionBackwardArgsOf<float>;

// y = x / (1-p) where element's draw >= dropout_threshold(p), else 0. The backward is the same function of dy.
template <typename Stored>
struct DropoutArgsOf {
  Stored* y;  // [n]; may be x
  const Stored* x;
  const StepScalars* scalars;
  uint64_t n;
  DropoutAttribute dropout;
};
using DropoutArgs = DropoutArgsOf<float>;

// Softmax cross-entropy over the logits x W^T + b, forward and backward in one loop over chunks of rows: no [M,V] matrix.
// loss = mean over the rows whose label is not kIgnoredLabel; scalars->loss_sum += loss; gradients are those of
// loss / scalars->micro_batches; a row without a label has a zero gradient; no labelled row at all: loss 0.
// A loss that is not finite sets scalars->skip. A label outside [0,V) is a fault (DataFault::kLabel).
template <typename Stored>
struct LossHeadBackwardArgsOf {
  Stored* dx;  // [M,C]
  float* dw;  // [V,C] or null
  float* db;  // [V] or null
  StepScalars* scalars;
  const Stored* x;  // [M,C]
  const float* w;  // [V,C]
  const float* b;  // [V] or null
  const int32_t* labels;  // [M]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, V;
  bool accumulate_dw, accumulate_db;
};
using LossHeadBackwardArgs = LossHeadBackwardArgsOf<float>;
// scalars->loss_sum += the sum of the rows' losses; labelled += the rows with a label; correct += those predicted right.
template <typename Stored>
struct LossHeadEvaluateArgsOf {
  StepScalars* scalars;
  const Stored* x;
  const float* w;
  const float* b;
  const int32_t* labels;
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, V;
};
using LossHeadEvaluateArgs = LossHeadEvaluateArgsOf<float>;

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

// Kernels over activations, for one way to store them.
template <typename Stored>
struct ActivationKernels {
  Status (*conv_forward)(const KernelContext&, const ConvForwardArgsOf<Stored>&);
  Status (*conv_backward_data)(const KernelContext&, const ConvBackwardDataArgsOf<Stored>&);
  Status (*conv_backward_weight)(const KernelContext&, const ConvBackwardWeightArgsOf<Stored>&);
  Status (*batch_norm_statistics)(const KernelContext&, const BatchNormStatisticsArgsOf<Stored>&);
  Status (*batch_norm_forward)(const KernelContext&, const BatchNormForwardArgsOf<Stored>&);
  Status (*batch_norm_inference)(const KernelContext&, const BatchNormInferenceArgsOf<Stored>&);
  Status (*batch_norm_backward)(const KernelContext&, const BatchNormBackwardArgsOf<Stored>&);
  Status (*norm_add_relu_forward)(const KernelContext&, const NormAddReluArgsOf<Stored>&);
  Status (*relu_forward)(const KernelContext&, const UnaryArgsOf<Stored>&);
  Status (*relu_backward)(const KernelContext&, const ActivationBackwardArgsOf<Stored>&);
  Status (*add_forward)(const KernelContext&, const AddArgsOf<Stored>&);
  Status (*copy_forward)(const KernelContext&, const UnaryArgsOf<Stored>&);
  Status (*max_pool_forward)(const KernelContext&, const MaxPoolForwardArgsOf<Stored>&);
  Status (*max_pool_backward)(const KernelContext&, const MaxPoolBackwardArgsOf<Stored>&);
  Status (*global_pool_forward)(const KernelContext&, const GlobalPoolArgsOf<Stored>&);
  Status (*global_pool_backward)(const KernelContext&, const GlobalPoolArgsOf<Stored>&);
  Status (*linear_forward)(const KernelContext&, const LinearForwardArgsOf<Stored>&);
  Status (*linear_backward_data)(const KernelContext&, const LinearBackwardDataArgsOf<Stored>&);
  Status (*linear_backward_weight)(const KernelContext&, const LinearBackwardWeightArgsOf<Stored>&);
  Status (*linear_backward_bias)(const KernelContext&, const LinearBackwardBiasArgsOf<Stored>&);
  Status (*layer_norm_forward)(const KernelContext&, const LayerNormForwardArgsOf<Stored>&);
  Status (*layer_norm_backward)(const KernelContext&, const LayerNormBackwardArgsOf<Stored>&);
  Status (*gelu_forward)(const KernelContext&, const UnaryArgsOf<Stored>&);
  Status (*gelu_backward)(const KernelContext&, const ActivationBackwardArgsOf<Stored>&);
  Status (*embedding_forward)(const KernelContext&, const EmbeddingForwardArgsOf<Stored>&);
  Status (*embedding_backward)(const KernelContext&, const EmbeddingBackwardArgsOf<Stored>&);
  Status (*attention_forward)(const KernelContext&, const AttentionForwardArgsOf<Stored>&);
  Status (*attention_backward)(const KernelContext&, const AttentionBackwardArgsOf<Stored>&);
  Status (*dropout)(const KernelContext&, const DropoutArgsOf<Stored>&);
  Status (*loss_head_backward)(const KernelContext&, const LossHeadBackwardArgsOf<Stored>&);
  Status (*loss_head_evaluate)(const KernelContext&, const LossHeadEvaluateArgsOf<Stored>&);
  Status (*move)(const KernelContext&, const UnaryArgsOf<Stored>&);
};

// Its own activation kernels are those of f32.
struct Backend : ActivationKernels<float> {
  const char* name;  // "cpu", "cuda"
  // The kernel set's id, part of every snapshot: another id may give other bits. Known once the port has set the backend up.
  const char* (*kernel_set)();
  // Scratch bytes of a kernel (constexpr in the backend's own header), `tensors` the row's arguments in kOps order.
  uint64_t (*scratch_bytes)(Op op, Pass pass, const Tensor* const* tensors);

  Status (*batch_norm_running)(const KernelContext&, const BatchNormRunningArgs&);
  Status (*grad_norm_reduce)(const KernelContext&, const GradNormReduceArgs&);
  Status (*grad_norm_finish)(const KernelContext&, const GradNormFinishArgs&);
  Status (*sgd_update)(const KernelContext&, const SgdArgs&);
  Status (*adamw_update)(const KernelContext&, const AdamWArgs&);

  HostAccess host;                      // to the arena
  const ActivationKernels<Bf16>* bf16;  // null where the backend stores f32 alone

  template <typename Stored>
  const ActivationKernels<Stored>* activations() const {
    if constexpr (std::is_same_v<Stored, Bf16>) {
      return bf16;
    } else {
      return this;
    }
  }
};

}  // namespace reprise
