// Adapters in the form of Hugging Face's PEFT: a folder with adapter_config.json and
// adapter_model.safetensors. PEFT can load an adapter that was trained here, and training here can
// start from an adapter of PEFT.
#pragma once

#include <string>
#include <vector>

#include "tools/files/adapters/adapter.h"

namespace reprise {

// Returns the names of the files in a folder of PEFT that training here writes: the config and the
// weights.
const std::vector<std::string>& peft_files();

// Opens an adapter. PEFT's patterns may give single layers their own ranks and alphas; the settings
// have these with complete layer names as patterns (peft_pattern.h). Modules that were trained
// directly (modules_to_save) are among the weights; for a tied model PEFT stores head and
// embeddings separately. Throws UserError with file and field if this is not a plain LoRA or DoRA,
// for example if biases were trained.
Adapter open_peft_adapter(const std::string& folder);

// The paths of the files that write_peft_adapter() writes.
struct PeftNames {
  std::string config, weights;
};
// Writes both files, with all tensors as F32. The config names `base` as the model. A table that is
// both embeddings and head is written twice, and the config makes PEFT tie them again. Throws
// UserError.
void write_peft_adapter(const Adapter& adapter, const std::string& base, const PeftNames& to);

}  // namespace reprise
