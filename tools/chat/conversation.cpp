// The forms of a sample, and what a message must have.
#include "tools/chat/conversation.h"

#include <algorithm>

#include "tools/formats/error.h"
#include "tools/formats/json_text.h"

namespace reprise {
namespace {

using Json = nlohmann::ordered_json;

// Who speaks in ShareGPT's form, in the words of those who write it, and the role that a template knows.
struct Speaker {
  const char* from;
  const char* role;
};
constexpr Speaker kSpeakers[] = {
    {"human", "user"},      {"user", "user"},          {"gpt", "assistant"},         {"assistant", "assistant"},
    {"chatgpt", "assistant"}, {"bing", "assistant"},   {"bard", "assistant"},        {"model", "assistant"},
    {"bot", "assistant"},   {"function_call", "assistant"}, {"system", "system"},    {"tool", "tool"},
    {"observation", "tool"}, {"function_response", "tool"},
};
constexpr const char* kCalls = "function_call";  // its value is what the assistant calls, as JSON

bool is_part(const Json& part) { return part.is_object() && part.contains("type"); }
bool is_list_of_parts(const Json& content) { return content.is_array() && !content.empty() && std::all_of(content.begin(), content.end(), is_part); }

class SampleReader {
 public:
  SampleReader(const Json& sample, const std::string& place) : sample_(sample), place_(place) {}

  Conversation read() {
    if (!sample_.is_object()) throw UserError(place_ + ": must be an object, not " + kind_of(sample_));
    const Form* found = only_form(false);
    if (found == nullptr) found = only_form(true);
    if (found == nullptr) refuse_keys();
    (this->*found->read)();
    return std::move(conversation_);
  }

 private:
  struct Form {
    const char* key;
    void (SampleReader::*read)();
    bool is_weak = false;  // its key is read where no other form is there, and passed over beside one
  };
  static const Form kForms[9];

  const Form* only_form(bool is_weak) const {
    const Form* found = nullptr;
    for (const Form& form : kForms) {
      if (form.is_weak != is_weak || !has(form.key)) continue;
      if (found != nullptr) throw UserError(place_ + ": has both \"" + found->key + "\" and \"" + form.key + "\"; one says what the sample is");
      found = &form;
    }
    return found;
  }

  [[noreturn]] void refuse_keys() const {
    std::vector<std::string> wanted, there;
    for (const Form& form : kForms) wanted.emplace_back(form.key);
    for (const auto& [key, value] : sample_.items()) {
      if (there.size() < kMostShown) there.push_back(shown_key(key));
    }
    const std::string shown = there.empty() ? "nothing" : quoted_list(there) + (sample_.size() > there.size() ? " and others" : "");
    throw UserError(place_ + ": has none of " + quoted_list(wanted) + ", but " + shown);
  }

  void read_messages() {
    conversation_.variables["messages"] = messages("messages");
    read_tools();
  }

  void read_speakers() {
    const Json& list = list_of("conversations");
    if (list[0].is_object() && list[0].contains("role")) {
      conversation_.variables["messages"] = messages("conversations");
    } else {
      Json all = Json::array();
      for (size_t i = 0; i < list.size(); ++i) all.push_back(spoken("conversations[" + std::to_string(i) + "]", list[i]));
      conversation_.variables["messages"] = all;
    }
    const bool begins_with_system = conversation_.variables["messages"][0]["role"] == "system";
    if (begins_with_system && has("system") && !string("system").empty()) refuse("system", "must not stand beside conversations[0], which is the system's");
    read_system();
    read_tools();
  }

  Json spoken(const std::string& path, const Json& one) {
    if (!one.is_object()) refuse(path, std::string("must be an object, not ") + kind_of(one));
    const std::string &from = string_in(one, path, "from"), &value = string_in(one, path, "value");
    const auto speaker = std::find_if(std::begin(kSpeakers), std::end(kSpeakers), [&](const Speaker& known) { return from == known.from; });
    if (speaker == std::end(kSpeakers)) {
      std::vector<std::string> known;
      for (const Speaker& each : kSpeakers) known.emplace_back(each.from);
      refuse(path + ".from", "must be " + either_of(known) + ", not " + json_shown(from));
    }
    return from == kCalls ? called(path + ".value", value) : message(speaker->role, value);
  }

  // {"name", "arguments"}, or a list of these.
  Json called(const std::string& path, const std::string& value) {
    Json calls = Json::parse(value, nullptr, false);
    if (calls.is_object()) calls = Json::array({calls});
    Json message = {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array()}};
    for (const Json& call : calls.is_array() ? calls : Json::array({nullptr})) {
      if (!call.is_object() || !call.contains("name")) refuse(path, "must be JSON of a call, {\"name\", \"arguments\"}, or of a list of them");
      message["tool_calls"].push_back({{"type", "function"}, {"function", call}});
    }
    return message;
  }

  void read_prompt() {
    const std::string answer = answer_key("prompt", {"completion", "response"});
    if (sample_["prompt"].is_string()) return read_pair(string("prompt"), answer);
    Json all = messages("prompt");
    conversation_.prompt_messages = all.size();
    for (const Json& one : messages(answer)) all.push_back(one);
    conversation_.variables["messages"] = all;
    read_tools();
  }

  void read_instruction() {
    const std::string answer = answer_key("instruction", {"output", "response"});
    std::string asked = string("instruction");
    for (const char* const key : {"input", "context"}) {
      if (has(key) && !string(key).empty()) asked += "\n\n" + string(key);
    }
    read_pair(asked, answer);
  }

  void read_question() { read_pair(string("question"), answer_key("question", {"answer", "response"})); }
  void read_query() { read_pair(string("query"), answer_key("query", {"answer", "response"})); }
  void read_input() { read_pair(string("input"), answer_key("input", {"output", "response"})); }

  void read_text() { take_text("text"); }
  void read_content() { take_text("content"); }
  void take_text(const std::string& key) {
    conversation_.text = string(key);
    conversation_.is_text = true;
    if (conversation_.text.empty()) refuse(key, "is empty");
  }

  void read_pair(const std::string& asked, const std::string& answer) {
    conversation_.variables["messages"] = {message("user", asked), message("assistant", string(answer))};
    conversation_.prompt_messages = 1;
    read_system();
  }

  // The one of the keys that is there.
  std::string answer_key(const char* asked, const std::vector<std::string>& keys) {
    std::string found;
    for (const std::string& key : keys) {
      if (!has(key)) continue;
      if (!found.empty()) refuse(key, "must not stand beside \"" + found + "\": both answer \"" + asked + "\"");
      found = key;
    }
    if (found.empty()) refuse(keys[0], std::string("missing: \"") + asked + "\" comes with it" + (keys.size() > 1 ? ", or with \"" + keys[1] + "\"" : ""));
    return found;
  }

  void read_system() {
    if (!has("system") || string("system").empty()) return;
    Json& messages = conversation_.variables["messages"];
    messages.insert(messages.begin(), message("system", string("system")));
    conversation_.prompt_messages += conversation_.prompt_messages > 0;
  }

  // A list, or JSON of one.
  void read_tools() {
    if (!has("tools")) return;
    Json tools = sample_["tools"].is_string() ? Json::parse(string("tools"), nullptr, false) : sample_["tools"];
    if (sample_["tools"].is_string() && string("tools").empty()) return;
    if (!tools.is_array()) refuse("tools", std::string("must be a list, not ") + kind_of(sample_["tools"]));
    conversation_.variables["tools"] = tools;
  }

  const Json& list_of(const std::string& key) {
    const Json& list = sample_[key];
    if (!list.is_array()) refuse(key, std::string("must be a list of messages, not ") + kind_of(list));
    if (list.empty()) refuse(key, "is empty");
    return list;
  }

  Json messages(const std::string& key) {
    const Json& list = list_of(key);
    for (size_t i = 0; i < list.size(); ++i) check_message(key + "[" + std::to_string(i) + "]", list[i]);
    return list;
  }

  // What "content" holds is the template's to understand: a string, text in parts, or what a tool answers.
  void check_message(const std::string& path, const Json& one) {
    if (!one.is_object()) refuse(path, std::string("must be an object, not ") + kind_of(one));
    if (!one.contains("role")) refuse(path + ".role", "missing; say \"user\", \"assistant\" or \"system\"");
    if (!one["role"].is_string()) refuse(path + ".role", std::string("must be a string, not ") + kind_of(one["role"]));
    const bool says_something = one.contains("content") && !one["content"].is_null();
    if (!says_something && !one.contains("tool_calls")) refuse(path + ".content", "missing");
    if (says_something && is_list_of_parts(one["content"])) check_parts(path + ".content", one["content"]);
  }

  void check_parts(const std::string& path, const Json& parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string part = path + "[" + std::to_string(i) + "]";
      if (parts[i]["type"] != "text") refuse(part + ".type", "must be \"text\", all that a language model reads, not " + json_shown(nlohmann::json(parts[i]["type"])));
      string_in(parts[i], part, "text");
    }
  }

  const std::string& string(const std::string& key) { return string_in(sample_, "", key); }
  const std::string& string_in(const Json& object, const std::string& path, const std::string& key) {
    const std::string field = path.empty() ? key : path + "." + key;
    if (!object.contains(key) || object[key].is_null()) refuse(field, "missing");
    if (!object[key].is_string()) refuse(field, std::string("must be a string, not ") + kind_of(object[key]));
    return object[key].get_ref<const std::string&>();
  }

  static Json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }
  static const char* kind_of(const Json& value) { return json_kind(nlohmann::json(value)); }
  bool has(const std::string& key) const { return sample_.contains(key) && !sample_[key].is_null(); }
  [[noreturn]] void refuse(const std::string& field, const std::string& reason) const { throw UserError(place_ + ": " + field + ": " + reason); }

  static constexpr size_t kMostShown = 8;
  const Json& sample_;
  const std::string& place_;
  Conversation conversation_;
};

const SampleReader::Form SampleReader::kForms[9] = {
    {"messages", &SampleReader::read_messages},       {"conversations", &SampleReader::read_speakers}, {"prompt", &SampleReader::read_prompt},
    {"instruction", &SampleReader::read_instruction}, {"text", &SampleReader::read_text},              {"question", &SampleReader::read_question, true},
    {"query", &SampleReader::read_query, true},       {"input", &SampleReader::read_input, true},             {"content", &SampleReader::read_content, true},
};

}  // namespace

Conversation read_conversation(const nlohmann::ordered_json& sample, const std::string& place) { return SampleReader(sample, place).read(); }

void join_text_parts(nlohmann::ordered_json& messages) {
  for (Json& message : messages) {
    if (!message.contains("content") || !is_list_of_parts(message["content"])) continue;
    std::string text;
    for (const Json& part : message["content"]) text += part.value("text", "") + "\n";
    text.pop_back();
    message["content"] = text;
  }
}

}  // namespace reprise
