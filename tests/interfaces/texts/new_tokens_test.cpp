// Tests tokens that a recipe adds to a vocabulary: their ids compared with Hugging Face's, the
// files that are written with them, and refusals. In a program that gives such an id to another
// token, the model is useless.
#include "tools/files/tokenizer/new_tokens.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/texts/small_tokenizer.h"
#include "tests/runtime/programs/process.h"
#include "tools/files/adapters/grown_tables.h"
#include "tools/files/formats/gguf.h"
#include "tools/files/io/output_file.h"
#include "tools/files/tokenizer/tokenizer.h"
#include "tools/files/weights/export_model.h"
#include "tools/files/weights/model_files.h"
#include "tools/files/weights/tokenizer_texts.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/run/data/dataset.h"

namespace reprise {
namespace {

using nlohmann::json;

struct GoldenTokens {
  std::vector<std::string> tokens;
  std::vector<int32_t> ids;
  std::vector<TokenizedText> cases;
};

std::map<std::string, GoldenTokens> golden_tokens() {
  std::ifstream file("tests/golden/tokenizer/new_tokens.jsonl");
  std::map<std::string, GoldenTokens> golden;
  std::string line;
  std::getline(file, line);
  while (!line.empty()) {
    const json variant = json::parse(line);
    GoldenTokens& tokens = golden[variant.at("variant")];
    tokens = {variant.at("new_tokens"), variant.at("ids"), read_cases(file, &line)};
  }
  return golden;
}

// Adds the golden's tokens to the file, checks their ids, and returns the file.
TokenizerFile grown(TokenizerFile file, const GoldenTokens& golden) {
  add_tokens(file, golden.tokens);
  for (size_t n = 0; n < golden.tokens.size(); ++n)
    EXPECT_EQ(file.tokens.at(static_cast<size_t>(golden.ids[n])).name, golden.tokens[n]);
  return file;
}

void expect_ids(const TokenizerFile& file, const GoldenTokens& golden) {
  const Tokenizer tokenizer(file);
  EXPECT_GE(golden.cases.size(), 40u);
  for (const TokenizedText& each : golden.cases) {
    EXPECT_EQ(tokenizer.encode(each.text, false), each.ids) << json(each.text).dump(-1, ' ', true);
    EXPECT_EQ(tokenizer.encode(each.text, true), each.ids_with_control) << json(each.text).dump(-1, ' ', true);
  }
  const int32_t first = golden.ids[0];
  EXPECT_EQ(tokenizer.token(first), "<tool_call>");
  EXPECT_FALSE(tokenizer.is_control(first)) << "what people write may hold it";
}

class NewTokensTest : public testing::Test {
 protected:
  TokenizerFile of(const json& tokenizer) const {
    put_file(folder.file("tokenizer.json"), tokenizer.dump());
    return read_tokenizer(folder.path());
  }
  const TemporaryFolder folder;
  const std::map<std::string, SmallTokenizer> all = small_tokenizers();
  const std::map<std::string, GoldenTokens> golden = golden_tokens();
};

TEST_F(NewTokensTest, IdsAreThoseOfHuggingFace) {
  EXPECT_EQ(golden.size(), 9u);
  for (const auto& [name, tokens] : golden) {
    SCOPED_TRACE(name);
    expect_ids(grown(of(all.at(name).json), tokens), tokens);
    // Checks the test itself: if the last new token is not added, some texts must have other ids.
    TokenizerFile mutant = of(all.at(name).json);
    add_tokens(mutant, {tokens.tokens.begin(), tokens.tokens.begin() + 3});
    const Tokenizer fewer(mutant);
    size_t differ = 0;
    for (const TokenizedText& each : tokens.cases) differ += fewer.encode(each.text, false) != each.ids;
    EXPECT_GE(differ, 10u);
  }
}

TEST_F(NewTokensTest, AGgufFileOfTheSameVocabularyHasTheSameIds) {
  for (const auto& [name, pre] : {std::pair{"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}}) {
    SCOPED_TRACE(pre);
    write_gguf_tokenizer(folder.file("t.gguf"), all.at(name).json, pre);
    expect_ids(grown(read_tokenizer(folder.file("t.gguf")), golden.at(name)), golden.at(name));
  }
  write_gguf_characters(folder.file("t.gguf"), all.at("llama2").json, true);
  expect_ids(grown(read_tokenizer(folder.file("t.gguf")), golden.at("llama2")), golden.at("llama2"));
}

// tokenizer.json must change only by the new tokens. Other files change if they list added tokens.
TEST_F(NewTokensTest, FilesThatAreWrittenWithThemGiveTheSameIds) {
  for (const auto& [name, tokens] : golden) {
    SCOPED_TRACE(name);
    const json before = all.at(name).json;
    const TokenizerFile file = grown(of(before), tokens);
    const auto written = [&](const std::string& what, const std::string& text) {
      return json::parse(with_new_tokens(what, text, what, file, tokens.tokens));
    };
    json after = written("tokenizer.json", before.dump());
    const TokenizerFile again = of(after);
    EXPECT_EQ(again.tokens.size(), file.tokens.size());
    expect_ids(again, tokens);
    EXPECT_EQ(after["added_tokens"].back()["content"], "<|im_start|>");
    for (const char* key : {"special", "normalized", "lstrip", "rstrip", "single_word"})
      EXPECT_EQ(after["added_tokens"].back()[key], false) << key;
    after["added_tokens"] = before["added_tokens"];
    EXPECT_EQ(after, before) << "and nothing else is another";
    const std::string first = std::to_string(tokens.ids[0]);
    EXPECT_EQ(written("tokenizer_config.json",
                      R"({"added_tokens_decoder": {"1": {}}, "x": 2})")["added_tokens_decoder"][first]["content"],
              "<tool_call>");
    EXPECT_EQ(written("tokenizer_config.json", R"({"x": 2})"), (json{{"x", 2}}));
    EXPECT_EQ(written("added_tokens.json", R"({"<a>": 1})")["<tool_call>"], tokens.ids[0]);
    EXPECT_EQ(with_new_tokens("merges.txt", "a b", "merges.txt", file, tokens.tokens), "a b");
  }
  // A folder that is written from a GGUF file must have the same ids.
  write_gguf_characters(folder.file("t.gguf"), all.at("llama2").json, true);
  const TokenizerFile file = grown(read_tokenizer(folder.file("t.gguf")), golden.at("llama2"));
  expect_ids(of(json::parse(tokenizer_texts(file, {}).tokenizer)), golden.at("llama2"));
}

// Writes the metadata of GGUF file `from`, with the vocabulary of `file`, to `to`. Returns the
// tokenizer read from `to`.
TokenizerFile written_gguf(const std::string& from, const TokenizerFile& file, const std::string& to) {
  const GgufFile like(from);
  const GgufVocabulary vocabulary = gguf_vocabulary(like, file, file.tokens.size());
  GgufWriter writer(to);
  for (const auto& [key, value] : like.metadata())
    writer.add(key, vocabulary.metadata.count(key) > 0 ? vocabulary.metadata.at(key) : value);
  writer.finish();
  return read_tokenizer(to);
}

TEST_F(NewTokensTest, AGgufThatIsWrittenWithThemGivesTheSameIds) {
  const std::string path = folder.file("t.gguf"), to = folder.file("grown.gguf");
  write_gguf_tokenizer(path, all.at("qwen2").json, "qwen2");
  expect_ids(written_gguf(path, grown(read_tokenizer(path), golden.at("qwen2")), to), golden.at("qwen2"));
  EXPECT_EQ(GgufFile(to).integers("tokenizer.ggml.token_type")->at(800), 4);
  EXPECT_EQ(GgufFile(to).integers("tokenizer.ggml.token_type")->at(331), 4) << "made by merges before";
  write_gguf_characters(path, all.at("llama2").json, true);
  expect_ids(written_gguf(path, grown(read_tokenizer(path), golden.at("llama2")), to), golden.at("llama2"));
  EXPECT_EQ(GgufFile(to).numbers("tokenizer.ggml.scores")->size(), 339u);
}

// Converters pad the list of tokens up to the number of rows of the table. New tokens take these
// entries first. So their ids equal the ids that transformers gives them in the folder before its
// conversion to GGUF.
TEST_F(NewTokensTest, PaddingOfAGgufIsTakenFirst) {
  json padded = all.at("qwen2").json;
  for (int id = 800; id < 810; ++id)
    padded["added_tokens"].push_back({{"id", id}, {"content", "[PAD" + std::to_string(id) + "]"}, {"special", false}});
  const std::string path = folder.file("t.gguf"), to = folder.file("grown.gguf");
  write_gguf_tokenizer(folder.file("types.gguf"), padded, "qwen2");
  for (const int type : {2, 4, 5}) {  // types that older and newer converters write
    const GgufFile like(folder.file("types.gguf"));
    GgufWriter writer(path);
    for (auto [key, value] : like.metadata()) {
      if (key == "tokenizer.ggml.token_type") std::fill(value.value.begin() + 800, value.value.end(), type);
      writer.add(key, value);
    }
    writer.finish();
    TokenizerFile file = read_tokenizer(path);
    EXPECT_EQ(file.tokens.size(), 810u);
    const NewTokens made = add_tokens(file, golden.at("qwen2").tokens);
    EXPECT_EQ(made.first, 800u);
    EXPECT_EQ(made.count, 6u) << "one was there";
    EXPECT_EQ(file.tokens.size(), 810u);
    expect_ids(file, golden.at("qwen2"));
    expect_ids(written_gguf(path, file, to), golden.at("qwen2"));
    EXPECT_EQ(GgufFile(to).strings("tokenizer.ggml.tokens")->at(806), "[PAD806]");
    EXPECT_EQ(GgufFile(to).integers("tokenizer.ggml.token_type")->at(806), type);
    expect_ids(of(json::parse(tokenizer_texts(file, {}).tokenizer)), golden.at("qwen2"));
  }
  TokenizerFile more = read_tokenizer(path);
  std::vector<std::string> many;
  for (int n = 0; n < 13; ++n) many.push_back("<" + std::to_string(n) + ">");
  EXPECT_EQ(add_tokens(more, many).first, 800u);
  EXPECT_EQ(more.tokens.size(), 813u);
  EXPECT_EQ(more.tokens[812].name, "<12>");
}

// llama.cpp recognises Phi-3 by its name, and then each added token removes the white space after
// it. New tokens in a written file must do this, too.
TEST_F(NewTokensTest, ThoseOfPhi3TakeTheSpaceBehindThem) {
  write_gguf_characters(folder.file("plain.gguf"), all.at("llama2").json, true);
  const std::string path = folder.file("t.gguf"), to = folder.file("grown.gguf");
  {
    const GgufFile like(folder.file("plain.gguf"));
    GgufWriter writer(path);
    for (const auto& [key, value] : like.metadata()) writer.add(key, value);
    writer.add("general.name", {GgufType::kString, GgufType::kString, "Phi-3 mini"});
    writer.finish();
  }
  TokenizerFile file = read_tokenizer(path);
  add_tokens(file, {"<a>"});
  const std::vector<int32_t> ids = Tokenizer(file).encode("<a>  \n<a>", false);
  EXPECT_EQ(ids, (std::vector<int32_t>{333, 333}));
  EXPECT_EQ(Tokenizer(written_gguf(path, file, to)).encode("<a>  \n<a>", false), ids);
  EXPECT_EQ(Tokenizer(of(json::parse(tokenizer_texts(file, {}).tokenizer))).encode("<a>  \n<a>", false), ids);
}

TEST_F(NewTokensTest, WhatIsNoTokenOfItsOwnIsRefusedByName) {
  TokenizerFile by_bytes = of(all.at("gpt2").json), by_characters = of(all.at("llama2").json);
  EXPECT_EQ(by_bytes.tokens.size(), 800u);
  expect_user_error([&] { add_tokens(by_bytes, {"\u0120the"}); },
                    {"\"\\u0120the\"", "how the vocabulary spells \" the\""});
  expect_user_error([&] { add_tokens(by_characters, {"<0x0A>"}); }, {"\"<0x0A>\"", "is a byte of the vocabulary"});
  expect_user_error([&] { add_tokens(by_characters, {"a\u2581b"}); },
                    {"a\\u2581b", "how the vocabulary spells \"a b\""});
  TokenizerFile same = of(all.at("added").json);
  EXPECT_TRUE(add_tokens(same, {"<|a|>", "~~"}).names.empty()) << "as transformers has it";
  EXPECT_EQ(same.tokens.size(), 809u);
}

// GPT-2's head is its embeddings. A GGUF file may contain the table under both names.
TEST(GrownGguf, ATableThatAFileHoldsTwiceIsWrittenTwice) {
  const TemporaryFolder folder;
  const GgufFile golden("tests/golden/weights/gpt2.gguf");
  const GgufTensor& table = *golden.find_tensor("token_embd.weight");
  ASSERT_EQ(golden.find_tensor("output.weight"), nullptr);
  const auto copy = [&](GgufWriter& writer, const GgufTensor& tensor) {
    std::vector<unsigned char> bytes(tensor.bytes);
    golden.read_stored(tensor, 0, bytes.data(), bytes.size());
    writer.write(bytes.data(), bytes.size());
  };
  {
    GgufWriter writer(folder.file("like.gguf"));
    for (const auto& [key, value] : golden.metadata()) writer.add(key, value);
    for (const GgufTensor& tensor : golden.tensors()) writer.declare(tensor.name, tensor.type, tensor.shape);
    writer.declare("output.weight", table.type, table.shape);
    for (const GgufTensor& tensor : golden.tensors()) copy(writer, tensor);
    copy(writer, table);
    writer.finish();
  }
  const uint64_t rows = table.shape[0] + 2;
  const auto weights =
      grow_tables(open_weights(golden.path()), {.rows = rows, .makes_spare = true, .tokenizer = [&](NewTokens& made) {
                                                  made.first = rows - 2, made.count = 2;
                                                  TokenizerFile file;
                                                  file.tokens.assign(rows, {"x", TokenKind::kNormal});
                                                  return file;
                                                }});
  write_gguf_model(*weights, GgufFile(folder.file("like.gguf")), BlockType::kF32, folder.file("out.gguf"),
                   {.metadata = {}, .rows = rows});
  const GgufFile out(folder.file("out.gguf"));
  std::vector<float> numbers[2], wanted(rows * table.shape[1]);
  weights->read(stored_name(*weights, "transformer.wte.weight"), 0, wanted.size(), wanted.data());
  for (const int n : {0, 1}) {
    const GgufTensor& tensor = *out.find_tensor(n == 0 ? "token_embd.weight" : "output.weight");
    ASSERT_EQ(tensor.shape, (std::vector<uint64_t>{rows, table.shape[1]}));
    numbers[n].resize(wanted.size());
    out.read(tensor, 0, wanted.size(), numbers[n].data());
    EXPECT_EQ(numbers[n], wanted);
  }
}

// ---- new tokens of a recipe ----

class NewTokensRecipe : public NewTokensTest {
 protected:
  NewTokensRecipe() {
    std::filesystem::create_directory(folder.file("model"));
    json config = {{"model_type", "llama"},       {"vocab_size", 800},
                   {"hidden_size", 32},           {"intermediate_size", 32},
                   {"num_hidden_layers", 1},      {"num_attention_heads", 2},
                   {"num_key_value_heads", 1},    {"max_position_embeddings", 64},
                   {"tie_word_embeddings", false}};
    write_file(folder.file("model/config.json"), config.dump());
    write_file(folder.file("model/tokenizer.json"), all.at("qwen2").json.dump());
    config["vocab_size"] = 1000;
    std::filesystem::copy(folder.file("model"), folder.file("spare"));
    write_file(folder.file("spare/config.json"), config.dump());
  }
  std::string text(const json& tokens, const json& more = json::object(), const std::string& model = "model") const {
    json value = {{"model", {{"huggingface", model}, {"new_tokens", tokens}}}, {"batch", 2}};
    value.update(more);
    return value.dump();
  }
  Recipe parse(const json& tokens, const json& more = json::object(), const std::string& model = "model") const {
    return parse_recipe(text(tokens, more, model), "some.json", folder.path());
  }
};

TEST_F(NewTokensRecipe, TheTableGrowsWhereIdsReachBeyondIt) {
  const Recipe recipe = parse({"<a>", "<b>"});
  EXPECT_EQ(recipe.place.new_tokens, (std::vector<std::string>{"<a>", "<b>"}));
  EXPECT_EQ(describe_model(recipe.model).vocabulary, 802);
  EXPECT_EQ(describe_model(parse({"<a>", "<b>"}, json::object(), "spare").model).vocabulary, 1000);
  EXPECT_TRUE(parse_recipe(canonical_recipe(recipe), "some.json", "/") == recipe) << "which needs no file";
  EXPECT_EQ(json::parse(canonical_recipe(recipe))["model"]["new_tokens"], (json{"<a>", "<b>"}));
  EXPECT_EQ(describe_model(read_published_model(recipe.place)).vocabulary, 802);
  // "He" is a token that merges make, so it needs no row. A token that the files already add is not
  // new.
  EXPECT_EQ(describe_model(parse({"He"}).model).vocabulary, 800);
  EXPECT_FALSE(json::parse(canonical_recipe(parse(json::array())))["model"].contains("new_tokens"));
  json with = all.at("qwen2").json;
  with["added_tokens"].push_back({{"id", 800}, {"content", "<a>"}, {"special", true}});
  write_file(folder.file("spare/tokenizer.json"), with.dump());
  EXPECT_TRUE(parse({"<a>"}, json::object(), "spare").place.new_tokens.empty());
}

TEST_F(NewTokensRecipe, BadOnesAreRefusedInALine) {
  expect_user_error([&] { parse({"<a>", ""}); }, {"some.json: model.new_tokens", "\"\" is no token"});
  expect_user_error([&] { parse({"<a>", "<b>", "<a>"}); }, {"some.json: model.new_tokens", "\"<a>\" is given twice"});
  expect_user_error([&] { parse({"<a>", 7}); }, {"some.json: model.new_tokens", "list of strings", "7"});
  expect_user_error([&] { parse("<a>"); }, {"some.json: model.new_tokens", "list"});
  expect_user_error([&] { parse({"\u0120the"}); },
                    {"some.json: model.new_tokens", "\"\\u0120the\"", "spells \" the\""});
  std::filesystem::remove(folder.file("spare/tokenizer.json"));
  expect_user_error([&] { parse({"<a>"}, json::object(), "spare"); },
                    {"some.json: model.new_tokens", "needs a tokenizer", "spare"});
  expect_user_error(
      [&] { parse_recipe(R"({"model": {"family": "gpt2", "new_tokens": ["<a>"]}, "batch": 1})", "some.json", "/"); },
      {"some.json: model.new_tokens", "huggingface", "gguf"});
}

TEST_F(NewTokensRecipe, TheTablesMustTrain) {
  const auto check = [&](const json& more) {
    return [this, more] { check_names(parse({"<a>"}, more), {"some.json"}); };
  };
  EXPECT_NO_THROW(check(json::object())());
  EXPECT_NO_THROW(check({{"lora", {{"r", 2}, {"modules_to_save", {"embed_tokens", "lm_head"}}}}})());
  expect_user_error(check({{"lora", {{"r", 2}}}}),
                    {"some.json: model.new_tokens",
                     "add \"modules_to_save\": [\"embed_tokens\", \"lm_head\"] to lora"});
  expect_user_error(check({{"lora", {{"r", 2}, {"modules_to_save", {"embed_tokens"}}}}}),
                    {"model.new_tokens", "add \"modules_to_save\": [\"lm_head\"] to lora"});
  expect_user_error(check({{"freeze", {"*embed*"}}}),
                    {"model.new_tokens", "freeze must leave out \"model.embed_tokens.weight\""});
}

// The end-of-text token may be a new token, if tokenizer_config.json names it.
TEST_F(NewTokensRecipe, TheConfigMayNameOne) {
  write_file(folder.file("model/tokenizer_config.json"), R"({"eos_token": "<b>", "pad_token": {"content": "<a>"}})");
  const Recipe recipe = parse({"<a>", "<b>"});
  const TokenizerFile file = ModelFiles::open(recipe.place).tokenizer();
  EXPECT_EQ(file.eos, 801);
  EXPECT_EQ(file.pad, 800);
  expect_user_error([&] { parse({"<a>"}); },
                    {"some.json: model.new_tokens", "tokenizer_config.json: eos_token", "\"<b>\" is no token"});
}

// A long text is tokenised in pieces. No piece may end inside a new token.
TEST_F(NewTokensRecipe, ALongTextIsNotCutWithinOne) {
  const std::string line = "<a>\nb", word(1019, 'x');
  std::string text;
  for (int n = 0; n < 1100; ++n) text += word + line;
  write_file(folder.file("long.txt"), text);
  const Recipe recipe = parse({"<a>\nb", "<b>"}, {{"sequence", 1}, {"data", {{"kind", "text"}, {"path", "long.txt"}}}});
  const Tokenizer tokenizer(ModelFiles::open(recipe.place).tokenizer());
  const std::vector<int32_t> ids = tokenizer.encode(text, false);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 800), 1100);
  EXPECT_EQ(open_dataset(recipe, Split::kTraining)->size(), ids.size() - 1);
  Recipe without = recipe;
  without.place.new_tokens = {"<b>"};
  EXPECT_EQ(open_dataset(without, Split::kTraining)->size(),
            Tokenizer(ModelFiles::open(without.place).tokenizer()).encode(text, false).size() - 1);
}

// Commands that read a text accept a recipe instead of a model.
TEST_F(NewTokensRecipe, TextsAreLookedAtByARecipe) {
  write_file(folder.file("model/chat_template.jinja"), "{% for m in messages %}<a>{{ m.content }}{% endfor %}");
  write_file(folder.file("r.json"), "// a comment\n" + text({"<a>", "<b>"}));
  write_file(folder.file("sample.json"), R"({"messages": [{"role": "assistant", "content": "x<b>"}]})");
  const auto answer = [&](std::vector<std::string> arguments, const std::string& in) {
    arguments.push_back("--json");
    const test::ProcessResult result = test::reprise_command(arguments, {.input = in});
    EXPECT_EQ(result.status, 0) << result.err;
    return json::parse(result.out);
  };
  const json ids = answer({"tokenize", folder.file("r.json")}, "x<a><b>")["ids"];
  EXPECT_EQ(ids.at(1), 800);
  EXPECT_EQ(ids.at(2), 801);
  EXPECT_NE(answer({"tokenize", folder.file("model")}, "x<a><b>")["ids"], ids);
  EXPECT_EQ(answer({"detokenize", folder.file("r.json")}, ids.dump())["text"], "x<a><b>");
  EXPECT_EQ(answer({"chat", folder.file("r.json"), folder.file("sample.json")}, "")["ids"], (json{800, ids[0], 801}));
}

}  // namespace
}  // namespace reprise
