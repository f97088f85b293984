// The list of all kernels: the families of lib/ops joined, and the tables made from them. Only this
// file defines a kernel's index in kOps, in a backend's tables and in its rules.
#pragma once

#include "lib/ops/attention.h"
#include "lib/ops/batch_norm.h"
#include "lib/ops/broadcast.h"
#include "lib/ops/class_loss.h"
#include "lib/ops/columns.h"
#include "lib/ops/concat.h"
#include "lib/ops/conv.h"
#include "lib/ops/dora.h"
#include "lib/ops/dropout.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/embedding.h"
#include "lib/ops/grad_norm.h"
#include "lib/ops/layer_norm.h"
#include "lib/ops/learned.h"
#include "lib/ops/linear.h"
#include "lib/ops/load.h"
#include "lib/ops/loss_head.h"
#include "lib/ops/matrix_update.h"
#include "lib/ops/optimizer.h"
#include "lib/ops/pair_loss.h"
#include "lib/ops/pool.h"
#include "lib/ops/preference.h"
#include "lib/ops/product.h"
#include "lib/ops/resize.h"
#include "lib/ops/rope.h"
#include "lib/ops/share.h"
#include "lib/ops/softmax.h"
#include "lib/ops/target_loss.h"
#include "lib/ops/transfer.h"
#include "lib/ops/transpose.h"
#include "lib/ops/unary.h"

namespace reprise {

// Joined<Lists...>::List is one TypeList with the types of all `Lists`, in their order.
namespace contract {
template <typename... Lists>
struct Joined;
template <typename... K>
struct Joined<TypeList<K...>> {
  using List = TypeList<K...>;
};
template <typename... A, typename... B, typename... Rest>
struct Joined<TypeList<A...>, TypeList<B...>, Rest...> {
  using List = typename Joined<TypeList<A..., B...>, Rest...>::List;
};
}  // namespace contract

// All kernels, in the order of kOps.
using Kernels =
    contract::Joined<ConvKernels, BatchNormKernels, ElementwiseKernels, PoolKernels, LinearKernels, LayerNormKernels,
                     EmbeddingKernels, AttentionKernels, DropoutKernels, LossHeadKernels, GradNormKernels,
                     OptimizerKernels, TransferKernels, RopeKernels, DecodeKernels, MatrixUpdateKernels, DoraKernels,
                     LoadKernels, PreferenceKernels, GegluKernels, ColumnsKernels, CapKernels, UnaryKernels,
                     BroadcastKernels, PadKernels, ConcatKernels, ReshapeKernels, TransposeKernels, ResizeKernels,
                     AvgPoolKernels, ConvTransposeKernels, LearnedKernels, TargetLossKernels, ClassLossKernels,
                     SoftmaxKernels, ProductKernels, LearnedRowsKernels, PairLossKernels, ShareKernels>::List;
constexpr uint32_t kKernelCount = Kernels::kCount;

namespace contract {
// The content of kOps.
struct KernelTable {
  KernelInfo rows[kKernelCount];
};
// Returns K's kInfo. nvcc 13.0 cannot expand the pack K::kInfo... itself.
template <typename K>
constexpr const KernelInfo& info_of() {
  return K::kInfo;
}
template <typename... K>
constexpr KernelTable kernel_table(TypeList<K...>) {
  return {{info_of<K>()...}};
}
inline constexpr KernelTable kTable = kernel_table(Kernels{});

// True if kernel K has one enumerator for each argument of its kInfo. The enumerators name the
// indices of arguments in rules and in arguments(). kArity, the last enumerator, is the number of
// arguments.
template <typename K>
constexpr bool names_each_argument() {
  static_assert(uint32_t{K::kArity} == info_of<K>().arity(),
                "the kernel's enumerators and the arguments of its kInfo are not as many");
  return true;
}
// True if names_each_argument() of every kernel is true.
template <typename... K>
constexpr bool name_each_argument(TypeList<K...>) {
  return (names_each_argument<K>() && ...);
}
static_assert(name_each_argument(Kernels{}));
}  // namespace contract

// Every kernel's interface, indexed by kernel.
inline constexpr auto& kOps = contract::kTable.rows;

namespace contract {
// The content of kSynopses.
struct SynopsisTable {
  const char* lines[kKernelCount];
};
// Returns K's kSynopsis.
template <typename K>
constexpr const char* synopsis_of() {
  return K::kSynopsis;
}
template <typename... K>
constexpr SynopsisTable synopsis_table(TypeList<K...>) {
  return {{synopsis_of<K>()...}};
}
inline constexpr SynopsisTable kSynopsisTable = synopsis_table(Kernels{});
}  // namespace contract

// The synopsis of every kernel, in the order of kOps.
inline constexpr auto& kSynopses = contract::kSynopsisTable.lines;

// Returns the index of the first argument that is an activation; kMaxArguments if there is none. If
// a kernel has activations, the first of them is never optional.
constexpr uint32_t first_activation(const KernelInfo& info) {
  for (uint32_t i = 0; i < kMaxArguments; ++i) {
    if (info.arguments[i].role != Role::kNone && info.arguments[i].storage == Storage::kActivation) return i;
  }
  return kMaxArguments;
}

namespace contract {
// Returns the largest value of Op that a kernel has.
constexpr uint32_t last_op() {
  uint32_t last = 0;
  for (const KernelInfo& info : kOps)
    last = static_cast<uint32_t>(info.op) > last ? static_cast<uint32_t>(info.op) : last;
  return last;
}
constexpr uint32_t kOpCount = last_op() + 1;
constexpr uint32_t kPassCount = static_cast<uint32_t>(Pass::kDecode) + 1;

// The values of kOps that code looks up for every row of a plan. They have tables of their own, so
// that a program that uses only these tables does not link kOps.
struct KernelIndex {
  uint8_t kernel[kOpCount][kPassCount] = {};  // Index of the kernel; kKernelCount: there is none.
  uint8_t arity[kKernelCount] = {};           // Number of arguments.
  uint8_t activation[kKernelCount] = {};      // Index of the first activation (first_activation).
  uint8_t scratch[kKernelCount] = {};         // Index of the scratch argument; kMaxArguments if there is none.
  Carrier carrier[kKernelCount] = {};         // Carrier of the kernel's rows.
};
// Returns the tables made from kOps.
constexpr KernelIndex index_kernels() {
  KernelIndex index;
  for (auto& passes : index.kernel) {
    for (uint8_t& kernel : passes) kernel = kKernelCount;
  }
  for (uint8_t i = 0; i < kKernelCount; ++i) {
    index.kernel[static_cast<uint32_t>(kOps[i].op)][static_cast<uint32_t>(kOps[i].pass)] = i;
    index.arity[i] = static_cast<uint8_t>(kOps[i].arity());
    index.activation[i] = static_cast<uint8_t>(first_activation(kOps[i]));
    const uint8_t last = static_cast<uint8_t>(index.arity[i] - 1);
    index.scratch[i] = kOps[i].arguments[last].role == Role::kScratch ? last : kMaxArguments;
    index.carrier[i] = kOps[i].carrier;
  }
  return index;
}
inline constexpr KernelIndex kIndex = index_kernels();
}  // namespace contract

// Returns the kernel's index in kOps; kKernelCount if no such kernel exists.
constexpr uint32_t kernel_index(Op op, Pass pass) {
  const uint32_t o = static_cast<uint32_t>(op), p = static_cast<uint32_t>(pass);
  return o < contract::kOpCount && p < contract::kPassCount ? contract::kIndex.kernel[o][p] : kKernelCount;
}
// Returns the interface of a kernel that exists.
constexpr const KernelInfo& kernel_info(Op op, Pass pass) {
  const uint32_t index = kernel_index(op, pass);
  if (index == kKernelCount) __builtin_unreachable();
  return kOps[index];
}
// The index of kernel K in kOps.
template <typename K>
inline constexpr uint32_t kKernelIndex = kernel_index(K::kInfo.op, K::kInfo.pass);

}  // namespace reprise
