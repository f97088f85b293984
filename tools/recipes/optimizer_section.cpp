// A recipe's "optimizer" and "lr_schedule".
#include "tools/formats/json_text.h"
#include "tools/recipes/sections.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr Word<Op> kOptimizers[] = {{"sgd", Op::kSgd}, {"adamw", Op::kAdamW}, {"lion", Op::kLion}};
constexpr Word<LrSchedule::Kind> kLrKinds[] = {
    {"constant", LrSchedule::Kind::kConstant}, {"step", LrSchedule::Kind::kStep}, {"cosine", LrSchedule::Kind::kCosine}};

void read_betas(const JsonFields& fields, OptimizerRecipe& optimizer) {
  if (!fields.has("betas")) return;
  const json& betas = fields.list_at("betas");
  if (betas.size() != 2) fields.refuse("betas", "must be a list of two numbers, not " + json_shown(betas));
  optimizer.beta1 = fields.number_in("betas", betas[0], kBelowOne);
  optimizer.beta2 = fields.number_in("betas", betas[1], kBelowOne);
}

}  // namespace

OptimizerRecipe read_optimizer(const JsonFields& fields) {
  OptimizerRecipe optimizer;
  fields.read_required_choice("name", optimizer.update, kOptimizers);
  if (optimizer.update == Op::kSgd) {
    fields.allow_only({"name", "lr", "momentum", "nesterov", "weight_decay", "no_decay"});
    fields.read("momentum", optimizer.momentum, kFactor);
    fields.read("nesterov", optimizer.nesterov);
  } else if (optimizer.update == Op::kLion) {
    fields.allow_only({"name", "lr", "betas", "weight_decay", "no_decay"});
    optimizer.beta2 = 0.99;
    read_betas(fields, optimizer);
  } else {
    fields.allow_only({"name", "lr", "betas", "eps", "weight_decay", "no_decay"});
    optimizer.weight_decay = 0.01;
    read_betas(fields, optimizer);
    fields.read("eps", optimizer.eps, kEpsilon);
  }
  fields.read("lr", optimizer.lr, kNonNegative);
  fields.read("weight_decay", optimizer.weight_decay, kFactor);
  fields.read("no_decay", optimizer.no_decay);
  return optimizer;
}

void check_optimizer(const OptimizerRecipe& optimizer, const RecipeRules& rules) {
  rules.require(!optimizer.nesterov || optimizer.momentum > 0, "optimizer.nesterov", "needs a momentum above 0");
}

json optimizer_json(const OptimizerRecipe& optimizer) {
  json value = {{"name", word_of(kOptimizers, optimizer.update)},
                {"lr", optimizer.lr},
                {"weight_decay", optimizer.weight_decay},
                {"no_decay", optimizer.no_decay}};
  if (optimizer.update == Op::kSgd) {
    value.update({{"momentum", optimizer.momentum}, {"nesterov", optimizer.nesterov}});
  } else {
    value["betas"] = {optimizer.beta1, optimizer.beta2};
    if (optimizer.update == Op::kAdamW) value["eps"] = optimizer.eps;
  }
  return value;
}

LrSchedule read_lr_schedule(const JsonFields& fields) {
  fields.allow_only({"kind", "warmup_steps", "steps", "milestones", "gamma"});
  LrSchedule schedule;
  fields.read_required_choice("kind", schedule.kind, kLrKinds);
  fields.read("warmup_steps", schedule.warmup_steps, 0, kMostSteps);
  fields.read("steps", schedule.steps, 1, kMostSteps);
  fields.read("gamma", schedule.gamma, kPositive);
  if (!fields.has("milestones")) return schedule;
  for (const json& value : fields.list_at("milestones")) {
    const uint64_t step = fields.integer_in("milestones", value, 1, kMostSteps);
    if (!schedule.milestones.empty() && step <= schedule.milestones.back()) {
      fields.refuse("milestones", "must rise; " + std::to_string(step) + " follows " + std::to_string(schedule.milestones.back()));
    }
    schedule.milestones.push_back(step);
  }
  return schedule;
}

void check_lr_schedule(const LrSchedule& schedule, const RecipeRules& rules) {
  rules.require(schedule.kind != LrSchedule::Kind::kStep || !schedule.milestones.empty(), "lr_schedule.milestones",
                "missing; \"step\" needs the steps at which the learning rate falls, for example [3000, 6000]");
  rules.require(schedule.kind != LrSchedule::Kind::kCosine || schedule.steps > 0, "lr_schedule.steps",
                "missing; \"cosine\" needs \"steps\", here or in the recipe");
  rules.require(schedule.kind != LrSchedule::Kind::kCosine || schedule.warmup_steps < schedule.steps, "lr_schedule.warmup_steps",
                "must be less than the " + std::to_string(schedule.steps) + " steps of the schedule, not " + std::to_string(schedule.warmup_steps));
}

json lr_schedule_json(const LrSchedule& schedule) {
  json value = {{"kind", word_of(kLrKinds, schedule.kind)},
                {"warmup_steps", schedule.warmup_steps},
                {"milestones", schedule.milestones},
                {"gamma", schedule.gamma}};
  if (schedule.steps > 0) value["steps"] = schedule.steps;
  return value;
}

}  // namespace reprise
