// Cuts a chat template into text and the tokens inside its tags. White space is handled as in Jinja
// with transformers' options: trim_blocks and lstrip_blocks on, no newline at the end. Removing
// white space around tags is part of the lexer, before parsing.
#pragma once

#include <string>
#include <vector>

namespace reprise {

// A token of the template.
struct TemplateToken {
  enum class Kind {
    kText,
    kBlockBegin,
    kBlockEnd,
    kPrintBegin,
    kPrintEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind;
  std::string text;  // for kString the value, with escapes resolved
  int line;
};

// Returns the tokens of a UTF-8 source. Throws UserError with `name`, the line, and the reason.
std::vector<TemplateToken> cut_template(const std::string& source, const std::string& name);

// Throws UserError with `name`, the line, and the reason.
[[noreturn]] void refuse_template(const std::string& name, int line, const std::string& reason);

}  // namespace reprise
