// The device of the fibres: queues of work, and a scheduler that runs one block after another, with
// a fibre for each thread. Shared memory, warps and CUDA's run time are in files of their own,
// which call the device.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/ops/memory_ranges.h"
#include "tests/ports/fibres/cuda_fibre_shared.h"
#include "tests/ports/fibres/cuda_fibre_switch.h"
#include "tests/ports/ptx/tensor_core.h"
#include "tests/ports/random_draws.h"

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
};
inline dim3 gridDim, blockDim;
inline dim3 blockIdx(0, 0, 0), threadIdx(0, 0, 0);

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorNoDevice = 100,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorIllegalState = 401,
};

namespace reprise::fibre {

struct Report {
  Fault fault = Fault::kNone;
  std::string text;
};

struct Abandoned {};  // thrown to unwind a fibre of a block that has failed

enum class State : uint8_t { kReady, kWaiting, kExited };

class AccessJudge;
class Device;
struct Fibre;

// A source line of a kernel that orders accesses: a barrier, a wait for copies, or a fence.
struct Site {
  std::string_view name, file;
  int line = 0;
  auto operator<=>(const Site&) const = default;
  std::string text() const { return std::string(name) + " at " + std::string(file) + ":" + std::to_string(line); }
};
// The sites that kernels have reached, and the site that a test disables, if any. A disabled wait
// for copies is not omitted; it leaves one more group unfinished.
struct Sites {
  std::set<Site> met;
  std::optional<Site> left_out;
};
// A function that does the work of a collective. It is called when all lanes of the mask have
// arrived. `lanes[i]` is null if lane i is not in the mask.
using Collective = void (*)(Device& device, Fibre* const (&lanes)[kWarpLanes]);

// The barrier or collective at which a fibre waits. It completes when all fibres that must arrive
// wait at the same place in the code with the same mask.
struct Wait {
  const char* name = nullptr;
  int line = 0;
  uint32_t mask = 0;                // lanes of the warp; unused by a barrier of the block
  Collective collective = nullptr;  // null: a barrier
  bool of_block = false;            // true: a barrier of the whole block
  const char* file = nullptr;  // null if unknown

  bool operator==(const Wait& other) const {
    return line == other.line && mask == other.mask && collective == other.collective && of_block == other.of_block;
  }
  std::string text() const {
    return std::string(name) + " at line " + std::to_string(line) + (file != nullptr ? std::string(" of ") + file : "");
  }
};

// An asynchronous copy for which its thread has not yet waited.
struct Copy {
  uint32_t offset = 0, bytes = 0, valid_bytes = 0;
  const void* source = nullptr;
  bool landed = false;  // true: the bytes are already in shared memory
  uint32_t place = 0;   // place in the code that issued the copy (code_places.h)
};

// The asynchronous copies of one thread that are not finished, oldest first. Copies of committed
// groups precede copies that are in no group yet.
struct Copies {
  std::vector<Copy> waiting;
  std::vector<uint32_t> groups;  // number of copies in each group
  uint32_t committed = 0;        // number of copies in all groups
};

struct Fibre {
  Context context;
  std::unique_ptr<unsigned char[]> stack;
  uint32_t thread = 0;
  dim3 index;
  State state = State::kExited;
  bool begun = false;  // true: the fibre has entered the kernel
  Wait wait;
  void* argument = nullptr;  // argument of a collective, stored on the fibre's stack
  Copies copies;
  void* sanitizer = nullptr;

  uint32_t lane() const { return thread % kWarpLanes; }
  uint32_t warp() const { return thread / kWarpLanes; }
};

// The accesses of a warp's lanes to shared memory since the warp's last barrier, grouped into
// instructions. For each line and kind of access, the n-th accesses of all lanes count as one
// instruction.
class WarpAccesses {
 public:
  enum Kind : uint8_t { kCopies, kLoads, kStores };
  void note(uint32_t lane, Kind kind, int line, uint32_t offset, uint32_t bytes);
  void settle(BankCounts& counts);

 private:
  struct Access {
    Kind kind = kLoads;
    int line = 0;
    WarpAddresses addresses;
  };
  std::vector<Access> accesses_;
  size_t used_ = 0;
  size_t next_[kWarpLanes] = {};  // for each lane, the index in accesses_ from which its next access is searched
};

struct Launch {
  dim3 grid, block;
  uint64_t shared_bytes = 0;           // bytes of dynamic shared memory
  const void* stream = nullptr;
  std::function<void()> kernel;        // contains the arguments
  const void* function = nullptr;      // the kernel itself, without arguments
  std::vector<std::string> arguments;  // the bytes of each argument
};
// One piece of work in one of the two queues. `after`: number of pieces of the other queue that
// must be done before it.
struct Queued {
  std::function<void()> work;  // empty if the piece is only a wait
  uint64_t after = 0;
};
// The two queues. kCopies is the queue of the stream that has waited for an event of the kernels'
// queue. All other streams share kKernels. Work of the copy queue runs as early as possible, or,
// with set_late_copies, only when the host or the other queue waits for it.
enum Lane : uint8_t { kKernels, kCopies, kLanes };
using Lanes = std::array<std::deque<Queued>, kLanes>;

// A function that runs a launch in place of the fibres (tests/ports/ptx/ptx_launches.h) and returns
// the fault, if any.
using Runner = std::function<Report(const Launch&)>;

// The device: stores queued work, and schedules the fibres of one block after another. It is not
// thread-safe: only one thread of the host may use it.
class Device {
 public:
  static Device& instance() {
    static Device device;
    return device;
  }
  Device();  // defined in the .cpp file, like ~Device(), because every kernel's file includes this header
  ~Device();

  // ---- called by tests ----

  void set_order(uint64_t seed) { random_.seed(seed); }
  void set_tensor_core(TensorCore model) { tensor_core_ = model; }
  void fail_launch(uint64_t launches) { launches_until_failure_ = launches; }
  void expect_queue(const void* queue) { queue_expected_ = queue, copy_queue_ = nullptr; }  // null: any queue
  void set_late_copies(bool late) { copies_late_ = late; }
  void set_runner(Runner runner) { runner_ = std::move(runner); }  // null: the fibres run launches
  void allow_memory(test::MemoryRanges ranges) { ranges_ = std::move(ranges); }
  const test::MemoryRanges& ranges() const { return ranges_; }
  void set_judge(AccessJudge* judge) { judge_ = judge, shared_.keep_places(judge != nullptr); }  // null: none
  AccessJudge* judge() const { return judge_; }
  void set_sites(Sites* sites) { sites_ = sites; }  // null: sites are not recorded
  // Limits the grid of later launches to `blocks` in each dimension. Kernels must then loop over
  // the remaining work.
  void set_most_blocks(uint32_t blocks) { max_blocks_ = blocks; }
  Report take_report();
  BankCounts take_bank_counts() { return std::exchange(bank_counts_, {}); }
  cudaError_t take_error() { return std::exchange(error_, cudaSuccess); }

  // ---- called by host code ----

  // Adds a launch to its queue. A queue numbers its pieces of work from 1.
  void launch(Launch launch);
  void enqueue(std::function<void()> work, const void* stream);
  // Starts to record later work instead of adding it to the queues. Returns false if a capture is
  // already in progress.
  bool begin_capture();
  // Ends the capture and moves the recorded work to `captured`. Returns false if no capture was in
  // progress, if the host waited or allocated during the capture, or if the kernels do not wait for
  // the last copy. A card refuses these cases as well.
  bool end_capture(Lanes& captured);
  void replay(const Lanes& captured);
  // True if work is being captured. In this case also makes the capture fail. Called when the host
  // waits or allocates, which a card refuses during a capture.
  bool breaks_capture();
  Lane lane_of(const void* stream) const {
    return copy_queue_ != nullptr && stream == copy_queue_ ? kCopies : kKernels;
  }
  // True if work is being captured. queued() then returns the number of captured pieces.
  bool is_capturing() const { return captures_; }
  uint64_t queued(Lane lane) const { return is_captured(lane) ? captured_[lane].size() : queued_[lane]; }
  uint64_t done(Lane lane) const { return queued_[lane] - waiting_work_[lane].size(); }
  void wait_for(const void* stream, Lane other, uint64_t number);
  cudaError_t synchronize() {
    const cudaError_t copies = synchronize_until(kCopies, queued_[kCopies]);
    return copies == cudaSuccess ? synchronize_until(kKernels, queued_[kKernels]) : copies;
  }
  cudaError_t synchronize_until(Lane lane, uint64_t number);

  // ---- functions that a running fibre calls ----

  void meet_block(const Site& site) {
    if (!leaves_out(site))
      meet({.name = site.name.data(), .line = site.line, .of_block = true, .file = site.file.data()});
  }
  bool meet_block_or(const Site& site, bool value);
  void meet_warp(const Site& site, uint32_t mask) {
    if (!leaves_out(site)) meet({.name = site.name.data(), .line = site.line, .mask = mask, .file = site.file.data()});
  }
  void fence(const Site& site);
  void meet_collective(const char* name, int line, uint32_t mask, Collective collective, void* argument);
  [[noreturn]] void fail(Fault fault, const std::string& text) {
    report(fault, text);
    throw Abandoned{};
  }
  void begin_copy(const Copy& copy);
  void commit_copies();
  void wait_copies(const Site& site, uint32_t groups_left);
  void note_access(WarpAccesses::Kind kind, int line, uint32_t offset, uint32_t bytes) {
    accesses_[current_->warp()].note(current_->lane(), kind, line, offset, bytes);
  }
  // Reports a fault of a collective. The kernel stops when the collective returns.
  void report(Fault fault, const std::string& text);

  Moment now() const { return {thread(), clock_, block_barrier_, warp_barriers_[current_->warp()]}; }
  SharedMemory& shared() { return shared_; }
  BankCounts& bank_counts() { return bank_counts_; }
  TensorCore tensor_core() const { return tensor_core_; }
  uint64_t block_serial() const { return block_serial_; }
  uint32_t lane() const { return current_->lane(); }
  uint32_t thread() const { return current_->thread; }

 private:
  void note(Fault fault, const std::string& text);
  // True if a test has disabled this site. Records that a kernel has reached it.
  bool leaves_out(const Site& site) { return sites_ != nullptr && note_site(site); }
  bool note_site(const Site& site);
  void require_queue(const void* stream);
  bool is_captured(Lane lane) const { return captures_ && (lane == kKernels || copies_captured_); }
  void push(Lane lane, Queued queued);
  void run_next(Lane lane);
  void run_early_copies();
  void stop(Fault fault, const std::string& text);
  void run(const Launch& launch);
  void run_block();
  void start_block();
  void meet(const Wait& wait);
  void check_mask(const Wait& wait);
  void settle_block(const Fibre& arrived);
  void settle_warp(Fibre& arrived);
  void tick();
  void exit(Fibre& fibre);
  void abandon();
  void release(Fibre& fibre) {
    fibre.state = State::kReady;
    ready_.push_back(&fibre);
  }
  std::string who_waits() const;

  // ---- switching, to the next ready fibre or, if none is ready, to the scheduler ----

  void ensure_fibres(uint32_t count);
  Fibre* next_ready();
  void resume(Fibre& fibre);
  void pause(Fibre& fibre);
  void enter(Fibre& fibre) {
    current_ = &fibre;
    threadIdx = fibre.index;
  }
  static void body();
  [[noreturn]] void run_forever(Fibre& fibre);

  RandomDraws random_;
  TensorCore tensor_core_ = TensorCore::kAmpere;
  const void* queue_expected_ = nullptr;
  Runner runner_;
  AccessJudge* judge_ = nullptr;
  Sites* sites_ = nullptr;
  uint32_t max_blocks_ = ~0u;
  test::MemoryRanges ranges_;
  Report report_;
  BankCounts bank_counts_;
  cudaError_t error_ = cudaSuccess;  // last error of a launch or kernel, until take_error()
  bool failed_ = false;              // the running kernel has failed
  Lanes waiting_work_, captured_;
  uint64_t queued_[kLanes] = {};
  const void* copy_queue_ = nullptr;
  bool copies_late_ = false, captures_ = false, copies_captured_ = false, capture_broke_ = false;
  uint64_t launches_until_failure_ = 0;
  const Launch* launch_ = nullptr;              // the running launch
  std::vector<std::unique_ptr<Fibre>> fibres_;  // reused: a fibre waits in run_forever between blocks
  std::vector<Fibre*> ready_;
  Fibre* current_ = nullptr;
  uint32_t threads_ = 0;
  uint32_t at_barrier_ = 0;
  Wait barrier_;  // the barrier at which the first fibre has arrived
  bool any_ = false, any_at_barrier_ = false;  // result of __syncthreads_or; its value so far, while threads arrive
  uint32_t waiting_[kMaxThreads / kWarpLanes] = {};  // for each warp, a bit mask of the waiting lanes
  uint32_t clock_ = 0, block_barrier_ = 0;
  uint32_t warp_barriers_[kMaxThreads / kWarpLanes] = {};
  WarpAccesses accesses_[kMaxThreads / kWarpLanes];
  SharedMemory shared_;
  uint64_t block_serial_ = 0;
  bool abandoning_ = false;
  Context scheduler_;
  [[maybe_unused]] void* scheduler_sanitizer_ = nullptr;  // only the address sanitizer needs this and the next three
  [[maybe_unused]] bool from_scheduler_ = false;
  [[maybe_unused]] const void* scheduler_stack_ = nullptr;
  [[maybe_unused]] size_t scheduler_stack_bytes_ = 0;
};

}  // namespace reprise::fibre
