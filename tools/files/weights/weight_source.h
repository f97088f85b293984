// The tensors of a model under Hugging Face's names and in Hugging Face's layouts, independent of
// the file format. Loading, planning and export thus handle only one form. Only this module handles
// the order in which a file stores a head's rows.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/bf16.h"
#include "lib/tensor.h"

namespace reprise {

// The description of one tensor of a source.
struct StoredWeight {
  std::vector<uint64_t> shape;  // row-major, outermost first
  std::string type;             // the type's name in the file, for example "BF16" or "Q4_1"
  // The plain type that represents the tensor's numbers without rounding: kBf16, kF32, kI64 or kU8.
  // Unset if the file's type is not supported.
  std::optional<DType> exact;
  uint64_t bytes = 0;  // the tensor's bytes in the file
  // The type as which lib can use the stored bytes directly (lib/weight_format.h). Unset if the
  // numbers must be converted to `exact`.
  std::optional<DType> format = std::nullopt;
};

// Reads tensors of open files in pieces, so that there is never a second copy of the model. The
// files stay open as long as the object lives. Only one thread may use an object at a time.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual const std::string& path() const = 0;  // Returns the file that lists the tensors, for messages.
  // Returns the files that path() lists; empty if path() has the tensors itself.
  virtual std::vector<std::string> shards() const { return {}; }
  virtual std::vector<std::string> names() const = 0;  // Returns the tensors' names in alphabetical order.
  virtual const StoredWeight* find(const std::string& name) const = 0;  // Returns null if there is no such tensor.

  // Reads elements [first, first + count) of an existing tensor, row-major and dequantised; heads
  // are in Hugging Face's order. A float or Bf16 target needs the `exact` type kF32 or kBf16;
  // numbers are widened, or rounded to the nearest. An int64_t target needs kI64, a uint8_t target
  // kU8. Throws UserError if the file is shorter than when it was opened.
  void read(const std::string& name, uint64_t first, uint64_t count, float* to) const;
  void read(const std::string& name, uint64_t first, uint64_t count, Bf16* to) const;
  void read(const std::string& name, uint64_t first, uint64_t count, int64_t* to) const;
  void read(const std::string& name, uint64_t first, uint64_t count, uint8_t* to) const;
  // Reads the numbers as the type `exact`, without conversion.
  virtual void read_exact(const std::string& name, uint64_t first, uint64_t count, void* to) const = 0;
  // Reads the stored bytes of elements [first, first + count), whole blocks, of a tensor that has a
  // format. Heads are in Hugging Face's order.
  virtual void read_stored(const std::string& name, uint64_t first, uint64_t count, void* to) const;
};

// Opens a .safetensors file, a .gguf file, an index (*.index.json) of several files, or a folder.
// The folder is a snapshot, or a model with model.safetensors or model.safetensors.index.json.
// Throws UserError.
std::unique_ptr<WeightSource> open_weights(const std::string& path);

// Returns the name under which the source has the parameter `name`. Files of GPT-2 may omit
// "transformer.". Returns `name` itself if the source has neither name.
std::string stored_name(const WeightSource& source, const std::string& name);

}  // namespace reprise
