// Tests that no text of a recipe or of a model becomes code. Tests tools/plan/writing/cpp_text.h,
// and complete plan headers with hostile names, which are compiled and run.
#include "tools/plan/writing/cpp_text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "lib/cpu/cpu_rules.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/nets/onnx_bytes.h"
#include "tests/runtime/programs/process.h"
#include "tools/plan/planning/planner.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/plan/writing/plan_header.h"
#include "tools/run/nets/import_net.h"

namespace reprise {
namespace {

using nlohmann::json;

// Texts that end or begin a comment, a literal or a line in C++, or that would do harm as code, and
// a few harmless characters.
const std::vector<std::string> kPieces = {"*/",
                                          "/*",
                                          "//",
                                          "\n",
                                          "\r",
                                          "\r\n",
                                          "\\",
                                          "\\\n",
                                          "\\\r\n",
                                          "\\\\\n",
                                          "?\?/",
                                          "?\?/\n",
                                          "?\?'",
                                          "\"",
                                          "'",
                                          ")reprise\"",
                                          "R\"reprise(",
                                          "R\"(",
                                          "\")",
                                          "\\\"",
                                          "\\\\\"",
                                          "7",
                                          "0",
                                          "x41",
                                          "\\x4",
                                          "\\07",
                                          "\\u0041",
                                          "\\N{DIGIT ONE}",
                                          "#include </etc/passwd>",
                                          "\n#error planted\n",
                                          "\n#define main planted\n",
                                          "*/ static_assert(false); /*",
                                          "\"; static_assert(false); \"",
                                          "_Pragma(\"GCC error\")",
                                          "__FILE__",
                                          "%s%n",
                                          "$(touch x)",
                                          "`touch x`",
                                          "<script>",
                                          "\x01",
                                          "\x1b[31m",
                                          "\x7f",
                                          "\xc2\x85",
                                          "\xe2\x80\xa8",
                                          "\xe2\x80\xae",
                                          "\xf0\x9f\x98\x80",
                                          " ",
                                          "\t",
                                          "\f",
                                          "\v",
                                          "a",
                                          "Z",
                                          "{",
                                          "}",
                                          ";",
                                          "@",
                                          "."};

class RandomText {
 public:
  explicit RandomText(uint32_t seed) : random_(seed) {}

  // Returns random text that a JSON file may contain: UTF-8 without NUL.
  std::string unicode() {
    std::string text;
    for (size_t n = 1 + random_() % 8; n > 0; --n) text += kPieces[random_() % kPieces.size()];
    return text;
  }

  // Returns text like unicode(), with random bytes other than NUL inserted at random positions.
  std::string bytes() {
    std::string text = unicode();
    for (size_t n = random_() % 20; n > 0; --n)
      text.insert(random_() % (text.size() + 1), 1, static_cast<char>(1 + random_() % 255));
    return text;
  }

 private:
  std::mt19937 random_;
};

// Returns the value of adjacent string literals. This reader shares no code with the writer that is
// tested. Throws if the source contains anything else.
std::string value_of(const std::string& source) {
  std::string value;
  bool inside = false;
  for (size_t i = 0; i < source.size(); ++i) {
    const char c = source[i];
    if (!inside) {
      if (c == '"') inside = true;
      else if (c != ' ' && c != '\n') throw std::runtime_error("code between literals: " + source.substr(i));
    } else if (c == '"') {
      inside = false;
    } else if (c != '\\') {
      value += c;
    } else if (const char kind = source.at(++i); kind == 'n') {
      value += '\n';
    } else if (kind == '"' || kind == '\\' || kind == '?') {
      value += kind;
    } else {
      int byte = 0;
      for (int digit = 0; digit < 3; ++digit, ++i) {
        if (source.at(i) < '0' || source.at(i) > '7')
          throw std::runtime_error("fewer than three digits: " + source.substr(i - digit));
        byte = byte * 8 + (source.at(i) - '0');
      }
      --i;
      value += static_cast<char>(byte);
    }
  }
  if (inside) throw std::runtime_error("a literal without an end");
  return value;
}

std::string every_byte() {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += {static_cast<char>(byte), '7'};
  return text;
}

void expect_literal(const std::string& text) {
  const std::string literal = cpp_literal(text, "\n  ");
  EXPECT_EQ(value_of(literal), text);
  EXPECT_EQ(literal.find("?\?"), std::string::npos);
  size_t line_bytes = 0;
  for (const char c : literal) {
    EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
    line_bytes = c == '\n' ? 0 : line_bytes + 1;
    EXPECT_LT(line_bytes, 9000u);
  }
}

void expect_comment(const std::string& text) {
  const std::string comment = cpp_comment(text);
  EXPECT_EQ(comment.find_first_of("*\\?\"\n\r`"), std::string::npos) << comment;
  for (const char c : comment) EXPECT_TRUE(c >= ' ' && c <= '~') << static_cast<int>(c);
  EXPECT_LE(comment.size(), 203u);
}

TEST(CppText, ALiteralHasTheTextsValue) {
  EXPECT_EQ(cpp_literal("conv1.weight"), "\"conv1.weight\"");
  EXPECT_EQ(cpp_literal(""), "\"\"");
  EXPECT_EQ(cpp_literal("a\nb\n", "\n"), "\"a\\n\"\n\"b\\n\"");
  EXPECT_EQ(cpp_literal("\x01" "7?\?/"), "\"\\0017\\?\\?/\"");
  expect_literal(every_byte());
  expect_literal(std::string(100000, '\xff'));
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_literal(RandomText(seed).bytes());
  }
}

TEST(CppText, ACommentHasASafeAlphabet) {
  EXPECT_EQ(cpp_comment("stage1.0.conv:gradient (2 of 4)"), "stage1.0.conv:gradient (2 of 4)");
  EXPECT_EQ(cpp_comment("*/ int x; /*"), "_/ int x; /_");
  EXPECT_EQ(cpp_comment("a\\\nb\"?"), "a__b__");
  EXPECT_EQ(cpp_comment("abcdef", 3), "abc...");
  expect_comment(every_byte());
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_comment(RandomText(seed).bytes());
  }
}

// A program that prints every text of a header in hexadecimal, one on each line. It has its own
// main function, which no text of the header may replace.
constexpr const char* kPrinter = R"(#include "plan.h"
#include <cstdio>
void print(const char* text) {
  for (; *text != 0; ++text) std::printf("%02x", static_cast<unsigned>(static_cast<unsigned char>(*text)));
  std::puts("");
}
int main() {
  using namespace reprise::generated;
  print(kRecipe);
  print(kSummary);
  print(kPlan.name);
  for (const reprise::StateTensor& state : kPlan.state) print(state.name);
}
)";

std::string hex(const std::string& text) {
  std::string out;
  for (const char c : text) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += digits;
  }
  return out + "\n";
}

std::string texts_of(const PlanHeaderParts& parts) {
  std::string out = hex(parts.recipe) + hex(parts.summary) + hex(parts.plan.name);
  for (const StateTensor& state : parts.plan.state) out += hex(state.name);
  return out;
}

void expect_texts(const PlanHeaderParts& parts) {
  const TemporaryFolder folder;
  test::write_text(folder.file("plan.h"), plan_header(parts));
  test::write_text(folder.file("main.cpp"), kPrinter);
  const char* chosen = std::getenv("CXX");
  const std::string compiler = chosen != nullptr && *chosen != 0 ? chosen : "g++";
  const std::string command = compiler + " -std=c++20 -Wall -Wcomment -Wtrigraphs -Werror -I. '" +
                              folder.file("main.cpp") + "' -o '" + folder.file("printer") + "'";
  const test::ProcessResult compiled = test::run({"sh", "-c", command});
  ASSERT_EQ(compiled.status, 0) << compiled.err.substr(0, 4000);
  EXPECT_EQ(test::run({folder.file("printer")}).out, texts_of(parts));
}

// Plans a net of `nodes` nodes with hostile names, as `reprise plan` does.
OwnedPlan plan_of_hostile_net(int nodes) {
  RandomText random(1);
  json list = json::array();
  for (int n = 0; n < nodes; ++n) {
    const std::string name = random.unicode() + std::to_string(n);
    list.push_back(n % 2 == 0 ? json{{"op", "conv"}, {"name", name}, {"channels", 2}, {"kernel", 1}, {"bias", true}}
                              : json{{"op", "relu"}, {"name", name}});
  }
  list.push_back({{"op", "global_pool"},
                  {"name", "*/\n#define main(A,B) planted; int main(A,B) { return 1; } int other(A,B)\n/*"}});
  list.push_back({{"op", "loss_head"}, {"name", ")reprise\"; static_assert(false);"}, {"classes", 2}});
  const json recipe = {{"name", "net"},
                       {"model", {{"family", "net"}, {"image", {4, 4, 2}}, {"nodes", list}}},
                       {"data", {{"kind", "synthetic"}}},
                       {"batch", 2},
                       {"optimizer", {{"name", "sgd"}, {"lr", 0.1}}},
                       {"steps", 2}};
  const SolvedModel model = solve_model(parse_recipe(recipe.dump(), "net.json", "/"));
  return plan_model(model, request_of(model)).plan;
}

TEST(HostileHeader, NamesOfAGraphAreTexts) {
  OwnedPlan plan = plan_of_hostile_net(200);
  const std::string recipe = every_byte().substr(2) + RandomText(2).bytes(),
                    summary = "a plan\\\n*/ of\n?\?/\n" + RandomText(3).bytes();
  plan.recipe_hash = text_hash(recipe.c_str());
  expect_texts({plan, kCpuRules, recipe, summary});
}

// Returns an ONNX file with a chain of convolutions. Nodes, values, initializers, input and output
// have hostile names.
std::string hostile_onnx(int layers) {
  RandomText random(5);
  auto name = [&random, n = 0]() mutable { return random.unicode() + std::to_string(n++); };
  const std::string input = name(), pooled = name(), flat = name(), output = name(), matrix = name() + ".weight";
  test::Parts parts = {.nodes = "",
                       .constants = test::bytes(5, test::tensor(matrix, {3, 1})),
                       .input = test::value(11, input, {-1, 1, 6, 6}),
                       .output = test::value(12, output, {-1, 3})};
  std::string before = input;
  for (int n = 0; n < layers; ++n) {
    const std::string weight = name() + ".weight", after = name(), active = name();
    parts.constants += test::bytes(5, test::tensor(weight, {1, 1, 1, 1}, 0.5f + static_cast<float>(n)));
    parts.nodes += test::node("Conv", {before, weight}, after) + test::node("Relu", {after}, active);
    before = active;
  }
  parts.nodes += test::node("GlobalAveragePool", {before}, pooled) + test::node("Flatten", {pooled}, flat) +
                 test::node("Gemm", {flat, matrix}, output, test::integer("transB", 1));
  return parts.file();
}

TEST(HostileHeader, NamesOfAnOnnxFileAreTexts) {
  const TemporaryFolder folder;
  test::write_text(folder.file("net.onnx"), hostile_onnx(40));
  const ImportReport report = import_net({folder.file("net.onnx"), folder.file("net.json"), {}, {}, "", ""});
  ASSERT_TRUE(report.refused.empty()) << report.refused[0];
  const SolvedModel model = solve_model(read_recipe(folder.file("net.json")));
  const OwnedPlan plan = plan_model(model, request_of(model)).plan;
  EXPECT_GE(plan.state.size(), 41u);
  expect_texts({plan, kCpuRules, canonical_recipe(model.recipe), "a plan"});
}

// Tests texts that every reader refuses, but that a caller of the library may pass: bytes that are
// not UTF-8, and names of any length.
TEST(HostileHeader, AnyBytesAreTexts) {
  OwnedPlan plan = plan_of_hostile_net(2);
  RandomText random(4);
  plan.name = random.bytes();
  for (StateTensor& state : plan.state) state.name = plan.keep(random.bytes());
  plan.state.back().name = plan.keep(std::string(200000, '\x80') + "*/");
  for (OwnedProgram& program : plan.programs) {
    for (std::string& name : program.slot_names) name = random.bytes() + std::string(600, '*') + "/";
  }
  for (std::string& name : plan.link_names) name = random.bytes() + std::string(600, '\\');
  const std::string recipe = "{}\n";
  plan.recipe_hash = text_hash(recipe.c_str());
  expect_texts({plan, kCpuRules, recipe, ""});
}

// A name in State is a C string. Text after a NUL would be lost, and two names could become equal.
TEST(HostileHeader, ANameWithNulIsRefused) {
  for (const char* key : {"name", "inputs"}) {
    json node = {{"op", "conv"}, {"name", "c"}, {"channels", 2}, {"kernel", 1}};
    node[key] = key == std::string("name") ? json(std::string("c\0d", 3)) : json::array({std::string("image\0", 6)});
    const json recipe = {{"model", {{"family", "net"}, {"image", {4, 4, 2}}, {"nodes", {node}}}},
                         {"batch", 2},
                         {"optimizer", {{"name", "sgd"}, {"lr", 0.1}}}};
    expect_user_error([&] { parse_recipe(recipe.dump(), "net.json", "/"); }, {"net.json", key, "NUL"});
  }
}

}  // namespace
}  // namespace reprise
