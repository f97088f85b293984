// A model written as others read it: Hugging Face's safetensors, or llama.cpp's GGUF. Tensor by tensor, a few rows at a time.
// Here because what training ends with is a file that runs elsewhere.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/formats/gguf.h"
#include "tools/tokenizer/tokenizer_file.h"
#include "tools/weights/adapter.h"
#include "tools/weights/weight_source.h"

namespace reprise {

// A tensor of a written model, and how far its numbers are from those that it was made of.
struct WrittenTensor {
  std::string name;  // in the file
  BlockType type = BlockType::kF32;
  double largest = 0;  // the largest |written - given|, over the largest |given|
  double rms = 0;      // the root of the sum of (written - given)^2 over that of given^2
};

// Writes every tensor of floats to one safetensors file, as F32, F16 or BF16. Throws UserError where a value is not finite or beyond the
// type's range, or the file cannot be written: nothing half-written stays.
std::vector<WrittenTensor> write_safetensors_model(const WeightSource& weights, BlockType type, const std::string& path);

// What of a GGUF's vocabulary is another than in the file that it is written after.
struct GgufVocabulary {
  std::map<std::string, GgufValue> metadata;  // in place of the file's
  uint64_t rows = 0;                          // of the tables of tokens; 0: those of the file
};
// Of a file whose vocabulary has got new tokens: `tokenizer` has them all, and the tables so many rows.
GgufVocabulary gguf_vocabulary(const GgufFile& like, const TokenizerFile& tokenizer, uint64_t rows);

// Writes the model of `like`, with its metadata and further tensors as they are, but with these weights and this vocabulary. Matrices become
// `type` (F32, F16, BF16, Q8_0, Q4_0 or Q4_K); where their rows are no whole blocks of Q4_K, Q5_0, as llama.cpp has it, and where they are
// none of these, F32. Vectors become F32. Blocks of the type that `weights` have already are written as they are. Throws UserError as above,
// and where `weights` lacks a tensor of `like`.
std::vector<WrittenTensor> write_gguf_model(const WeightSource& weights, const GgufFile& like, BlockType type, const std::string& path, const GgufVocabulary& vocabulary = {});

// Layers whose scale a GGUF cannot say, which has one alpha for all and divides it by each layer's rank: their B holds the rest of it.
struct FoldedScales {
  uint64_t layers = 0;
  uint64_t rounded = 0;  // of these: those whose factor is no power of two, so that each number of B is rounded once to f32
};

// Writes llama.cpp's form of an adapter, the matrices as F32. `head`: rows of a head of q and k, of which the architecture llama lays
// out B in pairs. The file's alpha is scale * rank of most layers, so that of an rsLoRA holds sqrt(r). Throws UserError for a layer that
// the architecture has not, and for tensors that were trained whole: llama.cpp refuses them in an adapter, and leaves norms out.
FoldedScales write_gguf_adapter(const Adapter& adapter, const std::string& architecture, uint64_t head, const std::string& path);

}  // namespace reprise
