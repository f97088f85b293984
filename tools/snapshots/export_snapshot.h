// A snapshot written as other programs read it: the adapter alone, or the whole model with the adapter merged.
// Here because a training ends with a file that runs elsewhere, and only the recipe says what its weights are.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/recipes/recipe.h"
#include "tools/weights/export_model.h"

namespace reprise {

enum class ExportForm { kAdapter, kAdapterGguf, kMerged, kMergedGguf, kOnnx };

struct ExportRequest {
  std::string snapshot;  // folder
  ExportForm form = ExportForm::kAdapter;
  std::string to;                     // a folder of kAdapter and kMerged, else a file
  BlockType type = BlockType::kF32;   // of the merged model: kF32, kF16, kBf16, and of a GGUF kQ8_0, kQ4_0, kQ4_K
  std::string base = {};              // of a merge: weights that the adapter is added to; empty: those that it was trained beside
  std::vector<std::string> inputs = {};  // files that must not be replaced, beside those that the recipe and the snapshot name
};

// What was written, and what an adapter was merged into: W + scale * B A is another model for each W.
struct ExportReport {
  std::string to, what;                // "model of Q8_0"
  std::string base;                    // the file of W; empty where nothing was merged
  std::string base_blocks;             // "Q4_0": W is what such blocks hold, made of the file's numbers as the training made them; else empty
  std::string trained_base;            // where `base` is another: the file that the adapter was trained beside; empty where no file holds it
  bool is_trained_base = true;
  std::vector<WrittenTensor> tensors;  // of a model
};
// A line for a person, and where numbers were rounded a second one: by how much in all, and in which tensors most.
std::string export_text(const ExportReport& report);
nlohmann::json export_json(const ExportReport& report);

// Writes `to` whole or not at all; an earlier export there is replaced, other files are not. Holds a layer's adapter and a few rows
// beside. Merges into the numbers that the adapter was trained beside: those of the blocks where the recipe had frozen weights
// quantised. Throws UserError where the snapshot is damaged or of another recipe, or has not what is asked for.
ExportReport export_snapshot(const Recipe& recipe, const ExportRequest& request);

}  // namespace reprise
