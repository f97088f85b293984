// Uses only the plan's hash to check that the file belongs to the program, because an older version
// of reprise may have written it.
#include "tools/run/training/program_manifest.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/run/session/session.h"

namespace reprise {

using nlohmann::json;

const char* program_name(ProgramId id) {
  const char* const names[kProgramCount] = {"micro_first", "micro_add", "micro_last", "update", "evaluate", "generate"};
  return names[static_cast<uint32_t>(id)];
}

json* manifest_of_plan(json& manifest, const std::string& hash) {
  if (!manifest.is_object()) return nullptr;
  if (manifest.value("plan_hash", json()) == hash) return &manifest;
  const auto others = manifest.find("other_budgets");
  if (others == manifest.end() || !others->is_array()) return nullptr;
  for (json& each : *others) {
    if (each.is_object() && each.value("plan_hash", json()) == hash) return &each;
  }
  return nullptr;
}

std::vector<std::string> manifest_places(const CompiledPlan& compiled) {
  return {run_folder(compiled) + "/manifest.json", run_folder(compiled) + "/cuda/manifest.json"};
}

json manifest_of_program(const CompiledPlan& compiled, const std::string& option) {
  const std::string folder = run_folder(compiled);
  std::string refusal =
      folder + "/manifest.json: " + option + ": missing; `reprise plan RECIPE -o " + folder + "` writes it again";
  for (const std::string& path : manifest_places(compiled)) {
    if (!std::filesystem::exists(path)) continue;
    json manifest = parse_json(read_file(path), path);
    if (manifest_of_plan(manifest, compiled.hash) != nullptr) return manifest;
    const json hash = manifest.is_object() ? manifest.value("plan_hash", json()) : json();
    refusal = path + ": plan_hash: is " + hash.dump().substr(0, 40) + ", and this program runs plan \"" +
              compiled.hash + "\"; plan and compile again";
  }
  throw UserError(refusal);
}

json manifest_if_there(const CompiledPlan& compiled) {
  try {
    json manifest = manifest_of_program(compiled, "");
    return *manifest_of_plan(manifest, compiled.hash);
  } catch (const UserError&) {
    return nullptr;
  }
}

}  // namespace reprise
