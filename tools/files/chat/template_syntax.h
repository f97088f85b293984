// A chat template as a tree of statements with expressions. The parser builds the tree, and the
// interpreter runs it. The language is the part of Jinja that the templates of the known model
// families use. Everything else is refused, with its name, when the template is read and not only
// when a conversation reaches it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/files/chat/template_value.h"

namespace reprise {

// An expression; `kind` determines which of the other members are used.
struct TemplateExpression {
  enum class Kind {
    kConstant,     // the value `constant`
    kName,         // the variable `name`
    kList,         // a list of `operands`
    kMapping,      // a mapping of `operands`: key, value, key, value ...
    kAttribute,    // operands[0].name
    kItem,         // operands[0][operands[1]]
    kSlice,        // operands[0][operands[1]:operands[2]:operands[3]]; null if absent
    kCall,         // name(operands, keywords): a function of kTemplateCalls, or a macro
    kMethod,       // operands[0].name(operands from 1 on, keywords)
    kFilter,       // operands[0] | name(operands from 1 on, keywords)
    kTest,         // operands[0] is name(operands from 1 on)
    kNot, kNegate, kPlus,  // the operator applied to operands[0]
    kAnd, kOr, kConcat,    // the operator between all `operands`
    kArithmetic,           // operands[0] name operands[1]; name is + - * / // %
    kCompare,              // operands[0] words[0] operands[1] words[1] operands[2] ...
    kConditional,          // operands[0] if operands[1] else operands[2]; null if there is no else
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

// A statement; `kind` determines which of the other members are used.
struct TemplateStatement {
  enum class Kind {
    kText,   // writes `text`
    kPrint,  // writes expressions[0]
    kIf,     // if expressions[i]: bodies[i]; a last body without an expression is the else branch
    // A loop: bodies[0] runs for `names` in expressions[0] if expressions[1] is true, or null. If
    // there is no such element, bodies[1] runs.
    kFor,
    kSet,         // names[0] = expressions[0], or names[0].names[1]
    kGeneration,  // bodies[0] is the assistant's text
    // A macro names[0](names from 1 on) that writes bodies[0]. expressions[i] is the default of the
    // argument names[i + 1]; null if it has none.
    kMacro,
  };
  Kind kind;
  int line;
  MarkedText text = {};
  std::vector<std::string> names = {};
  std::vector<std::unique_ptr<TemplateExpression>> expressions = {};
  std::vector<TemplateBody> bodies = {};
};

// Returns the tree of a source. Throws UserError with `name`, the line, and what is wrong or not
// supported.
TemplateBody parse_template(const std::string& source, const std::string& name);

// Functions that a template may call by name, in addition to its own macros. Filters, tests and
// methods are in the tables of template_functions.h.
inline constexpr const char* kTemplateCalls[] = {"namespace", "raise_exception", "range", "strftime_now"};

}  // namespace reprise
