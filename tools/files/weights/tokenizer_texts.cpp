// See tokenizer_texts.h. The fields are those that github.com/huggingface/tokenizers writes for
// each part. The patterns are facts of the tokenizer.json files of GPT-2, Llama 3 and Qwen 2.
#include "tools/files/weights/tokenizer_texts.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/tokenizer/scored_merges.h"
#include "tools/files/tokenizer/space_mark.h"

namespace reprise {
namespace {

using nlohmann::ordered_json;

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

ordered_json byte_level(bool cuts) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", cuts}};
}

ordered_json split(const std::string& pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

ordered_json replace(const std::string& from, const std::string& to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

bool is_by_characters(const TokenizerFile& tokenizer) { return tokenizer.alphabet == Alphabet::kCharacters; }

ordered_json normalizer(const TokenizerFile& tokenizer) {
  if (!is_by_characters(tokenizer)) return tokenizer.composes ? ordered_json{{"type", "NFC"}} : ordered_json();
  const std::string mark(kSpaceMark);
  if (tokenizer.space_before == SpaceBefore::kNothing) return replace(" ", mark);
  return {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", mark}}, replace(" ", mark)}}};
}

ordered_json decoder(const TokenizerFile& tokenizer) {
  if (!is_by_characters(tokenizer)) return byte_level(true);
  ordered_json steps = {replace(std::string(kSpaceMark), " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (tokenizer.drops_first_space) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", steps}};
}

// Returns the steps that cut a text into words. The last step turns bytes into the byte alphabet.
// If the last cut of `tokenizer` is GPT-2's, the last step also does this cut.
ordered_json pre_tokenizer(const TokenizerFile& tokenizer) {
  if (is_by_characters(tokenizer)) return nullptr;
  ordered_json steps = ordered_json::array();
  const bool cuts = !tokenizer.cuts.empty() && tokenizer.cuts.back().cut == Cut::kGpt2;
  for (const CutStep& step : tokenizer.cuts) {
    switch (step.cut) {
      case Cut::kGpt2:
        if (&step != &tokenizer.cuts.back()) steps.push_back(split(kGpt2Pattern));
        break;
      case Cut::kLlama3: steps.push_back(split(kLlama3Pattern)); break;
      case Cut::kQwen2: steps.push_back(split(kQwen2Pattern)); break;
      case Cut::kEachDigit: steps.push_back({{"type", "Digits"}, {"individual_digits", true}}); break;
      case Cut::kDigitRuns: steps.push_back({{"type", "Digits"}, {"individual_digits", false}}); break;
      case Cut::kMarkedWords:
      case Cut::kBertWords: break;  // these cuts do not occur in GGUF files
      case Cut::kPattern: steps.push_back(split(step.pattern)); break;
    }
  }
  steps.push_back(byte_level(cuts));
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

const std::string& name_of(const TokenizerFile& tokenizer, int32_t id) {
  return tokenizer.tokens[static_cast<size_t>(id)].name;
}

// Returns the step that puts the BOS token before a text.
ordered_json post_processor(const TokenizerFile& tokenizer) {
  if (!tokenizer.adds_bos) return nullptr;
  const std::string& bos = name_of(tokenizer, *tokenizer.bos);
  const ordered_json begin = {{"SpecialToken", {{"id", bos}, {"type_id", 0}}}};
  const auto text = [](const char* id, int type) {
    return ordered_json{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", {begin, text("A", 0)}},
          {"pair", {begin, text("A", 0), text("B", 1)}},
          {"special_tokens", {{bos, {{"id", bos}, {"ids", {*tokenizer.bos}}, {"tokens", {bos}}}}}}};
}

ordered_json added_token(const TokenizerFile& tokenizer, const AddedToken& token) {
  return {{"content", name_of(tokenizer, token.id)},
          {"single_word", token.single_word},
          {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},
          {"normalized", token.normalized},
          {"special", tokenizer.tokens[static_cast<size_t>(token.id)].kind == TokenKind::kControl}};
}

// Returns the added tokens in ascending order of their ids: adding them one by one gives each the
// same id again.
ordered_json added_tokens(const TokenizerFile& tokenizer) {
  std::map<int32_t, ordered_json> by_id;
  for (const AddedToken& token : tokenizer.added) {
    ordered_json& entry = by_id[token.id] = {{"id", token.id}};
    entry.update(added_token(tokenizer, token));
  }
  ordered_json list = ordered_json::array();
  for (const auto& [id, entry] : by_id) list.push_back(entry);
  return list;
}

// Returns the name of the unknown token if the vocabulary is by characters, otherwise null. Such a
// vocabulary names this token, although its byte tokens can represent every text.
ordered_json unknown_token(const TokenizerFile& tokenizer) {
  if (!is_by_characters(tokenizer) || !tokenizer.unknown) return nullptr;
  return name_of(tokenizer, *tokenizer.unknown);
}

ordered_json pairs_model(const TokenizerFile& tokenizer) {
  ordered_json vocabulary = ordered_json::object(), merges = ordered_json::array();
  auto& entries = vocabulary.get_ref<ordered_json::object_t&>();
  for (size_t id = 0; id < tokenizer.tokens.size(); ++id) {
    // push_back does not search for an equal name; a search would make the loop quadratic.
    if (tokenizer.tokens[id].kind != TokenKind::kAbsent) entries.push_back({tokenizer.tokens[id].name, id});
  }
  for (const auto& [first, second] : tokenizer.merges) merges.push_back(first + " " + second);
  if (is_by_characters(tokenizer)) {  // written as pairs of names, because a token may contain a space
    for (const ScoredMerge& merge : merges_by_score(tokenizer))
      merges.push_back({name_of(tokenizer, merge.left), name_of(tokenizer, merge.right)});
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", unknown_token(tokenizer)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", is_by_characters(tokenizer)},
          {"byte_fallback", is_by_characters(tokenizer)},
          {"ignore_merges", tokenizer.takes_whole_words},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

template <typename Json>
std::string text_of(const Json& value) {
  return value.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

nlohmann::json chat_template_field(const std::map<std::string, std::string>& chat_templates) {
  if (chat_templates.size() == 1 && chat_templates.begin()->first == "default") return chat_templates.begin()->second;
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [name, source] : chat_templates) list.push_back({{"name", name}, {"template", source}});
  return list;
}

TokenizerTexts tokenizer_texts(const TokenizerFile& tokenizer,
                               const std::map<std::string, std::string>& chat_templates) {
  const ordered_json json = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", added_tokens(tokenizer)},
                             {"normalizer", normalizer(tokenizer)},
                             {"pre_tokenizer", pre_tokenizer(tokenizer)},
                             {"post_processor", post_processor(tokenizer)},
                             {"decoder", decoder(tokenizer)},
                             {"model", pairs_model(tokenizer)}};
  ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                         {"clean_up_tokenization_spaces", false},
                         {"add_bos_token", tokenizer.adds_bos}};
  if (tokenizer.bos) config["bos_token"] = name_of(tokenizer, *tokenizer.bos);
  if (tokenizer.eos) config["eos_token"] = name_of(tokenizer, *tokenizer.eos);
  if (tokenizer.pad) config["pad_token"] = name_of(tokenizer, *tokenizer.pad);
  if (!chat_templates.empty()) config["chat_template"] = chat_template_field(chat_templates);
  return {text_of(json), text_of(config)};
}

std::string with_new_tokens(const std::string& name, const std::string& text, const std::string& path,
                            const TokenizerFile& tokenizer, const std::vector<std::string>& tokens) {
  if (name != "tokenizer.json" && name != "tokenizer_config.json" && name != "added_tokens.json") return text;
  // The order of a vocabulary's entries has no meaning, and keeping it would take quadratic time.
  nlohmann::json file = parse_json(text, path);
  if (!file.is_object()) throw UserError(path + ": must be an object");
  if (name == "tokenizer.json") {
    file["added_tokens"] = added_tokens(tokenizer);
    return text_of(file);
  }
  const bool is_config = name == "tokenizer_config.json";
  if (is_config && !file.contains("added_tokens_decoder")) return text;
  for (const AddedToken& token : tokenizer.added) {
    const std::string& content = name_of(tokenizer, token.id);
    if (std::find(tokens.begin(), tokens.end(), content) == tokens.end()) continue;
    is_config ? file["added_tokens_decoder"][std::to_string(token.id)] = added_token(tokenizer, token)
              : file[content] = token.id;
  }
  return text_of(file);
}

}  // namespace reprise
