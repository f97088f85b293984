// A model that the command line names by its files, or by a recipe.
// Here because a recipe may add tokens to the vocabulary, and whoever looks at texts wants to see them.
#pragma once

#include <string>

#include "tools/tokenizer/tokenizer_file.h"
#include "tools/weights/model_files.h"

namespace reprise {

// Of a folder, a GGUF file, or a recipe that names one. Throws UserError.
ModelFiles model_of_argument(const std::string& path);

// The same, and of a tokenizer.json.
TokenizerFile tokenizer_of_argument(const std::string& path);

}  // namespace reprise
