// A check for CI: limits how much a plan may exceed an older one in total, in a region, or in
// predicted time. It compares two manifests and needs no planner.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

// Maps the name of a quantity to the per cent by which it may grow. "total" is the bytes of the
// arena, and the name of a region is the bytes of this region. "seconds" is the predicted time of a
// step; "work" is the work of a step, including recomputation.
using GrowthLimits = std::map<std::string, double>;

// Returns the limits that the words of `--max-growth` state: "5" limits the total, "micro_first=5"
// a region. The limit of the total is 0 if no word states it. Throws UserError.
GrowthLimits growth_limits(const std::vector<std::string>& words);

// A quantity that is compared between two manifests; one line of the gate's table.
struct GrowthLine {
  std::string name;
  double before = 0, now = 0;
  bool in_bytes = true;
  std::optional<double> limit;  // maximum growth of the quantity, in per cent; unset: the growth is only printed

  // Returns the growth in per cent.
  double growth() const { return before > 0 ? 100 * (now / before - 1) : now > 0 ? 100 : 0; }
  bool passes() const { return !limit || now <= before * (1 + *limit / 100); }
};

// Compares two manifests that have passed check_manifest(). Returns a line for the total, for each
// region, for work, and for seconds if both manifests predict them. Throws UserError if a limit
// names a quantity that neither manifest has, or seconds that one of them does not predict. `file`
// is the path of the older manifest.
std::vector<GrowthLine> compare_growth(const nlohmann::json& before, const nlohmann::json& now,
                                       const GrowthLimits& limits, const std::string& file);

// Returns one line that names each quantity above its limit; "" if all quantities pass.
std::string growth_refusal(const std::vector<GrowthLine>& lines, const std::string& file);

// Returns the lines as a Markdown table, for a comment on a change.
std::string growth_markdown(const std::vector<GrowthLine>& lines, const std::string& name);

}  // namespace reprise
