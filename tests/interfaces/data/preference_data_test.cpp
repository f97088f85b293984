// Tests records of preferences: the meaning of each form, refusals, and the keys of recipes for
// them. tests/runtime/preference_test.cpp compares the rows with those of trl.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/texts/small_tokenizer.h"
#include "tools/files/chat/preference_record.h"
#include "tools/files/formats/json_lines.h"
#include "tools/run/data/check_data.h"
#include "tools/run/data/dataset.h"

namespace reprise {
namespace {

using Json = nlohmann::ordered_json;

const char* const kModel = "tests/golden/preferences/models/llama";

Json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }
PreferenceRecord read(const Json& record, bool is_single = false) { return read_preference(record, is_single, "x"); }

TEST(PreferenceRecords, AreReadInEveryForm) {
  const PreferenceRecord texts = read({{"prompt", "a"}, {"chosen", " b"}, {"rejected", " c"}, {"margin", 3}});
  EXPECT_EQ(texts.prompt, "a");
  EXPECT_EQ(texts.answers[0], " b");
  EXPECT_EQ(texts.answers[1], " c");
  const Json user = message("user", "q"), good = message("assistant", "yes"), bad = message("assistant", "no");
  const PreferenceRecord lists = read({{"prompt", {user}}, {"chosen", {good}}, {"rejected", {bad}}});
  EXPECT_EQ(lists.prompt, Json({user}));
  EXPECT_EQ(lists.answers[1], Json({bad}));
  // The prompt is the common beginning of the answers, as in many published data sets. The record
  // may contain the text of the prompt in addition.
  for (const Json& record : {Json{{"chosen", {user, good}}, {"rejected", {user, bad}}},
                             Json{{"prompt", "q"}, {"chosen", {user, good}}, {"rejected", {user, bad}}}}) {
    const PreferenceRecord common = read(record);
    EXPECT_EQ(common.prompt, Json({user}));
    EXPECT_EQ(common.answers[0], Json({good}));
    EXPECT_EQ(common.answers[1], Json({bad}));
  }
  const PreferenceRecord common =
      read({{"chosen", "Human: q Assistant: good"}, {"rejected", "Human: q Assistant: great"}});
  EXPECT_EQ(common.prompt, "Human: q Assistant: g");
  EXPECT_EQ(common.answers[1], "reat");
  const PreferenceRecord at_space = read({{"chosen", "Human: q yes"}, {"rejected", "Human: q no"}});
  EXPECT_EQ(at_space.prompt, "Human: q");
  EXPECT_EQ(at_space.answers[0], " yes");
  EXPECT_EQ(read({{"chosen", "a \xc3\xa4"}, {"rejected", "a \xc3\xb6"}}).answers[0], " \xc3\xa4")
      << "not within a letter";
  EXPECT_EQ(read({{"prompt", "a"}, {"completion", "b"}, {"label", false}}, true).wish, -1);
  EXPECT_EQ(read({{"prompt", "a"}, {"completion", "b"}, {"label", "True"}}, true).wish, 1) << "CSV has texts";
}

TEST(PreferenceRecords, AreRefusedByField) {
  const auto refused = [](const Json& record, bool is_single, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { read(record, is_single); }, fragments);
  };
  refused(3, false, {"x: must be an object, not an integer"});
  refused({{"prompt", "a"}, {"chosen", "b"}}, false, {"x: rejected: missing"});
  refused({{"prompt", "a"}, {"chosen", "b"}, {"rejected", nullptr}}, false, {"x: rejected: missing"});
  refused({{"prompt", "a"}, {"chosen", "b"}, {"rejected", ""}}, false, {"x: rejected: is empty"});
  refused({{"prompt", "a"}, {"chosen", "b"}, {"rejected", Json::array()}}, false, {"x: rejected: is empty"});
  refused({{"prompt", "a"}, {"chosen", "b"}, {"rejected", 3}}, false,
          {"x: rejected: must be a text or a list of messages, not an integer"});
  refused({{"prompt", "a"}, {"chosen", "b"}, {"rejected", {message("assistant", "c")}}}, false,
          {"x: rejected: must be a text as \"chosen\" is"});
  refused({{"prompt", {message("user", "a")}}, {"chosen", "b"}, {"rejected", "c"}}, false,
          {"x: prompt: must be a text as the answers are"});
  refused({{"chosen", "b"}, {"rejected", "c"}}, false, {"x: prompt: missing", "nothing in common"});
  refused({{"chosen", "same"}, {"rejected", "same"}}, false, {"x: rejected: nothing but what \"chosen\" is"});
  refused({{"prompt", "a"}, {"completion", "b"}, {"label", true}}, false, {"x: chosen: missing", "\"kto\""});
  refused({{"prompt", "a"}, {"completion", "b"}}, true, {"x: label: missing"});
  refused({{"prompt", "a"}, {"completion", "b"}, {"label", 1}}, true,
          {"x: label: must be true or false, not an integer"});
  refused({{"prompt", "a"}, {"completion", {message("assistant", "b")}}, {"label", true}}, true,
          {"x: completion: must be a text as \"prompt\" is"});
}

class PreferenceData : public testing::Test {
 protected:
  Recipe recipe(const std::string& lines, const nlohmann::json& change = nlohmann::json::object()) const {
    put_file(folder.file("x.jsonl"), lines);
    nlohmann::json all = {{"model", {{"huggingface", std::filesystem::absolute(kModel).string()}}},
                          {"batch", 2},
                          {"sequence", 32},
                          {"loss", {{"kind", "orpo"}}},
                          {"data", {{"kind", "preferences"}, {"path", folder.file("x.jsonl")}, {"shuffle", false}}}};
    all.merge_patch(change);
    return parse_recipe(all.dump(), "r.json", "/");
  }

  const TemporaryFolder folder;
};

constexpr const char* kTwo =
    "{\"prompt\": \"a\", \"chosen\": \" b\", \"rejected\": \" cd\"}\n{\"prompt\": \"e\", \"chosen\": \" f\", "
    "\"rejected\": \" g\"}\n";
const std::string kLong = "{\"prompt\": \"" + std::string(30, 'a') + "\", \"chosen\": \" b\", \"rejected\": \" c\"}\n";

TEST_F(PreferenceData, WhatCannotBeTrainedOnIsNamedOrSkipped) {
  const std::string path = folder.file("x.jsonl");
  const auto refused = [&](const std::string& lines, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { open_dataset(recipe(lines), Split::kTraining); }, fragments);
  };
  refused(kTwo + kLong,
          {path +
               ", line 3: 66 tokens, of the prompt with each of its answers, are more than the recipe's sequence of 32",
           "\"skip\""});
  refused(
      "{\"prompt\": [{\"role\": \"user\"}], \"chosen\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"rejected\": "
      "[{\"role\": \"assistant\", \"content\": \"b\"}]}",
      {path + ", line 1: prompt[0].content: missing"});
  const Recipe skipping = recipe(kTwo + kLong, {{"data", {{"bad", "skip"}}}});
  const auto data = open_dataset(skipping, Split::kTraining);
  EXPECT_EQ(data->size(), 2u);
  ASSERT_EQ(data->warnings().size(), 1u);
  EXPECT_NE(data->warnings()[0].find("1 of 3 records cannot be trained on and are skipped"), std::string::npos)
      << data->warnings()[0];
  EXPECT_EQ(data->labelled_in_step(0), 2u) << "pairs";
  EXPECT_EQ(data->weight_in_step(0), 6) << "labels of the whole preferred texts, the first token's left out";
  expect_user_error([&] { look_at_data(recipe(kLong), true); }, {path + ", line 1: "});
  EXPECT_EQ(open_dataset(recipe(kTwo), Split::kEvaluation), nullptr);
}

// A row of KTO contains a prompt with its own completion and with the completion of the next
// sample.
TEST_F(PreferenceData, ACompletionTooLongForTheSampleBesideItIsNamedOrLeftOut) {
  const std::string path = folder.file("x.jsonl"), prompt(12, 'a'), completion(12, 'b');
  const std::string lines = "{\"prompt\": \"a\", \"completion\": \"" + completion +
                            "\", \"label\": true}\n{\"prompt\": \"" + prompt +
                            "\", \"completion\": \"b\", \"label\": false}\n";
  const nlohmann::json kto = {{"loss", {{"kind", "kto"}}}};
  const std::initializer_list<std::string> words = {path + ": sample 2: 39 tokens", "the sample beside it",
                                                    "sequence of 32", "\"skip\""};
  expect_user_error([&] { open_dataset(recipe(lines, kto), Split::kTraining); }, words);
  expect_user_error([&] { look_at_data(recipe(lines, kto), true); }, words);
  const Recipe skipping = recipe(lines, {{"loss", {{"kind", "kto"}}}, {"data", {{"bad", "skip"}}}});
  EXPECT_NO_THROW(look_at_data(skipping, true));
  const auto data = open_dataset(skipping, Split::kTraining);
  EXPECT_EQ(data->size(), 2u);
  ASSERT_EQ(data->warnings().size(), 1u);
  EXPECT_NE(data->warnings()[0].find("1 sample is not compared"), std::string::npos) << data->warnings()[0];
}

TEST_F(PreferenceData, LossAndDataGoTogether) {
  const auto refused = [&](const nlohmann::json& change, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { recipe(kTwo, change); }, fragments);
  };
  refused({{"loss", nullptr}}, {"data.kind", "\"loss\" and data of kind \"preferences\" go together"});
  refused({{"data", {{"kind", "chat"}}}}, {"loss", "go together"});
  refused({{"data", {{"train_on", "all"}}}}, {"data.train_on", "\"chat\""});
  refused({{"data", {{"too_long", "cut"}}}}, {"data.too_long", "\"chat\""});
  const nlohmann::json gpt2 = {{"model", {{"family", "gpt2"}, {"vocab_size", 264}, {"huggingface", nullptr}}}};
  expect_user_error([&] { recipe(kTwo, gpt2); }, {"data.kind", "need a model with a tokenizer"});
  refused({{"model", {{"family", "gpt2"}, {"vocab_size", 264}, {"huggingface", nullptr}}}, {"data", nullptr}},
          {"loss", "cannot be with this family"});
  refused({{"loss", {{"kind", "kto"}}}, {"batch", 1}}, {"batch", "2 at least", "kto"});
  const Recipe packed = recipe(kTwo, {{"data", {{"pack", true}}}});
  EXPECT_EQ(micro_batch_of(packed).pairs, 2 * 8);
  EXPECT_EQ(open_dataset(packed, Split::kTraining)->size(), 1u);
  EXPECT_EQ(parse_recipe(canonical_recipe(packed), "c.json", "/"), packed);
}

}  // namespace
}  // namespace reprise
