// Implements each collective from the text and figures of the PTX manual, independently of the
// fibres. Only the arithmetic of tensor cores is shared with them.
#include "tests/ports/ptx/ptx_collectives.h"

#include <bit>
#include <cstring>

#include "tests/ports/ptx/ptx_machine.h"
#include "tests/ports/ptx/tensor_core.h"

namespace reprise::ptx {
namespace {

template <typename F>
void for_lanes(uint32_t lanes, F body) {
  for (uint32_t left = lanes; left != 0; left &= left - 1) body(static_cast<uint32_t>(std::countr_zero(left)));
}

// ---- shuffles: operands d|p, a, b, c, mask; c contains the clamp in bits 0-4 and the segment mask
// in bits 8-12 ----

enum class Way : uint8_t { kUp, kDown, kButterfly, kIndex };

template <Way kWay>
void shuffle(Machine& machine, const Instruction& i, uint32_t lanes) {
  uint32_t brought[kLanes];
  std::memcpy(brought, machine.words(i.at[2]), sizeof brought);
  uint32_t* const to = machine.words(i.at[0]);
  uint32_t& in_range = *machine.words(i.at[1]);
  for_lanes(lanes, [&](uint32_t lane) {
    const uint32_t b = machine.words(i.at[3])[lane] & 31, c = machine.words(i.at[4])[lane];
    const uint32_t clamp = c & 31, segment = c >> 8 & 31;
    const uint32_t last = (lane & segment) | (clamp & ~segment), first = lane & segment;
    int64_t source = 0;
    bool valid = false;
    switch (kWay) {
      case Way::kUp: source = int64_t{lane} - b, valid = source >= last; break;
      case Way::kDown: source = int64_t{lane} + b, valid = source <= last; break;
      case Way::kButterfly: source = lane ^ b, valid = source <= last; break;
      case Way::kIndex: source = first | (b & ~segment & 31), valid = source <= last; break;
    }
    const uint32_t from = valid ? static_cast<uint32_t>(source) : lane;
    if ((lanes >> from & 1) == 0)
      machine.fail(fibre::Fault::kShuffle, i, lane,
                   "it reads lane " + std::to_string(from) + ", which is not in the mask");
    to[lane] = brought[from];
    in_range = valid ? in_range | 1u << lane : in_range & ~(1u << lane);
  });
}

// ---- votes ----

void ballot(Machine& machine, const Instruction& i, uint32_t lanes) {
  const uint32_t votes = *machine.words(i.at[1]) & lanes;
  for_lanes(lanes, [&](uint32_t lane) { machine.words(i.at[0])[lane] = votes; });
}
void put_predicate(Machine& machine, const Instruction& i, uint32_t lanes, bool value) {
  uint32_t& to = *machine.words(i.at[0]);
  to = value ? to | lanes : to & ~lanes;
}
void vote_any(Machine& machine, const Instruction& i, uint32_t lanes) {
  put_predicate(machine, i, lanes, (*machine.words(i.at[1]) & lanes) != 0);
}
void vote_all(Machine& machine, const Instruction& i, uint32_t lanes) {
  put_predicate(machine, i, lanes, (*machine.words(i.at[1]) & lanes) == lanes);
}
void active_mask(Machine& machine, const Instruction& i, uint32_t lanes) {
  for_lanes(lanes, [&](uint32_t lane) { machine.words(i.at[0])[lane] = lanes; });
}
void warp_barrier(Machine& machine, const Instruction&, uint32_t lanes) { machine.meet_warp(lanes); }

// ---- ldmatrix: thread 8 m + r addresses row r of matrix m ----

// Loads matrices. Thread t gets elements 2 (t % 4) and 2 (t % 4) + 1 of row t / 4 of each matrix.
template <uint32_t kCount, bool kTransposed>
void load_matrices(Machine& machine, const Instruction& i, uint32_t) {
  uint16_t matrices[kCount][8][8];
  for (uint32_t lane = 0; lane < 8 * kCount; ++lane) {
    const uint64_t address = machine.words(i.at[kCount])[lane] + i.plus[0];
    machine.load_shared(i, lane, address, 16, matrices[lane / 8][lane % 8], true);
  }
  for (uint32_t m = 0; m < kCount; ++m) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t row = lane / 4, column = lane % 4 * 2;
      const uint32_t low = kTransposed ? matrices[m][column][row] : matrices[m][row][column];
      const uint32_t high = kTransposed ? matrices[m][column + 1][row] : matrices[m][row][column + 1];
      machine.words(i.at[m])[lane] = low | high << 16;
    }
  }
}

// ---- mma: operands 0-3 are d, 4-7 a, 8-9 b, 10-13 c; group = lane / 4, member = lane % 4 ----

// Reads the matrix c from registers c0 to c3 of each lane. Register ci is in row `group` for i = 0
// and 1, and in row group + 8 for i = 2 and 3. Its column is 2 member + (i & 1).
void get_sums(Machine& machine, const Instruction& i, float (&c)[16][8]) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (uint32_t k = 0; k < 4; ++k)
      c[lane / 4 + (k < 2 ? 0 : 8)][lane % 4 * 2 + (k & 1)] = std::bit_cast<float>(machine.words(i.at[10 + k])[lane]);
  }
}
void put_sums(Machine& machine, const Instruction& i, const float (&c)[16][8]) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (uint32_t k = 0; k < 4; ++k)
      machine.words(i.at[k])[lane] = std::bit_cast<uint32_t>(c[lane / 4 + (k < 2 ? 0 : 8)][lane % 4 * 2 + (k & 1)]);
  }
}

// Multiplies bf16; a register has two elements. Element ai (a0 to a7) is in row `group` for i = 0,
// 1, 4, 5, and otherwise in row group + 8. Its column is 2 member + (i & 1), plus 8 if i >= 4.
// Element bi (b0 to b3) is in row 2 member + (i & 1), plus 8 if i >= 2. Its column is `group`.
void multiply_bf16(Machine& machine, const Instruction& i, uint32_t) {
  uint16_t a[16][16], b[16][8];
  float c[16][8];
  const auto element = [&](uint32_t first, uint32_t k, uint32_t lane) {
    return static_cast<uint16_t>(machine.words(i.at[first + k / 2])[lane] >> (k % 2 != 0 ? 16 : 0));
  };
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t group = lane / 4, member = lane % 4;
    for (uint32_t k = 0; k < 8; ++k) {
      const bool upper = k < 2 || (k >= 4 && k < 6);
      a[upper ? group : group + 8][member * 2 + (k & 1) + (k >= 4 ? 8 : 0)] = element(4, k, lane);
    }
    for (uint32_t k = 0; k < 4; ++k) b[member * 2 + (k & 1) + (k >= 2 ? 8 : 0)][group] = element(8, k, lane);
  }
  get_sums(machine, i, c);
  fibre::multiply_add_bf16(machine.tensor_core(), c, a, b);
  put_sums(machine, i, c);
}

// Multiplies tf32. Element ai (a0 to a3) is in row `group` for i = 0 and 2, and otherwise in row
// group + 8. Its column is `member` for i = 0 and 1, and otherwise member + 4. b0 is in row
// `member`, b1 in row member + 4; their column is `group`.
void multiply_tf32(Machine& machine, const Instruction& i, uint32_t) {
  uint32_t a[16][8], b[8][8];
  float c[16][8];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t group = lane / 4, member = lane % 4;
    for (uint32_t k = 0; k < 4; ++k)
      a[k == 0 || k == 2 ? group : group + 8][k < 2 ? member : member + 4] = machine.words(i.at[4 + k])[lane];
    for (uint32_t k = 0; k < 2; ++k) b[k == 0 ? member : member + 4][group] = machine.words(i.at[8 + k])[lane];
  }
  get_sums(machine, i, c);
  fibre::multiply_add_tf32(machine.tensor_core(), c, a, b);
  put_sums(machine, i, c);
}

// ---- asynchronous copies: operands [shared], [global], bytes, valid bytes ----

void copy_async(Machine& machine, const Instruction& i, uint32_t lanes) {
  for_lanes(lanes, [&](uint32_t lane) {
    machine.begin_copy(i, lane, machine.words(i.at[0])[lane] + i.plus[0], machine.wide(i.at[1], lane) + i.plus[1],
                       i.at[2], machine.words(i.at[3])[lane]);
  });
}
void commit_copies(Machine& machine, const Instruction&, uint32_t lanes) {
  for_lanes(lanes, [&](uint32_t lane) { machine.commit_copies(lane); });
}
void wait_copies(Machine& machine, const Instruction& i, uint32_t lanes) {
  for_lanes(lanes, [&](uint32_t lane) { machine.wait_copies(i, lane, i.at[0]); });
}

std::vector<Collective> make_table() {
  using enum Collective::Place;
  const std::vector<Collective::Place> kShuffle = {kResult, kResultPredicate, kWord, kWord, kWord, kMask};
  const std::vector<Collective::Place> kCopy = {kSharedAddress, kGlobalAddress, Collective::kNumber, kWord};
  const std::vector<Collective::Place> kMma = {kResult, kResult, kResult, kResult, kWord, kWord, kWord,
                                               kWord,   kWord,   kWord,   kWord,   kWord, kWord, kWord};
  const std::vector<Collective::Place> kFour = {kResult, kResult, kResult, kResult, kSharedAddress},
                                       kTwo = {kResult, kResult, kSharedAddress};
  return {
      {"shfl.sync.up.b32", shuffle<Way::kUp>, true, kShuffle},
      {"shfl.sync.down.b32", shuffle<Way::kDown>, true, kShuffle},
      {"shfl.sync.bfly.b32", shuffle<Way::kButterfly>, true, kShuffle},
      {"shfl.sync.idx.b32", shuffle<Way::kIndex>, true, kShuffle},
      {"vote.sync.ballot.b32", ballot, true, {kResult, kPredicate, kMask}},
      {"vote.sync.any.pred", vote_any, true, {kResultPredicate, kPredicate, kMask}},
      {"vote.sync.all.pred", vote_all, true, {kResultPredicate, kPredicate, kMask}},
      {"activemask.b32", active_mask, false, {kResult}},
      {"bar.warp.sync", warp_barrier, true, {kMask}},
      {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", load_matrices<4, false>, true, kFour},
      {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", load_matrices<4, true>, true, kFour},
      {"ldmatrix.sync.aligned.m8n8.x2.shared.b16", load_matrices<2, false>, true, kTwo},
      {"ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", load_matrices<2, true>, true, kTwo},
      {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", multiply_bf16, true, kMma},
      {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", multiply_tf32, true, kMma},
      {"cp.async.cg.shared.global", copy_async, false, kCopy},
      {"cp.async.ca.shared.global", copy_async, false, kCopy},
      {"cp.async.commit_group", commit_copies, false, {}},
      {"cp.async.wait_group", wait_copies, false, {Collective::kNumber}},
  };
}

}  // namespace

const Collective* find_collective(std::string_view opcode) {
  static const std::vector<Collective> kTable = make_table();
  for (const Collective& each : kTable) {
    if (each.opcode == opcode) return &each;
  }
  return nullptr;
}

}  // namespace reprise::ptx
