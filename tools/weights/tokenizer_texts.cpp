// See tokenizer_texts.h. Source of the fields: github.com/huggingface/tokenizers, the serialisation of each part. The patterns are the
// models' own: facts of GPT-2's, Llama 3's and Qwen 2's tokenizer.json.
#include "tools/weights/tokenizer_texts.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/formats/error.h"
#include "tools/formats/json_text.h"
#include "tools/tokenizer/scored_merges.h"
#include "tools/tokenizer/space_mark.h"

namespace reprise {
namespace {

using nlohmann::ordered_json;

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
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

// The steps of the cut; the last of them turns bytes into the byte alphabet, and cuts as GPT-2 does where that is the last cut.
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
      case Cut::kBertWords: break;  // of no GGUF file
      case Cut::kPattern: steps.push_back(split(step.pattern)); break;
    }
  }
  steps.push_back(byte_level(cuts));
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

const std::string& name_of(const TokenizerFile& tokenizer, int32_t id) { return tokenizer.tokens[static_cast<size_t>(id)].name; }

// What puts BOS before a text.
ordered_json post_processor(const TokenizerFile& tokenizer) {
  if (!tokenizer.adds_bos) return nullptr;
  const std::string& bos = name_of(tokenizer, *tokenizer.bos);
  const ordered_json begin = {{"SpecialToken", {{"id", bos}, {"type_id", 0}}}};
  const auto text = [](const char* id, int type) { return ordered_json{{"Sequence", {{"id", id}, {"type_id", type}}}}; };
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

// Ascending by id, so that whoever adds them one by one gives them these ids.
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

// A vocabulary by characters names one, though its bytes leave nothing unknown.
ordered_json unknown_token(const TokenizerFile& tokenizer) {
  if (!is_by_characters(tokenizer) || !tokenizer.unknown) return nullptr;
  return name_of(tokenizer, *tokenizer.unknown);
}

ordered_json pairs_model(const TokenizerFile& tokenizer) {
  ordered_json vocabulary = ordered_json::object(), merges = ordered_json::array();
  auto& entries = vocabulary.get_ref<ordered_json::object_t&>();
  for (size_t id = 0; id < tokenizer.tokens.size(); ++id) {
    if (tokenizer.tokens[id].kind != TokenKind::kAbsent) entries.push_back({tokenizer.tokens[id].name, id});  // no search for an equal name, which is quadratic
  }
  for (const auto& [first, second] : tokenizer.merges) merges.push_back(first + " " + second);
  if (is_by_characters(tokenizer)) {  // as pairs, because a token may hold a space
    for (const ScoredMerge& merge : merges_by_score(tokenizer)) merges.push_back({name_of(tokenizer, merge.left), name_of(tokenizer, merge.right)});
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

TokenizerTexts tokenizer_texts(const TokenizerFile& tokenizer, const std::string& chat_template) {
  const ordered_json json = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", added_tokens(tokenizer)},
                             {"normalizer", normalizer(tokenizer)},
                             {"pre_tokenizer", pre_tokenizer(tokenizer)},
                             {"post_processor", post_processor(tokenizer)},
                             {"decoder", decoder(tokenizer)},
                             {"model", pairs_model(tokenizer)}};
  ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}, {"add_bos_token", tokenizer.adds_bos}};
  if (tokenizer.bos) config["bos_token"] = name_of(tokenizer, *tokenizer.bos);
  if (tokenizer.eos) config["eos_token"] = name_of(tokenizer, *tokenizer.eos);
  if (tokenizer.pad) config["pad_token"] = name_of(tokenizer, *tokenizer.pad);
  if (!chat_template.empty()) config["chat_template"] = chat_template;
  return {text_of(json), text_of(config)};
}

std::string with_new_tokens(const std::string& name, const std::string& text, const std::string& path, const TokenizerFile& tokenizer,
                            const std::vector<std::string>& tokens) {
  if (name != "tokenizer.json" && name != "tokenizer_config.json" && name != "added_tokens.json") return text;
  nlohmann::json file = parse_json(text, path);  // the order of a vocabulary's entries means nothing, and to keep it would be quadratic
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
    is_config ? file["added_tokens_decoder"][std::to_string(token.id)] = added_token(tokenizer, token) : file[content] = token.id;
  }
  return text_of(file);
}

}  // namespace reprise
