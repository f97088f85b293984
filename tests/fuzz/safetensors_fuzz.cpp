// Fuzzes the reader of safetensors files. Every byte of every accepted tensor must be in the file.
// Such files come from the internet.
#include "tests/interfaces/stored_bytes.h"
#include "tests/fuzz/fuzz.h"
#include "tools/files/formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const fuzz::MemoryFile memory;
  memory.hold(data, size);
  fuzz::answers_or_refuses([&] {
    const SafetensorsFile file(memory.path());
    uint64_t bytes = 0;
    unsigned sum = 0;
    for (const auto& [name, tensor] : file.tensors()) {
      bytes += tensor.bytes;
      for (const unsigned char byte : stored_bytes(file, tensor)) sum += byte;
      fuzz::require(&file.find(name, tensor.type, tensor.shape) == &tensor, "a tensor is found");
    }
    fuzz::require(bytes <= size && sum <= 255 * bytes, "tensors lie within the file");
  });
  return 0;
}
