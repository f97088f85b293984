// The one table of CPU kernels, and the name of the set that this machine runs.
// Here so that a missing kernel is a compile error in one place.
// It must not compute anything.
#include "lib/cpu/cpu_backend.h"

#include "lib/cpu/cpu_host_access.h"
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/gemm_tile.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/vector_level.h"

namespace reprise {
namespace {

constexpr uint32_t kNameBytes = 96;

// Appends as much of `text` as leaves room for the final zero.
uint32_t append(char* out, uint32_t at, const char* text) {
  while (*text != 0 && at + 1 < kNameBytes) out[at++] = *text++;
  return at;
}

// "cpu/TILE/LEVEL": both change how sums are rounded, so both belong to the bits.
const char* cpu_kernel_set() {
  static char name[kNameBytes];
  uint32_t at = append(name, 0, "cpu/");
  at = append(name, at, gemm_tile().name);
  at = append(name, at, "/");
  at = append(name, at, vector_level_name(vector_level()));
  name[at] = 0;
  return name;
}

template <typename Stored>
constexpr ActivationKernels<Stored> kActivationKernels = {
    .conv_forward = cpu_conv_forward,
    .conv_backward_data = cpu_conv_backward_data,
    .conv_backward_weight = cpu_conv_backward_weight,
    .batch_norm_statistics = cpu_batch_norm_statistics,
    .batch_norm_forward = cpu_batch_norm_forward,
    .batch_norm_inference = cpu_batch_norm_inference,
    .batch_norm_backward = cpu_batch_norm_backward,
    .norm_add_relu_forward = cpu_norm_add_relu_forward,
    .relu_forward = cpu_relu_forward,
    .relu_backward = cpu_relu_backward,
    .add_forward = cpu_add_forward,
    .copy_forward = cpu_copy_forward,
    .max_pool_forward = cpu_max_pool_forward,
    .max_pool_backward = cpu_max_pool_backward,
    .global_pool_forward = cpu_global_pool_forward,
    .global_pool_backward = cpu_global_pool_backward,
    .linear_forward = cpu_linear_forward,
    .linear_backward_data = cpu_linear_backward_data,
    .linear_backward_weight = cpu_linear_backward_weight,
    .linear_backward_bias = cpu_linear_backward_bias,
    .layer_norm_forward = cpu_layer_norm_forward,
    .layer_norm_backward = cpu_layer_norm_backward,
    .gelu_forward = cpu_gelu_forward,
    .gelu_backward = cpu_gelu_backward,
    .embedding_forward = cpu_embedding_forward,
    .embedding_backward = cpu_embedding_backward,
    .attention_forward = cpu_attention_forward,
    .attention_backward = cpu_attention_backward,
    .dropout = cpu_dropout,
    .loss_head_backward = cpu_loss_head_backward,
    .loss_head_evaluate = cpu_loss_head_evaluate,
    .move = cpu_move,
};

constexpr Backend cpu_table() {
  Backend table{};
  static_cast<ActivationKernels<float>&>(table) = kActivationKernels<float>;
  table.name = "cpu";
  table.kernel_set = cpu_kernel_set;
  table.scratch_bytes = cpu_scratch_bytes;
  table.batch_norm_running = cpu_batch_norm_running;
  table.grad_norm_reduce = cpu_grad_norm_reduce;
  table.grad_norm_finish = cpu_grad_norm_finish;
  table.sgd_update = cpu_sgd_update;
  table.adamw_update = cpu_adamw_update;
  table.host = kCpuHostAccess;
  table.bf16 = &kActivationKernels<Bf16>;
  return table;
}

}  // namespace

constexpr Backend kCpuBackend = cpu_table();

}  // namespace reprise
