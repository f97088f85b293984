// Tests chat templates that would run forever, or produce endless text. Each must be stopped with
// one line that names the template and the limit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/chat/chat_template.h"
#include "tools/files/chat/template_value.h"

namespace reprise {
namespace {

using Json = nlohmann::ordered_json;

RenderedChat render(const std::string& source) {
  return ChatTemplate(source, "t.jinja", {}, std::nullopt)
      .render({{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}}, false);
}

// Returns a template that sets the variable t to a text of 2^n letters.
std::string text_of(int n) {
  return "{% set ns = namespace(t='a') %}{% for i in range(" + std::to_string(n) +
         ") %}{% set ns.t = ns.t + ns.t %}{% endfor %}{% set t = ns.t %}";
}
std::string repeated(const std::string& body) {
  return "{% for i in range(1000) %}{% for j in range(1000) %}" + body + "{% endfor %}{% endfor %}";
}

constexpr const char* kSteps = "takes more than 20000000 steps";
constexpr const char* kBytes = "makes more than 256 MiB of text";

TEST(TemplateLimits, AWalkOverALongTextCountsByItsLength) {
  const std::string two = text_of(20) + "{% set u = t[:1048575] + 'b' %}";
  for (const char* expression : {"t == u", "t < u", "t in [u, u]", "{t: 1}[u]"}) {
    expect_user_error([&] { render(two + repeated(std::string("{% set x = ") + expression + " %}")); },
                      {"t.jinja, line 1", kSteps});
  }
  // Comparing texts of different lengths takes constant time.
  EXPECT_EQ(render(two + "{% for i in range(100000) %}{% set x = t == 'b' %}{% endfor %}done").text.bytes, "done");
}

TEST(TemplateLimits, TheTimeOfAComparisonGrowsWithTheText) {
  using Value = TemplateValue;
  const auto comparisons = [](size_t bytes) {
    TemplateBudget budget;
    const Value a = Value::text(std::string(bytes, 'a'), TextOrigin::kTemplate, budget),
                b = Value::text(std::string(bytes, 'a'), TextOrigin::kTemplate, budget);
    size_t count = 0;
    try {
      for (; count < 1000000; ++count) equal(a, b, budget);
    } catch (const TemplateFault&) {
    }
    return count;
  };
  const size_t of_short = comparisons(size_t{1} << 16), of_long = comparisons(size_t{1} << 17);
  EXPECT_LT(of_short, 1000000u);
  EXPECT_NEAR(static_cast<double>(of_short) / static_cast<double>(of_long), 2, 0.1);
}

TEST(TemplateLimits, TextsAndListsDoNotGrowWithoutEnd) {
  for (const std::string& body :
       {text_of(40), text_of(24) + repeated("{{ t ~ t }}"), text_of(20) + repeated("{{ t.replace('a', t) }}"),
        std::string("{{ 'ab' * 1000000000000 }}"),
        text_of(20) + "{% set ns.l = [] %}" + repeated("{% set ns.l = ns.l + [t] %}") + "{{ ns.l | join(t) }}",
        text_of(20) + repeated("{% set x = [t, t, t, t] | tojson %}"),
        text_of(26) + "{{ t[1:] }}{% for c in t %}{% endfor %}"}) {
    EXPECT_THROW(render(body), UserError) << body.substr(0, 200);
  }
  expect_user_error([&] { render(text_of(40)); }, {"t.jinja, line 1", kBytes});
}

TEST(TemplateLimits, NamesAreFoundInCountedSteps) {
  std::string source;
  for (int n = 0; n < 20000; ++n) source += "{% set name" + std::to_string(n) + " = 1 %}";
  expect_user_error([&] { render(source + repeated("{% set x = unknown %}")); }, {"t.jinja, line 1", kSteps});
}

TEST(TemplateLimits, MacrosAndNumbersEnd) {
  expect_user_error([] { render("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}"); },
                    {"t.jinja, line 1", "macros lie deeper than"});
  expect_user_error([] { render("{{ 9223372036854775807 + 1 }}"); }, {"t.jinja, line 1", "63 bits"});
  expect_user_error([] { render("{% for i in range(9223372036854775807) %}{% endfor %}"); },
                    {"t.jinja, line 1", "range of more than 100000"});
  expect_user_error([] { render(std::string(1 << 20, ' ') + "x"); }, {"t.jinja: longer than 1 MiB"});
  expect_user_error([] { render("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"); },
                    {"t.jinja, line 1", "deeper than 200"});
}

// If a template reaches a limit, the template is at fault and not the record. So reading must stop,
// even if bad records are skipped.
TEST(TemplateLimits, ALimitIsNoFaultOfOneRecord) {
  EXPECT_THROW(render(text_of(40)), LimitError);
  EXPECT_THROW(render(repeated("{% set x = 1 %}{% set y = 1 %}" + repeated("x"))), LimitError);
  try {
    render("{{ raise_exception('no') }}");
    FAIL() << "accepted";
  } catch (const LimitError&) {
    FAIL() << "a record's own fault counts as a limit";
  } catch (const UserError&) {
  }
}

// A message that a template raises is shown, but only up to a limit.
TEST(TemplateLimits, ARefusalIsCut) {
  try {
    render(text_of(24) + "{{ raise_exception(t) }}");
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_LT(std::string(error.what()).size(), 1000u);
  }
}

}  // namespace
}  // namespace reprise
