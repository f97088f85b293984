// Implements the forms of a record, and finds the prompt that both answers share.
#include "tools/files/chat/preference_record.h"

#include <algorithm>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"

namespace reprise {
namespace {

using Json = nlohmann::ordered_json;

class RecordReader {
 public:
  RecordReader(const Json& record, const std::string& place) : record_(record), place_(place) {}

  PreferenceRecord pair() const {
    if (has("completion") && has("label") && !has("chosen"))
      refuse("chosen", "missing: a record with \"completion\" and \"label\" is for \"loss\": {\"kind\": \"kto\"}");
    PreferenceRecord read = {.prompt = {},
                             .answers = {answer("chosen"), answer("rejected")},
                             .unused = unused({"prompt", "chosen", "rejected"})};
    if (read.answers[0].type() != read.answers[1].type())
      refuse("rejected", std::string("must be ") + kind_of(read.answers[0]) + " as \"chosen\" is");
    const bool has_prompt = has("prompt") && record_["prompt"].type() == read.answers[0].type();
    if (has("prompt") && !has_prompt && !(record_["prompt"].is_string() && read.answers[0].is_array())) {
      refuse("prompt", std::string("must be ") + kind_of(read.answers[0]) + " as the answers are, not " +
                           kind_of(record_["prompt"]));
    }
    if (has_prompt) {
      read.prompt = answer("prompt");
    } else {
      take_common(read);
    }
    return read;
  }

  PreferenceRecord single() const {
    PreferenceRecord read = {.prompt = answer("prompt"),
                             .answers = {answer("completion"), {}},
                             .unused = unused({"prompt", "completion", "label"})};
    if (read.prompt.type() != read.answers[0].type())
      refuse("completion", std::string("must be ") + kind_of(read.prompt) + " as \"prompt\" is");
    if (!has("label")) refuse("label", "missing: true where the completion is wished for, else false");
    if (record_["label"].is_boolean()) {
      read.wish = record_["label"].get<bool>() ? 1 : -1;
      // In CSV files labels are strings.
    } else if (record_["label"] == "true" || record_["label"] == "True" || record_["label"] == "1") {
      read.wish = 1;
    } else if (record_["label"] == "false" || record_["label"] == "False" || record_["label"] == "0") {
      read.wish = -1;
    } else {
      refuse("label", std::string("must be true or false, not ") + kind_of(record_["label"]));
    }
    return read;
  }

 private:
  bool has(const char* key) const { return record_.contains(key) && !record_[key].is_null(); }

  // Returns the keys of the record that are neither null nor in `known`. "tools" and
  // "chat_template_kwargs" are also known if the texts are lists of messages.
  std::set<std::string> unused(std::set<std::string> known) const {
    const bool are_lists = std::any_of(known.begin(), known.end(), [this](const std::string& key) {
      return record_.contains(key) && record_[key].is_array();
    });
    if (are_lists) known.insert({"tools", "chat_template_kwargs"});
    std::set<std::string> others;
    for (const auto& [key, value] : record_.items()) {
      if (known.count(key) == 0 && !value.is_null()) others.insert(json_shown(key));
    }
    return others;
  }

  const Json& answer(const char* key) const {
    if (!has(key)) refuse(key, "missing");
    const Json& value = record_[key];
    if (!value.is_string() && !value.is_array())
      refuse(key, std::string("must be a text or a list of messages, not ") + kind_of(value));
    if (value.is_array() ? value.empty() : value.get_ref<const std::string&>().empty()) refuse(key, "is empty");
    return value;
  }

  // Moves the common beginning of both answers to the prompt: whole messages, or bytes of text. A
  // space at the end of the beginning stays with the answers.
  void take_common(PreferenceRecord& read) const {
    if (read.answers[0].is_array()) {
      size_t common = 0;
      while (common < read.answers[0].size() && common < read.answers[1].size() &&
             read.answers[0][common] == read.answers[1][common])
        ++common;
      require_common(common, std::min(read.answers[0].size(), read.answers[1].size()));
      read.prompt = Json(read.answers[0].begin(), read.answers[0].begin() + static_cast<long>(common));
      for (Json& answer : read.answers) answer = Json(answer.begin() + static_cast<long>(common), answer.end());
      return;
    }
    const std::string chosen = read.answers[0], rejected = read.answers[1];
    auto common = static_cast<size_t>(
        std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end()).first - chosen.begin());
    const auto is_within = [](const std::string& text, size_t at) {
      return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
    };
    // Does not cut within a character.
    while (common > 0 && (is_within(chosen, common) || is_within(rejected, common))) --common;
    if (common > 0 && chosen[common - 1] == ' ') --common;
    require_common(common, std::min(chosen.size(), rejected.size()));
    read.prompt = chosen.substr(0, common);
    read.answers[0] = chosen.substr(common);
    read.answers[1] = rejected.substr(common);
  }

  void require_common(size_t common, size_t shortest) const {
    if (common == 0)
      refuse("prompt", "missing, and \"chosen\" and \"rejected\" begin with nothing in common that could be it");
    if (common == shortest)
      refuse("rejected", "nothing but what \"chosen\" is, or begins with; there is no answer left to compare");
  }

  static std::string kind_of(const Json& value) {
    return value.is_array() ? "a list of messages" : value.is_string() ? "a text" : json_kind(nlohmann::json(value));
  }
  [[noreturn]] void refuse(const char* field, const std::string& reason) const {
    throw UserError(place_ + ": " + field + ": " + reason);
  }

  const Json& record_;
  const std::string& place_;
};

}  // namespace

PreferenceRecord read_preference(const Json& record, bool is_single, const std::string& place) {
  if (!record.is_object()) throw UserError(place + ": must be an object, not " + json_kind(nlohmann::json(record)));
  const RecordReader reader(record, place);
  return is_single ? reader.single() : reader.pair();
}

}  // namespace reprise
