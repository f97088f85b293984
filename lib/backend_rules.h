// The static properties of a backend: its name, its kernels, and the scratch and stack that each
// kernel needs for a call. All of them are constexpr and need no device. The planner makes plans
// with these rules and the compiler proves plans with them. Tools use nothing else of a backend.
#pragma once

#include "lib/host_share.h"
#include "lib/op.h"

namespace reprise {

// The default rule of scratch and stack.
namespace rules {
// Returns 0.
constexpr uint64_t no_bytes(const ShapedCall&) { return 0; }
}  // namespace rules

// The rules of one kernel.
struct KernelRules {
  bool exists = false;                                             // True if the backend has the kernel.
  uint64_t (*scratch_bytes)(const ShapedCall&) = rules::no_bytes;  // Returns the bytes of the scratch argument.
  // Returns the bytes of each worker's stack that the kernel uses in addition to frame_stack_bytes.
  uint64_t (*stack_bytes)(const ShapedCall&) = rules::no_bytes;
  WeightFormats weights = kPlainWeights;  // Formats in which the kernel's parameter matrices may be stored.
  // Names of the processor levels for which versions of the kernel exist, for messages; "" if the
  // backend has no levels.
  const char* levels = "";
};

// Bytes of each worker's stack that every kernel may use for frames and small arrays.
// KernelRules::stack_bytes does not include them. This is the default of
// BackendRules::frame_stack_bytes.
constexpr uint64_t kFrameStackBytes = 16 << 10;

// The rules of a backend.
struct BackendRules {
  const char* name;      // For example "cpu" or "cuda"; a recipe's field "backend" has this name.
  const char* header;    // Path of the header in which a compiled plan finds these rules.
  const char* constant;  // Name of this constant in that header.
  // For a device that shares its memory with the host: the values of HostShare::headroom_bytes and
  // HostShare::staging_bytes.
  uint64_t headroom_bytes = 0, staging_bytes = 0;
  KernelRules kernels[kKernelCount] = {};         // The rules of each kernel, in the order of kOps.
  uint64_t frame_stack_bytes = kFrameStackBytes;  // Stack bytes that any kernel may use in addition to its own rule.
  // False if this struct contains only a backend's name and no rules. A program whose plan the
  // compiler has proved uses such a struct, so that no rule is linked into the program. bind()
  // refuses the struct; bind_proved() accepts it.
  bool proves = true;

  // Returns the rules of kernel K, for the caller to set.
  template <typename K>
  constexpr KernelRules& of() {
    return kernels[kKernelIndex<K>];
  }
  // Marks the kernels K... as existing.
  template <typename... K>
  constexpr void have(TypeList<K...>) {
    ((kernels[kKernelIndex<K>].exists = true), ...);
  }

  // Returns the rules of the kernel of `call`.
  constexpr const KernelRules& of(const ShapedCall& call) const { return kernels[kernel_index(call.op, call.pass)]; }
  // Returns how the memory that the device shares with the host is divided between them.
  // `usable_bytes` and `system_bytes` have the meaning of HostShare's fields.
  constexpr HostShare host_share(uint64_t usable_bytes, uint64_t system_bytes) const {
    return {.usable_bytes = usable_bytes,
            .system_bytes = system_bytes,
            .headroom_bytes = headroom_bytes,
            .staging_bytes = staging_bytes};
  }
  // Returns the scratch bytes that `call` needs.
  constexpr uint64_t scratch_bytes(const ShapedCall& call) const { return of(call).scratch_bytes(call); }
  // Returns the bytes of stack that each worker needs for `call`, frame_stack_bytes included.
  constexpr uint64_t stack_bytes(const ShapedCall& call) const {
    return frame_stack_bytes + of(call).stack_bytes(call);
  }
};

}  // namespace reprise
