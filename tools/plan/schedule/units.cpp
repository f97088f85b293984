// Converts a chain into memory units for the dynamic programme of `optimal`, and chooses the unit.
#include "tools/plan/schedule/units.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "lib/assert.h"

namespace reprise {
namespace {

// Calls hold(bytes) for each boundary, tape and residue, and pass(bytes) for scratch, which is live
// while one link runs. At any time each boundary, tape and residue is live at most once. In
// addition two gradients and the scratch of one link are live.
template <class Hold, class Pass>
void for_each_size(const Chain& chain, Hold hold, Pass pass) {
  for (const Link& link : chain.links) {
    hold(link.boundary_bytes);
    pass(link.forward_scratch_bytes);
    for (const Residue& residue : link.residues) hold(residue.bytes);
    const int modes = static_cast<int>(link.residues.size());
    for (int t = 0; t < static_cast<int>(link.tapes.size()); ++t) {
      for (int mode = -1; mode < modes; ++mode) hold(link.tape_bytes(t, mode));
      pass(link.tapes[t].scratch_bytes);
      pass(link.tapes[t].forward_scratch_bytes);
    }
  }
}

class Rounding {
 public:
  explicit Rounding(const UnitChoice& choice) : unit_(choice.unit), pool_(choice.pool) {}
  uint64_t lost_bytes(uint64_t bytes) const { return bytes % unit_ <= pool_ ? bytes % unit_ : 0; }
  int64_t units(uint64_t bytes) const {
    const bool down = bytes % unit_ <= pool_;
    return static_cast<int64_t>(bytes / unit_) + (down ? 0 : 1);
  }

 private:
  uint64_t unit_, pool_;
};

uint64_t reserve_bytes(const Chain& chain, const Rounding& rounding) {
  uint64_t reserve = 0, scratch = 0, gradient = rounding.lost_bytes(chain.input_bytes);
  for (const Link& link : chain.links) {
    uint64_t tape = 0;
    for (int t = 0; t < static_cast<int>(link.tapes.size()); ++t) {
      for (int mode = -1; mode < static_cast<int>(link.residues.size()); ++mode) {
        tape = std::max(tape, rounding.lost_bytes(link.tape_bytes(t, mode)));
      }
      scratch = std::max({scratch, rounding.lost_bytes(link.tapes[t].scratch_bytes),
                          rounding.lost_bytes(link.tapes[t].forward_scratch_bytes)});
    }
    scratch = std::max(scratch, rounding.lost_bytes(link.forward_scratch_bytes));
    gradient = std::max(gradient, rounding.lost_bytes(link.boundary_bytes));
    reserve += rounding.lost_bytes(link.boundary_bytes) + tape;
  }
  return reserve + scratch + 2 * gradient;
}

bool same_cost_and_size(const Link& a, const Link& b) {
  return a.forward_cost == b.forward_cost && a.boundary_bytes == b.boundary_bytes &&
         a.forward_scratch_bytes == b.forward_scratch_bytes && a.tapes == b.tapes && a.residues == b.residues;
}

// Returns the factor that scales the sum of all costs to a number from 1 to 2. It is a power of
// two, so that scaled integers stay exact.
double power_to_unit_sum(const Chain& chain) {
  double sum = 0;
  for (const Link& link : chain.links) {
    sum += link.forward_cost;
    for (const Tape& tape : link.tapes) sum += tape.backward_cost;
  }
  return sum > 0 ? std::exp2(-std::ilogb(sum)) : 1;
}

// Finds repeated parts from the first link on. At each link it takes the longest repeated part that
// begins there and has at least two periods.
void find_repeats(const Chain& chain, UnitChain& result) {
  constexpr int kMaxPeriod = 16;
  const int length = chain.length();
  const auto equal = [&](int a, int b) {
    return same_cost_and_size(chain.links[a], chain.links[b]) && chain.boundary_bytes(a) == chain.boundary_bytes(b);
  };
  while (static_cast<int>(result.repeat_end.size()) < length) {
    const int first = static_cast<int>(result.repeat_end.size());
    int end = first, period = 1;
    for (int p = 1; p <= kMaxPeriod; ++p) {
      int behind = first + p;
      while (behind < length && equal(behind - p, behind)) ++behind;
      if (behind >= first + 2 * p && behind - 1 > end) std::tie(end, period) = std::pair(behind - 1, p);
    }
    result.repeat_end.resize(static_cast<size_t>(end) + 1, end);
    result.repeat_period.resize(static_cast<size_t>(end) + 1, period);
  }
}

// The distinct sizes of the chain's boundaries, tapes and residues in bytes. sums_ maps a size to
// the size times the number of its occurrences.
class SizeSums {
 public:
  explicit SizeSums(const Chain& chain) {
    for_each_size(chain, [this](uint64_t bytes) { sums_[bytes] += static_cast<double>(bytes); }, [](uint64_t) {});
    sums_.erase(0);
    for (const auto& [size, sum] : sums_) all_ += sum;
  }

  // Returns the bytes by which rounding raises or lowers the sizes, summed over all of them, as a
  // fraction of the sum of all sizes.
  double misfit(const UnitChoice& choice) const {
    const Rounding rounding(choice);
    double bytes = 0;
    for (const auto& [size, sum] : sums_) {
      const double rounded = static_cast<double>(rounding.units(size)) * static_cast<double>(choice.unit);
      bytes += std::abs(rounded / static_cast<double>(size) - 1) * sum;
    }
    return bytes / all_;
  }

  // Returns the sizes with the largest sums. aligned_unit() tries their divisors.
  std::vector<uint64_t> heaviest() const {
    constexpr size_t kMaxSizes = 16;
    std::vector<std::pair<double, uint64_t>> by_sum;
    for (const auto& [size, sum] : sums_) by_sum.emplace_back(sum, size);
    std::sort(by_sum.rbegin(), by_sum.rend());
    std::vector<uint64_t> sizes;
    for (size_t n = 0; n < std::min(by_sum.size(), kMaxSizes); ++n) sizes.push_back(by_sum[n].second);
    return sizes;
  }

 private:
  std::map<uint64_t, double> sums_;
  double all_ = 0;
};

}  // namespace

int64_t UnitChain::memory(uint64_t budget_bytes) const {
  if (budget_bytes < fixed_bytes) return -1;
  int64_t maximum = 0, widest = 0;
  for (const UnitLink& link : links) {
    int64_t tape_size = 0;
    for (const UnitTape& tape : link.tapes) {
      tape_size = std::max(tape_size, *std::max_element(tape.size.begin(), tape.size.end()));
      widest = std::max({widest, tape.scratch, tape.forward_scratch});
    }
    widest = std::max(widest, link.forward_scratch);
    maximum += tape_size;
  }
  maximum += widest + 3 * *std::max_element(boundary.begin(), boundary.end());
  return static_cast<int64_t>(std::min<uint64_t>((budget_bytes - fixed_bytes) / unit, static_cast<uint64_t>(maximum)));
}

UnitChain chain_in_units(const Chain& chain, const UnitChoice& choice) {
  REPRISE_ASSERT(choice.unit > 0, "a unit has one byte at least");
  const Rounding rounding(choice);
  const size_t modes = chain.links[0].residues.size();
  UnitChain result;
  result.unit = choice.unit;
  result.fixed_bytes = chain.input_bytes + reserve_bytes(chain, rounding);
  find_repeats(chain, result);
  result.cost_scale = power_to_unit_sum(chain);
  result.forward_prefix = {0};
  result.residue_bytes_prefix.assign(modes, {0});
  result.residue_forward_prefix.assign(modes, {0});
  result.boundary = {rounding.units(chain.input_bytes)};
  for (const Link& link : chain.links) {
    result.boundary.push_back(rounding.units(link.boundary_bytes));
    result.forward_prefix.push_back(result.forward_prefix.back() + link.forward_cost * result.cost_scale);
    for (size_t k = 0; k < modes; ++k) {
      result.residue_bytes_prefix[k].push_back(result.residue_bytes_prefix[k].back() + link.residues[k].bytes);
      result.residue_forward_prefix[k].push_back(result.residue_forward_prefix[k].back() +
                                                 link.residues[k].forward_cost * result.cost_scale);
    }
    UnitLink unit_link{.forward_scratch = rounding.units(link.forward_scratch_bytes), .tapes = {}};
    for (int t = 0; t < static_cast<int>(link.tapes.size()); ++t) {
      const Tape& tape = link.tapes[t];
      UnitTape unit_tape{.size = {},
                         .record_cost = {},
                         .backward_cost = tape.backward_cost * result.cost_scale,
                         .scratch = rounding.units(tape.scratch_bytes),
                         .forward_scratch = rounding.units(tape.forward_scratch_bytes)};
      for (int mode = -1; mode < static_cast<int>(modes); ++mode) {
        unit_tape.size.push_back(rounding.units(link.tape_bytes(t, mode)));
        unit_tape.record_cost.push_back((mode < 0 ? link.forward_cost : link.residues[mode].record_cost(t)) *
                                        result.cost_scale);
      }
      unit_link.tapes.push_back(std::move(unit_tape));
    }
    result.links.push_back(std::move(unit_link));
  }
  return result;
}

uint64_t exact_unit(const Chain& chain) {
  uint64_t divisor = chain.input_bytes;
  const auto take = [&](uint64_t bytes) { divisor = std::gcd(divisor, bytes); };
  for_each_size(chain, take, take);
  return std::max<uint64_t>(divisor, 1);
}

UnitChoice aligned_unit(const Chain& chain, uint64_t finest) {
  constexpr uint64_t kMaxParts = 256;  // maximum number of units in one size; with more, alignment gains little
  // Maximum difference from the minimum misfit(). The coarsest unit within it is chosen: the
  // makespan hardly changes, and solving takes less time.
  constexpr double kLittle = 1e-3;
  const SizeSums sizes(chain);
  std::map<uint64_t, double> misfits = {{finest, sizes.misfit({.unit = finest})}};
  for (const uint64_t size : sizes.heaviest()) {
    for (uint64_t parts = std::max<uint64_t>(size / (4 * finest), 1); parts <= std::min(size / finest, kMaxParts);
         ++parts) {
      const uint64_t unit = (size + parts - 1) / parts;
      misfits.emplace(unit, sizes.misfit({.unit = unit, .pool = unit / 16}));
    }
  }
  double minimum = misfits.at(finest);
  for (const auto& [unit, misfit] : misfits) minimum = std::min(minimum, misfit);
  const auto coarsest =
      std::find_if(misfits.rbegin(), misfits.rend(), [&](const auto& m) { return m.second <= minimum + kLittle; });
  return {.unit = coarsest->first, .pool = coarsest->first == finest ? 0 : coarsest->first / 16};
}

}  // namespace reprise
