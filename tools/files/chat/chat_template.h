// A model's chat template. It converts a conversation to the text that the model reads, and marks
// each byte as written by the template or taken from the conversation. Every model was trained on
// one form of conversations, which its files define as a Jinja template.
#pragma once

#include <ctime>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/files/chat/marked_text.h"
#include "tools/files/chat/template_syntax.h"

namespace reprise {

// A rendered conversation.
struct RenderedChat {
  MarkedText text;
  std::vector<ByteRange> generated;  // ranges of bytes written inside {% generation %}, ascending
};

// One member of a message other than its role. Its part number is its index in message_parts().
struct MessagePart {
  size_t message;
  std::string key;
};
// Returns the parts of all messages, in their order.
std::vector<MessagePart> message_parts(const nlohmann::ordered_json& messages);

// A parsed template.
class ChatTemplate {
 public:
  // Texts of the variables bos_token, eos_token and pad_token; undefined in the template if unset.
  struct SpecialTexts {
    std::optional<std::string> bos, eos, pad;
  };

  // Parses the template; `name` is its name in messages. Throws UserError if the source is not
  // UTF-8, is not a template, or uses an unsupported part of Jinja (template_syntax.h).
  // `today` is the date that strftime_now returns. Without `today` the function is not defined, so
  // that a training does not depend on the day. A template that tests for the function then uses
  // its own default date; a template that calls it without a test gets 26 July 2024.
  ChatTemplate(const std::string& source, std::string name, SpecialTexts specials,
               std::optional<std::tm> today = std::nullopt);

  // True if the template marks the assistant's text with {% generation %}.
  bool marks_generation() const { return marks_generation_; }

  // True if the template can read a content that is a list of parts; otherwise it reads only texts.
  bool takes_parts() const { return takes_parts_; }

  // Returns the text of a conversation. `conversation` is an object with "messages", of which the
  // template gets the first `count`. It may have "tools", "documents", and "chat_template_kwargs",
  // whose members become variables. Bytes from parts of messages have as origin the part's number
  // in message_parts(). Throws UserError if the template raises an error, and LimitError if it
  // takes too many steps or too much text (TemplateBudget).
  RenderedChat render(const nlohmann::ordered_json& conversation, bool add_generation_prompt,
                      size_t count = SIZE_MAX) const;

 private:
  bool writes_parts() const;

  std::string name_;
  SpecialTexts specials_;
  std::optional<std::tm> today_;
  TemplateBody body_;
  bool marks_generation_, takes_parts_;
};

}  // namespace reprise
