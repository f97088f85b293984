// The subcommands of build/reprise. Each is one source here: its options, what it runs, and its exit status.
// A new one is a source, a declaration below and a line in tools/reprise.cpp. Those that run kernels, or read what was measured with
// them, get the board.
// Results go to stdout, everything else to stderr; exit status 0 done, 1 bad input, 2 usage, 3 does not fit.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "lib/port.h"
#include "tools/command_line.h"
#include "tools/doctor.h"

namespace reprise {

struct Command {
  OptionParser* parser;
  std::function<int()> run;  // after the parser has been chosen; answers the exit status or throws UserError
};

Command add_plan(OptionParser& app, const Port& port);
Command add_train(OptionParser& app, const Port& port);
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

constexpr uint64_t kMostLinks = 1000000;

// Bytes of a second level of memory, of that option; 0: none.
uint64_t spill_bytes_of(const std::string& text, const char* option);

// A report for programs, on stdout.
void print_json(const nlohmann::json& json);

}  // namespace reprise
