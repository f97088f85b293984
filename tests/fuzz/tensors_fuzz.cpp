// Fuzzes images and labels in a safetensors file. For each kind of loss the file is opened and
// checked, and one micro-batch is filled. A wrong label would be an index into memory.
#include <cmath>
#include <cstring>

#include "tests/interfaces/host_sink.h"
#include "tests/fuzz/fuzz.h"
#include "tools/run/data/dataset.h"
#include "tools/run/data/images.h"

namespace reprise {
namespace {

constexpr int kClasses = 4;

// Returns a recipe of a net over images of 2 x 2 whose convolution has four channels. If `is_map`,
// `loss` reads these channels at each pixel, otherwise the mean of each channel over the pixels.
Recipe recipe_of(const std::string& loss, bool is_map, const std::string& path) {
  const std::string pool = is_map ? "" : R"({"op": "global_pool", "name": "pool"}, )";
  return parse_recipe(
      R"({"model": {"family": "net", "image": [2, 2, 1], "nodes": [{"op": "conv", "name": "conv", "channels": 4, "kernel": 1}, )" +
          pool + R"({"op": ")" + loss + R"(", "name": "loss"}]}, "batch": 2, "data": {"kind": "tensors", "path": ")" +
          path + "\"}}",
      "recipe.json", "/");
}

bool is_right(const Recipe& recipe, const LabelForm& form, const unsigned char* labels, uint64_t i) {
  if (!is_labelled(form.stored, labels, i)) return true;
  if (form.stored == DType::kU8) return labels[i] < kClasses;
  if (form.stored == DType::kI32) {
    int32_t label;
    std::memcpy(&label, labels + i * sizeof label, sizeof label);
    return label >= 0 && label < kClasses;
  }
  float number;
  std::memcpy(&number, labels + i * sizeof number, sizeof number);
  return describe_model(recipe.model).target == ModelDescription::Target::kLabels ? number >= 0 && number <= 1
                                                                                  : std::isfinite(number);
}

void fill(const Recipe& recipe) {
  const LabelForm form = label_form(recipe);
  float images[2 * 2 * 2];
  std::vector<unsigned char> labels(2 * form.bytes());
  BatchSink sink =
      host_sink(images, sizeof images, labels.data(), 2 * form.count(), nullptr, nullptr, 0, 1, form.stored);
  open_dataset(recipe, Split::kTraining)->fill(3, 0, sink);
  fuzz::require(sink.status().ok(), "a micro-batch is whole");
  for (uint64_t i = 0; i < 2 * form.count(); ++i)
    fuzz::require(is_right(recipe, form, labels.data(), i), "labels are what the loss wants");
}

}  // namespace
}  // namespace reprise

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const fuzz::MemoryFile memory;
  static const std::vector<Recipe> recipes = {recipe_of("class_loss", false, memory.path()),
                                              recipe_of("class_loss", true, memory.path()),
                                              recipe_of("mse_loss", true, memory.path()),
                                              recipe_of("binary_loss", false, memory.path())};
  memory.hold(data, size);
  for (const Recipe& recipe : recipes) fuzz::answers_or_refuses([&] { fill(recipe); });
  return 0;
}
