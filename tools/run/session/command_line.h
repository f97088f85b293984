// Parses the command lines of reprise and of training programs. Both report an error as one line
// and check the range of counts. Only command_line.cpp includes CLI11, because compiling it takes
// seconds. CLI11 2.1 would print two lines per error and read "-1" as the largest unsigned number.
// A member without a comment does the same as CLI11's member of that name.
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

// Returns what is wrong with the text of an option; "" if it is right.
using OptionCheck = std::function<std::string(std::string& text)>;

// Returns a check that the text is an integer from `minimum` to `maximum`, which is at most 10^18.
OptionCheck integer_from(uint64_t minimum, uint64_t maximum = 1000000000000000000);
// Returns a check that the text is not "". An unset shell variable gives "", and the option would
// have no effect.
OptionCheck not_empty();
// Returns a check that the text does not begin with "--". Without the check, CLI11 would accept the
// next option as the value of an option. A file with such a name can be given as "./--name".
OptionCheck not_an_option();

// One option of a parser.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option* required();
  Option* check(const OptionCheck& what_is_wrong);
  Option* between(double minimum, double maximum);
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

// A parser: a program's command line, or that of a subcommand.
class OptionParser {
 public:
  OptionParser(const std::string& description, const std::string& program);
  ~OptionParser();

  OptionParser* add_subcommand(const std::string& name, const std::string& description);
  OptionParser* add_option_group(const std::string& description);
  // Adds an option. T is a type that command_line.cpp lists: a text, a number, or an optional or a
  // list of texts or numbers.
  template <typename T>
  Option* add_option(const std::string& names, T& target, const std::string& description);
  Option* add_flag(const std::string& names, bool& target, const std::string& description);
  Option* get_option(const std::string& name);

  void require_option(int count);
  void require_subcommand(int count);
  void set_help_all_flag(const std::string& name, const std::string& description);
  // Adds --version, which prints "PROGRAM: reprise VERSION, plan format FORMAT" on stdout.
  void set_version(const std::string& program);
  void prefix_command();
  // Adds the other parser's options to the suggestions for a word that is not an option of this
  // parser.
  void suggest_also(const OptionParser& other);
  void footer(const std::function<std::string()>& text);

  // Parses a command line. Returns the exit status if the program should end: after --help, or
  // after an error. Help is printed on stdout. An error is one line on stderr that begins with
  // `program`. `at_extras` is called before an error about unknown words.
  std::optional<int> parse(int argc, const char* const* argv, const std::string& program);
  std::optional<int> parse(const std::vector<std::string>& words, const std::string& program,
                           const std::function<void()>& at_extras);

  bool parsed() const;  // true if the command line has this subcommand
  bool has_option(const std::string& name) const;
  bool has_subcommand(const std::string& name) const;
  // Returns the subcommand whose name is most similar to the mistyped `name`; "" if none is
  // similar.
  std::string closest_subcommand(const std::string& name) const;
  std::vector<std::string> remaining() const;  // after prefix_command(): the words that are not options of this parser
  std::string help_of_options();               // returns the help for the options, without --help itself

 private:
  explicit OptionParser(CLI::App* app);
  OptionParser* keep(CLI::App* app);
  Option* keep(CLI::Option* option);
  std::optional<int> parse(const std::function<void()>& read, const std::string& program,
                           const std::function<void()>& at_extras);

  std::unique_ptr<CLI::App> own_;  // set only in the outermost parser
  CLI::App* app_;
  std::vector<std::unique_ptr<OptionParser>> parsers_;
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::string> others_;  // names of other parsers' options (suggest_also)
};

// Returns `status`, or an error status if stdout could not be written. Main programs call it at
// their end; otherwise nobody would notice that a redirected output is incomplete because the disk
// is full.
int checked_output(int status, const std::string& program);

}  // namespace reprise
