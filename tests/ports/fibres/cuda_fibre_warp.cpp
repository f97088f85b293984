// Implements the collectives of a warp. The last lane that arrives takes the inputs of all lanes
// and gives each lane its result.
#include "tests/ports/fibres/cuda_fibre_warp.h"

#include "tests/ports/fibres/code_places.h"

namespace reprise::fibre {
namespace {

constexpr uint32_t kAllLanes = 0xffffffffu;
using Lanes = Fibre* const (&)[kWarpLanes];

template <typename T>
T& argument(const Fibre* fibre) {
  return *static_cast<T*>(fibre->argument);
}

// ---- shuffles and votes ----

struct Shuffle {
  uint64_t brings;
  uint64_t gets;
  uint32_t source;
};

void hand_over(Device& device, Lanes lanes) {
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    if (lanes[lane] == nullptr) continue;
    auto& shuffle = argument<Shuffle>(lanes[lane]);
    if (lanes[shuffle.source] == nullptr) {
      return device.report(Fault::kShuffle, "lane " + std::to_string(lane) + " reads lane " +
                                                std::to_string(shuffle.source) + ", which is not in the mask");
    }
    shuffle.gets = argument<Shuffle>(lanes[shuffle.source]).brings;
  }
}

struct Vote {
  bool brings;
  uint32_t gets;
};

void count_votes(Device&, Lanes lanes) {
  uint32_t votes = 0;
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    if (lanes[lane] != nullptr && argument<Vote>(lanes[lane]).brings) votes |= 1u << lane;
  }
  for (const Fibre* lane : lanes) {
    if (lane != nullptr) argument<Vote>(lane).gets = votes;
  }
}

// ---- matrices from shared memory ----

struct MatrixRow {
  uint32_t* registers;
  uint32_t count;
  uint32_t address;  // address that the lane passes, of one row; ignored if no row belongs to the lane
  int line;
  uint32_t place;
};

// Reads the rows for the whole warp. Lane 8 m + r names the address of row r of matrix m.
bool read_rows(Device& device, Lanes lanes, uint32_t count, uint16_t (&rows)[kWarpLanes][8]) {
  WarpAddresses addresses{.lanes = count == 4 ? kAllLanes : (1u << 8 * count) - 1, .bytes = 16};
  Moment now = device.now();
  now.thread = lanes[0]->thread;
  now.whole_warp = true;
  now.place = argument<MatrixRow>(lanes[0]).place;
  for (uint32_t lane = 0; lane < 8 * count; ++lane) {
    const auto& row = argument<MatrixRow>(lanes[lane]);
    addresses.offset[lane] = row.address;
    const Finding finding = device.shared().read(row.address, 16, now, rows[lane]);
    if (finding.fault == Fault::kNone) continue;
    device.report(finding.fault, "the warp of thread " + std::to_string(now.thread) + " loads a matrix at line " +
                                     std::to_string(row.line) + code_text(finding.place == 0 ? 0 : now.place) +
                                     ", with byte " + std::to_string(finding.offset) + " of the block" +
                                     text_of(finding));
    return false;
  }
  count_banks(addresses, device.bank_counts().matrices);
  return true;
}

template <bool kTransposed>
void load_rows(Device& device, Lanes lanes) {
  const uint32_t count = argument<MatrixRow>(lanes[0]).count;
  uint16_t rows[kWarpLanes][8];
  if (!read_rows(device, lanes, count, rows)) return;
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const uint32_t group = lane / 4, pair = lane % 4 * 2;
    for (uint32_t m = 0; m < count; ++m) {
      const uint32_t low = kTransposed ? rows[8 * m + pair][group] : rows[8 * m + group][pair];
      const uint32_t high = kTransposed ? rows[8 * m + pair + 1][group] : rows[8 * m + group][pair + 1];
      argument<MatrixRow>(lanes[lane]).registers[m] = low | high << 16;
    }
  }
}

// ---- products ----

struct Fragments {
  float* c;
  const uint32_t *a, *b;
};

// Calls f(value, row, column) for the four values of c in each lane.
template <typename F>
void for_each_sum(Lanes lanes, const F& f) {
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    for (uint32_t i = 0; i < 4; ++i) {
      f(argument<Fragments>(lanes[lane]).c[i], lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2);
    }
  }
}

void multiply_bf16(Device& device, Lanes lanes) {
  float c[16][8];
  uint16_t a[16][16], b[16][8];
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const auto& brought = argument<Fragments>(lanes[lane]);
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t j = 0; j < 2; ++j) {
      for (uint32_t r = 0; r < 4; ++r)
        a[g + 8 * (r % 2)][2 * t + j + 8 * (r / 2)] = static_cast<uint16_t>(brought.a[r] >> 16 * j);
      for (uint32_t r = 0; r < 2; ++r) b[2 * t + j + 8 * r][g] = static_cast<uint16_t>(brought.b[r] >> 16 * j);
    }
  }
  for_each_sum(lanes, [&](float& sum, uint32_t i, uint32_t j) { c[i][j] = sum; });
  fibre::multiply_add_bf16(device.tensor_core(), c, a, b);
  for_each_sum(lanes, [&](float& sum, uint32_t i, uint32_t j) { sum = c[i][j]; });
}

void multiply_tf32(Device& device, Lanes lanes) {
  float c[16][8];
  uint32_t a[16][8], b[8][8];
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const auto& brought = argument<Fragments>(lanes[lane]);
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t r = 0; r < 4; ++r) a[g + 8 * (r % 2)][t + 4 * (r / 2)] = brought.a[r];
    for (uint32_t r = 0; r < 2; ++r) b[t + 4 * r][g] = brought.b[r];
  }
  for_each_sum(lanes, [&](float& sum, uint32_t i, uint32_t j) { c[i][j] = sum; });
  fibre::multiply_add_tf32(device.tensor_core(), c, a, b);
  for_each_sum(lanes, [&](float& sum, uint32_t i, uint32_t j) { sum = c[i][j]; });
}

}  // namespace

// ---- called by a lane ----

uint64_t shuffle_bits(uint32_t mask, uint64_t bits, uint32_t source, int line) {
  Shuffle shuffle{.brings = bits, .gets = 0, .source = source};
  Device::instance().meet_collective("a shuffle", line, mask, hand_over, &shuffle);
  return shuffle.gets;
}

uint32_t vote(uint32_t mask, bool value, int line) {
  Vote vote{.brings = value, .gets = 0};
  Device::instance().meet_collective("a vote", line, mask, count_votes, &vote);
  return vote.gets;
}

void load_matrices(uint32_t* registers, uint32_t count, bool transposed, const SharedBytes& shared, uint32_t offset,
                   int line) {
  Device& device = Device::instance();
  const bool names_a_row = device.lane() < 8 * count;
  MatrixRow row{registers, count, names_a_row ? shared.address(offset, 16, 16, line) : 0, line,
                place_of(__builtin_return_address(0))};
  const Collective two_kinds[] = {load_rows<false>, load_rows<true>};
  device.meet_collective(count == 4 ? "a load of 4 matrices" : "a load of 2 matrices", line, kAllLanes,
                         two_kinds[transposed], &row);
}

void issue_copy(const SharedBytes& shared, uint32_t offset, const void* source, uint32_t bytes, uint32_t valid_bytes,
                int line) {
  Device& device = Device::instance();
  const uint32_t at = shared.address(offset, bytes, bytes, line);
  const auto fail = [&](Fault fault, const std::string& what) {
    device.fail(fault, "thread " + std::to_string(device.thread()) + " copies at line " + std::to_string(line) + what);
  };
  if (valid_bytes > bytes) fail(Fault::kOutOfBounds, " more bytes than it has room for");
  if (valid_bytes != 0 && reinterpret_cast<uintptr_t>(source) % bytes != 0)
    fail(Fault::kMisaligned, " from a source that is not aligned");
  const auto from = reinterpret_cast<uintptr_t>(source);
  if (valid_bytes != 0 && !device.ranges().allow(from, valid_bytes, false))
    fail(Fault::kOutOfBounds, ": " + device.ranges().fault(from, valid_bytes, false));
  device.note_access(WarpAccesses::kCopies, line, at, bytes);
  Moment now = device.now();
  now.place = place_of(__builtin_return_address(0));
  const Finding finding = device.shared().begin_copy(at, bytes, now);
  if (finding.fault != Fault::kNone)
    fail(finding.fault, code_text(finding.place == 0 ? 0 : now.place) + " to byte " + std::to_string(finding.offset) +
                            " of the block" + text_of(finding));
  device.begin_copy({.offset = at, .bytes = bytes, .valid_bytes = valid_bytes, .source = source, .place = now.place});
}

}  // namespace reprise::fibre

namespace reprise {

void multiply_add_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int line) {
  fibre::Fragments fragments{c, a, b};
  fibre::Device::instance().meet_collective("a product of bf16", line, fibre::kAllLanes, fibre::multiply_bf16,
                                            &fragments);
}

void multiply_add_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int line) {
  fibre::Fragments fragments{c, a, b};
  fibre::Device::instance().meet_collective("a product of tf32", line, fibre::kAllLanes, fibre::multiply_tf32,
                                            &fragments);
}

}  // namespace reprise
