// Implements the forms of a sample, and checks the members that a message must have.
#include "tools/files/chat/conversation.h"

#include <algorithm>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"

namespace reprise {
namespace {

using Json = nlohmann::ordered_json;

// A speaker in ShareGPT's form: the word in the files, and the role for templates.
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
// Keys of a message with which a sample states whether the message is learned.
constexpr const char* const kFlags[] = {"weight", "train", "training", "loss"};
constexpr const char* kKwargs = "chat_template_kwargs";
constexpr const char* kCalls = "function_call";  // "from" of a ShareGPT message whose "value" is tool calls as JSON

bool is_part(const Json& part) { return part.is_object() && part.contains("type"); }
bool is_list_of_parts(const Json& content) {
  return content.is_array() && !content.empty() && std::all_of(content.begin(), content.end(), is_part);
}

class SampleReader {
 public:
  SampleReader(const Json& sample, const std::string& place) : sample_(sample), place_(place) {}

  Conversation read() {
    if (!sample_.is_object()) throw UserError(place_ + ": must be an object, not " + kind_of(sample_));
    const Form* found = only_form(false);
    if (found == nullptr) found = only_form(true);
    if (found == nullptr) refuse_keys();
    (this->*found->read)();
    finish_messages();
    for (const auto& [key, value] : sample_.items()) {
      if (read_.count(key) == 0 && !value.is_null()) conversation_.unused.insert(json_shown(key));
    }
    return std::move(conversation_);
  }

 private:
  struct Form {
    const char* key;
    void (SampleReader::*read)();
    bool is_weak = false;  // true: used only if the sample has no key of a form that is not weak
  };
  static const Form kForms[9];

  const Form* only_form(bool is_weak) const {
    const Form* found = nullptr;
    for (const Form& form : kForms) {
      if (form.is_weak != is_weak || !has(form.key)) continue;
      if (found != nullptr)
        throw UserError(place_ + ": has both \"" + found->key + "\" and \"" + form.key +
                        "\"; one says what the sample is");
      found = &form;
    }
    return found;
  }

  [[noreturn]] void refuse_keys() const {
    std::vector<std::string> wanted, there;
    for (const Form& form : kForms) wanted.emplace_back(form.key);
    for (const auto& [key, value] : sample_.items()) {
      if (there.size() < kMaxShown) there.push_back(shown_key(key));
    }
    const std::string shown =
        there.empty() ? "nothing" : quoted_list(there) + (sample_.size() > there.size() ? " and others" : "");
    throw UserError(place_ + ": has none of " + quoted_list(wanted) + ", but " + shown);
  }

  void read_messages() {
    read_.insert("messages");
    conversation_.variables["messages"] = messages("messages");
    read_variables();
  }

  void read_speakers() {
    const Json& list = list_of("conversations");
    messages_key_ = "conversations";
    read_.insert({"conversations", "system"});
    if (list[0].is_object() && list[0].contains("role")) {
      conversation_.variables["messages"] = messages("conversations");
    } else {
      Json all = Json::array();
      for (size_t i = 0; i < list.size(); ++i)
        all.push_back(spoken("conversations[" + std::to_string(i) + "]", list[i]));
      conversation_.variables["messages"] = all;
    }
    const bool begins_with_system = conversation_.variables["messages"][0]["role"] == "system";
    if (begins_with_system && has("system") && !string("system").empty())
      refuse("system", "must not stand beside conversations[0], which is the system's");
    read_system();
    read_variables();
  }

  Json spoken(const std::string& path, const Json& one) {
    if (!one.is_object()) refuse(path, std::string("must be an object, not ") + kind_of(one));
    const std::string &from = string_in(one, path, "from"), &value = string_in(one, path, "value");
    const auto speaker = std::find_if(std::begin(kSpeakers), std::end(kSpeakers),
                                      [&](const Speaker& known) { return from == known.from; });
    if (speaker == std::end(kSpeakers)) {
      std::vector<std::string> known;
      for (const Speaker& each : kSpeakers) known.emplace_back(each.from);
      refuse(path + ".from", "must be " + either_of(known) + ", not " + json_shown(from));
    }
    Json said = from == kCalls ? called(path + ".value", value) : message(speaker->role, value);
    for (const auto& [key, member] : one.items()) {
      const bool is_flag = std::find(std::begin(kFlags), std::end(kFlags), key) != std::end(kFlags);
      if (is_flag) said[key] = member;
      if (!is_flag && key != "from" && key != "value" && !member.is_null())
        conversation_.unused.insert(json_shown("conversations[]." + key));
    }
    return said;
  }

  // Returns a message of the assistant with the calls in `value`: JSON of {"name", "arguments"}, or
  // of a list of these.
  Json called(const std::string& path, const std::string& value) {
    Json calls = json_in_text(value);
    if (calls.is_object()) calls = Json::array({calls});
    Json message = {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array()}};
    for (const Json& call : calls.is_array() ? calls : Json::array({nullptr})) {
      if (!call.is_object() || !call.contains("name"))
        refuse(path, "must be JSON of a call, {\"name\", \"arguments\"}, or of a list of them");
      message["tool_calls"].push_back({{"type", "function"}, {"function", call}});
    }
    return message;
  }

  void read_prompt() {
    const std::string answer = answer_key("prompt", {"completion", "response"});
    if (sample_["prompt"].is_string()) return read_pair(string("prompt"), answer);
    messages_key_ = answer;
    Json all = messages("prompt");
    conversation_.prompt_messages = all.size();
    for (const Json& one : messages(answer)) all.push_back(one);
    conversation_.variables["messages"] = all;
    read_variables();
  }

  void read_instruction() {
    const std::string answer = answer_key("instruction", {"output", "response"});
    std::string asked = string("instruction");
    for (const char* const key : {"input", "context"}) {
      read_.insert(key);
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
    read_.insert(key);
    conversation_.text = string(key);
    conversation_.is_text = true;
    if (conversation_.text.empty()) refuse(key, "is empty");
  }

  void read_pair(const std::string& asked, const std::string& answer) {
    read_.insert({"system", kKwargs});
    add_template_variables({{kKwargs, sample_.value(kKwargs, Json())}}, place_, conversation_);
    conversation_.variables["messages"] = {message("user", asked), message("assistant", string(answer))};
    conversation_.prompt_messages = 1;
    read_system();
  }

  // Returns the key that is present. Throws if none of the keys is present, or more than one.
  std::string answer_key(const char* asked, const std::vector<std::string>& keys) {
    std::string found;
    for (const std::string& key : keys) {
      if (!has(key)) continue;
      if (!found.empty()) refuse(key, "must not stand beside \"" + found + "\": both answer \"" + asked + "\"");
      found = key;
    }
    read_.insert({asked, found});
    if (found.empty())
      refuse(keys[0], std::string("missing: \"") + asked + "\" comes with it" +
                          (keys.size() > 1 ? ", or with \"" + keys[1] + "\"" : ""));
    return found;
  }

  void read_system() {
    if (!has("system") || string("system").empty()) return;
    Json& messages = conversation_.variables["messages"];
    messages.insert(messages.begin(), message("system", string("system")));
    ++inserted_;
    conversation_.prompt_messages += conversation_.prompt_messages > 0;
  }

  void read_variables() {
    read_.insert({"tools", kKwargs});
    add_template_variables(sample_, place_, conversation_);
  }

  // For each message, reads whether it is learned, and removes nulls and empty lists that table
  // libraries add.
  void finish_messages() {
    if (conversation_.is_text) return;
    size_t nulls = 0;
    for (Json& message : conversation_.variables["messages"]) {
      const std::string path = message_path(std::max(conversation_.is_learned.size(), inserted_));
      nulls += drop_nulls_of(message);
      conversation_.is_learned.push_back(take_flag(message, path));
    }
    if (nulls > 0) conversation_.unused.insert("null in messages");
  }

  // Removes members of a message that are null or an empty list. A content always stays, because
  // templates test for it if there are calls. Returns how many nulls were removed inside of the
  // remaining members.
  static size_t drop_nulls_of(Json& message) {
    size_t nulls = 0;
    for (auto member = message.begin(); member != message.end();) {
      nulls += drop_nulls(*member);
      const bool is_empty = member->is_null() || (member->is_array() && member->empty());
      member = is_empty && member.key() != "content" ? message.erase(member) : std::next(member);
    }
    return nulls;
  }

  std::string message_path(size_t i) const {
    const size_t before = conversation_.prompt_messages;
    return i >= before ? messages_key_ + "[" + std::to_string(i - std::max(before, inserted_)) + "]"
                       : "prompt[" + std::to_string(i) + "]";
  }

  std::optional<bool> take_flag(Json& message, const std::string& path) {
    std::optional<bool> learned;
    const char* said = nullptr;
    for (const char* const key : kFlags) {
      if (!message.contains(key)) continue;
      const Json value = message[key];
      message.erase(key);
      const bool is_flag = value.is_boolean() || value == 0 || value == 1;
      if (!is_flag)
        refuse(path + "." + key, "must be 0 or 1, false or true, not " + json_shown(nlohmann::json(value)) +
                                     "; a message is learned whole or not at all");
      const bool is_one = value.is_boolean() ? value.get<bool>() : value == 1;
      if (learned && *learned != is_one) refuse(path + "." + key, std::string("says the opposite of \"") + said + "\"");
      learned = is_one;
      said = key;
      if (is_one && message["role"] != "assistant")
        conversation_.unused.insert("\"" + std::string(key) + "\" true of a message that is not the assistant's");
    }
    return learned;
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

  // Checks the members that every message needs. "content" may be a string, a list of text parts,
  // or a tool's answer; the template interprets it.
  void check_message(const std::string& path, const Json& one) {
    if (!one.is_object()) refuse(path, std::string("must be an object, not ") + kind_of(one));
    if (!one.contains("role")) refuse(path + ".role", "missing; say \"user\", \"assistant\" or \"system\"");
    if (!one["role"].is_string()) refuse(path + ".role", std::string("must be a string, not ") + kind_of(one["role"]));
    const bool says_something = one.contains("content") && !one["content"].is_null();
    const bool has_calls = one.contains("tool_calls") && one["tool_calls"].is_array() && !one["tool_calls"].empty();
    if (!says_something && !has_calls) {
      refuse(path + ".content",
             one.contains(kCalls) ? "missing, and \"function_call\" is not read; write \"tool_calls\"" : "missing");
    }
    if (says_something && is_list_of_parts(one["content"])) check_parts(path + ".content", one["content"]);
  }

  void check_parts(const std::string& path, const Json& parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string part = path + "[" + std::to_string(i) + "]";
      if (parts[i]["type"] != "text")
        refuse(part + ".type", "must be \"text\", all that a language model reads, not " +
                                   json_shown(nlohmann::json(parts[i]["type"])));
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
  [[noreturn]] void refuse(const std::string& field, const std::string& reason) const {
    throw UserError(place_ + ": " + field + ": " + reason);
  }

  static constexpr size_t kMaxShown = 8;
  const Json& sample_;
  const std::string& place_;
  Conversation conversation_;
  std::set<std::string> read_;             // keys of the sample that have been read
  std::string messages_key_ = "messages";  // key of the messages after the prompt, for error messages
  size_t inserted_ = 0;                    // number of messages that were inserted before those of the sample
};

const SampleReader::Form SampleReader::kForms[9] = {
    {"messages", &SampleReader::read_messages},
    {"conversations", &SampleReader::read_speakers},
    {"prompt", &SampleReader::read_prompt},
    {"instruction", &SampleReader::read_instruction},
    {"text", &SampleReader::read_text},
    {"question", &SampleReader::read_question, true},
    {"query", &SampleReader::read_query, true},
    {"input", &SampleReader::read_input, true},
    {"content", &SampleReader::read_content, true},
};

}  // namespace

Conversation read_conversation(const nlohmann::ordered_json& sample, const std::string& place) {
  return SampleReader(sample, place).read();
}

Json json_in_text(const std::string& text) {
  try {
    return parse_ordered_json(text, "");
  } catch (const UserError&) {
    return Json(Json::value_t::discarded);
  }
}

size_t drop_nulls(Json& value) {
  size_t dropped = 0;
  if (value.is_array()) {
    for (Json& element : value) dropped += drop_nulls(element);
  }
  for (auto member = value.begin(); value.is_object() && member != value.end();) {
    dropped += member->is_null() ? 1 : drop_nulls(*member);
    member = member->is_null() ? value.erase(member) : std::next(member);
  }
  return dropped;
}

void add_template_variables(const Json& record, const std::string& place, Conversation& conversation) {
  const auto refuse = [&](const std::string& field, const std::string& reason) {
    throw UserError(place + ": " + field + ": " + reason);
  };
  const auto kind = [](const Json& value) { return json_kind(nlohmann::json(value)); };
  const auto parsed = [](const Json& value) { return value.is_string() ? json_in_text(value) : value; };
  const auto is_given = [&](const char* key) {
    return record.contains(key) && !record[key].is_null() && record[key] != "";
  };
  if (is_given("tools")) {
    Json tools = parsed(record["tools"]);
    if (!tools.is_array()) refuse("tools", std::string("must be a list, not ") + kind(record["tools"]));
    if (!record["tools"].is_string() && drop_nulls(tools) > 0) conversation.unused.insert("null in tools");
    if (!tools.empty()) conversation.variables["tools"] = std::move(tools);
  }
  if (!is_given(kKwargs)) return;
  Json kwargs = parsed(record[kKwargs]);
  if (!kwargs.is_object()) refuse(kKwargs, std::string("must be an object, not ") + kind(record[kKwargs]));
  for (const char* const key : {"messages", "tools", "add_generation_prompt"}) {
    if (kwargs.contains(key)) refuse(std::string(kKwargs) + "." + key, "leave it out: a record says it itself");
  }
  drop_nulls(kwargs);
  if (!kwargs.empty()) conversation.variables[kKwargs] = std::move(kwargs);
}

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
