// Tests the tokens that end an answer: which files name them, what is learned at the end of a text,
// where an answer stops, and which tokens exports name. A model that never learns an end, or is
// never stopped at one, writes without limit.
#include "tools/files/chat/answer_ends.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lib/cpu/cpu_rules.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/texts/small_tokenizer.h"
#include "tests/runtime/training_harness.h"
#include "tools/files/chat/chat_tokens.h"
#include "tools/files/formats/gguf.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/output_file.h"
#include "tools/files/tokenizer/byte_alphabet.h"
#include "tools/files/weights/weight_source.h"
#include "tools/plan/planning/answering_program.h"
#include "tools/plan/planning/planner.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/run/data/dataset.h"
#include "tools/run/inference/answer.h"
#include "tools/run/snapshots/export_snapshot.h"
#include "tools/run/snapshots/tensor_files.h"

namespace reprise {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;
using Ids = std::vector<int32_t>;
namespace fs = std::filesystem;

// Ids up to 255 are bytes. The token <|s|> begins a turn and <|e|> ends it. Files may also name the
// tokens kOther and kThird as ends of an answer.
constexpr int32_t kBegin = 256, kEnd = 257, kOther = 258, kThird = 259;
constexpr const char* kTurns =
    "{% for m in messages %}{{ '<|s|>' + m.role + '\\n' + m.content + '<|e|>\\n' }}{% endfor %}{% if "
    "add_generation_prompt %}{{ '<|s|>assistant\\n' }}{% endif %}";

json tokenizer_json() {
  json tokenizer = {{"version", "1.0"},
                    {"added_tokens", json::array()},
                    {"normalizer", nullptr},
                    {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
                    {"post_processor", nullptr},
                    {"decoder", {{"type", "ByteLevel"}}},
                    {"model", {{"type", "BPE"}, {"vocab", json::object()}, {"merges", json::array()}}}};
  for (int byte = 0; byte < 256; ++byte)
    tokenizer["model"]["vocab"][alphabet_character(static_cast<uint8_t>(byte))] = byte;
  int32_t id = kBegin;
  for (const char* content : {"<|s|>", "<|e|>", "<|other|>", "<|third|>"}) {
    tokenizer["added_tokens"].push_back({{"id", id++},
                                         {"content", content},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false},
                                         {"special", true}});
  }
  return tokenizer;
}

class AnswerEndsTest : public testing::Test {
 protected:
  AnswerEndsTest() {
    put_file(at("tokenizer.json"), tokenizer_json().dump());
    put_config(json::object());
  }
  std::string at(const std::string& name) const { return folder_.file(name); }
  void put(const std::string& name, const json& value) const { put_file(at(name), value.dump()); }
  void put_config(const json& more) const {
    json config = {{"model_type", "llama"},      {"vocab_size", 260},
                   {"hidden_size", 16},          {"intermediate_size", 16},
                   {"num_hidden_layers", 1},     {"num_attention_heads", 2},
                   {"num_key_value_heads", 2},   {"max_position_embeddings", 64},
                   {"tie_word_embeddings", true}};
    config.update(more);
    put("config.json", config);
  }
  AnswerEnds ends() const { return find_answer_ends(ModelFiles::open(folder_.path())); }
  Ids text_ids(const std::string& text) const {
    return joined(ChatModel(ModelFiles::open(folder_.path())).read({{"text", text}}, TrainOn::kAssistant, "x").samples)
        .ids;
  }

  Recipe recipe(const json& more = json::object()) const {
    json all = {{"name", "ends"},
                {"model", {{"huggingface", folder_.path()}}},
                {"batch", 1},
                {"sequence", 32},
                {"optimizer", {{"name", "sgd"}}},
                {"init", "random"}};
    all.update(more);
    return parse_recipe(all.dump(), "r.json", "/");
  }
  std::vector<std::string> warnings_of(const std::string& kind, const std::string& lines,
                                       const json& more = json::object()) const {
    put_file(at("x.jsonl"), lines);
    json data = {{"kind", kind}, {"path", at("x.jsonl")}};
    data.update(more);
    json all = {{"data", data}};
    if (kind == "preferences") all["loss"] = {{"kind", "orpo"}};
    return open_dataset(recipe(all), Split::kTraining)->warnings();
  }

  const TemporaryFolder folder_;
};

TEST_F(AnswerEndsTest, EveryFileThatNamesOneIsRead) {
  const struct {
    const char* file;
    json content;
    Ids right;
  } cases[] = {
      {"tokenizer_config.json", {{"eos_token", "<|e|>"}}, {kEnd}},
      {"tokenizer_config.json", {{"eos_token", {{"content", "<|other|>"}, {"special", true}}}}, {kOther}},
      {"special_tokens_map.json", {{"eos_token", "<|e|>"}}, {kEnd}},
      {"special_tokens_map.json", {{"eos_token", {{"content", "<|other|>"}, {"lstrip", false}}}}, {kOther}},
      {"generation_config.json", {{"eos_token_id", kOther}}, {kOther}},
      {"generation_config.json", {{"eos_token_id", {kOther, kEnd, kOther}}}, {kOther, kEnd}},
      {"generation_config.json", {{"eos_token_id", {'.', 999, -1}}}, {'.'}},
      {"generation_config.json", {{"eos_token_id", {-(int64_t{1} << 32), int64_t{1} << 32}}}, {}},
      {"generation_config.json", {{"eos_token_id", nullptr}}, {}},
  };
  for (const auto& [file, content, right] : cases) {
    put(file, content);
    EXPECT_EQ(ends().tokens, right) << file << " " << content;
    fs::remove(at(file));
  }
  for (const auto& [ids, right] :
       {std::pair<json, Ids>{kEnd, {kEnd}}, {{kOther, kThird}, {kOther, kThird}}, {nullptr, {}}, {2, {}}}) {
    put_config({{"eos_token_id", ids}});
    EXPECT_EQ(ends().tokens, right) << "config.json " << ids << ": a word is transformers' default, and no end";
  }
  put("tokenizer_config.json", {{"eos_token", "<|e|>"}});
  put("generation_config.json", {{"eos_token_id", {kOther, kEnd}}});
  put("special_tokens_map.json", {{"eos_token", "<|s|>"}});
  put_config({{"eos_token_id", kThird}});
  EXPECT_EQ(ends().tokens, (Ids{kEnd, kOther, kThird, kBegin})) << "the tokenizer's own first";
  EXPECT_FALSE(ends().of_reply);
  put("generation_config.json", {{"eos_token_id", "<|e|>"}});
  expect_user_error([&] { ends(); },
                    {"generation_config.json: eos_token_id", "must be a token's id, or a list of ids", "<|e|>"});
}

TEST_F(AnswerEndsTest, TheTemplatesOwnEndIsOne) {
  put_file(at("chat_template.jinja"), kTurns);
  put("tokenizer_config.json", {{"eos_token", "<|other|>"}});
  EXPECT_EQ(ends().tokens, (Ids{kOther, kEnd}));
  EXPECT_EQ(ends().of_reply, kEnd);
  EXPECT_TRUE(ends().is_learned);
  const std::pair<const char*, std::optional<int32_t>> cases[] = {
      {"{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}", std::nullopt},
      {"{% for m in messages %}{{ m.role + ': ' + m.content + '</s>\\n' }}{% endfor %}", std::nullopt},
      {"{% for m in messages %}{{ '<|s|>' + m.content | trim }}{% if m.role == 'assistant' %}{{ ' ' + eos_token }}{% "
       "endif %}{% endfor %}",
       kOther},
      {"{% for m in messages %}{{ '<|s|>' + m.content + '<|e|>' }}{% endfor %}{{ eos_token }}", kEnd},
      {"{% if messages | length < 3 %}{{ raise_exception('three') }}{% endif %}", std::nullopt}};
  for (const auto& [source, right] : cases) {
    put_file(at("chat_template.jinja"), source);
    EXPECT_EQ(ends().of_reply, right) << source;
  }
  put_file(at("chat_template.jinja"),
           "{% for m in messages %}{{ '<|s|>' }}{% generation %}{{ m.content }}{% endgeneration %}{{ '<|e|>' }}{% "
           "endfor %}");
  EXPECT_EQ(ends().of_reply, kEnd);
  EXPECT_FALSE(ends().is_learned);
  put_file(
      at("chat_template.jinja"),
      "{% for m in messages %}{{ '<|s|>' }}{% generation %}{{ m.content + '<|e|>' }}{% endgeneration %}{% endfor %}");
  EXPECT_TRUE(ends().is_learned);
  put_file(at("chat_template.jinja"), "{% broken");
  EXPECT_EQ(ends().tokens, Ids{kOther}) << "a template that cannot be read names no end";
}

TEST_F(AnswerEndsTest, AGgufNamesEosEotAndEom) {
  const json tokenizer = small_tokenizers().at("gpt2").json;
  write_gguf_tokenizer(at("plain.gguf"), tokenizer, "gpt-2");
  const GgufFile like(at("plain.gguf"));
  const auto of_keys = [&](const std::map<std::string, int>& ids) {
    GgufWriter writer(at("m.gguf"));
    for (const auto& [key, value] : like.metadata()) {
      if (key != "tokenizer.ggml.eos_token_id") writer.add(key, value);
    }
    for (const auto& [key, id] : ids) writer.add("tokenizer.ggml." + key, {GgufType::kU32, GgufType::kString, id});
    writer.finish();
    return find_answer_ends(ModelFiles::open(at("m.gguf")));
  };
  EXPECT_EQ(of_keys({{"eos_token_id", 5}, {"eot_token_id", 7}, {"eom_token_id", 9}}).tokens, (Ids{5, 7, 9}));
  EXPECT_EQ(of_keys({{"eot_token_id", 7}}).of_text(), 7);
  EXPECT_EQ(of_keys({{"eos_token_id", 5}, {"eot_token_id", 5}}).tokens, Ids{5});
  EXPECT_EQ(of_keys({}).of_text(), std::nullopt);
}

TEST_F(AnswerEndsTest, TextsAreLearnedWithAnEndWhereOneIsKnown) {
  const std::string text = "{\"text\": \"ab\"}\n";
  EXPECT_EQ(text_ids("ab"), (Ids{'a', 'b'}));
  const std::vector<std::string> said = warnings_of("chat", text);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0], at("x.jsonl") + ": texts are learned without an end, because " + folder_.path() +
                         " names none: name one as eos_token in its tokenizer_config.json");
  EXPECT_EQ(warnings_of("preferences", R"({"prompt": "a", "chosen": "b", "rejected": "c"})" "\n").size(), 1u);
  EXPECT_EQ(warnings_of("text", std::string(40, 'a')).size(), 1u);
  put_file(at("chat_template.jinja"), kTurns);
  EXPECT_EQ(text_ids("ab"), (Ids{'a', 'b', kEnd})) << "the template's";
  put_config({{"eos_token_id", kOther}});
  EXPECT_EQ(text_ids("ab"), (Ids{'a', 'b', kOther})) << "a file's, before the template's";
  for (const auto& [kind, lines] : {std::pair<const char*, std::string>{"chat", text}, {"text", std::string(40, 'a')}})
    EXPECT_EQ(warnings_of(kind, lines).size(), 0u) << kind;
}

// A row of 32 tokens and the token after it need 33 tokens. A text of 32 letters has one too few,
// and the end token completes it.
TEST_F(AnswerEndsTest, APlainTextEndsWithIt) {
  put_file(at("x.jsonl"), std::string(32, 'a'));
  const Recipe of = recipe({{"data", {{"kind", "text"}, {"path", at("x.jsonl")}}}});
  expect_user_error([&] { open_dataset(of, Split::kTraining); }, {"too short: 32 tokens"});
  put("tokenizer_config.json", {{"eos_token", "<|e|>"}});
  EXPECT_EQ(open_dataset(of, Split::kTraining)->size(), 1u);
}

TEST_F(AnswerEndsTest, ConversationsThatLearnNoEndAreWarnedOf) {
  const std::string line = R"({"prompt": "a", "completion": "b"})" "\n";
  put("tokenizer_config.json", {{"eos_token", "<|e|>"}});
  put_file(at("chat_template.jinja"), kTurns);
  EXPECT_TRUE(warnings_of("chat", line).empty());
  put_file(at("chat_template.jinja"),
           "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
           "'assistant: ' }}{% endif %}");
  const std::vector<std::string> none = warnings_of("chat", line);
  ASSERT_EQ(none.size(), 1u);
  EXPECT_NE(none[0].find("writes no token of the vocabulary behind a reply"), std::string::npos) << none[0];
  put_file(at("chat_template.jinja"),
           "{% for m in messages %}{{ '<|s|>' + m.role }}{% generation %}{{ m.content }}{% endgeneration %}{{ '<|e|>' "
           "}}{% endfor %}");
  const std::vector<std::string> outside = warnings_of("chat", line);
  ASSERT_EQ(outside.size(), 1u);
  EXPECT_NE(outside[0].find("has \"<|e|>\" behind its {% generation %}"), std::string::npos) << outside[0];
  EXPECT_TRUE(warnings_of("chat", line, {{"train_on", "all"}}).empty()) << "all is learned";
}

// An answer must stop at any of the end tokens. Here all tokens are ends, so the answer is empty.
TEST_F(AnswerEndsTest, AnswersStopAtAnyOfThem) {
  const auto answer = [&] {
    const Recipe of = recipe();
    OwnedPlan planned = plan_run(of, build_stored_model(of, kCpuRules), "optimal", 0).planned.plan;
    add_generation(planned, build_stored_model(of, kCpuRules, {.samples = 1, .sequence = 4}), kCpuRules, WeightWindow{},
                   1000);
    const Plan plan = planned.view();
    const TestArena arena(plan.arena_bytes);
    const Workers alone = {.stack_bytes = 1 << 20};
    Trainer trainer;
    const Status bound = bind_plan(plan, test::test_backend(), alone, arena.get(), trainer);
    EXPECT_TRUE(bound.ok()) << bound.message;
    const Answerer answerer(of);
    return answerer.go_on(trainer, {'a', 'b'}, {.tokens = 5, .stop = {}, .never = {}}).tokens;
  };
  EXPECT_EQ(answer().size(), 5u);
  Ids all(260);
  for (size_t id = 0; id < all.size(); ++id) all[id] = static_cast<int32_t>(id);
  put("generation_config.json", {{"eos_token_id", all}});
  EXPECT_TRUE(answer().empty());
}

// ---- exports

class EndsOfExports : public AnswerEndsTest {
 protected:
  EndsOfExports() { put_file(at("chat_template.jinja"), kTurns); }

  // Writes the snapshot of a recipe of `model`, as a training would, and returns the recipe.
  Recipe snapshot(const json& model) const {
    const Recipe of = recipe({{"model", model}, {"sequence", 8}});
    fs::create_directories(at("snapshot"));
    SafetensorsWriter writer(at("snapshot/model.safetensors"));
    for (const Value& value : build_model(of).values) {
      if (value.kind == ValueKind::kParameter) writer.declare(value.name, StoredType::kF32, stored_shape(value.tensor));
    }
    for (const Value& value : build_model(of).values) {
      if (value.kind != ValueKind::kParameter) continue;
      const std::vector<float> ones(value.tensor.elements(), 1);
      writer.write(ones.data(), ones.size() * sizeof(float));
    }
    writer.finish();
    SafetensorsWriter(at("snapshot/optimizer.safetensors")).finish();
    put("snapshot/config.json", json::object());
    put("snapshot/training.json",
        {{"format", 1}, {"step", 1}, {"kernel_set", "none"}, {"recipe", json::parse(canonical_recipe(of))}});
    return of;
  }
  // Returns "eos_token_id" of the exported config.json, and the exported generation_config.json.
  std::pair<json, json> exported(const json& model) const {
    const Recipe of = snapshot(model);
    export_snapshot(of, {.snapshot = at("snapshot"), .form = ExportForm::kMerged, .to = at("merged")});
    const auto file = [&](const char* name) {
      return fs::exists(at("merged/" + std::string(name))) ? json::parse(read_file(at("merged/" + std::string(name))))
                                                           : json();
    };
    return {file("config.json").value("eos_token_id", json()), file("generation_config.json")};
  }
  std::pair<json, json> exported() const { return exported({{"huggingface", folder_.path()}}); }
};

TEST_F(EndsOfExports, AFolderNamesThemAll) {
  EXPECT_EQ(exported(), (std::pair<json, json>{kEnd, {{"eos_token_id", kEnd}}})) << "the template's alone";
  put("tokenizer_config.json", {{"eos_token", "<|other|>"}, {"pad_token", "<|third|>"}, {"bos_token", "<|s|>"}});
  EXPECT_EQ(exported(), (std::pair<json, json>{
                            {kOther, kEnd},
                            {{"eos_token_id", {kOther, kEnd}}, {"bos_token_id", kBegin}, {"pad_token_id", kThird}}}));
  put("generation_config.json", {{"eos_token_id", kOther}, {"temperature", 0.5}, {"pad_token_id", 3}});
  EXPECT_EQ(exported().second, (json{{"eos_token_id", {kOther, kEnd}}, {"temperature", 0.5}, {"pad_token_id", 3}}))
      << "the base's own settings stay";
  put_config({{"eos_token_id", 2}});
  EXPECT_EQ(exported().first, (json{kOther, kEnd})) << "a default of transformers is no end";
  const std::string whole = "{\n\"eos_token_id\":   [" + std::to_string(kEnd) + ", " + std::to_string(kOther) + "]}";
  put_file(at("generation_config.json"), whole);
  EXPECT_EQ(exported().second["eos_token_id"], (json{kEnd, kOther})) << "in the file's own order";
  EXPECT_EQ(read_file(at("merged/generation_config.json")), whole) << "a file that names all is copied";
}

// llama.cpp stops at the tokens eos, eot and eom.
TEST_F(EndsOfExports, AGgufNamesThemAll) {
  constexpr int kEos = 20, kTurn = 22, kReplyEnd = 23;
  const auto write_base = [&](const std::map<std::string, int>& ids) {
    const GgufFile like("tests/golden/weights/llama.gguf");
    json tokens = json::array(), types = json::array();
    for (int id = 0; id < kEos; ++id) tokens.push_back(std::string(1, static_cast<char>('a' + id))), types.push_back(1);
    for (const char* name : {"<eos>", "<bos>", "<|s|>", "<|e|>"}) tokens.push_back(name), types.push_back(3);
    GgufWriter writer(at("base.gguf"));
    for (const auto& [key, value] : like.metadata()) writer.add(key, value);
    for (const auto& [key, text] : std::map<std::string, std::string>{{"model", "gpt2"}, {"pre", "gpt-2"}}) {
      writer.add("tokenizer.ggml." + key, {GgufType::kString, GgufType::kString, text});
    }
    writer.add("tokenizer.ggml.tokens", {GgufType::kArray, GgufType::kString, tokens});
    writer.add("tokenizer.ggml.token_type", {GgufType::kArray, GgufType::kI32, types});
    writer.add("tokenizer.ggml.merges", {GgufType::kArray, GgufType::kString, json::array()});
    writer.add("tokenizer.chat_template", {GgufType::kString, GgufType::kString, kTurns});
    for (const auto& [key, id] : ids) writer.add("tokenizer.ggml." + key, {GgufType::kU32, GgufType::kString, id});
    for (const GgufTensor& tensor : like.tensors()) writer.declare(tensor.name, tensor.type, tensor.shape);
    for (const GgufTensor& tensor : like.tensors()) {
      std::vector<unsigned char> bytes(tensor.bytes);
      like.read_stored(tensor, 0, bytes.data(), bytes.size());
      writer.write(bytes.data(), bytes.size());
    }
    writer.finish();
  };
  const auto written = [&](const std::map<std::string, int>& ids) {
    write_base(ids);
    const Recipe of = snapshot({{"gguf", at("base.gguf")}});
    export_snapshot(of, {.snapshot = at("snapshot"), .form = ExportForm::kMergedGguf, .to = at("merged.gguf")});
    std::map<std::string, int> named;
    for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
      if (const auto id = GgufFile(at("merged.gguf")).unsigned_integer(std::string("tokenizer.ggml.") + key))
        named[key] = static_cast<int>(*id);
    }
    return named;
  };
  using Named = std::map<std::string, int>;
  EXPECT_EQ(written({{"eos_token_id", kEos}}), (Named{{"eos_token_id", kEos}, {"eot_token_id", kReplyEnd}}));
  EXPECT_EQ(written({}), (Named{{"eos_token_id", kReplyEnd}}));
  EXPECT_EQ(written({{"eos_token_id", kEos}, {"eot_token_id", kReplyEnd}}),
            (Named{{"eos_token_id", kEos}, {"eot_token_id", kReplyEnd}}));
  EXPECT_EQ(written({{"eos_token_id", kEos}, {"eot_token_id", kTurn}}),
            (Named{{"eos_token_id", kEos}, {"eot_token_id", kTurn}, {"eom_token_id", kReplyEnd}}));
  write_base({{"eos_token_id", kEos}});
  EXPECT_EQ(exported({{"gguf", at("base.gguf")}}),
            (std::pair<json, json>{{kEos, kReplyEnd}, {{"eos_token_id", {kEos, kReplyEnd}}}}));
}

TEST_F(EndsOfExports, AModelWithoutAnEndStaysWithoutOne) {
  fs::remove(at("chat_template.jinja"));
  EXPECT_EQ(exported(), (std::pair<json, json>{nullptr, nullptr}));
}

}  // namespace
}  // namespace reprise
