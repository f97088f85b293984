// `reprise pack`: packs buffers with lifetimes into one block of memory. It reads the format of
// public benchmarks for this problem.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/files/io/error.h"
#include "tools/plan/layout/pack_command.h"
#include "tools/run/commands/command.h"

namespace reprise {

namespace {

int run_pack_command(const PackRequest& request, bool as_json) {
  const nlohmann::json report = run_pack(request);
  if (as_json) {
    std::cout << report.dump() << "\n";
  } else {
    std::cout << describe_pack(report, request.capacity) << "\n";
  }
  return report.at("feasible").get<bool>() ? 0 : UserError::kDoesNotFit;
}

}  // namespace

Command add_pack(OptionParser& app) {
  struct PackArguments {
    PackRequest request;
    bool json = false;
  };
  const auto options = std::make_shared<PackArguments>();
  OptionParser* parser = app.add_subcommand("pack", "pack buffers with lifetimes (CSV: id,lower,upper,size)");
  parser->add_option("PROBLEM", options->request.problem_path, "CSV file")->required();
  parser->add_option("--capacity", options->request.capacity, "bytes that must suffice; default: as few as can be")
      ->check(integer_from(1));
  parser->add_option("-o,--output", options->request.output_path, "CSV file with a column of offsets")
      ->check(not_empty());
  parser->add_flag("--json", options->json, "one JSON value on stdout");
  return {parser, [options] { return run_pack_command(options->request, options->json); }};
}

}  // namespace reprise
