// A backend: its rules, and the table of its kernels, which dispatch calls for every row.
//
// In every argument struct of lib/ops: outputs first, `d` for gradients, letters as in kernel_info.h, all tensors row-major and contiguous,
// f32 unless typed otherwise. `Stored` is how activations and their gradients lie in memory, float or Bf16: a Bf16 is rounded once, when
// its f32 value is complete; sums and statistics are f32 or more. No pointer may alias another, except where kOps names an in-place pair.
// `accumulate_x` adds to what x holds instead of overwriting it. A null pointer is an absent optional argument. Scratch has at least the
// bytes that the backend's scratch rule gives, aligned to kAlignment. The bits of a result depend on the shapes and the kernel set alone:
// never on the number of workers, on alignment, or on what scratch held before.
#pragma once

#include "lib/backend_rules.h"
#include "lib/host_access.h"
#include "lib/recorder.h"
#include "lib/row_call.h"

namespace reprise {

// A kernel of any family: it names its row's arguments and computes.
using Kernel = Status (*)(const KernelContext&, const RowCall&);

// The ways in which a kernel's activations may be stored; a kernel without activations has the first alone.
constexpr uint32_t kStorages = 2;
constexpr uint32_t storage_index(DType activations) { return activations == DType::kBf16 ? 1 : 0; }
template <typename Stored>
inline constexpr uint32_t kStorageIndex = storage_index(kStoredAs<Stored>);

namespace contract {
template <typename K, typename Stored>
auto arguments_of(const RowCall& call) {
  if constexpr (first_activation(K::kInfo) == kMaxArguments) {
    return K::arguments(call);
  } else {
    return K::template arguments<Stored>(call);
  }
}
}  // namespace contract

// The argument struct of a kernel, and a function that computes with it.
template <typename K, typename Stored = float>
using ArgumentsOf = decltype(contract::arguments_of<K, Stored>(std::declval<const RowCall&>()));
template <typename K, typename Stored = float>
using NamedKernel = Status (*)(const KernelContext&, const ArgumentsOf<K, Stored>&);

template <typename K, typename Stored, NamedKernel<K, Stored> kFunction>
Status run_kernel(const KernelContext& context, const RowCall& call) {
  return kFunction(context, contract::arguments_of<K, Stored>(call));
}

// Which entries of a backend's table a plan calls. A value that a template takes, so that a program can have a table of these alone.
struct KernelCalls {
  bool called[kKernelCount][kStorages] = {};
  bool stores_f32 = true;  // all that an update reads and writes
};
// Of the kernel's row, whose first reference is `refs`: the entry for how its activations are stored.
constexpr uint32_t row_storage(const Plan& plan, const Program& program, uint32_t kernel, const Ref* refs) {
  const uint32_t activation = contract::kIndex.activation[kernel];
  return activation == kMaxArguments ? 0 : storage_index(tensor_of(plan, program, refs[activation]).dtype);
}
// Parameters and moments may be stored so.
constexpr bool has_other_storage(DType dtype) { return dtype == DType::kBf16 || has_dynamic_codes(dtype); }
constexpr KernelCalls kernels_called(const Plan& plan) {
  KernelCalls calls;
  for (const Program& program : plan.programs) {
    for (const Row& row : program.rows) {
      const uint32_t kernel = kernel_index(row.op, row.pass);
      if (kOps[kernel].asynchronous()) continue;  // no backend's
      const Ref* refs = program.arguments.data + row.first_argument;
      calls.called[kernel][row_storage(plan, program, kernel, refs)] = true;
      for (uint32_t i = 0; row.pass == Pass::kUpdate && i < contract::kIndex.arity[kernel]; ++i) {
        if (refs[i] != kNoRef && has_other_storage(tensor_of(plan, program, refs[i]).dtype)) calls.stores_f32 = false;
      }
    }
  }
  return calls;
}

struct Backend {
  const BackendRules* rules = nullptr;
  const char* kernel_set = nullptr;  // its id, part of every snapshot: another id may give other bits
  const void* machine = nullptr;  // what its kernels chose on this machine, in a type of the backend's own
  HostAccess host = {};  // how the host reaches the arena
  void* queue = nullptr;  // what kernels and host operations are queued on; null where they run at once
  Recorder recorder = {};
  Kernel kernels[kKernelCount][kStorages] = {};  // null where the backend lacks one

  template <typename K, typename Stored, NamedKernel<K, Stored> kFunction>
  constexpr void set() {
    kernels[kKernelIndex<K>][kStorageIndex<Stored>] = run_kernel<K, Stored, kFunction>;
  }
};

}  // namespace reprise
