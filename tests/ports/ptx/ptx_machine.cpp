// Implements ptx_machine.h: runs blocks, warps and groups of lanes, and performs the accesses of
// instructions to shared memory and global memory, and their copies.
#include "tests/ports/ptx/ptx_machine.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>

namespace reprise::ptx {

using fibre::Fault;
using fibre::Finding;
using fibre::GlobalOrder;
using fibre::Moment;
using fibre::Report;
using fibre::SharedMemory;

namespace {

struct Stopped {
  Report report;
};

uint32_t first_lane(uint32_t lanes) { return static_cast<uint32_t>(std::countr_zero(lanes)); }

std::string hexadecimal(uint64_t value) {
  std::ostringstream text;
  text << "0x" << std::hex << value;
  return text.str();
}

}  // namespace

// ---- a launch ----

Report Machine::run(const Program& program, const MachineLaunch& launch) {
  program_ = &program;
  launch_ = &launch;
  try {
    prepare(program, launch);
    const dim3& grid = launch.grid;
    std::vector<uint64_t> order = blocks_to_run();
    for (uint64_t left = order.size(); left > 0; --left) {
      std::swap(order[random_.below(left)], order[left - 1]);
      const uint64_t i = order[left - 1];
      run_block(dim3(static_cast<uint32_t>(i % grid.x), static_cast<uint32_t>(i / grid.x % grid.y),
                     static_cast<uint32_t>(i / grid.x / grid.y)));
    }
  } catch (const Stopped& stopped) {
    return stopped.report;
  }
  return {};
}

std::vector<uint64_t> Machine::blocks_to_run() const {
  const dim3& grid = launch_->grid;
  if (choose_blocks_) return choose_blocks_(*launch_);
  std::vector<uint64_t> all(uint64_t{grid.x} * grid.y * grid.z);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void Machine::prepare(const Program& program, const MachineLaunch& launch) {
  const auto refuse = [&](const std::string& what) {
    throw Stopped{{Fault::kLaunch, program.file + " " + program.name + ": " + what}};
  };
  if (launch.arguments.size() != program.parameters.size()) {
    refuse(std::to_string(launch.arguments.size()) + " arguments for " + std::to_string(program.parameters.size()) +
           " parameters");
  }
  parameters_.assign(program.parameter_bytes, '\xff');
  for (size_t i = 0; i < launch.arguments.size(); ++i) {
    const auto [begin, bytes] = program.parameters[i];
    const std::string& argument = launch.arguments[i];
    if (argument.size() != bytes) {
      refuse("argument " + std::to_string(i) + " has " + std::to_string(argument.size()) + " bytes, its parameter " +
             std::to_string(bytes));
    }
    argument.copy(parameters_.data() + begin, bytes);
  }
  shared_ranges_ = program.shared;
  if (launch.dynamic_bytes != 0)
    shared_ranges_.push_back({program.dynamic_begin, program.dynamic_begin + launch.dynamic_bytes});
  shared_bytes_ = shared_ranges_.empty() ? 0 : shared_ranges_.back().end;
  if (shared_bytes_ > fibre::kMaxSharedBytes) refuse(std::to_string(shared_bytes_) + " bytes of shared memory");
  threads_ = launch.block.x * launch.block.y * launch.block.z;
  warps_.resize((threads_ + kLanes - 1) / kLanes);
  for (uint32_t w = 0; w < warps_.size(); ++w) prepare_registers(warps_[w], w * kLanes);
  copies_.assign(threads_, {});
  local_.assign(uint64_t{threads_} * program.local_bytes, 0xff);
  order_.begin_launch();
  steps_left_ = max_steps_;
  mapped_ = {};
  all_mapped_.clear();
}

void Machine::prepare_registers(Warp& warp, uint32_t first_thread) {
  const dim3 &block = launch_->block, &grid = launch_->grid;
  const uint32_t count = std::min(threads_ - first_thread, kLanes);
  warp.lanes = count == kLanes ? kAllLanes : (1u << count) - 1;
  warp.words.assign(program_->words, 0xffffffffu);
  words_ = warp.words.data();
  for (const Constant& constant : program_->constants) {
    if (constant.width == Width::kPredicate) {
      *words(constant.at) = constant.value != 0 ? kAllLanes : 0;
      continue;
    }
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if (constant.width == Width::kDouble) wide(constant.at, lane) = constant.value;
      else words(constant.at)[lane] = static_cast<uint32_t>(constant.value);
    }
  }
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t thread = first_thread + lane;
    const uint32_t values[kSpecials] = {thread % block.x,
                                        thread / block.x % block.y,
                                        thread / block.x / block.y,
                                        block.x,
                                        block.y,
                                        block.z,
                                        0,
                                        0,
                                        0,
                                        grid.x,
                                        grid.y,
                                        grid.z,
                                        lane};
    for (uint32_t special = 0; special < kSpecials; ++special) words(special * kLanes)[lane] = values[special];
  }
}

// ---- blocks ----

void Machine::run_block(const dim3& index) {
  block_index_ = index;
  clock_ = block_barrier_ = shared_.begin_block(clock_, shared_bytes_);
  order_.begin_block(index, threads_);
  for (Warp& warp : warps_) {
    std::fill_n(warp.words.data() + kCtaidX * kLanes, kLanes, index.x);
    std::fill_n(warp.words.data() + kCtaidY * kLanes, kLanes, index.y);
    std::fill_n(warp.words.data() + kCtaidZ * kLanes, kLanes, index.z);
    warp.groups = {{0, warp.lanes, Wait::kNothing}};
    warp.barrier = clock_;
  }
  std::vector<uint32_t> order(warps_.size());
  std::iota(order.begin(), order.end(), 0);
  for (bool any = true; any;) {
    for (size_t left = order.size(); left > 0; --left) {
      std::swap(order[random_.below(left)], order[left - 1]);
      run_warp(order[left - 1]);
    }
    any = std::any_of(warps_.begin(), warps_.end(), [](const Warp& warp) { return !warp.groups.empty(); });
    if (any) open_barrier();
  }
}

// Opens the block's barrier. Called when no warp can continue. Reports a fault if some thread does
// not wait at it.
void Machine::open_barrier() {
  const auto code = [&](const Group& group) -> const Instruction& { return program_->code[group.at]; };
  const Group* first = nullptr;
  bool vote = false;
  for (uint32_t w = 0; w < warps_.size(); ++w) {
    warp_ = w;
    words_ = warps_[w].words.data();
    uint32_t waiting = 0;
    for (const Group& group : warps_[w].groups) {
      if (first == nullptr) first = &group;
      if (code(group).opcode != code(*first).opcode)
        fail(Fault::kDivergence, code(group), first_lane(group.lanes), "others wait at another barrier");
      waiting |= group.lanes;
      if (code(group).step != nullptr) vote = vote || (*words(code(group).at[1]) & group.lanes) != 0;
    }
    if (waiting != warps_[w].lanes && first != nullptr) {
      fail(Fault::kDivergence, code(*first), first_lane(~waiting & warps_[w].lanes),
           "the thread does not come to the barrier where others wait");
    }
  }
  tick();
  order_.meet_block();
  block_barrier_ = clock_;
  for (Warp& warp : warps_) {
    warp.barrier = clock_;
    for (Group& group : warp.groups) {
      const Instruction& i = code(group);
      if (i.step != nullptr) {
        uint32_t& result = warp.words[i.at[0]];
        result = vote ? result | group.lanes : result & ~group.lanes;
      }
      group = {group.at + 1, group.lanes, Wait::kNothing};
    }
  }
}

void Machine::tick() {
  if (++clock_ >= SharedMemory::kMaxTicks) {
    throw Stopped{{Fault::kLaunch, program_->name + ": more barriers in a block than the clock can count"}};
  }
}

// ---- warps ----

// Chooses the instruction that is first in the text among those that can run. Removes the groups at
// this instruction from the warp, except those that wait for the block, and merges them into
// `group`. Returns false if no group can run.
bool Machine::take_group(Warp& warp, Group& group) {
  const Group* best = nullptr;
  for (const Group& each : warp.groups) {
    if (each.wait == Wait::kNothing && (best == nullptr || each.at < best->at)) best = &each;
  }
  if (best == nullptr) return false;
  group = {best->at, 0, Wait::kNothing};
  std::erase_if(warp.groups, [&](const Group& each) {
    if (each.at != group.at || each.wait == Wait::kBlock) return false;
    group.lanes |= each.lanes;
    return true;
  });
  return true;
}

bool Machine::must_change(const Warp& warp, const Group& group) const {
  return std::any_of(warp.groups.begin(), warp.groups.end(), [&](const Group& each) {
    return each.wait == Wait::kNothing ? each.at <= group.at : each.wait == Wait::kWarp && each.at == group.at;
  });
}

// Performs a collective if all lanes of its mask have arrived. Returns true if it was performed;
// `group` is then the lanes that took part.
bool Machine::meet(Warp& warp, Group& group, const Instruction& i) {
  const uint32_t lane = first_lane(group.lanes), mask = i.mask == kNowhere ? kAllLanes : words(i.mask)[lane];
  if ((mask >> lane & 1) == 0) fail(Fault::kShuffle, i, lane, "the mask leaves out its caller");
  if ((mask & ~warp.lanes) != 0) fail(Fault::kShuffle, i, lane, "the mask names lanes that do not exist");
  if ((mask & ~group.lanes) != 0) return false;
  i.step(*this, i, mask);
  if (mask != group.lanes) warp.groups.push_back({group.at, group.lanes & ~mask, Wait::kNothing});
  group.lanes = mask;
  return true;
}

void Machine::run_warp(uint32_t index) {
  Warp& warp = warps_[index];
  warp_ = index;
  words_ = warp.words.data();
  const Instruction* const code = program_->code.data();
  Group group;
  bool runs = take_group(warp, group);
  while (runs) {
    const Instruction& i = code[group.at];
    uint32_t lanes = group.lanes;
    if (steps_left_-- == 0) fail(Fault::kLaunch, i, first_lane(lanes), "the launch runs too long");
    if (i.guard != kNowhere) lanes &= i.negated ? ~words_[i.guard] : words_[i.guard];
    bool stays = true;
    if (i.control == Control::kNone) {
      if (lanes != 0) i.step(*this, i, lanes);
      ++group.at;
    } else if (lanes == 0) {
      ++group.at;
    } else {
      if (const uint32_t others = group.lanes & ~lanes; others != 0)
        warp.groups.push_back({group.at + 1, others, Wait::kNothing});
      group.lanes = lanes;
      switch (i.control) {
        case Control::kBranch: group.at = i.target; break;
        case Control::kExit:
          exit(i, lanes);
          stays = false;
          break;
        case Control::kBlockBarrier:
          warp.groups.push_back({group.at, lanes, Wait::kBlock});
          stays = false;
          break;
        default:
          stays = meet(warp, group, i);
          if (!stays) warp.groups.push_back({group.at, lanes, Wait::kWarp});
          ++group.at;
      }
    }
    if (!stays) {
      runs = take_group(warp, group);
    } else if (!warp.groups.empty() && must_change(warp, group)) {
      warp.groups.push_back(group);
      runs = take_group(warp, group);
    }
  }
  for (const Group& each : warp.groups) {
    if (each.wait == Wait::kWarp)
      fail(Fault::kDivergence, code[each.at], first_lane(each.lanes), "the lane waits for others that do not come");
  }
}

void Machine::exit(const Instruction& i, uint32_t lanes) {
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    const uint32_t lane = first_lane(left);
    fibre::Copies& copies = copies_[warp_ * kLanes + lane];
    if (!copies.waiting.empty()) fail(Fault::kInFlight, i, lane, "the thread ends while its copies are in flight");
    copies.groups.clear();  // groups that contain no copy
    copies.committed = 0;
  }
}

void Machine::meet_warp(uint32_t lanes) {
  if (lanes != kAllLanes) return;  // as under the fibres, a __syncwarp of a part of the warp orders nothing
  tick();
  order_.meet_warp(warp_);
  warps_[warp_].barrier = clock_;
}

void Machine::fail(Fault fault, const Instruction& i, uint32_t lane, const std::string& what) const {
  std::ostringstream text;
  text << program_->file << " line " << i.line << ": " << i.opcode << ": block " << block_index_.x << ','
       << block_index_.y << " thread " << warp_ * kLanes + lane << ": " << what;
  throw Stopped{{fault, text.str()}};
}

// ---- shared memory ----

Moment Machine::moment(uint32_t lane, bool whole_warp) const {
  return {warp_ * kLanes + lane, clock_, block_barrier_, warps_[warp_].barrier, whole_warp};
}

void Machine::check_shared(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes) const {
  if (address % bytes != 0)
    fail(Fault::kMisaligned, i, lane,
         "shared address " + std::to_string(address) + " for " + std::to_string(bytes) + " bytes");
  for (const auto [begin, end] : shared_ranges_) {
    if (address >= begin && address + bytes <= end) return;
  }
  fail(Fault::kOutOfBounds, i, lane, "shared address " + std::to_string(address) + " lies in no array");
}

void Machine::check_finding(const Instruction& i, uint32_t lane, const Finding& finding) const {
  if (finding.fault != Fault::kNone) {
    fail(finding.fault, i, lane, "shared address " + std::to_string(finding.offset) + fibre::text_of(finding));
  }
}

void Machine::load_shared(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, void* value,
                          bool whole_warp) {
  check_shared(i, lane, address, bytes);
  check_finding(i, lane, shared_.read(static_cast<uint32_t>(address), bytes, moment(lane, whole_warp), value));
}

void Machine::store_shared(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, const void* value) {
  check_shared(i, lane, address, bytes);
  check_finding(i, lane, shared_.write(static_cast<uint32_t>(address), bytes, moment(lane, false), value));
}

// ---- asynchronous copies ----

void Machine::begin_copy(const Instruction& i, uint32_t lane, uint64_t address, uint64_t source, uint32_t bytes,
                         uint32_t valid_bytes) {
  if (valid_bytes > bytes)
    fail(Fault::kOutOfBounds, i, lane, std::to_string(valid_bytes) + " bytes of " + std::to_string(bytes));
  check_shared(i, lane, address, bytes);
  check_alignment(i, lane, source, bytes);
  if (valid_bytes != 0) check_global(i, lane, source, valid_bytes, GlobalOrder::Access::kRead);
  const auto at = static_cast<uint32_t>(address);
  check_finding(i, lane, shared_.begin_copy(at, bytes, moment(lane, false)));
  fibre::Copy copy{.offset = at,
                   .bytes = bytes,
                   .valid_bytes = valid_bytes,
                   .source = reinterpret_cast<const void*>(source)};
  copy.landed = random_.below(2) == 0;
  if (copy.landed) shared_.land_copy(copy.offset, copy.bytes, copy.valid_bytes, copy.source);
  copies_[warp_ * kLanes + lane].waiting.push_back(copy);
}

void Machine::commit_copies(uint32_t lane) {
  fibre::Copies& copies = copies_[warp_ * kLanes + lane];
  const auto issued = static_cast<uint32_t>(copies.waiting.size());
  copies.groups.push_back(issued - copies.committed);
  copies.committed = issued;
}

void Machine::wait_copies(const Instruction& i, uint32_t lane, uint32_t groups_left) {
  fibre::Copies& copies = copies_[warp_ * kLanes + lane];
  while (copies.groups.size() > groups_left) {
    const auto count = static_cast<std::ptrdiff_t>(copies.groups.front());
    for (std::ptrdiff_t k = 0; k < count; ++k) {
      const fibre::Copy& copy = copies.waiting[static_cast<size_t>(k)];
      if (!copy.landed) shared_.land_copy(copy.offset, copy.bytes, copy.valid_bytes, copy.source);
      check_order(i, lane, reinterpret_cast<uint64_t>(copy.source), copy.valid_bytes, GlobalOrder::Access::kRead);
      shared_.end_copy(copy.offset, copy.bytes, moment(lane, false));
    }
    copies.waiting.erase(copies.waiting.begin(), copies.waiting.begin() + count);
    copies.groups.erase(copies.groups.begin());
    copies.committed -= static_cast<uint32_t>(count);
  }
}

// ---- global memory, parameters, local memory ----

bool Machine::is_mapped(uint64_t address, uint32_t bytes) {
  if (all_mapped_.empty()) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      Mapped each;
      char dash = 0, readable = 0;
      std::istringstream(line) >> std::hex >> each.begin >> dash >> each.end >> readable;
      if (readable != 'r') continue;
      if (!all_mapped_.empty() && all_mapped_.back().end == each.begin) all_mapped_.back().end = each.end;
      else all_mapped_.push_back(each);
    }
  }
  const auto behind = std::upper_bound(all_mapped_.begin(), all_mapped_.end(), address,
                                       [](uint64_t at, const Mapped& each) { return at < each.begin; });
  if (behind == all_mapped_.begin() || address + bytes > std::prev(behind)->end) return false;
  mapped_ = *std::prev(behind);
  return true;
}

void Machine::check_order(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes,
                          GlobalOrder::Access access) {
  if (!watches_order_ || order_.note(access, address, bytes, warp_ * kLanes + lane)) [[likely]]
    return;
  const std::string place = launch_->ranges.place(order_.race_address());
  fail(Fault::kRace, i, lane,
       (place.empty() ? "the global address " + hexadecimal(order_.race_address()) : place) + order_.race());
}

void Machine::check_alignment(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes) const {
  if (address % bytes == 0) [[likely]]
    return;
  const std::string place = launch_->ranges.place(address);
  fail(Fault::kMisaligned, i, lane,
       (place.empty() ? "" : place + ", ") + "the global address " + hexadecimal(address) + ", for " +
           std::to_string(bytes) + " bytes");
}

void Machine::check_global(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes,
                           GlobalOrder::Access access) {
  const bool writes = access != GlobalOrder::Access::kRead;
  if (!launch_->ranges.allow(address, bytes, writes)) [[unlikely]] {
    fail(Fault::kOutOfBounds, i, lane, launch_->ranges.fault(address, bytes, writes));
  }
  if (launch_->ranges.empty() && !(address >= mapped_.begin && address + bytes <= mapped_.end) &&
      !is_mapped(address, bytes))
    fail(Fault::kOutOfBounds, i, lane, "there is no memory at the global address " + hexadecimal(address));
  check_order(i, lane, address, bytes, access);
}

void Machine::load_global(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, void* value) {
  check_alignment(i, lane, address, bytes);
  check_global(i, lane, address, bytes, GlobalOrder::Access::kRead);
  std::memcpy(value, reinterpret_cast<const void*>(address), bytes);
}

void Machine::store_global(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, const void* value) {
  check_alignment(i, lane, address, bytes);
  check_global(i, lane, address, bytes, GlobalOrder::Access::kWrite);
  std::memcpy(reinterpret_cast<void*>(address), value, bytes);
}

void* Machine::begin_atomic(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, bool reads) {
  check_alignment(i, lane, address, bytes);
  check_global(i, lane, address, bytes, GlobalOrder::Access::kAtomic);
  order_.hand_over(address, warp_ * kLanes + lane, reads);
  return reinterpret_cast<void*>(address);
}

void Machine::fence(uint32_t lanes) {
  for (uint32_t left = lanes; left != 0; left &= left - 1) order_.fence(warp_ * kLanes + first_lane(left));
}

void Machine::load_parameter(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes, void* value) {
  if (address + bytes > parameters_.size())
    fail(Fault::kOutOfBounds, i, lane, "byte " + std::to_string(address) + " of the parameters");
  std::memcpy(value, parameters_.data() + address, bytes);
}

unsigned char* Machine::local(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes) {
  if (address % bytes != 0) fail(Fault::kMisaligned, i, lane, "local address " + std::to_string(address));
  if (address + bytes > program_->local_bytes)
    fail(Fault::kOutOfBounds, i, lane, "local address " + std::to_string(address));
  return local_.data() + uint64_t{warp_ * kLanes + lane} * program_->local_bytes + address;
}

}  // namespace reprise::ptx
