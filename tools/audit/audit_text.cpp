// The text of audit_text.h.
#include "tools/audit/audit_text.h"

#include <cstdio>
#include <sstream>

#include "tools/formats/json_text.h"
#include "tools/formats/text.h"

namespace reprise {

using nlohmann::json;

std::string audit_text(const json& manifest) {
  std::ostringstream text;
  const auto size = [](const json& bytes) { return bytes_text(bytes.get<uint64_t>()); };
  text << "plan " << shown_key(manifest.at("plan_hash").get<std::string>()) << " of " << shown_key(manifest.at("recipe").at("name").get<std::string>()) << ": "
       << manifest.at("planned_bytes").get<uint64_t>() << " bytes (" << size(manifest.at("planned_bytes")) << "), storing all would take "
       << size(manifest.at("store_all_bytes")) << "\n\nregion            planned       capacity  high water at row\n";
  char line[256];
  for (const json& region : manifest.at("regions")) {
    std::snprintf(line, sizeof line, "%-12.100s %12s %14s  %u\n", shown_key(region.at("name").get<std::string>()).c_str(), size(region.at("planned_bytes")).c_str(),
                  size(region.at("capacity_bytes")).c_str(), region.at("high_water_row").get<uint32_t>());
    text << line;
  }
  const json& peak = manifest.at("peak");
  text << "\npeak of micro_first: row " << peak.at("row") << ", " << size(peak.at("bytes")) << " live in " << peak.at("live").size() << " slots\n";
  for (const json& slot : peak.at("live")) {
    std::snprintf(line, sizeof line, "  %12s  slot %-5u ", size(slot.at("bytes")).c_str(), slot.at("id").get<uint32_t>());
    text << line << shown_key(slot.at("name").get<std::string>()) << "\n";
  }
  const auto list = [&](const char* title, const json& slots) {
    text << "\n" << title << " (program id kind bytes offset rows name [shape])\n";
    for (const json& slot : slots) {
      std::snprintf(line, sizeof line, "%-11s %5u %-10.40s %12llu @ %-12llu %6u..%-6u ", slot.at("program").get<std::string>().c_str(),
                    slot.at("id").get<uint32_t>(), slot.at("kind").get<std::string>().c_str(),
                    static_cast<unsigned long long>(slot.at("bytes").get<uint64_t>()), static_cast<unsigned long long>(slot.at("offset").get<uint64_t>()),
                    slot.at("first_row").get<uint32_t>(), slot.at("last_row").get<uint32_t>());
      text << line << shown_key(slot.at("name").get<std::string>()) << " " << slot.at("shape").dump() << "\n";
    }
  };
  list("slots", manifest.at("slots"));
  if (manifest.contains("disk")) list("blocks on disk", manifest.at("disk"));
  return text.str();
}

}  // namespace reprise
