// A gate for CI: how far a plan may have outgrown an older one, as a whole, in a region, or in predicted time.
// Here because a gate compares two manifests and needs no planner.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

// Per cent by name: "total" is the arena; a region's name; "seconds" is the predicted step; "work" the step's work with its recomputation.
using GrowthLimits = std::map<std::string, double>;

// From the words of `--max-growth`: "5" is of the total, "micro_first=5" of a region. Throws UserError. The total's limit is 0 where none is given.
GrowthLimits growth_limits(const std::vector<std::string>& words);

struct GrowthLine {
  std::string name;
  double before = 0, now = 0;
  bool in_bytes = true;
  std::optional<double> limit;  // per cent; none: only shown

  double growth() const { return before > 0 ? 100 * (now / before - 1) : now > 0 ? 100 : 0; }  // per cent
  bool passes() const { return !limit || now <= before * (1 + *limit / 100); }
};

// Of two manifests that check_manifest has passed: the total, every region, and what has a limit. Throws UserError where a limit names what neither
// has, or seconds that one of them does not predict; `file` is the baseline's.
std::vector<GrowthLine> compare_growth(const nlohmann::json& before, const nlohmann::json& now, const GrowthLimits& limits, const std::string& file);

// Why the gate holds: one line that names every limit that is passed; "" where none is.
std::string growth_refusal(const std::vector<GrowthLine>& lines, const std::string& file);

// A table that a comment on a change can take.
std::string growth_markdown(const std::vector<GrowthLine>& lines, const std::string& name);

}  // namespace reprise
