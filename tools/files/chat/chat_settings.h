// A recipe's settings for reading conversations and texts. Recipes contain them, and
// tools/files/chat applies them.
#pragma once

#include <string>

namespace reprise {

struct ChatSettings {
  // Name of the model's template to use; "": "tool_use" if a sample has tools, otherwise "default"
  std::string template_name;
  std::string template_kwargs;  // JSON object of variables that the template gets with every conversation; "": none
  // True: in plain texts and in messages of the assistant, characters that spell a control token
  // are read as this token. False: they are read as plain text.
  bool control_tokens = true;
  bool operator==(const ChatSettings&) const = default;
};

}  // namespace reprise
