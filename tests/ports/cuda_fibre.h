// Runs __global__ functions on the CPU: one fibre per thread, one block at a time, in an order drawn from a seed.
// Here so that every CUDA kernel is tested where there is neither nvcc nor a GPU, more strictly than a GPU would.
// It takes the place of cuda_runtime.h. The Makefile compiles each .cu as C++ after this file, into an object of its own.
// Its parts: cuda_fibre_switch.h (stacks), _shared.h (the shadow of shared memory, banks), _device.h (the queue, the
// scheduler), _order.h and _access.h (the judge of global memory), _memory.h and _warp.h (what kernels call), _runtime.h (what the host calls), tensor_core.h (the products).
//
// A launch waits in a queue, with the values that its arguments have at that time, until the host synchronises. There is
// one queue: the launches of all streams run in the order in which they were made, whichever stream is waited for.
//
// take_report() tells the first of these faults:
//   launch         A grid, a block or shared memory is asked for that no device has. A launch is refused when it is made.
//                  Or a kernel runs with other dynamic shared memory than it says that it takes.
//   race           A thread reads or overwrites what another one wrote, or overwrites what another one read, and no
//                  barrier lies in between.
//   unwritten      Shared memory is read that no thread of this block has written: it is born poisoned in every block.
//   in flight      Shared memory is touched that an asynchronous copy will write, before the thread that issued the copy
//                  has waited for it; or a thread exits with such copies.
//   out of bounds  An index lies past the end of a shared array; or an asynchronous copy reads what is no tensor's of the case
//                  that runs (allow_memory).
//   misaligned     An address is no multiple of the bytes that are loaded, stored or copied there at once.
//   divergence     Threads wait for others that have exited, that wait elsewhere, or that wait with another mask.
//   shuffle        The mask leaves out its caller or names lanes that do not exist, or the source is not in the mask.
//   queue          Work is asked for on another stream than the one that a test has named with expect_queue().
//   forgotten      Work still waits when the report is taken. It is dropped.
// The first shows in cudaGetLastError() at the launch, as on a card. Those of a running kernel show when the host
// synchronises: the kernel stops there, the work behind it is dropped, and cudaGetLastError() tells of it too.
//
// Faults of shared memory are found in any order of the fibres, since every byte's accesses are compared with the
// barriers so far. An asynchronous copy reads its source and writes its target at once or when it is waited for, as the
// seed has it. Loads and stores of global memory are watched where kernels are compiled to announce them (cuda_fibre_access.h, for one test);
// elsewhere a test compares the bits of several orders. The PTX machine judges them as the compiler has them (ptx_machine.h).
// take_bank_counts() tells how many wavefronts the accesses to dynamic shared memory took, and how many they would without conflicts. Two
// limits: blocks run one after another, and a __syncwarp of less than the whole warp orders nothing here.
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

#include "tests/ports/cuda_fibre_device.h"
#include "tests/ports/cuda_fibre_memory.h"
#include "tests/ports/cuda_fibre_runtime.h"
#include "tests/ports/cuda_fibre_warp.h"

// ---- what the kernels' source sees of the language ----

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define REPRISE_UNROLL
#define REPRISE_ROLLED
#define REPRISE_UNROLL_BY_FOUR
// A plain __shared__ array does not compile here, because nobody would watch it.
#define REPRISE_SHARED(type, name, count) \
  static ::reprise::fibre::SharedArray<type, (count)> name { #name }
#define REPRISE_DYNAMIC_SHARED(name, ...) const ::reprise::SharedBytes name = ::reprise::SharedBytes::dynamic(__VA_ARGS__)
#define REPRISE_LAUNCH(kernel, grid, block, queue, ...) \
  REPRISE_LAUNCH_DYNAMIC(kernel, grid, block, 0, queue, __VA_ARGS__)
#define REPRISE_LAUNCH_DYNAMIC(kernel, grid, block, shared_bytes, queue, ...) \
  ::reprise::fibre::launch((queue), (kernel), (grid), (block), (shared_bytes), __VA_ARGS__)

inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }

// ---- what tests call ----

namespace reprise::fibre {

// The order of blocks and threads, and when copies land, in all that runs from now on.
inline void set_order(uint64_t seed) { Device::instance().set_order(seed); }
// How products of matrices are summed from now on.
inline void set_tensor_core(TensorCore model) { Device::instance().set_tensor_core(model); }
// A stream for a test's backend, and that work may be asked for on it alone from now on; null: on any.
inline cudaStream_t queue_of_tests() {
  static char stream;
  return &stream;
}
inline void set_late_copies(bool late) { Device::instance().set_late_copies(late); }
inline void expect_queue(cudaStream_t queue) { Device::instance().expect_queue(queue); }
// Of the kernels that run from now on, the so-manieth fails, as by an address that is not there; 0: none.
inline void fail_launch(uint64_t launches) { Device::instance().fail_launch(launches); }
// What of global memory the launches that run from now on may touch; nothing: all that there is.
inline void allow_memory(test::MemoryRanges ranges) { Device::instance().allow_memory(std::move(ranges)); }
// The first fault since the last call, if any.
inline Report take_report() { return Device::instance().take_report(); }
// The warps' accesses to dynamic shared memory in all kernels that have run since the last call.
inline BankCounts take_bank_counts() { return Device::instance().take_bank_counts(); }

template <typename... Parameters, typename... Arguments>
void launch(const void* queue, void (*kernel)(Parameters...), const dim3& grid, const dim3& block, uint64_t shared_bytes,
            const Arguments&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "a card gets the bytes of an argument");
  const std::tuple<Parameters...> held(static_cast<Parameters>(arguments)...);
  std::vector<std::string> bytes;
  std::apply([&](const auto&... each) { (bytes.emplace_back(reinterpret_cast<const char*>(&each), sizeof each), ...); }, held);
  Device::instance().launch({grid, block, shared_bytes, queue, [kernel, held] { std::apply(kernel, held); },
                             reinterpret_cast<const void*>(kernel), std::move(bytes)});
}

}  // namespace reprise::fibre
