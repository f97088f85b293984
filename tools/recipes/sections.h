// The sections of a recipe, one source each: a key of a section is read, checked and written in that one file.
// Only the sources of this folder include it.
#pragma once

#include "tools/formats/json_fields.h"
#include "tools/recipes/recipe.h"

namespace reprise {

// The whole recipe, each field by itself: parse_recipe without check_recipe.
Recipe read_fields(const JsonFields& fields, const std::string& file, const std::string& folder);

// read_X: each field by itself. check_X: what no single field can say, and what the command line may have changed since. X_json: every
// field, which read_X reads back to an equal section.
DataSource read_data(const JsonFields& fields, const std::string& folder);
void check_data(const Recipe& recipe, const RecipeRules& rules);
nlohmann::json data_json(const DataSource& data);

std::vector<std::string> optimizer_names();
OptimizerRecipe read_optimizer(const JsonFields& fields);
void check_optimizer(const Recipe& recipe, const RecipeRules& rules);
nlohmann::json optimizer_json(const OptimizerRecipe& optimizer);

LrSchedule read_lr_schedule(const JsonFields& fields);
void check_lr_schedule(const LrSchedule& schedule, const RecipeRules& rules);
nlohmann::json lr_schedule_json(const LrSchedule& schedule);

PreferenceAttribute read_loss(const JsonFields& fields);
void check_loss(const Recipe& recipe, const RecipeRules& rules);
nlohmann::json loss_json(const PreferenceAttribute& loss);

WeightsRecipe read_weights(const JsonFields& fields);
void check_weights(const Recipe& recipe, const RecipeRules& rules);
nlohmann::json weights_json(const WeightsRecipe& weights);

LoraSettings read_lora(const JsonFields& fields);
nlohmann::json lora_json(const LoraSettings& lora);

ScheduleRecipe read_schedule(const JsonFields& recipe);  // its "schedule": a word or an object
void check_schedule(const ScheduleRecipe& schedule, const RecipeRules& rules);
nlohmann::json schedule_json(const ScheduleRecipe& schedule);

TrainedRecipe read_trained(const JsonFields& fields);
nlohmann::json trained_json(const TrainedRecipe& trained);

constexpr uint64_t kMostSteps = std::numeric_limits<uint32_t>::max();

}  // namespace reprise
