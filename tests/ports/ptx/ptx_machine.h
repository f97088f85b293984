// Runs a decoded kernel on the CPU: one block after another, with the lanes of a warp together
// under a mask. So tests run the PTX that nvcc makes without a card, including inline assembly,
// predication and the order of operands.
//
// If the lanes of a warp are at different instructions, the lanes whose instruction is first in the
// text run first. Lanes that reach the same instruction continue together. A warp runs until all
// its lanes wait at a barrier of the block or have exited. A seed decides the order of warps and
// blocks.
//
// Shared memory is the same as under the fibres (cuda_fibre_shared.h), with the same faults: races;
// reads of unwritten bytes or of bytes in flight; accesses outside an array or misaligned; lanes
// that wait for lanes that do not arrive.
//
// Global memory is the host's. Every access must be aligned, be within a tensor of the case that
// runs (tests/ops/memory_ranges.h; in mapped memory if no case runs), write to no input, and be
// ordered with the accesses of other threads of the launch (cuda_fibre_order.h). An asynchronous
// copy counts as a read of the valid bytes of its source, both when it begins and when its thread
// waits for it. Tensor cores sum as in tensor_core.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/memory_ranges.h"
#include "tests/ports/fibres/cuda_fibre_device.h"
#include "tests/ports/fibres/cuda_fibre_order.h"
#include "tests/ports/ptx/ptx_program.h"

namespace reprise::ptx {

struct MachineLaunch {
  dim3 grid, block;
  uint32_t dynamic_bytes = 0;
  std::vector<std::string> arguments;  // the bytes of each argument
  test::MemoryRanges ranges = {};      // memory that global accesses may touch; empty: any mapped memory
};

// A function that chooses the blocks of a launch that run. It returns their linear indices, x
// fastest.
using BlockChoice = std::function<std::vector<uint64_t>(const MachineLaunch& launch)>;

class Machine {
 public:
  void set_order(uint64_t seed) { random_.seed(seed); }
  void set_tensor_core(fibre::TensorCore model) { tensor_core_ = model; }
  // Limits a launch to `steps` instructions of its warps, because a mutant may loop forever.
  void set_most_steps(uint64_t steps) { max_steps_ = steps; }
  // Limits later launches to the chosen blocks; null: all blocks.
  void set_blocks(BlockChoice choice) { choose_blocks_ = std::move(choice); }
  // Enables or disables the check for races in global memory. While it is disabled, accesses are
  // not recorded.
  void set_watches_order(bool watches) { watches_order_ = watches; }

  // Runs the launch and returns the first fault, if any. A fault's text begins with file, line and
  // instruction.
  fibre::Report run(const Program& program, const MachineLaunch& launch);

  // ---- functions that instructions call ----

  uint32_t* words(uint32_t at) { return words_ + at; }
  uint64_t& wide(uint32_t at, uint32_t lane) { return reinterpret_cast<uint64_t*>(words_ + at)[lane]; }
  fibre::TensorCore tensor_core() const { return tensor_core_; }

  void load_global(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, void* value);
  void store_global(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, const void* value);
  // Checks an atomic access and returns the host address. The caller must perform the access at
  // once.
  void* begin_atomic(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, bool reads);
  void fence(uint32_t lanes);
  void load_shared(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, void* value,
                   bool whole_warp = false);
  void store_shared(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, const void* value);
  void load_parameter(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, void* value);
  unsigned char* local(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes);

  void begin_copy(const Instruction& i, uint32_t lane, uint64_t address, uint64_t source, uint32_t bytes,
                  uint32_t valid_bytes);
  void commit_copies(uint32_t lane);
  void wait_copies(const Instruction& i, uint32_t lane, uint32_t groups_left);
  void meet_warp(uint32_t lanes);

  [[noreturn]] void fail(fibre::Fault fault, const Instruction& i, uint32_t lane, const std::string& what) const;

 private:
  enum class Wait : uint8_t { kNothing, kWarp, kBlock };
  // Lanes of a warp that are at the same instruction.
  struct Group {
    uint32_t at = 0, lanes = 0;
    Wait wait = Wait::kNothing;
  };
  struct Warp {
    std::vector<uint32_t> words;
    std::vector<Group> groups;
    uint32_t lanes = 0;    // bit mask of the lanes that the block has in this warp
    uint32_t barrier = 0;  // time of the last barrier of this warp
  };

  std::vector<uint64_t> blocks_to_run() const;
  void prepare(const Program& program, const MachineLaunch& launch);
  void prepare_registers(Warp& warp, uint32_t first_thread);
  void run_block(const dim3& index);
  void run_warp(uint32_t warp);
  bool take_group(Warp& warp, Group& group);
  bool must_change(const Warp& warp, const Group& group) const;
  bool meet(Warp& warp, Group& group, const Instruction& i);
  void open_barrier();
  void tick();
  fibre::Moment moment(uint32_t lane, bool whole_warp) const;
  void check_shared(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes) const;
  void check_alignment(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes) const;
  void check_global(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes,
                    fibre::GlobalOrder::Access access);
  void check_order(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes,
                   fibre::GlobalOrder::Access access);
  bool is_mapped(uint64_t address, uint32_t bytes);
  void check_finding(const Instruction& i, uint32_t lane, const fibre::Finding& finding) const;
  void exit(const Instruction& i, uint32_t lanes);

  fibre::RandomDraws random_;
  uint64_t max_steps_ = ~uint64_t{0}, steps_left_ = 0;
  BlockChoice choose_blocks_;
  bool watches_order_ = true;
  fibre::TensorCore tensor_core_ = fibre::TensorCore::kAmpere;
  const Program* program_ = nullptr;
  const MachineLaunch* launch_ = nullptr;
  std::string parameters_;
  std::vector<SharedRange> shared_ranges_;
  uint32_t shared_bytes_ = 0;
  uint32_t threads_ = 0;
  dim3 block_index_;
  std::vector<Warp> warps_;
  std::vector<fibre::Copies> copies_;  // by thread
  std::vector<unsigned char> local_;
  uint32_t warp_ = 0;          // index of the running warp
  uint32_t* words_ = nullptr;  // registers of the running warp
  uint32_t clock_ = 0, block_barrier_ = 0;
  fibre::SharedMemory shared_;
  fibre::GlobalOrder order_;
  struct Mapped {
    uint64_t begin = 0, end = 0;
  };
  Mapped mapped_;  // mapping that the last access was in
  std::vector<Mapped> all_mapped_;
};

}  // namespace reprise::ptx
