// The training program's command line, and what each of its errors becomes.
// Errors are one line; what was saved last stays whole.
#include "tools/training/program.h"

#include <exception>
#include <iostream>

#include "tools/command_line.h"
#include "tools/data/check_data.h"
#include "tools/formats/error.h"
#include "tools/formats/text.h"
#include "tools/progress/long_work.h"
#include "tools/training/predict.h"
#include "tools/training/stop_signal.h"
#include "tools/training/training_options.h"
#include "tools/training/training_run.h"

namespace reprise {

int run_training(const CompiledPlan& compiled, const Port& port, int argc, char** argv) {
  const Plan& plan = compiled.plan;
  TrainingOptions options;
  CLI::App app(std::string("Trains ") + plan.name + " inside the " + bytes_text(plan.arena_bytes) + " that its plan proves.", "train");
  options.add_to(app, plan.disk_bytes, port.most_workers);
  try {
    app.parse(argc, argv);
    options.check();
    if (options.quiet) silence_long_work();
    if (options.check_data) return check_data(parse_recipe(compiled.recipe, plan.name, "/"), options.threads);
    set_up_signals();
    if (options.evaluate) return evaluate_weights(compiled, port, options);
    if (!options.predict.empty()) return predict_pictures(compiled, port, options);
    return train(compiled, port, options);
  } catch (const CLI::ParseError& error) {
    return exit_status_of(app, error, argc > 0 ? argv[0] : "train");  // whose --help can be asked for
  } catch (const UserError& error) {
    std::cerr << error.what() << "\n";
    return error.status;
  } catch (const std::exception& error) {
    std::cerr << plan.name << ": " << error.what() << "\n";
    return 1;
  }
}

}  // namespace reprise
