// Names and row orders of tensors in GGUF files, and Hugging Face's names for the same tensors, for
// the architectures that are supported. Reading a model, merging into a model and writing an
// adapter must agree about names and orders. Source: gguf-py's tensor_mapping.py and the converters
// of github.com/ggml-org/llama.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

// How the rows of a GGUF's tensor are arranged relative to Hugging Face's tensor.
enum class GgufOrder {
  kSame,
  kPairs,       // in each head, row i of the first half and row i of the second half are neighbours: q and k of llama
  kTransposed,  // GPT-2's Conv1D, which Hugging Face stores as [in, out]
  kPlusOne,     // each number is 1 more than Hugging Face's: Gemma's norms, which compute with 1 + weight
};

enum class GgufPart { kWhole, kQuery, kKey, kValue };  // which part of a fused attn_qkv a tensor is

// A tensor's name in the other naming scheme (GGUF's or Hugging Face's), and the arrangement of the
// rows of the GGUF's tensor.
struct GgufName {
  std::string name;  // a name in the GGUF, or in Hugging Face's model: see the function that returns it
  GgufOrder order = GgufOrder::kSame;
  GgufPart part = GgufPart::kWhole;
};

// Returns the names of the supported architectures.
const std::vector<std::string>& gguf_architectures();
// Returns GGUF's name of the architecture for one of Hugging Face's model types. Most model types
// have the same name in both.
std::string gguf_architecture_of(const std::string& model_type);

// Returns the names of Hugging Face's tensors that a GGUF's tensor contains. A fused tensor gives
// several names. A tensor that the architecture does not have gives none.
std::vector<GgufName> published_names(const std::string& architecture, const std::string& gguf_name);
// Returns the name of the GGUF's tensor that contains only the tensor `published_name`. Returns
// nothing if the architecture is not supported, fuses this tensor with others, or does not have it.
std::optional<GgufName> gguf_name(const std::string& architecture, const std::string& published_name);

// Returns the index, in the order kPairs, of the row that is row `row` of Hugging Face's tensor.
// Heads have `head` rows, an even number.
constexpr uint64_t paired_row(uint64_t row, uint64_t head) {
  const uint64_t in_head = row % head, half = head / 2;
  return row - in_head + in_head % half * 2 + in_head / half;
}

}  // namespace reprise
