// Reads BERT's vocab.txt. Each line is a token, and its number, from 0, is the token's id. Other
// settings are in the tokenizer_config.json next to it, with transformers' names and defaults
// (models/bert/tokenization_bert.py). The defaults are those of the models that have a vocab.txt.
#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/tokenizer/tokenizer_config.h"
#include "tools/files/tokenizer/tokenizer_file.h"

namespace reprise {
namespace {

class LineReader {
 public:
  explicit LineReader(const std::string& path) { file_.path = path; }

  TokenizerFile read() {
    file_.alphabet = Alphabet::kWordPieces;
    file_.cuts = {{Cut::kBertWords}};
    file_.bert = BertRules();
    file_.drops_first_space = true;
    read_tokens();
    read_config();
    return std::move(file_);
  }

 private:
  void read_tokens() {
    const std::string text = text_of_tokenizer(file_.path);
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      std::string name = text.substr(at, end - at);
      if (!name.empty() && name.back() == '\r') name.pop_back();
      add(name);
      at = end + 1;
    }
  }

  void add(const std::string& name) {
    const size_t id = file_.tokens.size();
    if (id == kMaxTokens)
      throw UserError(file_.path + ": more than " + std::to_string(kMaxTokens) + " lines, each a token");
    file_.tokens.push_back({name, name.empty() ? TokenKind::kAbsent : TokenKind::kNormal});
    if (name.empty()) return;
    const auto [place, is_new] = id_of_name_.emplace(name, static_cast<int32_t>(id));
    if (is_new) return;
    throw UserError(file_.path + ", line " + std::to_string(id + 1) + ": " + json_shown(name) + " stands in line " +
                    std::to_string(place->second + 1) + ", too");
  }

  void read_config() {
    const TokenizerConfig config(file_.path);
    read_rules(config.fields(), *file_.bert);
    file_.unknown = control_token(config, "unk_token", "[UNK]", true);
    file_.bos = control_token(config, "cls_token", "[CLS]", true);
    file_.behind = {*control_token(config, "sep_token", "[SEP]", true)};
    file_.adds_bos = true;
    file_.pair = pair_between(*file_.bos, file_.behind[0]);
    file_.pad = control_token(config, "pad_token", "[PAD]", false);
    control_token(config, "mask_token", "[MASK]", false);
  }

  // Reads the normalisation rules. Unless strip_accents is given, accents are stripped if letters
  // are made lower-case.
  static void read_rules(const JsonFields& fields, BertRules& rules) {
    fields.read("do_lower_case", rules.lowers);
    fields.read("tokenize_chinese_chars", rules.parts_chinese);
    rules.strips_accents = rules.lowers;
    if (fields.has_value("strip_accents")) fields.read("strip_accents", rules.strips_accents);
    bool cuts = true;
    fields.read("do_basic_tokenize", cuts);
    if (!cuts) fields.refuse("do_basic_tokenize", "false is not supported");
  }

  // Makes a token a control token: it is cut out of a text only if the caller allows it.
  std::optional<int32_t> control_token(const TokenizerConfig& config, const char* key, const char* usual,
                                       bool is_needed) {
    const std::string name = config.token(key).value_or(usual);
    const auto found = id_of_name_.find(name);
    if (found == id_of_name_.end()) {
      if (!is_needed) return std::nullopt;
      throw UserError(file_.path +
                      ": is no vocabulary of BERT's kind, and neither tokenizer.json nor GGUF: no line is its " +
                      std::string(key) + ", " + json_shown(name));
    }
    file_.tokens[static_cast<size_t>(found->second)].kind = TokenKind::kControl;
    file_.added.push_back({.id = found->second});
    return found->second;
  }

  TokenizerFile file_;
  std::unordered_map<std::string, int32_t> id_of_name_;
};

}  // namespace

TokenizerFile read_tokenizer_lines(const std::string& path) { return LineReader(path).read(); }

}  // namespace reprise
