// What the two programs' command lines share: one line for a wrong one, and counts that must be in range.
// Here because CLI11 2.1 prints two lines, and reads "-1" as the largest unsigned number.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>

#include "tools/formats/error.h"

namespace reprise {

// An option's text must be an integer from `least` to `most`, at most 10^18.
inline CLI::Validator integer_from(uint64_t least, uint64_t most = 1000000000000000000) {
  const std::string wanted = most >= 1000000000000000000 ? "of at least " + std::to_string(least)
                                                         : "from " + std::to_string(least) + " to " + std::to_string(most);
  return {[=](std::string& text) {
            const bool digits = !text.empty() && text.size() <= 19 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
            const uint64_t value = digits ? std::stoull(text) : 0;
            return digits && value >= least && value <= most ? std::string() : "must be an integer " + wanted + ", not \"" + text + "\"";
          },
          ""};
}

// A text that is another option's name was meant as that option: CLI11 takes whatever comes next. A file of such a name is "./--name".
inline CLI::Validator not_an_option() {
  return {[](std::string& text) { return text.rfind("--", 0) == 0 ? "needs a value before " + text : std::string(); }, ""};
}

// Prints help on stdout, or what is wrong as one line on stderr; answers the exit status.
inline int exit_status_of(const CLI::App& app, const CLI::ParseError& error, const std::string& program) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error, std::cout, std::cerr);
  const auto chosen = app.get_subcommands();
  const std::string command = chosen.empty() ? program : program + " " + chosen.front()->get_name();
  std::string line = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {  // CLI11 2.1 names them backwards
    line = "not expected:";
    for (const std::string& word : app.remaining(true)) line += " " + word;
  }
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::cerr << command << ": " << line << "; see " << command << " --help\n";
  return UserError::kUsage;
}

// At a main program's end: what stdout was given must have arrived, or a full disk behind a redirection would pass unseen.
inline int checked_output(int status, const std::string& program) {
  std::cout.flush();
  if (std::cout.good()) return status;
  std::cerr << program << ": the output could not be written to stdout\n";
  return UserError::kBadInput;
}

}  // namespace reprise
