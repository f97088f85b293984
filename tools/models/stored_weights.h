// Where a published checkpoint keeps a parameter.
// Here because the planner, which asks how it is stored, and the loader, which reads it, must find the same tensor.
#pragma once

#include <string>

#include "tools/formats/safetensors.h"

namespace reprise {

// The name under which the file holds the parameter `name`: GPT-2's may lack "transformer.". `name` itself where it holds neither.
std::string stored_name(const SafetensorsFile& file, const std::string& name);

// The file of weights that a person names: itself, or the one in a folder, of a snapshot or of a model.
std::string weights_file(const std::string& path);

}  // namespace reprise
