// The names and patterns are from src/llama-vocab.cpp of github.com/ggml-org/llama.cpp. Where that
// file replaces a model's pattern by one for another engine, the pattern here is from the model's
// tokenizer.json. The patterns are facts of the models.
#include "tools/files/tokenizer/pre_tokenizers.h"

#include <sstream>

namespace reprise {
namespace {

constexpr char kContractions[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
constexpr char kChinese[] = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr char kChineseAndHangul[] = "[一-龥ࠀ-一가-퟿]+";
constexpr char kDeepSeekLetters[] =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-)"
    R"(ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ)"
    R"(-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ)"
    R"(-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr char kDeepSeekMarks[] = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr char kDeepSeek3[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kBloom[] = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr char kQwen35[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kBailing[] =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr char kSeedCoder[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Returns a pattern for words with capitals at their beginning and small letters after them,
// optionally followed by a contraction, and for numbers that match `digits`.
std::string cased_words(const std::string& contraction, const std::string& digits) {
  const std::string before = R"([^\r\n\p{L}\p{N}]?)", capitals = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])",
                    small = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  return before + capitals + "*" + small + "+" + contraction + "|" + before + capitals + "+" + small + "*" +
         contraction + "|" + digits + R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

CutStep at(const std::string& pattern) { return {Cut::kPattern, pattern}; }

const std::vector<PreTokenizer>& known() {
  static const std::vector<PreTokenizer> kKnown = {
      {"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert exaone4 jais trillion "
       "granite-docling",
       {{Cut::kGpt2}}},
      {.words = "mpt olmo", .cuts = {{Cut::kGpt2}}, .composes = true},
      {"smollm starcoder refact codeshell exaone minerva-7b mellum2", {{Cut::kEachDigit}, {Cut::kGpt2}}},
      {.words = "command-r", .cuts = {{Cut::kEachDigit}, {Cut::kGpt2}}, .composes = true},
      {.words = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
       .cuts = {{Cut::kLlama3}},
       .takes_whole_words = true,
       .adds_bos = true},
      {"smaug-bpe dbrx chatglm-bpe", {{Cut::kLlama3}}},
      {.words = "glm4 glm5", .cuts = {{Cut::kLlama3}}, .takes_whole_words = true},
      {.words = "qwen2 deepseek-r1-qwen kormo megrez", .cuts = {{Cut::kQwen2}}, .composes = true},
      {"stablelm2 hunyuan solar-open grok-2", {{Cut::kQwen2}}},
      {"qwen35", {at(kQwen35)}},
      {"falcon", {at(R"([\p{P}$+<=>^~|`]+)"), {Cut::kGpt2}, at("[0-9][0-9][0-9]")}},
      {"deepseek-llm",
       {at("[\r\n]"), at(kDeepSeekLetters), at(kDeepSeekMarks), at("\\s+$"), at(kChineseAndHangul), {Cut::kEachDigit}}},
      {"deepseek-coder",
       {at("[\r\n]"), at("\\s?\\p{L}+"), at("\\s?\\p{P}+"), at(kChineseAndHangul), {Cut::kEachDigit}}},
      {"deepseek-v3 hunyuan-dense joyai-llm", {at("\\p{N}{1,3}"), at(kChinese), at(kDeepSeek3)}},
      {"bloom poro-chat gpt3-finnish", {at(kBloom)}},
      {"viking", {at(kBloom), {Cut::kEachDigit}}},
      {.words = "tekken", .cuts = {at(cased_words("", "\\p{N}"))}, .takes_whole_words = true, .adds_bos = true},
      {"gpt-4o llama4 kanana2 minimax-m2", {at(cased_words(kContractions + std::string("?"), "\\p{N}{1,3}"))}},
      {"superbpe", {at("\\p{N}+"), at("(?=(\\d{3})+(?!\\d))")}},
      {"bailingmoe bailingmoe2 llada-moe", {at(kBailing)}},
      {"seed-coder", {at(kSeedCoder)}},
  };
  return kKnown;
}

std::vector<std::string> words_of(const PreTokenizer& each) {
  std::istringstream stream(each.words);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace

const PreTokenizer* find_pre_tokenizer(const std::string& word) {
  for (const PreTokenizer& each : known()) {
    for (const std::string& name : words_of(each)) {
      if (name == word) return &each;
    }
  }
  return nullptr;
}

std::vector<std::string> pre_tokenizer_words() {
  std::vector<std::string> words;
  for (const PreTokenizer& each : known()) words.push_back(words_of(each)[0]);
  return words;
}

}  // namespace reprise
