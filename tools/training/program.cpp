// The training program's command line, and what each of its errors becomes.
// Errors are one line; what was saved last stays whole.
#include "tools/training/program.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>

#include "lib/backend.h"
#include "tools/command_line.h"
#include "tools/data/check_data.h"
#include "tools/formats/error.h"
#include "tools/formats/exception_text.h"
#include "tools/formats/memory_end.h"
#include "tools/formats/text.h"
#include "tools/inference/answer.h"
#include "tools/inference/dialogue.h"
#include "tools/inference/predict.h"
#include "tools/progress/long_work.h"
#include "tools/progress/shown_output.h"
#include "tools/session/filed_plans.h"
#include "tools/session/plan_signals.h"
#include "tools/session/program_options.h"
#include "tools/session/session.h"
#include "tools/session/status_text.h"
#include "tools/session/stop_signal.h"
#include "tools/training/pause.h"
#include "tools/training/plan_requests.h"
#include "tools/training/training_run.h"

namespace reprise {

namespace {

// What is in the way of a plan on its board, now.
Status try_board(const CompiledPlan& choice) {
  Backend backend;
  REPRISE_RETURN_IF_ERROR(choice.port.open_backend(choice.plan.backend, &backend));
  Arena arena;
  const Status status = choice.port.acquire_arena(choice.plan.arena_bytes + kGuardBytes, &arena);
  choice.port.release_arena(&arena);
  choice.port.close_backend(&backend);
  return status;
}

// Each in the plan in which it shall begin.
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

// What stands behind --plan, which is looked for before the other options: these depend on the plan.
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
    const bool is_auto = !last.is_filed() && parse_recipe(last.recipe, last.plan.name, "/").backend == Recipe::BackendChoice::kAuto;
    if (is_auto) say("this program was built for the CPU alone, it trains there");
    return last;
  }
  for (size_t i = 0; i + 1 < choices.size(); ++i) {
    const Status status = try_board(choices[i]);
    say((status.ok() ? "trains on " : "not on ") + std::string(choices[i].plan.backend) + (status.ok() ? "" : ": " + message_of(status)));
    if (status.ok()) return choices[i];
  }
  say("trains on " + std::string(last.plan.backend));
  return last;
}

// --continue is --resume where there is a snapshot; what a training begins with is not asked for then.
void settle_continue(ProgramOptions& options) {
  const auto holds_snapshot = [](const std::string& folder) { return std::filesystem::exists(folder + "/training.json"); };
  if (!options.go_on || (!holds_snapshot(options.save) && !holds_snapshot(options.save + ".saving/old"))) return;
  options.resume = options.save;
  options.init = options.init_adapter = "";
  options.init_skip.clear();
}

int run_choices(const std::vector<CompiledPlan>& choices, int argc, char** argv) {
  const Plan& plan = choices.front().plan;
  ProgramOptions options;
  OptionParser app(std::string("Trains ") + plan.name + " inside the " + bytes_text(plan.arena_bytes) + " that its plan proves.", "train");
  options.add_to(app, most_spill_bytes(choices.front(), SpillLevel::kDisk), plan.streamed_bytes > 0, choices.front().port.most_workers);
  try {
    const std::string program = argc > 0 ? argv[0] : "train";  // whose --help can be asked for
    if (const std::optional<int> status = app.parse(argc, argv, program)) return *status;
    options.check(std::max<size_t>(1, choices.front().plans.count));
    settle_continue(options);
    if (options.quiet) silence_long_work();
    if (options.check_data) return check_data(parse_recipe(choices.front().recipe, plan.name, "/"), options.threads);
    if (choices.front().plans.count > 1) set_up_plan_signals(choices.front().plans.count);
    options.chat ? set_up_ending_signals() : set_up_signals();  // nothing is to be saved where a person converses
    const CompiledPlan compiled = choose_plan(started(choices, options.start_budget), options.quiet);
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

int run_filed_plans(const FiledPlans& plans, const std::vector<const Port*>& boards, int argc, char** argv) {
  return run_choices({plans.proved_for(boards)}, argc, argv);
}

int run_training(const std::vector<CompiledPlan>& choices, int argc, char** argv) {
  end_where_memory_is_short("train");
  const ShownOutput shown;
  const std::optional<std::string> file = plan_option(argc, argv);
  if (!file) return run_choices(choices, argc, argv);
  std::vector<const Port*> boards;
  for (const CompiledPlan& choice : choices) boards.push_back(&choice.port);
  try {
    return run_filed_plans(FiledPlans(*file), boards, argc, argv);
  } catch (const UserError& error) {
    std::cerr << error.what() << "\n";
    return error.status;
  } catch (const std::exception& error) {
    std::cerr << *file << ": " << words_of(error) << "\n";
    return UserError::kBadInput;
  }
}

}  // namespace reprise
