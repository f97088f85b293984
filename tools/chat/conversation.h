// A sample as people write it, in any of the forms that are common, becomes a conversation or a plain text.
// Here because what each form means must be decided in one place.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace reprise {

struct Conversation {
  // {"messages": [...], "tools": [...]} for a chat template; no messages where the sample is a text.
  nlohmann::ordered_json variables;
  std::string text;
  bool is_text = false;
  size_t prompt_messages = 0;  // the first that belong to a prompt, from which nothing is learned
};

// The forms, told apart by their keys; others are not read:
//   {"messages": [{"role", "content"}, ...], "tools"}
//   {"conversations": [{"from", "value"}, ...], "system", "tools"}   ShareGPT's; its speakers become roles
//   {"prompt", "completion" or "response"}   two lists of messages; or two strings: what the user and what the assistant says
//   {"instruction", "input" or "context", "output" or "response"}   the user says the instruction, and after an empty line the input where
//                                                                   there is one
//   {"text"}                               no conversation: read and learned as it is
// Where none of these is there, what tables often have:
//   {"question" or "query", "answer" or "response"}, {"input", "output" or "response"}
//   {"content"}                            as "text"
// Beside strings "system" is what the system says first. Throws UserError that begins with `place`.
Conversation read_conversation(const nlohmann::ordered_json& sample, const std::string& place);

// A content that is a list of text parts becomes one text, a line break between two parts, for a template that takes texts alone.
void join_text_parts(nlohmann::ordered_json& messages);

}  // namespace reprise
