// The manifest of a plan: all that an audit shows, as one JSON value (tools/FORMATS.md).
// Here so that every number of a report, a page, a diff or a gate comes from one place, and that place from the plan itself.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/formats/output.h"
#include "tools/planning/planner.h"

namespace reprise {

constexpr int kManifestVersion = 2;

// Canonical: sorted keys, no times of day.
nlohmann::json manifest_of(const SolvedModel& model, const PlannedModel& planned);

// Whether that is meant as a manifest, of whatever version, and not as a recipe.
bool is_manifest(const nlohmann::json& value);
bool is_manifest_file(const std::string& path);  // false too where it cannot be read

constexpr OutputKind kManifestFile = {"manifest", is_manifest_file};

// Throws UserError "FILE: field: ..." for another version, a key that is missing or of another kind, and numbers that contradict each
// other: what follows may then use every field without a look.
void check_manifest(const nlohmann::json& manifest, const std::string& file);

// A file's, checked. `option`: what names the file, for the message where it is none.
nlohmann::json read_manifest(const std::string& path, const std::string& option = "plan_hash");

}  // namespace reprise
