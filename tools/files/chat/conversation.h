// Reads a sample in one of the common forms as a conversation or a plain text. All forms are
// defined in this module only.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace reprise {

// A sample: a conversation, or a plain text.
struct Conversation {
  // Variables for a chat template: {"messages": [...], "tools": [...], "chat_template_kwargs":
  // {...}}. It has no messages if the sample is a text.
  nlohmann::ordered_json variables;
  std::string text;
  bool is_text = false;
  size_t prompt_messages = 0;  // number of messages at the beginning that are a prompt, from which nothing is learned
  // For each message, whether it is learned; unset if the message does not state it.
  std::vector<std::optional<bool>> is_learned;
  std::set<std::string> unused;  // parts of the sample that are not read, in words
};

// Returns the conversation of a sample. The forms differ by their keys; other keys are not read:
//   {"messages": [{"role", "content"}, ...], "tools"}
//   {"conversations": [{"from", "value"}, ...], "system", "tools"}  ShareGPT; speakers become roles
//   {"prompt", "completion" or "response"}   two lists of messages; or two strings: what the user
//                                            and what the assistant says
//   {"instruction", "input" or "context", "output" or "response"}   the user says the instruction
//                                            and, after an empty line, the input if there is one
//   {"text"}                                 no conversation: read and learned as it is
// If a sample has none of the keys above, it may have one of the forms that are common in tables:
//   {"question" or "query", "answer" or "response"}, {"input", "output" or "response"}
//   {"content"}                              as "text"
// In forms with strings, "system" is a first message, from the system. "chat_template_kwargs" are
// variables of the template, in every form except plain texts. A message may state by "weight" (0
// or 1), "train", "training" or "loss" (booleans) whether it is learned. Members of messages and
// tools that are null are removed, because libraries of tables add them. Members of a message that
// are empty lists are removed too. A message's "content" is never removed. Throws UserError that
// begins with `place`.
Conversation read_conversation(const nlohmann::ordered_json& sample, const std::string& place);

// Returns the value of a text that contains JSON; a discarded value if the text is not JSON.
nlohmann::ordered_json json_in_text(const std::string& text);

// Removes members that are null, at every depth of `value`. Returns their number.
size_t drop_nulls(nlohmann::ordered_json& value);

// Adds "tools" and "chat_template_kwargs" of a record to the template's variables. Throws UserError
// that begins with `place`.
void add_template_variables(const nlohmann::ordered_json& record, const std::string& place, Conversation& conversation);

// Replaces each content that is a list of text parts by one text, with a line break between two
// parts. Templates that read only texts need this.
void join_text_parts(nlohmann::ordered_json& messages);

}  // namespace reprise
