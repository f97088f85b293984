// The weights of safetensors files: one file, or several files that an index lists. Published
// models use both.
#pragma once

#include <memory>
#include <string>

#include "tools/files/weights/weight_source.h"

namespace reprise {

// Opens one file. Throws UserError.
std::unique_ptr<WeightSource> open_safetensors_weights(const std::string& path);
// Opens the files that an index lists; they are in the index's folder. The index is a
// model.safetensors.index.json: {"weight_map": {TENSOR: FILE, ...}, ...}. Throws UserError.
std::unique_ptr<WeightSource> open_sharded_weights(const std::string& index);

}  // namespace reprise
