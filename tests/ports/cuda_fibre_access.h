// Judges every plain load and store of global memory by kernels that announce them, under the fibres.
// Here because fibres are sequentially consistent: a missing barrier between two threads that meet in a tensor shows there only in an order
// in which a result changes, and a sum of floats may not change. With this judge it shows in any order, whatever comes out.
//
// The Makefile compiles the kernels a second time, with -fsanitize=thread and without its library (build/watched): each access then calls a
// function __tsan_read4 or the like, which this file's source defines. Its address says whether it lies in the tensors of the case that runs
// or in the guards between them (allow_memory); all else is the host's, or a thread's own, and is let pass. Of an access there it is asked
//   whether it lies within one tensor, and writes to no input (tests/ops/memory_ranges.h);
//   whether it is aligned as its type wants;
//   whether it is in order with what other threads of the launch do there (cuda_fibre_order.h), as are atomics and the sources of copies.
// Shared memory has judges of its own (cuda_fibre_shared.h); while this one lives they too keep where in the code a byte was touched.
// A fault is reported as every other of a running kernel, and the kernel stops where its threads meet next: it names the kernel, both threads,
// both places in the code, for with_lines() (code_places.h), and the tensor's byte.
#pragma once

#include <cstdint>

#include "tests/ports/cuda_fibre_device.h"
#include "tests/ports/cuda_fibre_order.h"

namespace reprise::fibre {

// While it lives, kernels that announce their accesses are judged. There is one at a time.
class AccessJudge {
 public:
  AccessJudge() { Device::instance().set_judge(this); }
  ~AccessJudge() { Device::instance().set_judge(nullptr); }
  AccessJudge(const AccessJudge&) = delete;
  AccessJudge& operator=(const AccessJudge&) = delete;

  // So many have been judged.
  uint64_t judged() const { return judged_; }

  // What the device calls.
  void begin_launch(const void* kernel, const test::MemoryRanges& ranges);
  void end_launch();
  void begin_block(const dim3& index, uint32_t threads) { order_.begin_block(index, threads); }
  void meet_block() { order_.meet_block(); }
  void meet_warp(uint32_t warp) { order_.meet_warp(warp); }
  void fence() { order_.fence(Device::instance().thread()); }
  void note_copy(const Copy& copy);
  void note_atomic(uint64_t address, uint32_t bytes, uint32_t place);
  // What announcing kernels call.
  void note(GlobalOrder::Access access, uint64_t address, uint64_t bytes, uint64_t alignment, uint32_t place);

 private:
  void report(Fault fault, uint32_t place, const std::string& what) const;

  GlobalOrder order_;
  const void* kernel_ = nullptr;  // that runs
  uint64_t judged_ = 0;
};

}  // namespace reprise::fibre
