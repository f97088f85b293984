// Implements cuda_fibre_order.h: the records of each byte, and hand-overs between threads.
#include "tests/ports/fibres/cuda_fibre_order.h"

#include <algorithm>
#include <iterator>

#include "tests/ports/fibres/code_places.h"

namespace reprise::fibre {
namespace {

constexpr size_t kMaxPages = 1u << 12;  // if there are more pages, the next launch first frees all of them

bool same_warp(uint64_t a, uint64_t b) { return a / kWarpLanes == b / kWarpLanes; }

}  // namespace

// ---- time ----

void GlobalOrder::begin_launch() {
  launch_began_ = ++time_;
  blocks_.clear();
  handed_.clear();
  if (pages_.size() <= kMaxPages) return;
  pages_.clear();
  std::fill(std::begin(met_), std::end(met_), Met{});
}

void GlobalOrder::begin_block(const dim3& index, uint32_t threads) {
  block_began_ = block_barrier_ = ++time_;
  warp_barriers_.assign((threads + kWarpLanes - 1) / kWarpLanes, time_);
  blocks_.push_back({time_, index});
  acquired_.clear();
  exchanges_.clear();
}

void GlobalOrder::meet_block() {
  block_barrier_ = ++time_;
  std::fill(warp_barriers_.begin(), warp_barriers_.end(), time_);
}

// ---- order ----

bool GlobalOrder::within_block(uint64_t time, uint32_t thread, uint32_t now) const {
  return thread == now || time < block_barrier_ || (time < warp_barriers_[now / kWarpLanes] && same_warp(thread, now));
}

bool GlobalOrder::in_order(uint64_t time, uint32_t thread, uint32_t now) const {
  if (time < launch_began_ || (time >= block_began_ && within_block(time, thread, now))) return true;
  return std::any_of(acquired_.begin(), acquired_.end(), [&](const Acquired& each) {
    const Release& r = each.release;
    return within_block(each.time, each.thread, now) && time >= r.began &&
           (time < r.block_barrier || (time < r.warp_barrier && same_warp(thread, r.thread)) ||
            (time < r.time && thread == r.thread));
  });
}

void GlobalOrder::fence(uint32_t thread) {
  Exchange& exchange = exchanges_[thread];
  for (const Release& each : exchange.seen) acquired_.push_back({each, time_, thread});
  exchange.seen.clear();
  ++time_;
  exchange.fenced = {{block_began_, block_barrier_, warp_barriers_[thread / kWarpLanes], time_, thread}};
  for (const Acquired& each : acquired_) {
    if (within_block(each.time, each.thread, thread)) exchange.fenced.insert(each.release);
  }
}

void GlobalOrder::hand_over(uint64_t address, uint32_t thread, bool reads) {
  Exchange& exchange = exchanges_[thread];
  std::set<Release>& handed = handed_[address];
  if (reads) exchange.seen.insert(handed.begin(), handed.end());
  handed.insert(exchange.fenced.begin(), exchange.fenced.end());
}

// ---- cells ----

GlobalOrder::Page& GlobalOrder::page(uint64_t number) {
  Met& met = met_[number % std::size(met_)];
  if (met.number == number) return *met.page;
  std::unique_ptr<Page>& page = pages_[number];
  if (page == nullptr) page = std::make_unique<Page>();
  met = {number, page.get()};
  return *page;
}

GlobalOrder::Race GlobalOrder::after_read(Cell& cell, uint32_t thread) const {
  if (!in_order(cell.written >> 11, cell.written & kThread, thread)) return Race::kWritten;
  uint64_t readers = 0;
  if (const uint64_t time = cell.read >> 13; time >= launch_began_) {
    readers |= time < block_began_ ? kBlocks : cell.read & kBlocks;
    if (time >= block_barrier_) {
      readers |= cell.read & kWarps;
      if (!same_warp(cell.read & kThread, thread)) {
        readers |= kWarps;
      } else if (time >= warp_barriers_[thread / kWarpLanes]) {  // else a barrier of the warp orders the reads
        readers |= cell.read & kThreads;
        if ((cell.read & kThread) != thread) readers |= kThreads;
      }
    }
  }
  cell.read = time_ << 13 | readers | thread;
  return Race::kNone;
}

GlobalOrder::Race GlobalOrder::after_write(Cell& cell, uint32_t thread, bool atomic) const {
  const bool both_atomic = atomic && (cell.written & kAtomic) != 0;
  if (!both_atomic && !in_order(cell.written >> 11, cell.written & kThread, thread)) return Race::kWritten;
  if (const uint64_t time = cell.read >> 13; time >= launch_began_) {
    if ((cell.read & kBlocks) != 0) return Race::kReadByBlocks;
    const bool by_warps = (cell.read & kWarps) != 0 && time >= block_barrier_;
    const bool by_lanes = (cell.read & kThreads) != 0 && time >= warp_barriers_[thread / kWarpLanes];
    if (by_warps || by_lanes || !in_order(time, cell.read & kThread, thread)) return Race::kRead;
  }
  cell.written = time_ << 11 | (atomic ? kAtomic : 0) | thread;
  return Race::kNone;
}

// Neighbouring bytes nearly always have equal records. Such bytes are not checked again.
bool GlobalOrder::note(Access access, uint64_t address, uint32_t bytes, uint32_t thread, uint32_t place) {
  Cell before, after;
  for (uint64_t at = address; at < address + bytes; ++at) {
    Cell& cell = page(at / kPageBytes).cells[at % kPageBytes];
    if (at == address || !(cell == before)) {
      before = after = cell;
      const Race race =
          access == Access::kRead ? after_read(after, thread) : after_write(after, thread, access == Access::kAtomic);
      if (race != Race::kNone) {
        const Page& met = page(at / kPageBytes);
        race_address_ = at;
        race_ = text_of(race, before, met.places ? met.places[at % kPageBytes] : Places{}, access);
        return false;
      }
    }
    cell = after;
  }
  if (place != 0) keep_places(access, address, bytes, place);
  return true;
}

void GlobalOrder::keep_places(Access access, uint64_t address, uint32_t bytes, uint32_t place) {
  for (uint64_t at = address; at < address + bytes; ++at) {
    Page& met = page(at / kPageBytes);
    if (met.places == nullptr) met.places = std::make_unique<Places[]>(kPageBytes);
    Places& places = met.places[at % kPageBytes];
    (access == Access::kRead ? places.read : places.written) = place;
  }
}

std::string GlobalOrder::thread_text(uint64_t time, uint64_t thread) const {
  const std::string text = "thread " + std::to_string(thread);
  if (time >= block_began_) return text + ", with no barrier in between";
  const auto behind = std::upper_bound(blocks_.begin(), blocks_.end(), time,
                                       [](uint64_t at, const Block& block) { return at < block.began; });
  const dim3& index = std::prev(behind)->index;
  return text + " of block " + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) +
         ", and nothing hands it over";
}

std::string GlobalOrder::text_of(Race race, const Cell& before, const Places& places, Access access) const {
  const std::string here = access == Access::kRead    ? " is read"
                           : access == Access::kWrite ? " is written"
                                                      : " is changed by an atomic";
  switch (race) {
    case Race::kWritten:
      return here + " and was written" + code_text(places.written) + " by " +
             thread_text(before.written >> 11, before.written & kThread);
    case Race::kReadByBlocks:
      return here + " and was read" + code_text(places.read) + " by several blocks of the launch";
    default: {
      const std::string others = (before.read & (kWarps | kThreads)) != 0 ? "others and " : "";
      return here + " and was read" + code_text(places.read) + " by " + others +
             thread_text(before.read >> 13, before.read & kThread);
    }
  }
}

}  // namespace reprise::fibre
