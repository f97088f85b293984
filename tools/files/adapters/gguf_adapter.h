// Reads adapters in llama.cpp's form: one GGUF file with matrices "TENSOR.lora_a" and
// "TENSOR.lora_b", and one alpha. Training can thus continue from an adapter that was published for
// inference.
#pragma once

#include <string>

#include "tools/files/adapters/adapter.h"
#include "tools/files/weights/export_model.h"

namespace reprise {

struct GgufAdapter {
  Adapter adapter;
  FoldedScales unfolded;  // counts the layers whose B is multiplied when it is read
  std::string architecture;
};

// Opens an adapter. `head` is the number of rows of one head of q and k, whose B some architectures
// store in the order kPairs. The settings are those of `wanted`, with the ranks of the file.
// llama.cpp adds alpha / rank * B A, or B A if there is no alpha. If `wanted` gives a layer another
// scale, the layer's B is multiplied so that scale * B A is unchanged. Throws UserError with file
// and key or tensor if the file is not an adapter of linear layers of the architecture.
GgufAdapter open_gguf_adapter(const std::string& path, uint64_t head, bool fan_in_fan_out, const LoraSettings& wanted);

}  // namespace reprise
