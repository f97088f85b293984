// Tests the functions of `reprise export`: a snapshot in each form, reasons for refusal, and
// snapshots that do not belong to the recipe. Users take the exported file elsewhere. So a file
// that is only half written must never have the final name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/adapters/base_name.h"
#include "tools/files/adapters/peft_adapter.h"
#include "tools/files/formats/gguf.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/output_file.h"
#include "tools/files/weights/gguf_model.h"
#include "tools/files/weights/model_files.h"
#include "tools/run/snapshots/export_snapshot.h"

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
    json value = {{"name", "export"},
                  {"model", model.is_null() ? json{{"gguf", base()}} : model},
                  {"data", {{"kind", "synthetic"}}},
                  {"batch", 1},
                  {"sequence", 8},
                  {"steps", 1},
                  {"optimizer", {{"name", "adamw"}, {"lr", 0.001}}},
                  {"lora", {{"r", 2}, {"alpha", 3}, {"targets", {"q_proj", "down_proj"}}}}};
    value.update(change);
    for (auto it = value.begin(); it != value.end();) it = it->is_null() ? value.erase(it) : std::next(it);
    return parse_recipe(value.dump(), "recipe.json", "/");
  }

  // Writes a snapshot of the recipe, as a training would, and returns its path.
  std::string snapshot(const Recipe& recipe, const std::string& name = "snapshot") const {
    const std::string path = at(name);
    fs::create_directories(path);
    SafetensorsWriter writer(path + "/model.safetensors");
    const std::pair<const char*, std::vector<uint64_t>> tensors[] = {
        {"model.layers.0.mlp.down_proj.lora_A.weight", {2, 64}},
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
    const json training = {{"format", 1},
                           {"step", 1},
                           {"kernel_set", "none"},
                           {"recipe", json::parse(canonical_recipe(recipe))},
                           {"base", {{"path", base()}, {"bytes", sum.bytes}, {"xxh3", sum.checksum}}}};
    write_file(path + "/training.json", training.dump());
    return path;
  }
  ExportRequest request(ExportForm form, const std::string& to, BlockType type = BlockType::kF32) const {
    return {.snapshot = at("snapshot"), .form = form, .to = at(to), .type = type};
  }

  static std::string text(const Recipe& of, const ExportRequest& request) {
    return export_text(export_snapshot(of, request));
  }

  TemporaryFolder folder_;
};

// Expects that the errors in the report (WrittenTensor::largest and rms) are equal to the errors
// computed from all numbers of `given` and `written`. `like` has the written file's tensors, and
// tells which tensors of `given` are parts of each.
void expect_errors(const WeightSource& given, const GgufFile& like, const WeightSource& written,
                   const ExportReport& report) {
  std::map<std::string, std::vector<std::string>> parts;  // Hugging Face's names, by the tensor in the file
  for (const auto& [name, place] : gguf_places(like)) parts[place.tensor->name].push_back(name);
  ASSERT_EQ(report.tensors.size(), like.tensors().size());
  for (const WrittenTensor& tensor : report.tensors) {
    double largest = 0, largest_difference = 0, squares = 0, differences = 0;
    for (const std::string& name : parts.at(tensor.name)) {
      uint64_t elements = 1;
      for (const uint64_t dimension : given.find(name)->shape) elements *= dimension;
      std::vector<float> a(elements), b(elements);
      given.read(name, 0, elements, a.data());
      written.read(name, 0, elements, b.data());
      for (uint64_t i = 0; i < elements; ++i) {
        largest = std::max(largest, std::abs(double{a[i]}));
        largest_difference = std::max(largest_difference, std::abs(double{a[i]} - b[i]));
        squares += double{a[i]} * a[i];
        differences += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
      }
    }
    EXPECT_NEAR(tensor.largest, largest_difference / largest, 1e-9) << tensor.name;
    EXPECT_NEAR(tensor.rms, std::sqrt(differences / squares), 1e-9) << tensor.name;
  }
}

// The rounding error of each tensor is reported. Blocks that the base already has are kept without
// an error.
TEST_F(Export, SaysByHowMuchNumbersWereRounded) {
  const Recipe of = recipe();
  snapshot(of);
  const GgufFile like(base());
  export_snapshot(of, request(ExportForm::kMergedGguf, "f32.gguf"));
  const auto exact = open_weights(at("f32.gguf"));
  for (const BlockType type :
       {BlockType::kF16, BlockType::kBf16, BlockType::kQ8_0, BlockType::kQ4_0, BlockType::kQ4_K}) {
    const ExportReport report = export_snapshot(of, request(ExportForm::kMergedGguf, "m.gguf", type));
    const GgufFile file(at("m.gguf"));
    expect_errors(*exact, like, *open_weights(at("m.gguf")), report);
    for (const WrittenTensor& tensor : report.tensors) {
      EXPECT_EQ(file.find_tensor(tensor.name)->type, tensor.type);
      EXPECT_TRUE(tensor.type != BlockType::kF32 || tensor.largest == 0) << tensor.name;
    }
    // Rows of 32 are not whole blocks of Q4_K. Like llama.cpp, the export stores them as Q5_0.
    EXPECT_EQ(file.find_tensor("blk.0.attn_q.weight")->type, type == BlockType::kQ4_K ? BlockType::kQ5_0 : type);
    const json value = export_json(report);
    EXPECT_EQ(value["tensors"].size(), like.tensors().size());
    EXPECT_EQ(value["base"], (json{{"path", base()}, {"trained_beside", true}}));
    const std::string line = export_text(report);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 2) << line;
    const auto worst = std::max_element(report.tensors.begin(), report.tensors.end(),
                                        [](const auto& a, const auto& b) { return a.rms < b.rms; });
    EXPECT_NE(line.find("by root mean square the worst " + worst->name + " ("), std::string::npos) << line;
    EXPECT_EQ(line.find("Q5_0 (8 tensors, whose rows are no whole blocks of Q4_K)") != std::string::npos,
              type == BlockType::kQ4_K)
        << line;
  }
  // attn_output is Q4_0 in the base and has no adapter.
  export_snapshot(of, request(ExportForm::kMergedGguf, "m.gguf", BlockType::kQ4_0));
  const GgufFile file(at("m.gguf"));
  const GgufTensor *now = file.find_tensor("blk.0.attn_output.weight"), *before = like.find_tensor(now->name);
  std::vector<unsigned char> a(now->bytes), b(before->bytes);
  file.read_stored(*now, 0, a.data(), a.size());
  like.read_stored(*before, 0, b.data(), b.size());
  EXPECT_EQ(a, b);
}

// Exports three merged models. Their bases are the numbers of the file, the Q4_0 blocks of the
// training, and the file that --base names.
TEST_F(Export, WhichBaseAnAdapterIsMergedIntoIsSaidAndChosen) {
  export_snapshot((snapshot(recipe()), recipe()), request(ExportForm::kMergedGguf, "of_file.gguf"));
  const Recipe of = recipe({{"weights", {{"frozen", "q4_0"}}}});
  snapshot(of);
  const ExportReport trained = export_snapshot(of, request(ExportForm::kMergedGguf, "of_blocks.gguf"));
  EXPECT_EQ(trained.base_blocks, "Q4_0");
  EXPECT_NE(export_text(trained).find("merged into " + base() + " as Q4_0, which it was trained beside"),
            std::string::npos)
      << export_text(trained);
  EXPECT_EQ(export_json(trained)["base"]["blocks"], "Q4_0");
  ExportRequest other = request(ExportForm::kMergedGguf, "of_base.gguf");
  other.base = base();
  const ExportReport chosen = export_snapshot(of, other);
  EXPECT_NE(export_text(chosen).find("merged into " + base() + " (--base); it was trained beside " + base()),
            std::string::npos)
      << export_text(chosen);
  EXPECT_EQ(export_json(chosen)["base"], (json{{"path", base()}, {"trained_beside", false}, {"trained_path", base()}}));
  const auto of_file = open_weights(at("of_file.gguf")), of_blocks = open_weights(at("of_blocks.gguf")),
             of_base = open_weights(at("of_base.gguf"));
  const auto file = open_weights(base());
  for (const std::string& name : file->names()) {
    uint64_t elements = 1;
    for (const uint64_t dimension : file->find(name)->shape) elements *= dimension;
    const auto numbers = [&](const WeightSource& source) {
      std::vector<float> all(elements);
      source.read(name, 0, elements, all.data());
      return all;
    };
    EXPECT_EQ(numbers(*of_base), numbers(*of_file)) << name << ": W16 + B A";
    if (file->find(name)->shape.size() != 2) continue;
    // The result is dequant(W4) + B A, so the adapter adds the same amount as to W.
    const std::vector<float> before = numbers(*file), with = numbers(*of_file), blocks = numbers(*of_blocks);
    std::vector<unsigned char> bytes(stored_bytes(DType::kQ4_0, elements));
    std::vector<float> rounded(elements);
    quantise_blocks(BlockType::kQ4_0, before.data(), elements / 32, bytes.data());
    dequantise_blocks(BlockType::kQ4_0, bytes.data(), elements / 32, rounded.data());
    for (uint64_t i = 0; i < elements; ++i)
      ASSERT_NEAR(blocks[i], rounded[i] + (with[i] - before[i]), 1e-5) << name << " " << i;
    for (const uint64_t first : {uint64_t{0}, uint64_t{5}, uint64_t{37}}) {  // pieces that begin inside a block
      std::vector<float> piece(41);
      of_blocks->read(name, first, piece.size(), piece.data());
      EXPECT_TRUE(std::equal(piece.begin(), piece.end(), blocks.begin() + static_cast<int64_t>(first))) << name;
    }
  }
  // If the result is stored in the blocks of the training, tensors without an adapter are exact.
  for (const WrittenTensor& tensor :
       export_snapshot(of, request(ExportForm::kMergedGguf, "m.gguf", BlockType::kQ4_0)).tensors) {
    const bool has_adapter = tensor.name == "blk.0.attn_q.weight" || tensor.name == "blk.0.ffn_down.weight";
    EXPECT_EQ(tensor.largest > 0, has_adapter) << tensor.name;
  }
  other.base = "tests/golden/weights/qwen3.gguf";
  expect_user_error([&] { export_snapshot(of, other); },
                    {"qwen3.gguf", "tensor \"model.layers.0.self_attn.q_proj.weight\"", "is [64,32]", "has [32,32]"});
  other.base = at("of_file.gguf");
  other.to = at("of_file.gguf");
  expect_user_error([&] { export_snapshot(of, other); }, {at("of_file.gguf"), "is the input itself"});
  std::ofstream(base(), std::ios::app) << "x";
  other.base = at("of_base.gguf");
  other.to = at("x.gguf");
  EXPECT_NO_THROW(export_snapshot(of, other)) << "the trained base is not asked for";
}

TEST_F(Export, WritesEveryForm) {
  const Recipe of = recipe();
  snapshot(of);
  for (int again = 0; again < 2; ++again) {  // the second export replaces the first
    const std::string merged = ", the adapter merged into " + base() + ", which it was trained beside\n";
    EXPECT_EQ(text(of, request(ExportForm::kAdapter, "peft")),
              at("peft") +
                  ": adapter of 2 layers, rank 2\nbase: \"base.gguf\", which is no name on the Hugging Face Hub; load: "
                  "PeftModel.from_pretrained(" +
                  "AutoModelForCausalLM.from_pretrained(\"" + fs::path(base()).parent_path().string() +
                  "\", gguf_file=\"base.gguf\"), \"" + at("peft") + "\"), or give model.hub_name in the recipe\n");
    EXPECT_EQ(text(of, request(ExportForm::kAdapterGguf, "a.gguf")), at("a.gguf") + ": adapter of 2 layers, rank 2\n");
    EXPECT_EQ(text(of, request(ExportForm::kMerged, "f32")), at("f32") + ": model of F32" + merged)
        << "nothing is rounded";
    EXPECT_EQ(text(of, request(ExportForm::kMerged, "merged", BlockType::kBf16))
                  .find(at("merged") + ": model of BF16" + merged + "rounded: "),
              0u);
    EXPECT_EQ(text(of, request(ExportForm::kMergedGguf, "m.gguf", BlockType::kQ8_0))
                  .find(at("m.gguf") + ": model of Q8_0" + merged + "rounded: "),
              0u);
  }
  const Adapter adapter = open_peft_adapter(at("peft"));
  EXPECT_EQ(adapter.settings,
            (LoraSettings{.r = 2, .alpha = 3, .dropout = 0, .targets = {"q_proj", "down_proj"}, .rslora = false}));
  EXPECT_EQ(adapter.layers.size(), 2u);
  EXPECT_EQ(json::parse(read_file(at("peft/adapter_config.json")))["base_model_name_or_path"],
            fs::path(base()).filename().string());
  EXPECT_EQ(GgufFile(at("a.gguf")).tensors().size(), 4u);
  const json config = ModelFiles::open(at("merged")).config();
  EXPECT_EQ(config["model_type"], "llama");
  EXPECT_EQ(config["dtype"], "bfloat16");
  EXPECT_EQ(open_weights(at("merged"))->names(), open_weights(base())->names());
  EXPECT_EQ(GgufFile(at("m.gguf")).unsigned_integer("general.file_type"), 7u);
  EXPECT_EQ(fs::exists(at("merged.saving")), false);
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    EXPECT_EQ(entry.path().string().find(".new-"), std::string::npos) << entry.path();
}

// An exported adapter must name its base by the name on the Hugging Face Hub if the base's files or
// the recipe state this name. PEFT on another machine could not load a local path.
TEST_F(Export, TheAdaptersBaseIsANameOfTheHubWhereOneIsKnown) {
  const GgufFile like("tests/golden/weights/llama.gguf");
  const auto base_of = [&](const std::map<std::string, std::string>& texts, uint32_t count = 1,
                           const std::string& hub_name = "") {
    {
      GgufWriter writer(base());
      for (const auto& [key, value] : like.metadata()) {
        if (texts.count(key) == 0) writer.add(key, value);
      }
      for (const auto& [key, value] : texts) writer.add(key, {GgufType::kString, GgufType::kString, value});
      writer.add("general.base_model.count", {GgufType::kU32, GgufType::kString, count});
      for (const GgufTensor& tensor : like.tensors()) writer.declare(tensor.name, tensor.type, tensor.shape);
      for (const GgufTensor& tensor : like.tensors()) {
        std::vector<unsigned char> bytes(tensor.bytes);
        like.read_stored(tensor, 0, bytes.data(), bytes.size());
        writer.write(bytes.data(), bytes.size());
      }
      writer.finish();
    }
    json model = {{"gguf", base()}};
    if (!hub_name.empty()) model["hub_name"] = hub_name;
    const Recipe of = recipe(json::object(), model);
    snapshot(of);
    const ExportReport report = export_snapshot(of, request(ExportForm::kAdapter, "peft"));
    EXPECT_EQ(report.notes.size(), 1u);
    return std::pair(
        json::parse(read_file(at("peft/adapter_config.json")))["base_model_name_or_path"].get<std::string>(),
        report.notes.at(0));
  };
  const std::string url = "general.base_model.0.repo_url", hub = "https://huggingface.co/";
  EXPECT_EQ(base_of({{url, hub + "Org/Name-1.5B"}}).first, "Org/Name-1.5B");
  EXPECT_EQ(base_of({{url, hub + "Org/Name-1.5B"}}).second,
            "base: Org/Name-1.5B, by general.base_model.0.repo_url of " + base() +
                "; load: PeftModel.from_pretrained(" + "AutoModelForCausalLM.from_pretrained(\"Org/Name-1.5B\"), \"" +
                at("peft") + "\")");
  EXPECT_EQ(base_of({{url, hub + "Org/Name"}, {"general.source.repo_url", hub + "Org/Name-Chat/tree/main"}}).first,
            "Org/Name-Chat")
      << "the source itself";
  EXPECT_EQ(base_of({{"general.source.huggingface.repository", "Org/Old"}}).first, "Org/Old");
  EXPECT_EQ(base_of({{url, hub + "Org/Name"}}, 2).first, "base.gguf") << "a mixture of several is none of them";
  EXPECT_EQ(base_of({{url, "https://github.com/Org/Name"}}).first, "base.gguf");
  EXPECT_EQ(base_of({{url, hub + "Org/Name-Instruct"}, {"general.finetune", "instruct"}}).first, "Org/Name-Instruct");
  const auto parent = base_of({{url, hub + "Org/Name"}, {"general.finetune", "Instruct"}});
  EXPECT_EQ(parent.first, "base.gguf") << "the model that this one was tuned from is another";
  EXPECT_NE(parent.second.find("general.base_model.0.repo_url names Org/Name, which is not called \"Instruct\""),
            std::string::npos)
      << parent.second;
  EXPECT_EQ(base_of({{url, hub + "Org/Name"}}, 1, "My/Own").first, "My/Own") << "the recipe's word";
  expect_user_error(
      [&] {
        recipe(json::object(), {{"gguf", base()}, {"hub_name", "no name"}});
      },
      {"model.hub_name", "must be ORG/NAME", "no name"});
  expect_user_error([&] { recipe(json::object(), {{"gguf", base()}, {"hub_name", "../x"}}); }, {"model.hub_name"});
}

TEST(BaseName, OfAFolderIsItsPlaceInACacheOrWhatItsConfigSays) {
  const TemporaryFolder folder;
  const auto name_of = [&](const std::string& path, const json& config) {
    fs::create_directories(folder.file(path));
    write_file(folder.file(path) + "/config.json", config.dump());
    return base_name_of({.huggingface = folder.file(path), .gguf = ""}).name;
  };
  EXPECT_EQ(name_of("hub/models--Qwen--Qwen3-0.6B/snapshots/c1899de2", json::object()), "Qwen/Qwen3-0.6B");
  EXPECT_EQ(name_of("hub/models--gpt2/snapshots/607a30d7", {{"_name_or_path", "x/y"}}), "gpt2");
  EXPECT_EQ(name_of("plain", {{"_name_or_path", "HuggingFaceTB/SmolLM2-135M"}}), "HuggingFaceTB/SmolLM2-135M");
  for (const char* local : {"./out/model", "/home/x/model", "out", "a/b/c", "../x", ""})
    EXPECT_EQ(name_of("plain", {{"_name_or_path", local}}), "plain") << local;
  EXPECT_EQ(name_of("plain", {{"_name_or_path", nullptr}}), "plain");
}

// The scale of the second layer is 7 / 2, and that of the first is 3 / 2. The one alpha of the
// file, 3, cannot express both.
TEST_F(Export, SaysWhichScalesAGgufAdapterHoldsInItsMatrices) {
  const auto line = [&](double alpha) {
    const Recipe of = recipe({{"lora",
                               {{"r", 2},
                                {"alpha", 3},
                                {"targets", {"*.q_proj", "mlp.*"}},
                                {"alpha_pattern", {{"q_proj", alpha}, {"up_proj", 9}}}}}});
    snapshot(of);
    return export_snapshot(of, request(ExportForm::kAdapterGguf, "a.gguf")).what;
  };
  const std::string start = "adapter of 2 layers, rank 2";
  EXPECT_EQ(line(6), start + "; B of 1 holds a factor, because a GGUF adapter has one alpha, exactly");
  EXPECT_EQ(line(7), start +
                         "; B of 1 holds a factor, because a GGUF adapter has one alpha (1 of them rounded once to "
                         "F32, by at most 2^-24 of each number)");
  EXPECT_EQ(line(3), start);
  // PEFT's patterns have no '*', so PEFT's form lists the names of the layers.
  const Recipe of = recipe({{"lora", {{"r", 2}, {"alpha", 3}, {"targets", {"*.q_proj", "mlp.down*"}}}}});
  snapshot(of);
  export_snapshot(of, request(ExportForm::kAdapter, "peft"));
  EXPECT_EQ(json::parse(read_file(at("peft/adapter_config.json")))["target_modules"],
            (json{"model.layers.0.mlp.down_proj", "model.layers.0.self_attn.q_proj"}));
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
  EXPECT_EQ(text(of, request(ExportForm::kMergedGguf, "m.gguf")), at("m.gguf") + ": model of F32\n");
  ExportRequest with_base = request(ExportForm::kMergedGguf, "other.gguf");
  with_base.base = base();
  expect_user_error([&] { export_snapshot(of, with_base); }, {"export: lora", "--base", "trains none"});
  const auto again = open_weights(at("m.gguf"));
  EXPECT_EQ(again->names(), source->names());
  float last = 0;
  again->read("model.layers.0.self_attn.q_proj.weight", 32 * 32 - 1, 1, &last);
  EXPECT_EQ(last, 2);
  expect_user_error([&] { export_snapshot(of, request(ExportForm::kAdapter, "peft")); },
                    {"export: lora", "trains no adapter", "--merged"});
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
  expect_user_error([&] { export_snapshot(of, request(ExportForm::kMergedGguf, "base.gguf")); },
                    {base(), "is the input itself"});
  const Recipe other = recipe(json::object(), {{"family", "llama"},
                                               {"vocab_size", 24},
                                               {"hidden_size", 64},
                                               {"intermediate_size", 64},
                                               {"num_hidden_layers", 1},
                                               {"num_attention_heads", 4},
                                               {"num_key_value_heads", 2},
                                               {"max_position_embeddings", 16}});
  expect_user_error([&] { export_snapshot(other, request(ExportForm::kAdapter, "peft")); },
                    {at("snapshot"), "recipe.model", "another model"});
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
  for (const ExportForm form :
       {ExportForm::kAdapter, ExportForm::kAdapterGguf, ExportForm::kMerged, ExportForm::kMergedGguf}) {
    expect_user_error([&] { export_snapshot(other_scale, request(form, "scaled")); },
                      {at("snapshot") + "/training.json", "recipe.lora.alpha: trained with 3", "the recipe says 99"});
  }
  EXPECT_FALSE(fs::exists(at("scaled")));
  std::ofstream(base(), std::ios::app) << "x";
  expect_user_error([&] { export_snapshot(of, request(ExportForm::kMerged, "merged")); },
                    {base(), "is not the file that the adapters of", at("snapshot")});
  EXPECT_NO_THROW(export_snapshot(of, request(ExportForm::kAdapter, "peft"))) << "which needs no base";
  EXPECT_FALSE(fs::exists(at("merged")) || fs::exists(at("m.gguf")));
  fs::remove(at("snapshot/training.json"));
  expect_user_error([&] { export_snapshot(of, request(ExportForm::kAdapter, "peft")); },
                    {at("snapshot/training.json")});
}

}  // namespace
}  // namespace reprise
