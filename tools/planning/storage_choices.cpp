// See storage_choices.h.
#include "tools/planning/storage_choices.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "tools/formats/error.h"
#include "tools/planning/planner.h"
#include "tools/progress/long_work.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr int kSequenceStep = 64;
constexpr int kLargestBatch = 4096;

// The recipe's own words first.
struct Choices {
  std::vector<WeightsRecipe> weights;
  std::vector<DType> states;
};

bool keeps_moments_in_any_type(const OptimizerRecipe& optimizer) {
  return optimizer.update == Op::kAdamW || optimizer.update == Op::kLion || optimizer.update == Op::kMuon || (optimizer.update == Op::kSgd && optimizer.momentum > 0);
}

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
    streamed.stream = streamed.stream == WeightsRecipe::Stream::kNone ? WeightsRecipe::Stream::kByPlan : WeightsRecipe::Stream::kNone;
    choices.weights.push_back(streamed);
  }
  return choices;
}

// A choice that the model does not have, as one without a matrix that is worth streaming, does not fit.
bool fits(Recipe recipe, int batch, int sequence) {
  recipe.batch = batch;
  recipe.sequence = sequence;
  try {
    const SolvedModel model = solve_model(recipe);
    const uint64_t least = smallest_budget(model, request_of(model));
    return least != 0 && least <= *recipe.budget_bytes;
  } catch (const UserError&) {
    return false;
  }
}

// The largest n in [0, most] for which it holds, of what holds for all below; 0 always does.
int largest(int most, const std::function<bool(int)>& holds) {
  int least = 0;
  while (least < most) {
    const int middle = least + (most - least + 1) / 2;
    if (holds(middle)) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

// What doubles until it no longer holds is found sooner where little fits.
int largest_by_doubling(int most, const std::function<bool(int)>& holds) {
  int good = 0, next = 1;
  while (next <= most && holds(next)) good = next, next *= 2;
  const int bound = std::min(most, next - 1);
  return good + largest(bound - good, [&](int more) { return holds(good + more); });
}

json row_of(const Recipe& recipe) {
  const json written = json::parse(canonical_recipe(recipe));
  const json weights = written.value("weights", json::object());
  json row = {{"frozen", weights.value("frozen", "as_stored")}, {"stream", weights.value("stream", json(false))},
              {"states", written.at("optimizer").value("states", "f32")}, {"sequence", nullptr}};
  if (recipe.sequence > 0) {
    const int longest = describe_model(recipe.model).longest_sequence;
    row["sequence"] = kSequenceStep * largest_by_doubling(longest / kSequenceStep, [&](int n) { return fits(recipe, 1, kSequenceStep * n); });
  }
  row["batch"] = largest_by_doubling(kLargestBatch, [&](int batch) { return fits(recipe, batch, recipe.sequence); });
  return row;
}

}  // namespace

json storage_choices(const Recipe& recipe) {
  LongWork work("ways to store " + recipe.name);
  const Choices choices = choices_of(recipe);
  json rows = json::array();
  for (const WeightsRecipe& weights : choices.weights) {
    for (const DType states : choices.states) {
      work.done(static_cast<double>(rows.size()) / static_cast<double>(choices.weights.size() * choices.states.size()));
      Recipe chosen = recipe;
      chosen.weights = weights;
      chosen.optimizer.states = states;
      rows.push_back(row_of(chosen));
    }
  }
  return rows;
}

std::string storage_choices_text(const json& choices, int sequence) {
  if (choices.size() < 2) return "";
  char line[128];
  std::string text = "\nhow far it goes, by how the model is stored:\n\n  frozen      states  streamed";
  if (sequence > 0) {
    std::snprintf(line, sizeof line, "  longest T in a batch of 1  largest batch of T %d", sequence);
    text += line;
  } else {
    text += "  largest batch";
  }
  for (const json& row : choices) {
    const json& stream = row.at("stream");
    const std::string streamed = stream.is_string() ? stream.get<std::string>() : stream.get<bool>() ? "yes" : "no";
    std::snprintf(line, sizeof line, "\n  %-10s  %-6s  %-8s", row.at("frozen").get<std::string>().c_str(), row.at("states").get<std::string>().c_str(), streamed.c_str());
    text += line;
    if (sequence > 0) {
      std::snprintf(line, sizeof line, "  %25d", row.at("sequence").get<int>());
      text += line;
    }
    std::snprintf(line, sizeof line, "  %13d", row.at("batch").get<int>());
    text += line;
  }
  return text + "\n";
}

}  // namespace reprise
