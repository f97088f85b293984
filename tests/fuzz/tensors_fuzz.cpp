// Fuzzes images and labels in a safetensors file, as data: opened, checked, and one micro-batch filled.
// A wrong label is an index into memory.
#include "tests/faces/host_sink.h"
#include "tests/fuzz/fuzz.h"
#include "tools/data/dataset.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const fuzz::MemoryFile memory;
  static const Recipe recipe = parse_recipe(R"({"model": {"family": "resnet", "image": [2, 2, 1]}, "batch": 2,
      "data": {"kind": "tensors", "path": ")" + memory.path() + "\"}}", "recipe.json", "/");
  memory.hold(data, size);
  fuzz::answers_or_refuses([&] {
    float images[2 * 2 * 2];
    int32_t labels[2];
    BatchSink sink = host_sink(images, sizeof images, labels, 2);
    open_dataset(recipe, Split::kTraining)->fill(3, 0, sink);
    fuzz::require(sink.status().ok(), "a micro-batch is whole");
    for (const int32_t label : labels) fuzz::require(label == kIgnoredLabel || (label >= 0 && label < 10), "labels are classes");
  });
  return 0;
}
