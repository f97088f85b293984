// The published weights beside which adapters were trained: an adapter means nothing beside others.
// Here because a resumed training and an export must find the same bytes again, whichever files hold them.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/formats/checksum.h"
#include "tools/recipes/recipe.h"
#include "tools/weights/weight_source.h"

namespace reprise {

struct BaseWeights {
  std::string path;  // of the file; of a model in several files the one that lists them
  FileSum sum;       // of that file
  std::map<std::string, FileSum> shards;  // of the files that it lists, by their names
};

// Where the file lies now: at its path, or where the recipe has its model's weights if nothing is there any more. Throws UserError.
std::string find_base(const BaseWeights& base, const Recipe& recipe, const std::string& snapshot);

// Reads every byte of the files.
BaseWeights sum_base(const WeightSource& weights);

// Throws UserError that names the file which is not as it was. A snapshot of before knows no shards: then none are compared.
void require_same_base(const BaseWeights& is, const BaseWeights& was, const std::string& snapshot);

nlohmann::json base_json(const BaseWeights& base);
BaseWeights read_base(const nlohmann::json& value);  // throws json::exception

}  // namespace reprise
