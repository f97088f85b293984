// Makes the table of fit_table.h.
#include "tools/plan/planning/fit_table.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"

namespace reprise {
namespace {

using nlohmann::json;

class FitTable {
 public:
  FitTable(const Recipe& recipe, const StepTimes& times) : recipe_(recipe), times_(times) {}

  json run() const {
    LongWork work("the table of " + recipe_.name);
    const std::vector<int> batches = batches_to_try(), sequences = sequences_to_try();
    json answer = {{"budget", *recipe_.budget_bytes},
                   {"seconds_rest_on", times_.rest_on()},
                   {"table", json::array()},
                   {"proposals", json::array()}};
    double done = 0;
    for (const int sequence : sequences) {
      int fitting = 0;  // the largest batch that fits; no batch is tried after one that does not fit
      bool fits = true;
      for (const int batch : batches) {
        work.done(done++ / static_cast<double>(batches.size() * sequences.size()));
        json row = {{"batch", batch},
                    {"sequence", sequence},
                    {"fits", false},
                    {"planned_bytes", nullptr},
                    {"extra_forward_cost", nullptr},
                    {"predicted_seconds", nullptr},
                    {"work", nullptr},
                    {"seconds", nullptr},
                    {"smallest_budget", nullptr}};
        const json plan = fits ? plan_of(batch, sequence, recipe_.accumulate) : json();
        fits = !plan.is_null();
        if (fits) row.update(plan), row["fits"] = true, fitting = batch;
        else row["smallest_budget"] = smallest_budget_of(batch, sequence);
        answer["table"].push_back(row);
        if (!fits && fitting > 0) add_proposal(answer["proposals"], batch, sequence, fitting);
      }
    }
    if (std::none_of(answer["table"].begin(), answer["table"].end(),
                     [](const json& row) { return row.at("fits").get<bool>(); })) {
      answer["smallest"] = {{"batch", batches[0]},
                            {"sequence", sequences[0]},
                            {"budget", answer["table"][0]["smallest_budget"]}};
    }
    return answer;
  }

 private:
  std::vector<int> batches_to_try() const {
    std::vector<int> batches;
    for (int batch = 1; batch <= std::max(8, 2 * recipe_.batch); batch *= 2) batches.push_back(batch);
    if (std::find(batches.begin(), batches.end(), recipe_.batch) == batches.end()) batches.push_back(recipe_.batch);
    std::sort(batches.begin(), batches.end());
    return batches;
  }
  std::vector<int> sequences_to_try() const {
    if (recipe_.sequence == 0) return {0};
    const ModelDescription description = describe_model(recipe_.model);
    if (description.one_length) return {recipe_.sequence};
    const int longest = description.longest_sequence;
    std::vector<int> sequences;
    for (const int length :
         {recipe_.sequence / 4, recipe_.sequence / 2, recipe_.sequence, std::min(longest, 2 * recipe_.sequence)}) {
      if (length > 0 && (sequences.empty() || length > sequences.back())) sequences.push_back(length);
    }
    return sequences;
  }

  SolvedModel solve(int batch, int sequence, int accumulate) const {
    Recipe recipe = recipe_;
    recipe.batch = batch;
    recipe.sequence = sequence;
    recipe.accumulate = accumulate;
    return solve_model(recipe);
  }

  // Returns the smallest budget; null if it is unknown.
  json smallest_budget_of(int batch, int sequence) const {
    const SolvedModel model = solve(batch, sequence, recipe_.accumulate);
    const uint64_t budget = smallest_budget(model, request_of(model));
    return budget == 0 ? json() : json(budget);
  }

  // Returns the figures of the plan; null if it does not fit.
  json plan_of(int batch, int sequence, int accumulate) const {
    const SolvedModel model = solve(batch, sequence, accumulate);
    const PlannedModel planned = plan_model(model, request_of(model));
    if (!planned.fits) return json();
    const double seconds = times_.seconds(model, planned);
    return {{"planned_bytes", planned.plan.arena_bytes},
            {"extra_forward_cost", planned.extra_forward_cost},
            {"predicted_seconds", times_.are_profiled() ? json(seconds) : json()},
            {"work", times_.work(model, planned)},
            {"seconds", seconds}};
  }

  // Adds a proposal: the largest micro-batch that fits and divides the batch, accumulated to the
  // step of the batch.
  void add_proposal(json& proposals, int batch, int sequence, int fitting) const {
    if (recipe_.gradient_release) return;  // with gradient release, micro-batches cannot be accumulated
    for (int micro = fitting; micro > 0; --micro) {
      if (batch % micro != 0) continue;
      const int accumulate = recipe_.accumulate * (batch / micro);
      json plan = plan_of(micro, sequence, accumulate);
      if (plan.is_null()) continue;
      plan.update({{"batch", batch}, {"sequence", sequence}, {"micro_batch", micro}, {"accumulate", accumulate}});
      proposals.push_back(plan);
      return;
    }
  }

  const Recipe& recipe_;
  const StepTimes& times_;
};

std::string formatted(const char* form, double value) {
  char text[48];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

std::string batch_words(const json& row) {
  const int sequence = row.at("sequence");
  return "batch " + row.at("batch").dump() + (sequence == 0 ? "" : " of " + std::to_string(sequence) + " tokens");
}

// Returns the seconds of a step, and the extra forward work.
std::string plan_cell(const json& plan) {
  return formatted("%.3g s", plan.at("seconds").get<double>()) +
         formatted(" +%.0f%%", 100 * plan.at("extra_forward_cost").get<double>());
}

std::string cell_text(const json& row) {
  if (row.at("fits")) return plan_cell(row);
  const json& minimum = row.at("smallest_budget");
  return minimum.is_null() ? "-" : "needs " + bytes_text(minimum.get<uint64_t>());
}

}  // namespace

json fit_table(const Recipe& recipe, const StepTimes& times) { return FitTable(recipe, times).run(); }

std::string fit_table_text(const json& table) {
  std::string text = "a step's seconds, by " + table.at("seconds_rest_on").get<std::string>() +
                     "; and what of it is recomputation\n\n  batch";
  std::vector<int> sequences, batches;
  for (const json& row : table.at("table")) {
    const int sequence = row.at("sequence"), batch = row.at("batch");
    if (std::find(sequences.begin(), sequences.end(), sequence) == sequences.end()) sequences.push_back(sequence);
    if (std::find(batches.begin(), batches.end(), batch) == batches.end()) batches.push_back(batch);
  }
  char line[64];
  for (const int sequence : sequences) {
    std::snprintf(line, sizeof line, "%20s", sequence == 0 ? "step" : ("T " + std::to_string(sequence)).c_str());
    text += line;
  }
  for (const int batch : batches) {
    std::snprintf(line, sizeof line, "\n%7d", batch);
    text += line;
    for (const int sequence : sequences) {
      const auto row = std::find_if(table.at("table").begin(), table.at("table").end(), [&](const json& r) {
        return r.at("batch") == batch && r.at("sequence") == sequence;
      });
      std::snprintf(line, sizeof line, "%20s", cell_text(*row).c_str());
      text += line;
    }
  }
  text += "\n";
  if (!table.at("proposals").empty()) text += "\nwhat does not fit at once fits in micro-batches:\n";
  for (const json& p : table.at("proposals")) {
    text += "  " + batch_words(p) + ": \"batch\": " + p.at("micro_batch").dump() +
            ", \"accumulate\": " + p.at("accumulate").dump() + " (" + plan_cell(p) + ", " +
            bytes_text(p.at("planned_bytes").get<uint64_t>()) + ")\n";
  }
  return text;
}

std::string nothing_fits_message(const Recipe& recipe, const json& table) {
  const json& smallest = table.at("smallest");
  const std::string text =
      recipe.name + ": budget " + bytes_text(table.at("budget").get<uint64_t>()) + ": nothing of the table fits";
  if (smallest.at("budget").is_null()) return text;
  return text + "; the smallest budget that does is " + smallest.at("budget").dump() + " bytes (" +
         bytes_text(smallest.at("budget").get<uint64_t>()) + "), of " + batch_words(smallest);
}

}  // namespace reprise
