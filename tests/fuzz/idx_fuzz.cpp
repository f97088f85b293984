// Fuzzes idx files, plain or gzipped. They are opened and checked, and one micro-batch is filled.
// The first byte of the input is the length of the labels' file, which is at the end of the input.
// The bytes between are the images' file.
#include <algorithm>

#include "tests/interfaces/host_sink.h"
#include "tests/fuzz/fuzz.h"
#include "tools/run/data/dataset.h"

namespace {

struct Files {
  reprise::fuzz::MemoryFile images, labels;
  reprise::fuzz::MemoryFolder folder;
  Files() {
    folder.add("train-images-idx3-ubyte", images);
    folder.add("train-labels-idx1-ubyte", labels);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const Files files;
  static const Recipe recipe = parse_recipe(R"({"model": {"family": "resnet", "image": [2, 2, 1]}, "batch": 2,
      "data": {"kind": "idx", "path": ")" + files.folder.path() + "\"}}", "recipe.json", "/");
  if (size == 0) return 0;
  const size_t label_bytes = std::min<size_t>(data[0], size - 1), image_bytes = size - 1 - label_bytes;
  files.images.hold(data + 1, image_bytes);
  files.labels.hold(data + 1 + image_bytes, label_bytes);
  fuzz::answers_or_refuses([&] {
    float images[2 * 2 * 2];
    int32_t labels[2];
    BatchSink sink = host_sink(images, sizeof images, labels, 2);
    open_dataset(recipe, Split::kTraining)->fill(3, 0, sink);
    fuzz::require(sink.status().ok(), "a micro-batch is whole");
    for (const int32_t label : labels) fuzz::require(label >= 0 && label < 10, "labels are classes");
  });
  return 0;
}
