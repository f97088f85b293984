// The audit as one HTML file that works from the disk, with nothing beside it: its styles, its scripts and the plans that it draws.
// tools/audit/page/ holds the page as people write it; the build makes one text of it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace reprise {

// `data` is {"plans": [manifest...], "shown": index, "diff": null or what `audit --diff --json` prints, "commands": what makes each plan}.
// Any text may stand in it: bytes that are no UTF-8 are replaced, and no name can end a script or begin one.
std::string audit_page(const nlohmann::json& data);

// A list of objects by columns: {"length": n, "columns": {name: [n values]}}, where a column of which at most half is distinct is
// {"values": [distinct...], "index": [n...]}. A key that an object lacks is null. For the page, where it is smaller and quicker to read.
nlohmann::json by_columns(const nlohmann::json& objects);

}  // namespace reprise
