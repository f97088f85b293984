// The filters, tests and methods of the template language, as functions of values. The parser uses
// their names; the interpreter calls them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/files/chat/template_value.h"

namespace reprise {

// The arguments of a call.
struct TemplateArguments {
  std::vector<TemplateValue> values;  // the first is the value to which the filter, test or method is applied
  std::vector<std::pair<std::string, TemplateValue>> keywords;
};

// One filter, test or method.
struct TemplateFunction {
  const char* name;
  size_t fewest, maximum;  // minimum and maximum number of arguments after the first, including keywords
  const char* keywords;   // accepted keywords, each followed by a blank
  TemplateValue (*call)(const TemplateArguments& arguments, TemplateBudget& budget);
};

// Returns the filter, the test or the method of that name; null if the language has none.
const TemplateFunction* find_filter(const std::string& name);
const TemplateFunction* find_test(const std::string& name);
const TemplateFunction* find_method(const std::string& name);

// True if a mapping has this method. For `.name`, a template finds methods before keys.
bool is_mapping_method(const std::string& name);

// Returns the values over which `for` and `join` iterate: a list's elements, a mapping's keys, or a
// text's characters; none for an undefined value.
TemplateList elements_of(const TemplateValue& value, TemplateBudget& budget);

// True if `container` contains `value`, like Python's `in`.
bool contains(const TemplateValue& container, const TemplateValue& value, TemplateBudget& budget);

}  // namespace reprise
