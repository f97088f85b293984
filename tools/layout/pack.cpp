// Tries greedy orders, compares with the largest live sum, and searches only where they differ.
// Most problems end with the first greedy order: an enumeration calls this thousands of times.
#include "tools/layout/pack.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "lib/assert.h"

namespace reprise {
namespace {

bool overlap(const PackBuffer& a, const PackBuffer& b) { return a.lower < b.upper && b.lower < a.upper; }

struct Placing {
  std::vector<uint64_t> offsets;
  uint64_t height = 0;
};

// Each buffer of the order takes the lowest place that is free of those before it.
Placing first_fit(const std::vector<PackBuffer>& buffers, const std::vector<int>& order) {
  Placing placing;
  placing.offsets.assign(buffers.size(), 0);
  std::vector<int> by_offset;
  for (int buffer : order) {
    uint64_t offset = 0;
    for (int other : by_offset) {
      if (!overlap(buffers[buffer], buffers[other])) continue;
      if (placing.offsets[other] >= offset + buffers[buffer].size) break;
      offset = std::max(offset, placing.offsets[other] + buffers[other].size);
    }
    placing.offsets[buffer] = offset;
    placing.height = std::max(placing.height, offset + buffers[buffer].size);
    const auto above = std::find_if(by_offset.begin(), by_offset.end(),
                                    [&](int other) { return placing.offsets[other] > offset; });
    by_offset.insert(above, buffer);
  }
  return placing;
}

// Orders by falling size, area, lifetime and rising birth, one after another until one reaches `enough`.
Placing best_greedy(const std::vector<PackBuffer>& buffers, uint64_t enough) {
  const auto size = [&](int i) { return static_cast<double>(buffers[i].size); };
  const auto life = [&](int i) { return static_cast<double>(buffers[i].upper - buffers[i].lower); };
  const auto birth = [&](int i) { return static_cast<double>(buffers[i].lower); };
  Placing best;
  for (int rule = 0; rule < 5; ++rule) {
    std::vector<std::pair<double, double>> keys(buffers.size());  // the largest first
    for (int i = 0; i < static_cast<int>(buffers.size()); ++i) {
      switch (rule) {
        case 0: keys[i] = {size(i), life(i)}; break;
        case 1: keys[i] = {size(i) * life(i), life(i)}; break;
        case 2: keys[i] = {life(i), size(i)}; break;
        case 3: keys[i] = {-birth(i), life(i)}; break;
        case 4: keys[i] = {birth(i) + life(i), life(i)}; break;
      }
    }
    std::vector<int> order(buffers.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return keys[a] > keys[b]; });
    Placing placing = first_fit(buffers, order);
    if (rule == 0 || placing.height < best.height) best = std::move(placing);
    if (best.height <= enough) break;
  }
  return best;
}

uint64_t height_of(const std::vector<PackBuffer>& buffers, const std::vector<uint64_t>& offsets) {
  uint64_t height = 0;
  for (size_t i = 0; i < buffers.size(); ++i) height = std::max(height, offsets[i] + buffers[i].size);
  return height;
}

// Effort left, shared by the searches of one call.
class Effort {
 public:
  Effort(const PackOptions& options, size_t buffers)
      : nodes_(buffers <= kMostSearched ? options.nodes : 0), seconds_(options.seconds) {}

  SearchResult search(const std::vector<PackBuffer>& buffers, uint64_t capacity, uint64_t most_nodes) {
    SearchLimits limits = {.nodes = std::min(most_nodes, nodes_), .seconds = 0};
    if (seconds_ > 0) limits.seconds = std::max(seconds_ - passed(), 1e-6);
    SearchResult result = search_packing(buffers, capacity, limits);
    nodes_ -= std::min(nodes_, result.nodes);
    return result;
  }
  uint64_t nodes() const { return nodes_; }
  bool spent() const { return nodes_ == 0 || (seconds_ > 0 && passed() >= seconds_); }

 private:
  static constexpr size_t kMostSearched = 3000;  // the search keeps every pair of buffers that meet

  double passed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  uint64_t nodes_;
  double seconds_;
};

// Lowers `best` until it meets a proven bound or the effort is spent. True if it is the optimum.
// Up from the bound while that is quickly refuted, for the optimum is nearly always there; then down from the best.
bool minimise(const std::vector<PackBuffer>& buffers, uint64_t bound, Effort& effort, Placing& best) {
  bool from_below = true;
  while (bound < best.height) {
    if (effort.spent()) return false;
    const uint64_t capacity = from_below ? bound : best.height - 1;
    SearchResult result = effort.search(buffers, capacity, from_below ? effort.nodes() / 2 : effort.nodes());
    if (result.answer == SearchAnswer::kFound) {
      best.height = height_of(buffers, result.offsets);
      best.offsets = std::move(result.offsets);
    } else if (result.answer == SearchAnswer::kImpossible) {
      bound = std::min(result.least_capacity, best.height);
      if (!from_below) bound = best.height;
    } else if (from_below) {
      from_below = false;
    } else {
      return false;
    }
  }
  return true;
}

struct Rounded {
  std::vector<PackBuffer> buffers;
  std::vector<size_t> index;  // of the caller's
};

Rounded round_up(const std::vector<PackBuffer>& buffers, uint64_t alignment) {
  Rounded rounded;
  for (size_t i = 0; i < buffers.size(); ++i) {
    PackBuffer buffer = buffers[i];
    if (buffer.size == 0 || buffer.lower >= buffer.upper) continue;
    buffer.size = (buffer.size + alignment - 1) / alignment * alignment;
    rounded.buffers.push_back(buffer);
    rounded.index.push_back(i);
  }
  return rounded;
}

}  // namespace

uint64_t largest_live_bytes(const std::vector<PackBuffer>& buffers) {
  std::vector<std::pair<uint64_t, size_t>> births, deaths;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].lower >= buffers[i].upper) continue;
    births.push_back({buffers[i].lower, i});
    deaths.push_back({buffers[i].upper, i});
  }
  std::sort(births.begin(), births.end());
  std::sort(deaths.begin(), deaths.end());
  uint64_t live = 0, most = 0;
  size_t dead = 0;
  for (const auto& [time, buffer] : births) {
    for (; deaths[dead].first <= time; ++dead) live -= buffers[deaths[dead].second].size;
    live += buffers[buffer].size;
    most = std::max(most, live);
  }
  return most;
}

Packing pack_buffers(const std::vector<PackBuffer>& buffers, const PackOptions& options) {
  const Rounded rounded = round_up(buffers, options.alignment);
  Packing packing;
  packing.offsets.assign(buffers.size(), 0);
  packing.lower_bound = largest_live_bytes(rounded.buffers);
  const uint64_t wanted = options.capacity == 0 ? packing.lower_bound : options.capacity;
  Placing best = best_greedy(rounded.buffers, wanted);
  Effort effort(options, rounded.buffers.size());
  if (options.capacity == 0) {
    packing.proven = minimise(rounded.buffers, packing.lower_bound, effort, best);
  } else if (best.height <= wanted || packing.lower_bound > wanted) {
    packing.proven = true;
  } else if (!effort.spent()) {
    SearchResult result = effort.search(rounded.buffers, wanted, options.nodes);
    packing.proven = result.answer != SearchAnswer::kGaveUp;
    if (result.answer == SearchAnswer::kFound) best = {result.offsets, height_of(rounded.buffers, result.offsets)};
  }
  packing.packed_bytes = best.height;
  packing.feasible = options.capacity == 0 || best.height <= wanted;
  for (size_t i = 0; i < rounded.index.size(); ++i) packing.offsets[rounded.index[i]] = best.offsets[i];
  REPRISE_ASSERT(best.height >= packing.lower_bound, "no packing is lower than what lives at once");
  return packing;
}

}  // namespace reprise
