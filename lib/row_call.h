// A row that is about to run: its tensors and their addresses. dispatch.cpp makes it from a row's
// references; no other code decodes rows. The families of lib/ops convert it to the named arguments
// of their kernels.
#pragma once

#include <type_traits>

#include "lib/bf16.h"
#include "lib/kernel_info.h"
#include "lib/port.h"
#include "lib/state_format.h"
#include "lib/weight_format.h"

namespace reprise {

// The data that every kernel gets in addition to its arguments. All pointers are borrowed.
struct KernelContext {
  const Workers* workers = nullptr;  // Threads for parallel_for().
  const void* machine = nullptr;     // Backend::machine: the kernels' choices for this machine.
  void* queue = nullptr;             // Backend::queue; null on the CPU.
  uint32_t row = 0;                  // The number of the calling row in its program.
  // The scalars, state[0]. A kernel that finds a fault in data stores the fault there and sets
  // `skip`. The kernel then continues without touching memory that the faulty data name, and its
  // results are undefined. Null: faults are not stored.
  StepScalars* scalars = nullptr;
};

// A kernel call with the addresses of its arguments.
struct RowCall : ShapedCall {
  // Addresses in the backend's arena. Null if an argument is absent or, for a carrier, not in the
  // arena.
  void* const* pointers;
  uint32_t accumulate;    // Bit n: the kernel adds to output n.

  // True if the kernel adds to output `i` instead of overwriting it.
  bool adds(uint32_t i) const { return (accumulate >> i & 1u) != 0; }
  // Returns the address of argument `i`; null if it is absent.
  template <typename T>
  T* pointer(uint32_t i) const {
    return static_cast<T*>(pointers[i]);
  }
  // Returns the address of argument `i`; null if it is absent.
  float* f32(uint32_t i) const { return pointer<float>(i); }
  int32_t* i32(uint32_t i) const { return pointer<int32_t>(i); }
  uint8_t* u8(uint32_t i) const { return pointer<uint8_t>(i); }
  StepScalars* scalars(uint32_t i) const { return pointer<StepScalars>(i); }
  // Returns argument `i` as a weight; an empty one if it is absent.
  Weight weight(uint32_t i) const { return has(i) ? Weight{pointers[i], (*this)[i].dtype} : Weight{}; }
  // Returns argument `i` as numbers of State; empty numbers if it is absent.
  StateNumbers state_numbers(uint32_t i) const {
    return has(i) ? StateNumbers{pointers[i], (*this)[i].dtype} : StateNumbers{};
  }
  // Returns the bytes of argument `i`; 0 if it is absent.
  uint64_t bytes(uint32_t i) const { return has(i) ? (*this)[i].bytes : 0; }

  // Returns the last dimension of argument `i`, which must be present.
  uint32_t last(uint32_t i) const { return static_cast<uint32_t>((*this)[i].last_dimension()); }
  // Returns the product of all dimensions but the last of argument `i`, which must be present.
  uint64_t leading(uint32_t i) const { return (*this)[i].leading_elements(); }
  // Returns dimension `d` of argument `i`; 0 if the argument is absent.
  uint32_t dimension(uint32_t i, uint32_t d) const { return has(i) ? (*this)[i].shape[d] : 0; }
};

}  // namespace reprise
