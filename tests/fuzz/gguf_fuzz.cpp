// Fuzzes the reader of GGUF files, and their conversion to a model or an adapter: the config, and
// the offsets and numbers of the weights. Such files come from the internet.
#include "tests/fuzz/fuzz.h"
#include "tools/files/adapters/gguf_adapter.h"
#include "tools/files/formats/gguf.h"
#include "tools/files/weights/gguf_model.h"
#include "tools/files/weights/weight_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const fuzz::MemoryFile memory;
  memory.hold(data, size);
  fuzz::answers_or_refuses([&] {
    const GgufFile file(memory.path());
    uint64_t bytes = 0;
    for (const GgufTensor& tensor : file.tensors()) {
      bytes += tensor.bytes;
      std::vector<float> values(tensor.elements());
      file.read(tensor, 0, values.size(), values.data());
    }
    fuzz::require(bytes <= size, "tensors lie within the file");
  });
  fuzz::answers_or_refuses(
      [&] { fuzz::require(gguf_config(GgufFile(memory.path())).is_object(), "a config is an object"); });
  fuzz::answers_or_refuses([&] {
    const auto weights = open_weights(memory.path());
    for (const std::string& name : weights->names()) {
      uint64_t elements = 1;
      for (const uint64_t dimension : weights->find(name)->shape) elements *= dimension;
      if (!weights->find(name)->exact) continue;
      std::vector<float> values(elements);
      if (weights->find(name)->exact != DType::kI64) weights->read(name, 0, elements, values.data());
    }
  });
  fuzz::answers_or_refuses([&] {
    const LoraSettings wanted = {
        .r = 2, .alpha = 4, .dropout = 0, .targets = {}, .rslora = false, .alpha_pattern = {{"q_proj", 3}}};
    const GgufAdapter opened = open_gguf_adapter(memory.path(), 8, false, wanted);
    for (const AdapterLayer& layer : opened.adapter.layers) {
      const std::vector<float> down = read_matrix(*opened.adapter.weights, layer.down()),
                               up = read_matrix(*opened.adapter.weights, layer.up());
      fuzz::require(down.size() == layer.rank * layer.in && up.size() == layer.out * layer.rank,
                    "the matrices of a layer are of its shape");
    }
  });
  return 0;
}
