// Launches and copies with one fault each. Every judge of launches must refuse them
// (cuda_launch_test.cpp, cuda_fibre_test.cpp).
#pragma once

#include <cstdint>

namespace reprise::test {

enum class LaunchMutant : uint8_t {
  kRight,             // no fault
  kRightShared,       // no fault: 64 KiB of dynamic shared memory, with an opt-in
  kRightMostShared,   // no fault: 99 KiB of dynamic shared memory, the maximum that every card has
  kStreamIgnored,     // a launch on the default stream
  kStreamOfAnother,   // a launch on another stream than the queue
  kSharedOnDefault,   // a launch with dynamic shared memory on the default stream
  kCopyOnDefault,     // a copy on the default stream; no other work waits for it
  kCopyWithout,       // a copy without a stream argument
  kFillOnDefault,
  kTooMuchShared,     // 128 KiB of shared memory
  kSharedBesideStatic,  // 48 KiB of dynamic shared memory in addition to 1 KiB of static
  kGridTooHigh,       // 65,536 blocks in y
  kGridTooDeep,       // 65,536 blocks in z
  kGridOfNone,
  kBlockTooLarge,     // 1,025 threads
  kMoreThreadsThanBounds,  // 512 threads in a block, of a kernel that is compiled for 256
  kParametersTooLarge,     // 4,104 bytes of parameters
  kNeverOptedIn,      // 64 KiB of dynamic shared memory without an opt-in; launched without cuda/launch.h
  kOptedInForLess,    // 64 KiB with an opt-in for 60 KiB; launched without cuda/launch.h
  kCount,
};

// Launches the mutant on `queue`, a cudaStream_t; `other` is another stream. Returns false if this
// program cannot make the launch: under the fibres, only launches by cuda/launch.h exist.
bool launch_mutant(LaunchMutant mutant, void* queue, void* other);

}  // namespace reprise::test
