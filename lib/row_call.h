// A row that is about to run: its tensors and where they lie. Families turn it into the named arguments of their kernels (lib/ops).
// dispatch.cpp makes it from a row's references; nothing else knows how a row is encoded.
#pragma once

#include <type_traits>

#include "lib/bf16.h"
#include "lib/kernel_info.h"
#include "lib/port.h"
#include "lib/state_format.h"
#include "lib/weight_format.h"

namespace reprise {

// What every kernel gets beside its arguments.
struct KernelContext {
  const Workers* workers = nullptr;
  const void* machine = nullptr;  // the backend's own (cpu_machine.h)
  void* queue = nullptr;  // the backend's stream; null on the CPU
  uint32_t row = 0;       // the number, in its program, of the row that calls
  // state[0]. A kernel that finds a fault in data notes it there and sets skip, whatever its arguments are; it then goes on without
  // touching what the data do not name, and its results are not promised. Null where nobody asks.
  StepScalars* scalars = nullptr;
};

struct RowCall : ShapedCall {
  void* const* pointers;  // in the backend's arena; null where an argument is absent
  uint32_t accumulate;    // bit n: output n is added to

  bool adds(uint32_t i) const { return (accumulate >> i & 1u) != 0; }
  template <typename T>
  T* pointer(uint32_t i) const {
    return static_cast<T*>(pointers[i]);
  }
  float* f32(uint32_t i) const { return pointer<float>(i); }
  int32_t* i32(uint32_t i) const { return pointer<int32_t>(i); }
  uint8_t* u8(uint32_t i) const { return pointer<uint8_t>(i); }
  StepScalars* scalars(uint32_t i) const { return pointer<StepScalars>(i); }
  Weight weight(uint32_t i) const { return has(i) ? Weight{pointers[i], (*this)[i].dtype} : Weight{}; }
  StateNumbers state_numbers(uint32_t i) const { return has(i) ? StateNumbers{pointers[i], (*this)[i].dtype} : StateNumbers{}; }
  uint64_t bytes(uint32_t i) const { return has(i) ? (*this)[i].bytes : 0; }

  uint32_t last(uint32_t i) const { return static_cast<uint32_t>((*this)[i].last_dimension()); }
  uint64_t leading(uint32_t i) const { return (*this)[i].leading_elements(); }
  uint32_t dimension(uint32_t i, uint32_t d) const { return has(i) ? (*this)[i].shape[d] : 0; }
};

}  // namespace reprise
