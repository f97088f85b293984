// See audit_text.h.
#include "tools/plan/audit/audit_text.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/text.h"

namespace reprise {

using nlohmann::json;

namespace {

// Returns the measured values of a run next to the planned values; "" for a manifest without
// measurements.
std::string measured_text(const json& manifest) {
  const json& measured = manifest.at("measured");
  if (!measured.contains("regions")) return "";
  std::ostringstream text;
  text << "\nmeasured in a run of " << measured.value("steps", uint64_t{0})
       << " steps\nregion            planned       measured\n";
  char line[256];
  for (const json& region : measured.at("regions")) {
    const uint64_t bytes = region.at("high_water_bytes");
    std::optional<uint64_t> planned;
    for (const json& each : manifest.at("regions")) {
      if (each.at("name") == region.at("name")) planned = each.at("planned_bytes");
    }
    std::snprintf(line, sizeof line, "%-12.100s %12s %14s%s\n", shown_key(region.at("name").get<std::string>()).c_str(),
                  planned ? bytes_text(*planned).c_str() : "-", bytes_text(bytes).c_str(),
                  planned && bytes > *planned ? "  MORE THAN PLANNED" : "");
    text << line;
  }
  if (measured.contains("heap_calls_in_steps"))
    text << "heap calls in steps: " << measured.at("heap_calls_in_steps") << "\n";
  if (measured.contains("step_seconds")) {
    std::snprintf(line, sizeof line, "a step: %.4g s, the median\n", measured.at("step_seconds").get<double>());
    text << line;
  }
  if (measured.contains("process_peak_bytes"))
    text << "the whole process: at most " << bytes_text(measured.at("process_peak_bytes")) << "\n";
  if (measured.contains("stack_bytes"))
    text << "a worker's stack: at most " << bytes_text(measured.at("stack_bytes")) << "\n";
  return text.str();
}

}  // namespace

namespace {

// Returns a line that splits the bytes of a program's region: the slots that are live at the peak
// row, and the unused bytes between them. Returns "" if the program has no slots.
std::string composition_text(const json& program) {
  const uint64_t bytes = program.at("bytes"), live = program.at("live_bytes");
  if (bytes == 0) return "";
  size_t row = 0;
  while (program.at("rows")[row].at("live_bytes") != live) ++row;
  return shown_key(program.at("name").get<std::string>()) + ": " + bytes_text(bytes) + " = " + bytes_text(live) +
         " live at row " + std::to_string(row) + " + " + bytes_text(bytes - live) + " fragmentation\n";
}

// Returns a table with one line for each plan of a program that can change its plan between steps.
std::string plans_text(const json& manifest) {
  std::string text = "budgets           planned     extra work  plan\n";
  const auto add = [&text](const json& plan) {
    char line[256];
    const json& budget = plan.at("budget_bytes");
    std::snprintf(line, sizeof line, "%-12s %12s %13.1f%%  %.100s\n",
                  budget.is_number_unsigned() ? bytes_text(budget).c_str() : "-",
                  bytes_text(plan.at("planned_bytes")).c_str(), 100 * plan.at("extra_forward_cost").get<double>(),
                  shown_key(plan.at("plan_hash").get<std::string>()).c_str());
    text += line;
  };
  add(manifest);
  for (const json& other : manifest.at("other_budgets")) add(other);
  return text + "\n";
}

}  // namespace

std::string audit_text(const json& manifest) {
  if (manifest.contains("other_budgets")) {
    json alone = manifest;
    alone.erase("other_budgets");
    std::string text = plans_text(manifest) + audit_text(alone);
    for (const json& other : manifest.at("other_budgets")) text += "\n" + audit_text(other);
    return text;
  }
  std::ostringstream text;
  const auto size = [](const json& bytes) { return bytes_text(bytes.get<uint64_t>()); };
  text << "plan " << shown_key(manifest.at("plan_hash").get<std::string>()) << " of "
       << shown_key(manifest.at("recipe").at("name").get<std::string>()) << ": "
       << manifest.at("planned_bytes").get<uint64_t>() << " bytes (" << size(manifest.at("planned_bytes"))
       << "), storing all would take " << size(manifest.at("store_all_bytes"))
       << "\n\nregion            planned       capacity  high water at row\n";
  char line[256];
  for (const json& region : manifest.at("regions")) {
    std::snprintf(line, sizeof line, "%-12.100s %12s %14s  %u\n",
                  shown_key(region.at("name").get<std::string>()).c_str(), size(region.at("planned_bytes")).c_str(),
                  size(region.at("capacity_bytes")).c_str(), region.at("high_water_row").get<uint32_t>());
    text << line;
  }
  text << "\n";
  for (const json& program : manifest.at("programs")) text << composition_text(program);
  text << measured_text(manifest);
  const json& peak = manifest.at("peak");
  text << "\npeak of micro_first: row " << peak.at("row") << ", " << size(peak.at("bytes")) << " live in "
       << peak.at("live").size() << " slots\n";
  for (const json& slot : peak.at("live")) {
    std::snprintf(line, sizeof line, "  %12s  slot %-5u ", size(slot.at("bytes")).c_str(),
                  slot.at("id").get<uint32_t>());
    text << line << shown_key(slot.at("name").get<std::string>()) << "\n";
  }
  const auto list = [&](const char* title, const json& slots) {
    text << "\n" << title << " (program id kind bytes offset rows name [shape])\n";
    for (const json& slot : slots) {
      std::snprintf(line, sizeof line, "%-11s %5u %-10.40s %12llu @ %-12llu %6u..%-6u ",
                    slot.at("program").get<std::string>().c_str(), slot.at("id").get<uint32_t>(),
                    slot.at("kind").get<std::string>().c_str(),
                    static_cast<unsigned long long>(slot.at("bytes").get<uint64_t>()),
                    static_cast<unsigned long long>(slot.at("offset").get<uint64_t>()),
                    slot.at("first_row").get<uint32_t>(), slot.at("last_row").get<uint32_t>());
      text << line << shown_key(slot.at("name").get<std::string>()) << " " << slot.at("shape").dump() << "\n";
    }
  };
  list("slots", manifest.at("slots"));
  if (manifest.contains("disk")) list("blocks on disk", manifest.at("disk"));
  if (manifest.contains("host")) list("blocks on the host", manifest.at("host"));
  return text.str();
}

}  // namespace reprise
