// The audit as one page that works offline.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace reprise {

// `data` is {"plans": [manifests], "shown", "diff", "command"}.
std::string audit_page(const nlohmann::json& data);

}  // namespace reprise
