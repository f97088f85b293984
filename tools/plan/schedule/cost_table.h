// The tables C(i,l,m), C_k(i,l,m) and D(i,j,m) of recursion.h over all m up to a budget, filled in
// parallel, and the traceback of the plan. They need nearly all the time and memory of `optimal`.
// Choices are recomputed in the traceback, not stored.
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "tools/plan/schedule/chain.h"
#include "tools/plan/schedule/min_plus.h"
#include "tools/plan/schedule/recursion.h"
#include "tools/plan/schedule/units.h"

namespace reprise {

// The tables of one chain and one budget, and the traceback of the plan.
template <class Cost>
class CostTable {
 public:
  static constexpr Cost kInfinite = std::numeric_limits<Cost>::infinity();

  // Creates empty tables for up to `memory` units in addition to boundary 0. Keeps the references.
  // `minimum` must have been made of the same chain, bounds and number of modes. Table D exists
  // only if `kept_tapes` is true.
  CostTable(const UnitChain& chain, const Bounds& bounds, const MinMemory& minimum, int modes, bool kept_tapes,
            int64_t memory)
      : chain_(chain),
        bounds_(bounds),
        least_(minimum),
        modes_(modes),
        tables_(modes + (kept_tapes ? 1 : 0)),
        memory_(memory),
        length_(chain.length()),
        tiles_((length_ + kTile - 1) / kTile),
        passes_(all_passes(modes, kept_tapes)) {
    rows_.resize(static_cast<size_t>(tables_) + 1);
    for (auto& rows : rows_) rows.resize(static_cast<size_t>(pair_count(length_)));
  }

  // Fills the tables with `threads` threads; their values do not depend on that number. First fills
  // the ranges inside repeated parts, because these depend on no other ranges, and each represents
  // all equal ranges. They are filled one after another, and each thread computes a slice of m.
  // Then fills tiles of 16 x 16 pairs, as a blocked matrix product does; all tiles of one diagonal
  // are filled in parallel. Calls `report` from time to time with the finished share, from 0 to 1.
  void solve(int threads, const std::function<void(double)>& report = [](double) {}) {
    const std::vector<Range> repeated = repeated_ranges();
    const double all = all_boundaries(repeated);
    std::atomic<int64_t> done{0};  // number of boundaries that were tried so far, over all ranges
    for (const Range& range : repeated) open_pair(range.i, range.l);
    std::barrier range_done(threads);
    int diagonal = 0;
    std::atomic<int> next_tile{0};
    std::barrier diagonal_done(threads, [&]() noexcept {
      ++diagonal;
      next_tile = 0;
    });
    const auto work = [&](int thread) {
      for (const auto& [i, l] : repeated) {
        close_pair(i, l, {i + 1, l}, {l + 1, l}, slice(i, l, thread, threads));
        range_done.arrive_and_wait();
        if (thread == 0) report(static_cast<double>(done += l - i + 1) / all);
      }
      while (diagonal < tiles_) {
        for (int tile; (tile = next_tile.fetch_add(1)) < tiles_ - diagonal;) {
          done += fill_tile(tile, tile + diagonal);
          if (thread == 0) report(static_cast<double>(done) / all);
        }
        diagonal_done.arrive_and_wait();
      }
    };
    std::vector<std::jthread> helpers;
    for (int n = 1; n < threads; ++n) helpers.emplace_back(work, n);
    work(0);
  }

  double makespan() const { return cost(0, length_ - 1, memory_); }

  std::vector<Action> actions() const {
    std::vector<Action> list;
    append(0, length_ - 1, memory_, list);
    return list;
  }

  // Returns C(i,l,m); m must be at most the table's memory.
  double cost(int i, int l, int64_t m) const {
    const CostRow values = row(kPlain, i, l);
    return values.values == nullptr || m < values.minimum ? std::numeric_limits<double>::infinity()
                                                        : static_cast<double>(*values.from(m));
  }
  // Appends the actions of cost C(i,l,m).
  void append(int i, int l, int64_t m, std::vector<Action>& list) const { trace(kPlain, i, l, m, list); }

 private:
  static constexpr int kTile = 16;

  // One way to process links i..l.
  struct CostBranch {
    enum Kind : uint8_t { kNone, kAdvance, kTape, kHold } kind = kNone;
    // kAdvance: the boundary j that stays. kTape: the tape's index. kHold: the link after the one
    // whose tape is kept.
    int choice = -1;
    int lay_mode = -1;  // kAdvance: the residue mode of the advanced links; -1: none
  };
  struct Boundaries {
    int first, last;  // both included; empty if last < first
  };

  // The row of one range in a table: its values over m. moved(kept) returns the row shifted up:
  // from(m) then points at the value for m - kept.
  struct CostRow {
    const Cost* values = nullptr;  // null: the row does not exist, or is infeasible at every m
    int64_t minimum = 0;             // the m of values[0]
    const Cost* from(int64_t m) const { return values + (m - minimum); }
    CostRow moved(int64_t kept) const { return {values, minimum + kept}; }
  };
  CostRow row(int table, int i, int l) const { return {rows_[table + 1][row_index(i, l)].get(), minimum(table, i, l)}; }
  int kept() const { return modes_; }  // index of D, after the tables of C and all C_k
  int64_t minimum(int table, int i, int l) const {
    if (table != kept()) return least_.at(table, i, l);
    return l - i < kMaxSkips ? bounds_.kept_backward(l) : std::numeric_limits<int64_t>::max();
  }

  int64_t row_index(int i, int l) const {
    const int shift = chain_.shift(i, l);
    return pair_index(length_, i + shift, l + shift);
  }

  // A range of links i..l. repeated_ranges() returns the ranges inside the repeated parts that
  // represent all equal ranges, each after all ranges that it reads.
  struct Range {
    int i, l;
  };
  std::vector<Range> repeated_ranges() const {
    std::vector<Range> ranges;
    for (int i = length_ - 1; i >= 0; --i) {
      const int end = chain_.repeat_end[i];
      for (int l = std::max(i, end - chain_.repeat_period[i] + 1); l <= end; ++l) ranges.push_back({i, l});
    }
    return ranges;
  }

  // Returns the number of boundaries to try in the ranges of `repeated` and in all ranges outside
  // the repeated parts.
  double all_boundaries(const std::vector<Range>& repeated) const {
    double all = 0;
    for (const auto& [i, l] : repeated) all += l - i + 1;
    for (int i = 0; i < length_; ++i) {
      for (int l = chain_.repeat_end[i] + 1; l < length_; ++l) all += l - i + 1;
    }
    return all;
  }

  // An interval of the values m of a row.
  struct Slice {
    int64_t first, last;  // both included
  };
  Slice whole() const { return {0, memory_}; }
  Slice slice(int i, int l, int part, int parts) const {
    const int64_t minimum = least_.at(kPlain, i, l), width = std::max<int64_t>(memory_ - minimum + 1, 0);
    const auto cut = [&](int p) { return p == 0 ? 0 : p == parts ? memory_ + 1 : minimum + width * p / parts; };
    return {cut(part), cut(part + 1) - 1};
  }

  // Calls use(branch, m, cost, x, y) for each tape that link i may keep in range i..l. With m units
  // or more the range may cost cost + x + y, where x and y are read from two rows. A row without
  // values counts as zero.
  template <class Use>
  void for_each_tape(int table, int i, int l, Use use) const {
    const bool holds = table == kept();
    if (holds && l == i) {
      const UnitTape& tape = chain_.links[i].tapes[kKeptTape];
      return use(CostBranch{.kind = CostBranch::kTape}, bounds_.kept_backward(i), tape.backward_cost, CostRow{},
                 CostRow{});
    }
    const int mode = holds ? kPlain : table;
    const int64_t beside = holds ? bounds_.tape(kPlain, l, kKeptTape) : 0;
    for (int t = 0; t < static_cast<int>(chain_.links[i].tapes.size()); ++t) {
      const UnitTape& tape = chain_.links[i].tapes[t];
      const double cost = tape.record_cost[mode + 1] + tape.backward_cost;
      const CostBranch branch{.kind = CostBranch::kTape, .choice = t};
      if (l == i) {
        use(branch, bounds_.single(mode, i, t), cost, CostRow{}, CostRow{});
      } else if (const CostRow after = row(table, i + 1, l).moved(bounds_.tape(mode, i, t)); after.values != nullptr) {
        use(branch, std::max(bounds_.keep_tape(mode, i, l, t, beside), after.minimum), cost, after, CostRow{});
      }
    }
  }
  // One kind of advance in the table of `mode`. `lay_mode`: the mode of the residues that the
  // advanced links have. It is equal to `mode` or, in table C, a mode whose residues the advance
  // writes. `holds`: true for the advances of C that keep a tape (for_each_hold()).
  struct AdvanceModes {
    int mode, lay_mode;
    bool holds = false;
  };
  static std::vector<AdvanceModes> all_passes(int modes, bool kept_tapes) {
    std::vector<AdvanceModes> passes = {{kPlain, kPlain}};
    if (kept_tapes) passes.insert(passes.end(), {{modes, kPlain}, {kPlain, kPlain, true}});
    for (int mode = 0; mode < modes; ++mode) passes.insert(passes.end(), {{mode, mode}, {kPlain, mode}});
    return passes;
  }
  // Tries the advances of C that record link j - 1 and keep its tape, while boundary j - 1 is
  // dropped. They are tried only from the range's minimum memory on, so that MinMemory need not
  // consider them.
  template <class Use>
  void for_each_hold(int i, int l, Boundaries range, Use use) const {
    for (int j = std::max(range.first, i + 2); j <= std::min(range.last, i + kMaxSkips); ++j) {
      const CostRow after = row(kPlain, j, l).moved(bounds_.tape(kPlain, j - 1, kKeptTape)),
                    before = row(kept(), i, j - 1);
      if (after.values == nullptr || before.values == nullptr) continue;
      const int64_t minimum =
          std::max({bounds_.hold(i, j - 1, l), after.minimum, before.minimum, least_.at(kPlain, i, l)});
      use(CostBranch{.kind = CostBranch::kHold, .choice = j}, minimum, bounds_.forward(kPlain, i, j), after, before);
    }
  }
  template <class Use>
  void for_each_advance(AdvanceModes pass, int i, int l, Boundaries range, Use use) const {
    if (pass.holds) return for_each_hold(i, l, range, use);
    const bool holds = pass.mode == kept();
    const int last = pass.lay_mode == kPlain ? range.last : std::min(range.last, i + kMaxLaid);
    for (int j = range.first; j <= last; ++j) {
      const CostRow after = row(pass.mode, j, l).moved(chain_.boundary[j] + bounds_.residues(pass.lay_mode, i, j - 1));
      const CostRow before = row(pass.lay_mode, i, j - 1);
      if (after.values == nullptr || before.values == nullptr) continue;
      const int64_t minimum = holds ? bounds_.advance(kPlain, i, j, l) + bounds_.tape(kPlain, l, kKeptTape)
                            : pass.lay_mode == pass.mode ? bounds_.advance(pass.mode, i, j, l)
                                                         : bounds_.lay(pass.lay_mode, i, j, l);
      const CostBranch branch{.kind = CostBranch::kAdvance, .choice = j, .lay_mode = pass.lay_mode};
      use(branch, std::max({minimum, after.minimum, before.minimum}), bounds_.forward(holds ? kPlain : pass.mode, i, j),
          after, before);
    }
  }

  void lower_row(int mode, int i, int l, Slice slice, int64_t feasible_from, double cost, const CostRow& x,
                 const CostRow& y) {
    const int64_t from = std::max(feasible_from, slice.first), count = slice.last - from + 1;
    if (count <= 0) return;
    Cost* out = rows_[mode + 1][row_index(i, l)].get() + (from - minimum(mode, i, l));
    if (x.values == nullptr) {
      for (int64_t n = 0; n < count; ++n) out[n] = std::min(out[n], static_cast<Cost>(cost));
    } else {
      lower_by_sum(out, x.from(from), y.values == nullptr ? nullptr : y.from(from), static_cast<Cost>(cost), count);
    }
  }

  void open_pair(int i, int l) {
    for (int mode = kPlain; mode < tables_; ++mode) {
      const int64_t width = memory_ - minimum(mode, i, l) + 1;
      if (width <= 0) continue;
      std::unique_ptr<Cost[]>& values = rows_[mode + 1][row_index(i, l)];
      values.reset(new Cost[static_cast<size_t>(width)]);
      std::fill_n(values.get(), width, kInfinite);
    }
  }

  // Lowers the row of pair (i, l) by the advances to the boundaries in `range`.
  void lower_by_advances(AdvanceModes pass, int i, int l, Boundaries range, Slice slice) {
    if (minimum(pass.mode, i, l) > slice.last) return;
    for_each_advance(pass, i, l, range,
                     [&](const CostBranch&, int64_t from, double cost, const CostRow& x, const CostRow& y) {
                       lower_row(pass.mode, i, l, slice, from, cost, x, y);
                     });
  }

  // Finishes the rows of pair (i, l): lowers them by the advances to the boundaries in `near` and
  // `far`, and by the tapes.
  void close_pair(int i, int l, Boundaries near, Boundaries far, Slice slice) {
    for (const AdvanceModes pass : passes_) {
      lower_by_advances(pass, i, l, near, slice);
      lower_by_advances(pass, i, l, far, slice);
    }
    for (int mode = kPlain; mode < tables_; ++mode) {
      if (minimum(mode, i, l) > slice.last) continue;
      for_each_tape(mode, i, l, [&](const CostBranch&, int64_t from, double cost, const CostRow& x, const CostRow& y) {
        lower_row(mode, i, l, slice, from, cost, x, y);
      });
    }
  }

  // Fills the pairs with i in one tile and l in another. Returns the number of boundaries that were
  // tried. Advances to a boundary between the tiles read only finished tiles. They are done first,
  // in blocks of boundaries and mode by mode, so that rows stay in cache. The other advances read
  // pairs of this tile, so pairs are filled with falling i and rising l.
  int64_t fill_tile(int i_tile, int l_tile) {
    const int i_begin = i_tile * kTile, i_end = std::min(i_begin + kTile, length_);
    const int l_begin = l_tile * kTile, l_end = std::min(l_begin + kTile, length_);
    // True if one repeated part contains both tiles, and so all links between them.
    const bool is_repeated = chain_.repeat_end[i_begin] == chain_.repeat_end[l_end - 1];
    if (is_repeated) return 0;
    int64_t boundaries = 0;
    const auto for_each_pair = [&](auto use) {
      for (int i = i_end - 1; i >= i_begin; --i) {
        for (int l = std::max(l_begin, i); l < l_end; ++l) {
          if (chain_.repeat_end[i] != chain_.repeat_end[l]) use(i, l);
        }
      }
    };
    for_each_pair([&](int i, int l) {
      open_pair(i, l);
      boundaries += l - i + 1;
    });
    for (int j = i_end; j <= l_begin; j += kTile) {
      const Boundaries block{j, std::min(j + kTile - 1, l_begin)};
      for (const AdvanceModes pass : passes_)
        for_each_pair([&](int i, int l) { lower_by_advances(pass, i, l, block, whole()); });
    }
    for_each_pair([&](int i, int l) {
      close_pair(i, l, {i + 1, std::min(i_end - 1, l)}, {std::max(l_begin + 1, i_end), l}, whole());
    });
    return boundaries;
  }

  CostBranch choose(int mode, int i, int l, int64_t m) const {
    CostBranch best;
    Cost best_cost = kInfinite;
    const auto consider = [&](const CostBranch& branch, int64_t from, double cost, const CostRow& x, const CostRow& y) {
      if (from > m) return;
      Cost sum = static_cast<Cost>(cost);
      if (x.values != nullptr) sum += *x.from(m);
      if (y.values != nullptr) sum += *y.from(m);
      if (sum >= best_cost) return;
      best_cost = sum;
      best = branch;
    };
    for_each_tape(mode, i, l, consider);
    for (const AdvanceModes pass : passes_) {
      if (pass.mode == mode) for_each_advance(pass, i, l, {i + 1, l}, consider);
    }
    return best;
  }

  void trace(int mode, int i, int l, int64_t m, std::vector<Action>& list) const {
    const CostBranch branch = choose(mode, i, l, m);
    const bool holds = mode == kept();
    if (branch.kind == CostBranch::kTape && holds && i == l)
      return list.push_back({.kind = ActionKind::kBackward, .first = i});
    if (branch.kind == CostBranch::kTape) {
      list.push_back({.kind = ActionKind::kRecord, .first = i, .choice = branch.choice});
      if (l > i) trace(mode, i + 1, l, m - bounds_.tape(holds ? kPlain : mode, i, branch.choice), list);
      list.push_back({.kind = ActionKind::kBackward, .first = i});
      return;
    }
    const int j = branch.choice;
    if (branch.kind == CostBranch::kHold) {
      list.push_back({.kind = ActionKind::kAdvance, .first = i, .last = j - 1});
      list.push_back({.kind = ActionKind::kRecord, .first = j - 1, .choice = kKeptTape});
      list.push_back({.kind = ActionKind::kDrop, .first = j - 1});
      trace(kPlain, j, l, m - bounds_.tape(kPlain, j - 1, kKeptTape), list);
      return trace(kept(), i, j - 1, m, list);
    }
    list.push_back({.kind = ActionKind::kAdvance, .first = i, .last = j, .choice = branch.lay_mode});
    trace(mode, j, l, m - chain_.boundary[j] - bounds_.residues(branch.lay_mode, i, j - 1), list);
    list.push_back({.kind = ActionKind::kDrop, .first = j});
    trace(branch.lay_mode, i, j - 1, m, list);
  }

  const UnitChain& chain_;
  const Bounds& bounds_;
  const MinMemory& least_;
  int modes_;
  int tables_;  // number of tables: C, all C_k, and D if it is used
  int64_t memory_;
  int length_;
  int tiles_;
  std::vector<AdvanceModes> passes_;
  std::vector<std::vector<std::unique_ptr<Cost[]>>> rows_;  // indexed by table + 1 and row_index()
};

}  // namespace reprise
