// Runs a decoded kernel on the CPU: one block after another, a warp's lanes side by side under a mask.
// Here so that the PTX that nvcc makes, with its inline assembly, predication and order of operands, runs where there is no card.
//
// Of a warp's lanes those run first that are furthest behind in the text; lanes that come to the same place go on together. A warp
// runs until all its lanes stand at a barrier of the block or have ended; the order of warps and blocks is drawn from a seed.
// Shared memory is that of the fibres (cuda_fibre_shared.h), with their faults: a race, a read of unwritten bytes or of bytes in flight, an
// access outside of an array or not aligned, lanes that wait for others that do not come. Global memory is the host's. An access to it is
// aligned, lies in a tensor of the case that runs (tests/ops/memory_ranges.h; where no case runs, in memory that is mapped), writes to no
// input, and is in order with what other threads of the launch do there (cuda_fibre_order.h); of an asynchronous copy that holds for the valid
// bytes of its source, when it begins and when it is waited for. Tensor cores sum as in tensor_core.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/memory_ranges.h"
#include "tests/ports/cuda_fibre_device.h"
#include "tests/ports/cuda_fibre_order.h"
#include "tests/ports/ptx_program.h"

namespace reprise::ptx {

struct MachineLaunch {
  dim3 grid, block;
  uint32_t dynamic_bytes = 0;
  std::vector<std::string> arguments;  // the bytes of each
  test::MemoryRanges ranges = {};      // where its global accesses may lie; none: wherever memory is
};

// Which blocks of a launch's grid run, x fastest.
using BlockChoice = std::function<std::vector<uint64_t>(const MachineLaunch& launch)>;

class Machine {
 public:
  void set_order(uint64_t seed) { random_.seed(seed); }
  void set_tensor_core(fibre::TensorCore model) { tensor_core_ = model; }
  // A launch that takes more instructions of a warp than this is stopped: a mutant may run for ever.
  void set_most_steps(uint64_t steps) { most_steps_ = steps; }
  // Of the launches that run from now on only the chosen blocks run; null: all.
  void set_blocks(BlockChoice choice) { choose_blocks_ = std::move(choice); }
  // False: races in global memory go unseen, and what is known of its bytes takes no room.
  void set_watches_order(bool watches) { watches_order_ = watches; }

  // What went wrong first, if anything. The text begins with the file, its line and the instruction.
  fibre::Report run(const Program& program, const MachineLaunch& launch);

  // ---- what instructions call ----

  uint32_t* words(uint32_t at) { return words_ + at; }
  uint64_t& wide(uint32_t at, uint32_t lane) { return reinterpret_cast<uint64_t*>(words_ + at)[lane]; }
  fibre::TensorCore tensor_core() const { return tensor_core_; }

  void load_global(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, void* value);
  void store_global(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, const void* value);
  // Gives the memory that an atomic changes at once.
  void* begin_atomic(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, bool reads);
  void fence(uint32_t lanes);
  void load_shared(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, void* value, bool whole_warp = false);
  void store_shared(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, const void* value);
  void load_parameter(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, void* value);
  unsigned char* local(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes);

  void begin_copy(const Instruction& i, uint32_t lane, uint64_t address, uint64_t source, uint32_t bytes, uint32_t valid_bytes);
  void commit_copies(uint32_t lane);
  void wait_copies(const Instruction& i, uint32_t lane, uint32_t groups_left);
  void meet_warp(uint32_t lanes);

  [[noreturn]] void fail(fibre::Fault fault, const Instruction& i, uint32_t lane, const std::string& what) const;

 private:
  enum class Wait : uint8_t { kNothing, kWarp, kBlock };
  // Lanes that stand at the same instruction.
  struct Group {
    uint32_t at = 0, lanes = 0;
    Wait wait = Wait::kNothing;
  };
  struct Warp {
    std::vector<uint32_t> words;
    std::vector<Group> groups;
    uint32_t lanes = 0;    // that exist
    uint32_t barrier = 0;  // the clock of its last one
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
  void check_global(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, fibre::GlobalOrder::Access access);
  void check_order(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, fibre::GlobalOrder::Access access);
  bool is_mapped(uint64_t address, uint32_t bytes);
  void check_finding(const Instruction& i, uint32_t lane, const fibre::Finding& finding) const;
  void exit(const Instruction& i, uint32_t lanes);

  fibre::RandomDraws random_;
  uint64_t most_steps_ = ~uint64_t{0}, steps_left_ = 0;
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
  std::vector<fibre::Copies> copies_;  // of each thread
  std::vector<unsigned char> local_;
  uint32_t warp_ = 0;          // that runs
  uint32_t* words_ = nullptr;  // its registers
  uint32_t clock_ = 0, block_barrier_ = 0;
  fibre::SharedMemory shared_;
  fibre::GlobalOrder order_;
  struct Mapped {
    uint64_t begin = 0, end = 0;
  };
  Mapped mapped_;  // where the last access was
  std::vector<Mapped> all_mapped_;
};

}  // namespace reprise::ptx
