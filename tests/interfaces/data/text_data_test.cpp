// Tests texts of a file as samples of a net: their tokens with special tokens around them, their
// labels, and refusals. If a text lacks its last token or has another text's label, the net still
// trains, only worse.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/host_sink.h"
#include "tests/interfaces/texts/small_tokenizer.h"
#include "tools/files/formats/safetensors.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/run/data/dataset.h"
#include "tools/run/data/images.h"
#include "tools/run/data/unlabelled.h"
#include "tools/run/nets/import_net.h"

namespace reprise::test {
namespace {

using nlohmann::json;

constexpr int kPad = 0, kUnknown = 1, kCls = 2, kSep = 3, kA = 4, kB = 5, kMoreB = 6, kC = 7;

// A folder with a vocab.txt in BERT's format, which has the tokens below.
class TextFolder : public TemporaryFolder {
 public:
  TextFolder() { put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n##b\nc\n"); }
  std::string put(const std::string& name, const std::string& text) const {
    put_file(file(name), text);
    return file(name);
  }
};

// Returns a recipe of a net over `length` tokens, in which `loss` reads the mean over a text.
Recipe recipe_of(const json& data, int length = 5, const json& loss = {{"op", "loss_head"}, {"classes", 3}},
                 int rows = 8, int batch = 2) {
  json nodes = {{{"op", "embedding"}, {"name", "words"}, {"rows", rows}, {"features", 2}},
                {{"op", "global_pool"}, {"name", "pool"}, {"masked", true}},
                loss};
  nodes.back()["name"] = "loss";
  const json recipe = {{"model", {{"family", "net"}, {"text", {{"length", length}, {"pad", kPad}}}, {"nodes", nodes}}},
                       {"data", data},
                       {"batch", batch},
                       {"seed", 7}};
  return parse_recipe(recipe.dump(), "texts.json", "/");
}

json data_of(const TextFolder& folder, const std::string& path, const json& more = json::object()) {
  json data = {{"kind", "texts"}, {"path", path}, {"tokenizer", folder.path()}, {"shuffle", false}};
  data.update(more);
  return data;
}

template <typename Label>
struct TextBatch {
  std::vector<int32_t> tokens, starts;
  std::vector<Label> labels;
};
template <typename Label = int32_t>
TextBatch<Label> fill(Dataset& data, const Recipe& recipe, uint64_t step = 0) {
  const auto batch = static_cast<size_t>(recipe.batch),
             length = static_cast<size_t>(describe_model(recipe.model).text_length);
  const LabelForm form = label_form(recipe);
  TextBatch<Label> filled{std::vector<int32_t>(batch * length), std::vector<int32_t>(batch * length),
                          std::vector<Label>(batch * form.count())};
  BatchSink sink =
      host_sink(filled.tokens.data(), filled.tokens.size() * sizeof(int32_t), filled.labels.data(),
                filled.labels.size(), filled.starts.data(), nullptr, 0, length / form.count(), form.stored);
  data.fill(step, 0, sink);
  EXPECT_TRUE(sink.status().ok()) << sink.status().message;
  return filled;
}

TextBatch<int32_t> first_batch(const Recipe& recipe) { return fill(*open_dataset(recipe, Split::kTraining), recipe); }

TEST(TextData, TokensStandBetweenThoseOfTheModelAndAreCutBeforeTheLast) {
  const TextFolder folder;
  const std::string path = folder.put("t.csv", "text,what\n\"Ab, c\",tit\nb\u00e4 c a b,auk\n,tit\n");
  for (const char* kind : {"texts", "csv"}) {
    SCOPED_TRACE(kind);
    const Recipe recipe = recipe_of(data_of(folder, path, {{"kind", kind}}), 6);
    const auto data = open_dataset(recipe, Split::kTraining);
    EXPECT_EQ(data->size(), 3u);
    EXPECT_EQ(data->class_names(), (std::vector<std::string>{"auk", "tit"}));
    const auto first = fill(*data, recipe), second = fill(*data, recipe, 1);
    EXPECT_EQ(first.tokens,
              (std::vector<int32_t>{kCls, kA, kMoreB, kUnknown, kC, kSep, kCls, kUnknown, kC, kA, kB, kSep}));
    EXPECT_EQ(first.labels, (std::vector<int32_t>{1, 0}));
    EXPECT_EQ(std::vector<int32_t>(second.tokens.begin(), second.tokens.begin() + 6),
              (std::vector<int32_t>{kCls, kSep, kPad, kPad, kPad, kPad}));
    EXPECT_EQ(std::vector<int32_t>(second.starts.begin(), second.starts.begin() + 6),
              (std::vector<int32_t>{0, 0, 2, 2, 2, 2}));
  }
  const Recipe shorter = recipe_of(data_of(folder, path), 4);
  const auto cut = open_dataset(shorter, Split::kTraining);
  EXPECT_EQ(fill(*cut, shorter).tokens, (std::vector<int32_t>{kCls, kA, kMoreB, kSep, kCls, kUnknown, kC, kSep}));
  EXPECT_EQ(cut->warnings(),
            (std::vector<std::string>{path +
                                      ": 2 of 3 texts are longer than the net's 4 tokens, and are cut at their end"}));
  EXPECT_EQ(open_dataset(recipe_of(data_of(folder, path), 9), Split::kTraining)->warnings(),
            (std::vector<std::string>{}));
}

TEST(TextData, RecordsOfJsonAreTheSame) {
  const TextFolder folder;
  const auto expect_both = [&](const std::string& path, const json& more, std::vector<int32_t> labels) {
    SCOPED_TRACE(path);
    const auto batch = first_batch(recipe_of(data_of(folder, path, more), 3));
    EXPECT_EQ(batch.tokens, (std::vector<int32_t>{kCls, kA, kSep, kCls, kC, kSep}));
    EXPECT_EQ(batch.labels, labels);
  };
  expect_both(folder.put("t.jsonl", "{\"label\": 2, \"text\": \"a\"}\n\n{\"text\": \"c\", \"label\": 0}\n"),
              json::object(), {2, 0});
  expect_both(folder.put("t.json", "[{\"text\": \"a\", \"label\": true},\n{\"text\": \"c\", \"label\": null}]"),
              json::object(), {1, kIgnoredLabel});
  expect_both(
      folder.put(
          "verse.jsonl",
          "{\"n\": 1, \"book\": \"Ruth\", \"verse\": \"a\"}\n{\"n\": 2, \"book\": \"Ezra\", \"verse\": \"c\"}\n"),
      {{"columns", {"verse", "book"}}}, {1, 0});
  expect_both(folder.put("t.csv", "n,class,words\n1,x,a\n2,y,c\n"), {{"columns", {"words", "class"}}}, {0, 1});
}

TEST(TextData, WhatARecipeSaysOfThemIsReadBack) {
  const Recipe recipe = recipe_of({{"kind", "texts"},
                                   {"path", "a.csv"},
                                   {"tokenizer", "vocab.txt"},
                                   {"columns", {"verse", "book"}},
                                   {"held_out", 0.125}});
  EXPECT_EQ(recipe.data.tokenizer, "/vocab.txt");
  EXPECT_EQ(parse_recipe(canonical_recipe(recipe), "texts.json", "/elsewhere"), recipe);
}

TEST(TextData, NumbersAndLabelsStandBesideTheirText) {
  const TextFolder folder;
  const std::string path = folder.put("t.csv", "text,joy,\"fear\"\na,1,\nc,0.5,0\n");
  for (const char* op : {"mse_loss", "binary_loss"}) {
    SCOPED_TRACE(op);
    const Recipe recipe = recipe_of(data_of(folder, path), 4, {{"op", op}});
    const auto data = open_dataset(recipe, Split::kTraining);
    EXPECT_EQ(data->class_names(), (std::vector<std::string>{"joy", "fear"}));
    const auto batch = fill<float>(*data, recipe);
    EXPECT_EQ(batch.labels[0], 1);
    EXPECT_TRUE(std::isnan(batch.labels[1]));
    EXPECT_EQ(batch.labels[2], 0.5f);
    EXPECT_EQ(batch.labels[3], 0);
    EXPECT_EQ(data->labelled_in_step(0), 3u);
  }
}

// The length of a text shows which sample it is: sample n has n % 7 + 1 tokens of its own, and
// class n % 3.
TEST(TextData, EachSampleIsTrainedOnOrHeldOutWithItsLabel) {
  const TextFolder folder;
  std::string lines = "text,class\n";
  for (int n = 0; n < 42; ++n) {
    for (int i = 0; i <= n % 7; ++i) lines += "a ";
    lines += "," + std::to_string(n % 3) + "\n";
  }
  const Recipe recipe = recipe_of(data_of(folder, folder.put("t.csv", lines), {{"held_out", 0.25}}), 9,
                                  {{"op", "loss_head"}, {"classes", 3}}, 8, 1);
  const auto training = open_dataset(recipe, Split::kTraining), evaluation = open_dataset(recipe, Split::kEvaluation);
  EXPECT_EQ(training->size() + evaluation->size(), 42u);
  EXPECT_TRUE(evaluation->size() == 10 || evaluation->size() == 11) << "of each four one, and of the last two perhaps";
  std::multiset<std::pair<int, int>> seen, wanted;
  for (int n = 0; n < 42; ++n) wanted.insert({n % 7 + 1, n % 3});
  for (Dataset* set : {training.get(), evaluation.get()}) {
    for (uint64_t step = 0; step < set->size(); ++step) {
      const auto batch = fill(*set, recipe, step);
      seen.insert({static_cast<int>(std::count(batch.tokens.begin(), batch.tokens.end(), kA)), batch.labels[0]});
    }
  }
  EXPECT_EQ(seen, wanted);
}

TEST(TextData, DamageIsRefusedByItsPlace) {
  const TextFolder folder;
  const auto refused = [&](const std::string& path, std::initializer_list<std::string> fragments,
                           const json& more = json::object(), int length = 5, int rows = 8) {
    expect_user_error(
        [&] {
          open_dataset(recipe_of(data_of(folder, path, more), length, {{"op", "loss_head"}, {"classes", 3}}, rows),
                       Split::kTraining);
        },
        fragments);
  };
  refused(folder.put("a.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\", \"lable\": 1}\n"),
          {"a.jsonl, line 2", "no \"label\"", "null"});
  refused(folder.put("a.jsonl", "{\"text\": [\"a\"], \"label\": 1}\n"),
          {"line 1", "\"text\" is [\"a\"]", "must be a text"});
  refused(folder.put("a.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \n"), {"line 2"});
  refused(folder.put("a.csv", "text,class\na,1\n\xff,2\n"), {"a.csv, line 3", "text", "UTF-8"});
  refused(folder.put("a.csv", "text,class\na,x\na,y\na,z\na,w\n"), {"line 5", "class 4 of the table", "3 apart"});
  refused(folder.put("a.csv", "text,n,class\na,1,2\n"),
          {"line 2", "3 columns", "a text and its class", "data.columns"});
  refused(folder.put("a.csv", "text,n,class\na,1,2\n"), {"line 2", "\"kind\"", "it has \"text\", \"n\", \"class\""},
          {{"columns", {"text", "kind"}}});
  const std::string good = folder.put("a.csv", "text,class\na,0\n");
  refused(good, {"ids up to 7", "7 rows", "model's own tokenizer"}, json::object(), 5, 7);
  refused(good, {"no room", "2 tokens"}, json::object(), 2);
  refused(good, {"2 tokens around a text", "may be 1"}, json::object(), 1);
  refused(good, {"none", "cannot be opened"}, {{"tokenizer", folder.file("none")}});
  json without = data_of(folder, good);
  without.erase("tokenizer");
  expect_user_error([&] { recipe_of(without); }, {"data.tokenizer", "missing"});
  expect_user_error(
      [&] {
        recipe_of({{"kind", "synthetic"}, {"columns", {"a"}}});
      },
      {"data.columns", "\"csv\" or \"texts\""});
}

// ---- two texts in one row ----

// Returns a recipe of a net that reads token types unless `types` is 0. A row has at most `length`
// tokens, and a batch has two rows.
Recipe recipe_of_rows(const json& data, int length, int types,
                      const json& loss = {{"op", "loss_head"}, {"name", "loss"}, {"classes", 2}}) {
  json nodes = {{{"op", "embedding"}, {"name", "words"}, {"rows", 8}, {"features", 2}}};
  if (types > 0) {
    nodes.push_back({{"op", "embedding"}, {"name", "kinds"}, {"rows", types}, {"features", 2}, {"inputs", {"types"}}});
    nodes.push_back({{"op", "add"}, {"name", "sum"}, {"inputs", {"words", "kinds"}}});
  }
  nodes.push_back({{"op", "global_pool"}, {"name", "pool"}, {"masked", true}});
  nodes.push_back(loss);
  const json model = {{"family", "net"}, {"text", {{"length", length}, {"pad", kPad}}}, {"nodes", nodes}};
  return parse_recipe(json{{"model", model}, {"data", data}, {"batch", 2}, {"seed", 7}}.dump(), "rows.json", "/");
}

struct RowBatch {
  std::vector<int32_t> tokens, types, starts, labels;
};
RowBatch fill_rows(Dataset& data, const Recipe& recipe) {
  const auto count = 2 * static_cast<size_t>(describe_model(recipe.model).text_length);
  RowBatch filled{std::vector<int32_t>(count), std::vector<int32_t>(count, -1), std::vector<int32_t>(count),
                  std::vector<int32_t>(2)};
  const bool reads_types = describe_model(recipe.model).token_types > 0;
  BatchSink sink =
      host_sink(filled.tokens.data(), count * sizeof(int32_t), filled.labels.data(), 2, filled.starts.data(), nullptr,
                0, count / 2, label_form(recipe).stored, reads_types ? filled.types.data() : nullptr);
  data.fill(0, 0, sink);
  EXPECT_TRUE(sink.status().ok()) << sink.status().message;
  return filled;
}

TEST(TextRows, TwoTextsStandBetweenThoseOfTheModelWithTheirTypes) {
  const TextFolder folder;
  const std::vector<std::pair<std::string, json>> tables = {
      {folder.put("a.csv", "text,text_pair,label\na c,b,1\nc,,0\n"), json::object()},
      {folder.put("b.csv", "text_pair,label,text\nb,1,a c\n,0,c\n"), json::object()},
      {folder.put("c.csv", "n,label,one,two\n9,1,a c,b\n9,0,c,\n"), {{"columns", {"one", "two", "label"}}}},
      {folder.put("d.jsonl",
                  "{\"text_pair\": \"b\", \"text\": \"a c\", \"label\": 1}\n{\"text\": \"c\", \"text_pair\": null, "
                  "\"label\": 0}\n"),
       json::object()}};
  for (const auto& [path, more] : tables) {
    SCOPED_TRACE(path);
    const Recipe recipe = recipe_of_rows(data_of(folder, path, more), 7, 2);
    const RowBatch batch = fill_rows(*open_dataset(recipe, Split::kTraining), recipe);
    EXPECT_EQ(batch.tokens,
              (std::vector<int32_t>{kCls, kA, kC, kSep, kB, kSep, kPad, kCls, kC, kSep, kSep, kPad, kPad, kPad}));
    EXPECT_EQ(batch.types, (std::vector<int32_t>{0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0}));
    EXPECT_EQ(batch.starts, (std::vector<int32_t>{0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 4, 4, 4}));
    EXPECT_EQ(batch.labels, (std::vector<int32_t>{1, 0}));
    const Recipe blind = recipe_of_rows(data_of(folder, path, more), 7, 0);
    EXPECT_EQ(fill_rows(*open_dataset(blind, Split::kTraining), blind).tokens, batch.tokens) << "a net without types";
  }
}

TEST(TextRows, TheLongerTextIsCutFirst) {
  const TextFolder folder;
  const std::string path = folder.put("a.csv", "text,text_pair,label\na,c c c c c,1\nc b b,a a a a,0\n");
  const Recipe recipe = recipe_of_rows(data_of(folder, path), 7, 2);
  const auto data = open_dataset(recipe, Split::kTraining);
  EXPECT_EQ(fill_rows(*data, recipe).tokens,
            (std::vector<int32_t>{kCls, kA, kSep, kC, kC, kC, kSep, kCls, kC, kB, kSep, kA, kA, kSep}));
  EXPECT_EQ(data->warnings(),
            (std::vector<std::string>{path + ": 2 of 2 texts are longer than the net's 7 tokens, and are cut at their "
                                             "end, of a pair the longer text first"}));
}

TEST(TextRows, SinglesOfANetWithTypesAreOfTheFirst) {
  const TextFolder folder;
  const Recipe recipe = recipe_of_rows(data_of(folder, folder.put("a.csv", "text,label\na,1\nb,0\n")), 4, 2);
  EXPECT_EQ(fill_rows(*open_dataset(recipe, Split::kTraining), recipe).types, std::vector<int32_t>(8));
}

TEST(TextRows, OfTensorsTypesStandBesideTokens) {
  const TextFolder folder;
  const std::string path = folder.file("t.safetensors");
  const auto write = [&](const std::vector<int64_t>& types, const std::string& name = "token_types") {
    const std::vector<int64_t> tokens = {2, 4, 3, 7, 2, 3, 0, 0}, labels = {1, 0};
    SafetensorsWriter writer(path);
    writer.declare("labels", StoredType::kI64, {2});
    writer.declare(name, StoredType::kI64, {2, 4});
    writer.declare("tokens", StoredType::kI64, {2, 4});
    for (const auto* numbers : {&labels, &types, &tokens})
      writer.write(numbers->data(), numbers->size() * sizeof(int64_t));
    writer.finish();
  };
  const Recipe recipe = recipe_of_rows({{"kind", "tensors"}, {"path", path}, {"shuffle", false}}, 4, 3);
  write({0, 0, 1, 2, 1, 0, 1, 1});
  EXPECT_EQ(fill_rows(*open_dataset(recipe, Split::kTraining), recipe).types,
            (std::vector<int32_t>{0, 0, 1, 2, 1, 0, 0, 0}));
  write({0, 0, 1, 3, 1, 0, 1, 1});
  expect_user_error([&] { open_dataset(recipe, Split::kTraining); },
                    {path, "\"token_types\"", "of sample 0 one is 3", "from 0 to 2"});
  write({0, 0, 1, 2, 1, 0, 1, 1}, "token_type_ids");  // the name that transformers uses
  expect_user_error([&] { open_dataset(recipe, Split::kTraining); },
                    {path, "\"token_type_ids\"", "must be named \"token_types\""});
}

TEST(TextRows, DamageIsRefusedByItsPlace) {
  const TextFolder folder;
  const auto refused = [&](const std::string& table, std::initializer_list<std::string> fragments, int length = 7,
                           int types = 2) {
    const std::string path = folder.put("a.csv", table);
    expect_user_error([&] { open_dataset(recipe_of_rows(data_of(folder, path), length, types), Split::kTraining); },
                      fragments);
  };
  const std::string good = "text,text_pair,label\na,b,1\n";
  refused(good, {"a.csv, line 2", "types up to 1", "the net tells 1 apart"}, 7, 1);
  refused(good, {"a.csv, line 2", "3 tokens around a pair of texts", "may be 4"}, 4);
  refused("text,other,label\na,b,1\n", {"line 2", "3 columns", "data.columns", "\"text_pair\""});
  refused("text,text_pair,label\na,b,1\na,\xff,1\n", {"line 3", "not UTF-8"});
}

TEST(TextRows, GivenOnesAreTheColumnsOfTheTraining) {
  const TextFolder folder;
  const Recipe named = recipe_of_rows(data_of(folder, "/unused", {{"columns", {"one", "two", "label"}}}), 7, 2);
  const auto set = open_unlabelled(named, {folder.put("a.csv", "two,one\nb,a c\n,c\n")});
  ASSERT_EQ(set->samples().size(), 2u);
  EXPECT_EQ(set->samples()[0].text, "a c");
  EXPECT_EQ(set->samples()[0].text_pair, "b");
  const RowBatch batch = fill_rows(*set, named);
  EXPECT_EQ(batch.tokens,
            (std::vector<int32_t>{kCls, kA, kC, kSep, kB, kSep, kPad, kCls, kC, kSep, kSep, kPad, kPad, kPad}));
  EXPECT_EQ(batch.types, (std::vector<int32_t>{0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0}));
  expect_user_error([&] { open_unlabelled(named, {folder.put("b.jsonl", "{\"one\": \"a\"}\n")}); },
                    {"b.jsonl, line 1", "\"two\"", "second one"});
  expect_user_error([&] { open_unlabelled(named, {folder.put("b.txt", "a\n")}); },
                    {"b.txt", "each line is one text", "\"one\" and \"two\""});
  const Recipe usual = recipe_of_rows(data_of(folder, "/unused"), 7, 2);
  const auto mixed =
      open_unlabelled(usual, {folder.put("c.jsonl", "{\"text_pair\": \"b\", \"text\": \"a c\"}\n{\"text\": \"c\"}\n")});
  EXPECT_EQ(mixed->samples()[0].text_pair, "b");
  EXPECT_EQ(mixed->samples()[1].text_pair, std::nullopt);
  EXPECT_EQ(fill_rows(*mixed, usual).types, (std::vector<int32_t>{0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}));
}

// ---- the recipe of an import ----

TEST(TextImport, NamesTheTokenizerBesideTheModelOrTheOneThatIsGiven) {
  const TextFolder folder;
  std::filesystem::copy_file("tests/golden/nets/minilm.old.onnx", folder.file("net.onnx"));
  std::filesystem::create_directories(folder.file("other"));
  std::filesystem::copy_file(folder.file("vocab.txt"), folder.file("other/vocab.txt"));
  const std::string path = folder.put("t.csv", "text,class\nab c,1\nc,0\n");
  const auto tokenizer_of = [&](const std::string& given, const std::string& kind) {
    import_net({.file = folder.file("net.onnx"),
                .recipe = folder.file("net.json"),
                .request = {},
                .freeze = {},
                .data_kind = kind,
                .data_path = kind == "synthetic" ? "" : path,
                .tokenizer = given});
    const Recipe recipe = read_recipe(folder.file("net.json"));
    if (kind != "synthetic") {
      const auto batch = first_batch(recipe);
      EXPECT_EQ(std::vector<int32_t>(batch.tokens.begin(), batch.tokens.begin() + 6),
                batch.labels[0] == 1 ? (std::vector<int32_t>{kCls, kA, kMoreB, kC, kSep, kPad})
                                     : (std::vector<int32_t>{kCls, kC, kSep, kPad, kPad, kPad}));
    }
    return recipe.data.tokenizer;
  };
  EXPECT_TRUE(std::filesystem::equivalent(tokenizer_of("", "texts"), folder.path()));
  EXPECT_TRUE(std::filesystem::equivalent(tokenizer_of("", "csv"), folder.path()));
  EXPECT_EQ(tokenizer_of("", "synthetic"), "");
  EXPECT_EQ(tokenizer_of(folder.file("other/vocab.txt"), "texts"), folder.file("other/vocab.txt"));
  expect_user_error([&] { tokenizer_of(folder.file("other"), "synthetic"); }, {"data.tokenizer", "leave it out"});
  std::filesystem::remove(folder.file("vocab.txt"));
  expect_user_error([&] { tokenizer_of("", "texts"); }, {"net.onnx", "--tokenizer", "vocab.txt"});
}

// ---- texts without labels ----

TEST(GivenTexts, AreTheLinesOfATextAndTheRecordsOfOthers) {
  const TextFolder folder;
  const Recipe recipe = recipe_of(data_of(folder, "/unused", {{"columns", {"verse", "book"}}}), 4);
  const auto set =
      open_unlabelled(recipe, {folder.put("a.txt", "a\r\n\n  \nc b\n"), folder.put("b.csv", "book,verse\nx,b\n"),
                               folder.put("c.jsonl", "{\"n\": 1, \"text\": \"c\"}\n"),
                               folder.put("d.json", "[{\"words\": \"a\"}]")});
  ASSERT_EQ(set->samples().size(), 5u);
  EXPECT_EQ(set->samples()[1].place, folder.file("a.txt") + ", line 4");
  EXPECT_EQ(set->samples()[1].text, "c b");
  EXPECT_EQ(set->samples()[2].place, folder.file("b.csv") + ", line 2");
  EXPECT_EQ(set->samples()[4].file, folder.file("d.json"));
  EXPECT_EQ(set->micro_batches(), 3u);
  const auto first = fill(*set, recipe), last = fill(*set, recipe, 2);
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{kCls, kA, kSep, kPad, kCls, kC, kB, kSep}));
  EXPECT_EQ(first.labels, (std::vector<int32_t>{kIgnoredLabel, kIgnoredLabel}));
  EXPECT_EQ(last.tokens, (std::vector<int32_t>{kCls, kA, kSep, kPad, kPad, kPad, kPad, kPad}));
}

TEST(GivenTexts, WhatIsNoneIsNamed) {
  const TextFolder folder;
  const Recipe recipe = recipe_of(data_of(folder, "/unused"));
  const auto set = open_unlabelled(recipe, {folder.put("a.txt", "a\n\xff\nc\n")});
  ASSERT_EQ(set->samples().size(), 3u);
  EXPECT_EQ(set->samples()[0].fault, "");
  EXPECT_NE(set->samples()[1].fault.find("a.txt, line 2: text: not UTF-8"), std::string::npos)
      << set->samples()[1].fault;
  const auto refused = [&](const std::string& path, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { open_unlabelled(recipe, {path}); }, fragments);
  };
  refused(folder.put("b.txt", "\n\n"), {"b.txt", "--predict", "no text"});
  refused(folder.put("b.jsonl", "{\"text\": 3}\n"), {"b.jsonl, line 1", "no text"});
  refused(folder.put("b.jsonl", "{\"text\": \"a\"}\n3\n"), {"b.jsonl, line 2", "no text"});
  refused(folder.file("none.txt"), {"none.txt", "cannot be opened"});
}

}  // namespace
}  // namespace reprise::test
