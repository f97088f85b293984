// Runs __global__ functions on the CPU: one fibre per thread, one block at a time, in an order drawn from a seed.
// Here so that every CUDA kernel is tested where there is neither nvcc nor a GPU, more strictly than a GPU would.
// It must not know any kernel. Include it first, then the .cu file itself: it takes the place of cuda_runtime.h.
//
// A launch stops at the first of these faults, which take_report() then tells, and cudaGetLastError() is no longer
// success:
//   race          a thread reads or overwrites what another one wrote (or overwrites what it read) with no barrier in
//   between unwritten     shared memory is read that no thread of this block has written: it is born poisoned in every
//   block out of bounds an index past the end of a shared array divergence    threads wait for others that have exited,
//   wait elsewhere, or wait with another mask shuffle       a mask that leaves out its caller or names lanes that do
//   not exist, or a source outside the mask launch        a grid or block that no device takes
// Faults of shared memory are found in any order of the fibres, since every access is compared with the barriers so
// far. Global memory is not watched: there a test compares the bits of several orders. Two limits: blocks run one after
// another, and a
// __syncwarp of less than the whole warp orders nothing here.
#pragma once

#define REPRISE_CUDA_FIBRE
#define REPRISE_DEVICE_COMPILER "fibres"

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define REPRISE_FIBRE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define REPRISE_FIBRE_ASAN 1
#endif
#endif
#ifdef REPRISE_FIBRE_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

// ---- what the kernels' source sees of the language ----

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define REPRISE_UNROLL
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

namespace reprise::fibre {

enum class Fault : uint8_t { kNone, kRace, kUnwritten, kOutOfBounds, kDivergence, kShuffle, kLaunch };

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

// The device: schedules the fibres of one block after another. One thread of the host uses it.
class Device {
 public:
  static Device& instance() {
    static Device device;
    return device;
  }

  void set_order(uint64_t seed) { random_ = seed * 0x9e3779b97f4a7c15ull + 1; }
  Report take_report() { return std::exchange(report_, {}); }
  int take_error() { return std::exchange(error_, 0); }

  void launch(const dim3& grid, const dim3& block, const std::function<void()>& kernel);

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
#ifdef REPRISE_FIBRE_ASAN
  static constexpr size_t kStackBytes = 256 * 1024;
#else
  static constexpr size_t kStackBytes = 64 * 1024;
#endif

  void report(Fault fault, const std::string& text);
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
  int error_ = 0;
  std::function<void()> kernel_;
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

// ---- scheduling ----

inline void Device::launch(const dim3& grid, const dim3& block, const std::function<void()>& kernel) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z, blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || threads > kMaxThreads || blocks == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535) {
    error_ = 9;  // cudaErrorInvalidConfiguration
    return report(Fault::kLaunch, std::to_string(blocks) + " blocks of " + std::to_string(threads) + " threads");
  }
  gridDim = grid, blockDim = block;
  kernel_ = kernel;
  threads_ = static_cast<uint32_t>(threads);
  ensure_fibres(threads_);
  std::vector<uint64_t> order(blocks);
  for (uint64_t i = 0; i < blocks; ++i) order[i] = i;
  for (uint64_t left = blocks; left > 0 && error_ == 0; --left) {
    std::swap(order[draw(left)], order[left - 1]);
    const uint64_t i = order[left - 1];
    blockIdx = dim3(static_cast<uint32_t>(i % grid.x), static_cast<uint32_t>(i / grid.x % grid.y),
                    static_cast<uint32_t>(i / grid.x / grid.y));
    run_block();
  }
}

inline void Device::run_block() {
  start_block();
  while (!ready_.empty()) {
    std::swap(ready_[draw(ready_.size())], ready_.back());
    Fibre& fibre = *fibres_[ready_.back()];
    ready_.pop_back();
    resume(fibre);
    if (fibre.state == State::kWaiting && error_ == 0) {
      fibre.wait.meeting == Meeting::kBlock ? settle_block(fibre) : settle_warp(fibre);
    }
    if (error_ != 0) return abandon();
  }
  const std::string waiting = who_waits();
  if (waiting.empty()) return;
  report(Fault::kDivergence, waiting);
  abandon();
}

inline void Device::start_block() {
  ++block_serial_;
  block_epoch_ = 1, at_barrier_ = 0;
  std::fill(std::begin(warp_epochs_), std::end(warp_epochs_), 1u);
  ready_.clear();
  for (uint32_t i = 0; i < threads_; ++i) release(*fibres_[i]);
}

// A barrier opens when every thread of the block stands at it.
inline void Device::settle_block(const Fibre& arrived) {
  if (at_barrier_++ == 0) barrier_ = arrived.wait;
  if (!(barrier_ == arrived.wait)) return report(Fault::kDivergence, who_waits());
  if (at_barrier_ < threads_) return;
  ++block_epoch_;
  at_barrier_ = 0;
  for (uint32_t i = 0; i < threads_; ++i) release(*fibres_[i]);
}

// A __syncwarp or a shuffle is done when all lanes of its mask have come to it.
inline void Device::settle_warp(const Fibre& arrived) {
  const uint32_t first = arrived.warp() * kWarpLanes;
  const Wait wait = arrived.wait;
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    if ((wait.mask >> lane & 1) == 0) continue;
    const Fibre& other = *fibres_[first + lane];
    if (other.state != State::kWaiting || !(other.wait == wait)) return;
  }
  if (wait.meeting == Meeting::kShuffle) hand_over(first, wait);
  if (wait.meeting == Meeting::kWarp && wait.mask == 0xffffffffu) ++warp_epochs_[arrived.warp()];
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    if ((wait.mask >> lane & 1) != 0) release(*fibres_[first + lane]);
  }
}

inline void Device::hand_over(uint32_t first, const Wait& wait) {
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    if ((wait.mask >> lane & 1) == 0) continue;
    Fibre& fibre = *fibres_[first + lane];
    if ((wait.mask >> fibre.source & 1) == 0) {
      return report(Fault::kShuffle, "lane " + std::to_string(lane) + " reads lane " + std::to_string(fibre.source) +
                                         ", which is not in the mask");
    }
    fibre.gets = fibres_[first + fibre.source]->brings;
  }
}

inline void Device::meet(const Wait& wait) {
  Fibre& fibre = *fibres_[current_];
  if (wait.meeting != Meeting::kBlock) {
    const uint32_t lanes = std::min(kWarpLanes, threads_ - fibre.warp() * kWarpLanes);
    const uint32_t exist = lanes == kWarpLanes ? 0xffffffffu : (1u << lanes) - 1;
    if ((wait.mask >> fibre.lane() & 1) == 0)
      fail(Fault::kShuffle, "the mask leaves out its caller, at line " + std::to_string(wait.line));
    if ((wait.mask & ~exist) != 0)
      fail(Fault::kShuffle, "the mask names lanes that do not exist, at line " + std::to_string(wait.line));
  }
  fibre.wait = wait;
  fibre.state = State::kWaiting;
  pause(fibre);
  if (abandoning_) throw Abandoned{};
}

inline uint64_t Device::shuffle(const Wait& wait, uint64_t value, uint32_t source) {
  Fibre& fibre = *fibres_[current_];
  fibre.brings = value;
  fibre.source = source;
  meet(wait);
  return fibre.gets;
}

inline void Device::report(Fault fault, const std::string& text) {
  if (error_ == 0) error_ = 719;  // cudaErrorLaunchFailure
  if (report_.fault == Fault::kNone)
    report_ = {fault, "block " + std::to_string(blockIdx.x) + "," + std::to_string(blockIdx.y) + ": " + text};
}

inline std::string Device::who_waits() const {
  std::map<std::string, uint32_t> counts;
  uint32_t exited = 0, waiting = 0;
  for (uint32_t i = 0; i < threads_; ++i) {
    const Fibre& fibre = *fibres_[i];
    if (fibre.state == State::kWaiting) ++counts[fibre.wait.text()], ++waiting;
    if (fibre.state == State::kExited) ++exited;
  }
  std::string text;
  for (const auto& [place, count] : counts) text += std::to_string(count) + " threads wait in " + place + ", ";
  return waiting == 0 ? "" : text + std::to_string(exited) + " have exited";
}

// Unwinds the fibres that have begun; the others are still at the top of run_forever.
inline void Device::abandon() {
  abandoning_ = true;
  for (uint32_t i = 0; i < threads_; ++i) {
    Fibre& fibre = *fibres_[i];
    const bool in_kernel = fibre.state == State::kWaiting || (fibre.state == State::kReady && fibre.wait.line != 0);
    if (in_kernel) resume(fibre);
    fibre.state = State::kExited;
    fibre.wait = {};
  }
  abandoning_ = false;
}

// ---- switching ----

inline void Device::ensure_fibres(uint32_t count) {
  while (fibres_.size() < count) {
    fibres_.push_back(std::make_unique<Fibre>());
    Fibre& fibre = *fibres_.back();
    fibre.thread = static_cast<uint32_t>(fibres_.size() - 1);
    fibre.stack = std::make_unique_for_overwrite<unsigned char[]>(kStackBytes);
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.get();
    fibre.context.uc_stack.ss_size = kStackBytes;
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, &Device::body, 0);
  }
}

inline void Device::body() {
  Device& device = instance();
#ifdef REPRISE_FIBRE_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &device.scheduler_stack_, &device.scheduler_stack_bytes_);
#endif
  device.run_forever(*device.fibres_[device.current_]);
}

inline void Device::run_forever(Fibre& fibre) {
  for (;;) {
    try {
      kernel_();
    } catch (const Abandoned&) {
    }
    fibre.state = State::kExited;
    fibre.wait = {};
    pause(fibre);
  }
}

inline void Device::resume(Fibre& fibre) {
  current_ = fibre.thread;
  threadIdx = dim3(current_ % blockDim.x, current_ / blockDim.x % blockDim.y, current_ / blockDim.x / blockDim.y);
#ifdef REPRISE_FIBRE_ASAN
  __sanitizer_start_switch_fiber(&scheduler_sanitizer_, fibre.stack.get(), kStackBytes);
#endif
  swapcontext(&scheduler_, &fibre.context);
#ifdef REPRISE_FIBRE_ASAN
  __sanitizer_finish_switch_fiber(scheduler_sanitizer_, nullptr, nullptr);
#endif
}

inline void Device::pause(Fibre& fibre) {
#ifdef REPRISE_FIBRE_ASAN
  __sanitizer_start_switch_fiber(&fibre.sanitizer, scheduler_stack_, scheduler_stack_bytes_);
#endif
  swapcontext(&fibre.context, &scheduler_);
#ifdef REPRISE_FIBRE_ASAN
  __sanitizer_finish_switch_fiber(fibre.sanitizer, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
}

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

// The order of blocks and threads from the next launch on.
inline void set_order(uint64_t seed) { Device::instance().set_order(seed); }
// The first fault since the last call.
inline Report take_report() { return Device::instance().take_report(); }

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const dim3& grid, const dim3& block, const Arguments&... arguments) {
  Device::instance().launch(grid, block, [&] { kernel(arguments...); });
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

// ---- the little of CUDA's run time that the kernels' host side asks for ----

using cudaStream_t = void*;
enum cudaError_t : int { cudaSuccess = 0, cudaErrorNoDevice = 100 };
struct cudaFuncAttributes {
  int binaryVersion = 0;
};
inline cudaError_t cudaGetLastError() {
  return static_cast<cudaError_t>(reprise::fibre::Device::instance().take_error());
}
template <typename F>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, F*) {
  return cudaErrorNoDevice;
}
