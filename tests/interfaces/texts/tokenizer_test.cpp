// Tests properties of tokenizers that no golden shows, and refused files and texts. The files come
// from the internet, and anybody may write the texts.
#include "tools/files/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/texts/small_tokenizer.h"
#include "tools/files/formats/gguf.h"
#include "tools/files/tokenizer/byte_alphabet.h"
#include "tools/files/tokenizer/characters.h"
#include "tools/files/tokenizer/space_mark.h"

namespace reprise {
namespace {

using nlohmann::json;

class TokenizerTest : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> open(const json& tokenizer, const json& config = nullptr) const {
    put_file(folder.file("tokenizer.json"), tokenizer.dump());
    if (!config.is_null()) put_file(folder.file("tokenizer_config.json"), config.dump());
    return Tokenizer::open(folder.path());
  }
  json with(const std::string& pointer, const json& value, const std::string& variant = "gpt2") const {
    json changed = all.at(variant).json;
    changed[json::json_pointer(pointer)] = value;
    return changed;
  }

  const TemporaryFolder folder;
  const std::map<std::string, SmallTokenizer> all = small_tokenizers();
};

// Returns random characters of every UTF-8 length. Words, numbers, spaces and control characters
// are next to each other.
std::string random_text(std::mt19937& draw, size_t characters) {
  std::string text;
  for (size_t n = 0; n < characters; ++n) {
    const auto below = [&](uint32_t end) { return static_cast<uint32_t>(draw() % end); };
    const uint32_t kinds[] = {below(128),   below(128),    ' ',
                              below(0x800), below(0xD800), 0xE000 + below(0x110000 - 0xE000)};
    uint8_t bytes[4];
    int32_t count = 0;
    U8_APPEND_UNSAFE(bytes, count, kinds[below(std::size(kinds))]);
    text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
  }
  return text;
}

TEST_F(TokenizerTest, AnyTextComesBackFromItsIds) {
  for (const char* name : {"gpt2", "smollm", "digit_runs", "llama3"}) {
    const auto tokenizer = open(all.at(name).json);
    std::mt19937 draw(1);
    for (int n = 0; n < 1500; ++n) {
      const std::string text = random_text(draw, draw() % 60);
      const std::vector<int32_t> ids = tokenizer->encode(text, n % 2 == 0);
      ASSERT_EQ(tokenizer->decode(ids), text) << name << " " << n;
      ASSERT_EQ(tokenizer->encode(text, n % 2 == 0), ids) << "with the words known";
    }
  }
}

TEST_F(TokenizerTest, AnyIdsGiveTheirBytesWhereverACharacterEnds) {
  const auto tokenizer = open(all.at("gpt2").json);
  std::vector<int32_t> ids;
  std::string bytes;
  std::mt19937 draw(2);
  for (int n = 0; n < 5000; ++n) {
    ids.push_back(static_cast<int32_t>(draw() % tokenizer->vocabulary()));
    bytes += tokenizer->token(ids.back());
  }
  EXPECT_EQ(tokenizer->decode(ids), bytes);
  EXPECT_NE(first_byte_not_utf8(bytes), std::string::npos) << "some characters are incomplete";
  EXPECT_EQ(tokenizer->decode({}), "");
}

// Returns the tokens of a word by a simple implementation of byte-pair merges. It applies the merge
// of lowest rank that joins two neighbours, leftmost first, until no merge applies.
std::vector<std::string> joined(const std::string& word,
                                const std::map<std::pair<std::string, std::string>, size_t>& rank_of) {
  std::vector<std::string> symbols;
  for (const char c : word) symbols.push_back(alphabet_character(static_cast<uint8_t>(c)));
  for (;;) {
    size_t best = SIZE_MAX, at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = rank_of.find({symbols[i], symbols[i + 1]});
      if (found == rank_of.end() || found->second >= best) continue;
      best = found->second;
      at = i;
    }
    if (best == SIZE_MAX) return symbols;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

TEST_F(TokenizerTest, WordsOfEveryLengthAreJoinedAsTheRuleSays) {
  json uncut = all.at("gpt2").json;
  uncut["pre_tokenizer"]["use_regex"] = false;
  const json& model = uncut["model"];
  const auto tokenizer = open(uncut);
  std::map<std::pair<std::string, std::string>, size_t> rank_of;
  for (const json& merge : model["merges"]) rank_of.emplace(std::pair(merge[0], merge[1]), rank_of.size());
  std::mt19937 draw(3);
  for (size_t bytes = 1; bytes < 400; bytes += 1 + bytes / 40) {
    std::string word;
    while (word.size() < bytes) {  // made of tokens, so that many merges apply
      word += draw() % 4 == 0 ? std::string(1, static_cast<char>('a' + draw() % 3))
                              : tokenizer->token(static_cast<int32_t>(256 + draw() % 500));
      if (first_byte_not_utf8(word) != std::string::npos) word.clear();
    }
    std::vector<int32_t> ids;
    for (const std::string& symbol : joined(word, rank_of)) ids.push_back(model["vocab"].at(symbol));
    EXPECT_EQ(tokenizer->encode(word, false), ids) << word.size() << " bytes: " << json(word).dump(-1, ' ', true);
  }
}

// SentencePiece's rule for characters: two neighbours are joined if their text is a token. The join
// with the highest score is first; of joins with equal scores, the leftmost. The data has equal
// scores, tokens of several lengths, and characters that are not tokens.
TEST_F(TokenizerTest, ScoresJoinAsTheRuleSays) {
  std::mt19937 draw(7);
  for (int round = 0; round < 40; ++round) {
    TokenizerFile file;
    file.path = "drawn";
    file.alphabet = Alphabet::kCharacters;
    std::map<std::string, std::pair<int32_t, float>> tokens;
    const auto add = [&](const std::string& name, TokenKind kind, float score) {
      if (kind == TokenKind::kNormal &&
          !tokens.emplace(name, std::pair(static_cast<int32_t>(file.tokens.size()), score)).second)
        return;
      file.tokens.push_back({name, kind});
      file.scores.push_back(score);
    };
    for (int byte = 0; byte < 256; ++byte) add(name_of_byte(static_cast<uint8_t>(byte)), TokenKind::kByte, 0);
    for (const char* name : {"a", "b", "\u00e9", "\u2581"}) add(name, TokenKind::kNormal, -100);
    for (int n = 0; n < 60; ++n) {
      std::string name;
      for (size_t left = 2 + draw() % 4; left-- > 0;) name += std::array{"a", "b", "\u00e9", "\u2581"}[draw() % 4];
      add(name, TokenKind::kNormal, -static_cast<float>(draw() % 9));
    }
    const Tokenizer tokenizer(file);
    for (size_t length = 1; length < 200; length += 1 + length / 8) {
      std::vector<std::string> symbols;
      std::string text;
      for (size_t n = 0; n < length; ++n) {
        symbols.emplace_back(std::array{"a", "b", "\u00e9", " ", "c", "\u5b57"}[draw() % 6]);
        text += symbols.back();
        if (symbols.back() == " ") symbols.back() = "\u2581";
      }
      const auto score_at = [&](size_t i) {
        const bool are_tokens = tokens.contains(symbols[i]) && tokens.contains(symbols[i + 1]);
        const auto found = tokens.find(symbols[i] + symbols[i + 1]);
        return are_tokens && found != tokens.end() ? found->second.second : -INFINITY;
      };
      for (;;) {
        size_t best = 0;
        for (size_t i = 0; i + 1 < symbols.size(); ++i) best = score_at(i) > score_at(best) ? i : best;
        if (symbols.size() < 2 || score_at(best) == -INFINITY) break;
        symbols[best] += symbols[best + 1];
        symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
      }
      std::vector<int32_t> ids;
      for (const std::string& symbol : symbols) {
        if (const auto found = tokens.find(symbol); found != tokens.end()) {
          ids.push_back(found->second.first);
        } else {
          for (const char c : symbol) ids.push_back(static_cast<uint8_t>(c));
        }
      }
      ASSERT_EQ(tokenizer.encode(text, false), ids) << text;
      ASSERT_EQ(tokenizer.decode(ids), text);
    }
  }
}

// A user's text must never become a control token, even if the file's merges would make one.
TEST_F(TokenizerTest, NoTextBecomesATokenOfControl) {
  json tokenizer = all.at("llama2").json;
  json& model = tokenizer["model"];
  const auto count = model["vocab"].size();
  for (const char* name : {"<", "s", ">", "<s"}) {
    if (!model["vocab"].contains(name)) model["vocab"][name] = count + model["vocab"].size() - count;
  }
  model["merges"].push_back({"<", "s"});
  model["merges"].push_back({"<s", ">"});
  const auto opened = open(tokenizer);
  const std::vector<int32_t> ids = opened->encode("a <s> b", false);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 0);
  EXPECT_EQ(opened->decode(ids), "a <s> b");
  EXPECT_EQ(opened->encode("<s>", true), std::vector<int32_t>({1}));
}

// A text that continues another text gets no space before it. A text after a token gets a space
// only if the tokenizer puts it there.
TEST_F(TokenizerTest, ASpaceIsPutWhereTheTextBegins) {
  const auto every = open(all.at("llama2").json), first = open(all.at("mistral").json);
  const auto text = [](const Tokenizer& tokenizer, TextPlace place) {
    return tokenizer.bytes_of(tokenizer.encode("it", false, place));
  };
  EXPECT_EQ(text(*every, TextPlace::kBegins), " it");
  EXPECT_EQ(text(*every, TextPlace::kBehindToken), " it");
  EXPECT_EQ(text(*every, TextPlace::kGoesOn), "it");
  EXPECT_EQ(text(*first, TextPlace::kBegins), " it");
  EXPECT_EQ(text(*first, TextPlace::kBehindToken), "it");
  EXPECT_EQ(text(*first, TextPlace::kGoesOn), "it");
}

TEST_F(TokenizerTest, AWordOfAMegabyteIsOneOfMany) {
  const auto tokenizer = open(all.at("gpt2").json);
  for (const char c : {'a', ' ', '='}) {
    const std::string word(1 << 20, c);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(word, false)), word);
  }
}

TEST_F(TokenizerTest, BosEosAndPadComeFromTheConfigBeside) {
  const auto alone = open(all.at("llama3").json);
  EXPECT_EQ(alone->bos(), 800);
  EXPECT_TRUE(alone->adds_bos());
  EXPECT_EQ(alone->eos(), std::nullopt);
  const auto beside = open(all.at("added").json, {{"bos_token", nullptr},
                                                  {"eos_token", {{"content", "<|a|>"}}},
                                                  {"pad_token", "~~"},
                                                  {"chat_template", "x"}});
  EXPECT_EQ(beside->bos(), std::nullopt);
  EXPECT_FALSE(beside->adds_bos());
  EXPECT_EQ(beside->eos(), 800);
  EXPECT_EQ(beside->pad(), 804);
  const auto without = open(all.at("llama3").json, {{"bos_token", "<|begin|>"}, {"add_bos_token", false}});
  EXPECT_FALSE(without->adds_bos());
  expect_user_error(
      [&] {
        open(all.at("gpt2").json, {{"eos_token", "</s>"}});
      },
      {"tokenizer_config.json", "eos_token", "\"</s>\"", "no token"});
  expect_user_error(
      [&] {
        open(all.at("gpt2").json, {{"add_bos_token", true}});
      },
      {"tokenizer_config.json", "add_bos_token", "bos_token"});
}

TEST_F(TokenizerTest, TextThatIsNotUtf8NamesTheByte) {
  const auto tokenizer = open(all.at("gpt2").json);
  const struct {
    std::string text;
    size_t at;
  } texts[] = {{"abc\xff", 3},
               {"\x80", 0},
               {std::string(100, 'a') + "\xc3", 100},
               {"\xed\xa0\x80", 0},
               {"é\xc0\x80", 2},
               {"\xf4\x90\x80\x80", 0},
               {"字\xe5\xad", 3},
               {"x\xf8\x88\x80\x80\x80", 1}};
  for (const auto& [text, at] : texts) {
    expect_user_error([&, &text = text] { (void)tokenizer->encode(text, false); },
                      {"not UTF-8", "byte " + std::to_string(at) + ","});
  }
  EXPECT_EQ(tokenizer->encode("", false), std::vector<int32_t>());
}

TEST_F(TokenizerTest, AnIdThatIsNoneIsRefused) {
  const auto tokenizer = open(all.at("lacks_bytes").json);
  const auto hole = all.at("gpt2").json["model"]["vocab"]["x"].get<int32_t>();
  for (const int32_t id : {-1, 800, INT32_MAX, INT32_MIN, hole}) {
    expect_user_error(
        [&] {
          (void)tokenizer->decode({{0, id}});
        },
        {"tokenizer.json", "id " + std::to_string(id), "0 to 799"});
    expect_user_error([&] { (void)tokenizer->is_control(id); }, {"tokenizer.json"});
  }
}

TEST_F(TokenizerTest, WhatIsNotKnownIsRefusedByItsName) {
  const json marked = all.at("llama2").json;
  const json byte_level = all.at("gpt2").json["pre_tokenizer"];
  const auto sequence = [&](const json& first) {
    return json{{"type", "Sequence"}, {"pretokenizers", {first, byte_level}}};
  };
  const auto split = [&](const json& pattern, const char* behavior) {
    return sequence({{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", false}});
  };
  const json added = {{"id", 800}, {"content", "<s>"}, {"special", true}};
  const struct {
    json tokenizer;
    std::vector<std::string> named;
  } files[] = {
      {with("/model/type", "Unigram"), {"model.type", "\"Unigram\"", "\"BPE\""}},
      {with("/model/type", "Unigram"), {"model.type", "\"Unigram\""}},
      {with("/model/byte_fallback", true), {"model.byte_fallback"}},
      {with("/model/dropout", 0.1), {"model.dropout"}},
      {with("/model/end_of_word_suffix", "</w>"), {"model.end_of_word_suffix"}},
      {with("/model/continuing_subword_prefix", "##"), {"model.continuing_subword_prefix"}},
      {with("/model/unk_token", "<none>"), {"model.unk_token", "<none>"}},
      {with("/model/colour", "red"), {"model.colour", "unknown key"}},
      {with("/model/vocab", json::array()), {"model.vocab"}},
      {with("/model/vocab/a", -1), {"model.vocab", "\"a\"", "-1"}},
      {with("/model/vocab/a", 4000000000), {"model.vocab", "\"a\"", "4000000000"}},
      {with("/model/vocab/a", 0), {"model.vocab", "the id 0"}},
      {with("/model/merges/3", "abc"), {"model.merges", "entry 3", "\"abc\""}},
      {with("/model/merges/3", {"a", "b", "c"}), {"model.merges", "entry 3"}},
      {with("/model/merges/3", {"no such", "a"}), {"model.merges[3]", "\"no such\"", "no token"}},
      {with("/model/merges/3", all.at("gpt2").json["model"]["merges"][1]), {"model.merges[3]", "given before", "1"}},
      {with("/normalizer", {{"type", "NFKC"}}), {"normalizer.type", "\"NFKC\"", "\"NFC\""}},
      {with("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}}),
       {"normalizers[0].type", "Lowercase"}},
      {with("/pre_tokenizer", {{"type", "Metaspace"}}), {"pre_tokenizer.type", "\"Metaspace\"", "\"ByteLevel\""}},
      {with("/pre_tokenizer", nullptr), {"pre_tokenizer"}},
      {with("/pre_tokenizer", {{"type", "Digits"}}), {"pre_tokenizer", "ByteLevel"}},
      {with("/pre_tokenizer/add_prefix_space", true), {"pre_tokenizer.add_prefix_space"}},
      {with("/pre_tokenizer", sequence(byte_level)), {"pretokenizers[0].type", "last"}},
      {with("/pre_tokenizer", split({{"Regex", "x"}}, "Merged")), {"pretokenizers[0].behavior", "\"Isolated\""}},
      {with("/pre_tokenizer", split({{"Text", "x"}}, "Isolated")), {"pretokenizers[0].pattern.Text"}},
      {with("/pre_tokenizer", split({{"String", "x"}, {"Regex", "x"}}, "Isolated")),
       {"pretokenizers[0].pattern.Regex"}},
      {with("/model/vocab", json(marked["model"]["vocab"]).patch({{{"op", "remove"}, {"path", "/<0x41>"}}}), "llama2"),
       {"<0x41>", "256 bytes"}},
      {with("/model/ignore_merges", true, "llama2"), {"model.ignore_merges"}},
      {with("/normalizer", nullptr, "llama2"), {"model.byte_fallback", "U+2581"}},
      {with("/normalizer", {{"type", "NFKC"}}, "llama2"), {"normalizer.type", "\"NFKC\"", "\"Replace\""}},
      {with("/normalizer/normalizers/0/prepend", "_", "llama2"), {"normalizers[0].prepend", "\"_\""}},
      {with("/normalizer/normalizers/1/content", "_", "llama2"), {"normalizers[1].content", "\"_\""}},
      {with("/normalizer/normalizers/1/pattern", {{"Regex", " "}}, "llama2"), {"normalizers[1].pattern.String"}},
      {with("/pre_tokenizer/replacement", "_", "mistral"), {"pre_tokenizer.replacement", "\"_\""}},
      {with("/pre_tokenizer/prepend_scheme", "last", "mistral"),
       {"pre_tokenizer.prepend_scheme", "\"last\"", "\"first\""}},
      {with("/pre_tokenizer", byte_level, "llama2"), {"model.byte_fallback", "ByteLevel"}},
      {with("/decoder/decoders/3/start", 2, "llama2"), {"decoders[3].start"}},
      {with("/decoder/decoders/1/type", "CTC", "llama2"), {"decoders[1].type", "\"CTC\"", "\"ByteFallback\""}},
      {with("/pre_tokenizer", split({{"Regex", "(x"}}, "Isolated")), {"regular expression", "\"(x\""}},
      {with("/post_processor", {{"type", "Reversed"}}), {"post_processor.type", "Reversed"}},
      {with("/decoder", {{"type", "WordPiece"}}), {"decoder.type", "WordPiece"}},
      {with("/added_tokens", {{{"id", 3}, {"content", "<s>"}}}), {"added_tokens[0].id", "3"}},
      {with("/added_tokens", {{{"id", 800}, {"content", "a"}}}), {"added_tokens[0].content", "\"a\""}},
      {with("/added_tokens", {added, {{"id", 900000000}, {"content", "x"}}}), {"added_tokens[1].id", "900000000"}},
      {with("/added_tokens", {{{"id", 800}}}), {"added_tokens[0].content", "missing"}},
      {with("/extra", 1), {"extra", "unknown key"}},
      {json::array(), {"neither tokenizer.json nor GGUF"}},
      {json::object(), {"model", "missing"}},
  };
  for (const auto& [tokenizer, named] : files) {
    try {
      open(tokenizer);
      ADD_FAILURE() << "accepted; expected an error about " << named[0];
    } catch (const UserError& error) {
      for (const std::string& word : named)
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << "no " << word << " in: " << error.what();
      EXPECT_NE(std::string(error.what()).find("tokenizer.json"), std::string::npos) << error.what();
    }
  }
}

TEST_F(TokenizerTest, WhatWordPieceDoesNotKnowIsRefusedByItsName) {
  const json whole = piece_tokenizers().at("uncased").json;
  const auto changed = [&](const char* place, const json& value) {
    json result = whole;
    result[json::json_pointer(place)] = value;
    return result;
  };
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
             cls = {{"SpecialToken", {{"id", "[CLS]"}, {"type_id", 0}}}};
  const auto refused = [&](const json& tokenizer, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { open(tokenizer); }, fragments);
  };
  refused(changed("/model/unk_token", "[NONE]"), {"model.unk_token", "[NONE]", "no token"});
  refused(changed("/model/max_input_chars_per_word", 0), {"model.max_input_chars_per_word"});
  refused(changed("/model/merges", json::array()), {"model.merges", "unknown key"});
  refused(changed("/normalizer/type", "Lowercase"), {"normalizer.type", "\"Lowercase\"", "\"BertNormalizer\""});
  refused(changed("/normalizer/keep", true), {"normalizer.keep", "unknown key"});
  refused(changed("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, whole["normalizer"]}}}),
          {"normalizers[1].type", "alone"});
  refused(changed("/pre_tokenizer", all.at("gpt2").json["pre_tokenizer"]), {"pre_tokenizer", "ByteLevel", "WordPiece"});
  refused(changed("/pre_tokenizer/type", "Whitespace"), {"pre_tokenizer.type", "\"BertPreTokenizer\""});
  refused(changed("/decoder/prefix", "@@"), {"decoder.prefix", "\"@@\"", "\"##\""});
  refused(changed("/decoder/type", "Fuse"), {"decoder.type", "\"WordPiece\""});
  refused(changed("/post_processor/single", {cls, cls, text}), {"single[1].SpecialToken.id", "second token before"});
  refused(changed("/post_processor", {{"type", "BertProcessing"}, {"cls", {"[CLS]", 3}}, {"sep", {"[SEP]", 3}}}),
          {"post_processor.cls", "id 2, not 3"});
  refused(changed("/post_processor", {{"type", "BertProcessing"}, {"cls", {"[CLS]", 2}}, {"sep", 3}}),
          {"post_processor.sep", "[token, id]"});
  const auto ours = all.at("gpt2").json;
  json bert = ours;
  bert["normalizer"] = whole["normalizer"];
  refused(bert, {"normalizer.type", "BertNormalizer"});
}

TEST_F(TokenizerTest, LinesThatAreNoVocabularyAreRefused) {
  const auto refused = [&](const std::string& lines, const std::string& config,
                           std::initializer_list<std::string> fragments) {
    put_file(folder.file("vocab.txt"), lines);
    put_file(folder.file("tokenizer_config.json"), config);
    expect_user_error([&] { Tokenizer::open(folder.file("vocab.txt")); }, fragments);
  };
  const std::string good = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n";
  refused("Once upon a time\n", "{}", {"vocab.txt", "BERT's kind", "unk_token", "[UNK]"});
  refused(good + "a\n", "{}", {"vocab.txt, line 6", "\"a\"", "line 5"});
  refused(good, R"({"sep_token": "</s>"})", {"vocab.txt", "sep_token", "\"</s>\""});
  refused(good, R"({"do_lower_case": 1})", {"tokenizer_config.json", "do_lower_case"});
  refused(good, R"({"do_basic_tokenize": false})", {"tokenizer_config.json", "do_basic_tokenize"});
  refused(good + "\xff\n", "{}", {"vocab.txt", "token 5", "UTF-8"});
}

// The token before a text is bos, as with RoBERTa's byte pairs. encode() does not add the token
// after a text.
TEST_F(TokenizerTest, AWholeTextStandsBetweenItsTokens) {
  const TokenizedText& text = all.at("gpt2").cases[7];
  const auto around = [&](const json& processor) {
    json tokenizer = all.at("gpt2").json;
    tokenizer["added_tokens"] = {{{"id", 800}, {"content", "<s>"}, {"special", true}},
                                 {{"id", 801}, {"content", "</s>"}, {"special", true}}};
    tokenizer["post_processor"] = processor;
    return open(tokenizer);
  };
  const json s = {{"SpecialToken", {{"id", "<s>"}}}}, end = {{"SpecialToken", {{"id", "</s>"}}}},
             itself = {{"Sequence", {{"id", "A"}}}};
  std::vector<int32_t> whole = text.ids;
  whole.insert(whole.begin(), 800);
  whole.push_back(801);
  for (const json& processor : {json{{"type", "RobertaProcessing"},
                                     {"cls", {"<s>", 800}},
                                     {"sep", {"</s>", 801}},
                                     {"trim_offsets", true},
                                     {"add_prefix_space", false}},
                                json{{"type", "TemplateProcessing"}, {"single", {s, itself, end}}}}) {
    const auto tokenizer = around(processor);
    EXPECT_EQ(tokenizer->encode_whole(text.text, whole.size()), whole);
    EXPECT_EQ(tokenizer->encode(text.text, false), text.ids);
    EXPECT_EQ(tokenizer->encode_whole(text.text, 2), (std::vector<int32_t>{800, 801}));
    EXPECT_EQ(tokenizer->bos(), 800);
    expect_user_error([&] { (void)tokenizer->encode_whole(text.text, 1); }, {"2 tokens around a text", "may be 1"});
  }
  const auto behind = around({{"type", "TemplateProcessing"}, {"single", {itself, end, end}}});
  EXPECT_EQ(behind->encode_whole("", 9), (std::vector<int32_t>{801, 801}));
  EXPECT_FALSE(behind->adds_bos());
  bool is_cut = true;
  EXPECT_EQ(open(all.at("gpt2").json)->encode_whole(text.text, text.ids.size(), &is_cut), text.ids);
  EXPECT_FALSE(is_cut);
}

TEST_F(TokenizerTest, APatternThatGoesBackAndForthForEverIsStopped) {
  json endless = all.at("gpt2").json;
  endless["pre_tokenizer"] = {{"type", "Sequence"},
                              {"pretokenizers",
                               {{{"type", "Split"}, {"pattern", {{"Regex", "(a|aa)+$"}}}, {"behavior", "Isolated"}},
                                endless["pre_tokenizer"]}}};
  const auto tokenizer = open(endless);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("xaa", false)), "xaa");
  expect_user_error([&] { (void)tokenizer->encode(std::string(100, 'a') + "b", false); },
                    {"tokenizer.json", "regular expression", "retry"});
}

TEST_F(TokenizerTest, FilesThatAreNoTokenizersAreRefused) {
  expect_user_error([&] { Tokenizer::open(folder.path()); }, {folder.path(), "tokenizer.json"});
  expect_user_error([&] { Tokenizer::open(folder.file("nothing")); }, {"nothing", "cannot be opened"});
  for (const std::string text : {"", "{", "[1", "GGUF", "GGUF\x03", "\xff"}) {
    put_file(folder.file("bad"), text);
    expect_user_error([&] { Tokenizer::open(folder.file("bad")); }, {"bad"});
  }
  const std::string whole = all.at("gpt2").json.dump();
  for (size_t bytes = 1; bytes < whole.size(); bytes += 997) {
    put_file(folder.file("cut"), whole.substr(0, bytes));
    expect_user_error([&] { Tokenizer::open(folder.file("cut")); }, {"cut", "JSON"});
  }
}

TEST_F(TokenizerTest, GgufFilesThatHoldNoTokenizerOfThisKindAreRefused) {
  const std::string good = folder.file("good.gguf"), bad = folder.file("bad.gguf");
  write_gguf_tokenizer(good, all.at("gpt2").json, "gpt-2");
  const GgufFile file(good);
  const auto refuses = [&](const std::string& key, const std::function<void(GgufValue&)>& change,
                           std::initializer_list<std::string> named) {
    {
      GgufWriter writer(bad);
      for (const auto& [name, value] : file.metadata()) {
        GgufValue changed = value;
        if (name == key && !change) continue;
        if (name == key) change(changed);
        writer.add(name, changed);
      }
      writer.finish();
    }
    expect_user_error([&] { Tokenizer::open(bad); }, named);
  };
  const auto set = [](json value) { return [value = std::move(value)](GgufValue& old) { old.value = value; }; };
  const std::string prefix = "tokenizer.ggml.";
  refuses(prefix + "model", set("t5"), {"tokenizer.ggml.model", "\"t5\"", "gpt2", "llama"});
  refuses(prefix + "model", set("llama"), {"tokenizer.ggml.scores", "missing"});
  refuses(prefix + "model", nullptr, {"tokenizer.ggml.model", "missing"});
  refuses(prefix + "pre", set("kimi-k2"), {"tokenizer.ggml.pre", "\"kimi-k2\"", "qwen2"});
  refuses(prefix + "pre", nullptr, {"tokenizer.ggml.pre", "missing"});
  refuses(prefix + "tokens", nullptr, {"tokenizer.ggml.tokens", "missing"});
  refuses(prefix + "token_type", nullptr, {"tokenizer.ggml.token_type", "missing"});
  refuses(prefix + "token_type", set(std::vector<int>(799, 1)), {"tokenizer.ggml.token_type", "800", "799"});
  refuses(prefix + "token_type", [](GgufValue& types) { types.value[7] = 6; }, {"tokenizer.ggml.token_type[7]", "6"});
  refuses(prefix + "merges", nullptr, {"tokenizer.ggml.merges", "missing"});
  refuses(prefix + "merges", [](GgufValue& merges) { merges.value[2] = "abc"; },
          {"tokenizer.ggml.merges[2]", "\"abc\""});
  refuses(prefix + "merges", [](GgufValue& merges) { merges.value[2] = "a nothing"; },
          {"tokenizer.ggml.merges[2]", "\"nothing\""});
  refuses(prefix + "eos_token_id", set(800), {"tokenizer.ggml.eos_token_id", "800"});
}

TEST_F(TokenizerTest, GgufFilesWithoutGoodScoresAreRefused) {
  write_gguf_characters(folder.file("good.gguf"), all.at("llama2").json, true);
  const GgufFile file(folder.file("good.gguf"));
  const auto refuses = [&](const std::string& key, const std::function<void(GgufValue&)>& change,
                           std::initializer_list<std::string> named) {
    {
      GgufWriter writer(folder.file("bad.gguf"));
      for (const auto& [name, value] : file.metadata()) {
        GgufValue changed = value;
        if (name == key) change(changed);
        writer.add(name, changed);
      }
      writer.finish();
    }
    expect_user_error([&] { Tokenizer::open(folder.file("bad.gguf")); }, named);
  };
  const std::string prefix = "tokenizer.ggml.";
  refuses(prefix + "scores", [](GgufValue& scores) { scores.value.erase(scores.value.begin()); },
          {"tokenizer.ggml.scores", "as many as tokens"});
  refuses(prefix + "scores", [](GgufValue& scores) { scores.value[3] = NAN; }, {"tokenizer.ggml.scores[3]", "finite"});
  refuses(prefix + "token_type", [](GgufValue& types) { types.value[0] = 6; }, {"tokenizer.ggml.tokens[0]", "a byte"});
  refuses(prefix + "token_type", [](GgufValue& types) { types.value[7] = 1; }, {"<0x04>", "256 bytes"});
  refuses(prefix + "token_type", [](GgufValue& types) { types.value[7] = 7; },
          {"tokenizer.ggml.token_type[7]", "1 to 6"});
  refuses(prefix + "tokens", [](GgufValue& tokens) { tokens.value[300] = "\xff"; }, {"token 300", "UTF-8"});
}

}  // namespace
}  // namespace reprise
