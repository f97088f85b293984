// `reprise fit`: reports whether the recipe fits a budget, and the smallest budget that it fits.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/shown_text.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/files/progress/shown_output.h"
#include "tools/plan/costs/backends.h"
#include "tools/plan/costs/board.h"
#include "tools/plan/planning/does_not_fit.h"
#include "tools/plan/planning/fit_table.h"
#include "tools/plan/planning/proposals.h"
#include "tools/plan/planning/smaller_budgets.h"
#include "tools/plan/planning/storage_choices.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/plan/writing/plan_file.h"
#include "tools/plan/writing/summary.h"
#include "tools/run/commands/find_boards.h"
#include "tools/run/commands/plan_source.h"
#include "tools/run/data/check_data.h"

namespace reprise {

namespace {

struct FitOptions {
  RecipeOptions recipe;
  std::string board;
  std::vector<std::string> models;
  bool json = false, table = false;
  bool core_is_assumed = false;  // true: the plan assumes "core": "small", which the recipe does not have
  // The board's other kind of processor; unset if it has only one kind
  std::optional<Recipe::BackendChoice> beside = {};
};

// Returns the path of a board's file: `word` itself, or the file of an installed board with this
// name.
std::string board_file(const std::string& word) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (word.find('/') != std::string::npos || fs::exists(word, ignored)) return word;
  const std::string folder = find_boards(), file = folder + "/" + word + ".json";
  if (fs::exists(file, ignored)) return file;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  throw UserError("--board " + word + ": is neither a file nor a board that is known by name" +
                  (names.empty() ? "" : ": " + some_of(names)));
}

// Returns the options adapted to the board. For a microcontroller the core is small. For a board
// with a card, the backend is the card, or the processor if the recipe has "cpu"; `beside` is the
// other one. The backend does not change for a small core, several ranks, or a profile.
FitOptions on_board(FitOptions options) {
  if (options.board.empty()) return options;
  options.board = board_file(options.board);
  const BoardKind kind = board_kind(options.board);
  const nlohmann::json given = json_or_discarded(read_file(options.recipe.recipe), JsonComments::kAllowed);
  const auto says = [&given](const char* key) {
    return given.is_object() ? given.value(key, nlohmann::json()) : nlohmann::json();
  };
  options.recipe.small_core = options.core_is_assumed =
      kind.is_chip && says("core") != "small" && says("backend") != "cuda";
  if (!kind.has_card || says("core") == "small" || !says("parallel").is_null() || !options.recipe.profile.empty() ||
      options.recipe.ranks > 1)
    return options;
  const bool is_of_processor = says("backend") == "cpu";
  options.recipe.backend = is_of_processor ? Recipe::BackendChoice::kCpu : Recipe::BackendChoice::kCuda;
  options.beside = is_of_processor ? Recipe::BackendChoice::kCuda : Recipe::BackendChoice::kCpu;
  return options;
}

// Returns the board; nothing without --board. If the recipe has no budget, or a budget above the
// board's free memory, sets it to this memory; not if the recipe has a budget for feature maps.
// Throws UserError if the recipe uses memory of the host as a second level.
std::optional<Board> board_of(const FitOptions& options, Recipe& recipe) {
  if (options.board.empty()) return std::nullopt;
  const Board board = read_board(options.board, backend_of(recipe));
  if (recipe.spill_level() == SpillLevel::kHost) {
    throw UserError(options.recipe.recipe +
                    (recipe.schedule.host_bytes > 0 ? ": schedule.host: " : ": optimizer.offload: ") + board.name +
                    " has one memory for its processors, so that nothing is saved there; leave it out");
  }
  if (!recipe.feature_map_budget_bytes)
    recipe.budget_bytes = std::min(recipe.budget_bytes.value_or(UINT64_MAX), board.host.space_bytes());
  return board;
}

// Returns a text such as "5.49 GiB: ...": the effective budget, and whether it is the given budget
// or the board's memory.
std::string budget_words(const FitOptions& options, std::optional<uint64_t> own_bytes,
                         const std::optional<Board>& board) {
  const std::string own = options.recipe.budget ? "--budget" : "the recipe's";
  if (!board) return bytes_text(*own_bytes) + ": " + own;
  const uint64_t space = board->host.space_bytes();
  if (!own_bytes || *own_bytes >= space) return bytes_text(space) + ": the room of " + board->name;
  return bytes_text(*own_bytes) + ": " + own + " limits; " + board->name + " has room for " + bytes_text(space);
}

// Warns if the recipe's data do not exist. This is no error, because a plan needs only shapes.
void warn_of_missing_data(const Recipe& recipe) {
  if (const std::string missing = missing_data(recipe); !missing.empty()) warn(missing);
}

// If a microcontroller's stack is in the same memory as the arena, subtracts it from the budget.
// The size of the stack is that of the recipe's own plan. A table uses this size for all of its
// batch sizes and sequences, too.
void leave_space_for_stack(const Board& board, Recipe& recipe) {
  if (!board.chip || board.chip->ram_bytes || !recipe.budget_bytes) return;
  Recipe unbounded = recipe;
  unbounded.budget_bytes = std::nullopt;
  const SolvedModel model = solve_model(unbounded);
  const uint64_t stack = plan_model(model, request_of(model)).plan.worker_stack_bytes, space = board.host.space_bytes();
  recipe.budget_bytes = std::min(*recipe.budget_bytes, space > stack ? space - stack : 0);
}

void require_budget(const FitOptions& fit, const Recipe& recipe) {
  if (!recipe.budget_bytes)
    throw UserError(fit.recipe.recipe + ": budget: --table needs one; give --budget B, or \"budget\" in the recipe");
}

// Returns the reason why no row of the table `storage` fits; null if a row fits. A row is one
// choice of storage types.
nlohmann::json reason_of(const nlohmann::json& storage, uint64_t budget) {
  std::optional<uint64_t> minimum;
  for (const nlohmann::json& row : storage) {
    if (row.at("batch") > 0 || (!row.at("sequence").is_null() && row.at("sequence") > 0)) return nullptr;
    if (!row.at("smallest_budget").is_null())
      minimum = std::min(minimum.value_or(UINT64_MAX), row.at("smallest_budget").get<uint64_t>());
  }
  const std::string text = "does not fit " + bytes_text(budget);
  return minimum ? text + "; the smallest budget that does is " + std::to_string(*minimum) + " bytes (" +
                     bytes_text(*minimum) + ")"
               : text;
}

// The result for one model of --models.
struct ModelRows {
  nlohmann::json entry;          // entry of this model in the answer's "models"
  std::optional<Recipe> recipe;  // unset if the model was refused; `entry` has the reason
  std::optional<Board> board = {};
  std::string budget_words = {};
};

ModelRows look_at_model(const FitOptions& fit, const std::string& path) {
  ModelRows rows = {{{"model", path}, {"reason", nullptr}, {"sequence", nullptr}, {"storage", nlohmann::json::array()}},
                    {}};
  RecipeOptions options = fit.recipe;
  options.model = path;
  try {
    rows.recipe = options.read_model_first();
  } catch (const UserError& error) {
    rows.entry["reason"] = error.what();
    return rows;
  }
  const std::optional<uint64_t> own_budget = rows.recipe->budget_bytes;
  rows.board = board_of(fit, *rows.recipe);
  require_budget(fit, *rows.recipe);
  rows.budget_words = budget_words(fit, own_budget, rows.board);
  if (rows.board) leave_space_for_stack(*rows.board, *rows.recipe);
  if (rows.recipe->sequence > 0) rows.entry["sequence"] = rows.recipe->sequence;
  return rows;
}

// Fits all models. Reads all of them before planning the first one. If one model is refused, the
// other models are still fitted.
int run_models(const FitOptions& fit) {
  std::vector<ModelRows> each;
  for (const std::string& path : fit.models) each.push_back(look_at_model(fit, path));
  nlohmann::json answer = {{"budget", nullptr}, {"models", nlohmann::json::array()}};
  std::string refusal, header;
  bool one_fits = false;
  for (ModelRows& rows : each) {
    if (rows.recipe) {
      const LongWork work(rows.entry["model"]);
      const StepTimes times(*rows.recipe, nullptr, rows.board);
      answer["budget"] = *rows.recipe->budget_bytes;
      answer["seconds_rest_on"] = times.rest_on();
      if (header.empty()) header = "budget " + rows.budget_words + "\na step's seconds, by " + times.rest_on() + "\n\n";
      rows.entry["storage"] = storage_choices(*rows.recipe, times);
      rows.entry["reason"] = reason_of(rows.entry["storage"], *rows.recipe->budget_bytes);
      one_fits |= rows.entry["reason"].is_null();
    } else if (refusal.empty()) {
      refusal = rows.entry["reason"];
    }
    answer["models"].push_back(rows.entry);
  }
  const std::string budget = answer["budget"].is_null() ? "" : bytes_text(answer["budget"].get<uint64_t>());
  if (fit.json) {
    print_json(answer);
  } else {
    std::cout << header << models_text(answer["models"]);
  }
  if (!refusal.empty()) throw UserError(refusal);
  if (one_fits) return 0;
  std::cerr << fit.recipe.recipe << ": none of the models fits " << budget << "\n";
  return UserError::kDoesNotFit;
}

int run_table(const FitOptions& fit) {
  const RecipeOptions& options = fit.recipe;
  const bool as_json = fit.json;
  Recipe recipe = options.read();
  try {
    options.look_first();
  } catch (const UserError& error) {  // goes on, because the table also shows shorter sequences, which may be valid
    warn(error.what());
  }
  warn_of_missing_data(recipe);
  const std::optional<uint64_t> own_budget = recipe.budget_bytes;
  const std::optional<Board> board = board_of(fit, recipe);
  require_budget(fit, recipe);
  const std::string words = budget_words(fit, own_budget, board);
  if (board) leave_space_for_stack(*board, recipe);
  std::optional<SolvedModel> profiled;
  if (!options.profile.empty()) profiled = options.solve();
  const StepTimes times(recipe, profiled ? &*profiled : nullptr, board);
  nlohmann::json table = fit_table(recipe, times);
  table["storage"] = storage_choices(recipe, times);
  if (as_json) {
    print_json(table);
  } else {
    std::cout << "budget " << words << "\n"
              << (fit.core_is_assumed ? kSmallCoreWords + std::string("\n") : "") << fit_table_text(table)
              << storage_choices_text(table["storage"], recipe.sequence);
  }
  if (!table.contains("smallest")) return 0;
  std::cerr << shown_line(nothing_fits_message(recipe, table)) << "\n";
  return UserError::kDoesNotFit;
}

// The result for one budget. `refusal` is the reason why the recipe does not fit; "" if it fits.
struct Fitted {
  nlohmann::json answer;
  std::string refusal, text;
};

// The plan of a model on a board, or within its own budget if there is no board.
struct BoardPlan {
  SolvedModel model;
  PlannedModel planned;  // `fits` also considers the board's limits
  std::optional<Board> board;
  uint64_t plan_bytes = 0;  // bytes of a microcontroller's plan as a file; 0 if it was not computed
  // The reason why the board cannot run the plan: its flash or RAM is too small, or a budget for
  // feature maps gives a plan that exceeds its memory. "" if it can run the plan.
  std::string refusal = {};
};

BoardPlan plan_on(const std::optional<Board>& given, const SolvedModel& solved) {
  BoardPlan on = {.model = solved, .planned = {}, .board = given};
  std::optional<Board>& board = on.board;
  PlannedModel& planned = on.planned;
  planned = plan_model(on.model, request_of(on.model));
  if (!board || !planned.fits) return on;
  // The stack is in the same memory as the arena, and its size is known only from the plan.
  if (board->chip && !board->chip->ram_bytes) {
    board->host.system_bytes += planned.plan.worker_stack_bytes;
    if (on.model.recipe.budget_bytes && planned.plan.arena_bytes > board->host.space_bytes()) {
      on.model.recipe.budget_bytes = board->host.space_bytes();
      planned = plan_model(on.model, request_of(on.model));
    }
  }
  if (!planned.fits) return on;
  if (board->chip) {
    on.plan_bytes = plan_file({{planned.plan, "", "", ""}}).size();
    on.refusal = beyond_chip(*board, planned.plan, on.plan_bytes);
  }
  if (planned.plan.arena_bytes > board->host.space_bytes()) {  // this may happen with a budget for feature maps
    on.refusal = "the plan takes " + bytes_text(planned.plan.arena_bytes) + ", more than the " +
                 bytes_text(board->host.space_bytes()) + " that " + board->name + " has for it";
  }
  planned.smallest_budget_bytes = smallest_budget(on.model, request_of(on.model));
  planned.fits = on.refusal.empty();
  return on;
}

// Returns the result for the board's other kind of processor: {"backend", "fits", "planned_bytes",
// "smallest_budget", "room_bytes", "least_seconds", "bound", "bound_share", "reason"}. `reason`
// states why no plan for it is possible, or is null.
nlohmann::json beside_json(const FitOptions& fit, uint64_t own_budget) {
  RecipeOptions options = fit.recipe;
  options.backend = *fit.beside;
  nlohmann::json answer = {{"backend", backend_word(*fit.beside)},
                           {"fits", false},
                           {"planned_bytes", nullptr},
                           {"smallest_budget", nullptr},
                           {"room_bytes", nullptr},
                           {"least_seconds", nullptr},
                           {"bound", nullptr},
                           {"bound_share", nullptr},
                           {"reason", nullptr}};
  try {
    SolvedModel model = options.solve();
    if (model.recipe.budget_bytes) model.recipe.budget_bytes = own_budget;
    const std::optional<Board> board = board_of(fit, model.recipe);
    const BoardPlan on = plan_on(board, model);
    const nlohmann::json figures = board_json(*on.board, on.model, on.planned, 0);
    for (const char* key : {"room_bytes", "least_seconds", "bound", "bound_share"}) answer[key] = figures[key];
    answer["fits"] = on.planned.fits;
    if (on.planned.fits) answer["planned_bytes"] = on.planned.plan.arena_bytes;
    if (on.planned.smallest_budget_bytes > 0) answer["smallest_budget"] = on.planned.smallest_budget_bytes;
  } catch (const UserError& error) {
    answer["reason"] = error.what();
  }
  return answer;
}

std::string beside_text(const nlohmann::json& beside) {
  const std::string begin = beside.at("backend") == "cpu" ? "  on its processor " : "  on its card      ";
  if (!beside.at("reason").is_null()) return begin + beside.at("reason").get<std::string>() + "\n";
  const std::string space = " of " + bytes_text(beside.at("room_bytes").get<uint64_t>());
  if (!beside.at("fits").get<bool>()) {
    return begin +
           (beside.at("smallest_budget").is_null()
                ? "does not fit"
                : "needs " + bytes_text(beside.at("smallest_budget").get<uint64_t>())) +
           space + "\n";
  }
  char seconds[64];
  std::snprintf(seconds, sizeof seconds, ", a step at least %.3g s\n", beside.at("least_seconds").get<double>());
  return begin + bytes_text(beside.at("planned_bytes").get<uint64_t>()) + space + seconds;
}

// Returns the costs with streamed weights, for a recipe that keeps its frozen weights in memory and
// therefore recomputes much: {"change", "planned_bytes", "extra_forward_cost", "stall_share"}.
// Returns null for any other recipe, with measured costs, and if streaming does not fit or is not
// cheaper.
nlohmann::json streaming_json(const BoardPlan& on) {
  constexpr double kMuch = 0.1;
  Recipe recipe = on.model.recipe;
  if (!recipe.lora || recipe.weights.stream != WeightsRecipe::Stream::kNone || on.planned.extra_forward_cost < kMuch ||
      on.model.measured)
    return nullptr;
  recipe.weights.stream = WeightsRecipe::Stream::kByPlan;
  try {
    const SolvedModel model = solve_model(recipe);
    const PlannedModel planned = plan_model(model, request_of(model));
    const double cost = (1 + planned.extra_forward_cost) / (1 - planned.stall_share);
    if (!planned.fits || cost >= 1 + on.planned.extra_forward_cost) return nullptr;
    nlohmann::json change = nlohmann::json::parse(canonical_recipe(recipe)).at("weights");
    return {{"change", {{"weights", change}}},
            {"planned_bytes", planned.plan.arena_bytes},
            {"extra_forward_cost", planned.extra_forward_cost},
            {"stall_share", planned.stall_share}};
  } catch (const UserError&) {  // the model has no matrix for which streaming is useful
    return nullptr;
  }
}

std::string streaming_words(const nlohmann::json& streaming, const PlannedModel& planned) {
  if (streaming.is_null()) return "";
  const double cost =
      (1 + streaming.at("extra_forward_cost").get<double>()) / (1 - streaming.at("stall_share").get<double>()) - 1;
  char line[200];
  std::snprintf(line, sizeof line,
                "  streaming       \"weights\": {\"stream\": \"auto\"} would cost +%.0f%% in %s, where this costs "
                "+%.0f%% in %s\n",
                100 * cost, bytes_text(streaming.at("planned_bytes").get<uint64_t>()).c_str(),
                100 * planned.extra_forward_cost, bytes_text(planned.plan.arena_bytes).c_str());
  return line;
}

Fitted fit_one(const FitOptions& fit, SolvedModel model) {
  const RecipeOptions& options = fit.recipe;
  const std::optional<uint64_t> own_budget = model.recipe.budget_bytes;
  const std::optional<Board> given = board_of(fit, model.recipe);
  if (!model.recipe.budget_bytes && !model.recipe.feature_map_budget_bytes) {
    throw UserError(options.recipe + ": budget: fit needs one; give --budget B, or \"budget\" in the recipe");
  }
  BoardPlan on = plan_on(given, model);
  PlannedModel& planned = on.planned;
  const std::optional<Board>& board = on.board;
  if (planned.fits && planned.smallest_budget_bytes == 0)
    planned.smallest_budget_bytes = smallest_budget(on.model, request_of(on.model));
  Fitted fitted;
  nlohmann::json& answer = fitted.answer = {{"fits", planned.fits}};
  answer["predicted_seconds"] =
      planned.fits && planned.predicted_seconds ? nlohmann::json(*planned.predicted_seconds) : nlohmann::json(nullptr);
  answer["smallest_budget"] =
      planned.smallest_budget_bytes == 0 ? nlohmann::json(nullptr) : nlohmann::json(planned.smallest_budget_bytes);
  answer["planned_bytes"] = planned.fits ? nlohmann::json(planned.plan.arena_bytes) : nlohmann::json(nullptr);
  const std::vector<SmallerBudget> smaller =
      planned.fits ? smaller_budgets(on.model, planned) : std::vector<SmallerBudget>();
  answer["smaller_budgets"] = smaller_budgets_json(smaller);
  if (planned.fits && planned.plan.streamed_bytes > 0) {
    answer["resident_bytes"] = planned.plan.arena_bytes;
    answer["streamed_bytes"] = planned.plan.streamed_bytes;
    answer["window_bytes"] = planned.window_bytes;
    if (planned.plan.shard_bytes > 0) answer["shard_bytes"] = planned.plan.shard_bytes;
    answer["stall_share"] = planned.stall_share;
  }
  if (planned.fits && planned.plan.spill_bytes > 0)
    answer[spill_name(planned.plan.spill_level) + std::string("_bytes")] = planned.plan.spill_bytes;
  if (const WidenedWeights widened = widened_weights(on.model.recipe, on.model.network); widened.tensors > 0) {
    answer["widened"] = {{"file_bytes", widened.file_bytes},
                         {"memory_bytes", widened.memory_bytes},
                         {"bf16_bytes", widened.bf16_bytes}};
  }
  if (fit.core_is_assumed) answer["core"] = "small";
  if (board) answer["board"] = board_json(*board, on.model, planned, on.plan_bytes);
  if (board && fit.beside) answer["board"]["beside"] = beside_json(fit, own_budget.value_or(UINT64_MAX));
  const nlohmann::json streaming = planned.fits ? streaming_json(on) : nlohmann::json();
  if (!streaming.is_null()) answer["streaming"] = streaming;
  if (planned.fits) {
    fitted.text =
        summary_of(on.model, planned) + "\n  smallest budget " + bytes_text(planned.smallest_budget_bytes) + "\n" +
        (smaller.empty() ? "" : "  smaller ones    " + smaller_budgets_text(smaller) + "\n") +
        streaming_words(streaming, planned) +
        (board && on.model.recipe.budget_bytes ? "  limited by      " + budget_words(fit, own_budget, board) + "\n"
                                               : "") +
        (board ? board_text(*board, answer["board"]) : "") +
        (board && fit.beside ? beside_text(answer["board"]["beside"]) : "") +
        (fit.core_is_assumed ? "  core            " + std::string(kSmallCoreWords) + "\n" : "");
    return fitted;
  }
  const std::string core = fit.core_is_assumed ? "; " + std::string(kSmallCoreWords) : "";
  if (!on.refusal.empty()) {
    fitted.refusal = options.recipe + ": " + on.refusal + core;
    return fitted;
  }
  const auto fits = [&](const SolvedModel& changed, uint64_t bytes) {
    return board ? plan_on(given, changed).planned.fits : fits_own_budget(changed, bytes);
  };
  const std::vector<Proposal> proposals = planned.smallest_budget_bytes == 0
                                              ? std::vector<Proposal>()
                                              : proposals_for(on.model, planned.smallest_budget_bytes, fits);
  answer["proposals"] = proposals_json(proposals);
  fitted.refusal =
      does_not_fit_message(on.model, planned, request_of(on.model)) +
      (board && board->chip ? "; " + board->name + " has " + bytes_text(board->host.space_bytes()) + " for an arena"
                            : "") +
      proposals_text(proposals) + core;
  return fitted;
}

// Returns the answer for several budgets: that of the largest plan, with a list of all budgets. It
// fits only if all budgets do.
nlohmann::json answer_of(const std::vector<uint64_t>& budgets, const std::vector<Fitted>& each) {
  // A null value is less than every number.
  const auto is_less = [](const Fitted& a, const Fitted& b) {
    return a.answer["planned_bytes"] < b.answer["planned_bytes"];
  };
  nlohmann::json answer = std::max_element(each.begin(), each.end(), is_less)->answer;
  for (size_t i = 0; i < budgets.size(); ++i) {
    const nlohmann::json& own = each[i].answer;
    answer["budgets"].push_back({{"budget", budgets[i]},
                                 {"fits", own["fits"]},
                                 {"planned_bytes", own["planned_bytes"]},
                                 {"predicted_seconds", own["predicted_seconds"]}});
    if (!own["fits"].get<bool>()) answer["fits"] = false;
  }
  if (!answer["fits"].get<bool>()) answer["planned_bytes"] = answer["predicted_seconds"] = nullptr;
  return answer;
}

int run_one(const FitOptions& fit) {
  fit.recipe.look_first();
  const Recipe recipe = fit.recipe.read();
  warn_of_missing_data(recipe);
  const std::vector<uint64_t>& budgets = recipe.budgets;
  std::vector<Fitted> each;
  for (const SolvedModel& model : models_of_budgets(fit.recipe.solve(), budgets)) each.push_back(fit_one(fit, model));
  if (fit.json) print_json(answer_of(budgets, each));
  for (const Fitted& fitted : each) {
    if (fitted.refusal.empty()) continue;
    std::cerr << shown_line(fitted.refusal) << "\n";
    return UserError::kDoesNotFit;
  }
  for (const Fitted& fitted : each) std::cout << (fit.json ? "" : fitted.text);
  return 0;
}

int run_fit(const FitOptions& options) {
  const FitOptions fit = on_board(options);
  return !fit.models.empty() ? run_models(fit) : fit.table ? run_table(fit) : run_one(fit);
}

}  // namespace

Command add_fit(OptionParser& app, const Port& port) {
  const auto options = std::make_shared<FitOptions>();
  OptionParser* parser =
      app.add_subcommand("fit", "does the recipe fit a budget? exit status 0 or 3, the smallest budget that does");
  options->recipe.add_to(*parser);
  options->recipe.add_schedule_to(*parser);
  options->recipe.add_profile_to(*parser, port);
  Option* table = parser->add_flag("--table", options->table,
                                   "which batches and sequences fit, what they cost, and how to accumulate the others");
  parser
      ->add_option("--models", options->models,
                   "the longest T and the largest batch of each of these in place of the recipe's model: GGUF files, "
                   "folders, recipes")
      ->needs(table);
  parser->add_option("--board", options->board,
                     "a board by name (orin-nano-8gb ...) or file: its room is the budget, its rates bound the step");
  parser->add_flag("--json", options->json, "one JSON value on stdout");
  return {parser, [options] { return run_fit(*options); }};
}

}  // namespace reprise
