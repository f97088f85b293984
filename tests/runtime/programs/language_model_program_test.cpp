// Tests the training of a language model as a user runs it: conversations are read, and adapters
// are written, used again, queried and merged. Programs are also killed and given bad files. The
// model is a tiny Llama with a tokenizer and template of its own (chat_model_files.h), compiled
// under two plans. Other tests check the modules; this test runs complete programs.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <regex>

#include "tests/interfaces/soak.h"
#include "tests/runtime/programs/chat_model_files.h"
#include "tests/runtime/programs/train_program.h"
#include "tools/files/formats/gguf.h"
#include "tools/files/formats/safetensors.h"

namespace reprise::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string in_programs(const std::string& name) { return build_folder() + "/test-programs/" + name; }
std::string model() { return in_programs("lm-model"); }
std::string conversations() { return in_programs("lm-train.jsonl"); }
std::string merged_model() { return in_programs("lm-merged-model"); }

json recipe() {
  return {{"model", {{"huggingface", model()}}},
          {"data",
           {{"kind", "chat"}, {"path", conversations()}, {"eval_path", in_programs("lm-eval.jsonl")}, {"pack", true}}},
          {"batch", 1},
          {"sequence", 96},
          {"accumulate", 2},
          {"steps", 8},
          {"seed", 3},
          {"clip_norm", 1.0},
          {"lora", {{"r", 4}, {"alpha", 8}, {"dropout", 0.05}}},
          {"optimizer", {{"name", "adamw"}, {"lr", 0.02}}}};
}

std::string stored() { return train_program("lm-stored", with(recipe(), {{"schedule", "none"}})); }
std::string tight() {
  static const uint64_t budget = smallest_budget(recipe());
  return train_program("lm-tight", with(recipe(), {{"budget", budget}}));
}
std::string beside(const std::string& program, const std::string& name) {
  return (fs::path(program).parent_path() / name).string();
}

// Returns both files of a PEFT folder as one text.
std::string adapter_bytes(const std::string& folder) {
  return file_text(folder + "/adapter_config.json") + file_text(folder + "/adapter_model.safetensors");
}

// While an object of this class exists, a file has another content.
class Changed {
 public:
  Changed(const std::string& path, const std::string& text) : path_(path), before_(file_text(path)) {
    write_text(path, text);
  }
  ~Changed() { write_text(path_, before_); }
  Changed(const Changed&) = delete;
  Changed& operator=(const Changed&) = delete;

 private:
  const std::string path_, before_;
};

struct Matrix {
  std::string name;
  std::vector<uint64_t> shape;
  std::vector<float> numbers;
};

// Copies an adapter. `change` may change each matrix, or omit it by returning false. `config`
// changes fields of the config.
void copy_adapter(const std::string& from, const std::string& to, const json& config,
                  const std::function<bool(Matrix&)>& change) {
  fs::create_directories(to);
  write_text(to + "/adapter_config.json", with(json::parse(file_text(from + "/adapter_config.json")), config).dump());
  const SafetensorsFile file(from + "/adapter_model.safetensors");
  std::vector<Matrix> matrices;
  for (const auto& [name, tensor] : file.tensors()) {
    Matrix matrix = {name, tensor.shape, std::vector<float>(tensor.bytes / sizeof(float))};
    file.read(tensor, 0, matrix.numbers.data(), tensor.bytes);
    if (change(matrix)) matrices.push_back(matrix);
  }
  SafetensorsWriter writer(to + "/adapter_model.safetensors");
  for (const Matrix& matrix : matrices) writer.declare(matrix.name, StoredType::kF32, matrix.shape);
  for (const Matrix& matrix : matrices) writer.write(matrix.numbers.data(), matrix.numbers.size() * sizeof(float));
  writer.finish();
}

// Keeps only the first two ranks of a matrix of an adapter. Returns true.
bool narrow(Matrix& matrix) {
  const bool is_down = matrix.name.ends_with("lora_A.weight");
  const uint64_t rank = matrix.shape[is_down ? 0 : 1];
  std::vector<float> kept;
  for (uint64_t i = 0; i < matrix.numbers.size(); ++i) {
    if ((is_down ? i / matrix.shape[1] : i % rank) < 2) kept.push_back(matrix.numbers[i]);
  }
  matrix.shape[is_down ? 0 : 1] = 2;
  matrix.numbers = kept;
  return true;
}

class LanguageModelProgram : public TrainProgram {
 protected:
  static void SetUpTestSuite() {
    write_chat_model(model());
    write_lines(conversations(), sums_in_words(0, 20));
    write_lines(in_programs("lm-eval.jsonl"), sums_in_words(30, 4));
  }
  // Returns a folder with a snapshot and an adapter after all steps. It is made once for all tests.
  static const std::string& trained() {
    static const std::string folder = [] {
      const std::string made = in_programs("lm-trained");
      const ProcessResult result = run({stored(), "--save", made + "/snapshot", "--overwrite", "--quiet"});
      EXPECT_EQ(result.status, 0) << result.err;
      fs::remove_all(made + "/adapter");
      fs::copy(beside(stored(), "adapter"), made + "/adapter");
      return made;
    }();
    return folder;
  }
  static std::string snapshot() { return trained() + "/snapshot"; }
  static std::string adapter() { return trained() + "/adapter"; }

  // Runs the program with --evaluate --json and returns its output without the step.
  json evaluation(const std::string& program, Arguments weights) {
    weights.insert(weights.end(), {"--evaluate", "--json", "--quiet"});
    const ProcessResult result = train(program, weights);
    EXPECT_EQ(result.status, 0) << result.err;
    json answer = json::parse(result.out, nullptr, false);
    if (answer.is_object()) answer.erase("step");
    return answer;
  }
  std::string answer(const std::string& program, const std::string& prompt, Arguments more = {}) {
    more.insert(more.begin(), {"--resume", snapshot(), "--prompt", prompt, "--json", "--quiet"});
    const ProcessResult result = train(program, more);
    EXPECT_EQ(result.status, 0) << result.err;
    const json value = json::parse(result.out, nullptr, false);
    if (!value.is_object()) return "no JSON: " + result.out;
    EXPECT_EQ(value.at("prompt"), prompt);
    return value.at("text");
  }
  // Requires that the program refuses these arguments, and that it leaves no new file.
  void expect_no_trace(const std::string& program, Arguments arguments, const Arguments& fragments) {
    const std::string before = adapter_bytes(beside(program, "adapter"));
    arguments.insert(arguments.end(), {"--save", at("none"), "--log", at("none.jsonl")});
    expect_refusal(program, arguments, fragments);
    for (const char* left : {"none", "none.saving", "none.jsonl"}) EXPECT_FALSE(fs::exists(at(left))) << left;
    EXPECT_TRUE(adapter_bytes(beside(program, "adapter")) == before);
  }
};

TEST_F(LanguageModelProgram, TrainsAnAdapterWithTheSameBitsUnderAnyPlan) {
  const json manifest = json::parse(file_text(beside(stored(), "manifest.json"))),
             smaller = json::parse(file_text(beside(tight(), "manifest.json")));
  EXPECT_LT(smaller["planned_bytes"], manifest["planned_bytes"]);
  quietly(stored(), {"--threads", "1", "--log", at("log.jsonl"), "--save", at("s")});
  const Log log = read_log(at("log.jsonl"));
  ASSERT_EQ(log.lines.size(), 9u) << "eight steps and an evaluation";
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(log.lines[i]["planned_bytes"], log.lines[i]["measured_bytes"]);
    EXPECT_EQ(log.lines[i]["planned_bytes"], manifest["planned_bytes"]);
  }
  EXPECT_LT(log.lines[7]["loss"], log.lines[0]["loss"].get<double>() - 1);
  const std::string made = adapter_bytes(beside(stored(), "adapter"));
  ASSERT_EQ(reprise_command(
                {"export", beside(stored(), "recipe.json"), "--snapshot", at("s"), "--adapter", at("exported")})
                .status,
            0);
  EXPECT_TRUE(adapter_bytes(at("exported")) == made);
  const json config = json::parse(file_text(at("exported/adapter_config.json")));
  EXPECT_EQ(config["base_model_name_or_path"], std::filesystem::path(model()).filename().string());
  EXPECT_EQ(config["target_modules"],
            json({"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}));
  const SafetensorsFile matrices(at("exported/adapter_model.safetensors"));
  EXPECT_EQ(matrices.tensors().size(), 2u * 2 * 7);
  EXPECT_EQ(
      matrices.find("base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight", StoredType::kF32, {32, 4}).bytes,
      512u);
  for (const auto& [program, threads] : {std::pair{stored(), "2"}, {tight(), "1"}, {tight(), "2"}}) {
    fs::remove(at("n.jsonl"));
    quietly(program, {"--threads", threads, "--log", at("n.jsonl"), "--save", at("n"), "--overwrite"});
    EXPECT_EQ(read_log(at("n.jsonl")).results(), log.results()) << program << " " << threads;
    EXPECT_TRUE(snapshot_tensors(at("n")) == snapshot_tensors(at("s"))) << program << " " << threads;
    EXPECT_TRUE(adapter_bytes(beside(program, "adapter")) == made) << program << " " << threads;
  }
}

// The memory of training, of evaluation and of answers to prompts must each be measured separately,
// in their own regions.
TEST_F(LanguageModelProgram, MeasuresEveryProgramOfItsPlan) {
  const std::string program =
      train_program("lm-measured",
                    with(recipe(),
                         {{"schedule", "none"}, {"steps", 2}, {"prompts", {"two and three"}}, {"answer_tokens", 4}}));
  const ProcessResult result = train(program, {"--manifest", at("m.json"), "--trace", at("t.json")});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("answer: "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("steps 1 to 2, 20 conversations in 7 rows, 0.57 passes, "), std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("\nnext: " + program + " --init-adapter "), std::string::npos) << result.err;
  EXPECT_TRUE(result.err.ends_with("/adapter --chat\n")) << result.err;
  const json manifest = json::parse(file_text(at("m.json"))), measured = manifest["measured"];
  ASSERT_EQ(measured["regions"].size(), manifest["regions"].size()) << measured;
  for (size_t r = 0; r < manifest["regions"].size(); ++r) {
    EXPECT_EQ(measured["regions"][r]["name"], manifest["regions"][r]["name"]);
    EXPECT_EQ(measured["regions"][r]["high_water_bytes"], manifest["regions"][r]["planned_bytes"])
        << manifest["regions"][r]["name"];
  }
  EXPECT_EQ(measured.value("heap_calls_in_steps", 0), 0);
  EXPECT_EQ(measured["steps"], 2);
}

// The 20 conversations make 7 rows, of which a step takes two. So the run is interrupted within the
// first epoch, and ends with step 8 in the third epoch.
TEST_F(LanguageModelProgram, ResumesInMidEpochBitForBit) {
  quietly(stored(), {"--log", at("whole.jsonl"), "--save", at("whole")});
  const std::string made = adapter_bytes(beside(stored(), "adapter"));
  quietly(stored(), {"--steps", "2", "--log", at("log.jsonl"), "--save", at("s")});
  Log first = read_log(at("log.jsonl"));
  quietly(stored(), {"--resume", at("s"), "--steps", "3", "--log", at("log.jsonl")});  // this step is not saved
  quietly(tight(), {"--resume", at("s"), "--log", at("log.jsonl"), "--save", at("s")});
  std::vector<std::string> results = read_log(at("log.jsonl")).results();
  const std::string of_the_part = first.results().back();  // the evaluation after the first two steps
  ASSERT_NE(of_the_part.find("eval_loss"), std::string::npos);
  results.erase(std::remove(results.begin(), results.end(), of_the_part), results.end());
  EXPECT_EQ(results, read_log(at("whole.jsonl")).results());
  EXPECT_TRUE(snapshot_tensors(at("s")) == snapshot_tensors(at("whole")));
  EXPECT_TRUE(adapter_bytes(beside(tight(), "adapter")) == made);
}

// The base is drawn from the seed, and no file contains it. A resumed run must draw it again, in
// the same blocks.
TEST_F(LanguageModelProgram, ResumesBesideABaseOfTheSeed) {
  const json drawn = {{"model",
                       {{"family", "llama"},
                        {"vocab_size", 96},
                        {"hidden_size", 64},
                        {"intermediate_size", 96},
                        {"num_hidden_layers", 2},
                        {"num_attention_heads", 4},
                        {"num_key_value_heads", 2}}},
                      {"init", "random"},
                      {"data", {{"kind", "synthetic"}}},
                      {"batch", 2},
                      {"sequence", 12},
                      {"steps", 4},
                      {"seed", 7},
                      {"lora", {{"r", 2}}},
                      {"weights", {{"frozen", "q4_0"}}},
                      {"optimizer", {{"name", "adamw"}, {"lr", 0.01}}}};
  const std::string program = train_program("lm-drawn", drawn);
  quietly(program, {"--log", at("whole.jsonl")});
  quietly(program, {"--steps", "2", "--log", at("log.jsonl"), "--save", at("s")});
  quietly(program, {"--resume", at("s"), "--log", at("log.jsonl")});
  const std::vector<std::string> whole = read_log(at("whole.jsonl")).results();
  EXPECT_EQ(whole.size(), 4u);
  EXPECT_EQ(read_log(at("log.jsonl")).results(), whole);
}

TEST_F(LanguageModelProgram, AnAdapterGoesInAgain) {
  const json wanted = evaluation(stored(), {"--resume", snapshot()});
  EXPECT_EQ(wanted["labelled"], 4 * 10) << "eight tokens of an answer, the end of its turn and of its line";
  for (const std::string& program : {stored(), tight()})
    EXPECT_EQ(evaluation(program, {"--init-adapter", adapter()}), wanted);
  EXPECT_NE(train(stored(), {"--evaluate", "--quiet"}).err.find("no trained adapters are given"), std::string::npos);
  EXPECT_GT(evaluation(stored(), {})["loss"], wanted["loss"].get<double>() + 1) << "the untouched model";
  quietly(stored(), {"--init-adapter", adapter(), "--steps", "1", "--log", at("log.jsonl")});
  EXPECT_LT(read_log(at("log.jsonl")).lines[0]["loss"], wanted["loss"].get<double>() + 1) << "training goes on from it";

  const auto as_it_is = [](Matrix&) { return true; };
  const auto refuses = [&](const json& config, const std::function<bool(Matrix&)>& change, const Arguments& fragments) {
    fs::remove_all(at("a"));
    copy_adapter(adapter(), at("a"), config, change);
    expect_no_trace(stored(), {"--init-adapter", at("a")}, fragments);
  };
  refuses({{"r", 2}}, narrow, {"adapter_config.json: r: is 2", "has 4"});
  refuses({{"r", 2}}, as_it_is, {"adapter_model.safetensors", "lora_", "4"});
  refuses({{"lora_alpha", 16}}, as_it_is, {"adapter_config.json: lora_alpha: is another scale: alpha 16", "alpha 8"});
  const std::string last = "layers.1.mlp.up_proj";
  refuses(json::object(), [&](Matrix& m) { return m.name.find(last) == std::string::npos; },
          {"adapter_model.safetensors", last, "missing"});
  const auto deeper = [&](Matrix& m) {
    if (const size_t place = m.name.find("layers.1."); place != std::string::npos) m.name.replace(place, 8, "layers.7");
    return true;
  };
  refuses(json::object(), deeper, {"adapter_model.safetensors", "layers.7", "no adapter there"});
  expect_no_trace(stored(), {"--init-adapter", at("absent")}, {"absent/adapter_config.json"});
  expect_refusal(stored(), {"--init-adapter", adapter(), "--resume", snapshot()}, {"--init-adapter", "--resume"}, 2);
}

// A snapshot records how its adapters were trained. Used with another scale, they would be another
// model with the same shapes.
TEST_F(LanguageModelProgram, ASnapshotsAdaptersAreUsedAsTheyWereTrained) {
  const struct {
    const char* name;
    json lora;
    Arguments fragments;
  } others[] = {{"lm-alpha", {{"alpha", 99}}, {"recipe.lora.alpha: trained with 8", "the recipe says 99"}},
                {"lm-rslora",
                 {{"rslora", true}, {"alpha", 7}},
                 {"recipe.lora.rslora: trained with false", "the recipe says true",
                  "recipe.lora.alpha: trained with 8"}},
                {"lm-targets",
                 {{"targets", {"q_proj"}}},
                 {"recipe.lora.targets: trained with \"all-linear\"", "the recipe says [\"q_proj\"]"}},
                {"lm-rank", {{"r", 2}}, {"recipe.lora.r: trained with 4", "the recipe says 2"}}};
  for (const auto& [name, lora, fragments] : others) {
    const json changed = with(recipe(), {{"lora", lora}, {"schedule", "none"}});
    write_text(at("recipe.json"), changed.dump());
    for (const char* form : {"--adapter", "--adapter-gguf", "--merged"}) {
      const ProcessResult exported =
          reprise_command({"export", at("recipe.json"), "--snapshot", snapshot(), form, at("out")});
      EXPECT_EQ(exported.status, 1);
      EXPECT_TRUE(exported.is_one_line_with(fragments)) << exported.err;
      EXPECT_FALSE(fs::exists(at("out")));
    }
    const std::string program = train_program(name, changed);
    for (const Arguments& use : {Arguments{"--evaluate"}, Arguments{"--prompt", "a"}}) {
      Arguments arguments = {"--resume", snapshot()};
      arguments.insert(arguments.end(), use.begin(), use.end());
      expect_refusal(program, arguments, fragments);
    }
  }
  const ProcessResult goes_on =
      train(in_programs("lm-alpha/train"), {"--resume", snapshot(), "--steps", "9", "--quiet"});
  EXPECT_EQ(goes_on.status, 0);
  EXPECT_NE(goes_on.err.find("another \"lora\" (alpha: 8"), std::string::npos) << goes_on.err;
  const std::string sgd =
      train_program("lm-sgd", with(recipe(), {{"optimizer", {{"name", "sgd"}}}, {"schedule", "none"}}));
  expect_refusal(sgd, {"--resume", snapshot(), "--steps", "9"},
                 {"recipe.optimizer.name: trained with \"adamw\"", "the recipe says \"sgd\""});
  EXPECT_EQ(evaluation(sgd, {"--resume", snapshot()}), evaluation(stored(), {"--resume", snapshot()}))
      << "no moments are asked for";
  const std::string whole = train_program("lm-whole", with(recipe(), {{"lora", nullptr}, {"schedule", "none"}}));
  expect_refusal(whole, {"--resume", snapshot(), "--evaluate"},
                 {"recipe.lora: trained with {", "the recipe says none"});
}

// A model in several files has an index, which does not change if the content of a file changes. So
// a snapshot stores the checksum of each file, and a changed file must be refused.
TEST_F(LanguageModelProgram, AShardOfTheBaseThatHasChangedIsRefused) {
  const std::string folder = in_programs("lm-shards"), shard = folder + "/model-00001-of-00001.safetensors";
  fs::remove_all(folder);
  fs::copy(model(), folder);
  fs::rename(folder + "/model.safetensors", shard);
  json map = json::object();
  const SafetensorsFile file(shard);
  for (const auto& [name, tensor] : file.tensors()) map[name] = fs::path(shard).filename().string();
  write_text(folder + "/model.safetensors.index.json", json{{"weight_map", map}}.dump());
  const std::string program =
      train_program("lm-shards-program", with(recipe(), {{"model", {{"huggingface", folder}}}, {"schedule", "none"}}));
  quietly(program, {"--steps", "1", "--save", at("s")});
  const json base = json::parse(file_text(at("s/training.json"))).at("base");
  EXPECT_EQ((fs::path(at("s")) / base["path"].get<std::string>()).lexically_normal(),
            folder + "/model.safetensors.index.json");
  EXPECT_EQ(base["shards"]["model-00001-of-00001.safetensors"]["bytes"], fs::file_size(shard));
  quietly(program, {"--steps", "2", "--resume", at("s")});
  std::string other = file_text(shard);
  other.back() = static_cast<char>(other.back() ^ 1);
  const Changed changed(shard, other);
  expect_refusal(program, {"--resume", at("s"), "--evaluate"},
                 {shard + ": is not the file that the adapters of " + at("s") + " were trained beside"});
  const ProcessResult merged =
      reprise_command({"export", beside(program, "recipe.json"), "--snapshot", at("s"), "--merged", at("merged")});
  EXPECT_EQ(merged.status, 1);
  EXPECT_TRUE(merged.is_one_line_with({shard, "were trained beside"})) << merged.err;
  EXPECT_FALSE(fs::exists(at("merged")));
}

// With another tokenizer the ids would mean other words, and with another template prompts would
// have another form. The program must say so.
TEST_F(LanguageModelProgram, ATokenizerOrTemplateChangedSinceTheTrainingIsSaid) {
  trained();  // trains first, because the test then changes the model's files
  const std::string tokenizer = model() + "/tokenizer.json", settings = model() + "/tokenizer_config.json";
  const auto expect_said = [&](const std::string& line) {
    ProcessResult result = train(stored(), {"--resume", snapshot(), "--evaluate", "--quiet"});
    EXPECT_EQ(result.status, 0);
    EXPECT_TRUE(result.is_one_line_with({"warning: " + snapshot(), line})) << result.err;
    result =
        reprise_command({"export", beside(stored(), "recipe.json"), "--snapshot", snapshot(), "--adapter", at("a")});
    EXPECT_EQ(result.status, 0);
    EXPECT_TRUE(result.is_one_line_with({"warning: " + snapshot(), line})) << result.err;
  };
  {
    json changed = json::parse(file_text(settings));
    changed["chat_template"] = "{# #}" + changed["chat_template"].get<std::string>();
    const Changed other(settings, changed.dump());
    expect_said("chat template of " + model() + " is not the one that it was trained with");
  }
  {
    const Changed other_end(settings, with(json::parse(file_text(settings)), {{"eos_token", "<|im_start|>"}}).dump());
    expect_refusal(stored(), {"--resume", snapshot(), "--evaluate"},
                   {"tokenizer_config.json of " + model() + " is not the one that it was trained with"});
  }
  {
    const std::string kept = file_text(tokenizer);
    fs::remove(tokenizer);
    const ProcessResult result = reprise_command(
        {"export", beside(stored(), "recipe.json"), "--snapshot", snapshot(), "--merged", at("merged")});
    write_text(tokenizer, kept);
    EXPECT_EQ(result.status, 1);
    EXPECT_TRUE(result.is_one_line_with({"tokenizer.json of " + model(), "is not there any more"})) << result.err;
  }
  const Changed other(tokenizer, file_text(tokenizer) + "\n");
  const std::string line = "tokenizer.json of " + model() + " is not the one that it was trained with";
  expect_refusal(stored(), {"--resume", snapshot(), "--evaluate"}, {snapshot() + "/training.json: texts", line});
  expect_refusal(stored(), {"--resume", snapshot(), "--prompt", "a"}, {snapshot() + "/training.json: texts", line});
  const ProcessResult exported =
      reprise_command({"export", beside(stored(), "recipe.json"), "--snapshot", snapshot(), "--merged", at("merged")});
  EXPECT_EQ(exported.status, 1);
  EXPECT_TRUE(exported.is_one_line_with({"texts", line})) << exported.err;
  const ProcessResult goes_on = train(stored(), {"--resume", snapshot(), "--steps", "9", "--quiet"});
  EXPECT_EQ(goes_on.status, 0);
  EXPECT_NE(goes_on.err.find(line), std::string::npos) << goes_on.err;
}

// An export must be of the model with which the snapshot was trained, even if the recipe now names
// another folder with the same shapes.
TEST_F(LanguageModelProgram, AnExportIsOfTheModelThatWasTrained) {
  const std::string twin = at("twin");
  fs::copy(model(), twin);
  write_text(twin + "/generation_config.json", R"({"temperature": 0.25})");
  write_text(at("twin.json"), with(recipe(), {{"model", {{"huggingface", twin}}}}).dump());
  for (const auto& [form, name] : {std::pair{"--adapter", "a"}, {"--merged", "m"}}) {
    const ProcessResult result = reprise_command({"export", at("twin.json"), "--snapshot", snapshot(), form, at(name)});
    EXPECT_EQ(result.status, 0) << result.err;
  }
  EXPECT_EQ(json::parse(file_text(at("a/adapter_config.json")))["base_model_name_or_path"],
            std::filesystem::path(model()).filename().string());
  const json generation = json::parse(file_text(at("m/generation_config.json")));
  EXPECT_TRUE(generation.contains("eos_token_id") && !generation.contains("temperature")) << generation;
  const std::string program =
      train_program("lm-twin", with(recipe(), {{"model", {{"huggingface", twin}}}, {"schedule", "none"}}));
  const ProcessResult result = train(program, {"--resume", snapshot(), "--evaluate", "--quiet"});
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(result.is_one_line_with(
      {"warning: " + snapshot() + ": was trained beside " + model(), "the recipe names " + twin}))
      << result.err;
}

// If the model's folder was moved, the recipe's new path must be accepted if the bytes are equal,
// and refused if they differ.
TEST_F(LanguageModelProgram, ABaseThatHasMovedIsFoundWhereTheRecipeNamesIt) {
  const std::string first = in_programs("lm-here"), then = in_programs("lm-there");
  for (const std::string& folder : {first, then}) fs::remove_all(folder);
  fs::copy(model(), first);
  quietly(train_program("lm-here-program", with(recipe(), {{"model", {{"huggingface", first}}}, {"schedule", "none"}})),
          {"--steps", "2", "--save", at("s")});
  fs::rename(first, then);
  const json moved = with(recipe(), {{"model", {{"huggingface", then}}}, {"schedule", "none"}});
  const std::string program = train_program("lm-there-program", moved);
  EXPECT_EQ(evaluation(program, {"--resume", at("s")})["labelled"], 40);
  quietly(program, {"--resume", at("s"), "--steps", "3"});
  ASSERT_EQ(reprise_command({"export", beside(program, "recipe.json"), "--snapshot", at("s"), "--merged", at("merged")})
                .status,
            0);
  EXPECT_TRUE(fs::exists(at("merged/tokenizer.json")));
  std::string other = file_text(then + "/model.safetensors");
  other.back() = static_cast<char>(other.back() ^ 1);
  write_text(then + "/model.safetensors", other);
  expect_refusal(program, {"--resume", at("s"), "--evaluate"},
                 {then + "/model.safetensors: is not the file that the adapters of " + at("s")});
  fs::remove(then + "/model.safetensors");
  expect_refusal(program, {"--resume", at("s"), "--evaluate"},
                 {first + "/model.safetensors: is not there", "name its folder in the recipe"});
}

// A folder of published weights has files with the same names as a snapshot or an export. Such
// files must not be overwritten.
TEST_F(LanguageModelProgram, NothingPublishedIsReplaced) {
  const std::string folder = at("published"), weights = folder + "/model.safetensors",
                    recipe = beside(stored(), "recipe.json");
  fs::create_directories(folder);
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(model() + "/" + file, folder + "/" + file);
  std::string published = file_text(weights);
  // Replaces the name of the writer, so that the file is not one that this program wrote.
  published.replace(published.find("\"reprise\""), 9, "\"someone\"");
  write_text(weights, published);
  const std::string before = file_text(weights);
  const auto refuses = [&](const Arguments& arguments, const Arguments& fragments) {
    const ProcessResult result = reprise_command(arguments);
    EXPECT_EQ(result.status, 1);
    EXPECT_TRUE(result.is_one_line_with(fragments)) << result.err;
    EXPECT_TRUE(file_text(weights) == before);
  };
  refuses({"export", recipe, "--snapshot", snapshot(), "--merged", folder}, {folder, "would be lost"});
  refuses({"export", recipe, "--snapshot", snapshot(), "--adapter-gguf", weights}, {weights, "adapter in GGUF"});
  expect_refusal(stored(), {"--steps", "1", "--save", model()}, {model(), "is an input"});
  expect_refusal(stored(), {"--steps", "1", "--save", folder}, {folder, "would be lost"});
  EXPECT_TRUE(file_text(weights) == before);
  // This program wrote this folder, but it is an input of the same command.
  const ProcessResult itself = reprise_command({"export", recipe, "--snapshot", snapshot(), "--adapter", snapshot()});
  EXPECT_EQ(itself.status, 1);
  EXPECT_TRUE(itself.is_one_line_with({snapshot(), "is an input"})) << itself.err;
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(reprise_command({"export", recipe, "--snapshot", snapshot(), "--merged", at("mine")}).status, 0)
        << "an export of before";
    EXPECT_EQ(reprise_command({"export", recipe, "--snapshot", snapshot(), "--adapter", at("adapter")}).status, 0);
    EXPECT_EQ(reprise_command({"export", recipe, "--snapshot", snapshot(), "--adapter-gguf", at("a.gguf")}).status, 0);
  }
}

// A merged folder must also work with transformers 4, which accepts neither the class of tokenizers
// nor the list of tokens that transformers 5 writes.
TEST_F(LanguageModelProgram, AMergedFoldersTokenizerIsForBothGenerations) {
  const std::string settings = model() + "/tokenizer_config.json";
  trained();
  const Changed changed(settings, with(json::parse(file_text(settings)), {{"tokenizer_class", "TokenizersBackend"},
                                                                          {"extra_special_tokens", {"<|im_end|>"}}})
                                      .dump());
  ASSERT_EQ(reprise_command({"export", beside(stored(), "recipe.json"), "--snapshot", snapshot(), "--merged", at("m")})
                .status,
            0);
  const json written = json::parse(file_text(at("m/tokenizer_config.json")));
  EXPECT_EQ(written["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(written["additional_special_tokens"], json({"<|im_end|>"}));
  EXPECT_FALSE(written.contains("extra_special_tokens"));
  EXPECT_EQ(written["eos_token"], "<|im_end|>");
}

// The names, shapes and types of the weights must be checked before anything is planned.
TEST_F(LanguageModelProgram, WeightsOfAnotherModelAreNamedBeforeThePlan) {
  const std::string folder = at("model"), config = folder + "/config.json";
  fs::copy(model(), folder);
  write_text(at("r.json"), with(recipe(), {{"model", {{"huggingface", folder}}}, {"budget", "1GiB"}}).dump());
  const json before = json::parse(file_text(config));
  const std::pair<json, Arguments> cases[] = {{{{"tie_word_embeddings", false}}, {"lm_head.weight", "missing"}},
                                              {{{"num_hidden_layers", 3}}, {"model.layers.2.", "missing"}},
                                              {{{"vocab_size", 8000}}, {"model.embed_tokens.weight", "[8000,64]"}}};
  for (const auto& [change, fragments] : cases) {
    write_text(config, with(before, change).dump());
    for (const Arguments& command :
         {Arguments{"fit", at("r.json")}, {"plan", at("r.json"), "-o", at("plan")}, {"train", at("r.json")}}) {
      const ProcessResult result = reprise_command(command);
      EXPECT_EQ(result.status, 1);
      EXPECT_TRUE(result.is_one_line_with(fragments)) << result.err;
    }
  }
  write_text(config, with(before, {{"num_hidden_layers", 1}}).dump());
  const std::string program =
      train_program("lm-shallow", with(recipe(), {{"model", {{"huggingface", folder}}}, {"schedule", "none"}}));
  const ProcessResult result = train(program, {"--steps", "1", "--quiet"});
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(result.is_one_line_with({"warning: ", "has no place for", "model.layers.1."})) << result.err;
}

// A program's plan was made for one config. If the model's config has changed since, the program
// must refuse it.
TEST_F(LanguageModelProgram, AModelChangedSinceThePlanIsRefused) {
  const std::string program = stored(), config = model() + "/config.json";
  const json before = json::parse(file_text(config));
  const Changed changed(config, with(before, {{"rope_theta", 100000}}).dump());
  expect_no_trace(program, {},
                  {config, "is not the model that this program was planned for: rope_parameters.rope_theta: 10000",
                   "now 100000", "plan again"});
  expect_no_trace(program, {"--resume", snapshot()}, {config, "plan again"});
}

TEST_F(LanguageModelProgram, AnswersFromASnapshot) {
  const std::string asked = "What is 2 plus 2?", greedy = answer(stored(), asked, {"--tokens", "12"});
  EXPECT_EQ(answer(stored(), asked, {"--tokens", "12", "--threads", "1"}), greedy);
  EXPECT_EQ(answer(tight(), asked, {"--tokens", "12"}), greedy) << "under the smallest budget";
  const ProcessResult shown = train(stored(), {"--resume", snapshot(), "--prompt", asked, "--tokens", "12", "--quiet"});
  EXPECT_EQ(shown.out, greedy + "\n");
  EXPECT_EQ(shown.err, "");
  // At this temperature any id of the model may be drawn, also the many ids that the tokenizer does
  // not have.
  const auto hot = [&](const char* seed) {
    return answer(stored(), asked, {"--tokens", "12", "--temperature", "100", "--seed", seed});
  };
  EXPECT_EQ(hot("1"), hot("1"));
  EXPECT_NE(hot("1"), hot("2"));

  const auto refuses = [&](const Arguments& more, const Arguments& fragments, int status = 1) {
    Arguments arguments = {"--resume", snapshot()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refusal(stored(), arguments, fragments, status);
  };
  refuses({"--prompt", ""}, {"--prompt", "must not be empty"}, 2);
  refuses({"--prompt", "a\xff"}, {"--prompt", "not UTF-8 at byte 1"});
  refuses({"--prompt", std::string(300, 'x')}, {"prompt", "tokens", "room for"});
  refuses({"--prompt", "a", "--steps", "2"}, {"--steps"}, 2);
  refuses({"--temperature", "1"}, {"--prompt"}, 2);
  // If a variable is not set, a shell passes "".
  expect_refusal(stored(), {"--resume", "", "--steps", "1"}, {"--resume", "must not be empty"}, 2);
}

TEST_F(LanguageModelProgram, ConversesInTurns) {
  const std::string first = "What is 2 plus 2?", second = "What is 1 plus 5?";
  const auto says = [&](const std::string& program, const std::string& lines, Arguments more = {}) {
    more.insert(more.begin(), {"--resume", snapshot(), "--chat", "--tokens", "6", "--quiet"});
    return train(program, more, {.input = lines});
  };
  const auto texts = [](const std::string& out) {
    std::vector<std::string> all;
    for (size_t at = 0, end; (end = out.find('\n', at)) != std::string::npos; at = end + 1)
      all.push_back(json::parse(out.substr(at, end - at)).at("text"));
    return all;
  };
  const std::string greedy = answer(stored(), first, {"--tokens", "6"});
  const ProcessResult two = says(stored(), first + "\n\n" + second + "\r\n", {"--json"});
  EXPECT_EQ(two.status, 0) << two.err;
  const std::vector<std::string> answers = texts(two.out);
  ASSERT_EQ(answers.size(), 2u) << two.out;
  EXPECT_EQ(answers[0], greedy);
  EXPECT_EQ(texts(says(tight(), first + "\n" + second, {"--json", "--threads", "1"}).out), answers)
      << "under the smallest budget";
  EXPECT_EQ(texts(says(stored(), second + "\n/new\n" + first + "\n" + second + "\n", {"--json"}).out).at(2), answers[1])
      << "nothing is left of the one before";
  EXPECT_EQ(says(stored(), first).out, greedy + "\n");
  for (const Arguments& narrow :
       {Arguments{"--top-k", "1"}, Arguments{"--top-p", "0"}, Arguments{"--top-k", "7", "--top-p", "1e-9"}}) {
    Arguments hot = {"--temperature", "100", "--tokens", "6"};
    hot.insert(hot.end(), narrow.begin(), narrow.end());
    EXPECT_EQ(answer(stored(), first, hot), greedy) << narrow[0];
  }
  EXPECT_EQ(says(stored(), "").out, "");
}

TEST_F(LanguageModelProgram, AConversationLongerThanThePlanLosesItsOldestTurns) {
  const auto says = [&](const std::string& lines, Arguments more = {}) {
    more.insert(more.begin(), {"--resume", snapshot(), "--chat", "--tokens", "4", "--quiet"});
    return train(stored(), more, {.input = lines});
  };
  std::string lines;
  for (int n = 0; n < 8; ++n) lines += "What is 2 plus 2?\n";
  const ProcessResult many = says(lines);
  EXPECT_EQ(many.status, 0) << many.err;
  EXPECT_NE(many.err.find("warning: the conversation is longer than the plan's room for "), std::string::npos)
      << many.err;
  EXPECT_NE(many.err.find("2 oldest messages are left out"), std::string::npos) << many.err;
  EXPECT_NE(many.err.find("(--tokens)"), std::string::npos) << many.err;
  const std::string question = "What is 2 plus 2?\n", alone = says(question).out;
  const ProcessResult one = says(std::string(300, 'x') + "\n" + question);
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(one.out, alone) << "what is too long counts as not said";
  const auto tokens_in = [](const std::string& err) { return std::stoi(err.substr(err.find("the prompt has ") + 15)); };
  EXPECT_NE(one.err.find("not answered"), std::string::npos) << one.err;
  const ProcessResult with_system = says(std::string(300, 'x'), {"--system", "bcd"});
  EXPECT_EQ(tokens_in(with_system.err) - tokens_in(one.err), 13)
      << "<|im_start|> system, a line's end, bcd, <|im_end|> and a line's end: " << with_system.err;
  const ProcessResult full =
      train(stored(), {"--resume", snapshot(), "--chat", "--quiet", "--temperature", "100"}, {.input = question});
  EXPECT_NE(full.err.find("the answer ends where the plan's room for "), std::string::npos) << full.err;
  const auto refuses = [&](const Arguments& more, const Arguments& fragments) {
    expect_refusal(stored(), more, fragments, 2);
  };
  refuses({"--system", "a"}, {"--system", "--chat"});
  refuses({"--chat", "--prompt", "a"}, {"--chat", "--prompt"});
  refuses({"--chat", "--steps", "2"}, {"--steps", "--chat"});
  refuses({"--top-k", "2"}, {"--top-k", "--prompt or --chat"});
  refuses({"--prompt", "a", "--top-p", "0.5"}, {"--top-p", "--temperature above 0"});
  EXPECT_EQ(says("a\xff\n").status, 1);
}

// The merged folder is a model that any recipe can name, and must compute the loss of base and
// adapter. The recipe of this test trains all of its weights.
TEST_F(LanguageModelProgram, AMergedModelIsAModel) {
  fs::remove_all(merged_model());
  const ProcessResult exported = reprise_command(
      {"export", beside(stored(), "recipe.json"), "--snapshot", snapshot(), "--merged", merged_model()});
  ASSERT_EQ(exported.status, 0) << exported.err;
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_TRUE(fs::exists(merged_model() + "/" + file)) << file;
  }
  json whole = with(recipe(), {{"model", {{"huggingface", merged_model()}}},
                               {"lora", nullptr},
                               {"schedule", "none"},
                               {"optimizer", {{"lr", 0.001}}}});
  const std::string program = train_program("lm-merged", whole);
  const json apart = evaluation(stored(), {"--resume", snapshot()}), together = evaluation(program, {});
  EXPECT_NEAR(together["loss"].get<double>(), apart["loss"].get<double>(), 1e-4);
  EXPECT_EQ(together["labelled"], apart["labelled"]);
  quietly(program, {"--steps", "2", "--log", at("log.jsonl")});
  EXPECT_FALSE(fs::exists(beside(program, "adapter"))) << "no adapter is trained";
  expect_refusal(program, {"--init-adapter", adapter()}, {"--init-adapter", "trains no adapter", "\"lora\""});
}

// Returns the largest address space, in bytes, that the process has had so far.
uint64_t max_address_bytes(pid_t process) {
  const std::string status = file_text("/proc/" + std::to_string(process) + "/status"), key = "VmPeak:";
  const size_t at = status.find(key);
  return at == std::string::npos ? 0 : 1024 * std::stoull(status.substr(at + key.size()));
}

// Runs the program's commands with as little memory as training needs. `ulimit -d` limits writable
// memory to a sum: the arena, kTraining for stacks, heap and libraries (Debian 12, two threads),
// and kSpace as a reserve for other systems. kSpace is smaller than the model's table, so that no
// second copy of the model fits. For an export, which has no arena but reads the tokenizer, the sum
// is kMerge and kSpace. `ulimit -v` limits mapped memory to what a training has mapped after three
// steps, plus kSpace for the heap.
TEST_F(LanguageModelProgram, NothingTakesMoreMemoryThanTraining) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers take the address space";
#endif
  constexpr uint64_t kMiB = uint64_t{1} << 20, kTraining = 37 * kMiB / 10, kMerge = 30 * kMiB / 10,
                     kSpace = 5 * kMiB / 4;
  static_assert(kSpace < kChatTableBytes);
  for (const std::string& program : {stored(), tight()}) {
    const uint64_t arena = json::parse(file_text(beside(program, "manifest.json")))["planned_bytes"];
    ProcessOptions limited, merging, lower;
    limited.max_data_bytes = arena + kTraining + kSpace;
    lower.max_data_bytes = limited.max_data_bytes - kChatTableBytes;
    merging.max_data_bytes = kMerge + kSpace;
    fs::remove(at("log.jsonl"));
    {
      Process process({program, "--steps", "1000000", "--threads", "2", "--log", at("log.jsonl"), "--quiet"}, limited);
      ASSERT_TRUE(await([&] { return file_text(at("log.jsonl")).find("\"step\": 3,") != std::string::npos; }));
      limited.max_address_bytes = max_address_bytes(process.id()) + kSpace;
    }
    ASSERT_GT(limited.max_address_bytes, arena + kSpace);
    const auto fits = [&](const Arguments& arguments, const ProcessOptions& limits) {
      const ProcessResult result = run(arguments, limits);
      EXPECT_EQ(result.status, 0) << json(arguments) << " in " << limits.max_data_bytes << " and "
                                  << limits.max_address_bytes << " bytes: " << result.err;
    };
    const auto program_fits = [&](Arguments arguments) {
      arguments.insert(arguments.begin(), program);
      arguments.insert(arguments.end(), {"--threads", "2", "--quiet"});
      fits(arguments, limited);
    };
    program_fits({"--steps", "3", "--save", at("s"), "--overwrite", "--save-every", "1"});
    program_fits({"--steps", "4", "--save", at("s"), "--resume", at("s")});
    program_fits({"--resume", at("s"), "--evaluate", "--json"});
    program_fits({"--resume", at("s"), "--prompt", "What is 1 plus 1?", "--tokens", "20", "--temperature", "1"});
    const Arguments exported = {build_folder() + "/reprise", "export", beside(program, "recipe.json"), "--snapshot",
                                at("s")};
    for (const Arguments& form : {Arguments{"--merged", at("merged")},
                                  {"--merged", at("merged"), "--type", "bf16"},
                                  {"--adapter", at("adapter")}}) {
      Arguments arguments = exported;
      arguments.insert(arguments.end(), form.begin(), form.end());
      fits(arguments, merging);
    }
    const ProcessResult refused = run({program, "--steps", "1", "--threads", "2", "--quiet"}, lower);
    EXPECT_EQ(refused.status, 1) << "a limit that has no room for the model's table";
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
}

TEST_F(LanguageModelProgram, ARecipeThatCannotBePlanned) {
  const auto refuses = [&](const json& changes, const Arguments& fragments) {
    write_text(at("r.json"), with(recipe(), changes).dump());
    const ProcessResult result = reprise_command({"plan", at("r.json"), "-o", at("plan")});
    EXPECT_EQ(result.status, 1) << result.err;
    EXPECT_TRUE(result.is_one_line_with(fragments)) << json(fragments) << ", got: " << result.err;
    EXPECT_FALSE(fs::exists(at("plan")));
  };
  refuses({{"lora", {{"targets", {"q_proj", "query"}}}}}, {"r.json", "lora.targets", "\"query\""});
  refuses({{"lora", {{"targets", json::array()}}}}, {"r.json", "lora.targets"});
  const std::string folder = at("model");
  fs::copy(model(), folder);
  const json other = {{"model", {{"huggingface", folder}}}};
  const std::string config = file_text(folder + "/config.json"), weights = file_text(folder + "/model.safetensors");
  write_text(folder + "/config.json", with(json::parse(config), {{"model_type", "mamba"}}).dump());
  refuses(other, {"config.json", "model_type", "mamba", "llama"});
  write_text(folder + "/config.json", config);
  write_text(folder + "/model.safetensors", weights.substr(0, weights.size() / 2));
  refuses(other, {"model.safetensors", "truncated"});
}

// Commands that make a plan must report data and model files that cannot be trained with, before
// they plan or compile.
TEST_F(LanguageModelProgram, WhatCannotTrainIsSaidBeforeItIsPlanned) {
  const std::string folder = at("model"), data = at("talk.jsonl"), lines = file_text(conversations());
  fs::copy(model(), folder);
  const json changes = {{"model", {{"huggingface", folder}}},
                        {"data", {{"path", data}, {"eval_path", nullptr}}},
                        {"budget", "1GiB"}};
  write_text(at("r.json"), with(recipe(), changes).dump());
  ProcessOptions options;
  options.environment = {"XDG_CACHE_HOME=" + at("cache")};
  const auto refuses = [&](const Arguments& fragments) {
    for (const Arguments& command : {Arguments{"plan", at("r.json"), "-o", at("plan")},
                                     {"fit", at("r.json")},
                                     {"fit", at("r.json"), "--json"},
                                     {"train", at("r.json")}}) {
      const ProcessResult result = reprise_command(command, options);
      EXPECT_EQ(result.status, 1) << result.err;
      EXPECT_EQ(result.out, "");
      EXPECT_TRUE(result.is_one_line_with(fragments)) << json(command) << json(fragments) << ", got: " << result.err;
    }
    for (const char* left : {"plan", "cache"}) EXPECT_FALSE(fs::exists(at(left))) << left;
  };
  EXPECT_EQ(reprise_command({"plan", at("r.json"), "-o", at("elsewhere")}).status, 0)
      << "planned where the data are not";
  write_text(data, lines + json{{"prompt", std::string(100, 'x')}, {"completion", "y"}}.dump() + "\n{}\n");
  refuses({"talk.jsonl, line 21", "more than the recipe's sequence of 96", "one of 2 that would end a training",
           "--check-data"});
  const ProcessResult checked = reprise_command({"train", at("r.json"), "--check-data"}, options);
  EXPECT_EQ(checked.status, 1) << checked.err;
  EXPECT_NE(checked.out.find("line 21: "), std::string::npos) << checked.out;
  EXPECT_NE(checked.out.find("line 22: "), std::string::npos) << checked.out;
  EXPECT_FALSE(fs::exists(at("cache"))) << "data are checked without a plan";
  const ProcessResult table = reprise_command({"fit", at("r.json"), "--table", "--budget", "1KiB"});
  EXPECT_EQ(table.status, 3) << "the table, with which a longer sequence is chosen, is made all the same: "
                             << table.err;
  EXPECT_NE(table.err.find("warning: " + data + ", line 21"), std::string::npos) << table.err;
  write_text(data, lines);
  const std::string settings = file_text(folder + "/tokenizer_config.json"),
                    tokenizer = file_text(folder + "/tokenizer.json");
  write_text(folder + "/tokenizer_config.json", with(json::parse(settings), {{"chat_template", nullptr}}).dump());
  refuses({"talk.jsonl, line 1", "has no chat template", "one of 20"});
  write_text(folder + "/tokenizer_config.json", settings);
  fs::remove(folder + "/tokenizer.json");
  refuses({folder, "holds no tokenizer.json"});
  write_text(at("r.json"), with(with(recipe(), changes), {{"data", {{"kind", "text"}, {"pack", nullptr}}}}).dump());
  refuses({folder, "holds no tokenizer", "8192"});
  write_text(folder + "/tokenizer.json", tokenizer);
  write_text(data, "\xff");
  refuses({"talk.jsonl", "UTF-8"});
  write_text(data, lines);
  const ProcessResult right = reprise_command({"fit", at("r.json")});
  EXPECT_EQ(right.status, 0) << right.err;
  EXPECT_EQ(std::regex_replace(right.err, std::regex("[a-z][^\n]*, [0-9]+ s\n"), ""), "")
      << "nothing but progress, which a slow machine shows";
  fs::remove(folder + "/model.safetensors");
  for (const Arguments& command : {Arguments{"plan", at("r.json"), "-o", at("elsewhere")}, {"fit", at("r.json")}}) {
    const ProcessResult result = reprise_command(command);
    EXPECT_EQ(result.status, 0) << "memory can be asked for before a download";
    EXPECT_NE(result.err.find("warning: " + folder + ": holds no weights to start from"), std::string::npos)
        << result.err;
  }
  const ProcessResult result = reprise_command({"train", at("r.json")}, options);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(
      result.is_one_line_with({folder, "no weights to start from", "adapters are trained beside published weights"}))
      << result.err;
  EXPECT_FALSE(fs::exists(at("cache")));
}

// A GGUF model's blocks are kept where possible. If weights are converted to a wider type, the
// report must state how many bytes this costs.
TEST_F(LanguageModelProgram, WhatAGgufIsWidenedToIsSaid) {
  fs::copy_file("tests/golden/weights/llama.gguf", at("m.gguf"));
  const json small = {{"name", "gguf"},
                      {"model", {{"gguf", at("m.gguf")}}},
                      {"data", {{"kind", "synthetic"}}},
                      {"batch", 1},
                      {"sequence", 8},
                      {"steps", 1},
                      {"lora", {{"r", 2}}},
                      {"optimizer", {{"name", "adamw"}}},
                      {"budget", "1GiB"}};
  const auto fit = [&](const json& recipe, const Arguments& more) {
    write_text(at("r.json"), recipe.dump());
    Arguments all = {"fit", at("r.json")};
    all.insert(all.end(), more.begin(), more.end());
    return reprise_command(all);
  };
  const auto state_bytes = [&](const json& recipe) {
    write_text(at("r.json"), recipe.dump());
    const ProcessResult planned = reprise_command({"plan", at("r.json"), "-o", at("plan")});
    EXPECT_EQ(planned.status, 0) << planned.err;
    return json::parse(file_text(at("plan/manifest.json")))["regions"][0]["planned_bytes"].get<uint64_t>();
  };
  const json wide = with(small, {{"weights", {{"frozen", "f32"}}}});
  const json widened = json::parse(fit(wide, {"--json"}).out).at("widened");
  EXPECT_LT(widened["file_bytes"], widened["bf16_bytes"]);
  EXPECT_NE(fit(wide, {}).out.find("widened"), std::string::npos);
  EXPECT_NE(fit(wide, {"--budget", "1KiB"}).err.find("frozen weights of m.gguf, widened from its"), std::string::npos);
  EXPECT_FALSE(json::parse(fit(small, {"--json"}).out).contains("widened")) << "as stored";
  const GgufFile file(at("m.gguf"));
  uint64_t in_blocks = 0, in_bf16 = 0;  // bytes saved compared with f32
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.shape.size() != 2) continue;
    const uint64_t elements = tensor.shape[0] * tensor.shape[1], f32 = align_up(stored_bytes(DType::kF32, elements));
    in_blocks += f32 - align_up(stored_bytes(*weight_format_of(tensor.type), elements));
    in_bf16 += f32 - align_up(stored_bytes(DType::kBf16, elements));
  }
  EXPECT_GT(in_blocks, in_bf16);
  EXPECT_EQ(state_bytes(wide) - state_bytes(small), in_blocks);
  EXPECT_EQ(state_bytes(wide) - state_bytes(with(small, {{"weights", {{"frozen", "bf16"}}}})), in_bf16);
}

// A model that is tied by its config has a second, different head in its files. transformers 4
// silently ignores this head; transformers 5 uses it and unties the model. The program must name
// it.
TEST_F(LanguageModelProgram, ATiedModelsOtherHeadIsNamed) {
  const std::string folder = in_programs("lm-two-heads");
  fs::remove_all(folder);
  fs::copy(model(), folder);
  const auto write_head = [&](float change) {
    const SafetensorsFile file(model() + "/model.safetensors");
    SafetensorsWriter writer(folder + "/model.safetensors");
    std::vector<Matrix> matrices;
    for (const auto& [name, tensor] : file.tensors()) {
      Matrix matrix = {name, tensor.shape, std::vector<float>(tensor.bytes / sizeof(float))};
      file.read(tensor, 0, matrix.numbers.data(), tensor.bytes);
      matrices.push_back(matrix);
      if (name != "model.embed_tokens.weight") continue;
      matrix.name = "lm_head.weight";
      matrix.numbers.back() += change;
      matrices.push_back(matrix);
    }
    for (const Matrix& matrix : matrices) writer.declare(matrix.name, StoredType::kF32, matrix.shape);
    for (const Matrix& matrix : matrices) writer.write(matrix.numbers.data(), matrix.numbers.size() * sizeof(float));
    writer.finish();
  };
  write_head(0);
  const std::string program =
      train_program("lm-two-heads-program",
                    with(recipe(), {{"model", {{"huggingface", folder}}}, {"schedule", "none"}}));
  ProcessResult result = train(program, {"--steps", "1"});
  EXPECT_EQ(result.err.find("warning"), std::string::npos) << "an equal head is dropped without harm: " << result.err;
  EXPECT_NE(result.err.find("1 of the file not needed: lm_head.weight"), std::string::npos) << result.err;
  write_head(0.5f);
  result = train(program, {"--steps", "1", "--quiet", "--save", at("s")});
  EXPECT_TRUE(result.is_one_line_with(
      {"warning: ", "lm_head.weight differs from the embeddings and is dropped", "tie_word_embeddings"}))
      << result.err;
  ASSERT_EQ(reprise_command({"export", beside(program, "recipe.json"), "--snapshot", at("s"), "--merged", at("merged")})
                .status,
            0);
  EXPECT_EQ(SafetensorsFile(at("merged/model.safetensors")).tensors().count("lm_head.weight"), 0u)
      << "or transformers 5 would use it";
}

// `reprise profile` times every row on the recipe's own batches, in which most positions have no
// label, and many begin a document. Planning must accept the profile.
TEST_F(LanguageModelProgram, IsProfiledOnItsOwnData) {
  const std::string recipe = beside(stored(), "recipe.json");
  const ProcessResult profiled = reprise_command({"profile", recipe, "-o", at("prices.json"), "--threads", "1"});
  ASSERT_EQ(profiled.status, 0) << profiled.err;
  ASSERT_EQ(reprise_command({"plan", recipe, "--profile", at("prices.json"), "-o", at("plan")}).status, 0);
  EXPECT_GT(json::parse(file_text(at("plan/manifest.json")))["predicted_seconds"], 0);
}

TEST_F(LanguageModelProgram, DataAndWeightsThatCannotBeRead) {
  trained();  // trains first, because the test then changes the model's files
  const std::string lines = file_text(conversations());
  const auto refuses_line = [&](const std::string& line, const Arguments& fragments) {
    const Changed changed(conversations(), lines + line + "\n");
    Arguments all = {"lm-train.jsonl, line 21"};
    all.insert(all.end(), fragments.begin(), fragments.end());
    expect_no_trace(stored(), {}, all);
  };
  refuses_line("{\"prompt\": \"a\"", {"column"});
  refuses_line("{\"text\": \"a\xff\"}", {"UTF-8"});
  refuses_line(R"({"prompt": "a"})", {"completion"});
  refuses_line(R"({"messages": [{"role": "user", "content": "a"}]})", {"nothing is learned"});
  refuses_line(json{{"prompt", std::string(100, 'x')}, {"completion", "y"}}.dump(),
               {"tokens are more than the recipe's sequence of 96", "\"cut\""});
  refuses_line("[1, 2]", {"object"});
  for (const char* nothing : {"", "\n \n"}) {
    const Changed changed(conversations(), nothing);
    expect_no_trace(stored(), {}, {"lm-train.jsonl", "no samples"});
  }
  const std::string file = model() + "/model.safetensors", weights = file_text(file);
  {
    const Changed changed(file, weights.substr(0, weights.size() - 4));
    expect_no_trace(stored(), {}, {"model.safetensors", "truncated"});
    expect_no_trace(stored(), {"--resume", snapshot()}, {"model.safetensors"});
  }
  std::string other = weights;
  other.back() = static_cast<char>(other.back() ^ 1);
  const Changed changed(file, other);
  expect_no_trace(stored(), {"--resume", snapshot()},
                  {"model.safetensors", "is not the file that the adapters of " + snapshot() + " were trained beside"});
}

// Kills a run about when it writes the snapshot and the adapter. Both folders must be complete,
// each from this run or from the previous one.
TEST_F(LanguageModelProgram, KilledWhileSavingLeavesWholeFiles) {
  const std::string program = stored();
  std::string whole[3], tensors[3];
  for (const int steps : {2, 1}) {
    quietly(program, {"--steps", std::to_string(steps), "--save", at("s"), "--overwrite"});
    whole[steps] = adapter_bytes(beside(program, "adapter"));
    tensors[steps] = snapshot_tensors(at("s"));
  }
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int trial = 0; trial < soaked(6); ++trial) {
    const std::string steps = std::to_string(2 - trial % 2);
    fs::remove(at("log.jsonl"));
    Process process({program, "--steps", steps, "--log", at("log.jsonl"), "--save", at("s"), "--overwrite", "--quiet"});
    ASSERT_TRUE(
        await([&] { return file_text(at("log.jsonl")).find("\"step\": " + steps + ",") != std::string::npos; }));
    sleep_seconds(std::uniform_real_distribution<double>(0, 0.03)(random));
    process.signal(SIGKILL);
    process.wait();
    const std::string adapter = adapter_bytes(beside(program, "adapter")), snapshot = snapshot_tensors(at("s"));
    EXPECT_TRUE(adapter == whole[1] || adapter == whole[2]) << "seed " << seed << " trial " << trial;
    EXPECT_TRUE(snapshot == tensors[1] || snapshot == tensors[2]) << "seed " << seed << " trial " << trial;
    EXPECT_TRUE(snapshot == tensors[saved_step(at("s"))]) << "seed " << seed << " trial " << trial;
  }
  quietly(program, {"--resume", at("s"), "--steps", "8", "--save", at("s")});
  EXPECT_TRUE(adapter_bytes(beside(program, "adapter")) == adapter_bytes(adapter()));
  for (const std::string& left : {beside(program, "adapter.saving"), at("s.saving")})
    EXPECT_FALSE(fs::exists(left)) << left;
}

}  // namespace
}  // namespace reprise::test
