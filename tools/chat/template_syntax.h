// A chat template as a tree: statements, and the expressions in them. The parser makes it, the interpreter walks it.
// The language is the part of Jinja that the templates of the known families use; whatever is beyond it is refused by its
// name when the template is read, not when a conversation first meets it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/chat/template_value.h"

namespace reprise {

struct TemplateExpression {
  enum class Kind {
    kConstant,     // constant
    kName,         // name
    kList,         // operands
    kMapping,      // operands: key, value, key, value ...
    kAttribute,    // operands[0].name
    kItem,         // operands[0][operands[1]]
    kSlice,        // operands[0][operands[1]:operands[2]:operands[3]]; null where not given
    kCall,         // name(operands, keywords): a function of kTemplateCalls, or a macro
    kMethod,       // operands[0].name(operands from 1 on, keywords)
    kFilter,       // operands[0] | name(operands from 1 on, keywords)
    kTest,         // operands[0] is name(operands from 1 on)
    kNot, kNegate, kPlus,  // operands[0]
    kAnd, kOr, kConcat,    // operands
    kArithmetic,           // operands[0] name operands[1]; name is + - * / // %
    kCompare,              // operands[0] words[0] operands[1] words[1] operands[2] ...
    kConditional,          // operands[0] if operands[1] else operands[2]; null where there is no else
  };
  Kind kind;
  int line;
  std::string name = {};
  TemplateValue constant = {};
  std::vector<std::unique_ptr<TemplateExpression>> operands = {};
  std::vector<std::pair<std::string, std::unique_ptr<TemplateExpression>>> keywords = {};
  std::vector<std::string> words = {};
  int depth = 1;
};

struct TemplateStatement;
using TemplateBody = std::vector<TemplateStatement>;

struct TemplateStatement {
  enum class Kind {
    kText,        // text
    kPrint,       // expressions[0]
    kIf,          // expressions[i] chooses bodies[i]; one body more is the else's
    kFor,         // for names in expressions[0] if expressions[1] (null: all): bodies[0], else bodies[1]
    kSet,         // names[0] = expressions[0], or names[0].names[1]
    kGeneration,  // bodies[0], which the assistant says
    kMacro,       // names[0](names from 1 on) is what bodies[0] writes; expressions: each one's default, null where it has none
  };
  Kind kind;
  int line;
  MarkedText text = {};
  std::vector<std::string> names = {};
  std::vector<std::unique_ptr<TemplateExpression>> expressions = {};
  std::vector<TemplateBody> bodies = {};
};

// Throws UserError: `name`, the line, and what is wrong or beyond the language.
TemplateBody parse_template(const std::string& source, const std::string& name);

// What a template may call by name beside its own macros; filters, tests and methods are those of the tables in template_functions.h.
inline constexpr const char* kTemplateCalls[] = {"namespace", "raise_exception", "range", "strftime_now"};

}  // namespace reprise
