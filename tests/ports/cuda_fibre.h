// Runs __global__ functions on the CPU: one fibre per thread, one block at a time, in an order drawn from a seed.
// Here so that every CUDA kernel is tested where there is neither nvcc nor a GPU, more strictly than a GPU would.
// It takes the place of cuda_runtime.h. The Makefile compiles each .cu as C++ after this file, into an object of its own.
//
// A launch waits in a queue, with the values that its arguments have at that time, until the host synchronises. There is
// one queue: the launches of all streams run in the order in which they were made, whichever stream is waited for.
//
// take_report() tells the first of these faults:
//   launch         A grid or a block is asked for that no device takes. The launch is refused when it is made.
//   race           A thread reads or overwrites what another one wrote, or overwrites what another one read, and no
//                  barrier lies in between.
//   unwritten      Shared memory is read that no thread of this block has written: it is born poisoned in every block.
//   out of bounds  An index lies past the end of a shared array.
//   divergence     Threads wait for others that have exited, that wait elsewhere, or that wait with another mask.
//   shuffle        The mask leaves out its caller or names lanes that do not exist, or the source is not in the mask.
//   forgotten      Launches still wait when the report is taken. They are dropped.
// The first shows in cudaGetLastError() at the launch, as on a card. Those of a running kernel show when the host
// synchronises: the kernel stops there, the launches behind it are dropped, and cudaGetLastError() tells of it too.
//
// Faults of shared memory are found in any order of the fibres, since every access is compared with the barriers so
// far. Global memory is not watched: there a test compares the bits of several orders. Two limits: blocks run one after
// another, and a __syncwarp of less than the whole warp orders nothing here.
#pragma once

#define REPRISE_CUDA_FIBRE
#define REPRISE_DEVICE_COMPILER "fibres"

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// ---- what the kernels' source sees of the language ----

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define REPRISE_UNROLL
#define REPRISE_UNROLL_BY_FOUR
// A plain __shared__ array does not compile here, because nobody would watch it.
#define REPRISE_SHARED(type, name, count) \
  static ::reprise::fibre::SharedArray<type, (count)> name { #name }
#define REPRISE_LAUNCH(kernel, grid, block, queue, ...) \
  (static_cast<void>(queue), ::reprise::fibre::launch((kernel), (grid), (block), __VA_ARGS__))

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
};
inline dim3 gridDim, blockDim;
inline dim3 blockIdx(0, 0, 0), threadIdx(0, 0, 0);

using cudaStream_t = void*;
enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorNoDevice = 100,
  cudaErrorLaunchFailure = 719,
};

namespace reprise::fibre {

enum class Fault : uint8_t { kNone, kRace, kUnwritten, kOutOfBounds, kDivergence, kShuffle, kLaunch, kForgotten };

struct Report {
  Fault fault = Fault::kNone;
  std::string text;
};

constexpr uint32_t kWarpLanes = 32;
constexpr uint32_t kMaxThreads = 1024;  // of a block

struct Abandoned {};  // unwinds a fibre of a block that has failed

enum class State : uint8_t { kReady, kWaiting, kExited };
enum class Meeting : uint8_t { kBlock, kWarp, kShuffle };

// What a fibre waits for: fibres meet when all that the meeting calls for are at the same place with the same mask.
struct Wait {
  Meeting meeting = Meeting::kBlock;
  uint32_t mask = 0;
  int line = 0;

  bool operator==(const Wait& other) const {
    return meeting == other.meeting && mask == other.mask && line == other.line;
  }
  std::string text() const {
    const char* name = meeting == Meeting::kBlock  ? "__syncthreads"
                       : meeting == Meeting::kWarp ? "__syncwarp"
                                                   : "a shuffle";
    return std::string(name) + " at line " + std::to_string(line);
  }
};

struct Fibre {
  ucontext_t context{};
  std::unique_ptr<unsigned char[]> stack;
  uint32_t thread = 0;
  State state = State::kExited;
  Wait wait;
  uint64_t brings = 0;  // to a shuffle
  uint64_t gets = 0;    // from it
  uint32_t source = 0;  // the lane whose value it gets
  void* sanitizer = nullptr;

  uint32_t lane() const { return thread % kWarpLanes; }
  uint32_t warp() const { return thread / kWarpLanes; }
};

// When and by whom memory was touched: barriers of the block, and of the warp, that had passed by then.
struct Access {
  uint32_t thread = 0;
  uint32_t block_epoch = 0;  // 0: never
  uint32_t warp_epoch = 0;

  uint32_t warp() const { return thread / kWarpLanes; }
};

struct Launch {
  dim3 grid, block;
  std::function<void()> kernel;  // holds the arguments
};

// The device: keeps the launches, and schedules the fibres of one block after another. One thread of the host uses it.
class Device {
 public:
  static Device& instance() {
    static Device device;
    return device;
  }

  void set_order(uint64_t seed) { random_ = seed * 0x9e3779b97f4a7c15ull + 1; }
  Report take_report();
  cudaError_t take_error() { return std::exchange(error_, cudaSuccess); }

  void launch(Launch launch);
  cudaError_t synchronize();

  // What a running fibre calls.
  void meet(const Wait& wait);
  uint64_t shuffle(const Wait& wait, uint64_t value, uint32_t source);
  [[noreturn]] void fail(Fault fault, const std::string& text) {
    report(fault, text);
    throw Abandoned{};
  }

  Access now() const {
    const Fibre& fibre = *fibres_[current_];
    return {fibre.thread, block_epoch_, warp_epochs_[fibre.warp()]};
  }
  uint64_t block_serial() const { return block_serial_; }
  uint32_t lane() const { return fibres_[current_]->lane(); }

 private:
  void note(Fault fault, const std::string& text);
  void report(Fault fault, const std::string& text);
  void run(const Launch& launch);
  void run_block();
  void start_block();
  void resume(Fibre& fibre);
  void pause(Fibre& fibre);
  void abandon();
  void settle_block(const Fibre& arrived);
  void settle_warp(const Fibre& arrived);
  void hand_over(uint32_t first, const Wait& wait);
  void release(Fibre& fibre) {
    fibre.state = State::kReady;
    ready_.push_back(fibre.thread);
  }
  std::string who_waits() const;
  void ensure_fibres(uint32_t count);
  static void body();
  [[noreturn]] void run_forever(Fibre& fibre);

  uint32_t draw(uint64_t below) {  // xorshift64*, Marsaglia 2003 and Vigna 2016
    random_ ^= random_ >> 12;
    random_ ^= random_ << 25;
    random_ ^= random_ >> 27;
    return static_cast<uint32_t>((random_ * 0x2545f4914f6cdd1dull >> 32) % below);
  }

  uint64_t random_ = 1;
  Report report_;
  cudaError_t error_ = cudaSuccess;  // of a launch or of a kernel, until it is taken
  bool failed_ = false;              // the kernel that runs
  std::vector<Launch> queue_;
  const Launch* launch_ = nullptr;              // that runs
  std::vector<std::unique_ptr<Fibre>> fibres_;  // reused: a fibre waits in run_forever between blocks
  std::vector<uint32_t> ready_;
  uint32_t threads_ = 0, current_ = 0, at_barrier_ = 0;
  Wait barrier_;  // of the first to arrive
  uint32_t block_epoch_ = 1;
  uint32_t warp_epochs_[kMaxThreads / kWarpLanes] = {};
  uint64_t block_serial_ = 0;
  bool abandoning_ = false;
  ucontext_t scheduler_{};
  void* scheduler_sanitizer_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_bytes_ = 0;
};

// ---- shared memory ----

// What is known of one element since the last barrier of the block.
template <typename T>
class SharedCell {
 public:
  T read(const Access& now) {
    note_read(now);
    return value_;
  }
  void write(const T& value, const Access& now) {
    written_ = now;
    value_ = value;
  }
  bool was_written() const { return written_.block_epoch != 0; }
  bool reading_races(const Access& now) const { return unordered(written_, now) && written_.thread != now.thread; }
  bool writing_races(const Access& now) const {
    if (reading_races(now)) return true;
    if (read_.block_epoch != now.block_epoch) return false;
    if (many_warps_ || read_.warp() != now.warp()) return true;
    return read_.warp_epoch == now.warp_epoch && (many_threads_ || read_.thread != now.thread);
  }
  uint32_t writer() const { return written_.thread; }

 private:
  // No barrier lies between an access and now.
  static bool unordered(const Access& then, const Access& now) {
    return then.block_epoch == now.block_epoch && (then.warp() != now.warp() || then.warp_epoch == now.warp_epoch);
  }
  void note_read(const Access& now) {
    if (read_.block_epoch != now.block_epoch) {
      many_warps_ = many_threads_ = false;
    } else if (read_.warp() != now.warp()) {
      many_warps_ = true;
    } else if (read_.warp_epoch != now.warp_epoch) {
      many_threads_ = false;  // the earlier readers of this warp are ordered by its own barrier
    } else if (read_.thread != now.thread) {
      many_threads_ = true;
    }
    read_ = now;
  }

  T value_{};
  Access written_, read_;
  bool many_warps_ = false, many_threads_ = false;
};

// The type behind REPRISE_SHARED. It forgets everything when a new block first touches it.
template <typename T, uint64_t kCount>
class SharedArray {
 public:
  explicit SharedArray(const char* name) : name_(name) {}

  class Element {
   public:
    Element(SharedArray& array, uint64_t index) : array_(array), index_(index) {}
    operator T() const { return array_.read(index_); }
    Element& operator=(const T& value) {
      array_.write(index_, value);
      return *this;
    }
    Element& operator=(const Element& other) { return *this = static_cast<T>(other); }
    Element& operator+=(const T& value) { return *this = static_cast<T>(*this) + value; }

   private:
    SharedArray& array_;
    uint64_t index_;
  };

  Element operator[](uint64_t index) {
    Device& device = Device::instance();
    if (index >= kCount) device.fail(Fault::kOutOfBounds, place(index) + " of " + std::to_string(kCount));
    if (block_serial_ != device.block_serial()) {
      block_serial_ = device.block_serial();
      cells_.assign(kCount, {});
    }
    return {*this, index};
  }

 private:
  T read(uint64_t index) {
    Device& device = Device::instance();
    SharedCell<T>& cell = cells_[index];
    if (!cell.was_written())
      device.fail(Fault::kUnwritten, who() + " reads " + place(index) + ", which no thread has written");
    if (cell.reading_races(device.now())) device.fail(Fault::kRace, who() + " reads " + place(index) + after(cell));
    return cell.read(device.now());
  }
  void write(uint64_t index, const T& value) {
    Device& device = Device::instance();
    SharedCell<T>& cell = cells_[index];
    if (cell.writing_races(device.now())) device.fail(Fault::kRace, who() + " writes " + place(index) + after(cell));
    cell.write(value, device.now());
  }
  std::string place(uint64_t index) const { return std::string(name_) + "[" + std::to_string(index) + "]"; }
  static std::string who() { return "thread " + std::to_string(Device::instance().now().thread); }
  static std::string after(const SharedCell<T>& cell) {
    const std::string writer = cell.was_written() ? ", written last by thread " + std::to_string(cell.writer()) : "";
    return writer + ", with no barrier since another thread's access";
  }

  const char* name_;
  uint64_t block_serial_ = 0;
  std::vector<SharedCell<T>> cells_;
};

// ---- what tests and kernels call ----

// The order of blocks and threads in all that runs from now on.
inline void set_order(uint64_t seed) { Device::instance().set_order(seed); }
// The first fault since the last call, if any.
inline Report take_report() { return Device::instance().take_report(); }

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const dim3& grid, const dim3& block, const Arguments&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "a card gets the bytes of an argument");
  const std::tuple<Parameters...> held(static_cast<Parameters>(arguments)...);
  Device::instance().launch({grid, block, [kernel, held] { std::apply(kernel, held); }});
}

// The lanes that the caller shuffles with.
struct Segment {
  explicit Segment(int width_)
      : lane(Device::instance().lane()), width(static_cast<uint32_t>(width_)), begin(lane / width * width) {}
  uint32_t clip(uint32_t source) const { return source < begin + width ? source : lane; }

  uint32_t lane, width, begin;
};

template <typename T>
T shuffle(uint32_t mask, T value, uint32_t source, int line) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = Device::instance().shuffle({Meeting::kShuffle, mask, line}, bits, source);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace reprise::fibre

inline void __syncthreads(int line = __builtin_LINE()) {
  reprise::fibre::Device::instance().meet({reprise::fibre::Meeting::kBlock, 0, line});
}
inline void __syncwarp(uint32_t mask = 0xffffffffu, int line = __builtin_LINE()) {
  reprise::fibre::Device::instance().meet({reprise::fibre::Meeting::kWarp, mask, line});
}

// As the CUDA C++ programming guide has them: `width`, a power of two, cuts the warp into segments; a lane whose source
// lies past its own segment gets its own value.
template <typename T>
T __shfl_sync(uint32_t mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
  const reprise::fibre::Segment segment(width);
  return reprise::fibre::shuffle(mask, value, segment.begin + static_cast<uint32_t>(source) % segment.width, line);
}
template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int lane_mask, int width = 32, int line = __builtin_LINE()) {
  const reprise::fibre::Segment segment(width);
  return reprise::fibre::shuffle(mask, value, segment.clip(segment.lane ^ static_cast<uint32_t>(lane_mask)), line);
}
template <typename T>
T __shfl_down_sync(uint32_t mask, T value, uint32_t delta, int width = 32, int line = __builtin_LINE()) {
  const reprise::fibre::Segment segment(width);
  return reprise::fibre::shuffle(mask, value, segment.clip(segment.lane + delta), line);
}

// ---- the little of CUDA's run time that host code asks for ----

struct cudaFuncAttributes {
  int binaryVersion = 0;
};
inline cudaError_t cudaGetLastError() { return reprise::fibre::Device::instance().take_error(); }
// What the launches did that have waited until now: cudaErrorLaunchFailure after a fault in one of them.
inline cudaError_t cudaDeviceSynchronize() { return reprise::fibre::Device::instance().synchronize(); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }
template <typename F>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, F*) {
  return cudaErrorNoDevice;
}
