// `reprise export` without its command line: a snapshot in each form, what is in its way, and snapshots that are not the recipe's.
// Here because this is the file that a person takes away, and nothing half-written may stand in its place.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/faces/expect_user_error.h"
#include "tools/formats/gguf.h"
#include "tools/formats/json_text.h"
#include "tools/formats/output_file.h"
#include "tools/formats/safetensors.h"
#include "tools/snapshots/export_snapshot.h"
#include "tools/weights/model_files.h"
#include "tools/weights/peft_adapter.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class Export : public ::testing::Test {
 protected:
  Export() { fs::copy_file("tests/golden/weights/llama.gguf", base()); }
  std::string at(const std::string& name) const { return folder_.file(name); }
  std::string base() const { return at("base.gguf"); }

  Recipe recipe(const json& change = json::object(), const json& model = nullptr) const {
    json value = {{"name", "export"}, {"model", model.is_null() ? json{{"gguf", base()}} : model}, {"data", {{"kind", "synthetic"}}}, {"batch", 1},
                  {"sequence", 8}, {"steps", 1}, {"optimizer", {{"name", "adamw"}, {"lr", 0.001}}},
                  {"lora", {{"r", 2}, {"alpha", 3}, {"targets", {"q_proj", "down_proj"}}}}};
    value.update(change);
    for (auto it = value.begin(); it != value.end();) it = it->is_null() ? value.erase(it) : std::next(it);
    return parse_recipe(value.dump(), "recipe.json", "/");
  }

  // A snapshot of that recipe, as if it had been trained.
  std::string snapshot(const Recipe& recipe, const std::string& name = "snapshot") const {
    const std::string path = at(name);
    fs::create_directories(path);
    SafetensorsWriter writer(path + "/model.safetensors");
    const std::pair<const char*, std::vector<uint64_t>> tensors[] = {{"model.layers.0.mlp.down_proj.lora_A.weight", {2, 64}},
                                                                     {"model.layers.0.mlp.down_proj.lora_B.weight", {32, 2}},
                                                                     {"model.layers.0.self_attn.q_proj.lora_A.weight", {2, 32}},
                                                                     {"model.layers.0.self_attn.q_proj.lora_B.weight", {32, 2}}};
    for (const auto& [tensor, shape] : tensors) writer.declare(tensor, StoredType::kF32, shape);
    for (const auto& [tensor, shape] : tensors) {
      for (uint64_t i = 0; i < shape[0] * shape[1]; ++i) {
        const float number = 0.01f * static_cast<float>(i % 13) - 0.05f;
        writer.write(&number, sizeof number);
      }
    }
    writer.finish();
    SafetensorsWriter(path + "/optimizer.safetensors").finish();
    write_file(path + "/config.json", "{}");
    const FileSum sum = sum_of_file(base());
    const json training = {{"format", 1}, {"step", 1}, {"kernel_set", "none"}, {"recipe", json::parse(canonical_recipe(recipe))},
                           {"base", {{"path", base()}, {"bytes", sum.bytes}, {"xxh3", sum.checksum}}}};
    write_file(path + "/training.json", training.dump());
    return path;
  }
  ExportRequest request(ExportForm form, const std::string& to, BlockType type = BlockType::kF32) const {
    return {.snapshot = at("snapshot"), .form = form, .to = at(to), .type = type};
  }

  TemporaryFolder folder_;
};

TEST_F(Export, WritesEveryForm) {
  const Recipe of = recipe();
  snapshot(of);
  for (int again = 0; again < 2; ++again) {  // the second replaces the first
    EXPECT_EQ(export_snapshot(of, request(ExportForm::kAdapter, "peft")), at("peft") + ": adapter of 2 layers, rank 2");
    EXPECT_EQ(export_snapshot(of, request(ExportForm::kAdapterGguf, "a.gguf")), at("a.gguf") + ": adapter of 2 layers, rank 2");
    EXPECT_EQ(export_snapshot(of, request(ExportForm::kMerged, "merged", BlockType::kBf16)), at("merged") + ": model of BF16, the adapter merged");
    EXPECT_EQ(export_snapshot(of, request(ExportForm::kMergedGguf, "m.gguf", BlockType::kQ8_0)), at("m.gguf") + ": model of Q8_0, the adapter merged");
  }
  const Adapter adapter = open_peft_adapter(at("peft"));
  EXPECT_EQ(adapter.settings, (LoraSettings{.r = 2, .alpha = 3, .dropout = 0, .targets = {"q_proj", "down_proj"}, .rslora = false}));
  EXPECT_EQ(adapter.layers.size(), 2u);
  EXPECT_EQ(json::parse(read_file(at("peft/adapter_config.json")))["base_model_name_or_path"], base());
  EXPECT_EQ(GgufFile(at("a.gguf")).tensors().size(), 4u);
  const json config = ModelFiles::open(at("merged")).config();
  EXPECT_EQ(config["model_type"], "llama");
  EXPECT_EQ(config["dtype"], "bfloat16");
  EXPECT_EQ(open_weights(at("merged"))->names(), open_weights(base())->names());
  EXPECT_EQ(GgufFile(at("m.gguf")).unsigned_integer("general.file_type"), 7u);
  EXPECT_EQ(fs::exists(at("merged.saving")), false);
  for (const auto& entry : fs::directory_iterator(folder_.path())) EXPECT_EQ(entry.path().string().find(".new-"), std::string::npos) << entry.path();
}

// The scale of the second layer, 7 / 2 beside 3 / 2, is none that the file's alpha of 3 can say.
TEST_F(Export, SaysWhichScalesAGgufAdapterHoldsInItsMatrices) {
  const auto line = [&](double alpha) {
    const Recipe of = recipe({{"lora", {{"r", 2}, {"alpha", 3}, {"targets", {"*.q_proj", "mlp.*"}}, {"alpha_pattern", {{"q_proj", alpha}, {"up_proj", 9}}}}}});
    snapshot(of);
    return export_snapshot(of, request(ExportForm::kAdapterGguf, "a.gguf"));
  };
  const std::string start = at("a.gguf") + ": adapter of 2 layers, rank 2";
  EXPECT_EQ(line(6), start + "; B of 1 holds a factor, because a GGUF adapter has one alpha, exactly");
  EXPECT_EQ(line(7), start + "; B of 1 holds a factor, because a GGUF adapter has one alpha (1 of them rounded once to F32, by at most 2^-24 of each number)");
  EXPECT_EQ(line(3), start);
}

TEST_F(Export, AWholeModelIsTheSnapshotsOwn) {
  const Recipe of = recipe({{"lora", nullptr}});
  snapshot(of);
  fs::remove(at("snapshot/model.safetensors"));
  const auto source = open_weights(base());
  SafetensorsWriter writer(at("snapshot/model.safetensors"));
  for (const std::string& name : source->names()) writer.declare(name, StoredType::kF32, source->find(name)->shape);
  for (const std::string& name : source->names()) {
    uint64_t elements = 1;
    for (const uint64_t dimension : source->find(name)->shape) elements *= dimension;
    const std::vector<float> twos(elements, 2);
    writer.write(twos.data(), elements * sizeof(float));
  }
  writer.finish();
  EXPECT_EQ(export_snapshot(of, request(ExportForm::kMergedGguf, "m.gguf")), at("m.gguf") + ": model of F32");
  const auto again = open_weights(at("m.gguf"));
  EXPECT_EQ(again->names(), source->names());
  float last = 0;
  again->read("model.layers.0.self_attn.q_proj.weight", 32 * 32 - 1, 1, &last);
  EXPECT_EQ(last, 2);
  expect_user_error([&] { export_snapshot(of, request(ExportForm::kAdapter, "peft")); }, {"export: lora", "trains no adapter", "--merged"});
  EXPECT_FALSE(fs::exists(at("peft")));
}

TEST_F(Export, RefusesWhatWouldBeLostOrWrong) {
  const Recipe of = recipe();
  snapshot(of);
  fs::create_directory(at("mine"));
  std::ofstream(at("mine/notes.txt")) << "mine";
  for (const ExportForm form : {ExportForm::kAdapter, ExportForm::kMerged}) {
    expect_user_error([&] { export_snapshot(of, request(form, "mine")); }, {at("mine"), "notes.txt", "would be lost"});
  }
  expect_user_error([&] { export_snapshot(of, request(ExportForm::kMergedGguf, "base.gguf")); }, {base(), "is the input itself"});
  const Recipe other = recipe(json::object(), {{"family", "llama"}, {"vocab_size", 24}, {"hidden_size", 64}, {"intermediate_size", 64}, {"num_hidden_layers", 1},
                                   {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"max_position_embeddings", 16}});
  expect_user_error([&] { export_snapshot(other, request(ExportForm::kAdapter, "peft")); }, {at("snapshot"), "recipe.model", "another model"});
  snapshot(other, "other");
  ExportRequest of_family = request(ExportForm::kMergedGguf, "m.gguf");
  of_family.snapshot = at("other");
  expect_user_error([&] { export_snapshot(other, of_family); }, {"export: model", "--merged-gguf", "names none"});
  try {
    export_snapshot(of, request(ExportForm::kMerged, "merged", BlockType::kQ8_0));
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.status, UserError::kUsage);
  }
  const Recipe other_scale = recipe({{"lora", {{"r", 2}, {"alpha", 99}, {"targets", {"q_proj", "down_proj"}}}}});
  for (const ExportForm form : {ExportForm::kAdapter, ExportForm::kAdapterGguf, ExportForm::kMerged, ExportForm::kMergedGguf}) {
    expect_user_error([&] { export_snapshot(other_scale, request(form, "scaled")); },
                      {at("snapshot") + "/training.json", "recipe.lora.alpha: trained with 3", "the recipe says 99"});
  }
  EXPECT_FALSE(fs::exists(at("scaled")));
  std::ofstream(base(), std::ios::app) << "x";
  expect_user_error([&] { export_snapshot(of, request(ExportForm::kMerged, "merged")); }, {base(), "is not the file that the adapters of", at("snapshot")});
  EXPECT_NO_THROW(export_snapshot(of, request(ExportForm::kAdapter, "peft"))) << "which needs no base";
  EXPECT_FALSE(fs::exists(at("merged")) || fs::exists(at("m.gguf")));
  fs::remove(at("snapshot/training.json"));
  expect_user_error([&] { export_snapshot(of, request(ExportForm::kAdapter, "peft")); }, {at("snapshot/training.json")});
}

}  // namespace
}  // namespace reprise
