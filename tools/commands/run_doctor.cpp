// `reprise doctor`: what this machine offers to a training.
#include <memory>

#include "tools/commands/command.h"
#include "tools/doctor.h"

namespace reprise {

Command add_doctor(CLI::App& app, const Port& port) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* parser = app.add_subcommand("doctor", "what this machine offers: processor, kernels, memory");
  parser->add_flag("--json", *json, "one JSON value on stdout");
  return {parser, [json, &port] { return print_doctor(port, *json); }};
}

}  // namespace reprise
