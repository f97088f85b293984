// The manifest of a plan: all data of an audit as one JSON value (tools/FILES.md). All numbers in
// reports, pages, diffs and gates are taken from it, and it is made from the plan itself.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/files/io/output.h"
#include "tools/plan/planning/planner.h"

namespace reprise {

constexpr int kManifestVersion = 2;

// Returns the manifest of a plan in canonical form: sorted keys, and no date or time.
nlohmann::json manifest_of(const SolvedModel& model, const PlannedModel& planned);

// Returns the manifest in a form to keep under version control: without the names of folders on
// this machine.
nlohmann::json portable_manifest(nlohmann::json manifest);

// True if `value` looks like a manifest of some version, and not like a recipe.
bool is_manifest(const nlohmann::json& value);
bool is_manifest_file(const std::string& path);  // false if the file cannot be read

constexpr OutputKind kManifestFile = {"manifest", is_manifest_file};

// Throws UserError "FILE: field: ..." if the manifest has another version, if a key is missing or
// of another kind, or if numbers contradict each other. After this check the fields can be used
// without further checks.
void check_manifest(const nlohmann::json& manifest, const std::string& file);

// Returns the manifest in a file, after check_manifest(). If the file is not a manifest, the error
// names `option`, from which the path came.
nlohmann::json read_manifest(const std::string& path, const std::string& option = "plan_hash");

}  // namespace reprise
