// Implements cuda_fibre_shared.h: allocates a block's arrays, writes the text of a finding, and
// counts wavefronts.
#include "tests/ports/fibres/cuda_fibre_shared.h"

#include <algorithm>

#include "tests/ports/fibres/code_places.h"

namespace reprise::fibre {

uint32_t SharedMemory::begin_block(uint32_t clock, uint32_t dynamic_bytes) {
  if (++clock > kMaxTicks / 2) {
    std::fill_n(cells_.get(), kMaxSharedBytes, Cell{});
    clock = 1;
  }
  block_began_ = clock;
  dynamic_bytes_ = used_bytes_ = dynamic_bytes;
  static_bytes_ = 0;
  return clock;
}

bool SharedMemory::allocate(uint64_t bytes, uint32_t& offset) {
  constexpr uint32_t kRow = 128;
  offset = (used_bytes_ + kRow - 1) / kRow * kRow;
  if (bytes > kMaxStaticSharedBytes - static_bytes_ || offset + bytes > kMaxSharedBytes) return false;
  static_bytes_ += static_cast<uint32_t>(bytes);
  used_bytes_ = offset + static_cast<uint32_t>(bytes);
  return true;
}

Finding SharedMemory::finding(Fault fault, uint32_t offset, const Cell& before, const Moment& now) const {
  const bool other_read = fault == Fault::kRace && !races_with_write(before, now);
  const Places places = places_ != nullptr ? places_[offset] : Places{};
  return {.fault = fault,
          .offset = offset,
          .other = (other_read ? before.read : before.written) & kThread,
          .other_read = other_read,
          .others = other_read && (before.read & (kWarps | kThreads)) != 0,
          .place = other_read ? places.read : places.written};
}

std::string text_of(const Finding& finding) {
  const std::string other =
      (finding.others ? "others and thread " : "thread ") + std::to_string(finding.other) + code_text(finding.place);
  switch (finding.fault) {
    case Fault::kUnwritten:
      return ", which no thread has written";
    case Fault::kInFlight: return ", which a copy of " + other + " has not reached: it has not waited for it";
    case Fault::kRace:
      return std::string(finding.other_read ? ", read" : ", written") + " by " + other + " with no barrier since";
    default:
      return "";
  }
}

void count_banks(const WarpAddresses& addresses, BankCount& count) {
  const uint32_t unit = std::max(addresses.bytes, 4u), units = 128 / unit;  // `units` lanes fill the 32 banks
  ++count.accesses;
  for (uint32_t first = 0; first < kWarpLanes; first += units) {
    uint32_t names[kWarpLanes], banks[kWarpLanes] = {}, known = 0, maximum = 0;
    for (uint32_t lane = first; lane < std::min(first + units, kWarpLanes); ++lane) {
      if ((addresses.lanes >> lane & 1) == 0) continue;
      const uint32_t name = addresses.offset[lane] / unit;
      if (std::find(names, names + known, name) != names + known) continue;
      names[known++] = name;
      maximum = std::max(maximum, ++banks[name % units]);
    }
    count.wavefronts += maximum;
    count.minimum += maximum != 0;
  }
}

}  // namespace reprise::fibre
