// Fills the window of weight_window.h.
#include "tools/plan/lowering/weight_window.h"

#include <algorithm>
#include <map>

#include "lib/assert.h"

namespace reprise {

namespace {

// A part of the window, and the load that filled it last. The load's weight is still complete in
// the window unless a later load has overwritten a part of the weight.
struct Stretch {
  uint64_t begin, end;
  size_t load;
};

// A possible place of a weight in the window.
struct Place {
  uint64_t offset = 0;
  size_t next_use = 0;    // the nearest next use of the weights that are replaced there
  uint32_t free_row = 0;  // row after the last use of these weights
};

// Returns, for each use, the index of the next use of the same weight.
std::vector<size_t> next_uses(const std::vector<WeightUse>& uses) {
  std::vector<size_t> next(uses.size());
  std::map<uint32_t, size_t> later;
  for (size_t u = uses.size(); u-- > 0;) {
    const auto found = later.find(uses[u].weight);
    next[u] = found == later.end() ? uses.size() : found->second;
    later[uses[u].weight] = u;
  }
  return next;
}

class Window {
 public:
  Window(const std::vector<WeightUse>& uses, const std::vector<uint64_t>& bytes, uint64_t window_bytes)
      : uses_(uses), bytes_(bytes), window_bytes_(window_bytes), next_(next_uses(uses)) {}

  std::optional<std::vector<WeightLoad>> fill() {
    for (size_t first = 0, end = 0; first < uses_.size(); first = end) {
      while (end < uses_.size() && uses_[end].row == uses_[first].row) ++end;
      // a copy for a second attempt; a row with one weight has none
      const Filled before = end - first > 1 ? now_ : Filled{};
      if (place_each(first, end)) continue;
      if (end - first == 1) return std::nullopt;
      now_ = before;
      if (!place_side_by_side(first, end)) return std::nullopt;
    }
    return std::move(now_.loads);
  }

 private:
  // The loads so far, and the contents of the window after them.
  struct Filled {
    std::vector<WeightLoad> loads;
    std::vector<size_t> next_use;          // parallel to the loads
    std::map<uint32_t, size_t> resident;   // weight -> its load
    std::vector<Stretch> stretches;
    uint32_t start = 0;                    // start row of the last load; a later load must not start earlier
  };

  // Places each weight of one row, which has the uses [first, end), where it replaces the weights
  // whose next use is farthest away. Returns true if all found a place.
  bool place_each(size_t first, size_t end) {
    for (size_t u = first; u < end; ++u) {
      if (uses_resident(u)) continue;
      const std::optional<Place> place = best_place(bytes_[uses_[u].weight], uses_[u].row);
      if (!place) return false;
      load(u, place->offset, place->free_row);
    }
    return true;
  }

  // Places the weights of uses [first, end) contiguously from the window's start, after the
  // previous row has finished. All other weights are discarded, so a window as large as the row's
  // weights is enough.
  bool place_side_by_side(size_t first, size_t end) {
    now_.resident.clear();
    now_.stretches.clear();
    uint64_t offset = 0;
    for (size_t u = first; u < end; ++u) {
      if (uses_resident(u)) continue;  // the row names the weight twice
      if (offset + bytes_[uses_[u].weight] > window_bytes_) return false;
      load(u, offset, uses_[u].row);
      offset += bytes_[uses_[u].weight];
    }
    return true;
  }

  bool uses_resident(size_t u) {
    const auto there = now_.resident.find(uses_[u].weight);
    if (there == now_.resident.end()) return false;
    now_.loads[there->second].last_row = uses_[u].row;
    now_.next_use[there->second] = next_[u];
    return true;
  }

  void load(size_t u, uint64_t offset, uint32_t free_row) {
    const WeightUse& use = uses_[u];
    REPRISE_ASSERT(offset + bytes_[use.weight] <= window_bytes_, "a weight is loaded into the window");
    take(offset, bytes_[use.weight]);
    now_.start = std::max(now_.start, free_row);
    now_.resident[use.weight] = now_.loads.size();
    now_.next_use.push_back(next_[u]);
    now_.loads.push_back({use.weight, offset, now_.start, use.row, use.row});
  }

  bool is_resident(size_t load) const {
    const auto found = now_.resident.find(now_.loads[load].weight);
    return found != now_.resident.end() && found->second == load;
  }

  // Returns the place whose replaced weights are used again last, and of equal places the one that
  // is free first. Returns nothing if there is no place. A place begins or ends at an edge of the
  // window or of a stretch.
  std::optional<Place> best_place(uint64_t bytes, uint32_t row) const {
    std::optional<Place> best;
    const auto consider = [&](uint64_t offset) {
      if (offset + bytes > window_bytes_) return;
      Place place = {offset, uses_.size(), 0};
      for (const Stretch& s : now_.stretches) {
        if (s.begin >= offset + bytes || offset >= s.end) continue;
        if (now_.loads[s.load].last_row >= row) return;  // the row needs the weight that is there
        place.free_row = std::max(place.free_row, now_.loads[s.load].last_row + 1);
        if (is_resident(s.load)) place.next_use = std::min(place.next_use, now_.next_use[s.load]);
      }
      const bool better = !best || place.next_use > best->next_use ||
                          (place.next_use == best->next_use && place.free_row < best->free_row);
      if (better) best = place;
    };
    consider(0);
    for (const Stretch& s : now_.stretches) {
      for (const uint64_t edge : {s.begin, s.end}) {
        consider(edge);
        if (edge >= bytes) consider(edge - bytes);
      }
    }
    return best;
  }

  // Occupies a place. A weight that was there is no longer resident. The remaining bytes of its
  // stretch only record when that part of the window is free.
  void take(uint64_t begin, uint64_t bytes) {
    const uint64_t end = begin + bytes;
    std::vector<Stretch> left;
    for (const Stretch& s : now_.stretches) {
      if (s.begin < end && begin < s.end && is_resident(s.load)) now_.resident.erase(now_.loads[s.load].weight);
      if (s.begin < begin) left.push_back({s.begin, std::min(s.end, begin), s.load});
      if (s.end > end) left.push_back({std::max(s.begin, end), s.end, s.load});
    }
    left.push_back({begin, end, now_.loads.size()});
    now_.stretches = std::move(left);
  }

  const std::vector<WeightUse>& uses_;
  const std::vector<uint64_t>& bytes_;
  const uint64_t window_bytes_;
  const std::vector<size_t> next_;
  Filled now_;
};

}  // namespace

std::optional<std::vector<WeightLoad>> fill_window(const std::vector<WeightUse>& uses,
                                                   const std::vector<uint64_t>& bytes, uint64_t window_bytes) {
  for (size_t u = 0; u < uses.size(); ++u) {
    REPRISE_ASSERT(uses[u].weight < bytes.size() && (u == 0 || uses[u - 1].row <= uses[u].row),
                   "uses of weights are in the order of rows, and each weight has bytes");
  }
  return Window(uses, bytes, window_bytes).fill();
}

}  // namespace reprise
