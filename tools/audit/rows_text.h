// A program as a listing: row by row what runs, what it reads and writes, and why it is there, as SQLite's EXPLAIN lists a statement.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace reprise {

// "advance links 0 to 2, holding residue 1": an action of the schedule in words. `links` are the manifest's.
std::string action_words(const nlohmann::json& action, const nlohmann::json& links);

// The rows with names in the place of references: {"row", "op", "synopsis", "link", "stage", "why", "reads": [names], "writes": [names], "live_bytes",
// "seconds"}; the synopsis is "" of a kernel that this program does not know.
// The manifest is one that check_manifest has passed. Throws UserError where it has no such program.
nlohmann::json named_rows(const nlohmann::json& manifest, const std::string& program);

std::string rows_text(const nlohmann::json& rows);

}  // namespace reprise
