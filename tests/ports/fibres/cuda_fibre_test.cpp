// Tests the fibres, on which CUDA's kernels run on the CPU: the faults that the fibres must find,
// and the code that they must accept. Every test of a CUDA kernel relies on the fibres. Each kernel
// below is correct or has one planted fault.
#include "tests/ports/fibres/cuda_fibre.h"

#include <gtest/gtest.h>

#include "cuda/launch.h"
#include "tests/ports/cards/cuda_launch_mutants.h"
#include "tests/ports/cards/cuda_same_names.h"

namespace reprise::test {
namespace {

using Floats = std::vector<float>;
using fibre::Fault;

// ---- kernels ----

__global__ void reverse_block(float* out, const float* in, bool with_barrier) {
  REPRISE_SHARED(float, tile, 64);
  tile[threadIdx.x] = in[threadIdx.x];
  if (with_barrier) __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}

// Writes and sums a tile of shared memory in each of two iterations. Without the second barrier, a
// thread may overwrite values of the first iteration that other threads still read.
__global__ void sum_twice(float* out, bool with_barrier) {
  REPRISE_SHARED(float, tile, 64);
  float sum = 0;
  for (int turn = 0; turn < 2; ++turn) {
    tile[threadIdx.x] = static_cast<float>(turn + 1);
    __syncthreads();
    for (uint32_t i = 0; i < 64; ++i) sum += tile[i];
    if (with_barrier) __syncthreads();
  }
  out[threadIdx.x] = sum;
}

__global__ void reverse_warp(float* out, bool with_barrier) {
  REPRISE_SHARED(float, tile, 64);
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (with_barrier) __syncwarp();
  out[threadIdx.x] = tile[threadIdx.x / 32 * 32 + 31 - threadIdx.x % 32];
}

// Uses only a barrier of the warp, although each thread reads a value that a thread of another warp
// has written.
__global__ void reverse_block_by_warp_barrier(float* out) {
  REPRISE_SHARED(float, tile, 64);
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncwarp();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}

__global__ void wait_for_half(float* out) {
  if (threadIdx.x < 32) __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void wait_in_two_places(float* out) {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}
__global__ void read_stale(float* out) {
  REPRISE_SHARED(float, tile, 64);
  if (blockIdx.x == 0) tile[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}
__global__ void read_past_the_end(float* out) {
  REPRISE_SHARED(float, tile, 64);
  tile[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x + 1];
}
__global__ void shuffle_by_half(float* out, uint32_t mask) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(mask, static_cast<float>(threadIdx.x), 1);
}
__global__ void shuffle_all(int* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = __shfl_xor_sync(0xffffffffu, i, 5);
  out[64 + i] = __shfl_down_sync(0xffffffffu, i, 3);
  out[128 + i] = __shfl_down_sync(0xffffffffu, i, 3, 8);
  out[192 + i] = __shfl_sync(0xffffffffu, i, 2, 4);
}

struct Filling {
  uint32_t count;
  float value;
};
__global__ void fill(float* out, Filling filling) {
  if (threadIdx.x < filling.count) out[threadIdx.x] = filling.value;
}
__global__ void double_all(float* out) { out[threadIdx.x] *= 2; }

// ---- faults of a block ----

// Runs a kernel in blocks of 64 threads and returns its first fault. `seed` decides the order of
// blocks and threads, and when copies complete.
template <typename... P, typename... A>
fibre::Fault fault_of(uint64_t seed, void (*kernel)(P...), const dim3& grid, A... arguments) {
  fibre::set_order(seed);
  REPRISE_LAUNCH(kernel, grid, 64, nullptr, arguments...);
  EXPECT_TRUE(launch_status().ok());
  const bool ran = cudaDeviceSynchronize() == cudaSuccess;
  const fibre::Report report = fibre::take_report();
  EXPECT_EQ(ran, report.fault == fibre::Fault::kNone) << report.text;
  EXPECT_EQ(launch_status().ok(), report.fault == fibre::Fault::kNone) << report.text;
  return report.fault;
}

constexpr uint64_t kSeeds = 20;

TEST(Fibres, AMissingBarrierIsCaughtInEveryOrder) {
  Floats in(64), out(64), reversed(64);
  for (size_t i = 0; i < 64; ++i) in[i] = reversed[63 - i] = static_cast<float>(i);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    EXPECT_EQ(fault_of(seed, reverse_block, 3, out.data(), in.data(), true), Fault::kNone);
    EXPECT_EQ(out, reversed);
    const Fault fault = fault_of(seed, reverse_block, 1, out.data(), in.data(), false);
    EXPECT_TRUE(fault == Fault::kRace || fault == Fault::kUnwritten) << seed;
  }
}

TEST(Fibres, AMissingBarrierBeforeAnOverwriteIsCaughtInEveryOrder) {
  Floats out(64);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    EXPECT_EQ(fault_of(seed, sum_twice, 2, out.data(), true), Fault::kNone);
    EXPECT_EQ(out, Floats(64, 192.0f));
    EXPECT_EQ(fault_of(seed, sum_twice, 1, out.data(), false), Fault::kRace) << seed;
  }
}

TEST(Fibres, AWarpBarrierOrdersItsWarpAlone) {
  Floats out(64);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    EXPECT_EQ(fault_of(seed, reverse_warp, 2, out.data(), true), Fault::kNone);
    EXPECT_EQ(out[0], 31.0f);
    EXPECT_EQ(out[33], 62.0f);
    EXPECT_NE(fault_of(seed, reverse_warp, 1, out.data(), false), Fault::kNone) << seed;
    EXPECT_NE(fault_of(seed, reverse_block_by_warp_barrier, 1, out.data()), Fault::kNone) << seed;
  }
}

TEST(Fibres, ADivergentBarrierIsCaught) {
  Floats out(64);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    EXPECT_EQ(fault_of(seed, wait_for_half, 1, out.data()), Fault::kDivergence) << seed;
    EXPECT_EQ(fault_of(seed, wait_in_two_places, 1, out.data()), Fault::kDivergence) << seed;
  }
}

TEST(Fibres, SharedMemoryIsPoisonedInEveryBlock) {
  Floats out(64);
  EXPECT_EQ(fault_of(1, read_stale, 1, out.data()), Fault::kNone);
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    EXPECT_EQ(fault_of(seed, read_stale, 2, out.data()), Fault::kUnwritten) << seed;
  EXPECT_EQ(fault_of(1, read_past_the_end, 1, out.data()), Fault::kOutOfBounds);
}

TEST(Fibres, AShuffleNeedsItsLanes) {
  Floats out(64);
  EXPECT_EQ(fault_of(1, shuffle_by_half, 1, out.data(), 0x0000ffffu), Fault::kNone);
  EXPECT_EQ(out[6], 7.0f);
  EXPECT_EQ(fault_of(1, shuffle_by_half, 1, out.data(), 0xffffffffu), Fault::kDivergence);
  EXPECT_EQ(fault_of(1, shuffle_by_half, 1, out.data(), 0x0000fffeu), Fault::kShuffle);
}

TEST(Fibres, ShufflesDoNotDependOnTheOrderOfLanes) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::vector<int> out(256);
    EXPECT_EQ(fault_of(seed, shuffle_all, 1, out.data()), Fault::kNone);
    for (int i = 0; i < 64; ++i) {
      const size_t at = static_cast<size_t>(i);
      EXPECT_EQ(out[at], i ^ 5);
      EXPECT_EQ(out[64 + at], i % 32 + 3 < 32 ? i + 3 : i);
      EXPECT_EQ(out[128 + at], i % 8 + 3 < 8 ? i + 3 : i);
      EXPECT_EQ(out[192 + at], i / 4 * 4 + 2);
    }
  }
}

TEST(Fibres, AFaultNamesItsPlaceAndTheNextLaunchIsClean) {
  Floats in(64, 1), out(64);
  fibre::set_order(1);
  REPRISE_LAUNCH(wait_for_half, 1, 64, nullptr, out.data());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_NE(fibre::take_report().text.find("32 have exited"), std::string::npos);
  EXPECT_EQ(launch_status().detail, 719u);
  EXPECT_EQ(fault_of(1, reverse_block, 1, out.data(), in.data(), true), Fault::kNone);
}

// ---- the queue ----

constexpr float kPoison = -1;

TEST(FibreQueue, AResultReadBeforeTheHostSynchronisesIsThePoison) {
  Floats out(64, kPoison);
  REPRISE_LAUNCH(fill, 1, 64, nullptr, out.data(), Filling{64, 2});
  EXPECT_TRUE(launch_status().ok());
  EXPECT_EQ(out, Floats(64, kPoison));
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(out, Floats(64, 2));
  EXPECT_EQ(fibre::take_report().fault, Fault::kNone);
}

TEST(FibreQueue, AForgottenSynchroniseIsReportedAndTheLaunchesAreDropped) {
  Floats out(64, kPoison);
  REPRISE_LAUNCH(fill, 1, 64, nullptr, out.data(), Filling{64, 2});
  const fibre::Report report = fibre::take_report();
  EXPECT_EQ(report.fault, Fault::kForgotten);
  EXPECT_EQ(report.text, "1 launches wait for a synchronise");
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(out, Floats(64, kPoison));
}

TEST(FibreQueue, LaunchesRunInTheirOrderWithTheArgumentsThatTheyWereGiven) {
  Floats out(64, kPoison);
  Filling filling{64, 1};
  REPRISE_LAUNCH(fill, 1, 64, nullptr, out.data(), filling);
  filling = {32, 2};
  REPRISE_LAUNCH(fill, 1, 64, nullptr, out.data(), filling);
  filling = {0, 3};
  REPRISE_LAUNCH(double_all, 1, 64, nullptr, out.data());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  Floats expected(64, 2);
  std::fill(expected.begin(), expected.begin() + 32, 4.0f);
  EXPECT_EQ(out, expected);
}

TEST(FibreQueue, ALaunchThatNoDeviceTakesIsAStatusAtOnceAndTheOthersRun) {
  Floats out(64, kPoison);
  REPRISE_LAUNCH(fill, 1, 64, nullptr, out.data(), Filling{64, 2});
  REPRISE_LAUNCH(double_all, 0, 64, nullptr, out.data());
  const Status status = launch_status();
  EXPECT_EQ(status.code, Code::kBackend);
  EXPECT_EQ(status.detail, 9u);
  EXPECT_TRUE(launch_status().ok());
  REPRISE_LAUNCH(double_all, 1, 1025, nullptr, out.data());
  EXPECT_EQ(launch_status().detail, 9u);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(out, Floats(64, 2));
  EXPECT_EQ(fibre::take_report().fault, Fault::kLaunch);
}

TEST(FibreQueue, AFaultOfAKernelShowsAtTheSynchroniseAndStopsWhatComesBehind) {
  Floats out(64, kPoison), behind(64, kPoison);
  REPRISE_LAUNCH(wait_for_half, 1, 64, nullptr, out.data());
  REPRISE_LAUNCH(fill, 1, 64, nullptr, behind.data(), Filling{64, 2});
  EXPECT_TRUE(launch_status().ok());
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorLaunchFailure);
  EXPECT_EQ(launch_status().detail, 719u);
  EXPECT_EQ(fibre::take_report().fault, Fault::kDivergence);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(behind, Floats(64, kPoison));
}

// Tests launches that a card would refuse, and work on another stream than the queue. The kernels
// do not run here.
TEST(FibreQueue, PlantedFaultsOfLaunchesAreFound) {
  cudaStream_t const queue = fibre::queue_of_tests();
  char other = 0;
  fibre::expect_queue(queue);
  fibre::Device::instance().set_runner([](const fibre::Launch&) { return fibre::Report{}; });
  const auto fault_of = [&](LaunchMutant mutant) {
    EXPECT_TRUE(launch_mutant(mutant, queue, &other));
    (void)cudaDeviceSynchronize();
    (void)cudaGetLastError();
    return fibre::take_report().fault;
  };
  using M = LaunchMutant;
  for (const M right : {M::kRight, M::kRightShared, M::kRightMostShared}) EXPECT_EQ(fault_of(right), Fault::kNone);
  for (const M elsewhere : {M::kStreamIgnored, M::kStreamOfAnother, M::kSharedOnDefault, M::kCopyOnDefault,
                            M::kCopyWithout, M::kFillOnDefault}) {
    EXPECT_EQ(fault_of(elsewhere), Fault::kQueue) << static_cast<int>(elsewhere);
  }
  for (const M refused : {M::kTooMuchShared, M::kGridTooHigh, M::kGridTooDeep, M::kGridOfNone, M::kBlockTooLarge,
                          M::kParametersTooLarge}) {
    EXPECT_EQ(fault_of(refused), Fault::kLaunch) << static_cast<int>(refused);
  }
  fibre::Device::instance().set_runner(nullptr);
  fibre::expect_queue(nullptr);
}

// ---- objects ----

TEST(FibreObjects, TwoKernelFilesMayShareTheirNames) {
  std::vector<uint32_t> threes(64), fives(32);
  EXPECT_TRUE(launch_threes(threes.data(), nullptr).ok());
  EXPECT_TRUE(launch_fives(fives.data(), nullptr).ok());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(threes[i], 3 * (63 - i));
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(fives[i], 5 * (31 - i));
  EXPECT_EQ(fibre::take_report().text, "");
}

}  // namespace
}  // namespace reprise::test
