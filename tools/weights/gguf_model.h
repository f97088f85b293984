// The model that a GGUF file holds: its settings, and where each of Hugging Face's tensors lies.
// Here because reading its weights, writing them again and making a config of its metadata begin with the same checks.
#pragma once

#include <map>
#include <string>

#include "tools/formats/gguf.h"
#include "tools/weights/gguf_names.h"

namespace reprise {

// What says how heads lie in the rows of q, k and v.
struct GgufHeads {
  uint64_t heads = 0, kv_heads = 0;
  uint64_t head = 0;  // rows of one
};

// A tensor of Hugging Face's in a GGUF file: these rows of the file's tensor, in this order.
struct GgufPlace {
  const GgufTensor* tensor = nullptr;
  uint64_t first_row = 0, rows = 0;
  GgufOrder order = GgufOrder::kSame;
  std::vector<uint64_t> shape() const;  // Hugging Face's
};

// "llama", "qwen2" ...: one that is read here. Throws UserError for others, for an adapter and for one file of several.
std::string gguf_architecture(const GgufFile& file);

GgufHeads gguf_heads(const GgufFile& file);

// Every tensor that Hugging Face's model has, by its name there. Throws UserError where heads do not divide the rows of q and k.
std::map<std::string, GgufPlace> gguf_places(const GgufFile& file);

// The file's metadata as Hugging Face's config.json. The divisors of a rope_freqs.weight become "rope_parameters":
// {"rope_type": "divisors", "divisors": [...]}. Throws UserError naming file and key for what is missing or not supported: experts,
// a window or heads that turn in part where the architecture has none.
nlohmann::json gguf_config(const GgufFile& file);

}  // namespace reprise
