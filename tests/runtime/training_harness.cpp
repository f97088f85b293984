// See training_harness.h. Slots are poisoned by an observer of rows: by the lifetimes in the plan,
// so that a read outside a lifetime gives NaN.
#include "tests/runtime/training_harness.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include <unistd.h>

#include "lib/check.h"
#include "ports/linux/linux_port.h"
#include "tools/plan/planning/does_not_fit.h"
#include "tools/run/session/status_text.h"
#include "tools/plan/costs/backends.h"
#include "tools/plan/planning/weight_storage.h"

namespace reprise {

std::string resnet_recipe(const std::string& extra, const std::string& block) {
  return R"({"name": "small-resnet", "model": {"family": "resnet", "block": ")" + block +
         "\", \"units\": " + (block == "basic" ? "[2, 1, 2]" : "[4, 3, 3]") +
         R"(, "width": 8, "stem": "cifar", "classes": 5, "image": [13, 11, 3]},
         "data": {"kind": "synthetic"}, "batch": 4, "steps": 10, "seed": 3,
         "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": true, "weight_decay": 0.001})" +
         extra + "}";
}

std::string gpt_recipe(const std::string& extra, double dropout) {
  const std::string p = std::to_string(dropout);
  return R"({"name": "small-gpt", "model": {"family": "gpt2", "vocab_size": 37, "n_positions": 24, "n_embd": 24, "n_layer": 3, "n_head": 3,
         "resid_pdrop": )" +
         p + ", \"embd_pdrop\": " + p + ", \"attn_pdrop\": " + p + R"(},
         "data": {"kind": "synthetic"}, "batch": 3, "sequence": 19, "steps": 10, "seed": 4,
         "optimizer": {"name": "adamw", "lr": 0.003, "weight_decay": 0.1, "no_decay": ["*.bias", "*ln_*"]})" +
         extra + "}";
}

Recipe recipe_from(const std::string& text) { return parse_recipe(text, "test.json", "/tmp"); }

PlannedRun plan_run(const Recipe& recipe, const std::string& strategy, double budget_share) {
  return plan_run(recipe, build_stored_model(recipe, backend_of(recipe)), strategy, budget_share);
}

PlannedRun plan_run(const Recipe& recipe, const Graph& network, const std::string& strategy, double budget_share) {
  PlannedRun run;
  Recipe planned = recipe;
  planned.schedule.strategy = strategy;
  if (chooses_for_disk(strategy) && planned.schedule.spill_bytes() == 0) {
    planned.schedule.disk_bytes = uint64_t{1} << 30;
    planned.schedule.write_cost = 0.5;
    planned.schedule.read_cost = 0.25;
  }
  run.model = solve_network(planned, network);
  const ScheduleRequest request = request_of(run.model);
  if (budget_share >= 0) {
    const uint64_t minimum = smallest_budget(run.model, request);
    run.model.recipe.budget_bytes =
        minimum + static_cast<uint64_t>(budget_share * static_cast<double>(run.model.store_all_bytes - minimum));
  }
  run.planned = plan_model(run.model, request);
  if (!run.planned.fits) throw std::runtime_error(does_not_fit_message(run.model, run.planned, request));
  return run;
}

TestArena::TestArena(uint64_t bytes, uint64_t alignment) : memory_(bytes + alignment) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(memory_.data());
  arena_.base = {memory_.data() + (alignment - address % alignment) % alignment};
  arena_.bytes = bytes;
}

namespace {

// Fills slots with bits that are NaN as f32 and as bf16. before() fills the slots whose lifetime
// begins with the row, except those that the host writes. after() fills the slots whose lifetime
// ends with it.
struct Poison {
  const Trainer* trainer;

  void fill(const Slot& slot) const {
    const ArenaAddress to = trainer->region(Region::kProgram) + slot.tensor.offset;
    if (!trainer->backend->host.fill(trainer->context, to, ~0u, slot.tensor.bytes).ok())
      throw std::runtime_error("poison");
  }
  void before(ProgramId id, uint32_t row) const {
    const Program& program = trainer->plan->program(id);
    for (uint32_t s = 0; s < program.slots.count; ++s) {
      const bool is_host = s == program.input || s == program.labels || s == program.document_start ||
                           s == program.pairs || s == program.token_types;
      if (program.slots[s].first_row == row && !is_host && !is_move(program, row)) fill(program.slots[s]);
    }
  }
  void after(ProgramId id, uint32_t row) const {
    const Program& program = trainer->plan->program(id);
    if (is_move(program, row)) return;  // the source and the result of a move may overlap
    for (const Slot& slot : program.slots) {
      if (slot.end_row == row + 1) fill(slot);
    }
  }
  static bool is_move(const Program& program, uint32_t row) {
    return kernel_info(program.rows[row].op, program.rows[row].pass).moves;
  }
};

}  // namespace

namespace {

// The second level of a plan during a run: the port's spill file, or host memory.
struct SecondLevel {
  explicit SecondLevel(const Plan& plan) {
    if (spills_to(plan, SpillLevel::kHost) && !linux_port().acquire_host(plan.spill_bytes, &host_memory).ok())
      throw std::runtime_error("no memory of the host");
    if (!spills_to(plan, SpillLevel::kDisk)) return;
    const std::string path = "/tmp/reprise-test-spill-" + std::to_string(::getpid());
    if (!linux_port().open_disk(path.c_str(), plan.spill_bytes, &disk).ok()) throw std::runtime_error("no spill file");
  }
  ~SecondLevel() {
    linux_port().close_disk(&disk);
    linux_port().release_host(&host_memory);
  }
  SecondLevel(const SecondLevel&) = delete;
  SecondLevel& operator=(const SecondLevel&) = delete;
  Disk disk;
  HostMemory host_memory;
};

// The port's pool of workers during a run. With 0 workers only the calling thread runs, because a
// process can have only one pool at a time.
struct PoolOf {
  explicit PoolOf(uint32_t count) {
    workers.stack_bytes = uint64_t{1} << 20;
    if (count > 0 && !linux_port().start_workers(count, &workers).ok()) throw std::runtime_error("no workers");
  }
  ~PoolOf() { linux_port().stop_workers(&workers); }
  PoolOf(const PoolOf&) = delete;
  PoolOf& operator=(const PoolOf&) = delete;
  Workers workers;
};

}  // namespace

Status bind_plan(const Plan& plan, const Backend& backend, const Workers& workers, Arena arena, Trainer& trainer,
                 const Disk& disk, const Disk& weights, const HostMemory& host_memory, const Peers& peers) {
  std::vector<CheckMark> marks(check_marks(plan));
  const Workspace workspace = {marks.data(), marks.size() * sizeof(CheckMark)};
  return bind(plan, backend,
              {.arena = arena,
               .workers = &workers,
               .disk = disk,
               .weights = weights,
               .host_memory = host_memory,
               .peers = peers,
               .workspace = workspace},
              trainer);
}

BatchSource source_of(Dataset& data) {
  return {&data, [](void* state, uint64_t step, uint32_t micro, BatchSink& sink) {
            static_cast<Dataset*>(state)->fill(step, micro, sink);
            return ok_status();
          },
          [](void* state, uint64_t step) { return static_cast<Dataset*>(state)->labelled_in_step(step); },
          [](void* state, uint64_t step) { return static_cast<Dataset*>(state)->weight_in_step(step); }};
}

std::vector<unsigned char> bytes_at(const Trainer& trainer, ArenaAddress from, uint64_t bytes) {
  std::vector<unsigned char> all(bytes);
  if (!trainer.read(all.data(), from, bytes).ok()) throw std::runtime_error("the arena cannot be read");
  return all;
}

std::vector<float> floats_of(const Trainer& trainer, uint32_t index) {
  const std::vector<unsigned char> bytes =
      bytes_at(trainer, trainer.state_tensor(index), trainer.plan->state[index].tensor.elements() * sizeof(float));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

uint64_t measure(const Trainer& trainer) {
  uint64_t bytes = 0;
  if (!measured_bytes(trainer, bytes).ok()) throw std::runtime_error("the arena cannot be read");
  return bytes;
}

std::vector<float> state_values(const OwnedPlan& plan, const RunResult& result, const std::string& name) {
  for (const StateTensor& state : plan.state) {
    if (state.name != name) continue;
    std::vector<float> values(state.tensor.elements());
    std::memcpy(values.data(), result.state.data() + state.tensor.offset, values.size() * sizeof(float));
    return values;
  }
  throw std::runtime_error("no state tensor " + name);
}

std::vector<float> gradient_values(const OwnedPlan& plan, const RunResult& result, const std::string& parameter) {
  for (size_t i = 0; i < plan.carried.size(); ++i) {
    if (plan.carried_names[i] != "d(" + parameter + ")") continue;
    std::vector<float> values(plan.carried[i].elements());
    std::memcpy(values.data(), result.gradients.data() + plan.carried[i].offset, values.size() * sizeof(float));
    return values;
  }
  throw std::runtime_error("no gradient of " + parameter);
}

RunResult train_plan(const OwnedPlan& plan, const Recipe& recipe, const RunOptions& options) {
  const auto data = open_dataset(recipe, Split::kTraining);
  return train_plan(plan, source_of(*data), options);
}

RunResult train_plan(const OwnedPlan& owned, const BatchSource& source, const RunOptions& options) {
  const Plan plan = owned.view();
  const TestArena arena(plan.arena_bytes + 4096);
  const PoolOf pool(options.workers);
  const SecondLevel level(plan);
  Trainer trainer;
  const Status bound = bind_plan(plan, *options.backend, pool.workers, arena.get(), trainer, level.disk,
                                 options.weights, level.host_memory, options.peers);
  if (!bound.ok()) throw std::runtime_error(std::string("bind: ") + bound.message);
  Poison poison = {&trainer};
  if (options.poison) {
    trainer.observer = {&poison, [](void* p, ProgramId id, uint32_t row) { static_cast<Poison*>(p)->before(id, row); },
                        [](void* p, ProgramId id, uint32_t row) { static_cast<Poison*>(p)->after(id, row); }};
  }
  RunResult result;
  for (int s = 0; s < options.steps; ++s) {
    if (options.poison_gradients) {
      for (const Tensor& tensor : plan.carried) {  // the padding between tensors, which is always zero, is not copied
        const std::vector<float> poison(tensor.elements(), std::numeric_limits<float>::quiet_NaN());
        const ArenaAddress gradient = trainer.region(Region::kCarried) + tensor.offset;
        if (!trainer.write(gradient, poison.data(), poison.size() * sizeof(float)).ok())
          throw std::runtime_error("poison");
      }
    }
    StepReport report;
    const Status status = train_step(trainer, source, report);
    if (!status.ok()) throw std::runtime_error("train_step: " + message_of(status));
    result.losses.push_back(report.loss);
    result.gradient_norms.push_back(report.gradient_norm);
  }
  result.state = bytes_at(trainer, trainer.region(Region::kState), plan.state_bytes);
  result.gradients = bytes_at(trainer, trainer.region(Region::kCarried), plan.carried_bytes);
  result.planned_bytes = plan.arena_bytes;
  result.measured_bytes = measure(trainer);
  if (spills_to(plan, SpillLevel::kHost)) {
    result.planned_spill_bytes = plan.spill_bytes;
    if (!measured_bytes(trainer, Region::kSpill, result.measured_spill_bytes).ok())
      throw std::runtime_error("measured_bytes of the host");
  }
  if (!evaluate(trainer, source, 1, result.evaluation).ok()) throw std::runtime_error("evaluate");
  return result;
}

const Workers& lasting_workers() {
  static const Workers kTwo = [] {
    Workers workers;
    if (!linux_port().start_workers(2, &workers).ok()) throw std::runtime_error("no workers");
    return workers;
  }();
  return kTwo;
}

BoundRecipe::BoundRecipe(const Recipe& recipe, const std::string& strategy, double budget_share)
    : recipe_(recipe),
      plan_(plan_run(recipe, strategy, budget_share).planned.plan),
      view_(plan_.view()),
      arena_(view_.arena_bytes + 4096) {
  const Status bound = bind_plan(view_, test::test_backend(), lasting_workers(), arena_.get(), trainer);
  if (!bound.ok()) throw std::runtime_error(std::string("bind: ") + bound.message);
}

const StateTensor& BoundRecipe::state(const std::string& name) const {
  for (const StateTensor& state : view_.state) {
    if (state.name == name) return state;
  }
  throw std::runtime_error("no state tensor " + name);
}

double BoundRecipe::loss() {
  const auto data = open_dataset(recipe_, Split::kTraining);
  EvaluationReport evaluation;
  const Status status = evaluate(trainer, source_of(*data), 1, evaluation);
  if (!status.ok()) throw std::runtime_error(std::string("evaluate: ") + status.message);
  return evaluation.loss;
}

namespace {

void reverse_holding(const Chain& chain, int first, int last, std::vector<Action>& actions) {
  const auto record = [&](int i) {
    actions.push_back(
        {ActionKind::kRecord, i, 0, i % static_cast<int>(chain.links[static_cast<size_t>(i)].tapes.size())});
  };
  const auto backward = [&](int i) { actions.push_back({ActionKind::kBackward, i, 0, -1}); };
  if (last < first + 2) {
    for (int i = first; i <= last; ++i) record(i);
    for (int i = last; i >= first; --i) backward(i);
    return;
  }
  const int held = last - 1, from = held > first + 1 ? first + 1 : first;
  actions.push_back({ActionKind::kAdvance, first, held, -1});
  record(held);
  actions.push_back({ActionKind::kDrop, held, 0, -1});
  record(last);
  backward(last);
  if (from > first) record(first);
  actions.push_back({ActionKind::kAdvance, from, held, -1});
  backward(held);
  actions.push_back({ActionKind::kDrop, held, 0, -1});
  reverse_holding(chain, from, held - 1, actions);
  if (from > first) backward(first);
}

}  // namespace

Schedule schedule_that_holds_tapes(const Chain& chain) {
  Schedule schedule;
  reverse_holding(chain, 0, chain.length() - 1, schedule.actions);
  return schedule;
}

}  // namespace reprise
