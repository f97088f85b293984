// The files of a model's folder that it needs to read texts: all except its config and weights. A
// merged model includes them, and so does an adapter of a model with new tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/files/chat/answer_ends.h"
#include "tools/files/io/snapshot_directory.h"
#include "tools/files/weights/model_files.h"

namespace reprise {

// Returns the names of files that write_companions() may write. tokenizer_files() returns those
// that belong to the tokenizer.
const std::vector<std::string>& companion_files();
const std::vector<std::string>& tokenizer_files();

// Returns the config.json of a language model, with the ids of special tokens from the files of
// `place`. An id that these files do not have is null, because transformers' default may be outside
// a small vocabulary. For a Hugging Face folder it stays as it is. A config that is not a model of
// transformers is returned unchanged.
nlohmann::json with_special_ids(nlohmann::json config, const ModelPlace& place);

// Returns the tokens that end the model's answers; nothing if it has no readable tokenizer.
std::optional<AnswerEnds> answer_ends_of(const ModelPlace& place);

// Writes the files of the model's folder, or files made from its GGUF file, with its new tokens.
// Writes none if the model has no files. The tokens in `ends` are added to generation_config.json.
// Throws UserError.
void write_companions(const ModelPlace& place, const std::optional<AnswerEnds>& ends, const SnapshotDirectory& folder);
void write_tokenizer(const ModelPlace& place, const SnapshotDirectory& folder);

}  // namespace reprise
