// `reprise doctor`: reports what this machine offers for training.
#include <memory>

#include "tools/run/commands/command.h"

namespace reprise {

Command add_doctor(OptionParser& app, const Port& port, LookAtCard look_at_card) {
  const auto json = std::make_shared<bool>(false);
  OptionParser* parser = app.add_subcommand("doctor", "what this machine offers: processor, kernels, memory, card");
  parser->add_flag("--json", *json, "one JSON value on stdout");
  return {parser, [json, &port, look_at_card] { return print_doctor(port, look_at_card(), *json); }};
}

}  // namespace reprise
