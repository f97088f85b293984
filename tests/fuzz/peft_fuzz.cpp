// Fuzzes the adapter_config.json of a PEFT adapter. The file comes from the internet, and its rank
// becomes a shape.
#include "tests/fuzz/fuzz.h"
#include "tools/files/adapters/peft_adapter.h"

namespace {

struct Files {
  reprise::fuzz::MemoryFile config, weights;
  reprise::fuzz::MemoryFolder folder;
  Files() {
    const std::string header =
        R"({"base_model.model.x.lora_A.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
        R"("base_model.model.x.lora_B.weight":{"dtype":"F32","shape":[3,1],"data_offsets":[8,20]}})";
    const uint64_t bytes = header.size();
    std::string file(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    file += header + std::string(20, 'x');
    weights.hold(reinterpret_cast<const uint8_t*>(file.data()), file.size());
    folder.add("adapter_model.safetensors", weights);
    folder.add("adapter_config.json", config);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const Files files;
  files.config.hold(data, size);
  fuzz::answers_or_refuses([&] {
    const Adapter adapter = open_peft_adapter(files.folder.path());
    fuzz::require(adapter.layers.size() == 1 && adapter.layers[0].rank == 1 && adapter.settings.rank_of("x") == 1,
                  "the rank is that of the matrices");
  });
  return 0;
}
