// Implements cuda_fibre_device.h: the queues of work, the scheduler, and barriers and collectives.
#include "tests/ports/fibres/cuda_fibre_device.h"

#include <algorithm>
#include <map>

#include "tests/ports/fibres/cuda_fibre_access.h"

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
constexpr uint32_t kAllLanes = 0xffffffffu;

}  // namespace

Device::Device() = default;
Device::~Device() = default;

// ---- the queue ----

void Device::launch(Launch launch) {
  const dim3 &grid = launch.grid, &block = launch.block;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z, blocks = uint64_t{grid.x} * grid.y * grid.z;
  uint64_t parameter_bytes = 0;
  for (const std::string& each : launch.arguments) parameter_bytes += each.size();
  if (threads == 0 || threads > kMaxThreads || blocks == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535 || launch.shared_bytes > kMaxSharedBytes || parameter_bytes > kMaxParameterBytes) {
    error_ = cudaErrorInvalidConfiguration;
    return note(Fault::kLaunch, std::to_string(blocks) + " blocks of " + std::to_string(threads) + " threads with " +
                                    std::to_string(launch.shared_bytes) + " bytes of shared memory and " +
                                    std::to_string(parameter_bytes) + " of parameters");
  }
  const void* const stream = launch.stream;
  const auto work = [this, held = std::move(launch)] {
    if (launches_until_failure_ > 0 && --launches_until_failure_ == 0)
      return report(Fault::kLaunch, "a test wants this one to fail");
    run(held);
  };
  enqueue(work, stream);
}

void Device::require_queue(const void* stream) {
  if (queue_expected_ == nullptr || stream == queue_expected_ || lane_of(stream) == kCopies) return;
  note(Fault::kQueue, std::string("work is asked for on ") +
                          (stream == nullptr ? "the default stream" : "a stream that is not the context's queue"));
}

void Device::enqueue(std::function<void()> work, const void* stream) {
  require_queue(stream);
  push(lane_of(stream), {std::move(work), 0});
}

void Device::wait_for(const void* stream, Lane other, uint64_t number) {
  if (queue_expected_ != nullptr && stream != queue_expected_ && copy_queue_ == nullptr) copy_queue_ = stream;
  const Lane lane = lane_of(stream);
  if (lane == other) return;  // work of one queue is ordered in any case
  if (lane == kCopies && captures_) copies_captured_ = true;
  push(lane, {{}, number});
}

void Device::push(Lane lane, Queued queued) {
  if (is_captured(lane)) return captured_[lane].push_back(std::move(queued));
  waiting_work_[lane].push_back(std::move(queued));
  ++queued_[lane];
  run_early_copies();
}

bool Device::begin_capture() {
  if (captures_) return false;
  captured_ = {};
  capture_broke_ = copies_captured_ = false;
  return captures_ = true;
}

bool Device::end_capture(Lanes& captured) {
  if (!std::exchange(captures_, false) || capture_broke_) return false;
  uint64_t joined = 0;
  for (const Queued& queued : captured_[kKernels]) joined = std::max(joined, queued.after);
  if (joined < captured_[kCopies].size()) return false;
  captured = std::exchange(captured_, {});
  return true;
}

void Device::replay(const Lanes& captured) {
  const uint64_t first[] = {queued_[kKernels], queued_[kCopies]};
  for (const Lane lane : {kKernels, kCopies}) {
    for (const Queued& queued : captured[lane]) {
      const bool waits = queued.after > 0 || lane == kCopies;  // a graph's copies must not begin before the graph
      push(lane, {queued.work, waits ? first[1 - lane] + queued.after : 0});
    }
  }
}

bool Device::breaks_capture() { return captures_ && (capture_broke_ = true); }

// Runs the next piece of work of a queue. If it must wait for work of the other queue, runs that
// work first.
void Device::run_next(Lane lane) {
  const Lane other = lane == kKernels ? kCopies : kKernels;
  const Queued next = std::move(waiting_work_[lane].front());
  while (done(other) < next.after && !waiting_work_[other].empty() && !failed_) run_next(other);
  waiting_work_[lane].pop_front();
  if (next.work && !failed_) next.work();
}

void Device::run_early_copies() {
  std::deque<Queued>& copies = waiting_work_[kCopies];
  while (!copies_late_ && !copies.empty() && copies.front().after <= done(kKernels)) run_next(kCopies);
}

cudaError_t Device::synchronize_until(Lane lane, uint64_t number) {
  if (breaks_capture()) return cudaErrorStreamCaptureUnsupported;
  failed_ = false;
  while (done(lane) < number && !failed_) {
    run_next(lane);
    run_early_copies();
  }
  if (failed_) waiting_work_ = {};
  return failed_ ? cudaErrorLaunchFailure : cudaSuccess;
}

Report Device::take_report() {
  const size_t waiting = waiting_work_[kKernels].size() + waiting_work_[kCopies].size();
  if (waiting > 0) note(Fault::kForgotten, std::to_string(waiting) + " launches wait for a synchronise");
  waiting_work_ = {};
  return std::exchange(report_, {});
}

void Device::note(Fault fault, const std::string& text) {
  if (report_.fault == Fault::kNone) report_ = {fault, text};
}

// Reports a fault of the running kernel.
void Device::report(Fault fault, const std::string& text) {
  stop(fault, "block " + std::to_string(blockIdx.x) + "," + std::to_string(blockIdx.y) + ": " + text);
}

void Device::stop(Fault fault, const std::string& text) {
  failed_ = true;
  error_ = cudaErrorLaunchFailure;
  note(fault, text);
}

// ---- blocks ----

void Device::run(const Launch& launch) {
  if (runner_) {
    const Report report = runner_(launch);
    if (report.fault != Fault::kNone) stop(report.fault, report.text);
    return;
  }
  launch_ = &launch;
  if (judge_ != nullptr) judge_->begin_launch(launch.function, ranges_);
  const dim3 grid = gridDim = {std::min(launch.grid.x, max_blocks_), std::min(launch.grid.y, max_blocks_),
                               std::min(launch.grid.z, max_blocks_)};
  const dim3 block = blockDim = launch.block;
  threads_ = block.x * block.y * block.z;
  ensure_fibres(threads_);
  for (uint32_t i = 0; i < threads_; ++i)
    fibres_[i]->index = dim3(i % block.x, i / block.x % block.y, i / block.x / block.y);
  std::vector<uint64_t> order(uint64_t{grid.x} * grid.y * grid.z);
  for (uint64_t i = 0; i < order.size(); ++i) order[i] = i;
  for (uint64_t left = order.size(); left > 0 && !failed_; --left) {
    std::swap(order[random_.below(left)], order[left - 1]);
    const uint64_t i = order[left - 1];
    blockIdx = dim3(static_cast<uint32_t>(i % grid.x), static_cast<uint32_t>(i / grid.x % grid.y),
                    static_cast<uint32_t>(i / grid.x / grid.y));
    run_block();
  }
  if (judge_ != nullptr) judge_->end_launch();
}

void Device::run_block() {
  start_block();
  if (Fibre* first = next_ready()) resume(*first);
  if (!failed_) {
    const std::string waiting = who_waits();
    if (!waiting.empty()) report(Fault::kDivergence, waiting);
  }
  if (failed_) abandon();
  for (uint32_t warp = 0; warp * kWarpLanes < threads_; ++warp) accesses_[warp].settle(bank_counts_);
}

void Device::start_block() {
  ++block_serial_;
  if (judge_ != nullptr) judge_->begin_block(blockIdx, threads_);
  clock_ = block_barrier_ = shared_.begin_block(clock_, static_cast<uint32_t>(launch_->shared_bytes));
  std::fill(std::begin(warp_barriers_), std::end(warp_barriers_), clock_);
  std::fill(std::begin(waiting_), std::end(waiting_), 0u);
  at_barrier_ = 0;
  any_ = any_at_barrier_ = false;
  ready_.clear();
  for (uint32_t i = 0; i < threads_; ++i) release(*fibres_[i]);
}

void Device::exit(Fibre& fibre) {
  fibre.state = State::kExited;
  fibre.begun = false;
  if (!fibre.copies.waiting.empty() && !failed_)
    report(Fault::kInFlight, "thread " + std::to_string(fibre.thread) + " exits while its copies are in flight");
  fibre.copies = {};
}

// Ends a block that has failed: unwinds the fibres that have entered the kernel. The other fibres
// still wait in run_forever.
void Device::abandon() {
  abandoning_ = true;
  for (uint32_t i = 0; i < threads_; ++i) {
    if (fibres_[i]->begun) resume(*fibres_[i]);
    fibres_[i]->state = State::kExited;
  }
  abandoning_ = false;
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

// ---- barriers and collectives ----

void Device::meet(const Wait& wait) {
  Fibre& fibre = *current_;
  if (!wait.of_block) check_mask(wait);
  fibre.wait = wait;
  fibre.state = State::kWaiting;
  wait.of_block ? settle_block(fibre) : settle_warp(fibre);
  pause(fibre);
  if (abandoning_) throw Abandoned{};
}

void Device::check_mask(const Wait& wait) {
  const uint32_t lanes = std::min(kWarpLanes, threads_ - current_->warp() * kWarpLanes);
  const uint32_t exist = lanes == kWarpLanes ? kAllLanes : (1u << lanes) - 1;
  if ((wait.mask >> lane() & 1) == 0)
    fail(Fault::kShuffle, "the mask leaves out its caller, at line " + std::to_string(wait.line));
  if ((wait.mask & ~exist) != 0)
    fail(Fault::kShuffle, "the mask names lanes that do not exist, at line " + std::to_string(wait.line));
}

void Device::tick() {
  if (++clock_ >= SharedMemory::kMaxTicks) report(Fault::kLaunch, "more barriers in a block than the clock can count");
}

// Counts a thread that has arrived at a barrier of the block. Releases all threads when every
// thread has arrived.
void Device::settle_block(const Fibre& arrived) {
  if (at_barrier_++ == 0) barrier_ = arrived.wait;
  if (!(barrier_ == arrived.wait)) return report(Fault::kDivergence, who_waits());
  if (at_barrier_ < threads_) return;
  tick();
  block_barrier_ = clock_;
  if (judge_ != nullptr) judge_->meet_block();
  std::fill(std::begin(warp_barriers_), std::end(warp_barriers_), clock_);
  at_barrier_ = 0;
  any_ = std::exchange(any_at_barrier_, false);
  for (uint32_t warp = 0; warp * kWarpLanes < threads_; ++warp) accesses_[warp].settle(bank_counts_);
  for (uint32_t i = 0; i < threads_; ++i) release(*fibres_[i]);
}

bool Device::meet_block_or(const Site& site, bool value) {
  if (leaves_out(site)) return value;
  any_at_barrier_ = any_at_barrier_ || value;
  meet({.name = site.name.data(), .line = site.line, .of_block = true, .file = site.file.data()});
  return any_;
}

void Device::meet_collective(const char* name, int line, uint32_t mask, Collective collective, void* argument) {
  current_->argument = argument;
  meet({.name = name, .line = line, .mask = mask, .collective = collective});
}

// Counts a fibre that has arrived at a __syncwarp or a collective. When all lanes of its mask have
// arrived, does the work of the collective and releases these lanes.
void Device::settle_warp(Fibre& arrived) {
  const uint32_t warp = arrived.warp(), first = warp * kWarpLanes;
  const Wait wait = arrived.wait;
  waiting_[warp] |= 1u << arrived.lane();
  if ((waiting_[warp] & wait.mask) != wait.mask) return;
  Fibre* lanes[kWarpLanes] = {};
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    if ((wait.mask >> lane & 1) == 0) continue;
    lanes[lane] = fibres_[first + lane].get();
    if (!(lanes[lane]->wait == wait)) return;
  }
  if (wait.collective != nullptr) {
    wait.collective(*this, lanes);
  } else if (wait.mask == kAllLanes) {
    tick();
    warp_barriers_[warp] = clock_;
    if (judge_ != nullptr) judge_->meet_warp(warp);
  }
  if (wait.mask == kAllLanes) accesses_[warp].settle(bank_counts_);
  waiting_[warp] &= ~wait.mask;
  for (Fibre* fibre : lanes) {
    if (fibre != nullptr) release(*fibre);
  }
}

bool Device::note_site(const Site& site) {
  sites_->met.insert(site);
  return sites_->left_out == site;
}

void Device::fence(const Site& site) {
  if (!leaves_out(site) && judge_ != nullptr) judge_->fence();
}

// ---- asynchronous copies ----

void Device::begin_copy(const Copy& copy) {
  Copy held = copy;
  held.landed = random_.below(2) == 0;
  if (judge_ != nullptr) judge_->note_copy(held);
  if (held.landed) shared_.land_copy(held.offset, held.bytes, held.valid_bytes, held.source);
  current_->copies.waiting.push_back(held);
}

void Device::commit_copies() {
  Copies& copies = current_->copies;
  const auto issued = static_cast<uint32_t>(copies.waiting.size());
  copies.groups.push_back(issued - copies.committed);
  copies.committed = issued;
}

void Device::wait_copies(const Site& site, uint32_t groups_left) {
  if (leaves_out(site)) ++groups_left;
  Copies& copies = current_->copies;
  if (copies.groups.size() <= groups_left) return;
  const auto groups_done = static_cast<std::ptrdiff_t>(copies.groups.size() - groups_left);
  uint32_t ended = 0;
  for (std::ptrdiff_t g = 0; g < groups_done; ++g) ended += copies.groups[static_cast<size_t>(g)];
  for (uint32_t i = 0; i < ended; ++i) {
    const Copy& copy = copies.waiting[i];
    if (!copy.landed) shared_.land_copy(copy.offset, copy.bytes, copy.valid_bytes, copy.source);
    if (judge_ != nullptr) judge_->note_copy(copy);
    shared_.end_copy(copy.offset, copy.bytes, now());
  }
  copies.groups.erase(copies.groups.begin(), copies.groups.begin() + groups_done);
  copies.waiting.erase(copies.waiting.begin(), copies.waiting.begin() + ended);
  copies.committed -= ended;
}

// ---- a warp's addresses ----

void WarpAccesses::note(uint32_t lane, Kind kind, int line, uint32_t offset, uint32_t bytes) {
  size_t at = next_[lane];
  while (at < used_) {
    const Access& access = accesses_[at];
    if (access.kind == kind && access.line == line && access.addresses.bytes == bytes) break;
    ++at;
  }
  if (at == used_) {
    if (used_ == accesses_.size()) accesses_.emplace_back();
    accesses_[used_++] = {kind, line, {.bytes = bytes}};
  }
  accesses_[at].addresses.lanes |= 1u << lane;
  accesses_[at].addresses.offset[lane] = offset;
  next_[lane] = at + 1;
}

void WarpAccesses::settle(BankCounts& counts) {
  for (size_t i = 0; i < used_; ++i) {
    const Access& access = accesses_[i];
    count_banks(access.addresses, access.kind == kCopies  ? counts.copies
                                  : access.kind == kLoads ? counts.loads
                                                          : counts.stores);
  }
  if (used_ == 0) return;
  used_ = 0;
  std::fill(std::begin(next_), std::end(next_), size_t{0});
}

// ---- switching ----

void Device::ensure_fibres(uint32_t count) {
  while (fibres_.size() < count) {
    fibres_.push_back(std::make_unique<Fibre>());
    Fibre& fibre = *fibres_.back();
    fibre.thread = static_cast<uint32_t>(fibres_.size() - 1);
    fibre.stack = std::make_unique_for_overwrite<unsigned char[]>(kStackBytes);
    prepare_context(fibre.context, fibre.stack.get(), kStackBytes, &Device::body);
  }
}

void Device::body() {
  Device& device = instance();
#ifdef REPRISE_FIBRE_ASAN
  const void* stack = nullptr;
  size_t stack_bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &stack_bytes);
  if (std::exchange(device.from_scheduler_, false))
    device.scheduler_stack_ = stack, device.scheduler_stack_bytes_ = stack_bytes;
#endif
  device.run_forever(*device.current_);
}

void Device::run_forever(Fibre& fibre) {
  for (;;) {
    fibre.begun = true;
    try {
      launch_->kernel();
    } catch (const Abandoned&) {
    }
    exit(fibre);
    pause(fibre);
  }
}

// Returns a random ready fibre; null if none is ready or the kernel has failed.
Fibre* Device::next_ready() {
  if (ready_.empty() || failed_) return nullptr;
  std::swap(ready_[random_.below(ready_.size())], ready_.back());
  Fibre* next = ready_.back();
  ready_.pop_back();
  return next;
}

// Switches from the scheduler to a fibre. Returns when no fibre is ready or the kernel has failed.
void Device::resume(Fibre& fibre) {
  enter(fibre);
#ifdef REPRISE_FIBRE_ASAN
  from_scheduler_ = true;
  __sanitizer_start_switch_fiber(&scheduler_sanitizer_, fibre.stack.get(), kStackBytes);
#endif
  switch_context(scheduler_, fibre.context);
#ifdef REPRISE_FIBRE_ASAN
  __sanitizer_finish_switch_fiber(scheduler_sanitizer_, nullptr, nullptr);
#endif
}

// Switches from a fibre to the next ready one, or to the scheduler if none is ready. Returns when
// this fibre is resumed.
void Device::pause(Fibre& fibre) {
  Fibre* next = next_ready();
  if (next == &fibre) return;
  if (next != nullptr) enter(*next);
#ifdef REPRISE_FIBRE_ASAN
  __sanitizer_start_switch_fiber(&fibre.sanitizer, next != nullptr ? next->stack.get() : scheduler_stack_,
                                 next != nullptr ? kStackBytes : scheduler_stack_bytes_);
#endif
  switch_context(fibre.context, next != nullptr ? next->context : scheduler_);
#ifdef REPRISE_FIBRE_ASAN
  const void* stack = nullptr;
  size_t stack_bytes = 0;
  __sanitizer_finish_switch_fiber(fibre.sanitizer, &stack, &stack_bytes);
  if (std::exchange(from_scheduler_, false)) scheduler_stack_ = stack, scheduler_stack_bytes_ = stack_bytes;
#endif
}

}  // namespace reprise::fibre
