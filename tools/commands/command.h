// The subcommands of build/reprise. Each is one source here: its options, what it runs, and its exit status.
// A new one is a source, a declaration below and a line in tools/reprise.cpp. Those that run kernels, or read what was measured with
// them, get the board.
// Results go to stdout, everything else to stderr; exit status 0 done, 1 bad input, 2 usage, 3 does not fit.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "lib/port.h"
#include "tools/command_line.h"
#include "tools/doctor.h"

namespace reprise {

struct Command {
  CLI::App* parser;
  std::function<int()> run;  // after the parser has been chosen; answers the exit status or throws UserError
};

Command add_plan(CLI::App& app, const Port& port);
Command add_train(CLI::App& app, const Port& port);
Command add_profile(CLI::App& app, const Port& port);
Command add_fit(CLI::App& app, const Port& port);
Command add_compare(CLI::App& app, const Port& port);
Command add_audit(CLI::App& app, const Port& port);
Command add_rows(CLI::App& app, const Port& port);
Command add_kernels(CLI::App& app);
Command add_chain(CLI::App& app);
Command add_name(CLI::App& app);
Command add_recipe(CLI::App& app);
Command add_parameters(CLI::App& app);
Command add_export(CLI::App& app);
Command add_schedule(CLI::App& app);
Command add_pack(CLI::App& app);
Command add_chat(CLI::App& app);
Command add_tokenize(CLI::App& app);
Command add_detokenize(CLI::App& app);
Command add_doctor(CLI::App& app, const Port& port, LookAtCard look_at_card);

constexpr uint64_t kMostLinks = 1000000;

// An option's bytes of disk; 0: none.
uint64_t disk_bytes_of(const std::string& text);

// A report for programs, on stdout.
void print_json(const nlohmann::json& json);

}  // namespace reprise
