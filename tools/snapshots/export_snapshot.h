// A snapshot written as other programs read it: the adapter alone, or the whole model with the adapter merged.
// Here because a training ends with a file that runs elsewhere, and only the recipe says what its weights are.
#pragma once

#include <string>

#include "tools/formats/ggml_blocks.h"
#include "tools/recipes/recipe.h"

namespace reprise {

enum class ExportForm { kAdapter, kAdapterGguf, kMerged, kMergedGguf };

struct ExportRequest {
  std::string snapshot;  // folder
  ExportForm form = ExportForm::kAdapter;
  std::string to;                     // a folder of kAdapter and kMerged, else a file
  BlockType type = BlockType::kF32;   // of the merged model: kF32, kF16, kBf16, and of a GGUF kQ8_0
};

// Writes `to` whole or not at all; an earlier export there is replaced, other files are not. Answers a line for a person. Holds a layer's
// adapter and a few rows beside. Throws UserError where the snapshot is damaged or of another recipe, or has not what is asked for.
std::string export_snapshot(const Recipe& recipe, const ExportRequest& request);

}  // namespace reprise
