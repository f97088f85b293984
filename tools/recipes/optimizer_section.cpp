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
  std::vector<double> betas = {optimizer.beta1, optimizer.beta2};
  fields.read("betas", betas, kBelowOne, {"What the two running means keep of themselves in a step; two numbers"});
  if (betas.size() != 2) fields.refuse("betas", "must be a list of two numbers, not " + json_shown(fields.at("betas")));
  optimizer.beta1 = betas[0];
  optimizer.beta2 = betas[1];
}

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const Word<Op>& entry : kOptimizers) names.emplace_back(entry.word);
  return names;
}

OptimizerRecipe read_optimizer(const JsonFields& fields) {
  OptimizerRecipe optimizer;
  fields.read_required_choice("name", optimizer.update, kOptimizers,
              {"The rule of the update, as torch defines it; \"lion\" is Chen et al. 2023"});
  if (optimizer.update == Op::kSgd) {
    fields.allow_only({"name", "lr", "momentum", "nesterov", "weight_decay", "no_decay"});
    fields.read("momentum", optimizer.momentum, kFactor,
              {"What the running mean of the gradients keeps of itself in a step; 0: there is none"});
    fields.read("nesterov", optimizer.nesterov, {"Nesterov's form of the momentum"});
  } else if (optimizer.update == Op::kLion) {
    fields.allow_only({"name", "lr", "betas", "weight_decay", "no_decay"});
    optimizer.beta2 = 0.99;
    read_betas(fields, optimizer);
  } else {
    fields.allow_only({"name", "lr", "betas", "eps", "weight_decay", "no_decay"});
    optimizer.weight_decay = 0.01;
    read_betas(fields, optimizer);
    fields.read("eps", optimizer.eps, kEpsilon, {"Added to the root of the second moment, by which is divided"});
  }
  fields.read("lr", optimizer.lr, kNonNegative, {"The learning rate, which lr_schedule multiplies"});
  fields.read("weight_decay", optimizer.weight_decay, kFactor, {"The weight decay of every parameter that no_decay does not name"});
  fields.read("no_decay", optimizer.no_decay, {"Patterns of the parameters without weight decay; `reprise parameters` lists the names"});
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
  fields.read_required_choice("kind", schedule.kind, kLrKinds,
              {"How the factor goes on after the warm-up: it stays 1, falls at milestones, or falls as a cosine"});
  fields.read("warmup_steps", schedule.warmup_steps, 0, kMostSteps,
              {"Before that step s (from 0) has the factor (s + 1) / warmup_steps", "steps"});
  fields.read("steps", schedule.steps, 1, kMostSteps, {"Where the factor of \"cosine\" reaches 0", "steps", "the recipe's steps"});
  fields.read("gamma", schedule.gamma, kPositive, {"The factor of \"step\" at each milestone"});
  fields.read("milestones", schedule.milestones, 1, kMostSteps,
              {"Rising: where the factor of \"step\" is multiplied by gamma", "steps", "none; required for \"step\""});
  for (size_t i = 1; i < schedule.milestones.size(); ++i) {
    const uint64_t last = schedule.milestones[i - 1], step = schedule.milestones[i];
    if (step <= last) fields.refuse("milestones", "must rise; " + std::to_string(step) + " follows " + std::to_string(last));
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
