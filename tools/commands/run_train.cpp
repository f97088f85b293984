// `reprise train`: plans a recipe, compiles the plan, which proves it, and runs the program; in a folder of the user's cache, with what
// `make install` has installed or with the checkout that this program was built in. Where neither is, as on a board, and of a plan file, this
// program is the one that runs, and proves the plan itself.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

#include "tools/commands/plan_folder.h"
#include "tools/commands/recipe_options.h"
#include "tools/commands/tree.h"
#include "tools/data/check_data.h"
#include "tools/formats/checksum.h"
#include "tools/formats/error.h"
#include "tools/formats/file_lock.h"
#include "tools/formats/leftovers.h"
#include "tools/formats/output_file.h"
#include "tools/progress/long_work.h"
#include "tools/session/filed_plans.h"
#include "tools/session/program_options.h"
#include "tools/training/program.h"
#include "tools/writing/plan_file.h"

namespace reprise {

namespace {

namespace fs = std::filesystem;

// One for each recipe, wherever recipes of the same name lie.
std::string cache_folder(const std::string& recipe, const std::string& name) {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  const bool has_cache = cache != nullptr && *cache == '/', has_home = home != nullptr && *home == '/';  // else passed over
  if (!has_cache && !has_home) throw UserError("reprise train: HOME or XDG_CACHE_HOME must name a folder for the compiled program, by a path from /");
  const std::string base = has_cache ? cache : std::string(home) + "/.cache";
  return base + "/reprise/" + name + "-" + checksum_of(fs::absolute(recipe).lexically_normal().string()).substr(0, 8);
}

// Returns the adapter's folder: beside the recipe if that folder can be written, else in the working folder; one for each recipe.
std::string adapter_place(const std::string& recipe, const std::string& name) {
  const fs::path beside = fs::absolute(recipe).parent_path();
  const bool can_be_written = ::access(beside.c_str(), W_OK | X_OK) == 0;
  return ((can_be_written ? beside : fs::current_path()) / (name + ".adapter")).string();
}

void add_words(std::vector<std::string>& words, const std::string& text) {
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word);
}

// Runs a compiler with its output on stderr. Throws UserError where it fails; `about` begins the line.
void run_compiler(const std::string& about, const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);  // a signal's handler ends the compiler with all that it has started
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::execvp(arguments[0], arguments.data());
    std::cerr << words[0] << ": cannot be run: " << std::strerror(errno) << "\n";
    ::_exit(127);
  }
  ::setpgid(child, child);  // whoever of the two is first
  const RunningChild running(child);
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) throw UserError(words[0] + ": cannot be run: " + std::strerror(errno));
  if (WIFSIGNALED(status)) throw UserError(about + ": not compiled: signal " + std::to_string(WTERMSIG(status)) + " ended " + words[0]);
  if (status != 0) throw UserError(about + ": cannot be compiled; the compiler's words are above");
}

// What a training program is made of beside its plan.
struct Parts {
  std::string main_source;
  std::vector<std::string> libraries;
  std::vector<std::string> link_flags;
};

// `"backend": "auto"` is for the CPU alone where CUDA's kernels have not been compiled; "cuda" needs them.
Parts parts_of(const Tree& tree, const Recipe& recipe) {
  Parts parts = {tree.main_source(), {tree.tools_library, tree.library}, {}};
  const bool has_cuda = fs::exists(tree.cuda_library), wants_cuda = recipe.backend == Recipe::BackendChoice::kCuda;
  if (wants_cuda && !has_cuda) {
    throw UserError("reprise train: " + tree.cuda_library + ": missing, which \"backend\": \"cuda\" needs; run `make install-cuda` where nvcc is, or take \"cpu\" or \"auto\"");
  }
  if (recipe.backend != Recipe::BackendChoice::kCpu && has_cuda) {
    parts.main_source = tree.main_source(wants_cuda ? "train_cuda" : "train_auto");
    parts.libraries.push_back(tree.cuda_library);
    add_words(parts.link_flags, REPRISE_CUDA_LINK_FLAGS);
  }
  add_words(parts.link_flags, REPRISE_LINK_FLAGS);
  return parts;
}

// The program is compiled again where the plan, the libraries or the command have changed since. One that runs keeps its own file.
void compile_program(const Tree& tree, const Recipe& recipe, const std::string& folder) {
  const Parts parts = parts_of(tree, recipe);
  const char* chosen = std::getenv("CXX");
  std::vector<std::string> command;
  add_words(command, chosen != nullptr && *chosen != 0 ? chosen : REPRISE_COMPILER);
  add_words(command, REPRISE_COMPILE_FLAGS);
  command.insert(command.end(), {"-I" + tree.include, "-I" + folder, parts.main_source});
  command.insert(command.end(), parts.libraries.begin(), parts.libraries.end());
  command.insert(command.end(), {"-o", folder + "/train.new"});
  command.insert(command.end(), parts.link_flags.begin(), parts.link_flags.end());
  std::string made_of;
  for (const std::string& word : command) made_of += word + "\n";
  std::vector<std::string> files = parts.libraries;
  files.insert(files.end(), {folder + "/plan.h", parts.main_source});
  if (fs::exists(folder + "/cuda/plan.h")) files.push_back(folder + "/cuda/plan.h");
  for (const std::string& file : files) {
    const FileSum sum = sum_of_file(file);
    made_of += file + " " + std::to_string(sum.bytes) + " " + sum.checksum + "\n";
  }
  const std::string record = folder + "/compiled";
  if (fs::exists(folder + "/train") && fs::exists(record) && read_file(record) == made_of) return;
  std::error_code ignored;  // a record that stays says so when it is written
  fs::remove(record, ignored);
  std::cerr << "  compile and prove " << folder << "/plan.h\n";
  const LongWork work("compiling");
  const Leftover unfinished(folder + "/train.new");
  run_compiler(folder + "/plan.h", command);
  fs::rename(folder + "/train.new", folder + "/train");
  write_file(record, made_of);
}

// The options of the program, as its own --help shows them.
std::string help_of_program(uint32_t most_workers) {
  OptionParser app("", "");
  ProgramOptions options;
  options.add_to(app, 0, false, most_workers);
  return "Behind these stand the options of the training program, beginning with the first one that is not listed above, as in\n"
         "reprise train RECIPE --budget 40MiB --steps 100 --save DIR:\n" + app.help_of_options();
}

// The status to end with where the program's arguments are wrong, or ask for help: it would say so itself, but only once it is planned
// and compiled. Fills in the options. Throws UserError.
std::optional<int> status_of(const std::vector<std::string>& arguments, const OptionParser& parser, const Recipe& recipe, uint32_t most_workers,
                            ProgramOptions& options) {
  OptionParser app("Options of the training program.", "reprise train");
  options.add_to(app, recipe.schedule.disk_bytes, recipe.weights.stream != WeightsRecipe::Stream::kNone, most_workers);
  const auto refuse_own_options = [&] {
    for (const std::string& word : arguments) {
      const std::string name = word.substr(0, word.find('='));
      if (!parser.has_option(name) || app.has_option(name)) continue;
      throw UserError("reprise train: " + name + ": must stand before " + arguments.front() + ", with which the options of the training program begin; " +
                      "see reprise train --help", UserError::kUsage);
    }
  };
  if (const std::optional<int> status = app.parse(arguments, "reprise train", refuse_own_options)) return status;
  options.check(recipes_of_plans(recipe).size());
  return std::nullopt;
}

// What would end the program before its first step ends it before it is planned.
void look_first(const Recipe& recipe, const RecipeRules& rules, const ProgramOptions& options) {
  if (options.init.empty() && options.resume.empty()) {
    if (const std::string missing = missing_weights(recipe); !missing.empty()) throw UserError(missing);
    if (options.init_skip.empty()) look_at_weights(recipe, rules, true);
  }
  if (!options.trains() && !options.evaluate) return;
  look_at_data(recipe, true);
}

// The beginning of a file tells whether it is a plan.
bool begins_as_plan(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;  // a pipe could not be read a second time
  std::ifstream file(path, std::ios::binary);
  std::string beginning(16, '\0');
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  return is_plan_file(beginning);
}

int run_here(const FiledPlans& plans, const std::vector<std::string>& arguments, const Port& port) {
  std::string name = "reprise train";
  std::vector<std::string> words = arguments;
  std::vector<char*> pointers = {name.data()};
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return run_filed_plans(plans, {&port}, static_cast<int>(pointers.size() - 1), pointers.data());
}

int run_train(const RecipeOptions& options, const OptionParser& parser, const Port& port) {
  std::vector<std::string> arguments = parser.remaining();
  if (begins_as_plan(options.recipe)) {
    if (const std::string given = options.first_given(); !given.empty()) {
      throw UserError("reprise train: " + given + ": has no effect on " + options.recipe + ", a plan file, whose plan is made", UserError::kUsage);
    }
    return run_here(FiledPlans(options.recipe), arguments, port);
  }
  if (!arguments.empty() && !fs::exists(options.recipe)) {
    throw UserError("reprise train: " + options.recipe + ": is no recipe; the recipe comes first, as in reprise train RECIPE " + arguments.front(),
                    UserError::kUsage);
  }
  RecipeRules rules;
  const Recipe recipe = options.read(rules);
  ProgramOptions training;
  if (const std::optional<int> status = status_of(arguments, parser, recipe, port.most_workers, training)) return *status;
  if (training.check_data) return check_data(recipe, training.threads);
  look_first(recipe, rules, training);
  if (recipe.lora && training.adapter.empty() && training.trains()) arguments.insert(arguments.end(), {"--adapter", adapter_place(options.recipe, recipe.name)});
  const std::optional<Tree> tree = find_tree();
  const std::string folder = cache_folder(options.recipe, recipe.name);
  // Another `reprise train` of the recipe may be planning or compiling for another budget: one at a time, until its program has started, when exec
  // gives the lock back, or until this one has read its plan.
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  FileLock lock(folder + "/lock", "waiting for another reprise train of this recipe");
  plan_into(options, folder, tree ? PlanForm::kHeader : PlanForm::kFile);
  if (!tree) {
    const FiledPlans plans(folder + "/plan.bin");
    lock.give_back();
    return run_here(plans, arguments, port);
  }
  compile_program(*tree, recipe, folder);
  const std::string program = folder + "/train";
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  throw UserError(program + ": cannot be run: " + std::strerror(errno));
}

}  // namespace

Command add_train(OptionParser& app, const Port& port) {
  const auto options = std::make_shared<RecipeOptions>();
  OptionParser* parser = app.add_subcommand("train", "plan, compile and train a recipe; behind the options of planning stand those of the program, as --steps 100");
  options->add_to(*parser);
  options->add_schedule_to(*parser);
  options->add_profile_to(*parser, port);
  parser->prefix_command();
  parser->footer([&port] { return help_of_program(port.most_workers); });
  return {parser, [options, parser, &port] { return run_train(*options, *parser, port); }};
}

}  // namespace reprise
