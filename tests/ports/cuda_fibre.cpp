// The scheduler behind cuda_fibre.h: the queue of launches, the order of fibres, where they meet, and the switching.
// Here apart from the header, so that it is compiled once and every .cu's object shares it.
#include "tests/ports/cuda_fibre.h"

#include <algorithm>
#include <map>

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

namespace reprise::fibre {
namespace {

#ifdef REPRISE_FIBRE_ASAN
constexpr size_t kStackBytes = 256 * 1024;
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif

}  // namespace

// ---- the queue ----

void Device::launch(Launch launch) {
  const dim3 &grid = launch.grid, &block = launch.block;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z, blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || threads > kMaxThreads || blocks == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535) {
    error_ = cudaErrorInvalidConfiguration;
    return note(Fault::kLaunch, std::to_string(blocks) + " blocks of " + std::to_string(threads) + " threads");
  }
  queue_.push_back(std::move(launch));
}

cudaError_t Device::synchronize() {
  const std::vector<Launch> launches = std::exchange(queue_, {});
  failed_ = false;
  for (const Launch& launch : launches) {
    run(launch);
    if (failed_) return cudaErrorLaunchFailure;
  }
  return cudaSuccess;
}

Report Device::take_report() {
  if (!queue_.empty()) note(Fault::kForgotten, std::to_string(queue_.size()) + " launches wait for a synchronise");
  queue_.clear();
  return std::exchange(report_, {});
}

void Device::note(Fault fault, const std::string& text) {
  if (report_.fault == Fault::kNone) report_ = {fault, text};
}

// Of the kernel that runs.
void Device::report(Fault fault, const std::string& text) {
  failed_ = true;
  error_ = cudaErrorLaunchFailure;
  note(fault, "block " + std::to_string(blockIdx.x) + "," + std::to_string(blockIdx.y) + ": " + text);
}

// ---- scheduling ----

void Device::run(const Launch& launch) {
  launch_ = &launch;
  const dim3 grid = gridDim = launch.grid;
  blockDim = launch.block;
  threads_ = blockDim.x * blockDim.y * blockDim.z;
  ensure_fibres(threads_);
  std::vector<uint64_t> order(uint64_t{grid.x} * grid.y * grid.z);
  for (uint64_t i = 0; i < order.size(); ++i) order[i] = i;
  for (uint64_t left = order.size(); left > 0 && !failed_; --left) {
    std::swap(order[draw(left)], order[left - 1]);
    const uint64_t i = order[left - 1];
    blockIdx = dim3(static_cast<uint32_t>(i % grid.x), static_cast<uint32_t>(i / grid.x % grid.y),
                    static_cast<uint32_t>(i / grid.x / grid.y));
    run_block();
  }
}

void Device::run_block() {
  start_block();
  while (!ready_.empty()) {
    std::swap(ready_[draw(ready_.size())], ready_.back());
    Fibre& fibre = *fibres_[ready_.back()];
    ready_.pop_back();
    resume(fibre);
    if (fibre.state == State::kWaiting && !failed_) {
      fibre.wait.meeting == Meeting::kBlock ? settle_block(fibre) : settle_warp(fibre);
    }
    if (failed_) return abandon();
  }
  const std::string waiting = who_waits();
  if (waiting.empty()) return;
  report(Fault::kDivergence, waiting);
  abandon();
}

void Device::start_block() {
  ++block_serial_;
  block_epoch_ = 1, at_barrier_ = 0;
  std::fill(std::begin(warp_epochs_), std::end(warp_epochs_), 1u);
  ready_.clear();
  for (uint32_t i = 0; i < threads_; ++i) release(*fibres_[i]);
}

// A barrier opens when every thread of the block stands at it.
void Device::settle_block(const Fibre& arrived) {
  if (at_barrier_++ == 0) barrier_ = arrived.wait;
  if (!(barrier_ == arrived.wait)) return report(Fault::kDivergence, who_waits());
  if (at_barrier_ < threads_) return;
  ++block_epoch_;
  at_barrier_ = 0;
  for (uint32_t i = 0; i < threads_; ++i) release(*fibres_[i]);
}

// A __syncwarp or a shuffle is done when all lanes of its mask have come to it.
void Device::settle_warp(const Fibre& arrived) {
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

void Device::hand_over(uint32_t first, const Wait& wait) {
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

void Device::meet(const Wait& wait) {
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

uint64_t Device::shuffle(const Wait& wait, uint64_t value, uint32_t source) {
  Fibre& fibre = *fibres_[current_];
  fibre.brings = value;
  fibre.source = source;
  meet(wait);
  return fibre.gets;
}

std::string Device::who_waits() const {
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
void Device::abandon() {
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

void Device::ensure_fibres(uint32_t count) {
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

void Device::body() {
  Device& device = instance();
#ifdef REPRISE_FIBRE_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &device.scheduler_stack_, &device.scheduler_stack_bytes_);
#endif
  device.run_forever(*device.fibres_[device.current_]);
}

void Device::run_forever(Fibre& fibre) {
  for (;;) {
    try {
      launch_->kernel();
    } catch (const Abandoned&) {
    }
    fibre.state = State::kExited;
    fibre.wait = {};
    pause(fibre);
  }
}

void Device::resume(Fibre& fibre) {
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

void Device::pause(Fibre& fibre) {
#ifdef REPRISE_FIBRE_ASAN
  __sanitizer_start_switch_fiber(&fibre.sanitizer, scheduler_stack_, scheduler_stack_bytes_);
#endif
  swapcontext(&fibre.context, &scheduler_);
#ifdef REPRISE_FIBRE_ASAN
  __sanitizer_finish_switch_fiber(fibre.sanitizer, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
}

}  // namespace reprise::fibre
