// Compares ids with those of other tokenizers: Hugging Face's ids of small tokenizers, of WordPiece
// and of SmolLM2, and llama.cpp's public cases. A model that gets other ids than in its training
// still answers, but badly.
#include <gtest/gtest.h>
#include <unicode/utf8.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/texts/small_tokenizer.h"
#include "tools/files/tokenizer/bert_text.h"
#include "tools/files/tokenizer/cut.h"
#include "tools/files/tokenizer/pre_tokenizers.h"
#include "tools/files/tokenizer/tokenizer.h"
#include "tools/files/weights/tokenizer_texts.h"

namespace reprise {
namespace {

using nlohmann::json;

std::string data_folder() { return std::string(std::getenv("BUILD") != nullptr ? std::getenv("BUILD") : "build") + "/data/"; }

std::unique_ptr<Tokenizer> opened(const json& tokenizer) {
  const TemporaryFolder folder;
  put_file(folder.file("tokenizer.json"), tokenizer.dump());
  return Tokenizer::open(folder.path());
}

void expect_cases(const Tokenizer& tokenizer, const std::vector<TokenizedText>& cases) {
  EXPECT_GE(cases.size(), 40u);
  for (const TokenizedText& each : cases) {
    EXPECT_EQ(tokenizer.encode(each.text, false), each.ids) << json(each.text).dump(-1, ' ', true);
    EXPECT_EQ(tokenizer.encode(each.text, true), each.ids_with_control) << json(each.text).dump(-1, ' ', true);
  }
}

void expect_same_text(const Tokenizer& tokenizer, const std::vector<TokenizedText>& cases) {
  for (const TokenizedText& each : cases) EXPECT_EQ(tokenizer.decode(each.ids), each.text);
}

TEST(TokenizerGolden, IdsAreThoseOfHuggingFaceForEveryWayToCut) {
  const auto all = small_tokenizers();
  EXPECT_EQ(all.size(), 20u);
  for (const auto& [name, small] : all) {
    SCOPED_TRACE(name);
    expect_cases(*opened(small.json), small.cases);
  }
}

TEST(TokenizerGolden, DecodedIdsAreTheText) {
  const auto all = small_tokenizers();
  for (const char* name : {"gpt2", "smollm", "digit_runs", "llama3"}) {
    SCOPED_TRACE(name);
    expect_same_text(*opened(all.at(name).json), all.at(name).cases);
  }
}

// A U+2581 in the text becomes a space, as in Hugging Face's decoders. A space at the beginning of
// a text is lost if the tokenizer does not put a space there.
TEST(TokenizerGolden, DecodedIdsOfCharactersAreTheTextWithoutMarks) {
  const auto all = small_tokenizers();
  for (const char* name : {"llama2", "phi3", "mistral", "metaspace", "gemma"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = opened(all.at(name).json);
    const bool loses_space = name == std::string("mistral") || name == std::string("metaspace");
    for (TokenizedText each : all.at(name).cases) {
      for (size_t at; (at = each.text.find("\u2581")) != std::string::npos;) each.text.replace(at, 3, " ");
      if (loses_space && each.text.starts_with(' ')) each.text.erase(0, 1);
      EXPECT_EQ(tokenizer->decode(each.ids), each.text);
    }
  }
}

TEST(TokenizerGolden, MergesInTheOlderFormAreTheSame) {
  SmallTokenizer small = small_tokenizers().at("gpt2");
  for (json& merge : small.json["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  expect_cases(*opened(small.json), small.cases);
}

// Two texts in one row, with their expected ids.
struct PairCase {
  std::string first, second;
  size_t maximum;
  std::vector<int32_t> ids;
  std::vector<uint8_t> types;
};

// Returns a tokenizer and its cases for each way to join two texts. The key is the name of the way.
std::map<std::string, std::pair<json, std::vector<PairCase>>> pair_goldens() {
  std::map<std::string, std::pair<json, std::vector<PairCase>>> goldens;
  std::ifstream file("tests/golden/tokenizer/pairs.jsonl");
  std::vector<PairCase>* cases = nullptr;
  for (std::string line; std::getline(file, line);) {
    const json value = json::parse(line);
    if (value.is_array()) {
      cases->push_back({value[0], value[1], value[2], value[3], value[4]});
      continue;
    }
    auto& [tokenizer, of_it] = goldens[value.at("variant")];
    tokenizer = value.at("of") == "gpt2" ? small_tokenizers().at("gpt2").json : piece_tokenizers().at(value.at("of")).json;
    tokenizer["post_processor"] = value.at("post_processor");
    cases = &of_it;
  }
  return goldens;
}

size_t count_equal(const Tokenizer& tokenizer, const std::vector<PairCase>& cases) {
  return static_cast<size_t>(std::count_if(cases.begin(), cases.end(), [&](const PairCase& each) {
    const TokenRow row = tokenizer.encode_pair(each.first, each.second, each.maximum);
    return row.ids == each.ids && row.types == each.types;
  }));
}

TEST(TokenizerGolden, TwoTextsInOneRowAreThoseOfTransformers) {
  const auto all = pair_goldens();
  EXPECT_EQ(all.size(), 6u);
  for (const auto& [name, golden] : all) {
    EXPECT_EQ(golden.second.size(), 80u) << name;
    const auto tokenizer = opened(golden.first);
    for (const PairCase& each : golden.second) {
      bool is_cut = false;
      const TokenRow row = tokenizer->encode_pair(each.first, each.second, each.maximum, &is_cut);
      EXPECT_EQ(row.ids, each.ids) << name << " " << json({each.first, each.second, each.maximum}).dump(-1, ' ', true);
      EXPECT_EQ(row.types, each.types) << name;
      EXPECT_EQ(is_cut, tokenizer->encode_pair(each.first, each.second, 10000).ids.size() > each.maximum) << name;
    }
  }
}

TEST(TokenizerGolden, AnotherWayToJoinTwoTextsGivesOtherRows) {
  const auto all = pair_goldens();
  for (const char* judge : {"bert", "roberta_processing", "second_first", "none"}) {
    for (const char* mutant : {"bert", "roberta_processing", "second_first", "none"}) {
      if (mutant == std::string(judge)) continue;
      EXPECT_LE(count_equal(*opened(all.at(mutant).first), all.at(judge).second), 5u) << mutant << " judged by " << judge;
    }
  }
}

// Checks the goldens themselves: every other tokenizer must give other ids for at least `minimum`
// texts of each golden.
template <typename All, size_t N>
void expect_judges(const All& all, const char* const (&names)[N], size_t minimum) {
  for (const char* judge : names) {
    for (const char* mutant : names) {
      if (mutant == judge) continue;
      const auto tokenizer = opened(all.at(mutant).json);
      size_t differ = 0;
      for (const TokenizedText& each : all.at(judge).cases) differ += tokenizer->encode(each.text, false) != each.ids;
      EXPECT_GE(differ, minimum) << mutant << " judged by " << judge;
    }
  }
}

// The golden of each pre-tokenizer must reject the other pre-tokenizers, because a wrong cut
// changes some ids.
TEST(TokenizerGolden, AnotherPreTokenizerGivesOtherIds) {
  const auto all = small_tokenizers();
  const char* const names[] = {"gpt2",          "smollm",         "digit_runs", "llama3",           "qwen2",
                               "other_pattern", "split_previous", "split_next", "split_contiguous", "punctuation"};
  expect_judges(all, names, 3);
}

TEST(TokenizerGolden, GgufFilesOfTheSameVocabularyGiveTheSameIds) {
  const auto all = small_tokenizers();
  const TemporaryFolder folder;
  for (const auto& [name, pre] : {std::pair{"gpt2", "gpt-2"}, {"smollm", "smollm"}, {"smollm", "starcoder"}, {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}}) {
    SCOPED_TRACE(pre);
    const std::string path = folder.file(std::string(pre) + ".gguf");
    write_gguf_tokenizer(path, all.at(name).json, pre);
    const auto tokenizer = Tokenizer::open(path);
    expect_cases(*tokenizer, all.at(name).cases);
    EXPECT_EQ(tokenizer->adds_bos(), std::string(pre) == "llama-bpe");
    EXPECT_EQ(tokenizer->eos(), 5);
    EXPECT_EQ(tokenizer->bos(), static_cast<int32_t>(tokenizer->vocabulary()) - 1);
    EXPECT_EQ(tokenizer->pad(), std::nullopt);
  }
}

TEST(TokenizerGolden, GgufFilesWithScoresGiveTheIdsOfMerges) {
  const auto all = small_tokenizers();
  const TemporaryFolder folder;
  const std::string path = folder.file("scores.gguf");
  write_gguf_characters(path, all.at("llama2").json, true);
  expect_cases(*Tokenizer::open(path), all.at("llama2").cases);
  expect_same_text(*Tokenizer::open(path), {{"  a b \n\u6f22 c", Tokenizer::open(path)->encode("  a b \n\u6f22 c", false), {}}});
  // The files of an export give the same ids.
  const TokenizerTexts texts = tokenizer_texts(read_tokenizer_gguf(path), {});
  put_file(folder.file("tokenizer.json"), texts.tokenizer);
  put_file(folder.file("tokenizer_config.json"), texts.config);
  const auto exported = Tokenizer::open(folder.path());
  expect_cases(*exported, all.at("llama2").cases);
  EXPECT_TRUE(exported->adds_bos());
  EXPECT_EQ(exported->bos(), 1);
  EXPECT_EQ(exported->eos(), 2);
  write_gguf_characters(path, all.at("gemma").json, false);
  expect_same_text(*Tokenizer::open(path), {{" a b", Tokenizer::open(path)->encode(" a b", false), {}}});
}

// For each pre-tokenizer that a GGUF file may name, an export writes the rule in full. Both must
// cut texts in the same way.
TEST(TokenizerGolden, ExportedCutsAreThoseOfTheName) {
  const SmallTokenizer small = small_tokenizers().at("gpt2");
  const TemporaryFolder folder;
  const std::string path = folder.file("named.gguf");
  size_t differ = 0;
  for (const std::string& word : pre_tokenizer_words()) {
    SCOPED_TRACE(word);
    write_gguf_tokenizer(path, small.json, word);
    put_file(folder.file("tokenizer.json"), tokenizer_texts(read_tokenizer_gguf(path), {}).tokenizer);
    const auto named = Tokenizer::open(path), spelled = Tokenizer::open(folder.path());
    for (const TokenizedText& each : small.cases) {
      EXPECT_EQ(spelled->encode(each.text, false), named->encode(each.text, false)) << each.text;
      differ += named->encode(each.text, false) != each.ids;
    }
  }
  EXPECT_GE(differ, 200u) << "the names mean other cuts than GPT-2's";
}

// Returns a text of `count` parts: random pieces, and as every fourth part a random character.
// tests/parity/tokenizer_parity.py generates the same text.
std::string generated_text(const std::vector<std::string>& pieces, int count) {
  uint64_t state = 16;
  const auto draw = [&](uint64_t below) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return (state >> 33) % below;
  };
  std::string text;
  for (int n = 0; n < count; ++n) {
    if (n % 4 != 3) {
      text += pieces[draw(pieces.size())];
      continue;
    }
    const auto drawn = static_cast<uint32_t>(draw(0x110000 - 0x800));
    const uint32_t code = drawn < 0xD800 ? drawn : drawn + 0x800;
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr uint8_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
    text += static_cast<char>(kLead[more] | code >> 6 * more);
    for (int left = more - 1; left >= 0; --left) text += static_cast<char>(0x80 | (code >> 6 * left & 0x3F));
  }
  return text;
}

TEST(TokenizerGolden, IdsOfSmolLm2AreThoseOfHuggingFace) {
  const std::string path = data_folder() + "smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "SmolLM2's file is not there: " << path;
  const auto tokenizer = Tokenizer::open(path);
  EXPECT_EQ(tokenizer->vocabulary(), 49152u);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_EQ(tokenizer->pad(), 2);
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->token(2), "<|im_end|>");
  EXPECT_TRUE(tokenizer->is_control(2));
  EXPECT_FALSE(tokenizer->is_control(49151));
  std::ifstream file("tests/golden/tokenizer/smollm2.jsonl");
  std::string line;
  std::getline(file, line);
  const json generated = json::parse(line);
  expect_cases(*tokenizer, read_cases(file, &line));
  const std::string text = generated_text(generated.at("pieces"), generated.at("count"));
  ASSERT_EQ(text.size(), generated.at("bytes").get<size_t>());
  const std::vector<int32_t> ids = tokenizer->encode(text, false);
  EXPECT_EQ(ids.size(), generated.at("ids").get<size_t>());
  EXPECT_EQ(crc32(0, reinterpret_cast<const Bytef*>(ids.data()), static_cast<uInt>(ids.size() * sizeof ids[0])), generated.at("crc32").get<uLong>());
}

// ---- WordPiece ----

TEST(WordPieces, IdsAreThoseOfHuggingFaceForEveryKindOfModel) {
  const auto all = piece_tokenizers();
  EXPECT_EQ(all.size(), 10u);
  for (const auto& [name, pieces] : all) {
    SCOPED_TRACE(name);
    const auto tokenizer = opened(pieces.json);
    expect_cases(*tokenizer, pieces.cases);
    EXPECT_GE(pieces.whole.size(), 20u);
    for (const json& each : pieces.whole)
      EXPECT_EQ(tokenizer->encode_whole(each[0].get<std::string>(), each[1]), each[2].get<std::vector<int32_t>>())
          << each.dump(-1, ' ', true);
    for (const json& each : pieces.decoded)
      EXPECT_EQ(tokenizer->decode(each[0].get<std::vector<int32_t>>()), each[1].get<std::string>()) << each.dump(-1, ' ', true);
  }
}

TEST(WordPieces, LongTextGivesTheIdsOfHuggingFace) {
  const auto all = piece_tokenizers();
  const json& generated = all.at("uncased").generated;
  const std::string text = generated_text(generated.at("pieces"), generated.at("count"));
  ASSERT_EQ(text.size(), generated.at("bytes").get<size_t>());
  const std::vector<int32_t> ids = opened(all.at("uncased").json)->encode(text, false);
  EXPECT_EQ(ids.size(), generated.at("ids").get<size_t>());
  EXPECT_EQ(crc32(0, reinterpret_cast<const Bytef*>(ids.data()), static_cast<uInt>(ids.size() * sizeof ids[0])),
            generated.at("crc32").get<uLong>());
}

// The golden of each variant must reject the other variants, because a wrong flag changes some ids.
// Variants with the same normaliser are omitted.
TEST(WordPieces, AnotherNormalizerOrRuleGivesOtherIds) {
  const auto all = piece_tokenizers();
  const char* const names[] = {"uncased",       "cased",         "keeps_accents", "strips_alone",
                               "joins_chinese", "no_normalizer", "no_cut",        "other_prefix"};
  expect_judges(all, names, 1);
}

// Each character is between an a and a b, so that no combining mark is moved past another.
TEST(WordPieces, EveryCharacterIsNormalisedAndPartedAsByHuggingFace) {
  std::string text;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    char bytes[U8_MAX_LENGTH];
    size_t count = 0;
    U8_APPEND_UNSAFE(bytes, count, code);
    text.append("a").append(bytes, count).append("b");
  }
  const auto sum_of = [](std::string_view bytes) {
    return crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
  };
  const json sums = character_sums();
  const std::pair<const char*, bool BertRules::*> flags[] = {{"clean_text", &BertRules::cleans},
                                                             {"handle_chinese_chars", &BertRules::parts_chinese},
                                                             {"strip_accents", &BertRules::strips_accents},
                                                             {"lowercase", &BertRules::lowers}};
  for (const auto& [name, flag] : flags) {
    BertRules rules = {.cleans = false, .parts_chinese = false, .strips_accents = false, .lowers = false};
    rules.*flag = true;
    std::string buffer;
    EXPECT_EQ(sum_of(bert_text(rules, text, buffer)), sums.at(name).get<uLong>()) << name;
  }
  TokenizerFile file;
  file.cuts = {{Cut::kBertWords}};
  std::string pieces;
  Cutter(file).cut(text, [&](std::string_view piece) { pieces.append(pieces.empty() ? "" : "\n").append(piece); });
  EXPECT_EQ(sum_of(pieces), sums.at("pieces").get<uLong>());
}

// The vocabulary is in the form of BERT's vocab.txt, with the defaults of an uncased model.
// tokenizer_config.json may change the defaults.
TEST(WordPieces, LinesGiveTheIdsOfTheirTokenizer) {
  const auto all = piece_tokenizers();
  const TemporaryFolder folder;
  std::vector<std::string> names(all.at("uncased").json["model"]["vocab"].size());
  for (const auto& [name, id] : all.at("uncased").json["model"]["vocab"].items()) names.at(id.get<size_t>()) = name;
  std::string lines;
  for (const std::string& name : names) lines += name + "\n";
  put_file(folder.file("vocab.txt"), lines);
  const std::pair<const char*, const char*> configs[] = {
      {"uncased", ""},
      {"uncased", "{}"},
      {"cased", R"({"do_lower_case": false})"},
      {"keeps_accents", R"({"strip_accents": false})"},
      {"uncased", R"({"cls_token": {"content": "[CLS]"}, "pad_token": "[PAD]", "strip_accents": null})"}};
  for (const auto& [name, config] : configs) {
    SCOPED_TRACE(std::string(name) + " " + config);
    if (*config != '\0') put_file(folder.file("tokenizer_config.json"), config);
    const auto of_folder = Tokenizer::open(folder.path()), of_file = Tokenizer::open(folder.file("vocab.txt"));
    expect_cases(*of_folder, all.at(name).cases);
    expect_cases(*of_file, all.at(name).cases);
    for (const json& each : all.at(name).whole)
      EXPECT_EQ(of_file->encode_whole(each[0].get<std::string>(), each[1]), each[2].get<std::vector<int32_t>>());
    EXPECT_EQ(of_file->pad(), 0);
    EXPECT_EQ(of_file->bos(), 2);
    EXPECT_TRUE(of_file->is_control(2));
  }
}

// The texts are from llama.cpp's repository, and the ids are from the models' own tokenizers. There
// are 47 texts for each vocabulary, and 51 for one of them.
TEST(TokenizerGolden, EveryPublicCaseHolds) {
  const std::string folder = data_folder() + "vocabularies/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "PyPI's llama_cpp_python, which has the public cases, is not there: " << folder;
  const std::string between = "\n__ggml_vocab_test__\n";
  size_t held = 0;
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "starcoder", "llama-spm", "phi-3", "falcon", "mpt", "deepseek-llm", "deepseek-coder",
                           "command-r", "refact", "qwen35"}) {
    SCOPED_TRACE(name);
    const std::string path = folder + "ggml-vocab-" + name + ".gguf";
    const auto tokenizer = Tokenizer::open(path);
    std::ifstream texts_file(path + ".inp", std::ios::binary), ids_file(path + ".out");
    const std::string texts(std::istreambuf_iterator<char>(texts_file), {});
    for (size_t at = 0; at <= texts.size();) {
      const size_t end = std::min(texts.find(between, at), texts.size());
      const std::string text = texts.substr(at, end - at);
      std::string line;
      std::getline(ids_file, line);
      std::istringstream numbers(line);
      const std::vector<int32_t> ids(std::istream_iterator<int32_t>(numbers), {});
      EXPECT_EQ(tokenizer->encode(text, false), ids) << text;
      EXPECT_EQ(tokenizer->decode(ids), text);
      held += tokenizer->encode(text, false) == ids;
      at = end + between.size();
    }
  }
  EXPECT_EQ(held, 13 * 47u + 4);
}

}  // namespace
}  // namespace reprise
