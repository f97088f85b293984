// Implements command_line.h with CLI11.
#include "tools/run/session/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "lib/plan.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"

namespace reprise {

OptionCheck integer_from(uint64_t minimum, uint64_t maximum) {
  const std::string wanted = maximum >= 1000000000000000000
                                 ? "of at least " + std::to_string(minimum)
                                 : "from " + std::to_string(minimum) + " to " + std::to_string(maximum);
  return [=](std::string& text) {
    const bool digits = !text.empty() && text.size() <= 19 && text.find_first_not_of("0123456789") == std::string::npos;
    const uint64_t value = digits ? std::stoull(text) : 0;
    return digits && value >= minimum && value <= maximum ? std::string()
                                                     : "must be an integer " + wanted + ", not \"" + text + "\"";
  };
}

OptionCheck not_empty() {
  return [](std::string& text) { return text.empty() ? std::string("must not be empty") : std::string(); };
}

OptionCheck not_an_option() {
  return [](std::string& text) { return text.rfind("--", 0) == 0 ? "needs a value before " + text : std::string(); };
}

Option* Option::required() {
  option_->required();
  return this;
}
Option* Option::check(const OptionCheck& what_is_wrong) {
  option_->check(CLI::Validator(what_is_wrong, ""));
  return this;
}
Option* Option::between(double minimum, double maximum) {
  option_->check(CLI::Range(minimum, maximum));
  return this;
}
Option* Option::one_of(const std::vector<std::string>& words) {
  std::string set;
  for (const std::string& word : words) set += (set.empty() ? "{" : ",") + word;
  set += "}";
  option_->check(CLI::Validator(
      [words, set](std::string& text) {
        if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
        const std::string near = closest_match(text, words);
        return text + " not in " + set + (near.empty() ? "" : "; did you mean " + near + "?");
      },
      set));
  return this;
}
Option* Option::needs(const Option* other) {
  option_->needs(other->option_);
  return this;
}
Option* Option::excludes(const Option* other) {
  option_->excludes(other->option_);
  return this;
}
Option* Option::take_all() {
  option_->take_all();
  return this;
}
Option* Option::allow_extra_args(bool allow) {
  option_->allow_extra_args(allow);
  return this;
}
Option* Option::capture_default_str() {
  option_->capture_default_str();
  return this;
}
Option* Option::description(const std::string& text) {
  option_->description(text);
  return this;
}
size_t Option::count() const { return option_->count(); }

OptionParser::OptionParser(const std::string& description, const std::string& program)
    : own_(std::make_unique<CLI::App>(description, program)), app_(own_.get()) {}
OptionParser::OptionParser(CLI::App* app) : app_(app) {}
OptionParser::~OptionParser() = default;

OptionParser* OptionParser::keep(CLI::App* app) {
  parsers_.push_back(std::unique_ptr<OptionParser>(new OptionParser(app)));
  return parsers_.back().get();
}
Option* OptionParser::keep(CLI::Option* option) {
  options_.push_back(std::make_unique<Option>(option));
  return options_.back().get();
}

OptionParser* OptionParser::add_subcommand(const std::string& name, const std::string& description) {
  return keep(app_->add_subcommand(name, description));
}
OptionParser* OptionParser::add_option_group(const std::string& description) {
  return keep(app_->add_option_group(description));
}

template <typename T>
Option* OptionParser::add_option(const std::string& names, T& target, const std::string& description) {
  return keep(app_->add_option(names, target, description));
}
template Option* OptionParser::add_option(const std::string&, std::string&, const std::string&);
template Option* OptionParser::add_option(const std::string&, std::optional<std::string>&, const std::string&);
template Option* OptionParser::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option* OptionParser::add_option(const std::string&, int&, const std::string&);
template Option* OptionParser::add_option(const std::string&, uint32_t&, const std::string&);
template Option* OptionParser::add_option(const std::string&, uint64_t&, const std::string&);
template Option* OptionParser::add_option(const std::string&, double&, const std::string&);
template Option* OptionParser::add_option(const std::string&, std::optional<uint64_t>&, const std::string&);
template Option* OptionParser::add_option(const std::string&, std::optional<double>&, const std::string&);

Option* OptionParser::add_flag(const std::string& names, bool& target, const std::string& description) {
  return keep(app_->add_flag(names, target, description));
}
Option* OptionParser::get_option(const std::string& name) { return keep(app_->get_option(name)); }

void OptionParser::require_option(int count) { app_->require_option(count); }
void OptionParser::require_subcommand(int count) { app_->require_subcommand(count); }
void OptionParser::set_help_all_flag(const std::string& name, const std::string& description) {
  app_->set_help_all_flag(name, description);
}
void OptionParser::set_version(const std::string& program) {
  app_->set_version_flag("--version",
                         program + ": reprise " REPRISE_VERSION ", plan format " + std::to_string(kPlanFormat),
                         "print the version");
}
void OptionParser::prefix_command() { app_->prefix_command(); }
void OptionParser::footer(const std::function<std::string()>& text) { app_->footer(text); }

namespace {

// Returns "; did you mean NAME?" for each word that resembles an option in `names`; "" if none
// does.
std::string near_options(const std::vector<std::string>& words, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& word : words) {
    const std::string near = word.starts_with("-") ? closest_match(word.substr(0, word.find('=')), names) : "";
    if (!near.empty()) text += "; did you mean " + near + "?";
  }
  return text;
}

std::vector<std::string> names_of_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  for (const CLI::App* group : app.get_subcommands([](const CLI::App* each) { return each->get_name().empty(); })) {
    for (const std::string& name : names_of_options(*group)) names.push_back(name);
  }
  return names;
}

// Prints help on stdout, or the error as one line on stderr. Returns the exit status. `others` are
// options of other parsers, for suggestions.
int exit_status_of(const CLI::App& app, const CLI::ParseError& error, const std::string& program,
                   const std::vector<std::string>& others) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error, std::cout, std::cerr);
  const auto chosen = app.get_subcommands();
  const std::string command = chosen.empty() ? program : program + " " + chosen.front()->get_name();
  std::string line = error.what(), near;
  const std::vector<std::string> extras = app.remaining(true);
  const bool has_unknown =
      std::any_of(extras.begin(), extras.end(), [](const std::string& word) { return word.starts_with("-"); });
  // A required option may be missing because it was misspelt.
  const bool is_missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  // CLI11 2.1 lists unknown words in reverse order.
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || (is_missing && has_unknown)) {
    line = "not expected:";
    for (const std::string& word : extras) line += " " + word;
    std::vector<std::string> names = names_of_options(chosen.empty() ? app : *chosen.front());
    names.insert(names.end(), others.begin(), others.end());
    near = near_options(extras, names);
  }
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::cerr << command << ": " << line << "; see " << command << " --help" << near << "\n";
  return UserError::kUsage;
}

}  // namespace

std::optional<int> OptionParser::parse(const std::function<void()>& read, const std::string& program,
                                       const std::function<void()>& at_extras) {
  try {
    read();
  } catch (const CLI::ParseError& error) {
    if (at_extras && dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) at_extras();
    return exit_status_of(*app_, error, program, others_);
  }
  return std::nullopt;
}
std::optional<int> OptionParser::parse(int argc, const char* const* argv, const std::string& program) {
  return parse([&] { app_->parse(argc, argv); }, program, {});
}
std::optional<int> OptionParser::parse(const std::vector<std::string>& words, const std::string& program,
                                       const std::function<void()>& at_extras) {
  return parse([&] { app_->parse(std::vector<std::string>(words.rbegin(), words.rend())); }, program, at_extras);
}

bool OptionParser::parsed() const { return app_->parsed(); }
bool OptionParser::has_option(const std::string& name) const { return app_->get_option_no_throw(name) != nullptr; }
bool OptionParser::has_subcommand(const std::string& name) const {
  return !app_->get_subcommands([&](CLI::App* command) { return command->check_name(name); }).empty();
}
std::string OptionParser::closest_subcommand(const std::string& name) const {
  std::vector<std::string> names;
  for (const CLI::App* command : app_->get_subcommands({})) names.push_back(command->get_name());
  return closest_match(name, names);
}
void OptionParser::suggest_also(const OptionParser& other) { others_ = names_of_options(*other.app_); }
std::vector<std::string> OptionParser::remaining() const { return app_->remaining(); }
std::string OptionParser::help_of_options() {
  app_->set_help_flag();
  return CLI::Formatter().make_groups(app_, CLI::AppFormatMode::Normal);
}

int checked_output(int status, const std::string& program) {
  std::cout.flush();
  if (std::cout.good()) return status;
  std::cerr << program << ": the output could not be written to stdout\n";
  return UserError::kBadInput;
}

}  // namespace reprise
