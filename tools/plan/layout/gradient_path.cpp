// Finds the gradient's addresses by a dynamic programme over intervals of addresses, one step of
// the schedule after another. A greedy choice with a short look-ahead moves several times as many
// bytes and is not faster.
#include "tools/plan/layout/gradient_path.h"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <utility>

#include "lib/assert.h"

namespace reprise {
namespace {

// The gradient can be at each of the addresses low..high, both included, after `cost` bytes were
// moved.
struct Piece {
  int64_t low = 0;
  int64_t high = 0;
  int64_t cost = 0;
};

// Disjoint pieces, sorted by address.
using Reach = std::vector<Piece>;

// Returns the lower envelope of overlapping pieces, by a sweep over the addresses.
Reach cheapest(std::vector<Piece> pieces) {
  std::vector<int64_t> cuts;
  for (const Piece& piece : pieces) {
    cuts.push_back(piece.low);
    cuts.push_back(piece.high + 1);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.low < b.low; });
  const auto dearer = [](const Piece& a, const Piece& b) { return a.cost > b.cost; };
  std::vector<Piece> open;  // a heap, the cheapest first
  Reach reach;
  size_t next = 0;
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    for (; next < pieces.size() && pieces[next].low == cuts[c]; ++next) {
      open.push_back(pieces[next]);
      std::push_heap(open.begin(), open.end(), dearer);
    }
    while (!open.empty() && open.front().high < cuts[c]) {
      std::pop_heap(open.begin(), open.end(), dearer);
      open.pop_back();
    }
    if (open.empty()) continue;
    const Piece part = {cuts[c], cuts[c + 1] - 1, open.front().cost};
    const bool joins = !reach.empty() && reach.back().high + 1 == part.low && reach.back().cost == part.cost;
    if (joins) reach.back().high = part.high;
    else reach.push_back(part);
  }
  return reach;
}

// Returns the cheapest pieces, at most kMaxPieces. Because of this limit float_gradient() may move
// more bytes than the minimum. Every step stays possible, because a move can always start from the
// cheapest piece.
Reach without_the_dearest(Reach reach) {
  constexpr size_t kMaxPieces = 256;
  if (reach.size() <= kMaxPieces) return reach;
  std::stable_sort(reach.begin(), reach.end(), [](const Piece& a, const Piece& b) { return a.cost < b.cost; });
  reach.resize(kMaxPieces);
  std::sort(reach.begin(), reach.end(), [](const Piece& a, const Piece& b) { return a.low < b.low; });
  return reach;
}

int64_t min_cost(const Reach& reach) {
  int64_t minimum = std::numeric_limits<int64_t>::max();
  for (const Piece& piece : reach) minimum = std::min(minimum, piece.cost);
  return minimum;
}

void add_cut(const Reach& reach, int64_t low, int64_t high, Reach& to) {
  for (const Piece& piece : reach) {
    const int64_t from = std::max(piece.low, low), until = std::min(piece.high, high);
    if (from <= until) to.push_back({from, until, piece.cost});
  }
}

// Sides of the gap around a gradient at p: kLow is [bottom, p), kHigh is [p + gradient, top).
enum Side { kLow = 0, kHigh = 1 };

// Returns the addresses of the gradient that leave at least `low` bytes below it and `high` bytes
// above it in the gap.
Piece leaves(const GapStep& step, int64_t low, int64_t high) {
  return {step.bottom + low, step.top - step.gradient - high, 0};
}

// Returns the bytes that a forward occupies on each side, with its input, output and scratch on the
// given sides.
std::array<int64_t, 2> taken(int64_t input, Side in, int64_t output, Side out, int64_t scratch, Side beside) {
  std::array<int64_t, 2> bytes = {0, 0};
  bytes[in] += input;
  bytes[out] += output;
  bytes[beside] += scratch;
  return bytes;
}

// Returns the addresses of the gradient at which all forwards of the step fit. A forward's input
// and output are at opposite edges of one side, or on two sides. So the search has two states, the
// side of the latest output. The last output must be on the side of the stack that it joins.
Reach places_for_forwards(const GapStep& step) {
  const Piece all = leaves(step, 0, 0);
  std::array<Reach, 2> now = {Reach{}, Reach{all}};
  int64_t input = 0;
  for (const GapForward& forward : step.forwards) {
    std::array<Reach, 2> next;
    for (Side in : {kLow, kHigh})
      for (Side out : {kLow, kHigh})
        for (Side beside : {kLow, kHigh}) {
          const auto bytes = taken(input, in, forward.output, out, forward.scratch, beside);
          const Piece fit = leaves(step, bytes[kLow], bytes[kHigh]);
          add_cut(now[in], fit.low, fit.high, next[out]);
        }
    now = {cheapest(std::move(next[kLow])), cheapest(std::move(next[kHigh]))};
    input = forward.output;
  }
  return now[step.joins_bottom ? kLow : kHigh];
}

// One way to place the gradients of a backward: the old one at address `old`, the new one at any
// address in low..high.
struct Birth {
  int64_t old = 0;
  int64_t low = 0;
  int64_t high = 0;
};

// Returns all ways to place the gradients and the scratch if the old gradient may be anywhere in
// from..until. The comment on each way lists the blocks by rising address. If the new gradient is
// below the old one, the highest address of the old one is best; if above, the lowest.
std::array<Birth, 6> births(const GapStep& step, int64_t from, int64_t until) {
  const int64_t b = step.bottom, t = step.top, g = step.gradient, n = step.born, s = step.scratch;
  const int64_t below = std::min(until, t - g - s), above = std::max(from, b + s);
  std::array<Birth, 6> ways = {{
      {below, b, below - n},                 // new | old | scratch
      {until, b, until - n - s},             // new, scratch | old
      {until, b + s, until - n},             // scratch, new | old
      {above, above + g, t - n},             // scratch | old | new
      {from, from + g + s, t - n},           // old | scratch, new
      {from, from + g, t - n - s},           // old | new, scratch
  }};
  for (Birth& way : ways)
    if (way.old < from || way.old > until) way = {0, 1, 0};
  return ways;
}

// Returns the addresses that the next gradient can have if the old one is in `reach`.
Reach after_birth(const GapStep& step, const Reach& reach) {
  std::vector<Piece> pieces;
  for (const Piece& piece : reach)
    for (const Birth& way : births(step, piece.low, piece.high))
      if (way.low <= way.high) pieces.push_back({way.low, way.high, piece.cost});
  return cheapest(std::move(pieces));
}

// Returns the addresses that the gradient can have when the step begins: its addresses in `reach`,
// and any address in the gap at the cost of a move.
Reach with_move(const GapStep& step, const Reach& reach) {
  std::vector<Piece> pieces;
  const Piece all = leaves(step, 0, 0);
  add_cut(reach, all.low, all.high, pieces);
  pieces.push_back({all.low, all.high, min_cost(reach) + step.gradient});
  return cheapest(std::move(pieces));
}

Reach after_step(const GapStep& step, const Reach& before) {
  const Reach ready = with_move(step, before);
  if (step.births) return without_the_dearest(after_birth(step, ready));
  std::vector<Piece> pieces;
  for (const Piece& place : places_for_forwards(step)) add_cut(ready, place.low, place.high, pieces);
  return without_the_dearest(cheapest(std::move(pieces)));
}

// The sides of a forward's input and scratch, for a gradient at p and an output on a given side.
struct Route {
  Side in = kHigh;
  Side beside = kHigh;
  bool possible = false;
};

std::vector<std::array<Route, 2>> routes(const GapStep& step, int64_t p) {
  std::vector<std::array<Route, 2>> table;
  int64_t input = 0;
  for (const GapForward& forward : step.forwards) {
    std::array<Route, 2> row;
    for (Side in : {kLow, kHigh}) {
      if (table.empty() ? in == kLow : !table.back()[in].possible) continue;
      for (Side out : {kLow, kHigh})
        for (Side beside : {kLow, kHigh}) {
          const auto bytes = taken(input, in, forward.output, out, forward.scratch, beside);
          const Piece fit = leaves(step, bytes[kLow], bytes[kHigh]);
          if (fit.low <= p && p <= fit.high) row[out] = {in, beside, true};
        }
    }
    table.push_back(row);
    input = forward.output;
  }
  return table;
}

// Free space on one side of the gap while a forward runs: blocks grow inward from both edges.
struct Space {
  int64_t low = 0;
  int64_t high = 0;
};

struct Seat {
  Side side = kHigh;
  bool at_top = true;
};

int64_t sit(Space& space, bool at_top, int64_t bytes) {
  if (at_top) return space.high -= bytes;
  space.low += bytes;
  return space.low - bytes;
}

std::vector<GapPlacement> place_forwards(const GapStep& step, int64_t p) {
  const auto table = routes(step, p);
  const size_t count = step.forwards.size();
  std::vector<GapPlacement> placed(count);
  Seat output;  // seat of the output of forward u; initially of the last forward
  if (step.joins_bottom) output = {kLow, false};
  for (size_t u = count; u-- > 0;) {
    const Route& route = table[u][output.side];
    // If input and output are on one side of the gap, they are at opposite edges of that side.
    const Seat input = {route.in, route.in == output.side ? !output.at_top : false};
    std::array<Space, 2> buffers = {Space{step.bottom, p}, Space{p + step.gradient, step.top}};
    placed[u].output = sit(buffers[output.side], output.at_top, step.forwards[u].output);
    if (u > 0) sit(buffers[input.side], input.at_top, step.forwards[u - 1].output);
    placed[u].scratch = sit(buffers[route.beside], false, step.forwards[u].scratch);
    output = input;
  }
  return placed;
}

// Returns an address for the backward's scratch. One of the gaps between and around both gradients
// is large enough.
int64_t place_scratch(const GapStep& step, int64_t old, int64_t born) {
  const bool below = born < old || (born == old && step.born == 0);
  const int64_t first = below ? born : old, first_bytes = below ? step.born : step.gradient;
  const int64_t second = below ? old : born, second_bytes = below ? step.gradient : step.born;
  const std::array<Space, 3> buffers = {
      Space{step.bottom, first}, Space{first + first_bytes, second}, Space{second + second_bytes, step.top}};
  for (const Space& space : buffers)
    if (space.high - space.low >= step.scratch) return space.low;
  throw std::logic_error("gradient path: no room for a backward's scratch");
}

const Piece* find(const Reach& reach, int64_t place) {
  for (const Piece& piece : reach)
    if (piece.low <= place && place <= piece.high) return &piece;
  return nullptr;
}

const Piece& cheapest_piece(const Reach& reach) {
  return *std::min_element(reach.begin(), reach.end(), [](const Piece& a, const Piece& b) { return a.cost < b.cost; });
}

// Returns an address of the old gradient from which the new one can be at `born` with `cost` moved
// bytes.
int64_t before_birth(const GapStep& step, const Reach& ready, int64_t born, int64_t cost) {
  for (const Piece& piece : ready) {
    if (piece.cost != cost) continue;
    for (const Birth& way : births(step, piece.low, piece.high))
      if (way.low <= born && born <= way.high) return way.old;
  }
  throw std::logic_error("gradient path: a birth that was reached cannot be traced back");
}

// Asserts that [begin, begin + bytes) is in the gap, and apart from the gradient. A block of 0
// bytes may be anywhere.
void assert_free([[maybe_unused]] const GapStep& step, [[maybe_unused]] int64_t gradient, int64_t begin,
                 int64_t bytes) {
  [[maybe_unused]] const int64_t end = begin + bytes;
  REPRISE_ASSERT(bytes == 0 || (begin >= step.bottom && end <= step.top), "a block of a step is within its gap");
  REPRISE_ASSERT(bytes == 0 || step.gradient == 0 || end <= gradient || begin >= gradient + step.gradient,
                 "a block of a step is apart from the live gradient");
}

void assert_apart(const GapStep& step, const GapAnswer& answer) {
  for (size_t u = 0; u < answer.forwards.size(); ++u) {
    assert_free(step, answer.gradient, answer.forwards[u].output, step.forwards[u].output);
    assert_free(step, answer.gradient, answer.forwards[u].scratch, step.forwards[u].scratch);
  }
  if (!step.births) return;
  assert_free(step, answer.gradient, answer.born, step.born);
  assert_free(step, answer.gradient, answer.scratch, step.scratch);
  REPRISE_ASSERT(step.born == 0 || step.scratch == 0 || answer.scratch + step.scratch <= answer.born ||
                     answer.scratch >= answer.born + step.born,
                 "a backward's scratch is apart from the gradient that it writes");
}

}  // namespace

std::vector<GapAnswer> float_gradient(const std::vector<GapStep>& steps) {
  for ([[maybe_unused]] const GapStep& step : steps) {
    REPRISE_ASSERT(step.bottom <= step.top && step.gradient >= 0 && step.born >= 0 && step.scratch >= 0,
                   "a gap begins before it ends, and its blocks have no negative size");
  }
  std::vector<GapAnswer> answers(steps.size());
  if (steps.empty()) return answers;
  const Piece start = leaves(steps[0], 0, 0);
  std::vector<Reach> reached = {{start}};
  for (const GapStep& step : steps) {
    reached.push_back(after_step(step, reached.back()));
    if (reached.back().empty()) throw std::logic_error("gradient path: a step does not fit its gap");
  }
  int64_t place = cheapest_piece(reached.back()).low;
  int64_t cost = cheapest_piece(reached.back()).cost;
  for (size_t i = steps.size(); i-- > 0;) {
    GapAnswer& answer = answers[i];
    if (steps[i].births) {
      answer.born = place;
      place = before_birth(steps[i], with_move(steps[i], reached[i]), place, cost);
      answer.scratch = place_scratch(steps[i], place, answer.born);
    } else {
      answer.forwards = place_forwards(steps[i], place);
    }
    answer.gradient = place;
    assert_apart(steps[i], answer);
    const Piece* stays = find(reached[i], place);
    if (stays == nullptr || stays->cost != cost) {
      place = cheapest_piece(reached[i]).low;
      cost = cheapest_piece(reached[i]).cost;
    }
    answer.moved_from = place;
  }
  return answers;
}

}  // namespace reprise
