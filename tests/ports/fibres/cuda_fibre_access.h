// Judges every plain load and store of global memory by kernels under the fibres, if the kernels
// are compiled to announce them. Fibres are sequentially consistent. So a missing barrier between
// two threads could be seen only in an order that changes a result, and a sum of floats may not
// change in any order. This judge reports the race in every order.
//
// The Makefile compiles the kernels a second time, with -fsanitize=thread and without the library
// of that sanitizer (build/watched). Each access then calls a function like __tsan_read4, which
// cuda_fibre_access.cpp defines. An access outside the case's tensors and their guards
// (allow_memory) is ignored, because it is to the host's memory or to a thread's stack. The judge
// checks that any other access
//   is within one tensor, and writes to no input (tests/ops/memory_ranges.h);
//   is aligned as its type requires;
//   is ordered with the accesses of other threads of the launch (cuda_fibre_order.h).
// Atomics and the sources of copies are checked for order in the same way. Shared memory has its
// own judge (cuda_fibre_shared.h). While an AccessJudge exists, the judge of shared memory also
// records the place in the code that accessed each byte. A fault is reported as any other fault of
// a running kernel. The kernel stops at its next barrier or collective. The report names the
// kernel, both threads, both places in the code, for with_lines() (code_places.h), and the byte of
// the tensor.
#pragma once

#include <cstdint>

#include "tests/ports/fibres/cuda_fibre_device.h"
#include "tests/ports/fibres/cuda_fibre_order.h"

namespace reprise::fibre {

// While an object exists, the accesses that kernels announce are judged. At most one object may
// exist.
class AccessJudge {
 public:
  AccessJudge() { Device::instance().set_judge(this); }
  ~AccessJudge() { Device::instance().set_judge(nullptr); }
  AccessJudge(const AccessJudge&) = delete;
  AccessJudge& operator=(const AccessJudge&) = delete;

  // Returns the number of accesses that have been judged.
  uint64_t judged() const { return judged_; }

  // ---- functions that Device calls ----

  void begin_launch(const void* kernel, const test::MemoryRanges& ranges);
  void end_launch();
  void begin_block(const dim3& index, uint32_t threads) { order_.begin_block(index, threads); }
  void meet_block() { order_.meet_block(); }
  void meet_warp(uint32_t warp) { order_.meet_warp(warp); }
  void fence() { order_.fence(Device::instance().thread()); }
  void note_copy(const Copy& copy);
  void note_atomic(uint64_t address, uint32_t bytes, uint32_t place);

  // ---- functions that kernels call to announce accesses ----

  void note(GlobalOrder::Access access, uint64_t address, uint64_t bytes, uint64_t alignment, uint32_t place);

 private:
  void report(Fault fault, uint32_t place, const std::string& what) const;

  GlobalOrder order_;
  const void* kernel_ = nullptr;  // the running kernel
  uint64_t judged_ = 0;
};

}  // namespace reprise::fibre
