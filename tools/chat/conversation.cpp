// The four forms of a sample, and what a message must have.
#include "tools/chat/conversation.h"

#include "tools/formats/error.h"
#include "tools/formats/json_text.h"

namespace reprise {
namespace {

using Json = nlohmann::ordered_json;

class SampleReader {
 public:
  SampleReader(const Json& sample, const std::string& place) : sample_(sample), place_(place) {}

  Conversation read() {
    if (!sample_.is_object()) throw UserError(place_ + ": must be an object, not " + kind_of(sample_));
    std::string form;
    for (const char* const key : {"messages", "prompt", "instruction", "text"}) {
      if (!has(key)) continue;
      if (!form.empty()) throw UserError(place_ + ": has both \"" + form + "\" and \"" + key + "\"; one says what the sample is");
      form = key;
    }
    if (form.empty()) throw UserError(place_ + ": has none of \"messages\", \"prompt\", \"instruction\" and \"text\"");
    Conversation conversation;
    if (form == "messages") read_messages(conversation);
    if (form == "prompt") read_prompt(conversation);
    if (form == "instruction") read_instruction(conversation);
    if (form == "text") read_text(conversation);
    return conversation;
  }

 private:
  void read_messages(Conversation& conversation) {
    conversation.variables["messages"] = messages("messages");
    read_tools(conversation);
  }

  void read_prompt(Conversation& conversation) {
    if (!has("completion")) refuse("completion", "missing: \"prompt\" comes with it");
    if (sample_["prompt"].is_string()) {
      conversation.variables["messages"] = {message("user", string("prompt")), message("assistant", string("completion"))};
      conversation.prompt_messages = 1;
      return;
    }
    Json all = messages("prompt");
    conversation.prompt_messages = all.size();
    for (const Json& one : messages("completion")) all.push_back(one);
    conversation.variables["messages"] = all;
    read_tools(conversation);
  }

  void read_instruction(Conversation& conversation) {
    std::string asked = string("instruction");
    if (has("input") && !string("input").empty()) asked += "\n\n" + string("input");
    conversation.variables["messages"] = {message("user", asked), message("assistant", string("output"))};
    conversation.prompt_messages = 1;
  }

  void read_text(Conversation& conversation) {
    conversation.text = string("text");
    conversation.is_text = true;
    if (conversation.text.empty()) refuse("text", "is empty");
  }

  void read_tools(Conversation& conversation) {
    if (!has("tools")) return;
    if (!sample_["tools"].is_array()) refuse("tools", std::string("must be a list, not ") + kind_of(sample_["tools"]));
    conversation.variables["tools"] = sample_["tools"];
  }

  Json messages(const std::string& key) {
    const Json& list = sample_[key];
    if (!list.is_array()) refuse(key, std::string("must be a list of messages, not ") + kind_of(list));
    if (list.empty()) refuse(key, "is empty");
    for (size_t i = 0; i < list.size(); ++i) check_message(key + "[" + std::to_string(i) + "]", list[i]);
    return list;
  }

  // What "content" holds is the template's to understand: most take a string, some a list of parts.
  void check_message(const std::string& path, const Json& one) {
    if (!one.is_object()) refuse(path, std::string("must be an object, not ") + kind_of(one));
    if (!one.contains("role")) refuse(path + ".role", "missing; say \"user\", \"assistant\" or \"system\"");
    if (!one["role"].is_string()) refuse(path + ".role", std::string("must be a string, not ") + kind_of(one["role"]));
    const bool says_something = one.contains("content") && !one["content"].is_null();
    if (!says_something && !one.contains("tool_calls")) refuse(path + ".content", "missing");
  }

  const std::string& string(const std::string& key) {
    if (!has(key)) refuse(key, "missing");
    if (!sample_[key].is_string()) refuse(key, std::string("must be a string, not ") + kind_of(sample_[key]));
    return sample_[key].get_ref<const std::string&>();
  }

  static Json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }
  static const char* kind_of(const Json& value) { return json_kind(nlohmann::json(value)); }
  bool has(const std::string& key) const { return sample_.contains(key) && !sample_[key].is_null(); }
  [[noreturn]] void refuse(const std::string& field, const std::string& reason) const { throw UserError(place_ + ": " + field + ": " + reason); }

  const Json& sample_;
  const std::string& place_;
};

}  // namespace

Conversation read_conversation(const nlohmann::ordered_json& sample, const std::string& place) { return SampleReader(sample, place).read(); }

}  // namespace reprise
