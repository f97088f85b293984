// See storage_choices.h.
#include "tools/planning/storage_choices.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tools/formats/error.h"
#include "tools/planning/planner.h"
#include "tools/planning/weight_storage.h"
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

using LeastBytes = std::function<std::optional<uint64_t>(int)>;

// The least that a micro-batch takes; nothing where the model does not have the choice, as one without a matrix that is worth streaming.
std::optional<uint64_t> least_bytes(Recipe recipe, const WeightSource* published, int batch, int sequence) {
  recipe.batch = batch;
  recipe.sequence = sequence;
  try {
    const SolvedModel model = solve_model(recipe, std::nullopt, published);
    const uint64_t least = smallest_budget(model, request_of(model));
    return least == 0 ? std::nullopt : std::optional(least);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

struct Largest {
  int n = 0;                      // 0: not even 1 fits
  std::optional<uint64_t> first;  // bytes(1), where it is known
};

// The largest n up to `most` whose bytes fit the budget, of bytes that grow with n. Each is a plan, and together they lie nearly on a line: where the
// line through the last two meets the budget is asked next, and now and then the middle of what is left, should they not. `guess` is asked second.
Largest largest_within(uint64_t budget, int most, int guess, const LeastBytes& bytes) {
  if (most < 1) return {};
  std::optional<uint64_t> asked = bytes(1), before;
  const std::optional<uint64_t> first = asked;
  if (!asked || *asked > budget) return {0, first};
  int fits = 1, too_large = most + 1, n = 1, n_before = 0;
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

json row_of(const Recipe& recipe, const WeightSource* published) {
  const json written = json::parse(canonical_recipe(recipe));
  const json weights = written.value("weights", json::object());
  const uint64_t budget = *recipe.budget_bytes;
  Largest steps;
  const ModelDescription description = describe_model(recipe.model);
  const int most_tokens = description.longest_sequence, step = description.one_length ? most_tokens : kSequenceStep;
  const auto tokens = [most_tokens, step](int n) { return std::min(step * n, most_tokens); };
  if (recipe.sequence > 0) {
    const int most = (most_tokens + step - 1) / step;
    steps =
        largest_within(budget, most, recipe.sequence / step, [&](int n) { return least_bytes(recipe, published, 1, tokens(n)); });
  }
  const int samples = tokens(steps.n) / std::max(1, recipe.sequence);  // of as many tokens as the longest
  const Largest batch = largest_within(budget, kLargestBatch, samples, [&](int n) { return least_bytes(recipe, published, n, recipe.sequence); });
  const std::optional<uint64_t> least = steps.first ? steps.first : batch.first;
  return {{"frozen", weights.value("frozen", "as_stored")}, {"stream", weights.value("stream", json(false))}, {"states", written.at("optimizer").value("states", "f32")},
          {"sequence", recipe.sequence > 0 ? json(tokens(steps.n)) : json()}, {"batch", batch.n}, {"smallest_budget", least ? json(*least) : json()}};
}

}  // namespace

json storage_choices(const Recipe& recipe) {
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
      rows.push_back(row_of(chosen, published.get()));
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
  return format("  %-10s", row.at("frozen").get<std::string>()) + format("  %-6s", row.at("states").get<std::string>()) + format("  %-8s", streamed);
}

}  // namespace

std::string storage_choices_text(const json& choices, int sequence) {
  if (choices.size() < 2) return "";
  std::string text = "\nhow far it goes, by how the model is stored:\n\n  frozen      states  streamed";
  text += sequence > 0 ? "  longest T in a batch of 1  largest batch of T " + std::to_string(sequence) : "  largest batch";
  for (const json& row : choices) {
    text += "\n" + choice_text(row);
    if (sequence > 0) text += format("  %25s", row.at("sequence").dump());
    text += format("  %13s", row.at("batch").dump());
  }
  return text + "\n";
}

std::string models_text(const json& models) {
  size_t width = std::string("model").size();
  for (const json& entry : models) width = std::max(width, entry.at("model").get_ref<const std::string&>().size());
  const auto name = [width](const std::string& text) { return "  " + text + std::string(width - text.size(), ' '); };
  std::string text = name("model") + "  frozen      states  streamed  longest T in a batch of 1  largest batch  of T\n";
  for (const json& entry : models) {
    const std::string model = name(entry.at("model"));
    if (!entry.at("reason").is_null()) {
      text += model + "  " + entry["reason"].get<std::string>() + "\n";
      continue;
    }
    const auto cell = [](const json& number) { return number.is_null() ? "-" : number.dump(); };
    for (const json& row : entry.at("storage")) {
      text += model + choice_text(row) + format("  %25s", cell(row.at("sequence"))) + format("  %13s", cell(row.at("batch"))) + "  " + cell(entry.at("sequence")) + "\n";
    }
  }
  return text;
}

}  // namespace reprise
