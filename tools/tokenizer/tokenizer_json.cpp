// tokenizer.json as Hugging Face's tokenizers write it, and the tokenizer_config.json beside it, which names bos, eos and pad.
// What would change the ids and is not known here is refused by its name, so that no text is tokenised wrongly in silence.
#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "tools/formats/error.h"
#include "tools/formats/input_file.h"
#include "tools/formats/json_fields.h"
#include "tools/tokenizer/cut.h"
#include "tools/tokenizer/tokenizer_file.h"

namespace reprise {
namespace {

using nlohmann::json;

std::string text_of_file(const std::string& path) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 28;
  const InputFile file(path);
  if (file.bytes() > kMostBytes) throw UserError(path + ": is no tokenizer: it is larger than " + std::to_string(kMostBytes) + " bytes");
  std::string text(file.bytes(), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : json_(parse_json(text_of_file(path), path)), root_(json_, {path}, "") { file_.path = path; }

  TokenizerFile read() {
    root_.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"});
    read_model(root_.object("model"));
    read_added_tokens();
    if (root_.has_value("normalizer")) read_normalizer(root_.object("normalizer"));
    root_.require("pre_tokenizer", "give one that ends with ByteLevel");
    read_pre_tokenizer(root_.object("pre_tokenizer"), true);
    if (!ends_with_bytes_) root_.refuse("pre_tokenizer", "must end with ByteLevel: only byte-level vocabularies are known here");
    if (root_.has_value("post_processor")) read_post_processor(root_.object("post_processor"));
    if (root_.has_value("decoder")) read_decoder(root_.object("decoder"));
    read_config();
    return std::move(file_);
  }

 private:
  [[noreturn]] static void refuse_type(const JsonFields& fields, const std::string& type, const std::vector<std::string>& known) {
    fields.refuse("type", json_shown(type) + " is not supported; must be " + either_of(known));
  }
  static std::string type_of(const JsonFields& fields) {
    std::string type;
    fields.require("type", "say what it is");
    fields.read("type", type);
    return type;
  }
  // A setting that must be off: absent, null, false, 0 or "".
  static void require_off(const JsonFields& fields, const std::string& key) {
    if (!fields.has_value(key)) return;
    const json& value = fields.at(key);
    if (value == false || value == 0 || value == "") return;
    fields.refuse(key, json_shown(value) + " is not supported");
  }

  // Of a token that the file names elsewhere.
  int32_t id_of(const JsonFields& fields, const std::string& key, const std::string& name) const {
    const auto found = id_of_name_.find(name);
    if (found == id_of_name_.end()) fields.refuse(key, json_shown(name) + " is no token of the vocabulary");
    return found->second;
  }

  static int32_t checked_id(const JsonFields& fields, const std::string& key, const std::string& name, const json& id) {
    if (id.is_number_unsigned() && id.get<uint64_t>() < kMostTokens) return id.get<int32_t>();
    fields.refuse(key, json_shown(name) + ": its id must be an integer from 0 to " + std::to_string(kMostTokens - 1) + ", not " + json_shown(id));
  }

  FileToken& token_at(int32_t id) {
    const auto index = static_cast<size_t>(id);
    if (index >= file_.tokens.size()) file_.tokens.resize(index + 1);
    return file_.tokens[index];
  }

  void read_model(const JsonFields& model) {
    model.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges",
                      "vocab", "merges"});
    if (model.has("type") && type_of(model) != "BPE") refuse_type(model, type_of(model), {"BPE"});
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) require_off(model, key);
    model.read("ignore_merges", file_.takes_whole_words);
    model.require("vocab", "give the tokens and their ids");
    model.require("merges", "give the pairs in the order in which they are joined");
    read_vocabulary(model);
    if (model.has_value("unk_token")) {
      require_off(model, "fuse_unk");
      std::string name;
      model.read("unk_token", name);
      unknown_ = name;
    }
    read_merges(model);
  }

  void read_vocabulary(const JsonFields& model) {
    const json& vocabulary = model.at("vocab");
    if (!vocabulary.is_object() || vocabulary.empty()) model.refuse("vocab", std::string("must be an object of tokens and their ids, not ") + json_shown(vocabulary));
    for (const auto& [name, value] : vocabulary.items()) {
      const int32_t id = checked_id(model, "vocab", name, value);
      FileToken& token = token_at(id);
      if (token.kind != TokenKind::kAbsent) {
        model.refuse("vocab", json_shown(name) + " has the id " + std::to_string(id) + ", which " + json_shown(token.name) + " has too");
      }
      token = {name, TokenKind::kNormal};
      id_of_name_.emplace(name, id);
    }
  }

  // "a b" in older files, ["a", "b"] in newer ones.
  void read_merges(const JsonFields& model) {
    file_.merges_field = model.path_of("merges");
    for (const json& merge : model.list_at("merges")) {
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        file_.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
        continue;
      }
      const std::string text = merge.is_string() ? merge.get<std::string>() : "";
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        model.refuse("merges", "entry " + std::to_string(file_.merges.size()) + " must be \"a b\" or [\"a\", \"b\"], not " + json_shown(merge));
      }
      file_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
  }

  void read_added_tokens() {
    if (root_.has_value("added_tokens")) {
      for (size_t n = 0; n < root_.list_at("added_tokens").size(); ++n) read_added_token(root_.element("added_tokens", n));
    }
    if (unknown_) file_.unknown = id_of(root_.object("model"), "unk_token", *unknown_);
  }

  void read_added_token(const JsonFields& fields) {
    fields.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    fields.require("id", "give the token's id");
    fields.require("content", "give the token's text");
    std::string content;
    bool special = false;
    AddedToken added;
    fields.read("content", content);
    added.id = checked_id(fields, "id", content, fields.at("id"));
    fields.read("special", special);
    added.normalized = !special;
    fields.read("normalized", added.normalized);
    fields.read("single_word", added.single_word);
    fields.read("lstrip", added.lstrip);
    fields.read("rstrip", added.rstrip);
    FileToken& token = token_at(added.id);
    const auto known = id_of_name_.emplace(content, added.id).first;
    if (known->second != added.id) fields.refuse("content", json_shown(content) + " has the id " + std::to_string(known->second) + " already");
    if (token.kind != TokenKind::kAbsent && token.name != content) fields.refuse("id", std::to_string(added.id) + " is that of " + json_shown(token.name));
    token = {content, special ? TokenKind::kControl : TokenKind::kAdded};
    file_.added.push_back(added);
  }

  void read_normalizer(const JsonFields& normalizer) {
    const std::string type = type_of(normalizer);
    if (type == "NFC") {
      file_.composes = true;
    } else if (type == "Sequence") {
      for (size_t n = 0; n < normalizer.list_at("normalizers").size(); ++n) read_normalizer(normalizer.element("normalizers", n));
    } else {
      refuse_type(normalizer, type, {"NFC", "Sequence"});
    }
  }

  void read_pre_tokenizer(const JsonFields& fields, bool is_last) {
    const std::string type = type_of(fields);
    if (type == "Sequence") {
      fields.allow_only({"type", "pretokenizers"});
      const size_t count = fields.list_at("pretokenizers").size();
      for (size_t n = 0; n < count; ++n) read_pre_tokenizer(fields.element("pretokenizers", n), is_last && n + 1 == count);
    } else if (type == "ByteLevel") {
      read_byte_level(fields, is_last);
    } else if (type == "Split") {
      read_split(fields);
    } else if (type == "Digits") {
      bool each = false;
      fields.allow_only({"type", "individual_digits"});
      fields.read("individual_digits", each);
      file_.cuts.push_back({each ? Cut::kEachDigit : Cut::kDigitRuns});
    } else {
      refuse_type(fields, type, {"ByteLevel", "Split", "Digits", "Sequence"});
    }
  }

  void read_byte_level(const JsonFields& fields, bool is_last) {
    fields.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    bool adds_space = true, cuts = true;
    fields.read("add_prefix_space", adds_space);
    fields.read("use_regex", cuts);
    if (adds_space) fields.refuse("add_prefix_space", "true, its default, is not supported");
    if (!is_last) fields.refuse("type", "\"ByteLevel\" must be the last: what follows would see its alphabet, not the text");
    if (cuts) file_.cuts.push_back({Cut::kGpt2});
    ends_with_bytes_ = true;
  }

  void read_split(const JsonFields& fields) {
    fields.allow_only({"type", "pattern", "behavior", "invert"});
    fields.require("pattern", "give {\"Regex\": ...}");
    fields.require_one_of("behavior", {"Isolated"});
    require_off(fields, "invert");
    const JsonFields pattern = fields.object("pattern");
    pattern.allow_only({"Regex"});
    pattern.require("Regex", "give the regular expression");
    std::string text;
    pattern.read("Regex", text);
    const auto known = known_cut(text);
    file_.cuts.push_back({known.value_or(Cut::kPattern), known ? "" : text});
  }

  void read_post_processor(const JsonFields& fields) {
    const std::string type = type_of(fields);
    if (type == "Sequence") {
      for (size_t n = 0; n < fields.list_at("processors").size(); ++n) read_post_processor(fields.element("processors", n));
    } else if (type == "TemplateProcessing") {
      fields.require("single", "give what stands around a text");
      if (fields.list_at("single").empty() || !fields.element("single", 0).has("SpecialToken")) return;
      std::string name;
      const JsonFields first = fields.element("single", 0).object("SpecialToken");
      first.require("id", "give the token's text");
      first.read("id", name);
      file_.bos = id_of(first, "id", name);
      file_.adds_bos = true;
    } else if (type != "ByteLevel") {  // that one moves offsets, no ids
      refuse_type(fields, type, {"ByteLevel", "TemplateProcessing", "Sequence"});
    }
  }

  void read_decoder(const JsonFields& fields) {
    const std::string type = type_of(fields);
    if (type == "Sequence") {
      for (size_t n = 0; n < fields.list_at("decoders").size(); ++n) read_decoder(fields.element("decoders", n));
    } else if (type != "ByteLevel") {
      refuse_type(fields, type, {"ByteLevel", "Sequence"});
    }
  }

  void read_config() {
    const std::filesystem::path path = std::filesystem::path(file_.path).parent_path() / "tokenizer_config.json";
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return;
    const json config = parse_json(text_of_file(path.string()), path.string());
    const JsonFields fields(config, {path.string()}, "");
    read_named(fields, "bos_token", file_.bos);
    read_named(fields, "eos_token", file_.eos);
    read_named(fields, "pad_token", file_.pad);
    if (fields.has_value("add_bos_token")) fields.read("add_bos_token", file_.adds_bos);
    if (file_.adds_bos && !file_.bos) fields.refuse("add_bos_token", "must be false where bos_token is not given");
  }

  // "<s>", {"content": "<s>", ...} or null.
  void read_named(const JsonFields& fields, const std::string& key, std::optional<int32_t>& id) const {
    if (!fields.has_value(key)) return;
    std::string name;
    if (fields.at(key).is_object()) {
      fields.object(key).require("content", "give the token's text");
      fields.object(key).read("content", name);
    } else {
      fields.read(key, name);
    }
    id = id_of(fields, key, name);
  }

  const json json_;
  const JsonFields root_;
  TokenizerFile file_;
  std::unordered_map<std::string, int32_t> id_of_name_;
  std::optional<std::string> unknown_;
  bool ends_with_bytes_ = false;
};

}  // namespace

TokenizerFile read_tokenizer_json(const std::string& path) { return Reader(path).read(); }

}  // namespace reprise
