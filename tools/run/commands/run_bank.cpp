// `reprise bank`: converts a snapshot to a bank for a board's flash, and back.
#include <iostream>
#include <memory>

#include "tools/files/progress/long_work.h"
#include "tools/run/commands/plan_source.h"
#include "tools/run/snapshots/bank_file.h"

namespace reprise {

Command add_bank(OptionParser& app, const Port& port) {
  struct BankOptions {
    RecipeOptions recipe;
    std::string snapshot, image, output;
  };
  const auto options = std::make_shared<BankOptions>();
  OptionParser* parser = app.add_subcommand("bank", "take a training to a board's flash, or from there");
  options->recipe.add_to(*parser);
  OptionParser* from = parser->add_option_group("where it is, one of");
  from->add_option("--snapshot", options->snapshot, "the folder that --save wrote: a bank is made of it");
  from->add_option(
      "--image", options->image,
      "a bank, or the flash's region of two banks, as it was read from the board: a snapshot is made of the newest");
  from->require_option(1);
  parser->add_option("-o,--output", options->output, "the bank's file, or the snapshot's folder")->required();
  return {parser, [options, &port] {
            const LongWork work("taking a training to " + options->output);
            const SolvedModel model = options->recipe.solve();
            std::vector<std::string> inputs = options->recipe.inputs();
            inputs.insert(inputs.end(), {options->snapshot, options->image});
            const std::vector<PlanOfBudget> plans = plans_of_budgets(model, {});
            const BankTraining training = {port, model.recipe, plans[0].planned.plan, inputs};
            const BankReport report = options->image.empty()
                                          ? write_bank_file(training, options->snapshot, options->output)
                                          : write_bank_snapshot(training, options->image, options->output);
            std::cout << options->output << ": step " << report.step << ", a bank of " << report.bytes
                      << " bytes, trained by kernels " << report.kernel_set << "\n";
            return 0;
          }};
}

}  // namespace reprise
