// Implements compare_ranks.h: plans the recipe for each number of ranks, and predicts the step's
// time.
#include "tools/plan/planning/compare_ranks.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/plan/costs/prediction.h"

namespace reprise {

using nlohmann::json;

namespace {

SolvedModel solved_for_ranks(const SolvedModel& model, uint32_t ranks) {
  Recipe recipe = model.recipe;
  if (!recipe.parallel) recipe.parallel.emplace();
  recipe.parallel->ranks = static_cast<int>(ranks);
  if (ranks == 1) recipe.parallel->shard_optimizer = recipe.parallel->shard_weights = false;  // one rank stores all
  SolvedModel solved = solve_network(recipe, model.network, model.measured);
  solved.answering = model.answering;
  return solved;
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g s", seconds);
  return text;
}

double samples_of_step(const Recipe& recipe) { return static_cast<double>(recipe.batch) * recipe.micro_batches(); }

struct StepOfRanks {
  bool fits = false;
  uint64_t planned_bytes = 0;
  WireTime time;
  double samples_per_second = 0;
};

StepOfRanks step_of(const SolvedModel& model, uint32_t ranks) {
  const SolvedModel solved = solved_for_ranks(model, ranks);
  const PlannedModel planned = plan_model(solved, request_of(solved));
  if (!planned.fits) return {};
  const WireTime time = step_on_wire(solved, planned.plan);
  return {true, planned.plan.arena_bytes, time,
          time.step_seconds > 0 ? samples_of_step(solved.recipe) / time.step_seconds : 0};
}

json row_of(const SolvedModel& model, uint32_t ranks, const StepOfRanks& step, const StepOfRanks& alone) {
  json row = {{"ranks", ranks},
              {"order", model.recipe.parallel && model.recipe.parallel->two_levels ? "two-level" : "flat"},
              {"feasible", step.fits}};
  for (const char* key : {"planned_bytes", "sent_bytes", "received_bytes", "wire_seconds", "waited_seconds",
                          "step_seconds", "samples_per_second", "efficiency"}) {
    row[key] = nullptr;
  }
  if (!step.fits) return row;
  row["planned_bytes"] = step.planned_bytes;
  row["sent_bytes"] = step.time.sent_bytes;
  row["received_bytes"] = step.time.received_bytes;
  row["wire_seconds"] = step.time.wire_seconds;
  row["waited_seconds"] = step.time.waited_seconds;
  row["step_seconds"] = step.time.step_seconds;
  row["samples_per_second"] = step.samples_per_second;
  if (alone.fits && alone.samples_per_second > 0)
    row["efficiency"] = step.samples_per_second / (ranks * alone.samples_per_second);
  return row;
}

}  // namespace

json compare_ranks(const SolvedModel& model, const std::vector<uint32_t>& ranks) {
  if (!model.measured || !model.measured->wire) {
    throw UserError(model.recipe.name +
                    ": --ranks: the profile has not measured the wire; `reprise profile RECIPE -o FILE --peers "
                    "\"mpirun -np 2 -H a,b build/peers_mpi\"` does");
  }
  LongWork work("planning for several ranks");
  const StepOfRanks alone = step_of(model, 1);
  const Wire& wire = *model.measured->wire;
  json rows = json::array();
  for (const uint32_t each : ranks) {
    rows.push_back(row_of(model, each, each == 1 ? alone : step_of(model, each), alone));
    work.done(static_cast<double>(rows.size()) / static_cast<double>(ranks.size()));
  }
  return {{"wire",
           {{"ranks", wire.ranks}, {"message_seconds", wire.message_seconds}, {"byte_seconds", wire.byte_seconds}}},
          {"rows", rows}};
}

namespace {

std::string ranks_row_text(const json& row) {
  const auto bytes = [&row](const char* key) { return bytes_text(row.at(key).get<uint64_t>()); };
  const auto number = [&row](const char* key) { return row.at(key).get<double>(); };
  char line[240];
  if (!row.at("feasible").get<bool>()) {
    std::snprintf(line, sizeof line, "%5u  does not fit\n", row.at("ranks").get<uint32_t>());
    return line;
  }
  std::snprintf(line, sizeof line, "%5u  %-9s  %-10s  %-10s  %-10s  %-10s  %-10s  %-10s  %-10.4g",
                row.at("ranks").get<uint32_t>(), row.at("order").get<std::string>().c_str(),
                bytes("planned_bytes").c_str(), bytes("sent_bytes").c_str(), bytes("received_bytes").c_str(),
                seconds_text(number("wire_seconds")).c_str(), seconds_text(number("waited_seconds")).c_str(),
                seconds_text(number("step_seconds")).c_str(), number("samples_per_second"));
  std::string text = line;
  if (row.at("efficiency").is_null()) return text + "\n";
  std::snprintf(line, sizeof line, "  %.1f%%\n", 100 * number("efficiency"));
  return text + line;
}

}  // namespace

std::string ranks_text(const json& comparison) {
  const json& wire = comparison.at("wire");
  std::string text = wire_words({wire.at("ranks"), wire.at("message_seconds"), wire.at("byte_seconds")}) +
                     "\nranks  order      arena       sent        received    wire        waited      step        "
                     "samples/s   efficiency\n";
  for (const json& row : comparison.at("rows")) text += ranks_row_text(row);
  return text +
         "sent: by each rank to every other in a step; received: by each of all others; wire: seconds in which that "
         "comes, waited: in which rows wait for it\n"
         "simulated: kernels as the profile has them, tensors one after another as each rank's own port receives them, "
         "all ranks alike\n";
}

}  // namespace reprise
