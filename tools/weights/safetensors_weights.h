// The weights of safetensors files: one file, or several that an index names.
// Here because published models come in either form.
#pragma once

#include <memory>
#include <string>

#include "tools/weights/weight_source.h"

namespace reprise {

// Throw UserError.
std::unique_ptr<WeightSource> open_safetensors_weights(const std::string& path);
// `index`: a model.safetensors.index.json, {"weight_map": {TENSOR: FILE, ...}, ...}, with the files beside it.
std::unique_ptr<WeightSource> open_sharded_weights(const std::string& index);

}  // namespace reprise
