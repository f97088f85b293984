// Launches and copies with one thing wrong each, which every judge of launches must refuse (cuda_launch_test.cpp, cuda_fibre_test.cpp).
#pragma once

#include <cstdint>

namespace reprise::test {

enum class LaunchMutant : uint8_t {
  kRight,             // nothing is wrong
  kRightShared,       // 64 KiB of dynamic shared memory, opted in
  kRightMostShared,   // 99 KiB, the most that every card has
  kStreamIgnored,     // a launch on the default stream
  kStreamOfAnother,   // on a stream that is not the queue
  kSharedOnDefault,   // with dynamic shared memory, on the default stream
  kCopyOnDefault,     // a copy on the default stream, for which nothing waits
  kCopyWithout,       // a copy whose stream is not named
  kFillOnDefault,
  kTooMuchShared,     // 128 KiB
  kSharedBesideStatic,  // 48 KiB of dynamic shared memory, beside 1 KiB that is static
  kGridTooHigh,       // 65,536 blocks in y
  kGridTooDeep,       // in z
  kGridOfNone,
  kBlockTooLarge,     // 1,025 threads
  kMoreThreadsThanBounds,  // 512 threads of a kernel that is compiled for 256
  kParametersTooLarge,     // 4,100 bytes
  kNeverOptedIn,      // these two are launched without cuda/launch.h
  kOptedInForLess,
  kCount,
};

// On `queue`, a cudaStream_t; `other` is another one. False where this compiler makes no such launch: fibres have no launches but those of
// cuda/launch.h.
bool launch_mutant(LaunchMutant mutant, void* queue, void* other);

}  // namespace reprise::test
