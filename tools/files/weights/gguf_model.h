// Finds the settings of the model in a GGUF file, and where the file stores each of Hugging Face's
// tensors. Code that reads the weights, writes them again or makes a config from the metadata uses
// these functions, which check the file.
#pragma once

#include <map>
#include <string>

#include "tools/files/formats/gguf.h"
#include "tools/files/weights/gguf_names.h"

namespace reprise {

// The sizes that determine which rows of q, k and v belong to which head.
struct GgufHeads {
  uint64_t heads = 0, kv_heads = 0;
  uint64_t head = 0;  // rows of one head
};

// Where one of Hugging Face's tensors is in a GGUF file: rows [first_row, first_row + rows) of a
// tensor of the file, in the order `order`.
struct GgufPlace {
  const GgufTensor* tensor = nullptr;
  uint64_t first_row = 0, rows = 0;
  GgufOrder order = GgufOrder::kSame;
  std::vector<uint64_t> shape() const;  // Returns Hugging Face's shape.
};

// Returns the architecture, for example "llama" or "qwen2". Throws UserError for an architecture
// that is not supported, for an adapter, and for a model in several files.
std::string gguf_architecture(const GgufFile& file);

// Returns the number of heads and their sizes.
GgufHeads gguf_heads(const GgufFile& file);

// Returns the place of every tensor of Hugging Face's model; the keys are Hugging Face's names.
// Throws UserError if the rows of q and k are not whole heads.
std::map<std::string, GgufPlace> gguf_places(const GgufFile& file);

// Returns the file's metadata as a config.json of Hugging Face. The divisors in a rope_freqs.weight
// become "rope_parameters": {"rope_type": "divisors", "divisors": [...]}. Throws UserError with
// file and key if a setting is missing or not supported. Experts are not supported. Attention
// windows and partly rotated heads are supported only in architectures that define them.
nlohmann::json gguf_config(const GgufFile& file);

}  // namespace reprise
