// Adapters as Hugging Face's PEFT keeps them: a folder with adapter_config.json and adapter_model.safetensors.
// Here so that what is trained here runs there, and the other way round.
#pragma once

#include <string>
#include <vector>

#include "tools/weights/adapter.h"

namespace reprise {

// The files of such a folder that are written.
const std::vector<std::string>& peft_files();

// Ranks and alphas of some layers are in the settings by these layers' names, as PEFT finds them (peft_pattern.h). Throws UserError naming
// file and field for whatever is neither a plain LoRA nor a DoRA, as trained biases. Modules that were trained whole (modules_to_save) are among the
// weights; of a tied model PEFT keeps head and embeddings apart.
Adapter open_peft_adapter(const std::string& folder);

// Writes both files, all as F32. `base` is what the config names as the model. A table that is the embeddings and the head is written as
// both, and the config has PEFT tie them again. Throws UserError.
struct PeftNames {
  std::string config, weights;  // paths
};
void write_peft_adapter(const Adapter& adapter, const std::string& base, const PeftNames& to);

}  // namespace reprise
