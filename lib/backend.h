// Backend: the rules, kernels, host access and recorder of one kind of processor. dispatch() calls
// the table of kernels for every row.
//
// In every argument struct of lib/ops the outputs come first, and `d` marks a gradient.
// kernel_info.h defines the letters of shapes; `n` is the number of elements. A member that has the
// name of an attribute's field has the value of that field (lib/attributes.h). `scalars` is
// state[0]. Tensors are row-major and contiguous, and f32 unless typed otherwise.
// `Stored` is the type in which activations and their gradients are stored, float or Bf16. A value
// is rounded to Bf16 once, after its f32 value is complete. Sums and statistics are computed in f32
// or f64.
// No pointer may alias another, except the in-place pair that kOps names. If `accumulate_x` is
// true, the kernel adds to x; otherwise it overwrites x. A null pointer is an absent optional
// argument.
// Scratch has at least the bytes of the backend's scratch rule and is aligned to kAlignment.
// Besides the values of the inputs, the bits of a result depend only on the shapes and the kernel
// set. They do not depend on the number of workers, on alignment or on the scratch's content.
#pragma once

#include "lib/backend_rules.h"
#include "lib/host_access.h"
#include "lib/recorder.h"
#include "lib/row_call.h"

namespace reprise {

// A kernel of any family, type-erased. The function converts the references of a row to the
// kernel's argument struct, and computes.
using Kernel = Status (*)(const KernelContext&, const RowCall&);

// The number of types in which a kernel's activations may be stored. A kernel without activations
// has only entry 0 of a backend's table.
constexpr uint32_t kStorages = 2;
// Returns the index of a type of activations in a backend's table: 1 for bf16, 0 for any other.
constexpr uint32_t storage_index(DType activations) { return activations == DType::kBf16 ? 1 : 0; }
// The index of the activations' type `Stored`, float or Bf16, in a backend's table.
template <typename Stored>
inline constexpr uint32_t kStorageIndex = storage_index(kStoredAs<Stored>);

namespace contract {
// Returns the argument struct of kernel K for a row whose activations are stored as `Stored`.
template <typename K, typename Stored>
auto arguments_of(const RowCall& call) {
  if constexpr (first_activation(K::kInfo) == kMaxArguments) {
    return K::arguments(call);
  } else {
    return K::template arguments<Stored>(call);
  }
}
}  // namespace contract

// The argument struct of kernel K, and the type of a function that computes with it.
template <typename K, typename Stored = float>
using ArgumentsOf = decltype(contract::arguments_of<K, Stored>(std::declval<const RowCall&>()));
template <typename K, typename Stored = float>
using NamedKernel = Status (*)(const KernelContext&, const ArgumentsOf<K, Stored>&);

// Makes the argument struct of kernel K from `call` and calls `kFunction` with it. Every instance
// of this template is a Kernel.
template <typename K, typename Stored, NamedKernel<K, Stored> kFunction>
Status run_kernel(const KernelContext& context, const RowCall& call) {
  return kFunction(context, contract::arguments_of<K, Stored>(call));
}

// States which entries of a backend's table a plan calls. A value of this type can be a template
// argument, so that a program can be compiled with a table of only these entries.
struct KernelCalls {
  bool called[kKernelCount][kStorages] = {};  // Indexed by kernel and by storage_index() of the row's activations.
  bool stores_f32 = true;                     // Every tensor that an update reads or writes is f32.
};
// Returns the storage index of a row: storage_index() of its activations, or 0 if it has none.
// `kernel` is the index of the row's kernel; `refs` points to the row's first reference.
constexpr uint32_t row_storage(const Plan& plan, const Program& program, uint32_t kernel, const Ref* refs) {
  const uint32_t activation = contract::kIndex.activation[kernel];
  return activation == kMaxArguments ? 0 : storage_index(tensor_of(plan, program, refs[activation]).dtype);
}
// True if `dtype` is one of the types other than f32 in which parameters and moments may be stored.
constexpr bool has_other_storage(DType dtype) { return dtype == DType::kBf16 || has_dynamic_codes(dtype); }
// Returns the table entries that the rows of all programs call. check() must have accepted the
// plan.
constexpr KernelCalls kernels_called(const Plan& plan) {
  KernelCalls calls;
  for (const Program& program : plan.programs) {
    for (const Row& row : program.rows) {
      const uint32_t kernel = kernel_index(row.op, row.pass);
      if (kOps[kernel].asynchronous()) continue;  // a carrier carries out the row, not a kernel
      const Ref* refs = program.arguments.data + row.first_argument;
      calls.called[kernel][row_storage(plan, program, kernel, refs)] = true;
      for (uint32_t i = 0; row.pass == Pass::kUpdate && i < contract::kIndex.arity[kernel]; ++i) {
        if (refs[i] != kNoRef && has_other_storage(tensor_of(plan, program, refs[i]).dtype)) calls.stores_f32 = false;
      }
    }
  }
  return calls;
}

// A backend that has been opened on this machine: its rules, its kernels and its access to the
// arena.
struct Backend {
  const BackendRules* rules = nullptr;  // Static rules of the backend; never null once the backend is open.
  // The kernel set's id, a string that every snapshot stores. Kernels with another id may compute
  // other bits.
  const char* kernel_set = nullptr;
  // The choices that the kernels made for this computer, for example the vector level: an object of
  // the backend's own type. The port owns it.
  const void* machine = nullptr;
  HostAccess host = {};  // Functions by which the host reaches the arena.
  // The queue of kernels and host operations, an object of the backend's own type. Null if each of
  // them completes before its call returns.
  void* queue = nullptr;
  Recorder recorder = {};  // Functions that record and replay programs; null if the backend has none.
  Kernel kernels[kKernelCount][kStorages] = {};  // Indexed by kernel and storage; null if the backend lacks the kernel.

  // Sets the table's entry for kernel K and type `Stored` to `kFunction`.
  template <typename K, typename Stored, NamedKernel<K, Stored> kFunction>
  constexpr void set() {
    kernels[kKernelIndex<K>][kStorageIndex<Stored>] = run_kernel<K, Stored, kFunction>;
  }
};

}  // namespace reprise
