// Fuzzes the two functions that write text into plan.h. A literal must have the value of the text,
// and a comment must contain only safe characters. Anybody may name the parts of a model, and
// plan.h is compiled and run.
#include "tests/fuzz/fuzz.h"
#include "tools/plan/writing/cpp_text.h"

namespace reprise::fuzz {
namespace {

// Returns the value of string literals that are separated by one blank. The code does not use the
// writer's code.
std::string value_of(const std::string& source) {
  std::string value;
  for (size_t i = 1; i < source.size(); ++i) {
    const char c = source[i];
    if (c == '"') {
      require(i + 1 == source.size() || source.compare(i, 3, "\" \"") == 0,
              "nothing but a blank stands between literals");
      i += 2;
    } else if (c != '\\') {
      value += c;
    } else if (source[++i] >= '0' && source[i] <= '7') {
      value += static_cast<char>(std::stoi(source.substr(i, 3), nullptr, 8));
      i += 2;
    } else {
      value += source[i] == 'n' ? '\n' : source[i];
    }
  }
  return value;
}

}  // namespace
}  // namespace reprise::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  const std::string text(reinterpret_cast<const char*>(data), size), literal = cpp_literal(text),
                                                                     comment = cpp_comment(text);
  fuzz::require(fuzz::value_of(literal) == text, "a literal has the text's value");
  fuzz::require(literal.find("?\?") == std::string::npos, "a literal holds no trigraph");
  for (const char c : literal + comment) fuzz::require(c >= ' ' && c <= '~', "only printable ASCII is written");
  fuzz::require(comment.find_first_of("*\\?\"") == std::string::npos, "a comment has a safe alphabet");
  return 0;
}
