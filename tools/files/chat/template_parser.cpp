// Jinja's grammar (as defined in jinja2/parser.py), for the supported part of the language.
#include <algorithm>
#include <charconv>
#include <set>

#include "tools/files/chat/template_functions.h"
#include "tools/files/chat/template_lexer.h"
#include "tools/files/chat/template_syntax.h"
#include "tools/files/io/error.h"

namespace reprise {
namespace {

using ExpressionPointer = std::unique_ptr<TemplateExpression>;
using Expressions = std::vector<ExpressionPointer>;
using ExpressionKind = TemplateExpression::Kind;
using StatementKind = TemplateStatement::Kind;
using Token = TemplateToken;

// Maximum depth of the parsed tree. It is limited because the interpreter recurses to this depth.
constexpr int kDeepestTree = 200;

class TemplateParser {
 public:
  TemplateParser(const std::string& source, const std::string& name)
      : name_(name), tokens_(cut_template(source, name)) {
    find_macros();
  }

  TemplateBody parse() {
    TemplateBody body = parse_body({});
    if (!is(Token::Kind::kEnd)) refuse("a tag \"" + now().text + "\" that ends nothing");
    return body;
  }

 private:
  // ---- statements

  // Parses up to a block that begins with one of the words in `ends`; this word is then the current
  // token. Without such a block it parses to the end.
  TemplateBody parse_body(const std::vector<std::string>& ends) {
    const Deeper deeper(*this);
    TemplateBody body;
    while (!is(Token::Kind::kEnd)) {
      if (is(Token::Kind::kText)) {
        body.push_back(
            {.kind = StatementKind::kText, .line = line(), .text = MarkedText(take().text, TextOrigin::kTemplate)});
      } else if (take().kind == Token::Kind::kPrintBegin) {
        body.push_back(parse_print());
      } else {
        if (std::find(ends.begin(), ends.end(), now().text) != ends.end()) return body;
        body.push_back(parse_statement());
      }
    }
    if (!ends.empty()) refuse("the template ends where \"" + ends.back() + "\" is missing");
    return body;
  }

  TemplateStatement parse_print() {
    TemplateStatement statement{.kind = StatementKind::kPrint, .line = line()};
    statement.expressions.push_back(parse_expression());
    if (is_operator(",")) refuse("a tuple");
    expect(Token::Kind::kPrintEnd, "}}");
    return statement;
  }

  TemplateStatement parse_statement() {
    if (!is(Token::Kind::kName)) refuse("a block that begins with no word");
    const std::string word = now().text;
    if (word == "if") return parse_if();
    if (word == "for") return parse_for();
    if (word == "set") return parse_set();
    if (word == "generation") return parse_generation();
    if (word == "macro") return parse_macro();
    refuse("the statement \"" + word + "\" is not supported; for, if, set, macro and generation are");
  }

  TemplateStatement parse_if() {
    TemplateStatement statement{.kind = StatementKind::kIf, .line = line()};
    while (is_name("if") || is_name("elif")) {
      take();
      statement.expressions.push_back(parse_expression());
      end_block();
      statement.bodies.push_back(parse_body({"elif", "else", "endif"}));
    }
    if (is_name("else")) {
      take();
      end_block();
      statement.bodies.push_back(parse_body({"endif"}));
    }
    take();
    end_block();
    return statement;
  }

  TemplateStatement parse_for() {
    TemplateStatement statement{.kind = StatementKind::kFor, .line = line()};
    take();
    statement.names.push_back(parse_target());
    while (is_operator(",")) {
      take();
      if (!is_name("in")) statement.names.push_back(parse_target());
    }
    expect_name("in");
    statement.expressions.push_back(parse_or());
    if (is_operator(",")) refuse("a tuple");
    statement.expressions.push_back(is_name("if") ? (take(), parse_expression()) : nullptr);
    if (is_name("recursive")) refuse("a loop that is \"recursive\" is not supported");
    end_block();
    ++loops_;
    statement.bodies.push_back(parse_body({"else", "endfor"}));
    --loops_;
    statement.bodies.emplace_back();
    if (is_name("else")) {
      take();
      end_block();
      statement.bodies.back() = parse_body({"endfor"});
    }
    take();
    end_block();
    return statement;
  }

  TemplateStatement parse_set() {
    TemplateStatement statement{.kind = StatementKind::kSet, .line = line()};
    take();
    statement.names.push_back(parse_target());
    if (is_operator(".")) {
      take();
      if (!is(Token::Kind::kName)) refuse("a set of no name");
      statement.names.push_back(take().text);
    }
    if (is_operator(",")) refuse("a set of several names is not supported");
    if (!is_operator("=")) refuse("a set without \"=\", of a block, is not supported");
    take();
    statement.expressions.push_back(parse_expression());
    if (is_operator(",")) refuse("a tuple is not supported");
    end_block();
    return statement;
  }

  // Parses {% generation %}, the tag of transformers around the assistant's text.
  TemplateStatement parse_generation() {
    TemplateStatement statement{.kind = StatementKind::kGeneration, .line = line()};
    take();
    end_block();
    if (in_generation_) refuse("generation inside generation");
    if (in_macro_) refuse("generation inside of a macro is not supported");
    in_generation_ = true;
    statement.bodies.push_back(parse_body({"endgeneration"}));
    in_generation_ = false;
    take();
    end_block();
    return statement;
  }

  // Collects the names of all macros, because a macro may be called before its definition.
  void find_macros() {
    for (size_t i = 0; i + 2 < tokens_.size(); ++i) {
      const bool begins = tokens_[i].kind == Token::Kind::kBlockBegin && tokens_[i + 1].kind == Token::Kind::kName &&
                          tokens_[i + 1].text == "macro";
      if (begins && tokens_[i + 2].kind == Token::Kind::kName) macros_.insert(tokens_[i + 2].text);
    }
  }

  // Parses a macro. It must be in the outermost body, because it can use only the names of this
  // body and its own arguments.
  TemplateStatement parse_macro() {
    TemplateStatement statement{.kind = StatementKind::kMacro, .line = line()};
    if (loops_ > 0 || in_macro_ || in_generation_)
      refuse("a macro inside of a loop, a macro or generation is not supported");
    take();
    statement.names.push_back(parse_target());
    parse_parameters(statement);
    end_block();
    in_macro_ = true;
    statement.bodies.push_back(parse_body({"endmacro"}));
    in_macro_ = false;
    take();
    end_block();
    return statement;
  }

  void parse_parameters(TemplateStatement& macro) {
    expect_operator("(");
    while (!is_operator(")")) {
      macro.names.push_back(parse_target());
      const bool has_default = is_operator("=");
      if (has_default) take();
      const bool follows_one = !macro.expressions.empty() && macro.expressions.back();
      if (!has_default && follows_one)
        refuse("\"" + macro.names.back() + "\" without a default behind one that has one");
      macro.expressions.push_back(has_default ? parse_expression() : nullptr);
      if (!is_operator(")")) expect_operator(",");
    }
    take();
  }

  std::string parse_target() {
    if (!is(Token::Kind::kName)) refuse("a name is missing that gets a value");
    for (const char* const word : {"true", "false", "none", "True", "False", "None", "loop"}) {
      if (now().text == word) refuse("\"" + now().text + "\" cannot get a value");
    }
    return take().text;
  }

  // ---- expressions, from the weakest to the strongest binding

  ExpressionPointer parse_expression() {
    const Deeper deeper(*this);
    ExpressionPointer value = parse_or();
    while (is_name("if")) {
      const int at = take().line;
      ExpressionPointer condition = parse_or();
      ExpressionPointer otherwise = is_name("else") ? (take(), parse_expression()) : nullptr;
      value = make(ExpressionKind::kConditional, at, "",
                   listed(std::move(value), std::move(condition), std::move(otherwise)));
    }
    return value;
  }

  ExpressionPointer parse_or() {
    return parse_chain(ExpressionKind::kOr, [&] { return is_name("or"); }, [&] { return parse_and(); });
  }
  ExpressionPointer parse_and() {
    return parse_chain(ExpressionKind::kAnd, [&] { return is_name("and"); }, [&] { return parse_not(); });
  }
  ExpressionPointer parse_concat() {
    return parse_chain(ExpressionKind::kConcat, [&] { return is_operator("~"); }, [&] { return parse_product(); });
  }

  // Parses operands separated by a token for which is_between() is true. Returns a single operand
  // as it is, and several in one node.
  template <typename IsBetween, typename ParseOne>
  ExpressionPointer parse_chain(ExpressionKind kind, const IsBetween& is_between, const ParseOne& parse_one) {
    const int at = line();
    Expressions operands = listed(parse_one());
    while (is_between()) {
      take();
      operands.push_back(parse_one());
    }
    return operands.size() == 1 ? std::move(operands[0]) : make(kind, at, "", std::move(operands));
  }

  ExpressionPointer parse_not() {
    if (!is_name("not")) return parse_compare();
    const Deeper deeper(*this);
    const int at = take().line;
    return make(ExpressionKind::kNot, at, "", listed(parse_not()));
  }

  ExpressionPointer parse_compare() {
    const int at = line();
    Expressions operands = listed(parse_sum());
    std::vector<std::string> words;
    for (std::string word; !(word = take_comparison()).empty();) {
      words.push_back(word);
      operands.push_back(parse_sum());
    }
    if (words.empty()) return std::move(operands[0]);
    ExpressionPointer compare = make(ExpressionKind::kCompare, at, "", std::move(operands));
    compare->words = std::move(words);
    return compare;
  }

  // Consumes and returns the comparison operator at the current token; "" if there is none.
  std::string take_comparison() {
    for (const char* const word : {"==", "!=", "<", "<=", ">", ">="}) {
      if (is_operator(word)) return take().text;
    }
    if (is_name("in")) return take().text;
    if (!is_name("not") || tokens_[at_ + 1].kind != Token::Kind::kName || tokens_[at_ + 1].text != "in") return "";
    take();
    take();
    return "not in";
  }

  ExpressionPointer parse_sum() {
    return parse_arithmetic({"+", "-"}, [&] { return parse_concat(); });
  }
  ExpressionPointer parse_product() {
    return parse_arithmetic({"*", "/", "//", "%"}, [&] { return parse_unary(true); });
  }

  template <typename ParseOne>
  ExpressionPointer parse_arithmetic(const std::vector<std::string>& words, const ParseOne& parse_one) {
    ExpressionPointer left = parse_one();
    while (is(Token::Kind::kOperator) && std::find(words.begin(), words.end(), now().text) != words.end()) {
      const Token word = take();
      left = make(ExpressionKind::kArithmetic, word.line, word.text, listed(std::move(left), parse_one()));
    }
    return left;
  }

  // Parses a value with its signs. Filters and tests apply to the value including its signs.
  ExpressionPointer parse_unary(bool with_filters) {
    const Deeper deeper(*this);
    ExpressionPointer value;
    if (is_operator("-") || is_operator("+")) {
      const Token sign = take();
      value = make(sign.text == "-" ? ExpressionKind::kNegate : ExpressionKind::kPlus, sign.line, "",
                   listed(parse_unary(false)));
    } else {
      value = parse_primary();
    }
    value = parse_postfix(std::move(value));
    return with_filters ? parse_filters(std::move(value)) : std::move(value);
  }

  ExpressionPointer parse_primary() {
    const Token token = take();
    switch (token.kind) {
      case Token::Kind::kName: return parse_name(token);
      case Token::Kind::kString: return parse_string(token);
      case Token::Kind::kInteger: return constant(token.line, TemplateValue::integer(number_of<int64_t>(token)));
      case Token::Kind::kFloat: return constant(token.line, TemplateValue::number(number_of<double>(token)));
      default: break;
    }
    if (token.kind == Token::Kind::kOperator && token.text == "(") return parse_parentheses(token.line);
    if (token.kind == Token::Kind::kOperator && token.text == "[") return parse_list(token.line);
    if (token.kind == Token::Kind::kOperator && token.text == "{") return parse_mapping(token.line);
    refuse_template(name_, token.line,
                    token.text.empty() ? "an expression is missing"
                                       : "\"" + token.text + "\" where an expression must stand");
  }

  ExpressionPointer parse_name(const Token& token) {
    const std::string& word = token.text;
    if (word == "true" || word == "True") return constant(token.line, TemplateValue::boolean(true));
    if (word == "false" || word == "False") return constant(token.line, TemplateValue::boolean(false));
    if (word == "none" || word == "None") return constant(token.line, TemplateValue());
    if (in_macro_ && (word == "varargs" || word == "kwargs" || word == "caller"))
      refuse("\"" + word + "\" in a macro is not supported");
    return make(ExpressionKind::kName, token.line, word, {});
  }

  ExpressionPointer parse_string(const Token& token) {
    std::string text = token.text;
    while (is(Token::Kind::kString)) text += take().text;
    return constant(token.line, TemplateValue::text(text, TextOrigin::kTemplate, constants_));
  }

  ExpressionPointer parse_parentheses(int at) {
    if (is_operator(")")) refuse_template(name_, at, "a tuple is not supported");
    ExpressionPointer value = parse_expression();
    if (is_operator(",")) refuse("a tuple is not supported");
    expect_operator(")");
    return value;
  }

  ExpressionPointer parse_list(int at) {
    Expressions elements;
    while (!is_operator("]")) {
      elements.push_back(parse_expression());
      if (!is_operator("]")) expect_operator(",");
    }
    take();
    return make(ExpressionKind::kList, at, "", std::move(elements));
  }

  ExpressionPointer parse_mapping(int at) {
    Expressions entries;
    while (!is_operator("}")) {
      entries.push_back(parse_expression());
      expect_operator(":");
      entries.push_back(parse_expression());
      if (!is_operator("}")) expect_operator(",");
    }
    take();
    return make(ExpressionKind::kMapping, at, "", std::move(entries));
  }

  ExpressionPointer parse_postfix(ExpressionPointer value) {
    for (;;) {
      if (is_operator(".")) {
        value = parse_attribute(std::move(value));
      } else if (is_operator("[")) {
        value = parse_item(std::move(value));
      } else if (is_operator("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPointer parse_attribute(ExpressionPointer value) {
    const int at = take().line;
    if (is(Token::Kind::kInteger)) {
      const Token index = take();
      return make(ExpressionKind::kItem, at, "",
                  listed(std::move(value), constant(at, TemplateValue::integer(number_of<int64_t>(index)))));
    }
    if (!is(Token::Kind::kName)) refuse("a name is missing behind the dot");
    return make(ExpressionKind::kAttribute, at, take().text, listed(std::move(value)));
  }

  ExpressionPointer parse_item(ExpressionPointer value) {
    const int at = take().line;
    ExpressionPointer parts[3];
    size_t part = 0;
    for (; !is_operator("]"); ) {
      if (is_operator(",")) refuse("a tuple is not supported");
      if (is_operator(":")) {
        take();
        if (++part > 2) refuse("a slice of more than three parts");
      } else {
        if (parts[part]) refuse("\"" + now().text + "\" where \"]\" must stand");
        parts[part] = parse_expression();
      }
    }
    take();
    if (part > 0)
      return make(ExpressionKind::kSlice, at, "",
                  listed(std::move(value), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])));
    if (!parts[0]) refuse("an index is missing");
    return make(ExpressionKind::kItem, at, "", listed(std::move(value), std::move(parts[0])));
  }

  ExpressionPointer parse_call(ExpressionPointer callee) {
    const int at = line();
    if (callee->kind == ExpressionKind::kName) {
      const std::string name = callee->name;
      const bool is_known =
          std::find(std::begin(kTemplateCalls), std::end(kTemplateCalls), name) != std::end(kTemplateCalls);
      if (!is_known && macros_.count(name) == 0) refuse("the function \"" + name + "\" is not supported");
      ExpressionPointer call = make(ExpressionKind::kCall, at, name, {});
      parse_arguments(*call);
      return call;
    }
    if (callee->kind != ExpressionKind::kAttribute) refuse("a call of what is no name");
    const std::string name = callee->name;
    const TemplateFunction* const method = find_method(name);
    if (method == nullptr) refuse("the method \"" + name + "\" is not supported");
    ExpressionPointer call = make(ExpressionKind::kMethod, at, name, std::move(callee->operands));
    parse_arguments(*call);
    check_arguments(*call, *method);
    return call;
  }

  // Parses the arguments of a call, from "(" to ")".
  void parse_arguments(TemplateExpression& call) {
    expect_operator("(");
    while (!is_operator(")")) {
      if (is_operator("*") || is_operator("**")) refuse("arguments by \"" + now().text + "\" are not supported");
      if (is(Token::Kind::kName) && tokens_[at_ + 1].kind == Token::Kind::kOperator && tokens_[at_ + 1].text == "=") {
        const std::string keyword = take().text;
        take();
        call.keywords.emplace_back(keyword, parse_expression());
        deepen(call, call.keywords.back().second);
      } else {
        if (!call.keywords.empty()) refuse("an argument without its name behind one with a name");
        call.operands.push_back(parse_expression());
        deepen(call, call.operands.back());
      }
      if (!is_operator(")")) expect_operator(",");
    }
    take();
  }

  void check_arguments(const TemplateExpression& call, const TemplateFunction& function) {
    const size_t given = call.operands.size() - 1 + call.keywords.size();
    if (given < function.fewest || given > function.maximum) {
      refuse("\"" + call.name + "\" with " + std::to_string(given) + " arguments is not supported");
    }
    for (const auto& [keyword, value] : call.keywords) {
      if (std::string(function.keywords).find(keyword + " ") == std::string::npos)
        refuse("\"" + call.name + "\" with \"" + keyword + "\" is not supported");
    }
  }

  ExpressionPointer parse_filters(ExpressionPointer value) {
    for (;;) {
      if (is_operator("|")) {
        value = parse_filter(std::move(value));
      } else if (is_name("is")) {
        value = parse_test(std::move(value));
      } else if (is_operator("(")) {
        refuse("a call of what is no name");
      } else {
        return value;
      }
    }
  }

  ExpressionPointer parse_filter(ExpressionPointer value) {
    const int at = take().line;
    if (!is(Token::Kind::kName)) refuse("a filter's name is missing behind \"|\"");
    const TemplateFunction* const filter = find_filter(now().text);
    if (filter == nullptr) refuse("the filter \"" + now().text + "\" is not supported");
    ExpressionPointer call = make(ExpressionKind::kFilter, at, take().text, listed(std::move(value)));
    if (is_operator("(")) parse_arguments(*call);
    check_arguments(*call, *filter);
    if (call->name == "select" || call->name == "reject") check_chosen_test(*call, 1);
    if (call->name == "selectattr" || call->name == "rejectattr") check_chosen_test(*call, 2);
    return call;
  }

  // Checks the test that select, reject, selectattr or rejectattr applies to each element.
  void check_chosen_test(const TemplateExpression& call, size_t place) {
    if (call.operands.size() <= place) return;
    const MarkedText* const test =
        call.operands[place]->kind == ExpressionKind::kConstant ? call.operands[place]->constant.as_text() : nullptr;
    if (test == nullptr) refuse("\"" + call.name + "\" of a test that is no plain string is not supported");
    const TemplateFunction* const found = find_test(test->bytes);
    if (found == nullptr) refuse("the test \"" + test->bytes + "\" is not supported");
    if (call.operands.size() - place - 1 != found->fewest)
      refuse("\"" + call.name + "\" with too many or too few arguments");
  }

  ExpressionPointer parse_test(ExpressionPointer value) {
    const int at = take().line;
    const bool negated = is_name("not");
    if (negated) take();
    if (!is(Token::Kind::kName)) refuse("a test's name is missing behind \"is\"");
    const TemplateFunction* const test = find_test(now().text);
    if (test == nullptr) refuse("the test \"" + now().text + "\" is not supported");
    ExpressionPointer call = make(ExpressionKind::kTest, at, take().text, listed(std::move(value)));
    if (is_operator("(")) {
      parse_arguments(*call);
    } else if (begins_argument()) {
      call->operands.push_back(parse_postfix(parse_primary()));
      deepen(*call, call->operands.back());
    }
    check_arguments(*call, *test);
    return negated ? make(ExpressionKind::kNot, at, "", listed(std::move(call))) : std::move(call);
  }

  bool begins_argument() const {
    const Token& token = tokens_[at_];
    if (token.kind == Token::Kind::kName) {
      for (const char* const word : {"else", "or", "and", "if", "is", "in", "not", "recursive"}) {
        if (token.text == word) return false;
      }
      return true;
    }
    return token.kind == Token::Kind::kString || token.kind == Token::Kind::kInteger ||
           token.kind == Token::Kind::kFloat ||
           (token.kind == Token::Kind::kOperator && (token.text == "[" || token.text == "{"));
  }

  // ---- nodes and tokens

  template <typename... Some>
  static Expressions listed(Some... some) {
    Expressions expressions;
    (expressions.push_back(std::move(some)), ...);
    return expressions;
  }

  ExpressionPointer make(ExpressionKind kind, int at, const std::string& name, Expressions operands) {
    auto made = std::make_unique<TemplateExpression>(TemplateExpression{.kind = kind, .line = at, .name = name});
    made->operands = std::move(operands);
    for (const ExpressionPointer& operand : made->operands) deepen(*made, operand);
    return made;
  }

  void deepen(TemplateExpression& node, const ExpressionPointer& operand) {
    if (operand) node.depth = std::max(node.depth, operand->depth + 1);
    if (node.depth > kDeepestTree) refuse_depth();
  }

  ExpressionPointer constant(int at, TemplateValue value) {
    ExpressionPointer made = make(ExpressionKind::kConstant, at, "", {});
    made->constant = std::move(value);
    return made;
  }

  template <typename Number>
  Number number_of(const Token& token) {
    Number number{};
    if (std::from_chars(token.text.data(), token.text.data() + token.text.size(), number).ec != std::errc()) {
      refuse_template(name_, token.line, "the number " + token.text + " is too large");
    }
    return number;
  }

  // Counts the parser's recursion depth.
  struct Deeper {
    explicit Deeper(TemplateParser& parser) : depth(parser.depth_) {
      if (++depth > kDeepestTree) parser.refuse_depth();
    }
    ~Deeper() { --depth; }
    int& depth;
  };
  [[noreturn]] void refuse_depth() const {
    refuse("statements or expressions lie deeper than " + std::to_string(kDeepestTree) + " in each other");
  }

  const Token& now() const { return tokens_[at_]; }
  int line() const { return now().line; }
  bool is(Token::Kind kind) const { return now().kind == kind; }
  bool is_name(const char* word) const { return is(Token::Kind::kName) && now().text == word; }
  bool is_operator(const char* word) const { return is(Token::Kind::kOperator) && now().text == word; }
  Token take() { return is(Token::Kind::kEnd) ? now() : tokens_[at_++]; }
  void end_block() { expect(Token::Kind::kBlockEnd, "%}"); }
  void expect_operator(const char* word) {
    if (!is_operator(word)) refuse_missing(word);
    take();
  }
  void expect_name(const char* word) {
    if (!is_name(word)) refuse_missing(word);
    take();
  }
  void expect(Token::Kind kind, const char* word) {
    if (!is(kind)) refuse_missing(word);
    take();
  }
  [[noreturn]] void refuse_missing(const char* word) const {
    refuse((now().text.empty() ? std::string("the end of a tag") : "\"" + now().text + "\"") + " where \"" + word +
           "\" must stand");
  }
  [[noreturn]] void refuse(const std::string& reason) const { refuse_template(name_, line(), reason); }

  const std::string& name_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::set<std::string> macros_;
  int loops_ = 0;
  bool in_generation_ = false, in_macro_ = false;
  TemplateBudget constants_;  // for values of constants; cannot run out, because the source has at most 1 MiB
};

}  // namespace

TemplateBody parse_template(const std::string& source, const std::string& name) {
  constexpr size_t kLongest = size_t{1} << 20;
  if (source.size() > kLongest) throw UserError(name + ": longer than 1 MiB");
  try {
    return TemplateParser(source, name).parse();
  } catch (const TemplateFault& fault) {
    throw UserError(name + ": " + fault.reason);
  }
}

}  // namespace reprise
