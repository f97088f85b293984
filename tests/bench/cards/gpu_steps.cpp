// Measures whole training steps of one recipe on this machine's card: the seconds of each step,
// planned and measured bytes, the bits of the loss, and the memory that CUDA uses in addition to
// the arena. Prints one JSON object. gpu_train.py calls this program for each recipe, and compares
// the results with PyTorch's.
//
// A compiled program draws synthetic data on the host during training, which would dominate the
// time. This program draws one micro-batch, and passes it to every step from the host's memory. It
// plans in this process, and bind() checks the plan as usual.
//
//   gpu_steps RECIPE.json [--steps N] [--share S] [--wait]
//
//   --steps N   number of counted steps; two steps before them are not counted. Default: 10.
//   --share S   the budget is the fixed bytes, plus S times the other bytes of storing everything.
//               S is from 0 to 1.
//   --wait      after planning, waits for a line of input, and ends if there is none. So many
//               processes can plan at once and use the card one after the other.
//
// --share has no effect on a recipe with a budget. A recipe without a budget, at S = 1, stores
// everything if the card has enough memory; otherwise its budget is the card's memory.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lib/check.h"
#include "lib/cpu/cpu_host_access.h"
#include "lib/trainer.h"
#include "ports/cuda/card.h"
#include "ports/cuda/cuda_port.h"
#include "tools/run/data/dataset.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/plan/planning/planner.h"
#include "tools/plan/planning/does_not_fit.h"

namespace reprise::bench {
namespace {

constexpr int kWarmUp = 2;

void require(const Status& status) {
  if (!status.ok())
    throw UserError(std::string(status.message) +
                    (status.detail == 0 ? "" : " (" + std::to_string(status.detail) + ")"));
}

// One micro-batch of the recipe's data. The micro-batch is drawn once, and every step gets it.
class Batch {
 public:
  Batch(const Recipe& recipe, const Program& program)
      : input_(program.slots[program.input].tensor.used_bytes()),
        labels_(program.slots[program.labels].tensor.elements()) {
    const auto in_host = [](auto& memory) { return ArenaAddress{reinterpret_cast<unsigned char*>(memory.data())}; };
    const KernelContext context;
    BatchSink sink(kCpuHostAccess, context, in_host(input_), input_.size(), in_host(labels_), labels_.size());
    (void)open_dataset(recipe, Split::kTraining)->fill(0, 0, sink);
    require(sink.status());
  }
  BatchSource source() { return {this, give}; }

 private:
  static Status give(void* self, uint64_t, uint32_t, BatchSink& sink) {
    const Batch& own = *static_cast<const Batch*>(self);
    sink.add(own.input_.data(), own.input_.size(), own.labels_.data(), own.labels_.size());
    return ok_status();
  }
  std::vector<unsigned char> input_;
  std::vector<int32_t> labels_;
};

// Returns the bytes of the card that a plan may use. These are not the card's free bytes, because
// other processes plan while one process uses the card. The remaining bytes are for CUDA itself and
// for the recording. A board whose host and card share one memory leaves more to the host.
uint64_t space_of_card() {
  CudaDriver driver;
  Card card;
  require(load_cuda_driver(driver));
  require(open_card(driver, card));
  const uint64_t bytes =
      card.total_bytes - std::max(uint64_t{1} << 30, card.total_bytes / (card.is_integrated ? 3 : 16));
  close_card(driver, card);
  return bytes;
}

struct Options {
  std::string recipe;
  int steps = 10;
  double share = 1;
  bool waits = false;
};

PlannedModel plan(const Recipe& recipe, double share) {
  SolvedModel model = solve_model(recipe);
  const uint64_t transients = model.store_all_bytes - model.fixed_bytes();
  const uint64_t wanted = model.fixed_bytes() + static_cast<uint64_t>(share * static_cast<double>(transients));
  const uint64_t space = space_of_card();
  const bool has_budget = recipe.budget_bytes || recipe.feature_map_budget_bytes;
  if (!has_budget && (share < 1 || wanted > space))
    model.recipe.budget_bytes = std::min(wanted, space) / kAlignment * kAlignment;
  const ScheduleRequest request = request_of(model);
  PlannedModel planned = plan_model(model, request);
  if (!planned.fits) throw UserError(does_not_fit_message(model, planned, request), UserError::kDoesNotFit);
  return planned;
}

// The open card, with a plan that is bound to it.
class Run {
 public:
  explicit Run(const Plan& plan) : port_(cuda_port()) {
    require(port_.open_backend(plan.backend, &backend_));
    require(port_.start_workers(0, &workers_));
    require(port_.acquire_arena(plan.arena_bytes, &arena_));
    std::vector<CheckMark> marks(check_marks(plan));
    const Workspace workspace = {marks.data(), marks.size() * sizeof(CheckMark)};
    require(bind(plan, backend_, {.arena = arena_, .workers = &workers_, .workspace = workspace}, trainer_));
  }
  ~Run() {
    unbind(trainer_);
    port_.stop_workers(&workers_);
    port_.release_arena(&arena_);
    port_.close_backend(&backend_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Returns the seconds of a step. Reads the loss from the card, so all work of the step is done.
  double step(const BatchSource& source, double& loss) {
    StepReport report;
    const double start = port_.seconds();
    const Status status = train_step(trainer_, source, report);
    const double seconds = port_.seconds() - start;
    require(status);
    loss = report.loss;
    return seconds;
  }
  uint64_t measured() const {
    uint64_t bytes = 0;
    require(measured_bytes(trainer_, bytes));
    return bytes;
  }
  std::string device() const {
    char text[512];
    port_.describe_device(text, sizeof text);
    return text;
  }
  const char* kernel_set() const { return backend_.kernel_set; }

 private:
  const Port& port_;
  Backend backend_;
  Workers workers_;
  Arena arena_;
  Trainer trainer_;
};

std::string bits(double value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, std::bit_cast<uint64_t>(value));
  return text;
}

void measure(const Options& options) {
  const Recipe recipe = read_recipe(options.recipe);
  const PlannedModel planned = plan(recipe, options.share);
  if (std::string go; options.waits && !std::getline(std::cin, go)) return;
  const Plan view = planned.plan.view();
  Batch batch(recipe, view.program(ProgramId::kMicroFirst));
  Run run(view);
  nlohmann::json seconds = nlohmann::json::array(), losses = nlohmann::json::array();
  for (int s = 0; s < kWarmUp + options.steps; ++s) {
    double loss = 0;
    const double taken = run.step(batch.source(), loss);
    if (s >= kWarmUp) seconds.push_back(taken);
    losses.push_back(bits(loss));
  }
  const nlohmann::json report = {{"name", recipe.name},
                                 {"seconds", seconds},
                                 {"samples", static_cast<uint64_t>(recipe.batch) *
                                                 static_cast<uint64_t>(std::max<int64_t>(1, recipe.sequence))},
                                 {"planned_bytes", view.arena_bytes},
                                 {"measured_bytes", run.measured()},
                                 {"feature_map_bytes", planned.packed_bytes},
                                 {"extra_work", planned.extra_forward_cost},
                                 {"rows", view.program(ProgramId::kMicroFirst).rows.count},
                                 {"losses", losses},
                                 {"kernel_set", run.kernel_set()},
                                 {"device", run.device()}};
  std::cout << report.dump() << std::endl;
}

}  // namespace
}  // namespace reprise::bench

int main(int argc, char** argv) {
  reprise::bench::Options options;
  CLI::App app("Times whole training steps of a recipe on the card that is here.", "gpu_steps");
  app.add_option("recipe", options.recipe)->required();
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber);
  app.add_option("--share", options.share)->check(CLI::Range(0.0, 1.0));
  app.add_flag("--wait", options.waits);
  try {
    app.parse(argc, argv);
    reprise::bench::measure(options);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : reprise::UserError::kUsage;
  } catch (const reprise::UserError& error) {
    std::fprintf(stderr, "gpu_steps: %s\n", error.what());
    return error.status;
  }
}
