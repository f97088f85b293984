// Fuzzes the training.json of a snapshot. A trainer whose plan has no tensors resumes from it. A
// snapshot may come from another version, or from a full disk.
#include "lib/cpu/cpu_rules.h"
#include "tests/fuzz/fuzz.h"
#include "tools/run/snapshots/snapshot.h"

namespace {

struct Files {
  reprise::fuzz::MemoryFile training, model, optimizer;
  reprise::fuzz::MemoryFolder folder;
  Files() {
    const uint8_t kNoTensors[] = {2, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    model.hold(kNoTensors, sizeof kNoTensors);
    optimizer.hold(kNoTensors, sizeof kNoTensors);
    folder.add("training.json", training);
    folder.add("model.safetensors", model);
    folder.add("optimizer.safetensors", optimizer);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const Files files;
  static const Recipe recipe =
      parse_recipe(R"({"model": {"family": "gpt2"}, "batch": 1})", "recipe.json", "/");
  static const Plan plan;
  static const Backend backend = {.rules = &kCpuRules, .kernel_set = "fuzz"};
  files.training.hold(data, size);
  fuzz::answers_or_refuses([&] {
    Trainer trainer;
    trainer.plan = &plan;
    trainer.backend = &backend;
    for (const std::string& warning : resume_snapshot(trainer, recipe, nullptr, files.folder.path())) {
      fuzz::require(warning.find('\n') == std::string::npos, "a warning is one line");
    }
  });
  return 0;
}
