// A recipe's "optimizer" and "lr_schedule".
#include "tools/files/formats/json_text.h"
#include "tools/plan/recipes/sections.h"

namespace reprise {
namespace {

using nlohmann::json;

// The update rule of an optimizer's name. `small` distinguishes two names with the same op, for
// example adalomo from adafactor.
struct Rule {
  Op update;
  bool small = false;
  bool operator==(const Rule&) const = default;
};
constexpr Word<Rule> kOptimizers[] = {{"sgd", {Op::kSgd}},
                                      {"adamw", {Op::kAdamW}},
                                      {"lion", {Op::kLion}},
                                      {"adafactor", {Op::kAdafactor}},
                                      {"adalomo", {Op::kAdafactor, true}},
                                      {"apollo", {Op::kApollo}},
                                      {"apollo_mini", {Op::kApollo, true}},
                                      {"muon", {Op::kMuon}}};
constexpr Word<DType> kStates[] = {{"f32", DType::kF32}, {"bf16", DType::kBf16}, {"8bit", DType::kDynamic8}};
constexpr Word<bool> kAdjust[] = {{"original", false}, {"match_rms_adamw", true}};
constexpr Word<LrSchedule::Kind> kLrKinds[] = {{"constant", LrSchedule::Kind::kConstant},
                                               {"step", LrSchedule::Kind::kStep},
                                               {"cosine", LrSchedule::Kind::kCosine}};

void read_betas(const JsonFields& fields, OptimizerRecipe& optimizer) {
  std::vector<double> betas = {optimizer.beta1, optimizer.beta2};
  fields.read("betas", betas, kBelowOne, {"What the two running means keep of themselves in a step; two numbers"});
  if (betas.size() != 2) fields.refuse("betas", "must be a list of two numbers, not " + json_shown(fields.at("betas")));
  optimizer.beta1 = betas[0];
  optimizer.beta2 = betas[1];
}

void read_states(const JsonFields& fields, OptimizerRecipe& optimizer) {
  fields.read_choice("states", optimizer.states, kStates,
                     {"How moments are stored; \"bf16\" is rounded at random, \"8bit\" is bitsandbytes' codes in "
                      "blocks of 256, for tensors of 4096 at least"});
}

constexpr const char* kEpsilonMeaning =
    "Added to what is divided by: the root of the second moment; adafactor: each mean of squares; muon: the least norm";

void read_sgd(const JsonFields& fields, OptimizerRecipe& optimizer) {
  fields.allow_only({"name", "lr", "momentum", "nesterov", "weight_decay", "no_decay", "states", "offload"});
  fields.read("momentum", optimizer.momentum, kFactor,
              {"What the running mean of the gradients keeps of itself in a step; 0: there is none"});
  fields.read("nesterov", optimizer.nesterov, {"Nesterov's form of the momentum"});
  read_states(fields, optimizer);
}

void read_lion(const JsonFields& fields, OptimizerRecipe& optimizer) {
  fields.allow_only({"name", "lr", "betas", "weight_decay", "no_decay", "states", "offload"});
  optimizer.beta2 = 0.99;
  read_betas(fields, optimizer);
  read_states(fields, optimizer);
}

void read_adamw(const JsonFields& fields, OptimizerRecipe& optimizer) {
  fields.allow_only({"name", "lr", "betas", "eps", "weight_decay", "no_decay", "states", "offload"});
  optimizer.weight_decay = 0.01;
  read_betas(fields, optimizer);
  fields.read("eps", optimizer.eps, kEpsilon, {kEpsilonMeaning});
  read_states(fields, optimizer);
}

void read_adafactor(const JsonFields& fields, OptimizerRecipe& optimizer) {
  fields.allow_only({"name", "lr", "eps", "decay_power", "least_scale", "clip_threshold", "weight_decay", "no_decay"});
  if (!optimizer.small) optimizer.lr = 0.01;
  optimizer.eps = 1e-30;
  fields.read("eps", optimizer.eps, kEpsilon, {kEpsilonMeaning});
  fields.read("decay_power", optimizer.decay_power, kPositive,
              {"Step t, from 1, keeps 1 - t^-decay_power of the means of squares"});
  fields.read("least_scale", optimizer.min_scale, kBelowOne,
              {"A step is scaled by the root mean square of the parameters, or by this where that is less"});
  fields.read("clip_threshold", optimizer.clip_threshold, kPositive, {"The largest root mean square of an update"});
}

void read_apollo(const JsonFields& fields, OptimizerRecipe& optimizer) {
  fields.allow_only({"name", "lr", "betas", "eps", "rank", "scale", "period", "weight_decay", "no_decay", "offload"});
  optimizer.eps = 1e-6;
  if (optimizer.small) optimizer.rank = 1, optimizer.scale = 128;
  read_betas(fields, optimizer);
  fields.read("eps", optimizer.eps, kEpsilon, {kEpsilonMeaning});
  constexpr uint64_t kMaxRank = 4096;
  fields.read("rank", optimizer.rank, 1, kMaxRank,
              {"To which the shorter side of a gradient is projected; what is no matrix, or no larger, AdamW updates"});
  fields.read("scale", optimizer.scale, kPositive, {"The root of this multiplies the update"});
  fields.read("period", optimizer.period, 1, kMaxSteps, {"After how many another projection is drawn", "steps"});
}

void read_muon(const JsonFields& fields, OptimizerRecipe& optimizer) {
  fields.allow_only({"name", "lr", "momentum", "nesterov", "eps", "adjust", "adamw_lr", "betas", "weight_decay",
                     "no_decay", "states", "offload"});
  optimizer.momentum = 0.95, optimizer.nesterov = true, optimizer.eps = 1e-7, optimizer.weight_decay = 0.1;
  fields.read("momentum", optimizer.momentum, kBelowOne,
              {"What the running mean of the gradients keeps of itself in a step; 0: there is none"});
  fields.read("nesterov", optimizer.nesterov, {"Nesterov's form of the momentum"});
  fields.read("eps", optimizer.eps, kEpsilon, {kEpsilonMeaning});
  fields.read_choice("adjust", optimizer.matches_adamw, kAdjust,
                     {"What a matrix's size makes of the step: times sqrt(max(1, rows / columns)), or 0.2 "
                      "sqrt(max(rows, columns)), as large as AdamW's"});
  fields.read("adamw_lr", optimizer.adamw_lr, kPositive,
              {"The learning rate of what AdamW updates: tables of tokens and positions, heads, and what is no matrix",
               "", "lr"});
  read_betas(fields, optimizer);
  read_states(fields, optimizer);
}

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const Word<Rule>& entry : kOptimizers) names.emplace_back(entry.word);
  return names;
}

OptimizerRecipe read_optimizer(const JsonFields& fields) {
  OptimizerRecipe optimizer;
  Rule rule = {Op::kSgd};
  fields.read_required_choice("name", rule, kOptimizers,
                              {"The rule of the update, as torch defines it; lib/ops/optimizer.h and matrix_update.h "
                               "have each formula and its paper"});
  optimizer.update = rule.update, optimizer.small = rule.small;
  switch (rule.update) {
    case Op::kAdamW: read_adamw(fields, optimizer); break;
    case Op::kLion: read_lion(fields, optimizer); break;
    case Op::kAdafactor: read_adafactor(fields, optimizer); break;
    case Op::kApollo: read_apollo(fields, optimizer); break;
    case Op::kMuon: read_muon(fields, optimizer); break;
    default: read_sgd(fields, optimizer);
  }
  fields.read("lr", optimizer.lr, kNonNegative, {"The learning rate, which lr_schedule multiplies"});
  fields.read("weight_decay", optimizer.weight_decay, kFactor,
              {"The weight decay of every parameter that no_decay does not name"});
  fields.read(
      "offload", optimizer.offload,
      {"Moments of 64 KiB and more lie in pinned memory of the host beside a card's, and come in for each update"});
  fields.read("no_decay", optimizer.no_decay,
              {"Patterns of the parameters without weight decay; `reprise parameters` lists the names"});
  return optimizer;
}

void check_optimizer(const Recipe& recipe, const RecipeRules& rules) {
  const OptimizerRecipe& optimizer = recipe.optimizer;
  rules.require(!optimizer.nesterov || optimizer.momentum > 0, "optimizer.nesterov", "needs a momentum above 0");
  rules.require(optimizer.update != Op::kMuon || optimizer.lr > 0 || !optimizer.adamw_lr, "optimizer.adamw_lr",
                "needs an lr above 0, of which it is a multiple");
  const bool is_adalomo = optimizer.update == Op::kAdafactor && optimizer.small;
  rules.require(!optimizer.offload || recipe.schedule.disk_bytes == 0, "optimizer.offload",
                "goes without schedule.disk: a plan has one second level, and the moments' is memory of the host");
  rules.require(!optimizer.offload || !recipe.gradient_release, "optimizer.offload",
                "goes without gradient_release, which updates within the backward");
  rules.require(!is_adalomo || recipe.gradient_release, "gradient_release",
                "must be true, or left out: AdaLomo releases each gradient");
}

json optimizer_json(const OptimizerRecipe& optimizer) {
  json value = {{"name", word_of(kOptimizers, Rule{optimizer.update, optimizer.small})},
                {"lr", optimizer.lr},
                {"weight_decay", optimizer.weight_decay},
                {"no_decay", optimizer.no_decay}};
  const Op update = optimizer.update;
  if (update == Op::kSgd || update == Op::kMuon)
    value.update({{"momentum", optimizer.momentum}, {"nesterov", optimizer.nesterov}});
  if (update != Op::kSgd && update != Op::kAdafactor) value["betas"] = {optimizer.beta1, optimizer.beta2};
  if (update != Op::kSgd && update != Op::kLion) value["eps"] = optimizer.eps;
  if (update == Op::kAdafactor) {
    value.update({{"decay_power", optimizer.decay_power},
                  {"least_scale", optimizer.min_scale},
                  {"clip_threshold", optimizer.clip_threshold}});
  }
  if (update == Op::kApollo)
    value.update({{"rank", optimizer.rank}, {"scale", optimizer.scale}, {"period", optimizer.period}});
  if (update == Op::kMuon) value["adjust"] = word_of(kAdjust, optimizer.matches_adamw);
  if (optimizer.adamw_lr) value["adamw_lr"] = *optimizer.adamw_lr;
  if (optimizer.offload) value["offload"] = true;
  if (optimizer.states != DType::kF32) value["states"] = word_of(kStates, optimizer.states);
  return value;
}

LrSchedule read_lr_schedule(const JsonFields& fields) {
  fields.allow_only({"kind", "warmup_steps", "steps", "epochs", "milestones", "gamma"});
  LrSchedule schedule;
  fields.read_required_choice("kind", schedule.kind, kLrKinds,
              {"How the factor goes on after the warm-up: it stays 1, falls at milestones, or falls as a cosine"});
  fields.read("warmup_steps", schedule.warmup_steps, 0, kMaxSteps,
              {"Before that step s (from 0) has the factor (s + 1) / warmup_steps", "steps"});
  fields.read("steps", schedule.steps, 1, kMaxSteps,
              {"Where the factor of \"cosine\" reaches 0", "steps", "the recipe's steps"});
  fields.read("epochs", schedule.epochs, kPasses,
              {"Where it reaches 0, in place of steps: after so many passes over the training set", "passes",
               "the recipe's epochs"});
  if (schedule.epochs && schedule.steps > 0) fields.refuse("epochs", "cannot go with steps; leave one out");
  fields.read("gamma", schedule.gamma, kPositive, {"The factor of \"step\" at each milestone"});
  fields.read("milestones", schedule.milestones, 1, kMaxSteps,
              {"Rising: where the factor of \"step\" is multiplied by gamma", "steps", "none; required for \"step\""});
  for (size_t i = 1; i < schedule.milestones.size(); ++i) {
    const uint64_t last = schedule.milestones[i - 1], step = schedule.milestones[i];
    if (step <= last)
      fields.refuse("milestones", "must rise; " + std::to_string(step) + " follows " + std::to_string(last));
  }
  return schedule;
}

// Checks the schedule. The end of a cosine in epochs depends on the data: the training program
// compares it with the warm-up.
void check_lr_schedule(const LrSchedule& schedule, const RecipeRules& rules) {
  rules.require(schedule.kind != LrSchedule::Kind::kStep || !schedule.milestones.empty(), "lr_schedule.milestones",
                "missing; \"step\" needs the steps at which the learning rate falls, for example [3000, 6000]");
  rules.require(schedule.kind != LrSchedule::Kind::kCosine || schedule.steps > 0 || schedule.epochs,
                "lr_schedule.steps", "missing; \"cosine\" needs \"steps\" or \"epochs\", here or in the recipe");
  rules.require(schedule.kind != LrSchedule::Kind::kCosine || schedule.epochs || schedule.warmup_steps < schedule.steps,
                "lr_schedule.warmup_steps",
                "must be less than the " + std::to_string(schedule.steps) + " steps of the schedule, not " +
                    std::to_string(schedule.warmup_steps));
}

json lr_schedule_json(const LrSchedule& schedule) {
  json value = {{"kind", word_of(kLrKinds, schedule.kind)},
                {"warmup_steps", schedule.warmup_steps},
                {"milestones", schedule.milestones},
                {"gamma", schedule.gamma}};
  if (schedule.steps > 0) value["steps"] = schedule.steps;
  if (schedule.epochs) value["epochs"] = *schedule.epochs;
  return value;
}

}  // namespace reprise
