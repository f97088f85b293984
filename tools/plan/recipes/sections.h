// The sections of a recipe, one source file each: a section's keys are read, checked and written in
// that file. Only the sources of this folder include this header.
#pragma once

#include "tools/files/formats/json_fields.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {

// Reads the whole recipe and checks each field by itself. It is parse_recipe() without
// check_recipe().
Recipe read_fields(const JsonFields& fields, const std::string& file, const std::string& folder);

// read_X reads a section and checks each field by itself. check_X checks combinations of fields,
// also after the command line has changed some. X_json returns every field; read_X reads the result
// back to an equal section.

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

ScheduleRecipe read_schedule(const JsonFields& recipe);  // Reads the recipe's "schedule": a word or an object.
void check_schedule(const ScheduleRecipe& schedule, const RecipeRules& rules);
nlohmann::json schedule_json(const ScheduleRecipe& schedule);

TrainedRecipe read_trained(const JsonFields& fields);
nlohmann::json trained_json(const TrainedRecipe& trained);

constexpr uint64_t kMaxSteps = std::numeric_limits<uint32_t>::max();
constexpr FieldRange kPasses = {.low = 0, .high = 1e9, .low_open = true};

}  // namespace reprise
