// The audit as one HTML file that needs no other file: it contains its styles, its scripts and the
// plans that it draws. The sources are in tools/plan/audit/page/; the build joins them to one text.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace reprise {

// Returns the page. `data` is {"plans": [manifest...], "shown": index, "diff": null or the output
// of `audit --diff --json`, "commands": the command that makes each plan}. Strings in `data` may
// contain any bytes: bytes that are not UTF-8 are replaced, and no string can begin or end a
// script.
std::string audit_page(const nlohmann::json& data);

// Returns a list of objects as columns: {"length": n, "columns": {name: [n values]}}. If at most
// half of the values in a column are distinct, the column is {"values": [distinct...], "index":
// [n...]}. A key that an object lacks is null. The page contains this form, because it is smaller
// and faster to read.
nlohmann::json by_columns(const nlohmann::json& objects);

}  // namespace reprise
