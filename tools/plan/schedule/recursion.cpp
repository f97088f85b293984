// The bounds and the minimum memory of recursion.h.
#include "tools/plan/schedule/recursion.h"

#include <algorithm>
#include <limits>

#include "lib/assert.h"

namespace reprise {

Bounds::Bounds(const UnitChain& chain, int modes, bool as_published) : chain_(chain), as_published_(as_published) {
  const int length = chain.length();
  for (int mode = 0; mode < modes; ++mode) {
    const std::vector<uint64_t>& bytes = chain.residue_bytes_prefix[mode];
    residues_.emplace_back(pair_count(length));
    for (int i = 0; i < length; ++i) {
      for (int l = i; l < length; ++l) {
        residues_[mode][pair_index(length, i, l)] =
            static_cast<int64_t>((bytes[l + 1] - bytes[i] + chain.unit - 1) / chain.unit);
      }
    }
  }
  pass_.resize(static_cast<size_t>(length) * (length + 1));
  for (int i = 0; i < length; ++i) {
    int64_t need = 0;
    for (int t = i; t < length; ++t) {
      need = std::max(need, (t > i ? chain.boundary[t] : 0) + chain.boundary[t + 1] + chain.links[t].forward_scratch);
      pass_[static_cast<size_t>(i) * (length + 1) + t + 1] = need;
    }
  }
}

int64_t Bounds::single_backward(int mode, int i, int t) const {
  return chain_.boundary[i + 1] + tape(mode, i, t) + chain_.boundary[i] + chain_.links[i].tapes[t].scratch;
}

int64_t Bounds::single(int mode, int i, int t) const {
  const int64_t record = chain_.boundary[i + 1] + tape(mode, i, t) + chain_.links[i].tapes[t].forward_scratch;
  return std::max(record, single_backward(mode, i, t));
}

// Counts the gradient of boundary l + 1 while the tape is recorded, because the gradient of
// boundary i + 1 is not live then. Rotor's bound, single(), counts the latter, and is too large if
// a forward needs much scratch.
int64_t Bounds::keep_tape(int mode, int i, int l, int t, int64_t kept) const {
  if (as_published_) return std::max(single(mode, i, t), advance(mode, i, l, l));
  const int64_t record = chain_.boundary[l + 1] + tape(mode, i, t) + chain_.links[i].tapes[t].forward_scratch;
  return std::max(single_backward(mode, i, t), record + residues(mode, i + 1, l) + kept);
}

MinMemory::MinMemory(const UnitChain& chain, const Bounds& bounds, int modes) : chain_(chain), bounds_(bounds) {
  const size_t pairs = static_cast<size_t>(pair_count(chain.length()));
  least_.assign(static_cast<size_t>(modes) + 1, std::vector<int64_t>(pairs, std::numeric_limits<int64_t>::max()));
  cost_.resize(pairs);
  for (int mode = kPlain; mode < modes; ++mode) fill(mode);
}

// Calls use() for each way to process links i..l; costs are those of the kPlain mode.
template <class Use>
void MinMemory::for_each_branch(int mode, int i, int l, Use use) const {
  const int length = chain_.length();
  for (int t = 0; t < static_cast<int>(chain_.links[i].tapes.size()); ++t) {
    const double cost = bounds_.forward(kPlain, i, i + 1) + chain_.links[i].tapes[t].backward_cost;
    if (l == i) {
      use(MinBranch{.tape = t, .minimum = bounds_.single(mode, i, t), .cost = cost});
    } else {
      use(MinBranch{.tape = t,
                      .minimum =
                          std::max(bounds_.keep_tape(mode, i, l, t), bounds_.tape(mode, i, t) + at(mode, i + 1, l)),
                      .cost = cost + cost_[pair_index(length, i + 1, l)]});
    }
  }
  for (int j = i + 1; j <= l; ++j) {
    const int64_t kept = chain_.boundary[j] + bounds_.residues(mode, i, j - 1);
    use(MinBranch{.boundary = j,
                    .minimum = std::max({bounds_.advance(mode, i, j, l), kept + at(mode, j, l), at(mode, i, j - 1)}),
                    .cost = bounds_.forward(kPlain, i, j) + cost_[pair_index(length, j, l)] +
                            cost_[pair_index(length, i, j - 1)]});
  }
}

void MinMemory::fill(int mode) {
  const int length = chain_.length(), maximum = mode == kPlain ? length : kMaxLaid;
  for (int i = length - 1; i >= 0; --i) {
    for (int l = i; l < std::min(i + maximum, length); ++l) {
      if (const int shift = chain_.shift(i, l); shift > 0) {
        least_[mode + 1][pair_index(length, i, l)] = at(mode, i + shift, l + shift);
        cost_[pair_index(length, i, l)] = cost_[pair_index(length, i + shift, l + shift)];
        continue;
      }
      MinBranch best{.minimum = std::numeric_limits<int64_t>::max()};
      for_each_branch(mode, i, l, [&](const MinBranch& branch) {
        if (branch.minimum < best.minimum || (branch.minimum == best.minimum && branch.cost < best.cost)) best = branch;
      });
      least_[mode + 1][pair_index(length, i, l)] = best.minimum;
      if (mode == kPlain) cost_[pair_index(length, i, l)] = best.cost;
    }
  }
}

std::vector<Action> MinMemory::plan(int64_t memory) const {
  REPRISE_ASSERT(memory >= at(kPlain, 0, chain_.length() - 1), "a plan has the chain's minimum memory");
  std::vector<Action> list;
  trace(0, chain_.length() - 1, memory, list);
  return list;
}

void MinMemory::trace(int i, int l, int64_t memory, std::vector<Action>& list) const {
  MinBranch best{.cost = std::numeric_limits<double>::infinity()};
  for_each_branch(kPlain, i, l, [&](const MinBranch& branch) {
    if (branch.minimum <= memory && branch.cost < best.cost) best = branch;
  });
  if (best.boundary < 0) {
    list.push_back({.kind = ActionKind::kRecord, .first = i, .choice = best.tape});
    if (l > i) trace(i + 1, l, memory - bounds_.tape(kPlain, i, best.tape), list);
    list.push_back({.kind = ActionKind::kBackward, .first = i});
    return;
  }
  list.push_back({.kind = ActionKind::kAdvance, .first = i, .last = best.boundary});
  trace(best.boundary, l, memory - chain_.boundary[best.boundary], list);
  list.push_back({.kind = ActionKind::kDrop, .first = best.boundary});
  trace(i, best.boundary - 1, memory, list);
}

}  // namespace reprise
