// Adapters as llama.cpp keeps them: one GGUF file of matrices "TENSOR.lora_a" and "TENSOR.lora_b", and one alpha.
// Here so that a training goes on from what was made for inference.
#pragma once

#include <string>

#include "tools/weights/adapter.h"
#include "tools/weights/export_model.h"

namespace reprise {

struct GgufAdapter {
  Adapter adapter;
  FoldedScales unfolded;  // layers whose B was multiplied
  std::string architecture;
};

// `head`: rows of a head of q and k, of which the architecture llama lays out B in pairs. The settings are those of `wanted` with the file's
// ranks. llama.cpp adds alpha / rank * B A, without an alpha B A: where a layer's scale in these settings is another, its B is multiplied
// so that it adds the same. Throws UserError naming file, key or tensor for what is no adapter of linear layers of the architecture.
GgufAdapter open_gguf_adapter(const std::string& path, uint64_t head, bool fan_in_fan_out, const LoraSettings& wanted);

}  // namespace reprise
