// `reprise tune`: repeats the measurements that a training makes at its first start on a machine.
#include <iostream>
#include <memory>

#include "lib/backend.h"
#include "tools/files/io/error.h"
#include "tools/files/progress/long_work.h"
#include "tools/run/commands/command.h"
#include "tools/run/profiling/tuning_report.h"
#include "tools/run/session/status_text.h"

namespace reprise {

namespace {

int run(const Port& port, uint32_t threads, bool json) {
  if (port.tune_backend == nullptr)
    throw UserError(std::string("tune: the board ") + port.name + " keeps nothing that could be measured");
  Backend backend;
  Workers workers;
  Status status = port.open_backend("cpu", &backend);
  if (status.ok()) status = port.start_workers(threads, &workers);
  if (!status.ok()) fail("tune", status);
  const Tuning tuning = [&] {
    const LongWork work("measuring how kernels go through their work");
    return port.tune_backend(workers, TuningMode::kMeasure);
  }();
  const nlohmann::json report = tuning_json(tuning, workers.count);
  port.stop_workers(&workers);
  if (json) {
    print_json(report);
  } else {
    std::cout << tuning_text(report) << "\n";
  }
  if (tuning.file[0] == 0) throw UserError("tune: kept nowhere: XDG_CACHE_HOME or HOME must name a folder");
  if (tuning.problem[0] != 0) throw UserError(std::string(tuning.file) + ": " + tuning.problem);
  if (!json) std::cout << "kept in " << tuning.file << "\n";
  return 0;
}

}  // namespace

Command add_tune(OptionParser& app, const Port& port) {
  const auto threads = std::make_shared<uint32_t>(0);
  const auto json = std::make_shared<bool>(false);
  OptionParser* parser = app.add_subcommand("tune",
                                            "measures on this machine what changes no bit: how kernels go through "
                                            "their work; a training does so at its first start");
  parser->add_option("--threads", *threads, "workers to measure for; default: one for each processor")
      ->check(integer_from(1, port.max_workers));
  parser->add_flag("--json", *json, "one JSON value on stdout");
  return {parser, [threads, json, &port] { return run(port, *threads, *json); }};
}

}  // namespace reprise
