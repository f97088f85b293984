// Tests the training of a model to whose vocabulary the recipe adds tokens. It is compared with the
// same model from files that already have the rows of these tokens. Snapshots, PEFT's folder and
// merged models of both are written and read again. With a row in the wrong place the model would
// train equally well; the error would show only when another program uses it.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/texts/small_tokenizer.h"
#include "tests/runtime/training_harness.h"
#include "tools/files/adapters/grown_tables.h"
#include "tools/files/formats/gguf.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/output_file.h"
#include "tools/files/tokenizer/tokenizer.h"
#include "tools/files/weights/gguf_names.h"
#include "tools/files/weights/model_files.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/run/snapshots/adapter_files.h"
#include "tools/run/snapshots/export_snapshot.h"
#include "tools/run/snapshots/initial_weights.h"
#include "tools/run/snapshots/snapshot.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr uint32_t kTokens = 800, kWidth = 32;  // tokens in the small tokenizer; width of the model
const std::vector<std::string> kNew = {"<tool_call>", "</tool_call>"};
const char *const kTable = "model.embed_tokens.weight", *const kHeadTable = "lm_head.weight";

using Tensors = std::map<std::string, std::pair<std::vector<uint64_t>, std::vector<float>>>;

// Returns the tensors of a small Llama. The numbers of a tensor depend on its name.
Tensors small_model(uint64_t rows, bool tied) {
  Tensors tensors;
  const auto add = [&](const std::string& name, std::vector<uint64_t> shape, float scale, float middle = 0) {
    uint64_t state = name.size() * 1000 + static_cast<unsigned char>(name[13 % name.size()]), elements = 1;
    for (const uint64_t dimension : shape) elements *= dimension;
    std::vector<float> numbers(elements);
    for (float& number : numbers) {
      state = state * 6364136223846793005 + 1442695040888963407;
      number = middle + scale * (static_cast<float>(state >> 40) / 8388608.0f - 1);
    }
    tensors[name] = {std::move(shape), std::move(numbers)};
  };
  const std::string layer = "model.layers.0.";
  add(kTable, {rows, kWidth}, 0.2f);
  if (!tied) add(kHeadTable, {rows, kWidth}, 0.3f);
  for (const char* name : {"self_attn.q_proj", "self_attn.o_proj"})
    add(layer + name + ".weight", {kWidth, kWidth}, 0.3f);
  for (const char* name : {"self_attn.k_proj", "self_attn.v_proj"}) add(layer + name + ".weight", {16, kWidth}, 0.3f);
  for (const char* name : {"mlp.gate_proj", "mlp.up_proj"}) add(layer + name + ".weight", {48, kWidth}, 0.3f);
  add(layer + "mlp.down_proj.weight", {kWidth, 48}, 0.3f);
  for (const char* name :
       {"model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight", "model.norm.weight"})
    add(name, {kWidth}, 0.1f, 1);
  return tensors;
}

json config_of(uint64_t rows, bool tied) {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", rows},
          {"hidden_size", kWidth},
          {"intermediate_size", 48},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 16},
          {"max_position_embeddings", 64},
          {"tie_word_embeddings", tied},
          {"rms_norm_eps", 1e-5}};
}

void write_model(const std::string& folder, const Tensors& tensors, const json& config, const json& tokenizer) {
  fs::create_directory(folder);
  write_file(folder + "/config.json", config.dump());
  write_file(folder + "/tokenizer.json", tokenizer.dump());
  SafetensorsWriter writer(folder + "/model.safetensors");
  for (const auto& [name, tensor] : tensors) writer.declare(name, StoredType::kF32, tensor.first);
  for (const auto& [name, tensor] : tensors) writer.write(tensor.second.data(), tensor.second.size() * sizeof(float));
  writer.finish();
}

// Writes the model in llama.cpp's format.
void write_gguf_model_of(const std::string& path, const Tensors& tensors, const json& tokenizer) {
  write_gguf_tokenizer(path + ".tokenizer", tokenizer, "gpt-2");
  const GgufFile words(path + ".tokenizer");
  GgufWriter writer(path);
  for (const auto& [key, value] : words.metadata()) writer.add(key, value);
  for (const auto& [key, value] : {std::pair{"block_count", 1},
                                   {"context_length", 64},
                                   {"embedding_length", 32},
                                   {"feed_forward_length", 48},
                                   {"attention.head_count", 2},
                                   {"attention.head_count_kv", 1},
                                   {"vocab_size", 800}}) {
    writer.add(std::string("llama.") + key, {GgufType::kU32, {}, value});
  }
  writer.add("llama.attention.layer_norm_rms_epsilon", {GgufType::kF32, {}, 1e-5});
  for (const auto& [name, tensor] : tensors)
    writer.declare(gguf_name("llama", name)->name, BlockType::kF32, tensor.first);
  for (const auto& [name, tensor] : tensors) {
    const bool is_paired = gguf_name("llama", name)->order == GgufOrder::kPairs;
    std::vector<float> rows(tensor.second.size());
    const uint64_t columns = tensor.first.size() > 1 ? tensor.first[1] : 1;
    for (uint64_t row = 0; row < tensor.first[0]; ++row) {
      std::copy_n(tensor.second.data() + row * columns, columns,
                  rows.data() + (is_paired ? paired_row(row, 16) : row) * columns);
    }
    writer.write(rows.data(), rows.size() * sizeof(float));
  }
  writer.finish();
}

// Fills the new rows as the reference does: with the mean of the rows of existing tokens. The mean
// is summed in double, in the order of the rows.
void grow(Tensors& tensors, uint64_t rows) {
  for (const char* name : {kTable, kHeadTable}) {
    if (tensors.count(name) == 0) continue;
    auto& [shape, numbers] = tensors.at(name);
    shape[0] = std::max(shape[0], rows);
    numbers.resize(shape[0] * kWidth);
    for (uint32_t c = 0; c < kWidth; ++c) {
      double sum = 0;
      for (uint32_t row = 0; row < kTokens; ++row) sum += static_cast<double>(numbers[row * kWidth + c]);
      for (const uint32_t row : {kTokens, kTokens + 1}) numbers[row * kWidth + c] = static_cast<float>(sum / kTokens);
    }
  }
}

// A bound recipe that starts with the weights of its model.
class Training : public BoundRecipe {
 public:
  explicit Training(const Recipe& recipe) : BoundRecipe(recipe, "optimal", 0.0) {
    read_initial_weights(trainer, *open_model_weights(recipe, published_weights(recipe)), {});
  }

  std::vector<double> train(int steps) {
    const auto data = open_dataset(recipe(), Split::kTraining);
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
      StepReport report;
      EXPECT_TRUE(train_step(trainer, source_of(*data), report).ok());
      losses.push_back(report.loss);
    }
    return losses;
  }
  std::vector<unsigned char> state_bytes() const {
    return bytes_at(trainer, trainer.state_tensor(kFirstTrained),
                    plan().state_bytes - plan().state[kFirstTrained].tensor.offset);
  }
  std::vector<float> row(const std::string& name, uint32_t row) const {
    const auto all = floats_of(trainer, static_cast<uint32_t>(&state(name) - plan().state.begin()));
    return {all.begin() + row * kWidth, all.begin() + (row + 1) * kWidth};
  }
};

class NewTokensTraining : public testing::Test {
 protected:
  NewTokensTraining() {
    std::string text;
    for (int n = 0; n < 60; ++n)
      text += "the and of <tool_call>ing " + std::to_string(n) + "</tool_call> Hello world\n";
    write_file(at("data.txt"), text);
    for (const bool tied : {true, false})
      write_model(at(tied ? "tied" : "untied"), small_model(kTokens, tied), config_of(kTokens, tied), tokenizer_);
    write_model(at("spare"), small_model(864, false), config_of(864, false), tokenizer_);
    write_gguf_model_of(at("base.gguf"), small_model(kTokens, false), tokenizer_);
  }
  std::string at(const std::string& name) const { return folder_.file(name); }

  // Writes a folder whose tokenizer has the new tokens, and whose tables already have rows for
  // them.
  void write_grown(const std::string& name, uint64_t rows, bool tied) const {
    Tensors tensors = small_model(rows == kTokens + 2 ? kTokens : rows, tied);
    grow(tensors, rows);
    json tokenizer = tokenizer_;
    for (uint32_t n = 0; n < 2; ++n)
      tokenizer["added_tokens"].push_back(
          {{"id", kTokens + n}, {"content", kNew[n]}, {"special", false}, {"normalized", false}});
    write_model(at(name), tensors, config_of(rows, tied), tokenizer);
  }

  Recipe recipe(const json& model, const json& more = json::object()) const {
    json value = {{"name", "tokens"},
                  {"model", model},
                  {"data", {{"kind", "text"}, {"path", at("data.txt")}}},
                  {"batch", 2},
                  {"sequence", 16},
                  {"steps", 4},
                  {"seed", 5},
                  {"optimizer", {{"name", "adamw"}, {"lr", 0.01}}}};
    value.merge_patch(more);
    return parse_recipe(value.dump(), "recipe.json", folder_.path());
  }
  Recipe with_new(const std::string& folder, const json& more = json::object()) const {
    return recipe({{"huggingface", folder}, {"new_tokens", kNew}}, more);
  }
  void save(Training& run, const Recipe& of) const {
    SnapshotDirectory folder(at("snapshot"), snapshot_folder());
    SnapshotFacts facts;
    facts.base = sum_base(*open_weights(published_weights(of)));
    save_snapshot(run.trainer, of, facts, folder);
  }
  ExportRequest request(ExportForm form, const std::string& to, BlockType type = BlockType::kF32) const {
    return {.snapshot = at("snapshot"), .form = form, .to = at(to), .type = type};
  }

  const json tokenizer_ = small_tokenizers().at("gpt2").json;
  const json lora_ = {{"lora", {{"r", 2}, {"modules_to_save", {"embed_tokens", "lm_head"}}}}};
  TemporaryFolder folder_;
};

// Tests full training and adapters, with tied and untied heads, spare rows, weights in bf16, and a
// quantised base.
TEST_F(NewTokensTraining, BitsAreThoseOfAFileThatHasTheRows) {
  write_grown("grown-tied", kTokens + 2, true);
  write_grown("grown-untied", kTokens + 2, false);
  write_grown("grown-spare", 864, false);
  const json bf16 = {{"trained", {{"storage", "bf16"}}}};
  json quantised = lora_;
  quantised["weights"] = {{"frozen", "q8_0"}};
  for (const auto& [name, more] : {std::pair<const char*, json>{"tied", json::object()},
                                   {"tied", lora_},
                                   {"untied", json::object()},
                                   {"untied", lora_},
                                   {"untied", bf16},
                                   {"untied", quantised},
                                   {"spare", json::object()},
                                   {"spare", lora_}}) {
    SCOPED_TRACE(name + (" " + more.dump()));
    const Recipe of = with_new(name, more), grown = recipe({{"huggingface", std::string("grown-") + name}}, more);
    EXPECT_EQ(describe_model(of.model).vocabulary, describe_model(grown.model).vocabulary);
    Training run(of), reference(grown);
    EXPECT_EQ(run.state_bytes(), reference.state_bytes());
    const std::vector<float> before =
        of.trained.storage == DType::kF32 ? run.row(kTable, kTokens) : std::vector<float>();
    EXPECT_EQ(run.train(3), reference.train(3));
    EXPECT_EQ(run.state_bytes(), reference.state_bytes());
    EXPECT_TRUE(before.empty() || run.row(kTable, kTokens) != before) << "the data hold it";
  }
}

// The mean must include only the rows of existing tokens, not spare rows or rows of unused ids.
// Rows that belong to no new token must not change.
TEST_F(NewTokensTraining, AFileOfAnotherOriginKeepsTheRowsThatItHas) {
  const Recipe of = with_new("spare");
  const Tensors tensors = small_model(864, false);
  const auto row = [&](const WeightSource& source, uint64_t n) {
    std::vector<float> numbers(kWidth);
    source.read(kTable, n * kWidth, kWidth, numbers.data());
    return numbers;
  };
  const auto own = [&](uint64_t n) {
    return std::vector<float>(tensors.at(kTable).second.begin() + static_cast<int64_t>(n) * kWidth,
                              tensors.at(kTable).second.begin() + static_cast<int64_t>(n + 1) * kWidth);
  };
  const auto model = open_model_weights(of, at("spare/model.safetensors"));
  fs::create_directory(at("other"));
  fs::copy_file(at("spare/model.safetensors"), at("other/model.safetensors"));
  const auto other = open_model_weights(of, at("other/model.safetensors"));
  for (const uint64_t n : {uint64_t{0}, uint64_t{799}, uint64_t{802}, uint64_t{863}}) {
    EXPECT_EQ(row(*model, n), own(n));
    EXPECT_EQ(row(*other, n), own(n));
  }
  EXPECT_NE(row(*model, 800), own(800));
  EXPECT_EQ(row(*model, 800), row(*model, 801));
  EXPECT_EQ(row(*other, 800), own(800)) << "it may have been trained before";
  // There are two tokens, but the table has only one row. So the mean is this row, wherever a read
  // begins.
  SafetensorsWriter writer(at("one.safetensors"));
  writer.declare(kTable, StoredType::kF32, {1, 3});
  const float numbers[] = {1, 2, 3};
  writer.write(numbers, sizeof numbers);
  writer.finish();
  const auto grown = grow_tables(open_weights(at("one.safetensors")),
                                 {.rows = 4, .makes_spare = true, .tokenizer = [](NewTokens& made) {
                                    made.first = 2, made.count = 2;
                                    TokenizerFile file;
                                    file.tokens.assign(4, {"x", TokenKind::kNormal});
                                    return file;
                                  }});
  std::vector<float> piece(7);
  grown->read(kTable, 4, piece.size(), piece.data());
  EXPECT_EQ(piece, (std::vector<float>{2, 3, 1, 2, 3, 1, 2}));
}

TEST_F(NewTokensTraining, ASnapshotGoesOnWithTheSameTokensOnly) {
  const Recipe of = with_new("spare", lora_);
  Training whole(of), first(of), second(of);
  const std::vector<double> losses = whole.train(4);
  std::vector<double> halves = first.train(2);
  save(first, of);
  const DataFingerprint data;
  resume_snapshot(second.trainer, of, &data, at("snapshot"));
  for (const double loss : second.train(2)) halves.push_back(loss);
  EXPECT_EQ(halves, losses);
  EXPECT_EQ(second.state_bytes(), whole.state_bytes());
  for (const json& tokens : {json{"</tool_call>", "<tool_call>"}, json{"<tool_call>"}, json::array()}) {
    const Recipe other = recipe({{"huggingface", "spare"}, {"new_tokens", tokens}}, lora_);
    Training run(other);
    expect_user_error([&] { resume_snapshot(run.trainer, other, &data, at("snapshot")); },
                      {"training.json", "another model", "new_tokens"});
    expect_user_error([&] { export_snapshot(other, request(ExportForm::kAdapter, "x")); },
                      {"another model", "new_tokens"});
  }
}

// Tests every form of export: the tokenizer must have the new tokens, and the exported model must
// compute what was trained.
TEST_F(NewTokensTraining, WhatIsExportedIsReadAgain) {
  for (const json& more : {json::object(), lora_}) {
    for (const json& model :
         {json{{"huggingface", "tied"}}, json{{"huggingface", "spare"}}, json{{"gguf", "base.gguf"}}}) {
      SCOPED_TRACE(model.dump() + more.dump());
      json new_model = model;
      new_model["new_tokens"] = kNew;
      const Recipe of = recipe(new_model, more);
      Training run(of);
      run.train(3);
      save(run, of);
      const double loss = run.loss();
      const auto expect_again = [&](const json& place, double error) {
        const Tokenizer tokenizer(ModelFiles::open(place.begin().value().get<std::string>()).tokenizer());
        EXPECT_EQ(tokenizer.encode("a<tool_call></tool_call>", false).back(), 801);
        const Recipe plain = recipe(place);
        EXPECT_EQ(describe_model(plain.model).vocabulary, describe_model(of.model).vocabulary);
        EXPECT_NEAR(Training(plain).loss(), loss, error * loss);
      };
      export_snapshot(of, request(ExportForm::kMerged, "merged"));
      expect_again({{"huggingface", at("merged")}}, 1e-6);
      if (model.contains("gguf")) {
        export_snapshot(of, request(ExportForm::kMergedGguf, "merged.gguf"));
        expect_again({{"gguf", at("merged.gguf")}}, 1e-6);
        EXPECT_EQ(GgufFile(at("merged.gguf")).unsigned_integer("llama.vocab_size"), 802u);
        EXPECT_EQ(GgufFile(at("merged.gguf")).find_tensor("output.weight")->shape,
                  (std::vector<uint64_t>{802, kWidth}));
        export_snapshot(of, request(ExportForm::kMergedGguf, "q8_0.gguf", BlockType::kQ8_0));
        expect_again({{"gguf", at("q8_0.gguf")}}, 0.05);
      }
      if (!of.lora) continue;
      export_snapshot(of, request(ExportForm::kAdapter, "peft"));
      EXPECT_EQ(Tokenizer::open(at("peft"))->encode("<tool_call>", false), (std::vector<int32_t>{800}));
      Training again(of), untrained(of);
      (void)load_adapter(again.trainer, of, at("peft"));
      EXPECT_EQ(again.loss(), loss);
      EXPECT_NE(untrained.loss(), loss);
      expect_user_error([&] { export_snapshot(of, request(ExportForm::kAdapterGguf, "a.gguf")); },
                        {"trained whole", "llama.cpp"});
      EXPECT_FALSE(fs::exists(at("a.gguf")));
    }
  }
}

}  // namespace
}  // namespace reprise
