// A program as a listing, similar to SQLite's EXPLAIN: for each row, what runs, what it reads and
// writes, and why.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace reprise {

// Returns an action of the schedule in words, for example "advance transformer.wte to head, holding
// residue 1". `links` is the list of links in the manifest.
std::string action_words(const nlohmann::json& action, const nlohmann::json& links);

// Returns the rows with names in place of references: {"row", "op", "synopsis", "link", "stage",
// "why", "reads": [names], "writes": [names], "live_bytes", "seconds"}. The synopsis is "" if this
// version of reprise has no such kernel. The manifest must have passed check_manifest(). Throws
// UserError if it has no such program.
nlohmann::json named_rows(const nlohmann::json& manifest, const std::string& program);

// Returns the result of named_rows() as text.
std::string rows_text(const nlohmann::json& rows);

}  // namespace reprise
