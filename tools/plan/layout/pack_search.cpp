// Searches packings in which every buffer rests: its offset is 0 or the end of another buffer.
// Every solution can be shifted down into such a packing (canonical solutions, sections and their
// floors: Moffitt, "MiniMalloc", ASPLOS 2023). In each choice either the item is placed at its
// lowest offset, or it is postponed: another item will be placed below it first.
#include "tools/plan/layout/pack_search.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "lib/assert.h"

namespace reprise {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

// The buffers, in one order of preference, with the sections in which they are live. A section is a
// maximal set of buffers that are live at the same time. Only sections matter: two items conflict
// if they have a section in common.
struct SectionProblem {
  struct Item {
    int first = 0;  // first section in which the item is live
    int last = 0;   // last section in which the item is live, included
    uint64_t size = 0;
  };
  std::vector<Item> items;  // in the order of preference
  std::vector<int> buffers;  // entry i: the buffer of item i
  std::vector<std::vector<int>> neighbours;  // entry i: items that are live together with item i
  int section_count = 0;
  std::vector<int> next_twin;                // entry i: next item with the sections and size of item i; -1: none
};

// Returns the first and last section of every buffer. A section ends when a buffer dies, if a
// buffer was born after the end of the previous section.
std::vector<std::pair<int, int>> find_sections(const std::vector<PackBuffer>& buffers, int& count) {
  struct Event {
    uint64_t time;
    bool birth;
    int buffer;
  };
  std::vector<Event> events;
  for (int i = 0; i < static_cast<int>(buffers.size()); ++i) {
    events.push_back({buffers[i].lower, true, i});
    events.push_back({buffers[i].upper, false, i});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.birth != b.birth ? !a.birth : a.buffer < b.buffer;
  });
  std::vector<std::pair<int, int>> sections(buffers.size());
  bool born = false;
  count = 0;
  for (const Event& event : events) {
    if (event.birth) {
      sections[event.buffer].first = count;
    } else {
      count += born;
      sections[event.buffer].second = count - 1;
    }
    born = event.birth;
  }
  return sections;
}

uint64_t scramble(uint64_t x) {  // finaliser of splitmix64 (Steele, Lea, Flood 2014)
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Order in which items are preferred: by the keys in the name, the first key first, the largest
// first. Width: length of the lifetime. Area: width times size. Total: maximum of the live bytes
// during the lifetime.
enum class Preference { kWidthAreaTotal, kTotalAreaWidth, kTotalWidthArea, kArea, kSize };
enum class Order { kPreferredFirst, kFullestFirst };

// One way to search; `shuffle` > 0 changes the preference slightly.
struct Play {
  Preference preference = Preference::kWidthAreaTotal;
  Order order = Order::kFullestFirst;
  uint64_t shuffle = 0;
};

// The searches in the order in which they are tried, again and again. After the first round each
// has a new shuffle. On hard instances the longest lifetime first is nearly always best.
constexpr Play kPlays[] = {
    {Preference::kWidthAreaTotal, Order::kFullestFirst},   {Preference::kWidthAreaTotal, Order::kPreferredFirst},
    {Preference::kTotalAreaWidth, Order::kFullestFirst},   {Preference::kWidthAreaTotal, Order::kFullestFirst},
    {Preference::kWidthAreaTotal, Order::kPreferredFirst}, {Preference::kTotalWidthArea, Order::kFullestFirst},
    {Preference::kWidthAreaTotal, Order::kFullestFirst},   {Preference::kArea, Order::kPreferredFirst},
    {Preference::kWidthAreaTotal, Order::kFullestFirst},   {Preference::kSize, Order::kPreferredFirst}};

std::vector<int> preferred_order(const std::vector<PackBuffer>& buffers,
                                 const std::vector<std::pair<int, int>>& sections, int section_count,
                                 const Play& play) {
  std::vector<double> total(section_count, 0);
  for (size_t i = 0; i < buffers.size(); ++i)
    for (int s = sections[i].first; s <= sections[i].second; ++s) total[s] += static_cast<double>(buffers[i].size);
  struct Keys {
    double values[3];
  };
  std::vector<Keys> keys(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    const double width = static_cast<double>(buffers[i].upper - buffers[i].lower),
                 size = static_cast<double>(buffers[i].size);
    const double maximum = *std::max_element(total.begin() + sections[i].first, total.begin() + sections[i].second + 1);
    switch (play.preference) {
      case Preference::kTotalAreaWidth: keys[i] = {{maximum, width * size, width}}; break;
      case Preference::kWidthAreaTotal: keys[i] = {{width, width * size, maximum}}; break;
      case Preference::kTotalWidthArea: keys[i] = {{maximum, width, width * size}}; break;
      case Preference::kArea: keys[i] = {{width * size, maximum, width}}; break;
      case Preference::kSize: keys[i] = {{size, width, maximum}}; break;
    }
    if (play.shuffle > 0) {
      // The divisor is 2^53.
      const double noise = static_cast<double>(scramble(play.shuffle * buffers.size() + i) >> 11) / 9007199254740992.0;
      keys[i].values[0] *= 1 + 0.3 * noise;
    }
  }
  std::vector<int> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::lexicographical_compare(keys[b].values, keys[b].values + 3, keys[a].values, keys[a].values + 3);
  });
  return order;
}

SectionProblem make_problem(const std::vector<PackBuffer>& buffers, const Play& play) {
  SectionProblem problem;
  int section_count = 0;
  const auto sections = find_sections(buffers, section_count);
  problem.buffers = preferred_order(buffers, sections, section_count, play);
  problem.section_count = section_count;
  const int count = static_cast<int>(buffers.size());
  for (int i = 0; i < count; ++i) {
    const int buffer = problem.buffers[i];
    const SectionProblem::Item item = {sections[buffer].first, sections[buffer].second, buffers[buffer].size};
    problem.items.push_back(item);
  }
  problem.neighbours.resize(count);
  problem.next_twin.assign(count, -1);
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < count; ++j) {
      const SectionProblem::Item &a = problem.items[i], &b = problem.items[j];
      if (i != j && a.first <= b.last && b.first <= a.last) problem.neighbours[i].push_back(j);
      if (j > i && problem.next_twin[i] < 0 && a.first == b.first && a.last == b.last && a.size == b.size)
        problem.next_twin[i] = j;
    }
  return problem;
}

class SectionSearch {
 public:
  SectionSearch(const SectionProblem& problem, uint64_t capacity, uint64_t max_nodes,
                std::chrono::steady_clock::time_point deadline, Order order)
      : problem_(problem), capacity_(capacity), max_nodes_(max_nodes), deadline_(deadline), order_(order) {
    const size_t count = problem.items.size(), sections = static_cast<size_t>(problem.section_count);
    lowest_.assign(count, 0);
    placed_.assign(count, false);
    postponed_.assign(count, false);
    least_.assign(count, 0);
    waiting_.assign(sections, 0);
    crossing_.assign(sections, 0);
    above_.assign(sections, 0);
    need_.assign(sections, 0);
    for (const SectionProblem::Item& item : problem.items) {
      for (int s = item.first; s <= item.last; ++s) waiting_[s] += item.size;
      for (int s = item.first; s < item.last; ++s) ++crossing_[s];
    }
  }

  SearchAnswer run() {
    Part all = {{}, 0, problem_.section_count - 1};
    all.items.resize(problem_.items.size());
    std::iota(all.items.begin(), all.items.end(), 0);
    return solve(all);
  }

  uint64_t offset(int item) const { return lowest_[item]; }  // bytes; valid after run() returned kFound
  uint64_t nodes() const { return nodes_; }
  uint64_t min_capacity() const { return min_capacity_; }

 private:
  bool within(uint64_t bytes) {
    if (bytes <= capacity_) return true;
    min_capacity_ = std::min(min_capacity_, bytes);
    return false;
  }

  // Unplaced items in the consecutive sections first..last.
  struct Part {
    std::vector<int> items;
    int first = 0;
    int last = 0;
  };

  SearchAnswer solve(Part& part);
  SearchAnswer place_or_postpone(Part& part);
  SearchAnswer solve_without(const Part& whole, int placed);
  bool floors_fit(Part& part);
  void sort_by_falling_min(std::vector<int>& items) const;
  int choose(const Part& part) const;
  bool available(int item) const;
  bool place(int item);
  void postpone(int item);
  void undo(size_t length);
  bool out_of_effort() const;
  uint64_t state_of(const std::vector<int>& items) const;

  enum class Did { kPlace, kLift, kPostpone };
  struct TrailStep {
    Did did;
    int item;
    uint64_t lowest = 0;     // before the change
    bool postponed = false;  // before the change
  };

  const SectionProblem& problem_;
  const uint64_t capacity_;
  const uint64_t max_nodes_;
  const std::chrono::steady_clock::time_point deadline_;
  const Order order_;
  // By item: its offset if it is placed, else the highest end of its placed neighbours (0 if none).
  std::vector<uint64_t> lowest_;
  std::vector<char> placed_;
  // By item: true if the item does not rest at lowest_, because another one will be placed below
  // it.
  std::vector<char> postponed_;
  std::vector<uint64_t> waiting_;  // by section: bytes not yet placed
  std::vector<int> crossing_;      // by section s: number of unplaced items that are live in s and s+1
  std::vector<TrailStep> trail_;
  std::unordered_set<uint64_t> failed_;  // states that cannot be completed
  // By item of the current part: lower bound of its offset in any completion.
  std::vector<uint64_t> least_;
  std::vector<uint64_t> above_;    // by section: bytes of the items that floors_fit() has added so far
  // By section of the current part: lower bound of the highest end of its unplaced items.
  std::vector<uint64_t> need_;
  uint64_t nodes_ = 0;
  uint64_t min_capacity_ = kNever;
};

bool SectionSearch::out_of_effort() const {
  if (nodes_ >= max_nodes_) return true;
  return nodes_ % 256 == 0 && std::chrono::steady_clock::now() >= deadline_;
}

uint64_t SectionSearch::state_of(const std::vector<int>& items) const {
  uint64_t state = 0;
  for (int item : items)
    state ^= scramble(scramble(2 * static_cast<uint64_t>(item) + postponed_[item]) + lowest_[item]);
  return state;
}

// Places `item` at lowest_[item], and lifts its unplaced neighbours to the end of `item`. Returns
// false if a lifted neighbour does not fit the capacity.
bool SectionSearch::place(int item) {
  const SectionProblem::Item& it = problem_.items[item];
  const uint64_t top = lowest_[item] + it.size;
  trail_.push_back({Did::kPlace, item});
  placed_[item] = true;
  for (int s = it.first; s <= it.last; ++s) waiting_[s] -= it.size;
  for (int s = it.first; s < it.last; ++s) --crossing_[s];
  for (int other : problem_.neighbours[item]) {
    if (placed_[other] || lowest_[other] >= top) continue;
    if (!within(top + problem_.items[other].size)) return false;
    trail_.push_back({Did::kLift, other, lowest_[other], postponed_[other] != 0});
    lowest_[other] = top;
    postponed_[other] = false;
  }
  return true;
}

// Postpones the item and its twins: they are interchangeable, so none of them may be placed at this
// offset either.
void SectionSearch::postpone(int item) {
  for (; item >= 0; item = problem_.next_twin[item]) {
    if (placed_[item] || postponed_[item]) continue;
    trail_.push_back({Did::kPostpone, item});
    postponed_[item] = true;
  }
}

void SectionSearch::undo(size_t length) {
  while (trail_.size() > length) {
    const TrailStep change = trail_.back();
    trail_.pop_back();
    const SectionProblem::Item& it = problem_.items[change.item];
    switch (change.did) {
      case Did::kLift:
        lowest_[change.item] = change.lowest;
        postponed_[change.item] = change.postponed;
        break;
      case Did::kPostpone: postponed_[change.item] = false; break;
      case Did::kPlace:
        placed_[change.item] = false;
        for (int s = it.first; s <= it.last; ++s) waiting_[s] += it.size;
        for (int s = it.first; s < it.last; ++s) ++crossing_[s];
        break;
    }
  }
}

// Sorts by insertion, because the order is nearly that of the previous placement.
void SectionSearch::sort_by_falling_min(std::vector<int>& items) const {
  for (size_t i = 1; i < items.size(); ++i) {
    const int item = items[i];
    const uint64_t minimum = least_[item];
    size_t hole = i;
    for (; hole > 0 && least_[items[hole - 1]] < minimum; --hole) items[hole] = items[hole - 1];
    items[hole] = item;
  }
}

// Returns false if in some section a set of unplaced items does not fit between the lowest of their
// minimum offsets and the capacity. A postponed item's offset is at least the end of a neighbour,
// which will lift the item.
bool SectionSearch::floors_fit(Part& part) {
  for (int item : part.items) least_[item] = lowest_[item];
  for (int item : part.items) {
    if (!postponed_[item]) continue;
    uint64_t minimum = kNever;
    for (int other : problem_.neighbours[item])
      if (!placed_[other]) minimum = std::min(minimum, least_[other] + problem_.items[other].size);
    if (minimum == kNever || !within(minimum + problem_.items[item].size)) return false;
    least_[item] = std::max(minimum, least_[item]);
  }
  std::fill(need_.begin() + part.first, need_.begin() + part.last + 1, 0);
  std::fill(above_.begin() + part.first, above_.begin() + part.last + 1, 0);
  sort_by_falling_min(part.items);
  for (int item : part.items) {
    const SectionProblem::Item& it = problem_.items[item];
    const uint64_t minimum = least_[item];
    for (int s = it.first; s <= it.last; ++s) {
      above_[s] += it.size;
      need_[s] = std::max(need_[s], minimum + above_[s]);
    }
  }
  for (int s = part.first; s <= part.last; ++s)
    if (!within(need_[s])) return false;
  return true;
}

// True if the item may rest at its lowest place, because no unplaced neighbour fits below it. Such
// a neighbour, if it were placed higher, could move down.
bool SectionSearch::available(int item) const {
  if (postponed_[item]) return false;
  for (int other : problem_.neighbours[item])
    if (!placed_[other] && lowest_[other] + problem_.items[other].size <= lowest_[item]) return false;
  return true;
}

// Returns the available item with the lowest place; -1: none. Among items of equal place, returns
// the one in the fullest section if order_ requires it, and else the preferred one.
int SectionSearch::choose(const Part& part) const {
  int best = -1;
  uint64_t maximum = 0;
  for (int item : part.items) {
    if (postponed_[item] || (best >= 0 && lowest_[item] > lowest_[best])) continue;
    const SectionProblem::Item& it = problem_.items[item];
    const uint64_t need = *std::max_element(need_.begin() + it.first, need_.begin() + it.last + 1);
    if (best >= 0 && lowest_[item] == lowest_[best]) {
      const bool same = order_ == Order::kPreferredFirst || need == maximum;
      if (same ? item > best : need < maximum) continue;
    }
    if (!available(item)) continue;
    best = item;
    maximum = need;
  }
  return best;
}

// Places one available item after another at its lowest place, and postpones it if that fails. In
// every completion in which all items rest, some available item is at its lowest place. So no
// solution is missed.
SearchAnswer SectionSearch::place_or_postpone(Part& part) {
  while (floors_fit(part)) {
    const int item = choose(part);
    if (item < 0) break;
    ++nodes_;
    if (out_of_effort()) return SearchAnswer::kGaveUp;
    const size_t length = trail_.size();
    if (place(item)) {
      const SearchAnswer answer = solve_without(part, item);
      if (answer != SearchAnswer::kImpossible) return answer;
    }
    undo(length);
    postpone(item);
  }
  return SearchAnswer::kImpossible;
}

SearchAnswer SectionSearch::solve(Part& part) {
  const uint64_t state = state_of(part.items);
  if (failed_.count(state) > 0) return SearchAnswer::kImpossible;
  const size_t length = trail_.size();
  const SearchAnswer answer = place_or_postpone(part);
  if (answer != SearchAnswer::kImpossible) return answer;
  undo(length);
  failed_.insert(state);
  return answer;
}

// Solves `whole` for its items except `placed`. Items that share no section, directly or through
// other items, are independent, so each independent part is solved separately.
SearchAnswer SectionSearch::solve_without(const Part& whole, int placed) {
  std::vector<Part> parts;
  std::vector<int> part_of(whole.last - whole.first + 1);
  bool inside = false;
  for (int s = whole.first; s <= whole.last; ++s) {
    if (!inside && waiting_[s] > 0) parts.push_back({{}, s, s});
    inside = waiting_[s] > 0 && crossing_[s] > 0;
    if (waiting_[s] > 0) parts.back().last = s;
    part_of[s - whole.first] = static_cast<int>(parts.size()) - 1;
  }
  if (parts.size() == 1) parts[0].items.reserve(whole.items.size());
  for (int item : whole.items)
    if (item != placed) parts[part_of[problem_.items[item].first - whole.first]].items.push_back(item);
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.items.size() < b.items.size(); });
  for (Part& part : parts) {
    const SearchAnswer answer = solve(part);
    if (answer != SearchAnswer::kFound) return answer;
  }
  return SearchAnswer::kFound;
}

using Clock = std::chrono::steady_clock;

// Returns groups of buffers. Buffers of different groups are never live at the same time.
std::vector<std::vector<int>> independent_groups(const std::vector<PackBuffer>& buffers) {
  std::vector<int> by_birth(buffers.size());
  std::iota(by_birth.begin(), by_birth.end(), 0);
  std::stable_sort(by_birth.begin(), by_birth.end(), [&](int a, int b) { return buffers[a].lower < buffers[b].lower; });
  std::vector<std::vector<int>> groups;
  uint64_t end = 0;
  for (int buffer : by_birth) {
    if (groups.empty() || buffers[buffer].lower >= end) groups.emplace_back();
    groups.back().push_back(buffer);
    end = std::max(end, buffers[buffer].upper);
  }
  return groups;
}

// Returns 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, ... for turns 0, 1, 2, ...: relative lengths of restarts.
// They cost little more than restarts of the best length, which is not known (Luby, Sinclair,
// Zuckerman 1993).
uint64_t luby(uint64_t turn) {
  uint64_t power = 1;
  while (power < turn + 2) power *= 2;
  if (power == turn + 2) return power / 2;
  return luby(turn + 1 - power / 2);
}

// Runs many short searches in different orders, because most searches end soon or never.
SearchResult search_group(const std::vector<PackBuffer>& buffers, uint64_t capacity, uint64_t max_nodes,
                          Clock::time_point deadline) {
  SearchResult result;
  // Any number works; this one solves the hardest known instance early.
  constexpr uint64_t kShuffle = 4000;
  for (uint64_t turn = 0; result.nodes < max_nodes && Clock::now() < deadline; ++turn) {
    const uint64_t round = turn / std::size(kPlays);
    const Play& play = kPlays[turn % std::size(kPlays)];
    const uint64_t patience = (256 + 2 * buffers.size()) * luby(round);
    const SectionProblem problem =
        make_problem(buffers, {play.preference, play.order, round == 0 ? 0 : kShuffle + turn});
    SectionSearch search(problem, capacity, std::min(patience, max_nodes - result.nodes), deadline, play.order);
    result.answer = search.run();
    result.nodes += search.nodes();
    result.min_capacity = search.min_capacity();
    if (result.answer == SearchAnswer::kGaveUp) continue;
    if (result.answer == SearchAnswer::kImpossible) break;
    result.offsets.resize(buffers.size());
    for (size_t i = 0; i < buffers.size(); ++i) result.offsets[problem.buffers[i]] = search.offset(static_cast<int>(i));
    break;
  }
  return result;
}

}  // namespace

SearchResult search_packing(const std::vector<PackBuffer>& buffers, uint64_t capacity, const SearchLimits& limits) {
  for ([[maybe_unused]] const PackBuffer& buffer : buffers)
    REPRISE_ASSERT(buffer.lower < buffer.upper && buffer.size > 0, "a searched buffer has bytes and a lifetime");
  Clock::time_point deadline = Clock::time_point::max();
  if (limits.seconds > 0)
    deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limits.seconds));
  SearchResult result;
  result.answer = SearchAnswer::kFound;
  result.offsets.resize(buffers.size());
  for (const std::vector<int>& group : independent_groups(buffers)) {
    std::vector<PackBuffer> members;
    for (int buffer : group) members.push_back(buffers[buffer]);
    const SearchResult found = search_group(members, capacity, limits.nodes - result.nodes, deadline);
    result.nodes += found.nodes;
    result.answer = found.answer;
    result.min_capacity = found.min_capacity;
    if (found.answer != SearchAnswer::kFound) return result;
    for (size_t i = 0; i < group.size(); ++i) result.offsets[group[i]] = found.offsets[i];
  }
  return result;
}

}  // namespace reprise
