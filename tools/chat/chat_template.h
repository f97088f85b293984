// A model's chat template: a conversation in, the text that the model reads out, each byte marked as the template's or the conversation's.
// Here because every model was trained on one form of conversations, and its file says in Jinja which.
#pragma once

#include <ctime>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/chat/marked_text.h"
#include "tools/chat/template_syntax.h"

namespace reprise {

struct RenderedChat {
  MarkedText text;
  std::vector<ByteRange> generated;  // what stands in {% generation %}, ascending
};

class ChatTemplate {
 public:
  // What the templates call bos_token, eos_token and pad_token; undefined where the model has none.
  struct SpecialTexts {
    std::optional<std::string> bos, eos, pad;
  };

  // `name` is what messages call the template. Throws UserError where the source is not UTF-8, no template, or beyond the language
  // (template_syntax.h). `today`: what strftime_now tells. Without it the function is not defined, and templates that ask take the date
  // that they have for that case; one that calls it all the same gets 26 July 2024, so that a training does not depend on the day.
  ChatTemplate(const std::string& source, std::string name, SpecialTexts specials, std::optional<std::tm> today = std::nullopt);

  // Whether the template itself marks what the assistant says.
  bool marks_generation() const { return marks_generation_; }

  // Whether it goes over a content that is a list of parts; else it takes texts alone.
  bool takes_parts() const { return takes_parts_; }

  // `conversation` is an object: "messages", and "tools" and "documents" where it has them. What comes from message `marked` has the origin
  // kMarked. Throws UserError where the template does, or takes too many steps or too much text (TemplateBudget).
  RenderedChat render(const nlohmann::ordered_json& conversation, bool add_generation_prompt, std::optional<size_t> marked = std::nullopt) const;

 private:
  bool writes_parts() const;

  std::string name_;
  SpecialTexts specials_;
  std::optional<std::tm> today_;
  TemplateBody body_;
  bool marks_generation_, takes_parts_;
};

}  // namespace reprise
