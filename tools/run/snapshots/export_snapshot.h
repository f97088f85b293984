// Exports a snapshot for other programs: only the adapter, or the whole model with the adapter
// merged. The recipe states what the snapshot's weights are.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/files/weights/export_model.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {

enum class ExportForm { kAdapter, kAdapterGguf, kMerged, kMergedGguf, kOnnx };

// The snapshot to export, the form, and the target.
struct ExportRequest {
  std::string snapshot;  // folder of the snapshot
  ExportForm form = ExportForm::kAdapter;
  std::string to;                     // a folder for kAdapter and kMerged, otherwise a file
  // The type of a merged model: kF32, kF16, kBf16; for GGUF also kQ8_0, kQ4_0, kQ4_K.
  BlockType type = BlockType::kF32;
  // Weights into which the adapter is merged; "": those on which it was trained.
  std::string base = {};
  // Files that must not be replaced, in addition to the files that the recipe and the snapshot
  // name.
  std::vector<std::string> inputs = {};
};

// The result of an export. It names the base, because W + scale * B A is another model for each W.
struct ExportReport {
  std::string to, what;  // what: a description, for example "model of Q8_0"
  std::string base;      // the file of W; "" if no adapter was merged into a W
  // The format of quantised blocks, for example "Q4_0", if W has the numbers of the blocks with
  // which the adapter was trained; otherwise "".
  std::string base_blocks;
  // The file on which the adapter was trained, if it is not `base`; "" if there is no such file.
  std::string trained_base;
  bool is_trained_base = true;
  std::vector<WrittenTensor> tensors;   // the tensors of the exported model
  std::vector<std::string> notes = {};  // facts that a user of the model needs, a line each
};
// Returns a line for the user. If numbers were rounded, a second line has the total error and the
// tensors with the largest errors. The notes follow.
std::string export_text(const ExportReport& report);
// Returns the report as JSON.
nlohmann::json export_json(const ExportReport& report);

// Writes `to` completely or not at all. It may replace an earlier export, but no other files. Keeps
// one layer's adapter and a few rows in memory. If the recipe quantised frozen weights, the adapter
// is merged into the numbers of the quantised blocks, with which it was trained. Throws UserError
// if the snapshot is damaged, belongs to another recipe, or lacks the requested parts.
ExportReport export_snapshot(const Recipe& recipe, const ExportRequest& request);

}  // namespace reprise
