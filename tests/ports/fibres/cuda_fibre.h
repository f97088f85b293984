// Runs __global__ functions on the CPU: one fibre for each thread, one block at a time, in an order
// drawn from a seed. Tests run every CUDA kernel in this way without nvcc or a GPU, and find faults
// that a GPU would not report. This header replaces cuda_runtime.h. The Makefile compiles each .cu
// as C++, with this header included first, into an object of its own.
//
// The parts of the fibres are cuda_fibre_switch.h (stacks), _shared.h (the shadow of shared memory,
// banks), _device.h (the queue, the scheduler), _order.h and _access.h (the judge of global
// memory), _memory.h and _warp.h (device functions), _runtime.h (host functions), and tensor_core.h
// (products on tensor cores).
//
// A launch, with a copy of its arguments, waits in a queue until the host synchronises. The
// launches of all streams share one queue and run in the order in which they were made, whichever
// stream the host waits for.
//
// take_report() returns the first of these faults:
//   launch         A grid, a block, shared memory or the parameters exceed a limit that some device
//                  has; such a launch is refused when it is made. Or a kernel runs with other
//                  dynamic shared memory than it declares.
//   race           A thread reads or overwrites a byte that another thread wrote, or overwrites a
//                  byte that another thread read, with no barrier in between.
//   unwritten      A thread reads shared memory that no thread of this block has written. Every
//                  block starts with poisoned shared memory.
//   in flight      A thread touches shared memory that an asynchronous copy will write, before the
//                  thread that issued the copy has waited for it. Or a thread exits while its
//                  copies are in flight.
//   out of bounds  An index is past the end of a shared array; or an asynchronous copy reads
//                  outside the tensors of the case that runs (allow_memory).
//   misaligned     An address is not a multiple of the bytes that one load, store or copy moves.
//   divergence     Threads wait for other threads that have exited, that wait elsewhere, or that
//                  wait with another mask.
//   shuffle        The mask leaves out its caller or names lanes that do not exist, or the source
//                  is not in the mask.
//   queue          Work is enqueued on another stream than the stream that a test has named with
//                  expect_queue().
//   forgotten      Work still waits when the report is taken. The work is dropped.
//
// cudaGetLastError() returns the error of a refused launch at once, as on a card. A fault of a
// running kernel stops the kernel and drops the work that is queued after it. The synchronising
// call and cudaGetLastError() return the error of the fault.
//
// Faults of shared memory are found in any order of the fibres, because every byte's accesses are
// compared with the barriers so far. An asynchronous copy reads its source and writes its target at
// once or when the thread waits for it; the seed decides. Loads and stores of global memory are
// judged only in programs whose kernels are compiled for it (cuda_fibre_access.h). Other tests
// compare the bits of several orders. The PTX machine judges the accesses that the compiler emits
// (ptx_machine.h). take_bank_counts() returns the number of wavefronts that accesses to dynamic
// shared memory took, and the number without bank conflicts. There are two limits: blocks run one
// after another, and a __syncwarp of less than the whole warp orders nothing here.
#pragma once

#define REPRISE_CUDA_FIBRE
#define REPRISE_DEVICE_COMPILER "fibres"

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tests/ports/fibres/cuda_fibre_device.h"
#include "tests/ports/fibres/cuda_fibre_memory.h"
#include "tests/ports/fibres/cuda_fibre_runtime.h"
#include "tests/ports/fibres/cuda_fibre_warp.h"

// ---- the language extensions that kernels use ----

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define REPRISE_UNROLL
#define REPRISE_ROLLED
#define REPRISE_UNROLL_BY_FOUR
// An array that is declared with __shared__ does not compile here, because its accesses could not
// be checked.
#define REPRISE_SHARED(type, name, count) \
  static ::reprise::fibre::SharedArray<type, (count)> name { #name }
#define REPRISE_DYNAMIC_SHARED(name, ...) \
  const ::reprise::SharedBytes name = ::reprise::SharedBytes::dynamic(__VA_ARGS__)
#define REPRISE_LAUNCH(kernel, grid, block, queue, ...) \
  REPRISE_LAUNCH_DYNAMIC(kernel, grid, block, 0, queue, __VA_ARGS__)
#define REPRISE_LAUNCH_DYNAMIC(kernel, grid, block, shared_bytes, queue, ...) \
  ::reprise::fibre::launch((queue), (kernel), (grid), (block), (shared_bytes), __VA_ARGS__)

inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }

// ---- functions for tests ----

namespace reprise::fibre {

// Sets the seed for later launches. It decides the order of blocks and threads, and when copies
// complete.
inline void set_order(uint64_t seed) { Device::instance().set_order(seed); }
// Sets the model by which later launches sum products on tensor cores.
inline void set_tensor_core(TensorCore model) { Device::instance().set_tensor_core(model); }
// Returns a stream for a test's backend. expect_queue() makes work on any other stream a fault;
// null allows any stream.
inline cudaStream_t queue_of_tests() {
  static char stream;
  return &stream;
}
inline void set_late_copies(bool late) { Device::instance().set_late_copies(late); }
inline void expect_queue(cudaStream_t queue) { Device::instance().expect_queue(queue); }
// Makes one kernel fail as if it used an invalid address: the `launches`-th from now; 0: none.
inline void fail_launch(uint64_t launches) { Device::instance().fail_launch(launches); }
// Sets the ranges of global memory that later launches may touch; empty: all memory.
inline void allow_memory(test::MemoryRanges ranges) { Device::instance().allow_memory(std::move(ranges)); }
// Returns the first fault since the last call, if any.
inline Report take_report() { return Device::instance().take_report(); }
// Returns the counts of the warps' accesses to dynamic shared memory, in all kernels that have run
// since the last call.
inline BankCounts take_bank_counts() { return Device::instance().take_bank_counts(); }

template <typename... Parameters, typename... Arguments>
void launch(const void* queue, void (*kernel)(Parameters...), const dim3& grid, const dim3& block,
            uint64_t shared_bytes, const Arguments&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "a card gets the bytes of an argument");
  const std::tuple<Parameters...> held(static_cast<Parameters>(arguments)...);
  std::vector<std::string> bytes;
  std::apply([&](const auto&... each) { (bytes.emplace_back(reinterpret_cast<const char*>(&each), sizeof each), ...); },
             held);
  Device::instance().launch({grid, block, shared_bytes, queue, [kernel, held] { std::apply(kernel, held); },
                             reinterpret_cast<const void*>(kernel), std::move(bytes)});
}

}  // namespace reprise::fibre
