// Checks that a board refuses bad inputs: a misaligned or too small arena, a plan of another
// backend or format, NaN in samples, and labels that are not classes. Each refusal must print one
// line, return a code to the application, and change no weight. Without these checks a board would
// train on bad data unnoticed.
#include <string.h>

#include "lib/trainer.h"
#include "ports/cortex_m/board.h"
#include "ports/cortex_m/counted_batch.h"
#include "ports/cortex_m/say.h"
#include "tests/ports/boards/cortex_m/plan_core.h"

namespace {

using namespace reprise;
using generated::kPlan;

REPRISE_ARENA unsigned char arena[kPlan.arena_bytes + kAlignment];
unsigned char before[kPlan.state_bytes];

void show(const char* what, Code wanted, const Status& status) {
  board_say(what), board_say(": "), board_say(status.ok() ? "taken" : status.message), board_say("\n");
  if (status.code != wanted) board_say("another code than the header says\n"), board_end(1);
}

// Fills a micro-batch whose last pixel is NaN.
Status fill_broken_pixel(void*, uint64_t, uint32_t, BatchSink& sink) {
  const float good = 0.5f, broken = __builtin_nanf("");
  while (sink.input_bytes() > sizeof good) sink.add(&good, sizeof good, nullptr, 0);
  sink.add(&broken, sizeof broken, nullptr, 0);
  return fill_counted(nullptr, 0, 0, sink);
}
Status fill_broken_label(void*, uint64_t, uint32_t, BatchSink& sink) {
  const int32_t beyond = 7;
  sink.add(nullptr, 0, &beyond, 1);
  return fill_counted(nullptr, 0, 0, sink);
}

// True if no parameter or moment has changed. The running averages of a batch-norm may have
// changed, but must be finite.
bool weights_are_as_before() {
  for (const StateTensor& state : kPlan.state) {
    const uint64_t at = state.tensor.offset;
    const bool is_average = state.kind == StateKind::kBuffer && state.tensor.dtype == DType::kF32;
    for (uint64_t i = 0; is_average && i < state.tensor.elements(); ++i) {
      if (!__builtin_isfinite(reinterpret_cast<const float*>(arena + at)[i])) return false;
    }
    if (state.kind != StateKind::kParameter && state.kind != StateKind::kOptimizer) continue;
    if (memcmp(arena + at, before + at, state.tensor.bytes) != 0) return false;
  }
  return true;
}

void refuse_batch(const char* what, Code wanted, Trainer& trainer,
                  Status (*fill)(void*, uint64_t, uint32_t, BatchSink&)) {
  StepReport report;
  memcpy(before, arena, sizeof before);
  const uint64_t step = trainer.step;
  show(what, wanted, train_step(trainer, {nullptr, fill, nullptr}, report));
  if (!weights_are_as_before() || trainer.step != step) board_say("weights have changed\n"), board_end(1);
}

}  // namespace

int main() {
  CpuMachine machine;
  if (!choose_machine_of_plan(machine).ok()) return 1;
  const Backend backend = plan_backend(machine);
  const Workers alone = {.stack_bytes = kPlan.worker_stack_bytes};
  Trainer trainer;
  const auto bind_in = [&](const Plan& plan, unsigned char* at, uint64_t bytes) {
    return bind_proved(plan, backend, {.arena = {{at}, bytes}, .workers = &alone}, trainer);
  };
  Plan other = kPlan, older = kPlan;
  other.backend = "cuda";
  older.format = kPlanFormat - 1;
  show("arena not aligned", Code::kArenaTooSmall, bind_in(kPlan, arena + 8, kPlan.arena_bytes));
  show("arena too small", Code::kArenaTooSmall, bind_in(kPlan, arena, kPlan.arena_bytes - 1));
  show("plan of a card", Code::kUnsupported, bind_in(other, arena, sizeof arena));
  show("plan of another format", Code::kBadPlan, bind_in(older, arena, sizeof arena));
  show("all as it should be", Code::kOk, bind_in(kPlan, arena, sizeof arena));
  StepReport report;
  show("a step", Code::kOk, train_step(trainer, {nullptr, fill_counted, nullptr}, report));
  refuse_batch("a pixel that is no number", Code::kNonFinite, trainer, fill_broken_pixel);
  refuse_batch("a label that is no class", Code::kIndexOutOfRange, trainer, fill_broken_label);
  show("a step", Code::kOk, train_step(trainer, {nullptr, fill_counted, nullptr}, report));
  return 0;
}
