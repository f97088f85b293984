// What GGUF files call the tensors of the architectures that are read here, and how they lay out their rows; Hugging Face's names beside.
// Here because reading a model, merging into one and writing an adapter must agree about both. Source: gguf-py's tensor_mapping.py and the
// converters of github.com/ggml-org/llama.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

// How the rows of a GGUF's tensor lie beside those of Hugging Face's.
enum class GgufOrder {
  kSame,
  kPairs,       // of each head, row i of the first half and row i of the second are neighbours: q and k of the architecture llama
  kTransposed,  // GPT-2's Conv1D, which Hugging Face keeps as [in, out]
  kPlusOne,     // each number is one more than Hugging Face's: Gemma's norms, which add their weight to 1
};

enum class GgufPart { kWhole, kQuery, kKey, kValue };  // of a fused attn_qkv

// One of Hugging Face's tensors, as a GGUF has it.
struct GgufName {
  std::string name;  // the GGUF's, or, of the other direction, Hugging Face's
  GgufOrder order = GgufOrder::kSame;
  GgufPart part = GgufPart::kWhole;
};

// The architectures that are read here.
const std::vector<std::string>& gguf_architectures();
// What a GGUF file calls the architecture of one of Hugging Face's model types: most by the same name.
std::string gguf_architecture_of(const std::string& model_type);

// Hugging Face's tensors that lie in a GGUF's tensor: several in a fused one; none where the architecture has no such name.
std::vector<GgufName> published_names(const std::string& architecture, const std::string& gguf_name);
// The GGUF's tensor, not fused, that holds one of Hugging Face's; none where the architecture has no such name.
std::optional<GgufName> gguf_name(const std::string& architecture, const std::string& published_name);

// The row of a tensor in kPairs that holds Hugging Face's row; heads have `head` rows, an even number.
constexpr uint64_t paired_row(uint64_t row, uint64_t head) {
  const uint64_t in_head = row % head, half = head / 2;
  return row - in_head + in_head % half * 2 + in_head / half;
}

}  // namespace reprise
