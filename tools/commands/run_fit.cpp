// `reprise fit`: does the recipe fit a budget, and which is the smallest that it fits?
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/commands/plan_source.h"
#include "tools/commands/tree.h"
#include "tools/formats/error.h"
#include "tools/formats/shown_text.h"
#include "tools/formats/text.h"
#include "tools/planning/backends.h"
#include "tools/planning/board.h"
#include "tools/planning/does_not_fit.h"
#include "tools/planning/fit_table.h"
#include "tools/planning/smaller_budgets.h"
#include "tools/planning/storage_choices.h"
#include "tools/planning/weight_storage.h"
#include "tools/progress/long_work.h"
#include "tools/progress/shown_output.h"
#include "tools/writing/plan_file.h"
#include "tools/writing/summary.h"

namespace reprise {

namespace {

struct FitOptions {
  RecipeOptions recipe;
  std::string board;
  std::vector<std::string> models;
  bool json = false, table = false;
};

// A file, or the name of a board that stands beside this program.
std::string board_file(const std::string& word) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (word.find('/') != std::string::npos || fs::exists(word, ignored)) return word;
  const std::string folder = find_boards(), file = folder + "/" + word + ".json";
  if (fs::exists(file, ignored)) return file;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  throw UserError("--board " + word + ": is neither a file nor a board that is known by name" + (names.empty() ? "" : ": " + some_of(names)));
}

// The board's room is the budget, where the recipe has none or a larger one.
std::optional<Board> board_of(const FitOptions& options, Recipe& recipe) {
  if (options.board.empty()) return std::nullopt;
  const Board board = read_board(board_file(options.board), backend_of(recipe));
  if (recipe.spill_level() == SpillLevel::kHost) {
    throw UserError(options.recipe.recipe + (recipe.schedule.host_bytes > 0 ? ": schedule.host: " : ": optimizer.offload: ") + board.name + " has one memory for its processors, so that nothing is saved there; leave it out");
  }
  if (!recipe.feature_map_budget_bytes) recipe.budget_bytes = std::min(recipe.budget_bytes.value_or(UINT64_MAX), board.host.room_bytes());
  return board;
}

void require_budget(const FitOptions& fit, const Recipe& recipe) {
  if (!recipe.budget_bytes) throw UserError(fit.recipe.recipe + ": budget: --table needs one; give --budget B, or \"budget\" in the recipe");
}

// Why none of them fits; null where one does.
nlohmann::json reason_of(const nlohmann::json& storage, uint64_t budget) {
  std::optional<uint64_t> least;
  for (const nlohmann::json& row : storage) {
    if (row.at("batch") > 0 || (!row.at("sequence").is_null() && row.at("sequence") > 0)) return nullptr;
    if (!row.at("smallest_budget").is_null()) least = std::min(least.value_or(UINT64_MAX), row.at("smallest_budget").get<uint64_t>());
  }
  const std::string text = "does not fit " + bytes_text(budget);
  return least ? text + "; the smallest budget that does is " + std::to_string(*least) + " bytes (" + bytes_text(*least) + ")" : text;
}

struct ModelRows {
  nlohmann::json entry;          // of the answer's "models"
  std::optional<Recipe> recipe;  // none: refused, for the entry's reason
};

ModelRows look_at_model(const FitOptions& fit, const std::string& path) {
  ModelRows rows = {{{"model", path}, {"reason", nullptr}, {"sequence", nullptr}, {"storage", nlohmann::json::array()}}, {}};
  RecipeOptions options = fit.recipe;
  options.model = path;
  try {
    rows.recipe = options.read_model_first();
  } catch (const UserError& error) {
    rows.entry["reason"] = error.what();
    return rows;
  }
  board_of(fit, *rows.recipe);
  require_budget(fit, *rows.recipe);
  if (rows.recipe->sequence > 0) rows.entry["sequence"] = rows.recipe->sequence;
  return rows;
}

// Every model is looked at before the first is planned; those that are refused do not end the others.
int run_models(const FitOptions& fit) {
  std::vector<ModelRows> each;
  for (const std::string& path : fit.models) each.push_back(look_at_model(fit, path));
  nlohmann::json answer = {{"budget", nullptr}, {"models", nlohmann::json::array()}};
  std::string refusal;
  bool one_fits = false;
  for (ModelRows& rows : each) {
    if (rows.recipe) {
      const LongWork work(rows.entry["model"]);
      answer["budget"] = *rows.recipe->budget_bytes;
      rows.entry["storage"] = storage_choices(*rows.recipe);
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
    std::cout << (budget.empty() ? "" : "budget " + budget + "\n\n") << models_text(answer["models"]);
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
  } catch (const UserError& error) {  // a sample that is too long asks for just such a table
    warn(error.what());
  }
  board_of(fit, recipe);
  require_budget(fit, recipe);
  std::optional<SolvedModel> profiled;
  if (!options.profile.empty()) profiled = options.solve();
  nlohmann::json table = fit_table(recipe, profiled ? &*profiled : nullptr);
  table["storage"] = storage_choices(recipe);
  if (as_json) {
    print_json(table);
  } else {
    std::cout << fit_table_text(table) << storage_choices_text(table["storage"], recipe.sequence);
  }
  if (!table.contains("smallest")) return 0;
  std::cerr << shown_line(nothing_fits_message(recipe, table)) << "\n";
  return UserError::kDoesNotFit;
}

// What is said of the recipe at one budget; `refusal` is why it does not fit, "" where it does.
struct Fitted {
  nlohmann::json answer;
  std::string refusal, text;
};

Fitted fit_one(const FitOptions& fit, SolvedModel model) {
  const RecipeOptions& options = fit.recipe;
  std::optional<Board> board = board_of(fit, model.recipe);
  if (!model.recipe.budget_bytes && !model.recipe.feature_map_budget_bytes) {
    throw UserError(options.recipe + ": budget: fit needs one; give --budget B, or \"budget\" in the recipe");
  }
  const ScheduleRequest request = request_of(model);
  PlannedModel planned = plan_model(model, request);
  if (board && board->chip && !board->chip->ram_bytes && planned.fits) {  // which stack lies beside the arena is known with the plan
    board->host.system_bytes += planned.plan.worker_stack_bytes;
    if (model.recipe.budget_bytes && planned.plan.arena_bytes > board->host.room_bytes()) {
      model.recipe.budget_bytes = board->host.room_bytes();
      planned = plan_model(model, request);
    }
  }
  const uint64_t plan_bytes = board && board->chip && planned.fits ? plan_file({{planned.plan, "", "", ""}}).size() : 0;
  const std::string beyond = board && board->chip && planned.fits ? beyond_chip(*board, planned.plan, plan_bytes) : "";
  const bool too_large = board && planned.fits && planned.plan.arena_bytes > board->host.room_bytes();  // by a budget of feature maps
  if (planned.fits) planned.smallest_budget_bytes = smallest_budget(model, request);
  if (too_large || !beyond.empty()) planned.fits = false;
  Fitted fitted;
  nlohmann::json& answer = fitted.answer = {{"fits", planned.fits}};
  answer["predicted_seconds"] = planned.fits && planned.predicted_seconds ? nlohmann::json(*planned.predicted_seconds) : nlohmann::json(nullptr);
  answer["smallest_budget"] = planned.smallest_budget_bytes == 0 ? nlohmann::json(nullptr) : nlohmann::json(planned.smallest_budget_bytes);
  answer["planned_bytes"] = planned.fits ? nlohmann::json(planned.plan.arena_bytes) : nlohmann::json(nullptr);
  const std::vector<SmallerBudget> smaller = planned.fits ? smaller_budgets(model, planned) : std::vector<SmallerBudget>();
  answer["smaller_budgets"] = smaller_budgets_json(smaller);
  if (planned.fits && planned.plan.streamed_bytes > 0) {
    answer["resident_bytes"] = planned.plan.arena_bytes;
    answer["streamed_bytes"] = planned.plan.streamed_bytes;
    answer["window_bytes"] = planned.window_bytes;
    if (planned.plan.shard_bytes > 0) answer["shard_bytes"] = planned.plan.shard_bytes;
    answer["stall_share"] = planned.stall_share;
  }
  if (planned.fits && planned.plan.spill_bytes > 0) answer[spill_name(planned.plan.spill_level) + std::string("_bytes")] = planned.plan.spill_bytes;
  if (const WidenedWeights widened = widened_weights(model.recipe, model.network); widened.tensors > 0) {
    answer["widened"] = {{"file_bytes", widened.file_bytes}, {"memory_bytes", widened.memory_bytes}, {"bf16_bytes", widened.bf16_bytes}};
  }
  if (board) answer["board"] = board_json(*board, model, planned, plan_bytes);
  if (too_large) {
    fitted.refusal = options.recipe + ": the plan takes " + bytes_text(planned.plan.arena_bytes) + ", more than the " + bytes_text(board->host.room_bytes()) +
                     " that " + board->name + " has for it";
  } else if (!beyond.empty()) {
    fitted.refusal = options.recipe + ": " + beyond;
  } else if (!planned.fits) {
    fitted.refusal = does_not_fit_message(model, planned, request) + (board && board->chip ? "; " + board->name + " has " + bytes_text(board->host.room_bytes()) + " for an arena" : "");
  } else {
    fitted.text = summary_of(model, planned) + "\n  smallest budget " + bytes_text(planned.smallest_budget_bytes) + "\n" +
                  (smaller.empty() ? "" : "  smaller ones    " + smaller_budgets_text(smaller) + "\n") +
                  (board ? board_text(*board, answer["board"]) : "");
  }
  return fitted;
}

// Of several budgets: all fit or none; the answer is the largest plan's, with a list of all.
nlohmann::json answer_of(const std::vector<uint64_t>& budgets, const std::vector<Fitted>& each) {
  const auto is_less = [](const Fitted& a, const Fitted& b) { return a.answer["planned_bytes"] < b.answer["planned_bytes"]; };  // null is less than any number
  nlohmann::json answer = std::max_element(each.begin(), each.end(), is_less)->answer;
  for (size_t i = 0; i < budgets.size(); ++i) {
    const nlohmann::json& own = each[i].answer;
    answer["budgets"].push_back({{"budget", budgets[i]}, {"fits", own["fits"]}, {"planned_bytes", own["planned_bytes"]}, {"predicted_seconds", own["predicted_seconds"]}});
    if (!own["fits"].get<bool>()) answer["fits"] = false;
  }
  if (!answer["fits"].get<bool>()) answer["planned_bytes"] = answer["predicted_seconds"] = nullptr;
  return answer;
}

int run_fit(const FitOptions& fit) {
  fit.recipe.look_first();
  const std::vector<uint64_t> budgets = fit.recipe.read().budgets;
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

}  // namespace

Command add_fit(OptionParser& app, const Port& port) {
  const auto options = std::make_shared<FitOptions>();
  OptionParser* parser = app.add_subcommand("fit", "does the recipe fit a budget? exit status 0 or 3, the smallest budget that does");
  options->recipe.add_to(*parser);
  options->recipe.add_schedule_to(*parser);
  options->recipe.add_profile_to(*parser, port);
  Option* table = parser->add_flag("--table", options->table, "which batches and sequences fit, what they cost, and how to accumulate the others");
  parser->add_option("--models", options->models, "the longest T and the largest batch of each of these in place of the recipe's model: GGUF files, folders, recipes")->needs(table);
  parser->add_option("--board", options->board, "a board by name (orin-nano-8gb ...) or file: its room is the budget, its rates bound the step");
  parser->add_flag("--json", options->json, "one JSON value on stdout");
  return {parser, [options] { return !options->models.empty() ? run_models(*options) : options->table ? run_table(*options) : run_fit(*options); }};
}

}  // namespace reprise
