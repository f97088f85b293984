// The model that a command line names, by its files or by a recipe. A recipe may add tokens to the
// vocabulary, which the commands for texts must know.
#pragma once

#include <string>

#include "tools/files/chat/chat_settings.h"
#include "tools/files/tokenizer/tokenizer_file.h"
#include "tools/files/weights/model_files.h"

namespace reprise {

// Returns the model at `path`: a folder, a GGUF file, or a recipe that names a model. If `path` is
// a recipe and `settings` is not null, also sets `settings` to the values with which the recipe
// reads texts. Throws UserError.
ModelFiles model_of_argument(const std::string& path, ChatSettings* settings = nullptr);

// Returns the tokenizer at `path`: a tokenizer.json, or a model (see model_of_argument) with a
// tokenizer. Throws UserError.
TokenizerFile tokenizer_of_argument(const std::string& path);

}  // namespace reprise
