// Tests chat templates: the results of Jinja (goldens of tests/parity/make_template_goldens.py),
// the origin of every byte, refusals, and limits for a template that does not end.
// TEMPLATE_CASES=FILE replaces the goldens by other cases.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/chat/chat_template.h"

namespace reprise {
namespace {

using Json = nlohmann::ordered_json;

std::optional<std::tm> day_of(const Json& today) {
  if (today.is_null()) return std::nullopt;
  std::tm day{};
  EXPECT_NE(::strptime(today.get<std::string>().c_str(), "%Y-%m-%d", &day), nullptr);
  return day;
}

ChatTemplate template_of(const std::string& source, const Json& today = nullptr) {
  return ChatTemplate(source, "t.jinja", {.bos = "<s>", .eos = "</s>", .pad = std::nullopt}, day_of(today));
}

std::string rendered(const std::string& source, const Json& conversation) {
  return template_of(source).render(conversation, false).text.bytes;
}

const Json kNoMessages = {{"messages", Json::array()}};

TEST(ChatTemplate, RendersAsJinja) {
  const char* const given = std::getenv("TEMPLATE_CASES");
  std::ifstream file(given == nullptr ? "tests/golden/chat/templates.json" : given);
  const Json cases = Json::parse(file);
  size_t refused = 0, unsupported = 0;
  for (const Json& one : cases) {
    SCOPED_TRACE(one["name"].get<std::string>() + ": " +
                 (given == nullptr ? one["template"].dump() : one["conversation"].dump()));
    try {
      const ChatTemplate chat = template_of(one["template"], one["today"]);
      const RenderedChat result = chat.render(one["conversation"], one["add_generation_prompt"]);
      if (one.contains("refused")) {
        ADD_FAILURE() << "Jinja refuses (" << one["refused"] << "), not we: " << result.text.bytes;
        continue;
      }
      EXPECT_EQ(result.text.bytes, one["text"].get<std::string>());
      EXPECT_EQ(result.text.bytes.size(), result.text.origins.size());
      Json generated = Json::array();
      for (const ByteRange& range : result.generated) generated.push_back({range.begin, range.end});
      EXPECT_EQ(generated, one["generated"]);
    } catch (const UserError& error) {
      // Our renderer refuses to print a list or mapping, which Jinja prints as Python does, with
      // quotes. The goldens have no such case; the cases of TEMPLATE_CASES may.
      const bool is_unsupported =
          given != nullptr && std::string(error.what()).find("only tojson can") != std::string::npos;
      EXPECT_TRUE(one.contains("refused") || is_unsupported) << error.what();
      unsupported += is_unsupported;
      EXPECT_EQ(std::string(error.what()).rfind("t.jinja", 0), 0u) << error.what();
      ++refused;
    }
  }
  if (given == nullptr) {
    EXPECT_GE(cases.size(), 100u);
    EXPECT_GE(refused, 20u);
  } else {
    std::cout << cases.size() << " cases, of which both refuse " << refused - unsupported << " and we " << unsupported
              << " more\n";
  }
}

// Text of the sample keeps its origin through every operation of a template.
TEST(ChatTemplate, EveryByteKnowsWhereItComesFrom) {
  const Json conversation = {{"messages", {{{"role", "user"}, {"content", " a,B "}}}}};
  const struct {
    const char* source;
    const char* text;
    const char* origins;  // t: from the template, s: from the sample
  } cases[] = {
      {"<{{ messages[0].role }}>", "<user>", "tsssst"},
      {"{{ '<' + messages[0].content + '>' }}", "< a,B >", "tssssst"},
      {"{{ '[' ~ messages[0].content | trim ~ ']' }}", "[a,B]", "tssst"},
      {"{{ messages[0].content.split(',') | join('; ') }}", " a; B ", "ssttss"},
      {"{{ messages[0].content.replace('a', 'xy') }}", " xy,B ", "sttsss"},
      {"{{ messages[0].content[1:3] }}{{ messages[0].content[1] }}", "a,a", "sss"},
      {"{{ messages[0].content[::-1] }}", " B,a ", "sssss"},
      {"{{ messages[0].content.upper().strip() }}", "A,B", "sss"},
      {"{{ messages[0].content * 2 }}", " a,B  a,B ", "ssssssssss"},
      {"{% for c in messages[0].content %}{{ c }}.{% endfor %}", " .a.,.B. .", "ststststst"},
      {"{% for k in messages[0] %}{{ k }}{% endfor %}", "rolecontent", "sssssssssss"},
      {"{{ messages[0].content | tojson }}", "\" a,B \"", "sssssss"},
      {"{{ messages[0].content | default('x') ~ 1 }}{{ eos_token }}", " a,B 1</s>", "ssssstttttt"},
      {"{% set ns = namespace(x=messages[0].content) %}{{ ns.x }}!", " a,B !", "ssssst"},
      {"{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[0].content) }}{{ f('a') }}", "< a,B ><a>", "tssssstttt"},
  };
  for (const auto& [source, text, origins] : cases) {
    const MarkedText result = template_of(source).render(conversation, false).text;
    EXPECT_EQ(result.bytes, text) << source;
    std::string letters;
    for (size_t i = 0; i < result.size(); ++i) letters += result.origin(i) == TextOrigin::kTemplate ? 't' : 's';
    EXPECT_EQ(letters, std::string(origins).substr(0, letters.size())) << source;
    EXPECT_EQ(letters.size(), result.bytes.size());
  }
}

// The origin of a byte must tell the member of a message from which the byte is. The members of all
// messages are numbered in order, except the roles, which have one origin together.
TEST(ChatTemplate, BytesRememberTheirPart) {
  const Json conversation = {
      {"messages", {{{"role", "user"}, {"content", "a"}}, {{"role", "tool"}, {"name", "n"}, {"content", "b\""}}}},
      {"tools", {"t"}}};
  const auto origins = [&](const std::string& source, size_t count = SIZE_MAX) {
    std::string letters;
    const MarkedText text = template_of(source).render(conversation, false, count).text;
    for (size_t i = 0; i < text.size(); ++i) {
      const size_t origin = static_cast<size_t>(text.origin(i)), first = static_cast<size_t>(TextOrigin::kFirstPart);
      letters += origin >= first ? static_cast<char>('0' + origin - first) : "tsru"[origin];
    }
    return letters;
  };
  EXPECT_EQ(origins("{% for m in messages %}<{{ m.role }}>{{ m.name }}{{ m.content }}{% endfor %}{{ tools[0] }}"),
            "trrrrt0trrrrt122u");
  EXPECT_EQ(origins("{% for m in messages %}{{ m.content }}{% endfor %}", 1), "0");
  EXPECT_EQ(origins("{{ messages[1].content | tojson }}"), "s222s") << "the letters of an escaped one are its own";
  ASSERT_EQ(message_parts(conversation["messages"]).size(), 3u);
  EXPECT_EQ(message_parts(conversation["messages"])[1].key, "name");
}

TEST(ChatTemplate, RefusesByName) {
  const struct {
    const char* source;
    std::initializer_list<std::string> fragments;
  } cases[] = {
      {"a\n{% include 'x' %}", {"t.jinja, line 2:", "\"include\"", "not supported"}},
      {"{% macro f() %}{% endmacro %}{% call f() %}{% endcall %}", {"\"call\""}},
      {"{% for x in [1] %}{% macro f() %}{% endmacro %}{% endfor %}", {"a macro inside of a loop"}},
      {"{% macro f() %}{% macro g() %}{% endmacro %}{% endmacro %}", {"a macro inside of a loop, a macro"}},
      {"{% macro f() %}{% generation %}{% endgeneration %}{% endmacro %}", {"generation inside of a macro"}},
      {"{% macro f() %}{{ varargs | length }}{% endmacro %}", {"\"varargs\" in a macro"}},
      {"{% macro f() %}{{ caller() }}{% endmacro %}", {"\"caller\" in a macro"}},
      {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", {"line 1:", "\"f\" takes 1 arguments, not 2"}},
      {"{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}", {"\"f\"", "\"a\"", "has it already"}},
      {"{{ f() }}\n{% macro f() %}{% endmacro %}", {"line 1:", "\"f\" is called before it is defined"}},
      {"{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", {"deeper than 600", "for ever"}},
      {"{% raw %}{{ x }}{% endraw %}", {"\"raw\""}},
      {"{% set x %}a{% endset %}", {"set without \"=\""}},
      {"{% set a, b = 1, 2 %}", {"several names"}},
      {"{% for x in y recursive %}{% endfor %}", {"recursive"}},
      {"{% for x in [1] %}{% break %}{% endfor %}", {"\"break\""}},
      {"\n\n{{ x | map('upper') }}", {"line 3:", "the filter \"map\""}},
      {"{{ x is divisibleby 3 }}", {"the test \"divisibleby\""}},
      {"{{ x.format(1) }}", {"the method \"format\""}},
      {"{{ cycler(3) }}", {"the function \"cycler\""}},
      {"{{ range(3) }}", {"a list as text"}},
      {"{{ range(0, 200000) | length }}", {"range of more than 100000"}},
      {"{{ range(1, 2, 0) | length }}", {"range's step is 0"}},
      {"{{ f()() }}", {"the function \"f\""}},
      {"{{ 2 ** 3 }}", {"\"**\""}},
      {"{{ (1, 2) }}", {"a tuple"}},
      {"{{ x | tojson(sort_keys=true) }}", {"\"tojson\"", "\"sort_keys\""}},
      {"{{ x | join(',', 'a') }}", {"\"join\"", "2 arguments"}},
      {"{{ [1] | select(x) }}", {"\"select\""}},
      {"{{ [1] | reject('odd') }}", {"the test \"odd\""}},
      {"{{ namespace(*x) }}", {"\"*\""}},
      {"{{ [1, 2] }}", {"line 1:", "a list as text"}},
      {"{{ messages }}", {"a list as text"}},
      {"{{ '%s' % 1 }}", {"\"%\" of text"}},
      {"{{ 'é'.upper() }}", {"beyond ASCII"}},
      {"{% for x in [1] %}{{ loop.cycle }}{% endfor %}", {"loop.cycle"}},
      {"{{ 'a'.strip }}", {"without a call"}},
      {"{{ 99999999999999999999 }}", {"too large"}},
      {"{{ 9223372036854775807 + 1 }}", {"63 bits"}},
      {"{{ '\\ud800' }}", {"no character"}},
      {"{{ '\\N{BULLET}' }}", {"\\N"}},
      {"{{ \x01 }}", {"begins nothing"}},
      {"{% set true = 1 %}", {"\"true\""}},
      {"{% generation %}{% generation %}{% endgeneration %}{% endgeneration %}", {"generation inside"}},
      {"\xff", {"t.jinja: not UTF-8 at byte 0"}},
  };
  for (const auto& [source, fragments] : cases) {
    SCOPED_TRACE(source);
    expect_user_error([source = source] { rendered(source, kNoMessages); }, fragments);
  }
}

// The depth of the parser's recursion and of the tree, the steps and the bytes are all limited.
TEST(ChatTemplate, EndsWhereTheTemplateDoesNot) {
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  const std::string digits = "[0,1,2,3,4,5,6,7,8,9]";
  const auto loops = [&](int depth, const std::string& body) {
    return repeated("{% for i in " + digits + " %}", depth) + body + repeated("{% endfor %}", depth);
  };
  expect_user_error([&] { rendered(loops(9, ""), kNoMessages); }, {"t.jinja, line 1:", "MiB"});
  expect_user_error([&] { rendered(loops(3, repeated("{% if 1 %}{% endif %}", 20000)), kNoMessages); },
                    {"t.jinja, line 1:", "steps", "loop for ever"});
  expect_user_error(
      [&] { rendered("{% set ns = namespace(x='a') %}" + loops(3, "{% set ns.x = ns.x + ns.x %}"), kNoMessages); },
      {"MiB", "grow without end"});
  expect_user_error(
      [&] { rendered("{% set ns = namespace(x=[1]) %}" + loops(3, "{% set ns.x = ns.x + ns.x %}"), kNoMessages); },
      {"MiB", "grow without end"});
  expect_user_error([&] { rendered("{{ 'a' * 9999999999 }}", kNoMessages); }, {"MiB"});
  expect_user_error(
      [&] { rendered("{% set ns = namespace(x=[]) %}" + loops(3, "{% set ns.x = [ns.x] %}"), kNoMessages); },
      {"deeper than 100"});
  expect_user_error([&] { rendered("{% set ns = namespace(x=1) %}{% set ns.y = ns %}", kNoMessages); },
                    {"a namespace cannot be held"});
  expect_user_error([&] { rendered("{% for x in [1] %}{% set y = [loop] %}{% endfor %}", kNoMessages); },
                    {"a loop cannot be held"});
  expect_user_error(
      [&] { rendered("{% set ns = namespace(x=['a']) %}" + loops(2, "{% set ns.x = [ns.x, ns.x] %}"), kNoMessages); },
      {"deeper than 100"});
  expect_user_error(
      [&] {
        rendered("{% set ns = namespace(x=['a']) %}" + loops(1, repeated("{% set ns.x = [ns.x, ns.x] %}", 6)) +
                     "{{ ns.x | tojson }}",
                 kNoMessages);
      },
      {"t.jinja"});
  expect_user_error([&] { rendered("{{ " + repeated("(", 100000) + "1" + repeated(")", 100000) + " }}", kNoMessages); },
                    {"deeper than 200"});
  expect_user_error([&] { rendered("{{ " + repeated("not ", 100000) + " }}", kNoMessages); }, {"deeper than 200"});
  expect_user_error([&] { rendered("{{ " + repeated("-", 100000) + "1 }}", kNoMessages); }, {"deeper than 200"});
  expect_user_error([&] { rendered("{{ 1" + repeated("+1", 100000) + " }}", kNoMessages); }, {"deeper than 200"});
  expect_user_error([&] { rendered("{{ x" + repeated(".x", 100000) + " }}", kNoMessages); }, {"deeper than 200"});
  expect_user_error([&] { rendered("{{ x" + repeated("|trim", 100000) + " }}", kNoMessages); }, {"deeper than 200"});
  expect_user_error([&] { rendered("{{ 1" + repeated(" if 1", 100000) + " }}", kNoMessages); }, {"deeper than 200"});
  expect_user_error([&] { rendered(repeated("{% if 1 %}", 100000), kNoMessages); }, {"deeper than 200"});
  expect_user_error([&] { rendered(std::string((1 << 20) + 1, 'a'), kNoMessages); }, {"longer than 1 MiB"});
  EXPECT_EQ(rendered("{{ 1" + repeated("+1", 150) + " }}", kNoMessages), "151");
  Json deep = Json::array();
  for (int i = 0; i < 200; ++i) deep = Json::array({deep});
  expect_user_error([&] { rendered("", {{"messages", deep}}); }, {"t.jinja", "deeper than 100"});
  expect_user_error([&] { rendered("", {{"messages", {18446744073709551615u}}}); }, {"63 bits"});
}

}  // namespace
}  // namespace reprise
