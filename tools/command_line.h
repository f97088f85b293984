// The command lines of the two programs, and what they share: one line for a wrong one, and counts that must be in range.
// Here because CLI11 takes seconds to compile, so it stands in one source alone, command_line.cpp; and because its version 2.1 prints two
// lines and reads "-1" as the largest unsigned number. A member does what CLI11's of the same name does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace reprise {

// What is wrong with an option's text; "" where nothing is.
using OptionCheck = std::function<std::string(std::string& text)>;

// An option's text must be an integer from `least` to `most`, at most 10^18.
OptionCheck integer_from(uint64_t least, uint64_t most = 1000000000000000000);
// A text must not be "", which a shell variable that is not set leaves, and which would be passed over in silence.
OptionCheck not_empty();
// A text that is another option's name was meant as that option: CLI11 takes whatever comes next. A file of such a name is "./--name".
OptionCheck not_an_option();

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option* required();
  Option* check(const OptionCheck& what_is_wrong);
  Option* between(double least, double most);
  Option* one_of(const std::vector<std::string>& words);
  Option* needs(const Option* other);
  Option* excludes(const Option* other);
  Option* take_all();
  Option* allow_extra_args(bool allow);
  Option* capture_default_str();
  Option* description(const std::string& text);
  size_t count() const;

 private:
  CLI::Option* option_;
};

class OptionParser {
 public:
  OptionParser(const std::string& description, const std::string& program);
  ~OptionParser();

  OptionParser* add_subcommand(const std::string& name, const std::string& description);
  OptionParser* add_option_group(const std::string& description);
  // T is what command_line.cpp lists: a text, a number, or an optional or a list of them.
  template <typename T>
  Option* add_option(const std::string& names, T& target, const std::string& description);
  Option* add_flag(const std::string& names, bool& target, const std::string& description);
  Option* get_option(const std::string& name);

  void require_option(int count);
  void require_subcommand(int count);
  void set_help_all_flag(const std::string& name, const std::string& description);
  void prefix_command();
  void footer(const std::function<std::string()>& text);

  // Reads a command line. Answers the exit status to end with where it asks for help, which is printed on stdout, or is wrong, which is
  // said in one line on stderr; `program` begins that line. `at_extras` is called before the line about words that no option takes.
  std::optional<int> parse(int argc, const char* const* argv, const std::string& program);
  std::optional<int> parse(const std::vector<std::string>& words, const std::string& program, const std::function<void()>& at_extras);

  bool parsed() const;  // whether the command line had this subcommand
  bool has_option(const std::string& name) const;
  bool has_subcommand(const std::string& name) const;
  std::vector<std::string> remaining() const;  // words behind those that a prefix_command has options for
  std::string help_of_options();               // without --help itself

 private:
  explicit OptionParser(CLI::App* app);
  OptionParser* keep(CLI::App* app);
  Option* keep(CLI::Option* option);
  std::optional<int> parse(const std::function<void()>& read, const std::string& program, const std::function<void()>& at_extras);

  std::unique_ptr<CLI::App> own_;  // of the outermost
  CLI::App* app_;
  std::vector<std::unique_ptr<OptionParser>> parsers_;
  std::vector<std::unique_ptr<Option>> options_;
};

// At a main program's end: what stdout was given must have arrived, or a full disk behind a redirection would pass unseen.
int checked_output(int status, const std::string& program);

}  // namespace reprise
