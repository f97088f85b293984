// The program of `make run-board`. It trains the plan that the compiler has proved, in an arena
// that the linker has placed, and writes the measured loss, ticks and bytes. It is the smallest
// complete program for a board. An application replaces fill_counted() by its sensor.
#include "plan.h"

#include "lib/cpu/cpu_plan_backend.h"
#include "lib/trainer.h"
#include "ports/cortex_m/board.h"
#include "ports/cortex_m/counted_batch.h"
#include "ports/cortex_m/say.h"

namespace {

using namespace reprise;
using generated::kPlan;

constexpr CpuSize kSize = core_of(kPlan);
constexpr KernelCalls kCalls = kernels_called(kPlan);
constexpr uint64_t kSteps = 3;
// Stack bytes for the calls between main and a kernel, in addition to the bytes that main has used.
constexpr uint64_t kOwnStackBytes = 1024;
REPRISE_ARENA unsigned char arena[kPlan.arena_bytes];

}  // namespace

int main() {
  CpuMachine machine;
  if (const Status status = choose_plan_machine<kCalls, kSize>(machine); !status.ok()) return say_outcome(status);
  const Backend backend = cpu_backend_of<kCalls, kSize>(machine);
  const uint64_t own_stack = board_stack_used();
  const Workers alone = {.stack_bytes = board_stack_bytes() - own_stack - kOwnStackBytes};
  Trainer trainer;
  if (const Status bound = bind_proved(kPlan, backend, {.arena = {{arena}, sizeof arena}, .workers = &alone}, trainer);
      !bound.ok())
    return say_outcome(bound);
  for (uint64_t step = 1; step <= kSteps; ++step) {
    StepReport report;
    const uint64_t before = board_ticks();
    if (const Status status = train_step(trainer, {nullptr, fill_counted, nullptr}, report); !status.ok())
      return say_outcome(status);
    const uint64_t ticks = board_ticks() - before;
    board_say("step "), say(step), board_say(" loss "), say_decimals(report.loss), board_say(" ticks "), say(ticks),
        board_say("\n");
  }
  uint64_t measured = 0;
  if (const Status status = measured_bytes(trainer, Region::kProgram, measured); !status.ok())
    return say_outcome(status);
  board_say("arena planned "), say(kPlan.arena_bytes), board_say(" measured "),
      say(kPlan.state_bytes + kPlan.carried_bytes + measured);
  board_say("\nstack used "), say(board_stack_used()), board_say(" of "), say(board_stack_bytes());
  board_say(", below the program's own "), say(own_stack), board_say(" planned "), say(kPlan.worker_stack_bytes),
      board_say(" measured "), say(board_stack_used() - own_stack), board_say("\n");
  return 0;
}
