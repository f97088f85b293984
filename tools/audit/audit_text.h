// A manifest as text for a person.
// Here beside the page and the rows: three ways to show one manifest.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace reprise {

// Regions, the peak row with its live set, every slot. The manifest is one that check_manifest has passed.
std::string audit_text(const nlohmann::json& manifest);

}  // namespace reprise
