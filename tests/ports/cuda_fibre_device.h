// The device of the fibres: a queue of work, and a scheduler that runs one block after another, a fibre for each thread.
// Here so that shared memory, warps and CUDA's run time, each in a file of its own, have one thing to call.
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
#include "tests/ports/cuda_fibre_shared.h"
#include "tests/ports/cuda_fibre_switch.h"
#include "tests/ports/random_draws.h"
#include "tests/ports/tensor_core.h"

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

struct Abandoned {};  // unwinds a fibre of a block that has failed

enum class State : uint8_t { kReady, kWaiting, kExited };

class AccessJudge;
class Device;
struct Fibre;

// A line of a kernel that orders accesses: a barrier, a wait for copies, a fence.
struct Site {
  std::string_view name, file;
  int line = 0;
  auto operator<=>(const Site&) const = default;
  std::string text() const { return std::string(name) + " at " + std::string(file) + ":" + std::to_string(line); }
};
// Those that kernels have come to; and one that a test takes out, as if it were not written: a wait for copies leaves one group more unfinished.
struct Sites {
  std::set<Site> met;
  std::optional<Site> left_out;
};
// What a warp does when all lanes have come; null for a lane that is not in the mask.
using Collective = void (*)(Device& device, Fibre* const (&lanes)[kWarpLanes]);

// What a fibre waits for: fibres meet when all that the meeting calls for are at the same place with the same mask.
struct Wait {
  const char* name = nullptr;
  int line = 0;
  uint32_t mask = 0;                // of a warp's lanes; unused by a barrier of the block
  Collective collective = nullptr;  // null: a barrier
  bool of_block = false;
  const char* file = nullptr;  // of the line, where it is known

  bool operator==(const Wait& other) const {
    return line == other.line && mask == other.mask && collective == other.collective && of_block == other.of_block;
  }
  std::string text() const {
    return std::string(name) + " at line " + std::to_string(line) + (file != nullptr ? std::string(" of ") + file : "");
  }
};

// An asynchronous copy that its issuer has not waited for.
struct Copy {
  uint32_t offset = 0, bytes = 0, valid_bytes = 0;
  const void* source = nullptr;
  bool landed = false;
  uint32_t place = 0;  // in the code, where it was issued
};

// Those of one thread: groups, the oldest first, and behind them the copies that no group has yet.
struct Copies {
  std::vector<Copy> waiting;
  std::vector<uint32_t> groups;  // how many copies each has
  uint32_t committed = 0;        // copies in groups
};

struct Fibre {
  Context context;
  std::unique_ptr<unsigned char[]> stack;
  uint32_t thread = 0;
  dim3 index;
  State state = State::kExited;
  bool begun = false;  // it is within the kernel
  Wait wait;
  void* argument = nullptr;  // of a collective, on the fibre's stack
  Copies copies;
  void* sanitizer = nullptr;

  uint32_t lane() const { return thread % kWarpLanes; }
  uint32_t warp() const { return thread / kWarpLanes; }
};

// The addresses that a warp's lanes have named since it met last, so that the lanes of one instruction find together:
// the accesses of one kind at one line, the first of each lane, the second of each lane, ...
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
  size_t next_[kWarpLanes] = {};  // a lane's accesses are found in its own order
};

struct Launch {
  dim3 grid, block;
  uint64_t shared_bytes = 0;           // dynamic
  const void* stream = nullptr;
  std::function<void()> kernel;        // holds the arguments
  const void* function = nullptr;      // the kernel itself
  std::vector<std::string> arguments;  // the bytes of each
};
// Work that waits for its turn in one of two queues, and how much of the other queue must be done before it.
struct Queued {
  std::function<void()> work;  // empty: a wait alone
  uint64_t after = 0;
};
// The kernels', which all streams share, and one beside it for copies: the stream that was told to wait for an event of the kernels'. Its work is
// done as early as it may, or as late as somebody waits for it.
enum Lane : uint8_t { kKernels, kCopies, kLanes };
using Lanes = std::array<std::deque<Queued>, kLanes>;

// Runs launches in the fibres' stead (tests/ports/ptx_launches.h), and says what went wrong, if anything.
using Runner = std::function<Report(const Launch&)>;

// Keeps the work, and schedules the fibres of one block after another. One thread of the host uses it.
class Device {
 public:
  static Device& instance() {
    static Device device;
    return device;
  }
  Device();  // these two stand in the source, because every kernel's file includes this
  ~Device();

  // What tests set and take.
  void set_order(uint64_t seed) { random_.seed(seed); }
  void set_tensor_core(TensorCore model) { tensor_core_ = model; }
  void fail_launch(uint64_t launches) { launches_until_failure_ = launches; }
  void expect_queue(const void* queue) { queue_expected_ = queue, copy_queue_ = nullptr; }  // null: any
  void set_late_copies(bool late) { copies_late_ = late; }
  void set_runner(Runner runner) { runner_ = std::move(runner); }  // null: the fibres
  void allow_memory(test::MemoryRanges ranges) { ranges_ = std::move(ranges); }
  const test::MemoryRanges& ranges() const { return ranges_; }
  void set_judge(AccessJudge* judge) { judge_ = judge, shared_.keep_places(judge != nullptr); }  // null: none
  AccessJudge* judge() const { return judge_; }
  void set_sites(Sites* sites) { sites_ = sites; }  // null: nobody asks
  // Of a grid so many blocks run in each direction, for kernels whose blocks take the rest in turns.
  void set_most_blocks(uint32_t blocks) { most_blocks_ = blocks; }
  Report take_report();
  BankCounts take_bank_counts() { return std::exchange(bank_counts_, {}); }
  cudaError_t take_error() { return std::exchange(error_, cudaSuccess); }

  // What the host calls. Each piece of work has a number in its queue: how many were queued there before it, and itself.
  void launch(Launch launch);
  void enqueue(std::function<void()> work, const void* stream);
  // Work that is queued from now on is kept instead; answers false where that is so already.
  bool begin_capture();
  // What was kept. False where nothing was, where the host waited for work meanwhile, or where the kernels do not wait for a copy in the end: a
  // card refuses these too.
  bool end_capture(Lanes& captured);
  void replay(const Lanes& captured);
  // What a card refuses while work is captured: waiting and allocating. Answers whether it is, and ends it.
  bool breaks_capture();
  Lane lane_of(const void* stream) const { return copy_queue_ != nullptr && stream == copy_queue_ ? kCopies : kKernels; }
  // While work is captured, so much of what was.
  bool is_capturing() const { return captures_; }
  uint64_t queued(Lane lane) const { return is_captured(lane) ? captured_[lane].size() : queued_[lane]; }
  uint64_t done(Lane lane) const { return queued_[lane] - waiting_work_[lane].size(); }
  void wait_for(const void* stream, Lane other, uint64_t number);
  cudaError_t synchronize() {
    const cudaError_t copies = synchronize_until(kCopies, queued_[kCopies]);
    return copies == cudaSuccess ? synchronize_until(kKernels, queued_[kKernels]) : copies;
  }
  cudaError_t synchronize_until(Lane lane, uint64_t number);

  // What a running fibre calls.
  void meet_block(const Site& site) {
    if (!leaves_out(site)) meet({.name = site.name.data(), .line = site.line, .of_block = true, .file = site.file.data()});
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
  // What a collective calls when something is wrong: the kernel stops when it returns.
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
  // Whether a test takes this one out.
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

  // Switching: to the next fibre that is ready, or to the scheduler where there is none.
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
  uint32_t most_blocks_ = ~0u;
  test::MemoryRanges ranges_;
  Report report_;
  BankCounts bank_counts_;
  cudaError_t error_ = cudaSuccess;  // of a launch or of a kernel, until it is taken
  bool failed_ = false;              // the kernel that runs
  Lanes waiting_work_, captured_;
  uint64_t queued_[kLanes] = {};
  const void* copy_queue_ = nullptr;
  bool copies_late_ = false, captures_ = false, copies_captured_ = false, capture_broke_ = false;
  uint64_t launches_until_failure_ = 0;
  const Launch* launch_ = nullptr;              // that runs
  std::vector<std::unique_ptr<Fibre>> fibres_;  // reused: a fibre waits in run_forever between blocks
  std::vector<Fibre*> ready_;
  Fibre* current_ = nullptr;
  uint32_t threads_ = 0;
  uint32_t at_barrier_ = 0;
  Wait barrier_;  // of the first to arrive
  bool any_ = false, any_at_barrier_ = false;  // what __syncthreads_or gives, and what it gathers
  uint32_t waiting_[kMaxThreads / kWarpLanes] = {};  // the lanes that wait for their warp
  uint32_t clock_ = 0, block_barrier_ = 0;
  uint32_t warp_barriers_[kMaxThreads / kWarpLanes] = {};
  WarpAccesses accesses_[kMaxThreads / kWarpLanes];
  SharedMemory shared_;
  uint64_t block_serial_ = 0;
  bool abandoning_ = false;
  Context scheduler_;
  [[maybe_unused]] void* scheduler_sanitizer_ = nullptr;  // these four: for the address sanitizer
  [[maybe_unused]] bool from_scheduler_ = false;
  [[maybe_unused]] const void* scheduler_stack_ = nullptr;
  [[maybe_unused]] size_t scheduler_stack_bytes_ = 0;
};

}  // namespace reprise::fibre
