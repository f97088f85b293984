// The tensors of a model under Hugging Face's names and in its layouts, whatever the files call them and however they store them.
// Here so that loading, planning and export see one thing, and so that nothing but this room knows how a file lays out a head's rows.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/bf16.h"
#include "lib/tensor.h"

namespace reprise {

struct StoredWeight {
  std::vector<uint64_t> shape;  // row-major, outermost first
  std::string type;             // as the file calls it: "BF16", "Q4_1"
  std::optional<DType> exact;   // the plain type that holds its numbers without rounding, kBf16, kF32, kI64 or kU8; none: not read here
  uint64_t bytes = 0;           // of it in the file
  std::optional<DType> format = std::nullopt;  // in which lib may read the file's own bytes from memory (lib/weight_format.h); none: it must become `exact`
};

// The files stay open for the object's life and are read in pieces: never a second copy of the model. One thread at a time.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual const std::string& path() const = 0;  // of the file that lists the tensors, for messages
  virtual std::vector<std::string> shards() const { return {}; }  // the files that path() lists, where it holds no tensor itself
  virtual std::vector<std::string> names() const = 0;  // in alphabetical order
  virtual const StoredWeight* find(const std::string& name) const = 0;  // null: not there

  // Elements [first, first + count) of a tensor that is there, row-major: dequantised, heads in Hugging Face's order. Throws UserError
  // where the file has lost them since it was opened.
  void read(const std::string& name, uint64_t first, uint64_t count, float* to) const;  // exact is kF32, or kBf16, which is widened
  void read(const std::string& name, uint64_t first, uint64_t count, Bf16* to) const;   // exact is kBf16, or kF32, which is rounded to the nearest
  void read(const std::string& name, uint64_t first, uint64_t count, int64_t* to) const;  // exact is kI64
  void read(const std::string& name, uint64_t first, uint64_t count, uint8_t* to) const;  // exact is kU8
  virtual void read_exact(const std::string& name, uint64_t first, uint64_t count, void* to) const = 0;  // numbers of the type `exact`
  // The file's own bytes of whole blocks of a tensor that has a format, heads in Hugging Face's order.
  virtual void read_stored(const std::string& name, uint64_t first, uint64_t count, void* to) const;
};

// A .safetensors file, a .gguf file, an index (*.index.json) of several files, or a folder: of a snapshot, or of a model with
// model.safetensors or model.safetensors.index.json.
// Throws UserError.
std::unique_ptr<WeightSource> open_weights(const std::string& path);

// The name under which the source holds the parameter `name`: GPT-2's may lack "transformer.". `name` itself where it holds neither.
std::string stored_name(const WeightSource& source, const std::string& name);

}  // namespace reprise
