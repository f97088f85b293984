// See growth_gate.h.
#include "tools/plan/audit/growth_gate.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"

namespace reprise {

using nlohmann::json;

namespace {

double per_cent(const std::string& text, const std::string& word) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(value >= 0 && value < 1e9)) {
    throw UserError("--max-growth: must be a number of at least 0, or NAME=NUMBER, not " + word, UserError::kUsage);
  }
  return value;
}

std::string amount(const GrowthLine& line, double value) {
  if (line.in_bytes) return bytes_text(static_cast<uint64_t>(value));
  char text[32];
  std::snprintf(text, sizeof text, line.name == "seconds" ? "%.4g s" : "%.3f", value);
  return text;
}

std::string signed_per_cent(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.2f%%", value);
  return text;
}

std::map<std::string, double> region_bytes(const json& manifest) {
  std::map<std::string, double> bytes;
  for (const json& region : manifest["regions"])
    bytes[region["name"].get<std::string>()] = region["planned_bytes"].get<double>();
  return bytes;
}

GrowthLine seconds_line(const json& before, const json& now, const std::string& file) {
  if (before["predicted_seconds"].is_null() || now["predicted_seconds"].is_null()) {
    throw UserError("--max-growth: seconds: " + (before["predicted_seconds"].is_null() ? file : "the plan") +
                    " predicts none; plan it with --profile, or limit \"work\"");
  }
  return {"seconds", before["predicted_seconds"].get<double>(), now["predicted_seconds"].get<double>(), false, {}};
}

}  // namespace

GrowthLimits growth_limits(const std::vector<std::string>& words) {
  GrowthLimits limits = {{"total", 0}};
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const std::string name = equals == std::string::npos ? "total" : word.substr(0, equals);
    limits[name] = per_cent(equals == std::string::npos ? word : word.substr(equals + 1), word);
  }
  return limits;
}

std::vector<GrowthLine> compare_growth(const json& before, const json& now, const GrowthLimits& limits,
                                       const std::string& file) {
  std::vector<GrowthLine> lines = {
      {"total", before["planned_bytes"].get<double>(), now["planned_bytes"].get<double>(), true, {}}};
  std::map<std::string, double> old = region_bytes(before), fresh = region_bytes(now);
  for (const json& region : now["regions"]) {
    const std::string name = region["name"].get<std::string>();
    lines.push_back({name, old[name], fresh[name], true, {}});
  }
  for (const json& region : before["regions"]) {
    const std::string name = region["name"].get<std::string>();
    if (fresh.count(name) == 0) lines.push_back({name, old[name], 0, true, {}});
  }
  lines.push_back(
      {"work", 1 + before["extra_forward_cost"].get<double>(), 1 + now["extra_forward_cost"].get<double>(), false, {}});
  const bool both = before["predicted_seconds"].is_number() && now["predicted_seconds"].is_number();
  if (both || limits.count("seconds") != 0) lines.push_back(seconds_line(before, now, file));
  std::vector<std::string> names;
  for (const GrowthLine& line : lines) names.push_back(line.name);
  for (const auto& [name, limit] : limits) {
    bool found = false;
    for (GrowthLine& line : lines) {
      if (line.name != name) continue;
      line.limit = limit;
      found = true;
    }
    if (!found)
      throw UserError("--max-growth: " + shown_key(name) + ": must be one of " + quoted_list(names), UserError::kUsage);
  }
  return lines;
}

std::string growth_refusal(const std::vector<GrowthLine>& lines, const std::string& file) {
  std::ostringstream text;
  for (const GrowthLine& line : lines) {
    if (line.passes()) continue;
    text << (text.tellp() == 0 ? file + ": --gate: " : "; ")
         << (line.name == "total" ? "the plan" : shown_key(line.name)) << " has grown from "
         << amount(line, line.before) << " to " << amount(line, line.now) << ", more than --max-growth "
         << json(*line.limit).dump() << " per cent";
  }
  return text.str();
}

namespace {

// Returns a manifest's name as a cell of a table. Characters that Markdown or HTML could interpret
// become '_', because the manifest may come from anywhere.
std::string markdown_text(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, 200))
    out += std::isalnum(static_cast<unsigned char>(c)) || std::string(" .-:,[]").find(c) != std::string::npos ? c : '_';
  return out;
}

}  // namespace

std::string growth_markdown(const std::vector<GrowthLine>& lines, const std::string& name) {
  std::ostringstream text;
  text << "**Planned memory of " << markdown_text(name)
       << "**\n\n| | baseline | now | change | allowed | |\n|---|---:|---:|---:|---:|---|\n";
  for (const GrowthLine& line : lines) {
    char limit[32] = "";
    if (line.limit) std::snprintf(limit, sizeof limit, "+%g%%", *line.limit);
    text << "| " << (line.name == "total" ? "**total**" : markdown_text(line.name)) << " | "
         << amount(line, line.before) << " | " << amount(line, line.now) << " | " << signed_per_cent(line.growth())
         << " | " << limit << " | "
         << (!line.limit     ? ""
             : line.passes() ? "passes"
                             : "**fails**")
         << " |\n";
  }
  return text.str();
}

}  // namespace reprise
