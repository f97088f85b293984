// Cuts a chat template into text and the tokens between its tags, white space controlled as transformers sets Jinja up: trim_blocks and
// lstrip_blocks on, no newline kept at the end.
// Here because what a tag takes of the text around it is decided before any grammar.
#pragma once

#include <string>
#include <vector>

namespace reprise {

struct TemplateToken {
  enum class Kind { kText, kBlockBegin, kBlockEnd, kPrintBegin, kPrintEnd, kName, kString, kInteger, kFloat, kOperator, kEnd };
  Kind kind;
  std::string text;  // of kString: what it stands for, escapes resolved
  int line;
};

// Throws UserError: `name`, the line, what is wrong. The source is UTF-8.
std::vector<TemplateToken> cut_template(const std::string& source, const std::string& name);

[[noreturn]] void refuse_template(const std::string& name, int line, const std::string& reason);

}  // namespace reprise
