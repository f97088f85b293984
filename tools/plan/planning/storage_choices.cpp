// Plans the choices of storage_choices.h.
#include "tools/plan/planning/storage_choices.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/plan/planning/planner.h"
#include "tools/plan/planning/weight_storage.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr int kSequenceStep = 64;
constexpr int kLargestBatch = 4096;

// The choices for weights and states, the recipe's own first.
struct Choices {
  std::vector<WeightsRecipe> weights;
  std::vector<DType> states;
};

Choices choices_of(const Recipe& recipe) {
  Choices choices = {{recipe.weights}, {recipe.optimizer.states}};
  if (keeps_moments_in_any_type(recipe.optimizer)) {
    for (const DType states : {DType::kF32, DType::kDynamic8}) {
      if (states != recipe.optimizer.states) choices.states.push_back(states);
    }
  }
  if (!recipe.lora) return choices;
  for (const DType frozen : {DType::kQ8_0, DType::kQ4_0}) {
    WeightsRecipe stored = recipe.weights;
    stored.frozen = frozen;
    if (stored != recipe.weights) choices.weights.push_back(stored);
  }
  for (size_t n = choices.weights.size(), i = 0; i < n; ++i) {
    WeightsRecipe streamed = choices.weights[i];
    streamed.stream =
        streamed.stream == WeightsRecipe::Stream::kNone ? WeightsRecipe::Stream::kByPlan : WeightsRecipe::Stream::kNone;
    choices.weights.push_back(streamed);
  }
  return choices;
}

using MinBytes = std::function<std::optional<uint64_t>(int)>;

// Returns the smallest budget of a micro-batch. Returns nothing if it is unknown, or if the model
// does not have the recipe's choice. For example, it has no matrix that can be streamed.
std::optional<uint64_t> min_bytes(Recipe recipe, const WeightSource* published, int batch, int sequence) {
  recipe.batch = batch;
  recipe.sequence = sequence;
  try {
    const SolvedModel model = solve_model(recipe, std::nullopt, published);
    const uint64_t minimum = smallest_budget(model, request_of(model));
    return minimum == 0 ? std::nullopt : std::optional(minimum);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

struct Largest {
  int n = 0;                      // 0: not even 1 fits
  std::optional<uint64_t> first;  // bytes(1), if known
};

// Returns the largest n up to `maximum` for which bytes(n) fits the budget. bytes(n) grows nearly
// linearly with n, and each call of bytes() makes a plan. So the next n to try is where the line
// through the last two results meets the budget. Every sixth attempt instead halves the remaining
// range, in case the growth is not linear. `guess` is tried second.
Largest largest_within(uint64_t budget, int maximum, int guess, const MinBytes& bytes) {
  if (maximum < 1) return {};
  std::optional<uint64_t> asked = bytes(1), before;
  const std::optional<uint64_t> first = asked;
  if (!asked || *asked > budget) return {0, first};
  int fits = 1, too_large = maximum + 1, n = 1, n_before = 0;
  for (int ask = 1; fits + 1 < too_large; ++ask) {
    double next = ask == 1 ? guess : fits + 1;
    if (asked && before && *asked != *before) {
      const double bytes_of_one = (static_cast<double>(*asked) - static_cast<double>(*before)) / (n - n_before);
      next = n + std::floor((static_cast<double>(budget) - static_cast<double>(*asked)) / bytes_of_one);
    }
    if (!asked || ask % 6 == 0) next = fits + (too_large - fits) / 2;
    n_before = std::exchange(n, static_cast<int>(std::clamp<double>(next, fits + 1, too_large - 1)));
    before = std::exchange(asked, bytes(n));
    (asked && *asked <= budget ? fits : too_large) = n;
  }
  return {fits, first};
}

// Returns the plan at the recipe's own batch and sequence.
json own_plan(const Recipe& recipe, const WeightSource* published, const StepTimes& times) {
  json plan = {{"planned_bytes", nullptr},
               {"extra_forward_cost", nullptr},
               {"stall_share", nullptr},
               {"work", nullptr},
               {"seconds", nullptr}};
  try {
    const SolvedModel model = solve_model(recipe, std::nullopt, published);
    const PlannedModel planned = plan_model(model, request_of(model));
    if (!planned.fits) return plan;
    return {{"planned_bytes", planned.plan.arena_bytes},
            {"extra_forward_cost", planned.extra_forward_cost},
            {"stall_share", planned.stall_share},
            {"work", times.work(model, planned)},
            {"seconds", times.seconds(model, planned)}};
  } catch (const UserError&) {  // the model does not have the choice
    return plan;
  }
}

json row_of(const Recipe& recipe, const WeightSource* published, const StepTimes& times) {
  const json written = json::parse(canonical_recipe(recipe));
  const json weights = written.value("weights", json::object());
  const uint64_t budget = *recipe.budget_bytes;
  Largest steps;
  const ModelDescription description = describe_model(recipe.model);
  const int max_tokens = description.longest_sequence, step = description.one_length ? max_tokens : kSequenceStep;
  const auto tokens = [max_tokens, step](int n) { return std::min(step * n, max_tokens); };
  if (recipe.sequence > 0) {
    const int maximum = (max_tokens + step - 1) / step;
    steps = largest_within(budget, maximum, recipe.sequence / step,
                           [&](int n) { return min_bytes(recipe, published, 1, tokens(n)); });
  }
  // Guess for the batch: samples that together have as many tokens as the longest sequence.
  const int samples = tokens(steps.n) / std::max(1, recipe.sequence);
  const Largest batch = largest_within(budget, kLargestBatch, samples,
                                       [&](int n) { return min_bytes(recipe, published, n, recipe.sequence); });
  const std::optional<uint64_t> minimum = steps.first ? steps.first : batch.first;
  json row = {{"frozen", weights.value("frozen", "as_stored")},
              {"stream", weights.value("stream", json(false))},
              {"states", written.at("optimizer").value("states", "f32")},
              {"sequence", recipe.sequence > 0 ? json(tokens(steps.n)) : json()},
              {"batch", batch.n},
              {"smallest_budget", minimum ? json(*minimum) : json()}};
  row.update(own_plan(recipe, published, times));
  return row;
}

}  // namespace

bool keeps_moments_in_any_type(const OptimizerRecipe& optimizer) {
  return optimizer.update == Op::kAdamW || optimizer.update == Op::kLion || optimizer.update == Op::kMuon ||
         (optimizer.update == Op::kSgd && optimizer.momentum > 0);
}

json storage_choices(const Recipe& recipe, const StepTimes& times) {
  LongWork work("ways to store " + recipe.name);
  const Choices choices = choices_of(recipe);
  json rows = json::array();
  for (const WeightsRecipe& weights : choices.weights) {
    Recipe chosen = recipe;
    chosen.weights = weights;
    const std::unique_ptr<WeightSource> published = open_published(chosen);
    for (const DType states : choices.states) {
      work.done(static_cast<double>(rows.size()) / static_cast<double>(choices.weights.size() * choices.states.size()));
      chosen.optimizer.states = states;
      rows.push_back(row_of(chosen, published.get(), times));
    }
  }
  return rows;
}

namespace {

std::string format(const char* form, const std::string& text) {
  char cell[256];
  std::snprintf(cell, sizeof cell, form, text.c_str());
  return cell;
}

std::string choice_text(const json& row) {
  const json& stream = row.at("stream");
  const std::string streamed = stream.is_string() ? stream.get<std::string>() : stream.get<bool>() ? "yes" : "no";
  return format("  %-10s", row.at("frozen").get<std::string>()) +
         format("  %-6s", row.at("states").get<std::string>()) + format("  %-8s", streamed);
}

// Returns the seconds of a step at the recipe's own size and the share of recomputation and
// waiting; "-" if the plan does not fit.
std::string step_cell(const json& row) {
  if (row.at("seconds").is_null()) return "-";
  const double busy = (1 + row.at("extra_forward_cost").get<double>()) / (1 - row.at("stall_share").get<double>());
  char cell[64];
  std::snprintf(cell, sizeof cell, "%.3g s +%.0f%%", row.at("seconds").get<double>(), 100 * (busy - 1));
  return cell;
}

// Returns the first row that differs from the recipe only by streaming, and takes less work; null
// if there is none.
const json* faster_by_streaming(const json& choices) {
  const json& own = choices.at(0);
  for (const json& row : choices) {
    const bool streams = row.at("stream") == "auto" && own.at("stream") == false &&
                         row.at("frozen") == own.at("frozen") && row.at("states") == own.at("states");
    if (streams && !row.at("work").is_null() && (own.at("work").is_null() || row.at("work") < own.at("work")))
      return &row;
  }
  return nullptr;
}

}  // namespace

std::string streaming_text(const json& choices) {
  const json* const row = choices.empty() ? nullptr : faster_by_streaming(choices);
  if (row == nullptr) return "";
  const auto costs = [](const json& each) {
    return step_cell(each) + " in " + bytes_text(each.at("planned_bytes").get<uint64_t>());
  };
  return "\"weights\": {\"stream\": \"auto\"} would take " + costs(*row) +
         (choices[0].at("work").is_null() ? ", where the recipe does not fit"
                                          : ", where the recipe takes " + costs(choices[0])) +
         "\n";
}

std::string storage_choices_text(const json& choices, int sequence) {
  if (choices.size() < 2) return "";
  std::string text =
      "\nhow far it goes, by how the model is stored; seconds are of the recipe's own batch:\n\n  frozen      states  "
      "streamed";
  text += (sequence > 0 ? "  longest T in a batch of 1  largest batch of T " + std::to_string(sequence)
                        : "  largest batch") +
          "          a step";
  for (const json& row : choices) {
    text += "\n" + choice_text(row);
    if (sequence > 0) text += format("  %25s", row.at("sequence").dump());
    text += format(sequence > 0 ? "  %24s" : "  %13s", row.at("batch").dump()) + format("  %14s", step_cell(row));
  }
  return text + "\n" + streaming_text(choices);
}

std::string models_text(const json& models) {
  size_t width = std::string("model").size();
  for (const json& entry : models) width = std::max(width, entry.at("model").get_ref<const std::string&>().size());
  const auto name = [width](const std::string& text) { return "  " + text + std::string(width - text.size(), ' '); };
  std::string text =
                  name("model") +
                  "  frozen      states  streamed  longest T in a batch of 1  largest batch    of T          a step\n",
              streaming;
  for (const json& entry : models) {
    const std::string model = name(entry.at("model"));
    if (!entry.at("reason").is_null()) {
      text += model + "  " + entry["reason"].get<std::string>() + "\n";
      continue;
    }
    const auto cell = [](const json& number) { return number.is_null() ? "-" : number.dump(); };
    for (const json& row : entry.at("storage")) {
      text += model + choice_text(row) + format("  %25s", cell(row.at("sequence"))) +
              format("  %13s", cell(row.at("batch"))) + format("  %6s", cell(entry.at("sequence"))) +
              format("  %14s", step_cell(row)) + "\n";
    }
    if (const std::string words = streaming_text(entry.at("storage")); !words.empty())
      streaming += "  " + entry.at("model").get<std::string>() + ": " + words;
  }
  return text + (streaming.empty() ? "" : "\n" + streaming);
}

}  // namespace reprise
