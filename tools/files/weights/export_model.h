// Writes a model in the formats of other programs: Hugging Face's safetensors, or llama.cpp's GGUF.
// Tensors are written one by one, a few rows at a time, so the complete model is never in memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/files/adapters/adapter.h"
#include "tools/files/formats/gguf.h"
#include "tools/files/tokenizer/tokenizer_file.h"
#include "tools/files/weights/weight_source.h"

namespace reprise {

// Describes one tensor of a written file, and how much its numbers differ from the given numbers.
struct WrittenTensor {
  std::string name;  // the tensor's name in the file
  BlockType type = BlockType::kF32;
  double largest = 0;  // maximum |written - given|, divided by the maximum |given|
  double rms = 0;      // sqrt(sum((written - given)^2) / sum(given^2))
};

// Writes every tensor of floats to one safetensors file, as F32, F16 or BF16. Throws UserError if a
// value is not finite or outside the type's range, or if the file cannot be written. No incomplete
// file remains.
std::vector<WrittenTensor> write_safetensors_model(const WeightSource& weights, BlockType type,
                                                   const std::string& path);

// Changes to the vocabulary that the written GGUF copies from the file `like`.
struct GgufVocabulary {
  std::map<std::string, GgufValue> metadata;  // replaces the keys of `like`; keys that `like` does not have are added
  uint64_t rows = 0;                          // rows of the embeddings and the head; 0: as many as in `like`
};
// Returns the vocabulary of a file with new tokens. `tokenizer` has all tokens, old and new; the
// embeddings and the head get `rows` rows.
GgufVocabulary gguf_vocabulary(const GgufFile& like, const TokenizerFile& tokenizer, uint64_t rows);

// Writes the model of the file `like` with these weights and this vocabulary. The file's other
// metadata, except general.file_type, and other tensors are copied unchanged. Matrices become
// `type` (F32, F16, BF16, Q8_0, Q4_0 or Q4_K). A matrix whose rows are not whole blocks of Q4_K
// becomes Q5_0, as in llama.cpp. If its rows are not whole blocks of the new type either, it
// becomes F32. Vectors become F32. If `weights` already stores a tensor in blocks of the written
// type, the blocks are copied. Throws UserError like write_safetensors_model(), and if `weights`
// lacks a tensor of `like`.
std::vector<WrittenTensor> write_gguf_model(const WeightSource& weights, const GgufFile& like, BlockType type,
                                            const std::string& path, const GgufVocabulary& vocabulary = {});

// Counts the layers of an adapter whose matrix B was multiplied by a factor. A GGUF has one alpha
// for all layers and divides it by each layer's rank. If a layer has another scale, B is multiplied
// by the missing factor.
struct FoldedScales {
  uint64_t layers = 0;
  uint64_t rounded = 0;  // the layers whose factor is not a power of two, so that B was rounded to f32 once more
};

// Writes an adapter in llama.cpp's form, with matrices as F32. Returns how many layers' B was
// multiplied. `head` is the number of rows of one head of q and k. Their B is written in the order
// kPairs if the architecture has it. The file's alpha is scale * rank of most layers; for an rsLoRA
// it thus contains the factor sqrt(r). Throws UserError for a DoRA, and for a layer that the
// architecture does not have. Also throws UserError for tensors that were trained directly, without
// A and B: llama.cpp refuses them in an adapter, and leaves norms out.
FoldedScales write_gguf_adapter(const Adapter& adapter, const std::string& architecture, uint64_t head,
                                const std::string& path);

}  // namespace reprise
