// What is known of a backend without running it: its name, the kernels it has, and the scratch and stack that each needs for a call.
// All of it is constexpr and needs no device: the planner plans with it, the compiler proves with it, and it is all that tools see.
#pragma once

#include "lib/host_share.h"
#include "lib/op.h"

namespace reprise {

namespace rules {
constexpr uint64_t no_bytes(const ShapedCall&) { return 0; }
}  // namespace rules

struct KernelRules {
  bool exists = false;
  uint64_t (*scratch_bytes)(const ShapedCall&) = rules::no_bytes;  // of the row's scratch argument
  uint64_t (*stack_bytes)(const ShapedCall&) = rules::no_bytes;    // of a worker's stack, beside the backend's frame_stack_bytes
  WeightFormats weights = kPlainWeights;  // in which its matrices of parameters may be stored
  const char* levels = "";                // processors' levels that have it, for people; "": the backend has no levels
};

// What any kernel may take of a worker's stack without saying so, its frames and small arrays, unless the backend says less.
constexpr uint64_t kFrameStackBytes = 16 << 10;

struct BackendRules {
  const char* name;      // "cpu", "cuda"; a recipe's "backend"
  const char* header;    // where a compiled plan finds these rules
  const char* constant;  // the name of this constant there
  uint64_t headroom_bytes = 0, staging_bytes = 0;  // of a host that shares its memory with the device (HostShare)
  KernelRules kernels[kKernelCount] = {};
  uint64_t frame_stack_bytes = kFrameStackBytes;
  bool proves = true;  // false: a name alone, of a program whose plan the compiler has proved, so that no rule is linked; bind refuses it

  template <typename K>
  constexpr KernelRules& of() {
    return kernels[kKernelIndex<K>];
  }
  template <typename... K>
  constexpr void have(TypeList<K...>) {
    ((kernels[kKernelIndex<K>].exists = true), ...);
  }

  constexpr const KernelRules& of(const ShapedCall& call) const { return kernels[kernel_index(call.op, call.pass)]; }
  constexpr HostShare host_share(uint64_t usable_bytes, uint64_t system_bytes) const {
    return {.usable_bytes = usable_bytes, .system_bytes = system_bytes, .headroom_bytes = headroom_bytes, .staging_bytes = staging_bytes};
  }
  constexpr uint64_t scratch_bytes(const ShapedCall& call) const { return of(call).scratch_bytes(call); }
  constexpr uint64_t stack_bytes(const ShapedCall& call) const { return frame_stack_bytes + of(call).stack_bytes(call); }
};

}  // namespace reprise
