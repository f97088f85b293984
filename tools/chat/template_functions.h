// The filters, tests and methods of the language, each a function of values.
// Here so that the parser knows every name, and the interpreter nothing but values.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/chat/template_value.h"

namespace reprise {

struct TemplateArguments {
  std::vector<TemplateValue> values;  // the first is what the filter, test or method is of
  std::vector<std::pair<std::string, TemplateValue>> keywords;
};

struct TemplateFunction {
  const char* name;
  size_t fewest, most;    // arguments beside the first, keywords counted
  const char* keywords;   // those that it takes, each followed by a blank
  TemplateValue (*call)(const TemplateArguments& arguments, TemplateBudget& budget);
};

// Null where the language has none of that name.
const TemplateFunction* find_filter(const std::string& name);
const TemplateFunction* find_test(const std::string& name);
const TemplateFunction* find_method(const std::string& name);

// A mapping's methods are found before its keys where a template writes a dot.
bool is_mapping_method(const std::string& name);

// What `for` and `join` go over: a list's elements, a mapping's keys, a text's characters; of an undefined value nothing.
TemplateList elements_of(const TemplateValue& value, TemplateBudget& budget);

bool contains(const TemplateValue& container, const TemplateValue& value, TemplateBudget& budget);

}  // namespace reprise
