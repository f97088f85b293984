// Runs a template's tree with the same variables as transformers.
#include "tools/files/chat/chat_template.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/files/chat/template_functions.h"
#include "tools/files/chat/template_lexer.h"
#include "tools/files/io/error.h"
#include "tools/files/io/shown_text.h"
#include "tools/files/tokenizer/characters.h"

namespace reprise {
namespace {

using Expression = TemplateExpression;
using Statement = TemplateStatement;
using Value = TemplateValue;

// The variables that one body of statements has set: names and values. Each iteration of a loop has
// its own frame.
using Frame = std::vector<std::pair<std::string, Value>>;

class TemplateRun {
 public:
  TemplateRun(const std::string& name, const std::optional<std::tm>& today) : name_(name), today_(today) {
    frames_.emplace_back();
  }

  TemplateBudget& budget() { return budget_; }
  void define(const std::string& name, Value value) { set(frames_.back(), name, std::move(value)); }

  RenderedChat run(const TemplateBody& body) {
    try {
      run_body(body);
    } catch (const TemplateFault& fault) {
      if (fault.is_limit) throw LimitError(name_ + ", line " + std::to_string(line_) + ": " + fault.reason);
      refuse_template(name_, line_, fault.reason);
    }
    return std::move(rendered_);
  }

 private:
  struct Loop {
    const TemplateList* elements;
    size_t index;
  };

  // ---- statements

  void run_body(const TemplateBody& body) {
    const Deeper deeper(depth_);
    for (const Statement& statement : body) {
      at_line(statement.line);
      run_statement(statement);
    }
  }

  void run_statement(const Statement& statement) {
    switch (statement.kind) {
      case Statement::Kind::kText: return write(statement.text);
      case Statement::Kind::kPrint: return print(*statement.expressions[0]);
      case Statement::Kind::kIf: return run_if(statement);
      case Statement::Kind::kFor: return run_for(statement);
      case Statement::Kind::kSet: return run_set(statement);
      case Statement::Kind::kMacro: return define(statement.names[0], Value::function(statement.names[0], &statement));
      case Statement::Kind::kGeneration: {
        const size_t begin = rendered_.text.size();
        run_body(statement.bodies[0]);
        rendered_.generated.push_back({begin, rendered_.text.size()});
      }
    }
  }

  void print(const Expression& expression) {
    const Value value = evaluate(expression);
    at_line(expression.line);
    write(value.printed());
  }

  void write(const MarkedText& text) {
    budget_.spend_bytes(text.size());
    rendered_.text.append(text);
  }

  void run_if(const Statement& statement) {
    for (size_t i = 0; i < statement.expressions.size(); ++i) {
      if (evaluate(*statement.expressions[i]).truth()) return run_body(statement.bodies[i]);
    }
    if (statement.bodies.size() > statement.expressions.size()) run_body(statement.bodies.back());
  }

  void run_for(const Statement& statement) {
    TemplateList elements = elements_of(evaluate(*statement.expressions[0]), budget_);
    if (statement.expressions[1]) elements = chosen(statement, elements);
    if (elements.empty()) return run_scoped(statement.bodies[1], {});
    loops_.push_back({&elements, 0});
    for (size_t i = 0; i < elements.size(); ++i) {
      at_line(statement.line);
      loops_.back().index = i;
      Frame frame = {{"loop", Value::loop(loops_.size() - 1)}};
      bind(statement, elements[i], frame);
      run_scoped(statement.bodies[0], std::move(frame));
    }
    loops_.pop_back();
  }

  void run_scoped(const TemplateBody& body, Frame frame) {
    frames_.push_back(std::move(frame));
    run_body(body);
    frames_.pop_back();
  }

  TemplateList chosen(const Statement& statement, const TemplateList& elements) {
    TemplateList kept;
    for (const Value& element : elements) {
      frames_.emplace_back();
      bind(statement, element, frames_.back());
      if (evaluate(*statement.expressions[1]).truth()) kept.push_back(element);
      frames_.pop_back();
    }
    return kept;
  }

  void bind(const Statement& statement, const Value& element, Frame& frame) {
    if (statement.names.size() == 1) return set(frame, statement.names[0], element);
    const TemplateList parts = elements_of(element, budget_);
    if (parts.size() != statement.names.size()) {
      template_fault(std::to_string(parts.size()) + " values for the " + std::to_string(statement.names.size()) +
                     " names of a loop");
    }
    for (size_t i = 0; i < parts.size(); ++i) set(frame, statement.names[i], parts[i]);
  }

  void run_set(const Statement& statement) {
    Value value = evaluate(*statement.expressions[0]);
    if (statement.names.size() == 1) return define(statement.names[0], std::move(value));
    const Value* const holder = find(statement.names[0]);
    const auto* const name_space = holder == nullptr ? nullptr : holder->as<Value::Namespace>();
    if (name_space == nullptr)
      template_fault("sets an attribute of \"" + statement.names[0] + "\", which is no namespace");
    set_in_namespace(*name_space, statement.names[1], std::move(value));
  }

  void set_in_namespace(const Value::Namespace& name_space, const std::string& name, Value value) {
    if (value.as<Value::Namespace>() || value.as<Value::Loop>())
      template_fault(std::string(value.kind()) + " cannot be held by a namespace");
    set(namespaces_[name_space.index], name, std::move(value));
  }

  void set(Frame& frame, const std::string& name, Value value) {
    budget_.spend_search(frame.size());
    for (auto& [known, held] : frame) {
      if (known != name) continue;
      held = std::move(value);
      return;
    }
    frame.emplace_back(name, std::move(value));
  }

  const Value* find(const std::string& name) {
    for (size_t i = frames_.size(); i-- > 0;) {
      budget_.spend_steps(1);
      if (const Value* const value = find_in(frames_[i], name)) return value;
    }
    return nullptr;
  }

  const Value* find_in(const Frame& frame, const std::string& name) {
    budget_.spend_search(frame.size());
    for (const auto& [known, value] : frame) {
      if (known == name) return &value;
    }
    return nullptr;
  }

  // ---- expressions

  Value evaluate(const Expression& expression) {
    const Deeper deeper(depth_);
    at_line(expression.line);
    switch (expression.kind) {
      case Expression::Kind::kConstant: return expression.constant;
      case Expression::Kind::kName: return value_of_name(expression.name);
      case Expression::Kind::kList: return Value::list(evaluate_all(expression), budget_);
      case Expression::Kind::kMapping: return make_mapping(expression);
      case Expression::Kind::kAttribute: return attribute_of(evaluate(*expression.operands[0]), expression.name);
      case Expression::Kind::kItem: return item(expression);
      case Expression::Kind::kSlice: return slice(expression);
      case Expression::Kind::kCall: return call(expression);
      case Expression::Kind::kMethod: return call_method(expression);
      case Expression::Kind::kFilter: return call_function(*find_filter(expression.name), expression);
      case Expression::Kind::kTest: return call_function(*find_test(expression.name), expression);
      case Expression::Kind::kNot: return Value::boolean(!evaluate(*expression.operands[0]).truth());
      case Expression::Kind::kNegate: return arithmetic("-", Value::integer(0), evaluate(*expression.operands[0]));
      case Expression::Kind::kPlus: return arithmetic("+", Value::integer(0), evaluate(*expression.operands[0]));
      case Expression::Kind::kAnd: return first_of(expression, false);
      case Expression::Kind::kOr: return first_of(expression, true);
      case Expression::Kind::kConcat: return concatenate(expression);
      case Expression::Kind::kArithmetic: return arithmetic_of(expression);
      case Expression::Kind::kCompare: return compare(expression);
      case Expression::Kind::kConditional: return conditional(expression);
    }
    return {};
  }

  Value value_of_name(const std::string& name) {
    const Value* const value = find(name);
    return value == nullptr ? Value::undefined("\"" + name + "\"") : *value;
  }

  TemplateList evaluate_all(const Expression& expression) {
    TemplateList values;
    for (const auto& operand : expression.operands) values.push_back(evaluate(*operand));
    return values;
  }

  Value make_mapping(const Expression& expression) {
    TemplateMapping mapping;
    for (size_t i = 0; i < expression.operands.size(); i += 2) {
      const Value key = evaluate(*expression.operands[i]);
      if (!key.as_text()) template_fault(std::string("a mapping's key must be text, not ") + key.kind());
      if (mapping.find(key.as_text()->bytes, budget_))
        template_fault("a mapping has the key \"" + key.as_text()->bytes + "\" twice");
      mapping.entries.emplace_back(*key.as_text(), evaluate(*expression.operands[i + 1]));
    }
    return Value::mapping(std::move(mapping), budget_);
  }

  Value attribute_of(const Value& value, const std::string& name) {
    if (const auto* const undefined = value.as<Value::Undefined>())
      template_fault(undefined->name + " is undefined, and \"" + name + "\" of it is asked for");
    if (const auto* const mapping = value.as_mapping()) {
      if (is_mapping_method(name)) template_fault("the method \"" + name + "\" of a mapping without a call");
      const Value* const found = mapping->find(name, budget_);
      return found == nullptr ? Value::undefined("\"" + name + "\"") : *found;
    }
    if (const auto* const name_space = value.as<Value::Namespace>()) {
      const Value* const found = find_in(namespaces_[name_space->index], name);
      return found == nullptr ? Value::undefined("\"" + name + "\"") : *found;
    }
    if (const auto* const loop = value.as<Value::Loop>()) return loop_attribute(loops_[loop->index], name);
    if (find_method(name) != nullptr && value.as_text())
      template_fault("the method \"" + name + "\" of text without a call");
    return Value::undefined("\"" + name + "\" of " + value.kind());
  }

  static Value loop_attribute(const Loop& loop, const std::string& name) {
    const size_t count = loop.elements->size(), index = loop.index;
    const auto integer = [](size_t n) { return Value::integer(static_cast<int64_t>(n)); };
    if (name == "index") return integer(index + 1);
    if (name == "index0") return integer(index);
    if (name == "revindex") return integer(count - index);
    if (name == "revindex0") return integer(count - index - 1);
    if (name == "first") return Value::boolean(index == 0);
    if (name == "last") return Value::boolean(index + 1 == count);
    if (name == "length") return integer(count);
    if (name == "depth") return integer(1);  // Jinja counts only the depth of recursive loops
    if (name == "depth0") return integer(0);
    if (name == "previtem")
      return index == 0 ? Value::undefined("the element before the first") : (*loop.elements)[index - 1];
    if (name == "nextitem")
      return index + 1 == count ? Value::undefined("the element after the last") : (*loop.elements)[index + 1];
    template_fault("\"loop." + name + "\" is not supported");
  }

  Value item(const Expression& expression) {
    const Value value = evaluate(*expression.operands[0]), key = evaluate(*expression.operands[1]);
    at_line(expression.line);
    if (const int64_t* const index = key.as<int64_t>()) return element_at(value, *index);
    const auto* const mapping = value.as_mapping();
    if (!key.as_text() || mapping == nullptr) {
      if (key.as_text()) return attribute_of(value, key.as_text()->bytes);
      if (value.is_undefined())
        template_fault(value.as<Value::Undefined>()->name + " is undefined, and an element of it is asked for");
      return Value::undefined(std::string("an element of ") + value.kind());
    }
    const Value* const found = mapping->find(key.as_text()->bytes, budget_);
    return found != nullptr ? *found : attribute_of(value, key.as_text()->bytes);
  }

  Value element_at(const Value& value, int64_t index) {
    const auto place = [&](size_t count) { return index < 0 ? index + static_cast<int64_t>(count) : index; };
    const auto is_inside = [&](size_t count) {
      return place(count) >= 0 && place(count) < static_cast<int64_t>(count);
    };
    if (const auto* const list = value.as_list()) {
      return is_inside(list->size()) ? (*list)[static_cast<size_t>(place(list->size()))]
                                     : Value::undefined("element " + std::to_string(index) + " of a list");
    }
    if (const auto* const text = value.as_text()) {
      budget_.spend_bytes(text->size());
      budget_.require_bytes(text->size() * sizeof(size_t));
      const std::vector<size_t> starts = character_starts(text->bytes);
      if (!is_inside(starts.size() - 1)) return Value::undefined("character " + std::to_string(index) + " of a text");
      const auto at = static_cast<size_t>(place(starts.size() - 1));
      return Value::text(text->piece(starts[at], starts[at + 1]), budget_);
    }
    if (const auto* const undefined = value.as<Value::Undefined>())
      template_fault(undefined->name + " is undefined, and element " + std::to_string(index) + " of it is asked for");
    return Value::undefined("element " + std::to_string(index) + " of " + value.kind());
  }

  // Begin, end and step of a slice, as Python's slice.indices() returns them.
  struct Steps {
    int64_t begin, end, step;
  };
  Steps steps_of(const Expression& expression, int64_t count) {
    std::optional<int64_t> parts[3];
    for (size_t i = 0; i < 3; ++i) {
      if (!expression.operands[i + 1]) continue;
      const Value value = evaluate(*expression.operands[i + 1]);
      if (value.is_none()) continue;
      if (!value.as<int64_t>()) template_fault(std::string("a slice's part must be an integer, not ") + value.kind());
      parts[i] = *value.as<int64_t>();
    }
    const int64_t step = parts[2].value_or(1);
    if (step == 0) template_fault("a slice's step is 0");
    if (step < -count || step > count) parts[2] = step < 0 ? -count - 1 : count + 1;
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count;
    const auto bound = [&](const std::optional<int64_t>& part, int64_t otherwise) {
      if (!part) return otherwise;
      return std::min(std::max(*part < 0 ? *part + count : *part, low), high);
    };
    return {bound(parts[0], step < 0 ? high : low), bound(parts[1], step < 0 ? low : high), parts[2].value_or(1)};
  }

  template <typename Visit>
  void visit_slice(const Expression& expression, size_t count, const Visit& visit) {
    const Steps steps = steps_of(expression, static_cast<int64_t>(count));
    budget_.spend_bytes(count);
    for (int64_t i = steps.begin; steps.step > 0 ? i < steps.end : i > steps.end; i += steps.step)
      visit(static_cast<size_t>(i));
  }

  Value slice(const Expression& expression) {
    const Value value = evaluate(*expression.operands[0]);
    if (const auto* const list = value.as_list()) {
      TemplateList elements;
      visit_slice(expression, list->size(), [&](size_t i) { elements.push_back((*list)[i]); });
      return Value::list(std::move(elements), budget_);
    }
    const auto* const text = value.as_text();
    if (text == nullptr) template_fault(std::string("a slice of ") + value.kind());
    budget_.spend_bytes(text->size());
    budget_.require_bytes(text->size() * sizeof(size_t));
    const std::vector<size_t> starts = character_starts(text->bytes);
    MarkedText cut;
    visit_slice(expression, starts.size() - 1, [&](size_t i) { cut.append(text->piece(starts[i], starts[i + 1])); });
    return Value::text(std::move(cut), budget_);
  }

  TemplateArguments arguments_of(const Expression& expression) {
    TemplateArguments arguments{.values = evaluate_all(expression), .keywords = {}};
    for (const auto& [name, value] : expression.keywords) arguments.keywords.emplace_back(name, evaluate(*value));
    at_line(expression.line);
    return arguments;
  }

  Value call(const Expression& expression) {
    const Value* const given = find(expression.name);
    if (given != nullptr && !given->as<Value::Function>())
      template_fault("\"" + expression.name + "\" is " + given->kind() + " and cannot be called");
    const TemplateStatement* const macro = given == nullptr ? nullptr : given->as<Value::Function>()->macro;
    const TemplateArguments arguments = arguments_of(expression);
    if (macro != nullptr) return call_macro(*macro, arguments);
    if (expression.name == "namespace") return make_namespace(arguments);
    if (expression.name == "range") return make_range(arguments);
    const bool raises = expression.name == "raise_exception";
    if (!raises && expression.name != "strftime_now")
      template_fault("the macro \"" + expression.name + "\" is called before it is defined");
    if (!arguments.keywords.empty() || arguments.values.size() != 1)
      template_fault("\"" + expression.name + "\" takes one argument");
    if (raises)
      template_fault("the template refuses the conversation: " + shown_text(arguments.values[0].printed().bytes, 400));
    return date_text(arguments.values[0]);
  }

  // Returns the text that the macro's body writes. The body can use the names of the outermost body
  // and the macro's arguments.
  Value call_macro(const Statement& macro, const TemplateArguments& arguments) {
    Frame frame = bound_arguments(macro, arguments);
    budget_.spend_search(frames_.size());
    std::vector<Frame> others(std::make_move_iterator(frames_.begin() + 1), std::make_move_iterator(frames_.end()));
    frames_.resize(1);
    frames_.push_back(std::move(frame));
    for (size_t i = 0; i < macro.expressions.size(); ++i) {
      const std::string& name = macro.names[i + 1];
      if (find_in(frames_.back(), name) != nullptr) continue;
      set(frames_.back(), name,
          macro.expressions[i] ? evaluate(*macro.expressions[i]) : Value::undefined("\"" + name + "\""));
    }
    RenderedChat outside = std::exchange(rendered_, {});
    run_body(macro.bodies[0]);
    std::swap(rendered_, outside);
    frames_.resize(1);
    frames_.insert(frames_.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
    return Value::text(std::move(outside.text), budget_);
  }

  Frame bound_arguments(const Statement& macro, const TemplateArguments& arguments) {
    const size_t places = macro.names.size() - 1;
    if (arguments.values.size() > places) {
      template_fault("the macro \"" + macro.names[0] + "\" takes " + std::to_string(places) + " arguments, not " +
                     std::to_string(arguments.values.size()));
    }
    Frame frame;
    for (size_t i = 0; i < arguments.values.size(); ++i) set(frame, macro.names[i + 1], arguments.values[i]);
    for (const auto& [name, value] : arguments.keywords) {
      budget_.spend_search(macro.names.size());
      const bool is_open = std::find(macro.names.begin() + 1 + static_cast<ptrdiff_t>(arguments.values.size()),
                                     macro.names.end(), name) != macro.names.end();
      if (!is_open)
        template_fault("the macro \"" + macro.names[0] + "\" takes no argument \"" + name + "\", or has it already");
      set(frame, name, value);
    }
    return frame;
  }

  // Returns the numbers of Python's range() as a list.
  Value make_range(const TemplateArguments& arguments) {
    if (!arguments.keywords.empty() || arguments.values.empty() || arguments.values.size() > 3)
      template_fault("range takes one to three integers");
    int64_t parts[3] = {0, 0, 1};
    for (size_t i = 0; i < arguments.values.size(); ++i) {
      const Value& value = arguments.values[i];
      if (!value.as<int64_t>() && !value.as<bool>())
        template_fault(std::string("range takes integers, not ") + value.kind());
      parts[arguments.values.size() == 1 ? 1 : i] = integer_of(value);
    }
    const auto [begin, end, step] = parts;
    if (step == 0) template_fault("range's step is 0");
    constexpr int64_t kMax = 100000;  // maximum length of a range, as in Jinja's sandbox
    TemplateList numbers;
    for (int64_t at = begin; step > 0 ? at < end : at > end;) {
      if (static_cast<int64_t>(numbers.size()) == kMax)
        template_fault("range of more than " + std::to_string(kMax) + " numbers");
      numbers.push_back(Value::integer(at));
      if (__builtin_add_overflow(at, step, &at)) break;
    }
    return Value::list(std::move(numbers), budget_);
  }

  Value make_namespace(const TemplateArguments& arguments) {
    if (!arguments.values.empty()) template_fault("namespace takes names with values only");
    budget_.spend_bytes(sizeof(Frame));
    namespaces_.emplace_back();
    const Value made = Value::name_space(namespaces_.size() - 1);
    for (const auto& [name, value] : arguments.keywords) set_in_namespace(*made.as<Value::Namespace>(), name, value);
    return made;
  }

  // Returns 26 July 2024. Llama 3's templates use this date if there is no strftime_now.
  static std::tm fixed_day() {
    std::tm day{};
    day.tm_year = 2024 - 1900;
    day.tm_mon = 6;
    day.tm_mday = 26;
    day.tm_yday = 207;
    day.tm_wday = 5;
    return day;
  }

  Value date_text(const Value& format) {
    if (!format.as_text()) template_fault(std::string("strftime_now: the format must be text, not ") + format.kind());
    const std::string& form = format.as_text()->bytes;
    const std::tm day = today_.value_or(fixed_day());
    char text[256];
    const size_t bytes = std::strftime(text, sizeof text, form.c_str(), &day);
    if (bytes == 0 && !form.empty()) template_fault("strftime_now: the date is longer than 255 bytes");
    return Value::text(std::string(text, bytes), TextOrigin::kTemplate, budget_);
  }

  // Calls a method of a mapping or a text. A value that a mapping stores under a key cannot be
  // called.
  Value call_method(const Expression& expression) {
    const TemplateArguments arguments = arguments_of(expression);
    const Value& value = arguments.values[0];
    if (const auto* const undefined = value.as<Value::Undefined>()) {
      template_fault(undefined->name + " is undefined, and its method \"" + expression.name + "\" is called");
    }
    const bool fits = is_mapping_method(expression.name) ? value.as_mapping() != nullptr : value.as_text() != nullptr;
    if (!fits) template_fault(std::string(value.kind()) + " has no method \"" + expression.name + "\"");
    return find_method(expression.name)->call(arguments, budget_);
  }

  Value call_function(const TemplateFunction& function, const Expression& expression) {
    return function.call(arguments_of(expression), budget_);
  }

  // Returns the first operand whose truth value is `truth`, or the last one, like Python's `or` and
  // `and`.
  Value first_of(const Expression& expression, bool truth) {
    Value value;
    for (const auto& operand : expression.operands) {
      value = evaluate(*operand);
      if (value.truth() == truth) break;
    }
    return value;
  }

  Value concatenate(const Expression& expression) {
    MarkedText text;
    for (const auto& operand : expression.operands) {
      const MarkedText part = evaluate(*operand).printed();
      budget_.spend_walk(part.size());
      budget_.require_bytes(text.size() + part.size());
      text.append(part);
    }
    return Value::text(std::move(text), budget_);
  }

  Value conditional(const Expression& expression) {
    if (evaluate(*expression.operands[1]).truth()) return evaluate(*expression.operands[0]);
    return expression.operands[2] ? evaluate(*expression.operands[2])
                                  : Value::undefined("a conditional without its else");
  }

  Value compare(const Expression& expression) {
    Value left = evaluate(*expression.operands[0]);
    for (size_t i = 0; i < expression.words.size(); ++i) {
      const Value right = evaluate(*expression.operands[i + 1]);
      at_line(expression.line);
      if (!holds(expression.words[i], left, right)) return Value::boolean(false);
      left = right;
    }
    return Value::boolean(true);
  }

  bool holds(const std::string& word, const Value& left, const Value& right) {
    if (word == "==") return equal(left, right, budget_);
    if (word == "!=") return !equal(left, right, budget_);
    if (word == "in") return contains(right, left, budget_);
    if (word == "not in") return !contains(right, left, budget_);
    if (word == "<") return less(left, right, budget_);
    if (word == ">") return less(right, left, budget_);
    if (word == "<=") return less(left, right, budget_) || equal(left, right, budget_);
    return less(right, left, budget_) || equal(left, right, budget_);
  }

  // ---- arithmetic, Python's

  Value arithmetic_of(const Expression& expression) {
    const Value left = evaluate(*expression.operands[0]), right = evaluate(*expression.operands[1]);
    at_line(expression.line);
    return arithmetic(expression.name, left, right);
  }

  Value arithmetic(const std::string& word, const Value& left, const Value& right) {
    for (const Value* const side : {&left, &right}) {
      if (const auto* const undefined = side->as<Value::Undefined>())
        template_fault(undefined->name + " is undefined, and \"" + word + "\" is asked of it");
    }
    if (left.is_number() && right.is_number()) {
      const bool in_floats = word == "/" || left.as<double>() || right.as<double>();
      return in_floats ? in_float(word, float_of(left), float_of(right))
                       : in_integers(word, integer_of(left), integer_of(right));
    }
    if (word == "+" && left.as_text() && right.as_text()) {
      budget_.require_bytes(left.as_text()->size() + right.as_text()->size());
      MarkedText text = *left.as_text();
      text.append(*right.as_text());
      return Value::text(std::move(text), budget_);
    }
    if (word == "+" && left.as_list() && right.as_list()) {
      budget_.require_bytes((left.as_list()->size() + right.as_list()->size()) * sizeof(Value));
      TemplateList list = *left.as_list();
      list.insert(list.end(), right.as_list()->begin(), right.as_list()->end());
      return Value::list(std::move(list), budget_);
    }
    if (word == "*" && left.as_text() && right.as<int64_t>()) return repeated(*left.as_text(), *right.as<int64_t>());
    if (word == "*" && right.as_text() && left.as<int64_t>()) return repeated(*right.as_text(), *left.as<int64_t>());
    template_fault("\"" + word + "\" of " + left.kind() + " and " + right.kind() + " is not supported");
  }

  Value repeated(const MarkedText& text, int64_t times) {
    MarkedText all;
    if (times <= 0 || text.size() == 0) return Value::text(all, budget_);
    budget_.spend_bytes(static_cast<uint64_t>(times) > TemplateBudget::kBytes
                            ? TemplateBudget::kBytes + 1
                            : static_cast<uint64_t>(times) * text.size());
    for (int64_t i = 0; i < times; ++i) all.append(text);
    return Value::text(std::move(all), budget_);
  }

  static double float_of(const Value& value) {
    if (const double* const number = value.as<double>()) return *number;
    return static_cast<double>(integer_of(value));
  }
  static int64_t integer_of(const Value& value) {
    if (const bool* const truth = value.as<bool>()) return *truth;
    return *value.as<int64_t>();
  }

  static Value in_float(const std::string& word, double a, double b) {
    if (b == 0 && (word == "/" || word == "//" || word == "%")) template_fault("a division by zero");
    double result = word == "+"   ? a + b
                    : word == "-" ? a - b
                    : word == "*" ? a * b
                    : word == "/" ? a / b
                                  : std::fmod(a, b);
    if (word == "//" || word == "%") {
      // Python's float_divmod: the remainder has the divisor's sign.
      double remainder = result, quotient = (a - remainder) / b;
      if (remainder != 0 && (remainder < 0) != (b < 0)) {
        remainder += b;
        quotient -= 1;
      }
      quotient =
          quotient == 0 ? std::copysign(0.0, a / b) : std::floor(quotient) + (quotient - std::floor(quotient) > 0.5);
      result = word == "%" ? (remainder == 0 ? std::copysign(0.0, b) : remainder) : quotient;
    }
    if (!std::isfinite(result)) template_fault("a number that is too large");
    return Value::number(result);
  }

  static Value in_integers(const std::string& word, int64_t a, int64_t b) {
    int64_t result = 0;
    bool overflows = false;
    if (word == "+") overflows = __builtin_add_overflow(a, b, &result);
    if (word == "-") overflows = __builtin_sub_overflow(a, b, &result);
    if (word == "*") overflows = __builtin_mul_overflow(a, b, &result);
    if (word == "//" || word == "%") {
      if (b == 0) template_fault("a division by zero");
      overflows = a == INT64_MIN && b == -1;
      const int64_t quotient = overflows ? 0 : a / b, remainder = overflows ? 0 : a % b;
      const bool rounds = remainder != 0 && (remainder < 0) != (b < 0);  // true: Python rounds the quotient down by 1
      result = word == "//" ? quotient - rounds : remainder + (rounds ? b : 0);
    }
    if (overflows) template_fault("an integer of more than 63 bits");
    return Value::integer(result);
  }

  void at_line(int line) {
    budget_.spend_steps(1);
    line_ = line;
  }

  // Counts the interpreter's recursion depth: macros may call themselves.
  struct Deeper {
    explicit Deeper(int& counted) : depth(counted) {
      if (++depth > kDeepest)
        template_fault("macros lie deeper than " + std::to_string(kDeepest) +
                       " statements and expressions in each other; do they call themselves for ever?");
    }
    ~Deeper() { --depth; }
    static constexpr int kDeepest = 600;
    int& depth;
  };

  const std::string& name_;
  const std::optional<std::tm>& today_;
  TemplateBudget budget_;
  std::vector<Frame> frames_;
  std::vector<Frame> namespaces_;
  std::vector<Loop> loops_;
  RenderedChat rendered_;
  int line_ = 1, depth_ = 0;
};

bool has_generation(const TemplateBody& body) {
  for (const TemplateStatement& statement : body) {
    if (statement.kind == TemplateStatement::Kind::kGeneration) return true;
    for (const TemplateBody& inner : statement.bodies) {
      if (has_generation(inner)) return true;
    }
  }
  return false;
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& source, std::string name, SpecialTexts specials,
                           std::optional<std::tm> today)
    : name_(std::move(name)), specials_(std::move(specials)), today_(today) {
  if (const size_t at = first_byte_not_utf8(source); at != std::string::npos)
    throw UserError(name_ + ": not UTF-8 at byte " + std::to_string(at));
  body_ = parse_template(source, name_);
  marks_generation_ = has_generation(body_);
  takes_parts_ = writes_parts();
}

// True if the template writes the text of a content that is a list of parts. This is found by
// rendering such a content, because templates distinguish lists from texts in many ways.
bool ChatTemplate::writes_parts() const {
  constexpr const char* kNeedle = "reprise asks whether this is written";
  const nlohmann::ordered_json part = {{"type", "text"}, {"text", kNeedle}};
  const nlohmann::ordered_json message = {{"role", "user"}, {"content", nlohmann::ordered_json::array({part})}};
  try {
    return render({{"messages", nlohmann::ordered_json::array({message})}}, false).text.bytes.find(kNeedle) !=
           std::string::npos;
  } catch (const UserError&) {
    return false;
  }
}

namespace {

constexpr const char* kRole = "role";

// Calls visit(key, value, origin) for each member of a message. The origin is kRole for the role,
// otherwise that of part number `part`, which is then incremented.
template <typename Visit>
void visit_parts(const nlohmann::ordered_json& message, size_t& part, const Visit& visit) {
  for (const auto& [key, value] : message.items())
    visit(key, value, key == kRole ? TextOrigin::kRole : part_origin(part++));
}

TemplateValue list_of_messages(const nlohmann::ordered_json& messages, size_t count, TemplateBudget& budget) {
  if (!messages.is_array()) return TemplateValue::of_json(messages, budget);
  TemplateList list;
  size_t part = 0;
  for (size_t i = 0; i < std::min(count, messages.size()); ++i) {
    if (!messages[i].is_object()) {
      list.push_back(TemplateValue::of_json(messages[i], budget, TextOrigin::kSample, 1));
      continue;
    }
    budget.spend_steps(1);
    TemplateMapping message;
    visit_parts(messages[i], part, [&](const std::string& key, const nlohmann::ordered_json& value, TextOrigin origin) {
      message.entries.emplace_back(MarkedText(key, TextOrigin::kSample),
                                   TemplateValue::of_json(value, budget, origin, 2));
    });
    list.push_back(TemplateValue::mapping(std::move(message), budget));
  }
  return TemplateValue::list(std::move(list), budget);
}

}  // namespace

std::vector<MessagePart> message_parts(const nlohmann::ordered_json& messages) {
  std::vector<MessagePart> parts;
  size_t part = 0;
  for (size_t i = 0; messages.is_array() && i < messages.size(); ++i) {
    if (!messages[i].is_object()) continue;
    visit_parts(messages[i], part, [&](const std::string& key, const nlohmann::ordered_json&, TextOrigin origin) {
      if (origin != TextOrigin::kRole) parts.push_back({i, key});
    });
  }
  return parts;
}

RenderedChat ChatTemplate::render(const nlohmann::ordered_json& conversation, bool add_generation_prompt,
                                  size_t count) const {
  TemplateRun run(name_, today_);
  const auto define_special = [&](const char* name, const std::optional<std::string>& text) {
    if (text) run.define(name, TemplateValue::text(*text, TextOrigin::kTemplate, run.budget()));
  };
  define_special("bos_token", specials_.bos);
  define_special("eos_token", specials_.eos);
  define_special("pad_token", specials_.pad);
  try {
    run.define("messages", conversation.contains("messages")
                               ? list_of_messages(conversation["messages"], count, run.budget())
                               : TemplateValue());
    for (const auto& [key, origin] : {std::pair{"tools", TextOrigin::kTools}, {"documents", TextOrigin::kSample}}) {
      run.define(key, conversation.contains(key) ? TemplateValue::of_json(conversation[key], run.budget(), origin)
                                                 : TemplateValue());
    }
    for (const char* const name : {"namespace", "raise_exception", "range"})
      run.define(name, TemplateValue::function(name));
    if (conversation.contains("chat_template_kwargs")) {
      for (const auto& [key, value] : conversation["chat_template_kwargs"].items())
        run.define(key, TemplateValue::of_json(value, run.budget()));
    }
  } catch (const TemplateFault& fault) {
    throw UserError(name_ + ": " + fault.reason);
  }
  if (today_) run.define("strftime_now", TemplateValue::function("strftime_now"));
  run.define("add_generation_prompt", TemplateValue::boolean(add_generation_prompt));
  return run.run(body_);
}

}  // namespace reprise
