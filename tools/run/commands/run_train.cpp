// `reprise train`: plans a recipe into a folder of the user's cache, proves the plan and trains
// with it. If the argument is a plan file, this program proves it and trains with it.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>

#include "lib/backend.h"
#include "tools/files/formats/checksum.h"
#include "tools/files/io/error.h"
#include "tools/files/io/exception_text.h"
#include "tools/files/io/file_lock.h"
#include "tools/files/io/leftovers.h"
#include "tools/plan/writing/plan_file.h"
#include "tools/run/commands/plan_folder.h"
#include "tools/run/commands/recipe_options.h"
#include "tools/run/data/check_data.h"
#include "tools/run/session/filed_plans.h"
#include "tools/run/session/program_options.h"
#include "tools/run/session/status_text.h"
#include "tools/run/session/stop_signal.h"
#include "tools/run/training/program.h"

namespace reprise {

namespace {

namespace fs = std::filesystem;

// Returns the cache folder of a recipe. Recipes with the same name in different folders have
// different cache folders.
std::string cache_folder(const std::string& recipe, const std::string& name) {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  // A relative path is ignored.
  const bool has_cache = cache != nullptr && *cache == '/', has_home = home != nullptr && *home == '/';
  if (!has_cache && !has_home)
    throw UserError("reprise train: HOME or XDG_CACHE_HOME must name a folder for the plan, by a path from /");
  const std::string base = has_cache ? cache : std::string(home) + "/.cache";
  return base + "/reprise/" + name + "-" + checksum_of(fs::absolute(recipe).lexically_normal().string()).substr(0, 8);
}

// Returns the path of the folder NAME.adapter for the trained adapter, where NAME is the recipe's
// name. It is in the recipe's folder if that is writable, otherwise in the working folder.
std::string adapter_place(const std::string& recipe, const std::string& name) {
  const fs::path beside = fs::absolute(recipe).parent_path();
  const bool can_be_written = ::access(beside.c_str(), W_OK | X_OK) == 0;
  return ((can_be_written ? beside : fs::current_path()) / (name + ".adapter")).string();
}

// Plans the recipe into plan.bin files of the folder, in a child process: the memory that planning
// takes is then not part of the training. Returns 0, or the exit status after an error that the
// child has reported. Throws UserError if the child does not run to its end.
int plan_in_child(const RecipeOptions& options, const std::string& folder) {
  const pid_t child = ::fork();
  if (child == 0) {
    // Starts a process group for the child. If a signal ends the parent, its handler ends this
    // group.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    silence_stop_signals();
    int status = 0;
    try {
      plan_into(options, folder, PlanForm::kFile);
    } catch (const UserError& error) {
      std::cerr << error.what() << "\n";
      status = error.status;
    } catch (const std::exception& error) {
      std::cerr << "reprise train: " << words_of(error) << "\n";
      status = UserError::kBadInput;
    }
    std::cerr.flush();
    ::_exit(status);
  }
  ::setpgid(child, child);  // both processes do this, because either may run first
  const RunningChild running(child);
  int status = 0;
  pid_t ended = -1;
  do {
    ended = child < 0 ? -1 : ::waitpid(child, &status, 0);
  } while (ended < 0 && child > 0 && errno == EINTR);
  if (ended < 0) throw UserError(options.recipe + ": not planned: no process to plan in: " + std::strerror(errno));
  if (WIFSIGNALED(status)) {
    throw UserError(options.recipe + ": not planned: signal " + std::to_string(WTERMSIG(status)) +
                    " ended the process that plans");
  }
  return WEXITSTATUS(status);
}

// Returns the options of the training program, as its own --help prints them.
std::string help_of_program(uint32_t max_workers) {
  OptionParser app("", "");
  ProgramOptions options;
  options.add_to(app, 0, false, max_workers);
  return "The options of the training program follow, beginning with the first one that is not listed above, as in\n"
         "reprise train RECIPE --budget 40MiB --steps 100 --save DIR:\n" +
         app.help_of_options();
}

// Parses the program's arguments into `options`. Returns the exit status if they ask for help or
// are wrong; the program itself would report this only after planning. Throws
// UserError.
std::optional<int> status_of(const std::vector<std::string>& arguments, const OptionParser& parser,
                             const Recipe& recipe, uint32_t max_workers, ProgramOptions& options) {
  OptionParser app("Options of the training program.", "reprise train");
  options.add_to(app, recipe.schedule.disk_bytes, recipe.weights.stream != WeightsRecipe::Stream::kNone, max_workers);
  app.suggest_also(parser);
  const auto refuse_own_options = [&] {
    for (const std::string& word : arguments) {
      const std::string name = word.substr(0, word.find('='));
      if (!parser.has_option(name) || app.has_option(name)) continue;
      throw UserError("reprise train: " + name + ": must stand before " + arguments.front() +
                          ", with which the options of the training program begin; " + "see reprise train --help",
                      UserError::kUsage);
    }
  };
  if (const std::optional<int> status = app.parse(arguments, "reprise train", refuse_own_options)) return status;
  options.check(recipes_of_plans(recipe).size());
  return std::nullopt;
}

// Throws UserError for errors that would end the program before its first step. Called before
// planning.
void look_first(const Recipe& recipe, const RecipeRules& rules, const ProgramOptions& options) {
  if (options.init.empty() && options.resume.empty()) {
    if (const std::string missing = missing_weights(recipe); !missing.empty()) throw UserError(missing);
    if (options.init_skip.empty()) look_at_weights(recipe, rules, true);
  }
  if (!options.trains() && !options.evaluate) return;
  look_at_data(recipe, true);
}

// True if the file begins like a plan file.
bool begins_as_plan(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;  // a pipe could not be read a second time
  std::ifstream file(path, std::ios::binary);
  std::string beginning(16, '\0');
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  return is_plan_file(beginning);
}

// Plans of files, in the order in which they are tried.
using Plans = std::vector<std::unique_ptr<FiledPlans>>;

int run_plans(const Plans& plans, const std::vector<std::string>& arguments, const std::vector<const Port*>& boards) {
  std::string name = "reprise train";
  std::vector<std::string> words = arguments;
  std::vector<char*> pointers = {name.data()};
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return run_filed_plans(plans, boards, static_cast<int>(pointers.size() - 1), pointers.data());
}

// Returns an empty text if one of the boards can run CUDA's kernels now; otherwise the reason.
std::string problem_of_card(const std::vector<const Port*>& boards) {
  if (boards.size() == 1) return "this program was built for the CPU alone";
  Status refusal;
  for (const Port* board : boards) {
    Backend backend;
    const Status status = board->open_backend("cuda", &backend);
    if (status.ok()) board->close_backend(&backend);
    if (status.ok()) return "";
    if (refusal.ok()) refusal = status;
  }
  return message_of(refusal);
}

int run_train(const RecipeOptions& options, const OptionParser& parser, const std::vector<const Port*>& boards) {
  std::vector<std::string> arguments = parser.remaining();
  Plans plans;
  if (begins_as_plan(options.recipe)) {
    if (const std::string given = options.first_given(); !given.empty()) {
      throw UserError("reprise train: " + given + ": has no effect on " + options.recipe +
                          ", a plan file, whose plan is made",
                      UserError::kUsage);
    }
    plans.push_back(std::make_unique<FiledPlans>(options.recipe));
    return run_plans(plans, arguments, boards);
  }
  if (!arguments.empty() && !fs::exists(options.recipe)) {
    throw UserError("reprise train: " + options.recipe +
                        ": is no recipe; the recipe comes first, as in reprise train RECIPE " + arguments.front(),
                    UserError::kUsage);
  }
  RecipeRules rules;
  const Recipe recipe = options.read(rules);
  ProgramOptions training;
  if (const std::optional<int> status = status_of(arguments, parser, recipe, boards.back()->max_workers, training))
    return *status;
  if (training.check_data) return check_data(recipe, training.threads);
  const bool is_auto = recipe.backend == Recipe::BackendChoice::kAuto,
             asks_for_card = is_auto || recipe.backend == Recipe::BackendChoice::kCuda;
  const std::string problem = asks_for_card ? problem_of_card(boards) : "";
  if (!problem.empty() && !is_auto) {
    throw UserError(options.recipe + ": backend: \"cuda\": " + problem +
                    "; `make run`, or the reprise that `make install-cuda` installs, trains on a card; or take "
                    "\"cpu\" or \"auto\"");
  }
  if (!problem.empty() && !training.quiet) std::cerr << "backend auto: " << problem << "; it trains on the CPU\n";
  look_first(recipe, rules, training);
  if (recipe.lora && training.adapter.empty() && training.trains())
    arguments.insert(arguments.end(), {"--adapter", adapter_place(options.recipe, recipe.name)});
  const std::string folder = cache_folder(options.recipe, recipe.name);
  // Another `reprise train` of this recipe may plan with another budget. The lock admits one
  // process at a time, from the planning until the process has read its plan.
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  FileLock lock(folder + "/lock", "waiting for another reprise train of this recipe");
  if (const int status = plan_in_child(options, folder); status != 0) return status;
  if (is_auto && problem.empty()) plans.push_back(std::make_unique<FiledPlans>(folder + "/cuda/plan.bin"));
  plans.push_back(std::make_unique<FiledPlans>(folder + "/plan.bin"));
  lock.give_back();
  return run_plans(plans, arguments, boards);
}

}  // namespace

Command add_train(OptionParser& app, const std::vector<const Port*>& boards) {
  const auto options = std::make_shared<RecipeOptions>();
  OptionParser* parser = app.add_subcommand(
      "train",
      "plan and train a recipe; the options of planning are followed by those of the program, as in --steps 100");
  options->add_to(*parser);
  options->add_schedule_to(*parser);
  const Port& host = *boards.back();
  options->add_profile_to(*parser, host);
  parser->prefix_command();
  parser->footer([&host] { return help_of_program(host.max_workers); });
  return {parser, [options, parser, boards] { return run_train(*options, *parser, boards); }};
}

}  // namespace reprise
