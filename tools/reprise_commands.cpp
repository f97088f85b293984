// See reprise_commands.h. A row for each subcommand, whose options and work are in
// tools/run/commands/. Every error is reported here as one line on stderr and an exit status.
#include "tools/reprise_commands.h"

#include <signal.h>

#include <iostream>
#include <new>

#include "ports/cuda/card.h"
#include "tools/files/io/error.h"
#include "tools/files/io/exception_text.h"
#include "tools/files/io/memory_end.h"
#include "tools/files/progress/shown_output.h"
#include "tools/run/commands/command.h"
#include "tools/run/session/command_line.h"
#include "tools/run/session/status_text.h"
#include "tools/run/session/stop_signal.h"

namespace reprise {
namespace {

CardReport look_at_card() {
  CardReport report;
  CudaDriver driver;
  Card card;
  Status status = load_cuda_driver(driver);
  if (status.ok()) status = open_card(driver, card);
  if (!status.ok()) report.problem = message_of(status);
  report.name = card.name;
  report.architecture = card.architecture;
  report.multiprocessors = card.multiprocessors;
  report.driver_version = card.driver_version;
  report.is_integrated = card.is_integrated;
  report.free_bytes = card.free_bytes;
  report.total_bytes = card.total_bytes;
  if (status.ok()) report.space_bytes = card_space_bytes(card.free_bytes);
  if (status.ok() && card.is_integrated) {
    // CUDA's own memory is already allocated here, as when a plan runs.
    report.host = card_host_share(linux_memory(), 0);
    report.space_bytes = report.host.space_bytes();
  }
  if (status.ok()) close_card(driver, card);
  return report;
}

int run(const std::vector<const Port*>& boards, int argc, char** argv) {
  OptionParser app("Plans the memory of a whole training step before it runs.", "reprise");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "help of all subcommands");
  app.set_version("reprise");
  const Port& port = *boards.back();
  const Command commands[] = {add_plan(app, port),    add_profile(app, port), add_fit(app, port),
                              add_compare(app, port), add_audit(app, port),   add_chain(app),
                              add_name(app),          add_schedule(app),      add_export(app),
                              add_bank(app, port),    add_pack(app),          add_doctor(app, port, look_at_card),
                              add_tune(app, port),    add_recipe(app),        add_parameters(app),
                              add_train(app, boards), add_chat(app),          add_tokenize(app),
                              add_detokenize(app),    add_rows(app, port),    add_kernels(app),
                              add_import(app, port)};
  if (argc > 1 && argv[1][0] != '-' && !app.has_subcommand(argv[1])) {
    const std::string near = app.closest_subcommand(argv[1]);
    throw UserError(std::string("reprise: no subcommand \"") + argv[1] + "\"; see reprise --help" +
                        (near.empty() ? "" : "; did you mean " + near + "?"),
                    UserError::kUsage);
  }
  if (const std::optional<int> status = app.parse(argc, argv, "reprise")) return *status;
  for (const Command& command : commands) {
    if (command.parser->parsed()) return command.run();
  }
  return UserError::kUsage;  // not reached, because the parser requires a subcommand
}

}  // namespace

int run_reprise(const std::vector<const Port*>& boards, int argc, char** argv) {
  ::signal(SIGXFSZ, SIG_IGN);  // exceeding the file size limit becomes an error of write()
  end_where_memory_is_short("reprise");
  const ShownOutput shown;
  set_up_ending_signals();
  try {
    return checked_output(run(boards, argc, argv), "reprise");
  } catch (const UserError& error) {
    std::cerr << error.what() << "\n";
    return error.status;
  } catch (const std::bad_alloc&) {
    std::cerr << "reprise: the memory does not suffice; of a plan, a larger --unit or a smaller recipe takes less\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "reprise: " << words_of(error) << "\n";
    return 1;
  }
}

}  // namespace reprise
