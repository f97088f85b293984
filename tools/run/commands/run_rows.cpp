// `reprise rows`: prints one program of a plan, row by row.
#include <iostream>
#include <memory>

#include "tools/plan/audit/rows_text.h"
#include "tools/run/commands/plan_source.h"

namespace reprise {

Command add_rows(OptionParser& app, const Port& port) {
  struct RowsOptions {
    RecipeOptions recipe;
    std::string program = "micro_first";
    bool json = false;
  };
  const auto options = std::make_shared<RowsOptions>();
  OptionParser* parser =
      app.add_subcommand("rows", "a program of a plan row by row: what runs, reads and writes, and why");
  options->recipe.add_to(*parser);
  parser->get_option("RECIPE")->description("recipe file (JSON), or a manifest of `reprise plan`");
  options->recipe.add_schedule_to(*parser);
  options->recipe.add_profile_to(*parser, port);
  parser->add_option("--program", options->program, "micro_first, micro_add, micro_last, update, evaluate or generate")
      ->capture_default_str();
  parser->add_flag("--json", options->json, "one JSON value on stdout");
  return {parser, [options] {
            const nlohmann::json rows = named_rows(open_plan(options->recipe).manifest, options->program);
            if (options->json) {
              print_json(rows);
            } else {
              std::cout << rows_text(rows);
            }
            return 0;
          }};
}

}  // namespace reprise
