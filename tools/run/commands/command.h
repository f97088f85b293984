// The subcommands of build/reprise. Each has one source file here with its options, its work and
// its exit status. A new one needs a source file, a declaration below and a line in
// tools/reprise_commands.cpp. Subcommands that run kernels, or use measurements of kernels, get the
// board's port. add_train() gets the ports that it may train on, in the order of preference; the
// last one is the host's. Results go to stdout, everything else to stderr. The exit status is 0 for
// success, 1 for bad input, 2 for wrong usage, 3 if something does not fit.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "lib/port.h"
#include "tools/run/profiling/doctor.h"
#include "tools/run/session/command_line.h"

namespace reprise {

// A subcommand: its options, and the function that runs it.
struct Command {
  OptionParser* parser;
  // Called if the command line selects the parser; returns the exit status, or throws UserError
  std::function<int()> run;
};

Command add_plan(OptionParser& app, const Port& port);
Command add_train(OptionParser& app, const std::vector<const Port*>& boards);
Command add_profile(OptionParser& app, const Port& port);
Command add_fit(OptionParser& app, const Port& port);
Command add_compare(OptionParser& app, const Port& port);
Command add_audit(OptionParser& app, const Port& port);
Command add_rows(OptionParser& app, const Port& port);
Command add_kernels(OptionParser& app);
Command add_chain(OptionParser& app);
Command add_name(OptionParser& app);
Command add_recipe(OptionParser& app);
Command add_parameters(OptionParser& app);
Command add_export(OptionParser& app);
Command add_bank(OptionParser& app, const Port& port);
Command add_import(OptionParser& app, const Port& port);
Command add_schedule(OptionParser& app);
Command add_pack(OptionParser& app);
Command add_chat(OptionParser& app);
Command add_tokenize(OptionParser& app);
Command add_detokenize(OptionParser& app);
Command add_tune(OptionParser& app, const Port& port);
Command add_doctor(OptionParser& app, const Port& port, LookAtCard look_at_card);

constexpr uint64_t kMaxLinks = 1000000;

// Parses `text`, the argument of `option`, as the size of a second level of memory. Returns bytes;
// 0 if `text` is "0". Throws UserError that names `option` if `text` is no size.
uint64_t spill_bytes_of(const std::string& text, const char* option);

// Prints a JSON report to stdout.
void print_json(const nlohmann::json& json);

}  // namespace reprise
