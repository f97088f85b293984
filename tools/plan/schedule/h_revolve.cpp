// The recursion of h_revolve.h. A row has a value for each number of free units on disk, and is
// lowered as a whole. Choices are recomputed in the traceback, not stored.
#include "tools/plan/schedule/h_revolve.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tools/plan/schedule/simulate.h"

namespace reprise {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kMaxSums = 4e9;  // limit on the additions that fill one table; a few seconds
constexpr double kMaxDiskUnits = 64;
constexpr uint64_t kNoLimit = UINT64_MAX;

// Sizes on disk in units. All are 0 if the disk has no limit.
struct DiskUnits {
  int64_t free = 0;
  std::vector<int64_t> size;  // indexed by boundary
};

uint64_t bytes_taken(const Chain& chain, uint64_t unit) {
  uint64_t bytes = 0;
  for (int i = 1; i < chain.length(); ++i) bytes += (chain.boundary_bytes(i) + unit - 1) / unit * unit;
  return bytes;
}

uint64_t choose_unit(const Chain& chain, uint64_t disk_bytes) {
  const double length = chain.length();
  const auto maximum = static_cast<uint64_t>(std::clamp(kMaxSums / (length * length * length / 2), 1.0, kMaxDiskUnits));
  uint64_t exact = 0;
  for (int i = 1; i < chain.length(); ++i) exact = std::gcd(exact, chain.boundary_bytes(i));
  if (exact > 0 && disk_bytes / exact <= maximum) return exact;
  uint64_t best = disk_bytes / maximum + 1;
  for (uint64_t count = maximum / 2 + 1; count <= maximum; ++count) {  // aligned units waste less than fine ones
    const uint64_t unit = disk_bytes / count;
    if (unit > 0 && bytes_taken(chain, unit) < bytes_taken(chain, best)) best = unit;
  }
  return best;
}

DiskUnits disk_in_units(const Chain& chain, uint64_t disk_bytes) {
  DiskUnits units{.size = std::vector<int64_t>(static_cast<size_t>(chain.length()), 0)};
  if (disk_bytes == kNoLimit) return units;
  const uint64_t unit = choose_unit(chain, disk_bytes);
  units.free = static_cast<int64_t>(disk_bytes / unit);
  for (int i = 1; i < chain.length(); ++i)
    units.size[static_cast<size_t>(i)] = static_cast<int64_t>((chain.boundary_bytes(i) + unit - 1) / unit);
  return units;
}

class Recursion {
 public:
  Recursion(const Chain& chain, const UnitChain& units, const Bounds& bounds, int64_t memory, const DiskLevel& disk,
            const MemoryLevel& level)
      : chain_(chain),
        units_(units),
        bounds_(bounds),
        memory_(memory),
        disk_(disk),
        level_(level),
        disk_units_(disk_in_units(chain, disk.bytes)),
        width_(static_cast<size_t>(disk_units_.free) + 1) {
    const size_t cells = static_cast<size_t>(pair_count(chain.length())) * width_;
    for (std::vector<double>& table : tables_) table.assign(cells, kInfinite);
  }

  TwoLevelPlan solve() {
    const int length = chain_.length();
    for (int i = length - 1; i >= 0; --i) {
      for (int l = i; l < length; ++l) fill(i, l);
    }
    TwoLevelPlan plan{.makespan = row(kSpilled, 0, length - 1)[disk_units_.free]};
    if (plan.makespan < kInfinite) trace(kSpilled, 0, length - 1, disk_units_.free, plan.actions);
    return plan;
  }

 private:
  enum Table { kKept, kSpilled };
  double* row(Table table, int i, int l) {
    return tables_[table].data() + static_cast<size_t>(pair_index(chain_.length(), i, l)) * width_;
  }

  int64_t beside(int i) const { return i == 0 ? memory_ : memory_ - units_.boundary[static_cast<size_t>(i)]; }
  double write_cost(int i) const { return i == 0 ? 0 : traffic_cost(disk_.write_cost, i); }
  double read_cost(int i) const { return i == 0 ? 0 : traffic_cost(disk_.read_cost, i); }
  double traffic_cost(double per_byte, int i) const {
    return per_byte * static_cast<double>(chain_.boundary_bytes(i)) * units_.cost_scale;
  }

  // One way to process links i..l: in memory alone, after an advance to `boundary`, or after
  // boundary i is written to disk. `stays`: boundary i stays in memory after the advance.
  struct DiskBranch {
    int boundary = -1;
    bool stays = false;
    int64_t written = 0;  // kKept only: units of disk that boundary i takes if it is written first
    bool writes = false;
  };

  // Calls use(branch, cost, x, y) for each way to process links i..l. With d free units, at least
  // branch.written, that way costs cost + x[d - branch.written] + y[d]. A null row counts as zero.
  template <class Use>
  void for_each_branch(Table table, int i, int l, Use use) {
    const int64_t m = beside(i);
    use(DiskBranch{}, level_.cost(i, l, m), nullptr, nullptr);
    for (int j = i + 1; j <= l; ++j) {
      if (m < bounds_.advance(kPlain, i, j, l)) continue;
      const double forward = bounds_.forward(kPlain, i, j);
      const double inner = level_.cost(j, l, m - units_.boundary[static_cast<size_t>(j)]);
      if (inner < kInfinite)
        use(DiskBranch{.boundary = j, .stays = true}, forward + inner, row(table, i, j - 1), nullptr);
      if (table == kSpilled)
        use(DiskBranch{.boundary = j}, forward + read_cost(i), row(kKept, j, l), row(kSpilled, i, j - 1));
    }
    const int64_t size = disk_units_.size[static_cast<size_t>(i)];
    if (table == kKept && size <= disk_units_.free)
      use(DiskBranch{.written = size, .writes = true}, write_cost(i), row(kSpilled, i, l), nullptr);
  }

  void fill(int i, int l) {
    for (const Table table : {kSpilled, kKept}) {
      double* out = row(table, i, l);
      for_each_branch(table, i, l, [&](const DiskBranch& branch, double cost, const double* x, const double* y) {
        const size_t from = static_cast<size_t>(branch.written);
        for (size_t d = from; d < width_; ++d)
          out[d] = std::min(out[d], cost + (x == nullptr ? 0 : x[d - from]) + (y == nullptr ? 0 : y[d]));
      });
    }
  }

  DiskBranch choose(Table table, int i, int l, int64_t d) {
    DiskBranch best;
    double best_cost = kInfinite;
    for_each_branch(table, i, l, [&](const DiskBranch& branch, double cost, const double* x, const double* y) {
      if (d < branch.written) return;
      const double sum = cost + (x == nullptr ? 0 : x[d - branch.written]) + (y == nullptr ? 0 : y[d]);
      if (sum >= best_cost) return;
      best_cost = sum;
      best = branch;
    });
    return best;
  }

  void trace(Table table, int i, int l, int64_t d, std::vector<Action>& list) {
    const DiskBranch branch = choose(table, i, l, d);
    const int j = branch.boundary;
    if (branch.writes) {
      list.push_back({.kind = ActionKind::kWrite, .first = i});
      return trace(kSpilled, i, l, d - branch.written, list);
    }
    if (j < 0) return level_.append(i, l, beside(i), list);
    const bool leaves = !branch.stays && i > 0;
    list.push_back({.kind = ActionKind::kAdvance, .first = i, .last = j});
    if (leaves) list.push_back({.kind = ActionKind::kDrop, .first = i});
    if (branch.stays) {
      level_.append(j, l, beside(i) - units_.boundary[static_cast<size_t>(j)], list);
    } else {
      trace(kKept, j, l, d, list);
    }
    list.push_back({.kind = ActionKind::kDrop, .first = j});
    if (leaves) list.push_back({.kind = ActionKind::kRead, .first = i});
    trace(table, i, j - 1, d, list);
  }

  const Chain& chain_;
  const UnitChain& units_;
  const Bounds& bounds_;
  const int64_t memory_;
  const DiskLevel disk_;
  const MemoryLevel& level_;
  const DiskUnits disk_units_;
  const size_t width_;  // entries of a row, for 0 to `free` units
  std::vector<double> tables_[2];
};

}  // namespace

TwoLevelPlan solve_two_levels(const Chain& chain, const UnitChain& units, const Bounds& bounds, int64_t memory,
                              const DiskLevel& disk, const MemoryLevel& memory_level) {
  // Tries a disk without a limit first, because its table is up to 64 times smaller. Its plan
  // usually fits the disk, and is then optimal.
  TwoLevelPlan plan =
      Recursion(chain, units, bounds, memory, {kNoLimit, disk.write_cost, disk.read_cost}, memory_level).solve();
  if (simulate(chain, plan.actions).disk_bytes <= disk.bytes) return plan;
  return Recursion(chain, units, bounds, memory, disk, memory_level).solve();
}

}  // namespace reprise
