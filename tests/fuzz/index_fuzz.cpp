// Fuzzes model.safetensors.index.json, which names the file of each tensor. It comes from the
// internet, and the reader opens the files that it names.
#include <cstring>

#include "tests/fuzz/fuzz.h"
#include "tools/files/weights/weight_source.h"

namespace {

struct Files {
  reprise::fuzz::MemoryFile index, shard;
  reprise::fuzz::MemoryFolder folder;
  Files() {
    const std::string header =
        R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F16","shape":[],"data_offsets":[8,10]}})";
    const uint64_t bytes = header.size();
    std::string file(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    file += header + std::string(10, 'x');
    shard.hold(reinterpret_cast<const uint8_t*>(file.data()), file.size());
    folder.add("s", shard);
    folder.add("model.safetensors.index.json", index);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const Files files;
  files.index.hold(data, size);
  fuzz::answers_or_refuses([&] {
    const auto weights = open_weights(files.folder.path());
    for (const std::string& name : weights->names()) {
      fuzz::require(name == "a" || name == "b", "only what a file has is there");
      float values[2];
      weights->read(name, 0, name == "a" ? 2 : 1, values);
    }
  });
  return 0;
}
