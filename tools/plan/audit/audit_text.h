// Formats a manifest as a text report. page.h formats it as an HTML page, and rows_text.h lists the
// rows of a program.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace reprise {

// Returns a report with the regions, the peak row with its live slots, and all slots. The manifest
// must have passed check_manifest().
std::string audit_text(const nlohmann::json& manifest);

}  // namespace reprise
