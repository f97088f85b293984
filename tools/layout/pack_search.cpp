// Places buffers one on another; every solution can be pushed down into one of these (canonical solutions, sections and their
// floors: Moffitt, "MiniMalloc", ASPLOS 2023). Each choice is "rests here now" or "is lifted by another first".
#include "tools/layout/pack_search.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <numeric>
#include <unordered_set>
#include <utility>

namespace reprise {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

// Buffers by the sections that they are live in; one order of preference. A section is a largest set that is live together;
// what happens between two of them changes nothing.
struct SectionProblem {
  struct Item {
    int first = 0;  // section
    int last = 0;   // section, included
    uint64_t size = 0;
  };
  std::vector<Item> items;  // by preference
  std::vector<int> buffers;  // item -> buffer
  std::vector<std::vector<int>> neighbours;  // items live together with an item
  int section_count = 0;
  std::vector<int> next_twin;                // the next item with the same sections and size, or -1
};

// Section of every buffer. A section is born when a buffer dies after another was born since the last section.
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

uint64_t scramble(uint64_t x) {  // splitmix64's finaliser (Steele, Lea, Flood 2014)
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Keys by which items are preferred, the largest first.
enum class Preference { kWidthAreaTotal, kTotalAreaWidth, kTotalWidthArea, kArea, kSize };
enum class Order { kPreferredFirst, kFullestFirst };

// One way to search; `shuffle` > 0 disturbs the preference a little.
struct Play {
  Preference preference = Preference::kWidthAreaTotal;
  Order order = Order::kFullestFirst;
  uint64_t shuffle = 0;
};

// Tried in turn, with other shuffles each time. On the hard instances the longest-lived first wins nearly always.
constexpr Play kPlays[] = {{Preference::kWidthAreaTotal, Order::kFullestFirst}, {Preference::kWidthAreaTotal, Order::kPreferredFirst},
                           {Preference::kTotalAreaWidth, Order::kFullestFirst}, {Preference::kWidthAreaTotal, Order::kFullestFirst},
                           {Preference::kWidthAreaTotal, Order::kPreferredFirst}, {Preference::kTotalWidthArea, Order::kFullestFirst},
                           {Preference::kWidthAreaTotal, Order::kFullestFirst}, {Preference::kArea, Order::kPreferredFirst},
                           {Preference::kWidthAreaTotal, Order::kFullestFirst}, {Preference::kSize, Order::kPreferredFirst}};

std::vector<int> preferred_order(const std::vector<PackBuffer>& buffers, const std::vector<std::pair<int, int>>& sections,
                                 int section_count, const Play& play) {
  std::vector<double> total(section_count, 0);
  for (size_t i = 0; i < buffers.size(); ++i)
    for (int s = sections[i].first; s <= sections[i].second; ++s) total[s] += static_cast<double>(buffers[i].size);
  struct Keys {
    double values[3];
  };
  std::vector<Keys> keys(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    const double width = static_cast<double>(buffers[i].upper - buffers[i].lower), size = static_cast<double>(buffers[i].size);
    const double most = *std::max_element(total.begin() + sections[i].first, total.begin() + sections[i].second + 1);
    switch (play.preference) {
      case Preference::kTotalAreaWidth: keys[i] = {{most, width * size, width}}; break;
      case Preference::kWidthAreaTotal: keys[i] = {{width, width * size, most}}; break;
      case Preference::kTotalWidthArea: keys[i] = {{most, width, width * size}}; break;
      case Preference::kArea: keys[i] = {{width * size, most, width}}; break;
      case Preference::kSize: keys[i] = {{size, width, most}}; break;
    }
    if (play.shuffle > 0) {
      const double noise = static_cast<double>(scramble(play.shuffle * buffers.size() + i) >> 11) / 9007199254740992.0;  // 2^53
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
  SectionSearch(const SectionProblem& problem, uint64_t capacity, uint64_t most_nodes, std::chrono::steady_clock::time_point deadline, Order order)
      : problem_(problem), capacity_(capacity), most_nodes_(most_nodes), deadline_(deadline), order_(order) {
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

  uint64_t offset(int item) const { return lowest_[item]; }  // once found
  uint64_t nodes() const { return nodes_; }
  uint64_t least_capacity() const { return least_capacity_; }

 private:
  bool within(uint64_t bytes) {
    if (bytes <= capacity_) return true;
    least_capacity_ = std::min(least_capacity_, bytes);
    return false;
  }

  // Unplaced items of neighbouring sections first..last.
  struct Part {
    std::vector<int> items;
    int first = 0;
    int last = 0;
  };

  SearchAnswer solve(Part& part);
  SearchAnswer place_or_postpone(Part& part);
  SearchAnswer solve_without(const Part& whole, int placed);
  bool floors_fit(Part& part);
  void sort_by_falling_least(std::vector<int>& items) const;
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
    uint64_t lowest = 0;     // before
    bool postponed = false;  // before
  };

  const SectionProblem& problem_;
  const uint64_t capacity_;
  const uint64_t most_nodes_;
  const std::chrono::steady_clock::time_point deadline_;
  const Order order_;
  std::vector<uint64_t> lowest_;   // by item: where it rests on what is placed; where it is, once placed
  std::vector<char> placed_;
  std::vector<char> postponed_;    // it will not rest at lowest_: something is to be placed below it first
  std::vector<uint64_t> waiting_;  // by section: bytes not yet placed
  std::vector<int> crossing_;      // unplaced items live in sections s and s+1
  std::vector<TrailStep> trail_;
  std::unordered_set<uint64_t> failed_;  // states that cannot be completed
  std::vector<uint64_t> least_;    // by item of the part at hand: no completion has it lower
  std::vector<uint64_t> above_;    // by section: bytes of the items so far
  std::vector<uint64_t> need_;     // by section of the part at hand: the height that its unplaced items need at least
  uint64_t nodes_ = 0;
  uint64_t least_capacity_ = kNever;
};

bool SectionSearch::out_of_effort() const {
  if (nodes_ >= most_nodes_) return true;
  return nodes_ % 256 == 0 && std::chrono::steady_clock::now() >= deadline_;
}

uint64_t SectionSearch::state_of(const std::vector<int>& items) const {
  uint64_t state = 0;
  for (int item : items) state ^= scramble(scramble(2 * static_cast<uint64_t>(item) + postponed_[item]) + lowest_[item]);
  return state;
}

// Rests `item` at its lowest place and lifts its neighbours. False if one of them can no longer fit.
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

// Twins could change places, so what does not rest here, rests here under no other name.
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

// By insertion: the order is nearly that of the placement before.
void SectionSearch::sort_by_falling_least(std::vector<int>& items) const {
  for (size_t i = 1; i < items.size(); ++i) {
    const int item = items[i];
    const uint64_t least = least_[item];
    size_t hole = i;
    for (; hole > 0 && least_[items[hole - 1]] < least; --hole) items[hole] = items[hole - 1];
    items[hole] = item;
  }
}

// False if in some section a number of items is too much for the room above the least offset of any of them.
// A postponed item will be lifted by a neighbour.
bool SectionSearch::floors_fit(Part& part) {
  for (int item : part.items) least_[item] = lowest_[item];
  for (int item : part.items) {
    if (!postponed_[item]) continue;
    uint64_t least = kNever;
    for (int other : problem_.neighbours[item])
      if (!placed_[other]) least = std::min(least, least_[other] + problem_.items[other].size);
    if (least == kNever || !within(least + problem_.items[item].size)) return false;
    least_[item] = std::max(least, least_[item]);
  }
  std::fill(need_.begin() + part.first, need_.begin() + part.last + 1, 0);
  std::fill(above_.begin() + part.first, above_.begin() + part.last + 1, 0);
  sort_by_falling_least(part.items);
  for (int item : part.items) {
    const SectionProblem::Item& it = problem_.items[item];
    const uint64_t least = least_[item];
    for (int s = it.first; s <= it.last; ++s) {
      above_[s] += it.size;
      need_[s] = std::max(need_[s], least + above_[s]);
    }
  }
  for (int s = part.first; s <= part.last; ++s)
    if (!within(need_[s])) return false;
  return true;
}

// Nothing that waits fits below it. Were there such a thing, and were it placed higher, it could move down.
bool SectionSearch::available(int item) const {
  if (postponed_[item]) return false;
  for (int other : problem_.neighbours[item])
    if (!placed_[other] && lowest_[other] + problem_.items[other].size <= lowest_[item]) return false;
  return true;
}

// The lowest available item; of those the one in the fullest section, if asked for, then the preferred. -1: none.
int SectionSearch::choose(const Part& part) const {
  int best = -1;
  uint64_t most = 0;
  for (int item : part.items) {
    if (postponed_[item] || (best >= 0 && lowest_[item] > lowest_[best])) continue;
    const SectionProblem::Item& it = problem_.items[item];
    const uint64_t need = *std::max_element(need_.begin() + it.first, need_.begin() + it.last + 1);
    if (best >= 0 && lowest_[item] == lowest_[best]) {
      const bool same = order_ == Order::kPreferredFirst || need == most;
      if (same ? item > best : need < most) continue;
    }
    if (!available(item)) continue;
    best = item;
    most = need;
  }
  return best;
}

// Some available item rests at its lowest place in every completion that is pushed down; whichever is asked, it does or
// it does not.
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

// Items that share no section, directly or through others, do not see each other: each part is solved alone.
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
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.items.size() < b.items.size(); });
  for (Part& part : parts) {
    const SearchAnswer answer = solve(part);
    if (answer != SearchAnswer::kFound) return answer;
  }
  return SearchAnswer::kFound;
}

using Clock = std::chrono::steady_clock;

// Buffers that share no time, directly or through others.
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

// 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, ...: restarts that lose little against the best patience, whatever it is (Luby, Sinclair,
// Zuckerman 1993).
uint64_t luby(uint64_t turn) {
  uint64_t power = 1;
  while (power < turn + 2) power *= 2;
  if (power == turn + 2) return power / 2;
  return luby(turn + 1 - power / 2);
}

// Most searches end soon or never: many short ones in different orders find what a long one does not.
SearchResult search_group(const std::vector<PackBuffer>& buffers, uint64_t capacity, uint64_t most_nodes, Clock::time_point deadline) {
  SearchResult result;
  constexpr uint64_t kShuffle = 4000;  // any number will do; with this one the hardest instance at hand is solved early
  for (uint64_t turn = 0; result.nodes < most_nodes && Clock::now() < deadline; ++turn) {
    const uint64_t round = turn / std::size(kPlays);
    const Play& play = kPlays[turn % std::size(kPlays)];
    const uint64_t patience = (256 + 2 * buffers.size()) * luby(round);
    const SectionProblem problem = make_problem(buffers, {play.preference, play.order, round == 0 ? 0 : kShuffle + turn});
    SectionSearch search(problem, capacity, std::min(patience, most_nodes - result.nodes), deadline, play.order);
    result.answer = search.run();
    result.nodes += search.nodes();
    result.least_capacity = search.least_capacity();
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
  Clock::time_point deadline = Clock::time_point::max();
  if (limits.seconds > 0)
    deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limits.seconds));
  SearchResult result;
  result.answer = SearchAnswer::kFound;
  result.offsets.resize(buffers.size());
  for (const std::vector<int>& group : independent_groups(buffers)) {
    std::vector<PackBuffer> members;
    for (int buffer : group) members.push_back(buffers[buffer]);
    const SearchResult found = search_group(members, capacity, limits.nodes - result.nodes, deadline);
    result.nodes += found.nodes;
    result.answer = found.answer;
    result.least_capacity = found.least_capacity;
    if (found.answer != SearchAnswer::kFound) return result;
    for (size_t i = 0; i < group.size(); ++i) result.offsets[group[i]] = found.offsets[i];
  }
  return result;
}

}  // namespace reprise
