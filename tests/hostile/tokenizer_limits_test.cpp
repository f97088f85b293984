// Tests tokenizers and texts that are made to take long. The time must be proportional to the text,
// or one line must name what is too long.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/tokenizer/characters.h"
#include "tools/files/tokenizer/split_pattern.h"
#include "tools/files/tokenizer/tokenizer.h"

namespace reprise {
namespace {

using Json = nlohmann::json;

// ---- normal forms ----

std::string utf8(const std::vector<uint32_t>& codes) {
  std::string text;
  for (const uint32_t code : codes) {
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else if (code < 0x800) {
      text += static_cast<char>(0xC0 | code >> 6);
      text += static_cast<char>(0x80 | (code & 0x3F));
    } else {
      text += static_cast<char>(0xE0 | code >> 12);
      text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
      text += static_cast<char>(0x80 | (code & 0x3F));
    }
  }
  return text;
}

// Marks with the combining classes 220, 230, 202 and 129 to 132. The Tibetan marks consist of two
// parts.
const std::vector<uint32_t> kMarks = {0x316, 0x301, 0x327, 0x344, 0xF73, 0xF71, 0xF72, 0x345, 0x300, 0x5B0};

// A long run of marks is sorted before ICU reads it. Its normal form must be that of a text in
// which each mark was decomposed alone.
TEST(LongMarks, HaveTheNormalFormThatICUGivesThem) {
  std::mt19937 random(60);
  for (int round = 0; round < 50; ++round) {
    std::vector<uint32_t> codes = {'x', 0xE9};
    for (int n = 0; n < 400; ++n) codes.push_back(kMarks[random() % kMarks.size()]);
    codes.push_back('y');
    // Decomposes each mark alone. Compares the results in form D, and then in form C.
    std::string buffer, of_each;
    std::string parts;
    for (const uint32_t code : codes) parts += std::string(decomposed(utf8({code}), of_each));
    const std::string long_form(decomposed(utf8(codes), buffer));
    std::string again;
    EXPECT_EQ(long_form, decomposed(parts, again));
    EXPECT_EQ(long_form.size(), parts.size());
    std::string first, second;
    EXPECT_EQ(composed(long_form, first), composed(utf8(codes), second));
  }
}

TEST(LongMarks, AMegabyteOfThemIsOrdered) {
  std::vector<uint32_t> codes = {'e'};
  for (int n = 0; n < 500000; ++n) codes.push_back(n % 2 == 0 ? 0x301 : 0x316);  // form D has 0x316 first
  std::string buffer;
  const std::string_view form = composed(utf8(codes), buffer);
  EXPECT_EQ(form.substr(0, 4), utf8({0xE9, 0x316}));
  EXPECT_EQ(form.substr(form.size() - 2), utf8({0x301}));
  EXPECT_EQ(form.size(), utf8(codes).size() - 1);
}

// ---- patterns ----

TEST(SplitLimits, APatternThatGoesBackAndForthIsRefused) {
  const std::string letters(200000, 'a');
  for (const char* pattern : {"(?:a|aa)+[b-y]"}) {
    const SplitPattern split(pattern, "t.json");
    expect_user_error(
        [&] {
          for (size_t at = 0; at < letters.size();) at = split.piece_at(letters, at).end;
        },
        {"t.json: pre_tokenizer: its regular expression"});
  }
  const SplitPattern words("\\p{L}+|\\s+", "t.json");
  std::string text;
  for (int n = 0; n < 200000; ++n) text += "word ";
  size_t pieces = 0;
  for (size_t at = 0; at < text.size(); ++pieces) at = words.piece_at(text, at).end;
  EXPECT_EQ(pieces, 400000u);
  EXPECT_EQ(words.piece_at(letters, 0).end, letters.size()) << "a long word is no fault";
}

// ---- vocabularies ----

Json byte_vocabulary() {
  Json vocabulary = Json::object();
  for (const char* name : {"a", "b", "ab"}) vocabulary[name] = vocabulary.size();
  return vocabulary;
}
Json tokenizer_json(const Json& added) {
  return {{"added_tokens", added},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"model", {{"type", "BPE"}, {"vocab", byte_vocabulary()}, {"merges", {"a b"}}}}};
}

TEST(VocabularyLimits, AddedTokensAreBounded) {
  const TemporaryFolder folder;
  const auto open = [&](const Json& added) {
    write_file(folder.file("tokenizer.json"), tokenizer_json(added).dump());
    return Tokenizer::open(folder.file("tokenizer.json"));
  };
  expect_user_error(
      [&] {
        open({{{"id", 3}, {"content", std::string(10 << 20, 'a')}}});
      },
      {"tokenizer.json: the added token 3, \"aaa", "must have at most 512"});
  Json many = Json::array();
  for (int n = 0; n < 20000; ++n) many.push_back({{"id", 3 + n}, {"content", "<extra" + std::to_string(n) + ">"}});
  EXPECT_EQ(open(many)->encode("<extra19999>ab", false), (std::vector<int32_t>{20002, 2}));
  many = Json::array();
  std::mt19937 random(60);
  for (int n = 0; n < 10000; ++n) {
    std::string text;
    for (int i = 0; i < 500; ++i) text += static_cast<char>('a' + random() % 26);
    many.push_back({{"id", 3 + n}, {"content", text}});
  }
  expect_user_error([&] { open(many); }, {"the added tokens have more than 4 MiB"});
}

TEST(VocabularyLimits, ALongWordIsCutInCountedTime) {
  const TemporaryFolder folder;
  write_file(folder.file("tokenizer.json"), tokenizer_json(Json::array()).dump());
  std::string word;
  for (int n = 0; n < 1000000; ++n) word += "ab";
  EXPECT_EQ(Tokenizer::open(folder.file("tokenizer.json"))->encode(word, false).size(), 1000000u);
}

TEST(VocabularyLimits, PiecesOfWordsAreShort) {
  const TemporaryFolder folder;
  write_file(folder.file("vocab.txt"), "[UNK]\n[CLS]\n[SEP]\n[PAD]\na\n" + std::string(300, 'b') + "\n");
  expect_user_error([&] { Tokenizer::open(folder.file("vocab.txt")); },
                    {"vocab.txt: the token 5", "has 300 bytes", "at most 256"});
}

TEST(VocabularyLimits, FilesAreBounded) {
  const TemporaryFolder folder;
  write_file(folder.file("tokenizer.json"), "{");
  std::filesystem::resize_file(folder.file("tokenizer.json"), uint64_t{1} << 33);
  expect_user_error([&] { Tokenizer::open(folder.file("tokenizer.json")); },
                    {"tokenizer.json: is no tokenizer", "larger than"});
  Json deep = tokenizer_json(Json::array());
  Json steps = Json::array();
  for (int n = 0; n < 1000; ++n) steps.push_back({{"type", "Digits"}});
  steps.push_back(deep["pre_tokenizer"]);
  deep["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  write_file(folder.file("tokenizer.json"), deep.dump());
  expect_user_error([&] { Tokenizer::open(folder.file("tokenizer.json")); }, {"pre_tokenizer", "at most 64"});
}

}  // namespace
}  // namespace reprise
