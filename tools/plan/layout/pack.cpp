// Tries greedy orders, compares them with the maximum live sum, and searches only if they differ.
// For most problems the first greedy order is enough. This matters because link_solver calls
// pack_buffers() thousands of times.
#include "tools/plan/layout/pack.h"

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

// Puts each buffer, in the given order, at the lowest offset at which it overlaps no earlier buffer
// that is live at the same time.
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

// Tries several orders until a packing needs at most `enough` bytes: by falling size, by falling
// size times lifetime, by falling lifetime, by rising start of the lifetime, and by falling end of
// the lifetime.
Placing best_greedy(const std::vector<PackBuffer>& buffers, uint64_t enough) {
  const auto size = [&](int i) { return static_cast<double>(buffers[i].size); };
  const auto life = [&](int i) { return static_cast<double>(buffers[i].upper - buffers[i].lower); };
  const auto birth = [&](int i) { return static_cast<double>(buffers[i].lower); };
  Placing best;
  for (int rule = 0; rule < 5; ++rule) {
    std::vector<std::pair<double, double>> keys(buffers.size());  // buffers are ordered by falling key
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

// The nodes and seconds that are left to the searches of one pack_buffers() call.
class Effort {
 public:
  Effort(const PackOptions& options, size_t buffers)
      : searches_(buffers <= kMaxSearched), nodes_(searches_ ? options.nodes : 0), seconds_(options.seconds) {}

  SearchResult search(const std::vector<PackBuffer>& buffers, uint64_t capacity, uint64_t max_nodes) {
    SearchLimits limits = {.nodes = std::min(max_nodes, nodes_), .seconds = 0};
    if (seconds_ > 0) limits.seconds = std::max(seconds_ - passed(), 1e-6);
    SearchResult result = search_packing(buffers, capacity, limits);
    nodes_ -= std::min(nodes_, result.nodes);
    return result;
  }
  // True if the buffers are few enough to be compared pair by pair.
  bool searches() const { return searches_; }
  uint64_t nodes() const { return nodes_; }
  bool spent() const { return nodes_ == 0 || (seconds_ > 0 && passed() >= seconds_); }

 private:
  // maximum buffers of a search, which stores every pair of buffers that overlap in time
  static constexpr size_t kMaxSearched = 3000;

  double passed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool searches_;
  uint64_t nodes_;
  double seconds_;
};

// Lowers `best` until its height equals a proven bound or the effort is spent. Returns true if
// `best` is the optimum. First tries the bound itself as the capacity, because it is nearly always
// the optimum, and raises the bound each time it is refuted. If that takes too long, tries
// capacities below `best`.
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
      bound = std::min(result.min_capacity, best.height);
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
  std::vector<size_t> index;  // entry i: index of buffers[i] in the caller's list
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

// Compares each buffer only with those that begin within its bytes.
void assert_packed(const std::vector<PackBuffer>& buffers, const std::vector<uint64_t>& offsets,
                   [[maybe_unused]] uint64_t alignment, [[maybe_unused]] uint64_t bytes) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
  for (size_t i = 0; i < order.size(); ++i) {
    const uint64_t begin = offsets[order[i]], end = begin + buffers[order[i]].size;
    REPRISE_ASSERT(begin % alignment == 0, "a packed buffer is aligned");
    REPRISE_ASSERT(end <= bytes, "a packed buffer ends within the packing");
    for (size_t j = i + 1; j < order.size() && offsets[order[j]] < end; ++j)
      REPRISE_ASSERT(!overlap(buffers[order[i]], buffers[order[j]]), "no two live buffers of a packing overlap");
  }
}

uint64_t largest_live_bytes(const std::vector<PackBuffer>& buffers) {
  std::vector<std::pair<uint64_t, size_t>> births, deaths;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].lower >= buffers[i].upper) continue;
    births.push_back({buffers[i].lower, i});
    deaths.push_back({buffers[i].upper, i});
  }
  std::sort(births.begin(), births.end());
  std::sort(deaths.begin(), deaths.end());
  uint64_t live = 0, maximum = 0;
  size_t dead = 0;
  for (const auto& [time, buffer] : births) {
    for (; deaths[dead].first <= time; ++dead) live -= buffers[deaths[dead].second].size;
    live += buffers[buffer].size;
    maximum = std::max(maximum, live);
  }
  return maximum;
}

Packing pack_buffers(const std::vector<PackBuffer>& buffers, const PackOptions& options) {
  REPRISE_ASSERT(options.alignment > 0, "buffers are aligned to one byte at least");
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
  if (effort.searches()) assert_packed(rounded.buffers, best.offsets, options.alignment, best.height);
  REPRISE_ASSERT(best.height >= packing.lower_bound, "no packing is lower than what lives at once");
  return packing;
}

}  // namespace reprise
