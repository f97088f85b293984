// The published weights that were frozen while an adapter was trained. The adapter is valid only
// with these weights. A resumed training and an export must therefore find the same bytes again.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/files/formats/checksum.h"
#include "tools/files/weights/weight_source.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {

// Identifies the frozen weights.
struct BaseWeights {
  std::string path;  // path of the file, or of the index if the model has several files
  FileSum sum;       // checksum of that file
  std::map<std::string, FileSum> shards;  // checksums of the files that the index lists, by file name
};

// Returns the path of the frozen weights: base.path, or the weights that the recipe names if
// base.path does not exist. Throws UserError if neither exists.
std::string find_base(const BaseWeights& base, const Recipe& recipe, const std::string& snapshot);

// Returns the checksums of the files. Reads all their bytes.
BaseWeights sum_base(const WeightSource& weights);

// Throws UserError with the name of a file whose checksum in `is` (now) differs from that in `was`
// (in the snapshot). Older snapshots have no checksums of listed files; these are then not
// compared.
void require_same_base(const BaseWeights& is, const BaseWeights& was, const std::string& snapshot);

nlohmann::json base_json(const BaseWeights& base);
BaseWeights read_base(const nlohmann::json& value);  // throws json::exception

}  // namespace reprise
