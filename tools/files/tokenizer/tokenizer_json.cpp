// Reads tokenizer.json as Hugging Face's tokenizers write it, and the tokenizer_config.json next to
// it, which names bos, eos and pad. A setting that changes the ids and is not supported is refused
// by name; otherwise texts would be tokenised wrongly without an error.
#include <algorithm>
#include <unordered_map>

#include "tools/files/formats/json_fields.h"
#include "tools/files/io/error.h"
#include "tools/files/tokenizer/cut.h"
#include "tools/files/tokenizer/new_tokens.h"
#include "tools/files/tokenizer/space_mark.h"
#include "tools/files/tokenizer/tokenizer_config.h"
#include "tools/files/tokenizer/tokenizer_file.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr Word<SplitBehavior> kSplitBehaviors[] = {{"Isolated", SplitBehavior::kIsolated},
                                                   {"Removed", SplitBehavior::kRemoved},
                                                   {"MergedWithPrevious", SplitBehavior::kWithPrevious},
                                                   {"MergedWithNext", SplitBehavior::kWithNext},
                                                   {"Contiguous", SplitBehavior::kContiguous}};

class Reader {
 public:
  explicit Reader(const std::string& path)
      : json_(parse_json(text_of_tokenizer(path), path)), root_(json_, {path}, "") {
    file_.path = path;
  }

  TokenizerFile read(const std::vector<std::string>& new_tokens, NewTokens* made) {
    root_.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                      "post_processor", "decoder", "model"});
    read_model(root_.object("model"));
    read_added_tokens();
    if (root_.has_value("normalizer")) read_normalizer(root_.object("normalizer"));
    if (root_.has_value("pre_tokenizer")) read_pre_tokenizer(root_.object("pre_tokenizer"), true);
    check_alphabet();
    file_.drops_first_space = is_by_pieces();
    if (root_.has_value("post_processor")) read_post_processor(root_.object("post_processor"));
    if (root_.has_value("decoder")) read_decoder(root_.object("decoder"));
    NewTokens added = add_tokens(file_, new_tokens);
    for (size_t id = added.first; id < added.first + added.count; ++id)
      id_of_name_.emplace(file_.tokens[id].name, static_cast<int32_t>(id));
    if (made != nullptr) *made = std::move(added);
    read_config();
    return std::move(file_);
  }

 private:
  [[noreturn]] static void refuse_type(const JsonFields& fields, const std::string& type,
                                       const std::vector<std::string>& known) {
    fields.refuse("type", json_shown(type) + " is not supported; must be " + either_of(known));
  }
  static std::string type_of(const JsonFields& fields) {
    std::string type;
    fields.require("type", "say what it is");
    fields.read("type", type);
    return type;
  }
  // Throws unless a setting is off: absent, null, false, 0 or "".
  static void require_off(const JsonFields& fields, const std::string& key) {
    if (!fields.has_value(key)) return;
    const json& value = fields.at(key);
    if (value == false || value == 0 || value == "") return;
    fields.refuse(key, json_shown(value) + " is not supported");
  }

  // Returns the id of a token that another field names.
  int32_t id_of(const JsonFields& fields, const std::string& key, const std::string& name) const {
    const auto found = id_of_name_.find(name);
    if (found == id_of_name_.end()) fields.refuse(key, json_shown(name) + " is no token of the vocabulary");
    return found->second;
  }

  static int32_t checked_id(const JsonFields& fields, const std::string& key, const std::string& name, const json& id) {
    if (id.is_number_unsigned() && id.get<uint64_t>() < kMaxTokens) return id.get<int32_t>();
    fields.refuse(key, json_shown(name) + ": its id must be an integer from 0 to " + std::to_string(kMaxTokens - 1) +
                           ", not " + json_shown(id));
  }

  FileToken& token_at(int32_t id) {
    const auto index = static_cast<size_t>(id);
    if (index >= file_.tokens.size()) file_.tokens.resize(index + 1);
    return file_.tokens[index];
  }

  void read_model(const JsonFields& model) {
    const std::string type = model.has("type")                       ? type_of(model)
                             : model.has("max_input_chars_per_word") ? "WordPiece"
                                                                     : "BPE";
    if (type == "WordPiece") return read_word_pieces(model);
    if (type != "BPE") refuse_type(model, type, {"BPE", "WordPiece"});
    model.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                      "byte_fallback", "ignore_merges", "vocab", "merges"});
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) require_off(model, key);
    model.read("ignore_merges", file_.takes_whole_words);
    bool falls_back = false;
    model.read("byte_fallback", falls_back);
    if (falls_back) file_.alphabet = Alphabet::kCharacters;
    model.require("vocab", "give the tokens and their ids");
    model.require("merges", "give the pairs in the order in which they are joined");
    read_vocabulary(model);
    if (model.has_value("unk_token")) {
      // In a vocabulary by characters all 256 bytes are tokens, so nothing is unknown and fuse_unk
      // has no effect
      if (!is_by_characters()) require_off(model, "fuse_unk");
      std::string name;
      model.read("unk_token", name);
      unknown_ = name;
    }
    read_merges(model);
  }

  void read_word_pieces(const JsonFields& model) {
    model.allow_only({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
    file_.alphabet = Alphabet::kWordPieces;
    std::string unknown = "[UNK]";
    model.read("unk_token", unknown);
    unknown_ = unknown;
    model.read("continuing_subword_prefix", file_.pieces.prefix);
    constexpr uint64_t kLongestWord = 10000;  // limits the time, because pieces of a word are searched for one by one
    model.read("max_input_chars_per_word", file_.pieces.longest_word, 1, kLongestWord);
    model.require("vocab", "give the tokens and their ids");
    read_vocabulary(model);
  }

  void read_vocabulary(const JsonFields& model) {
    const json& vocabulary = model.at("vocab");
    if (!vocabulary.is_object() || vocabulary.empty())
      model.refuse("vocab", std::string("must be an object of tokens and their ids, not ") + json_shown(vocabulary));
    for (const auto& [name, value] : vocabulary.items()) {
      const int32_t id = checked_id(model, "vocab", name, value);
      FileToken& token = token_at(id);
      if (token.kind != TokenKind::kAbsent) {
        model.refuse("vocab", json_shown(name) + " has the id " + std::to_string(id) + ", which " +
                                  json_shown(token.name) + " has too");
      }
      token = {name, is_by_characters() && byte_of_name(name) ? TokenKind::kByte : TokenKind::kNormal};
      id_of_name_.emplace(name, id);
    }
  }

  // Reads the merges: "a b" in older files, ["a", "b"] in newer files.
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
        model.refuse("merges", "entry " + std::to_string(file_.merges.size()) +
                                   " must be \"a b\" or [\"a\", \"b\"], not " + json_shown(merge));
      }
      file_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
  }

  void read_added_tokens() {
    if (root_.has_value("added_tokens")) {
      for (size_t n = 0; n < root_.list_at("added_tokens").size(); ++n)
        read_added_token(root_.element("added_tokens", n));
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
    if (known->second != added.id)
      fields.refuse("content", json_shown(content) + " has the id " + std::to_string(known->second) + " already");
    if (token.kind != TokenKind::kAbsent && token.name != content)
      fields.refuse("id", std::to_string(added.id) + " is that of " + json_shown(token.name));
    token = {content, special ? TokenKind::kControl : TokenKind::kAdded,
             token.kind == TokenKind::kAbsent || token.is_added_alone};
    file_.added.push_back(added);
  }

  bool is_by_characters() const { return file_.alphabet == Alphabet::kCharacters; }
  bool is_by_pieces() const { return file_.alphabet == Alphabet::kWordPieces; }

  // Checks the steps before the model. A vocabulary by characters must get marks in place of
  // spaces; a vocabulary by bytes needs the byte alphabet.
  void check_alphabet() const {
    const JsonFields model = root_.object("model");
    if (is_by_pieces()) {
      if (ends_with_bytes_)
        root_.refuse("pre_tokenizer", "must not end with ByteLevel: the model is WordPiece, whose tokens are text");
      return;
    }
    if (!is_by_characters()) {
      if (!ends_with_bytes_)
        root_.refuse("pre_tokenizer",
                     "must end with ByteLevel, or model.byte_fallback be true: other vocabularies are not known here");
      return;
    }
    if (ends_with_bytes_)
      model.refuse("byte_fallback",
                   "must be false where pre_tokenizer ends with ByteLevel: every byte is a token already");
    if (file_.takes_whole_words) model.refuse("ignore_merges", "true is not supported beside byte_fallback");
    if (!marks_spaces_)
      model.refuse(
          "byte_fallback",
          "true needs a normalizer (Replace) or pre_tokenizer (Metaspace) that puts U+2581 in place of spaces");
  }

  void read_normalizer(const JsonFields& normalizer) {
    const std::string type = type_of(normalizer);
    if (type == "Sequence") {
      for (size_t n = 0; n < normalizer.list_at("normalizers").size(); ++n)
        read_normalizer(normalizer.element("normalizers", n));
    } else if (type == "NFC") {
      if (marks_spaces_ || file_.space_before != SpaceBefore::kNothing)
        normalizer.refuse("type", "\"NFC\" must stand before Prepend and Replace");
      if (file_.bert) normalizer.refuse("type", "\"NFC\" beside BertNormalizer is not supported");
      file_.composes = true;
    } else if (is_by_pieces() && type == "BertNormalizer") {
      read_bert_normalizer(normalizer);
    } else if (is_by_characters() && type == "Prepend") {
      require_text(normalizer, "prepend", kSpaceMark);
      file_.space_before = SpaceBefore::kEveryPiece;
    } else if (is_by_characters() && type == "Replace") {
      read_replace(normalizer, " ", kSpaceMark);
      marks_spaces_ = file_.marks_before_added = true;
    } else {
      std::vector<std::string> known = {"NFC", "Sequence"};
      if (is_by_characters()) known.insert(known.end(), {"Prepend", "Replace"});
      if (is_by_pieces()) known.push_back("BertNormalizer");
      refuse_type(normalizer, type, known);
    }
  }

  // Reads BERT's normaliser. Unless strip_accents is given, accents are stripped if letters are
  // made lower-case.
  void read_bert_normalizer(const JsonFields& normalizer) {
    normalizer.allow_only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    if (file_.bert || file_.composes) normalizer.refuse("type", "\"BertNormalizer\" must stand alone");
    BertRules rules;
    normalizer.read("clean_text", rules.cleans);
    normalizer.read("handle_chinese_chars", rules.parts_chinese);
    normalizer.read("lowercase", rules.lowers);
    rules.strips_accents = rules.lowers;
    if (normalizer.has_value("strip_accents")) normalizer.read("strip_accents", rules.strips_accents);
    file_.bert = rules;
  }

  static void require_text(const JsonFields& fields, const std::string& key, std::string_view wanted) {
    const std::string shown = json_shown(std::string(wanted));
    std::string text;
    fields.require(key, "must be " + shown);
    fields.read(key, text);
    if (text != wanted) fields.refuse(key, json_shown(text) + " is not supported; must be " + shown);
  }

  // Throws unless the fields are {"pattern": {"String": from}, "content": to}.
  static void read_replace(const JsonFields& fields, std::string_view from, std::string_view to) {
    fields.require("pattern", "give {\"String\": " + json_shown(std::string(from)) + "}");
    require_text(fields.object("pattern"), "String", from);
    require_text(fields, "content", to);
  }

  void read_pre_tokenizer(const JsonFields& fields, bool is_last) {
    const std::string type = type_of(fields);
    if (type == "Sequence") {
      fields.allow_only({"type", "pretokenizers"});
      const size_t count = fields.list_at("pretokenizers").size();
      for (size_t n = 0; n < count; ++n)
        read_pre_tokenizer(fields.element("pretokenizers", n), is_last && n + 1 == count);
    } else if (type == "ByteLevel") {
      read_byte_level(fields, is_last);
    } else if (type == "Split") {
      read_split(fields);
    } else if (type == "Punctuation") {
      read_punctuation(fields);
    } else if (type == "BertPreTokenizer" && is_by_pieces()) {
      fields.allow_only({"type"});
      file_.cuts.push_back({Cut::kBertWords});
    } else if (type == "Metaspace" && is_by_characters()) {
      read_metaspace(fields);
    } else if (type == "Digits") {
      bool each = false;
      fields.allow_only({"type", "individual_digits"});
      fields.read("individual_digits", each);
      file_.cuts.push_back({each ? Cut::kEachDigit : Cut::kDigitRuns});
    } else {
      refuse_type(fields, type,
                  {is_by_characters() ? "Metaspace"
                   : is_by_pieces()   ? "BertPreTokenizer"
                                      : "ByteLevel",
                   "Split", "Digits", "Punctuation", "Sequence"});
    }
  }

  // Reads Metaspace. Older files have add_prefix_space in place of prepend_scheme.
  void read_metaspace(const JsonFields& fields) {
    fields.allow_only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    require_text(fields, "replacement", kSpaceMark);
    if (marks_spaces_)
      fields.refuse("type", "\"Metaspace\" beside a normalizer that puts U+2581 in place of spaces is not supported");
    if (!file_.cuts.empty())
      fields.refuse("type", "\"Metaspace\" must be the first: what stands before it would see spaces");
    file_.space_before = read_scheme(fields);
    bool cuts = true;
    fields.read("split", cuts);
    if (cuts) file_.cuts.push_back({Cut::kPattern, "\u2581[^\u2581]*"});
    marks_spaces_ = true;
  }

  static SpaceBefore read_scheme(const JsonFields& fields) {
    bool adds = true;
    fields.read("add_prefix_space", adds);
    std::string scheme = adds ? "always" : "never";
    if (fields.has_value("prepend_scheme")) {
      fields.require_one_of("prepend_scheme", {"always", "never", "first"});
      fields.read("prepend_scheme", scheme);
    }
    if (scheme == "never") return SpaceBefore::kNothing;
    return scheme == "first" ? SpaceBefore::kTextWithoutSpace : SpaceBefore::kPieceWithoutSpace;
  }

  void read_byte_level(const JsonFields& fields, bool is_last) {
    fields.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    bool adds_space = true, cuts = true;
    fields.read("add_prefix_space", adds_space);
    fields.read("use_regex", cuts);
    if (adds_space) fields.refuse("add_prefix_space", "true, its default, is not supported");
    if (!is_last)
      fields.refuse("type", "\"ByteLevel\" must be the last: what follows would see its alphabet, not the text");
    if (cuts) file_.cuts.push_back({Cut::kGpt2});
    ends_with_bytes_ = true;
  }

  void read_split(const JsonFields& fields) {
    fields.allow_only({"type", "pattern", "behavior", "invert"});
    fields.require("pattern", "give {\"Regex\": ...} or {\"String\": ...}");
    CutStep step{.cut = Cut::kPattern, .pattern = read_pattern(fields.object("pattern"))};
    fields.read("invert", step.inverts);
    fields.read_required_choice("behavior", step.behavior, kSplitBehaviors);
    const auto known = known_cut(step.pattern);
    if (known && step.behavior == SplitBehavior::kIsolated) step = {.cut = *known};
    file_.cuts.push_back(step);
  }

  static std::string read_pattern(const JsonFields& pattern) {
    pattern.allow_only({"Regex", "String"});
    const bool is_text = pattern.has("String");
    if (is_text == pattern.has("Regex")) pattern.refuse("Regex", "must be given, or \"String\" in its place");
    std::string text;
    pattern.read(is_text ? "String" : "Regex", text);
    return is_text ? pattern_of_text(text) : text;
  }

  void read_punctuation(const JsonFields& fields) {
    fields.allow_only({"type", "behavior"});
    CutStep step{.cut = Cut::kPattern, .pattern = "[\\p{P}\\$+<=>^`|~]"};
    fields.read_choice("behavior", step.behavior, kSplitBehaviors);
    file_.cuts.push_back(step);
  }

  void read_post_processor(const JsonFields& fields) {
    const std::string type = type_of(fields);
    if (type == "Sequence") {
      for (size_t n = 0; n < fields.list_at("processors").size(); ++n)
        read_post_processor(fields.element("processors", n));
    } else if (type == "TemplateProcessing") {
      read_template(fields);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      const int32_t cls = named_token(fields, "cls"), sep = named_token(fields, "sep");
      put_before(fields, "cls", cls);
      file_.behind = {sep};
      file_.pair = pair_between(cls, sep);
      if (type == "RobertaProcessing") {  // <s> a </s></s> b </s>, all with type 0
        file_.pair.insert(file_.pair.begin() + 2, {PairPiece::What::kToken, 0, sep});
        for (PairPiece& piece : file_.pair) piece.type = 0;
      }
    } else if (type != "ByteLevel") {  // ByteLevel only moves offsets; it does not change ids
      refuse_type(fields, type, {"ByteLevel", "TemplateProcessing", "BertProcessing", "RobertaProcessing", "Sequence"});
    }
  }

  void put_before(const JsonFields& fields, const std::string& key, int32_t id) {
    if (file_.adds_bos) fields.refuse(key, "puts a second token before a text; one is supported");
    file_.bos = id;
    file_.adds_bos = true;
  }

  // Returns the id of a token that is given as ["[CLS]", 101].
  int32_t named_token(const JsonFields& fields, const std::string& key) const {
    fields.require(key, "give [token, id]");
    const json& pair = fields.at(key);
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string())
      fields.refuse(key, "must be [token, id], not " + json_shown(pair));
    const std::string name = pair[0].get<std::string>();
    const int32_t id = id_of(fields, key, name);
    if (pair[1] != id)
      fields.refuse(key, json_shown(name) + " has the id " + std::to_string(id) + ", not " + json_shown(pair[1]));
    return id;
  }

  // Reads the parts of a row with one text, and of a row with two texts: tokens and texts.
  void read_template(const JsonFields& fields) {
    read_single(fields);
    if (fields.has_value("pair")) read_pair(fields);
  }

  int32_t token_of(const JsonFields& piece) const {
    const JsonFields token = piece.object("SpecialToken");
    std::string name;
    token.require("id", "give the token's text");
    token.read("id", name);
    return id_of(token, "id", name);
  }

  void read_pair(const JsonFields& fields) {
    file_.pair.clear();
    int texts[2] = {};
    for (size_t n = 0; n < fields.list_at("pair").size(); ++n) {
      const JsonFields element = fields.element("pair", n);
      const bool is_token = element.has("SpecialToken");
      const JsonFields body = element.object(is_token ? "SpecialToken" : "Sequence");
      PairPiece piece;
      int type = 0;
      body.read("type_id", type, 0, UINT8_MAX);
      piece.type = static_cast<uint8_t>(type);
      if (is_token) {
        piece.token = token_of(element);
      } else {
        std::string text;
        body.require_one_of("id", {"A", "B"});
        body.read("id", text);
        piece.what = text == "A" ? PairPiece::What::kFirst : PairPiece::What::kSecond;
        ++texts[text == "B"];
      }
      file_.pair.push_back(piece);
    }
    if (texts[0] != 1 || texts[1] != 1) fields.refuse("pair", "must have each of the texts A and B once");
  }

  void read_single(const JsonFields& fields) {
    fields.require("single", "give what stands around a text");
    bool is_behind = false;
    for (size_t n = 0; n < fields.list_at("single").size(); ++n) {
      const JsonFields piece = fields.element("single", n);
      if (!piece.has("SpecialToken")) {
        is_behind = true;
        continue;
      }
      const int32_t id = token_of(piece);
      is_behind ? file_.behind.push_back(id) : put_before(piece.object("SpecialToken"), "id", id);
    }
  }

  void read_decoder(const JsonFields& fields) {
    const std::string type = type_of(fields);
    if (type == "Sequence") {
      for (size_t n = 0; n < fields.list_at("decoders").size(); ++n) read_decoder(fields.element("decoders", n));
    } else if (is_by_pieces()) {
      read_piece_decoder(fields, type);
    } else if (!is_by_characters()) {
      if (type != "ByteLevel") refuse_type(fields, type, {"ByteLevel", "Sequence"});
    } else if (type == "Replace") {
      read_replace(fields, kSpaceMark, " ");
    } else if (type == "Strip") {
      read_strip(fields);
    } else if (type == "Metaspace") {
      file_.drops_first_space = read_scheme(fields) != SpaceBefore::kNothing;
    } else if (type != "ByteFallback" && type != "Fuse") {
      refuse_type(fields, type, {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace", "Sequence"});
    }
  }

  void read_piece_decoder(const JsonFields& fields, const std::string& type) {
    if (type != "WordPiece") refuse_type(fields, type, {"WordPiece"});
    fields.allow_only({"type", "prefix", "cleanup"});
    std::string prefix = file_.pieces.prefix;
    fields.read("prefix", prefix);
    if (prefix != file_.pieces.prefix)
      fields.refuse("prefix", json_shown(prefix) + " is not supported; must be model.continuing_subword_prefix, " +
                                  json_shown(file_.pieces.prefix));
    fields.read("cleanup", file_.pieces.joins_punctuation);
  }

  void read_strip(const JsonFields& fields) {
    require_text(fields, "content", " ");
    int start = 0, stop = 0;
    fields.read("start", start, 0, 1);
    fields.read("stop", stop, 0, 0);
    file_.drops_first_space = start == 1;
  }

  void read_config() {
    const TokenizerConfig config(file_.path);
    const JsonFields& fields = config.fields();
    const std::pair<const char*, std::optional<int32_t>*> named[] = {{"bos_token", &file_.bos},
                                                                     {"eos_token", &file_.eos},
                                                                     {"pad_token", &file_.pad}};
    for (const auto& [key, id] : named) {
      if (const auto name = config.token(key)) {
        *id = id_of(fields, key, *name);
      } else if (const auto older = config.token_of_map(key); older && id_of_name_.count(*older) > 0) {
        *id = id_of_name_.at(*older);
      }
    }
    if (fields.has_value("add_bos_token")) fields.read("add_bos_token", file_.adds_bos);
    if (file_.adds_bos && !file_.bos) fields.refuse("add_bos_token", "must be false where bos_token is not given");
    if (fields.has_value("add_bos_token")) put_bos_before_pair();
  }

  // Adapts the row with two texts to add_bos_token of tokenizer_config.json, which may contradict
  // it.
  void put_bos_before_pair() {
    const auto is_bos = [this](const PairPiece& piece) {
      return piece.what == PairPiece::What::kToken && file_.bos && piece.token == *file_.bos;
    };
    if (!file_.adds_bos) std::erase_if(file_.pair, is_bos);
    const bool lacks_bos = file_.adds_bos && std::none_of(file_.pair.begin(), file_.pair.end(), is_bos);
    if (lacks_bos) file_.pair.insert(file_.pair.begin(), {PairPiece::What::kToken, 0, *file_.bos});
  }

  const json json_;
  const JsonFields root_;
  TokenizerFile file_;
  std::unordered_map<std::string, int32_t> id_of_name_;
  std::optional<std::string> unknown_;
  bool ends_with_bytes_ = false, marks_spaces_ = false;
};

}  // namespace

TokenizerFile read_tokenizer_json(const std::string& path, const std::vector<std::string>& new_tokens,
                                  NewTokens* made) {
  return Reader(path).read(new_tokens, made);
}

}  // namespace reprise
