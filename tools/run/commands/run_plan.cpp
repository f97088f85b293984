// `reprise plan`: writes DIR/plan.h or DIR/plan.bin, and DIR/manifest.json, for a recipe.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/files/io/output_file.h"
#include "tools/files/progress/long_work.h"
#include "tools/plan/audit/manifest.h"
#include "tools/plan/costs/backends.h"
#include "tools/plan/planning/smaller_budgets.h"
#include "tools/plan/writing/plan_file.h"
#include "tools/plan/writing/plan_header.h"
#include "tools/plan/writing/summary.h"
#include "tools/run/commands/plan_folder.h"
#include "tools/run/commands/plan_source.h"

namespace reprise {

namespace {

bool begins_with(const std::string& path, const std::string& text) {
  std::ifstream file(path, std::ios::binary);
  std::string beginning(text.size(), '\0');
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  return beginning == text;
}

constexpr OutputKind kHeaderFile = {"plan", [](const std::string& path) { return begins_with(path, kPlanHeaderMark); }};
constexpr OutputKind kPlanFile = {"plan", [](const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string beginning(16, '\0');
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  return is_plan_file(beginning);
}};

struct PlanOutput {
  std::string path, text;
  OutputKind kind;
};

bool holds(const std::string& path, const std::string& text) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         static_cast<uint64_t>(status.st_size) == text.size() && read_file(path) == text;
}

// Writes all files or none. If a file already has the right contents, only its time is updated, so
// that make does not plan again.
void write_files(const std::vector<PlanOutput>& files, const std::vector<std::string>& inputs) {
  std::vector<Output> outputs;
  for (const PlanOutput& file : files) outputs.emplace_back(file.path, file.kind, inputs);
  std::vector<std::string> staged(files.size());
  try {
    for (size_t i = 0; i < files.size(); ++i) {
      if (!holds(files[i].path, files[i].text))
        staged[i] = outputs[i].stage([&](const std::string& to) { write_file(to, files[i].text); });
    }
    for (const Output& output : outputs) output.check();
  } catch (const UserError&) {
    for (const std::string& name : staged) ::unlink(name.c_str());
    throw;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string& path = files[i].path;
    if (!staged[i].empty()) outputs[i].place(staged[i]);
    else if (::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) != 0)
      throw UserError(path + ": cannot be replaced: " + std::strerror(errno));
  }
}

// Throws UserError if an output would replace a file of another kind. Called before planning.
void refuse_foreign_files(const std::string& folder, PlanForm form, const std::vector<std::string>& inputs) {
  const bool is_file = form == PlanForm::kFile;
  for (const std::string& in : {folder, folder + "/cuda"}) {
    const Output manifest(in + "/manifest.json", kManifestFile, inputs),
        plan(in + (is_file ? "/plan.bin" : "/plan.h"), is_file ? kPlanFile : kHeaderFile, inputs);
  }
}

void make_folders(const std::string& path) {
  if (path.empty()) throw UserError("--output: must be a folder, not \"\"");
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
      throw UserError(folder + ": cannot be made: " + std::strerror(errno));
    struct stat status;
    if (::stat(folder.c_str(), &status) == 0 && !S_ISDIR(status.st_mode))
      throw UserError(folder + ": is a file; give a folder for the plan and manifest.json");
    if (slash == std::string::npos) return;
  }
}

void warn_of_missing_kernels(const SolvedModel& model, const OwnedPlan& plan) {
  const BackendRules& rules = backend_of(model.recipe);
  const std::vector<std::string> missing = missing_kernels(rules, plan);
  if (missing.empty()) return;
  std::cerr << "warning: \"" << rules.name << "\" has no kernel yet for ";
  for (size_t i = 0; i < missing.size(); ++i) std::cerr << (i == 0 ? "" : ", ") << missing[i];
  std::cerr << ": the plan is proved, but no program can run it, and kernels to come may want more scratch\n";
}

// The files of a folder: a plan and a manifest. Each file has all of the program's plans.
struct PlanFiles {
  std::string summary;
  std::vector<PlanOutput> files;
};
// Makes a plan for each of `budgets`, and returns the files. `space` is the namespace of the
// header.
PlanFiles plan_files(const SolvedModel& model, const std::vector<uint64_t>& budgets, const std::string& folder,
                     const std::string& space, PlanForm form) {
  const std::vector<PlanOfBudget> plans = plans_of_budgets(model, budgets);
  std::vector<PlanHeaderParts> parts;
  std::vector<FiledPlan> filed;
  PlanFiles made;
  for (const PlanOfBudget& each : plans) {
    warn_of_missing_kernels(each.model, each.planned.plan);
    parts.push_back({each.planned.plan,
                     backend_of(each.model.recipe),
                     canonical_recipe(each.model.recipe),
                     summary_of(each.model, each.planned),
                     {},
                     space});
    for (const SmallerBudget& smaller : smaller_budgets(each.model, each.planned))
      parts.back().smaller_budgets.push_back(smaller.budget_bytes);
    made.summary += (made.summary.empty() ? "" : "\nand when told, between steps:\n") + parts.back().summary;
    if (form == PlanForm::kFile)
      filed.push_back({each.planned.plan, parts.back().recipe, parts.back().summary, plan_hash(each.planned.plan),
                       parts.back().smaller_budgets});
  }
  made.files = {{folder + "/manifest.json", manifest_of_plans(plans).dump(1) + "\n", kManifestFile}};
  if (form == PlanForm::kFile) made.files.push_back({folder + "/plan.bin", plan_file(filed), kPlanFile});
  else
    made.files.push_back(
        {folder + "/plan.h", plan_header(parts.front(), {parts.begin() + 1, parts.end()}), kHeaderFile});
  return made;
}

}  // namespace

std::string plan_into(const RecipeOptions& options, const std::string& folder, PlanForm form) {
  refuse_foreign_files(folder, form, options.inputs());
  const SolvedModel model = options.solve();
  const std::vector<uint64_t> budgets = options.read().budgets;
  PlanFiles made = plan_files(model, budgets, folder, "generated", form);
  const bool is_auto = model.recipe.backend == Recipe::BackendChoice::kAuto;
  if (is_auto) {
    const PlanFiles card = plan_files(options.solve_for_card(), budgets, folder + "/cuda", "generated_cuda", form);
    made.files.insert(made.files.end(), card.files.begin(), card.files.end());
    made.summary += "\nand for a card:\n" + card.summary;
  }
  make_folders(is_auto ? folder + "/cuda" : folder);
  const LongWork work("writing " + folder);
  write_files(made.files, options.inputs());
  return made.summary;
}

Command add_plan(OptionParser& app, const Port& port) {
  struct PlanOptions {
    RecipeOptions recipe;
    std::string folder;
    std::string core;
    bool binary = false;
  };
  const auto options = std::make_shared<PlanOptions>();
  OptionParser* parser = app.add_subcommand("plan", "write DIR/plan.h and DIR/manifest.json for a recipe");
  options->recipe.add_to(*parser);
  options->recipe.add_schedule_to(*parser);
  options->recipe.add_profile_to(*parser, port);
  parser->add_option("-o,--output", options->folder, "folder")->required();
  parser
      ->add_option("--core", options->core,
                   "small: for a microcontroller, whatever the recipe says; `make run-board` gives it")
      ->one_of({"small"});
  parser->add_flag("--binary", options->binary,
                   "write DIR/plan.bin in place of DIR/plan.h: programs that are compiled already take it, by --plan "
                   "or `reprise train`");
  return {parser, [options] {
            options->recipe.look_first();
            if (options->core == "small" && options->recipe.read().core != Recipe::CoreSize::kSmall) {
              options->recipe.small_core = true;
              std::cerr << options->recipe.recipe << ": " << kSmallCoreWords << "\n";
            }
            std::cerr << plan_into(options->recipe, options->folder,
                                   options->binary ? PlanForm::kFile : PlanForm::kHeader)
                      << "\n";
            return 0;
          }};
}

}  // namespace reprise
