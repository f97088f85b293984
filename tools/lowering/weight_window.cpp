// See weight_window.h.
#include "tools/lowering/weight_window.h"

#include <algorithm>
#include <map>

namespace reprise {

namespace {

// A part of the window, and the load that filled it last. Its weight is still there unless another load has taken a part of it.
struct Stretch {
  uint64_t begin, end;
  size_t load;
};

// Where a weight may go.
struct Place {
  uint64_t offset = 0;
  size_t next_use = 0;    // the nearest one of those that it replaces
  uint32_t free_row = 0;  // before which they have been used for the last time
};

// By use: the next one of the same weight.
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
    uint32_t start = 0;
    for (size_t u = 0; u < uses_.size(); ++u) {
      const WeightUse& use = uses_[u];
      if (const auto there = resident_.find(use.weight); there != resident_.end()) {
        loads_[there->second].last_row = use.row;
        next_use_[there->second] = next_[u];
        continue;
      }
      const std::optional<Place> place = best_place(bytes_[use.weight], use.row);
      if (!place) return std::nullopt;
      take(place->offset, bytes_[use.weight]);
      start = std::max(start, place->free_row);  // loads start in their order
      resident_[use.weight] = loads_.size();
      next_use_.push_back(next_[u]);
      loads_.push_back({use.weight, place->offset, start, use.row, use.row});
    }
    return std::move(loads_);
  }

 private:
  bool is_resident(size_t load) const {
    const auto found = resident_.find(loads_[load].weight);
    return found != resident_.end() && found->second == load;
  }

  // A place begins where the window or a stretch does, or ends where one does.
  std::optional<Place> best_place(uint64_t bytes, uint32_t row) const {
    std::optional<Place> best;
    const auto consider = [&](uint64_t offset) {
      if (offset + bytes > window_bytes_) return;
      Place place = {offset, uses_.size(), 0};
      for (const Stretch& s : stretches_) {
        if (s.begin >= offset + bytes || offset >= s.end) continue;
        if (loads_[s.load].last_row >= row) return;  // the row itself wants it
        place.free_row = std::max(place.free_row, loads_[s.load].last_row + 1);
        if (is_resident(s.load)) place.next_use = std::min(place.next_use, next_use_[s.load]);
      }
      const bool better = !best || place.next_use > best->next_use || (place.next_use == best->next_use && place.free_row < best->free_row);
      if (better) best = place;
    };
    consider(0);
    for (const Stretch& s : stretches_) {
      for (const uint64_t edge : {s.begin, s.end}) {
        consider(edge);
        if (edge >= bytes) consider(edge - bytes);
      }
    }
    return best;
  }

  // What lay there has gone; parts of it outside the place say on when they are free.
  void take(uint64_t begin, uint64_t bytes) {
    const uint64_t end = begin + bytes;
    std::vector<Stretch> left;
    for (const Stretch& s : stretches_) {
      if (s.begin < end && begin < s.end && is_resident(s.load)) resident_.erase(loads_[s.load].weight);
      if (s.begin < begin) left.push_back({s.begin, std::min(s.end, begin), s.load});
      if (s.end > end) left.push_back({std::max(s.begin, end), s.end, s.load});
    }
    left.push_back({begin, end, loads_.size()});
    stretches_ = std::move(left);
  }

  const std::vector<WeightUse>& uses_;
  const std::vector<uint64_t>& bytes_;
  const uint64_t window_bytes_;
  const std::vector<size_t> next_;
  std::vector<WeightLoad> loads_;
  std::vector<size_t> next_use_;            // parallel to the loads
  std::map<uint32_t, size_t> resident_;     // weight -> its load
  std::vector<Stretch> stretches_;
};

}  // namespace

std::optional<std::vector<WeightLoad>> fill_window(const std::vector<WeightUse>& uses, const std::vector<uint64_t>& bytes, uint64_t window_bytes) {
  return Window(uses, bytes, window_bytes).fill();
}

}  // namespace reprise
