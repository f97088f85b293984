// The training program's command line and error messages. An error is one line on stderr; the last
// snapshot stays complete.
#include "tools/run/training/program.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>

#include "lib/backend.h"
#include "tools/files/io/error.h"
#include "tools/files/io/exception_text.h"
#include "tools/files/io/memory_end.h"
#include "tools/files/io/shell_word.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/files/progress/shown_output.h"
#include "tools/run/data/check_data.h"
#include "tools/run/inference/answer.h"
#include "tools/run/inference/dialogue.h"
#include "tools/run/inference/predict.h"
#include "tools/run/session/command_line.h"
#include "tools/run/session/filed_plans.h"
#include "tools/run/session/files_here.h"
#include "tools/run/session/plan_signals.h"
#include "tools/run/session/program_options.h"
#include "tools/run/session/session.h"
#include "tools/run/session/status_text.h"
#include "tools/run/session/stop_signal.h"
#include "tools/run/training/pause.h"
#include "tools/run/training/plan_requests.h"
#include "tools/run/training/training_run.h"

namespace reprise {

namespace {

// Tries to open the plan's backend and to acquire its arena. Returns the reason if the board cannot
// do so now.
Status try_board(const CompiledPlan& choice) {
  Backend backend;
  REPRISE_RETURN_IF_ERROR(choice.port.open_backend(choice.plan.backend, &backend));
  Arena arena;
  const Status status = choice.port.acquire_arena(choice.plan.arena_bytes + kGuardBytes, &arena);
  choice.port.release_arena(&arena);
  choice.port.close_backend(&backend);
  return status;
}

// Returns each choice with the plan that --start-budget names.
std::vector<CompiledPlan> started(const std::vector<CompiledPlan>& choices, const std::string& start_budget) {
  if (start_budget.empty()) return choices;
  std::vector<CompiledPlan> started;
  for (const CompiledPlan& choice : choices) {
    std::string problem;
    const std::optional<uint32_t> plan = PlanSizes(choice).find(start_budget, problem);
    if (!plan) throw UserError("--start-budget: " + problem);
    started.push_back(plan_at(choice, *plan));
  }
  return started;
}

// Returns the argument of --plan; nothing if it is not given. It is read before the other options,
// because they depend on the plan.
std::optional<std::string> plan_option(int argc, char** argv) {
  const std::string option = "--plan";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with(option + "=")) return word.substr(option.size() + 1);
    if (word == option && i + 1 < argc && argv[i + 1][0] != '-') return argv[i + 1];
  }
  return std::nullopt;
}

CompiledPlan choose_plan(const std::vector<CompiledPlan>& choices, bool quiet) {
  const CompiledPlan& last = choices.back();
  const auto say = [quiet](const std::string& words) {
    if (!quiet) std::cerr << "backend auto: " << words << "\n";
  };
  if (choices.size() == 1) {
    const bool is_auto =
        !last.is_filed() && parse_recipe(last.recipe, last.plan.name, "/").backend == Recipe::BackendChoice::kAuto;
    if (is_auto) say("this program was built for the CPU alone, it trains there");
    return last;
  }
  for (size_t i = 0; i + 1 < choices.size(); ++i) {
    const Status status = try_board(choices[i]);
    say((status.ok() ? "trains on " : "not on ") + std::string(choices[i].plan.backend) +
        (status.ok() ? "" : ": " + message_of(status)));
    if (status.ok()) return choices[i];
  }
  say("trains on " + std::string(last.plan.backend));
  return last;
}

// Replaces --continue by --resume if a snapshot exists; options for initial weights are then
// dropped.
void settle_continue(ProgramOptions& options) {
  const auto holds_snapshot = [](const std::string& folder) {
    return std::filesystem::exists(folder + "/training.json");
  };
  if (!options.go_on || (!holds_snapshot(options.save) && !holds_snapshot(options.save + ".saving/old"))) return;
  options.resume = options.save;
  options.init = options.init_adapter = "";
  options.init_skip.clear();
}

// Returns the plan with a recipe in which paths are valid on this machine (files_here.h).
CompiledPlan with_files_here(const CompiledPlan& compiled, const ProgramOptions& options) {
  static std::string recipe;  // static, because a program runs only one plan
  std::vector<std::string> said;
  recipe = recipe_with_files_here(compiled.recipe, compiled.plan.name, options, run_folder(compiled), said);
  for (size_t n = 0; n < said.size() && !options.quiet; ++n) std::cerr << said[n] << "\n";
  return {compiled.plan, recipe.c_str(), compiled.summary, compiled.port, compiled.hash, compiled.plans, compiled.file};
}

int run_choices(const std::vector<CompiledPlan>& choices, int argc, char** argv) {
  const Plan& plan = choices.front().plan;
  ProgramOptions options;
  OptionParser app(std::string("Trains ") + plan.name + " inside the " + bytes_text(plan.arena_bytes) +
                       " that its plan proves.",
                   "train");
  app.set_version(std::string("train of ") + plan.name);
  options.add_to(app, max_spill_bytes(choices.front(), SpillLevel::kDisk), plan.streamed_bytes > 0,
                 choices.front().port.max_workers);
  try {
    const std::string program = argc > 0 ? argv[0] : "train";  // usage errors name it and its --help
    if (const std::optional<int> status = app.parse(argc, argv, program)) return *status;
    const bool is_of_file = choices.front().is_filed() && options.plan.empty();  // true for `reprise train PLAN.bin`
    options.command = is_of_file
                          ? "reprise train " + shell_word(choices.front().file)
                          : shell_word(program) + (options.plan.empty() ? "" : " --plan " + shell_word(options.plan));
    for (int i = 1; i < argc; ++i) options.arguments.push_back(argv[i]);
    options.check(std::max<size_t>(1, choices.front().plans.count));
    settle_continue(options);
    if (options.quiet) silence_long_work();
    if (options.check_data)
      return check_data(parse_recipe(with_files_here(choices.front(), options).recipe, plan.name, "/"),
                        options.threads);
    if (choices.front().plans.count > 1) set_up_plan_signals(choices.front().plans.count);
    // Answering has nothing to save, so that the first signal may end the process.
    options.chat ? set_up_ending_signals() : set_up_signals();
    const CompiledPlan compiled =
        with_files_here(choose_plan(started(choices, options.start_budget), options.quiet), options);
    if (options.evaluate) return evaluate_weights(compiled, options);
    if (!options.predict.empty()) return predict_samples(compiled, options);
    if (!options.prompt.empty()) return answer_prompt(compiled, options);
    if (options.chat) return converse(compiled, options, std::cin);
    set_up_pause_signal();
    return train(compiled, options);
  } catch (const UserError& error) {
    std::cerr << error.what() << "\n";
    return stops_at_row() ? 128 + stop_signal() : error.status;
  } catch (const std::exception& error) {
    std::cerr << plan.name << ": " << words_of(error) << "\n";
    return 1;
  }
}

}  // namespace

int run_filed_plans(const std::vector<std::unique_ptr<FiledPlans>>& choices, const std::vector<const Port*>& boards,
                    int argc, char** argv) {
  std::vector<CompiledPlan> proved;
  for (const auto& plans : choices) proved.push_back(plans->proved_for(boards));
  return run_choices(proved, argc, argv);
}

int run_training(const std::vector<CompiledPlan>& choices, int argc, char** argv) {
  end_where_memory_is_short("train");
  const ShownOutput shown;
  const std::optional<std::string> file = plan_option(argc, argv);
  if (!file) return run_choices(choices, argc, argv);
  std::vector<const Port*> boards;
  for (const CompiledPlan& choice : choices) boards.push_back(&choice.port);
  try {
    std::vector<std::unique_ptr<FiledPlans>> plans;
    plans.push_back(std::make_unique<FiledPlans>(*file));
    return run_filed_plans(plans, boards, argc, argv);
  } catch (const UserError& error) {
    std::cerr << error.what() << "\n";
    return error.status;
  } catch (const std::exception& error) {
    std::cerr << *file << ": " << words_of(error) << "\n";
    return UserError::kBadInput;
  }
}

}  // namespace reprise
