// The files of a model's folder that are neither its config nor its weights: how it reads texts.
// Here because a merged model takes them with it, and so does an adapter of a model whose vocabulary has new tokens.
#pragma once

#include <string>
#include <vector>

#include "tools/formats/snapshot_directory.h"
#include "tools/weights/model_files.h"

namespace reprise {

// Names that write_companions() may write, and of these the tokenizer's.
const std::vector<std::string>& companion_files();
const std::vector<std::string>& tokenizer_files();

// Those of the model's folder, or made of its GGUF, with its new tokens; none of a model without files. Throws UserError.
void write_companions(const ModelPlace& place, const SnapshotDirectory& folder);
void write_tokenizer(const ModelPlace& place, const SnapshotDirectory& folder);

}  // namespace reprise
