// Counts the instructions of each row of a step on a board under QEMU, for
// tests/bench/boards/board_instructions.py. `make run-board` builds and runs it. First prints the
// ticks of 8,000,000 instructions, of 4000 empty measurements, and of kSteps steps together. Then
// prints a line `program row ticks` for each row; these ticks are sums over kSteps steps, too. No
// QEMU board has an instruction counter, but its clock counts instructions, a few dozen for each
// tick.
#include "plan.h"

#include "lib/cpu/cpu_plan_backend.h"
#include "lib/trainer.h"
#include "ports/cortex_m/board.h"
#include "ports/cortex_m/counted_batch.h"
#include "ports/cortex_m/say.h"

namespace {

using namespace reprise;
using generated::kPlan;

constexpr KernelCalls kCalls = kernels_called(kPlan);
constexpr uint64_t kSteps = 4, kOwnStackBytes = 1024;
constexpr ProgramId kPrograms[] = {ProgramId::kMicroFirst, ProgramId::kUpdate};
constexpr uint32_t kMaxRows = 512;
static_assert(kPlan.program(kPrograms[0]).rows.count <= kMaxRows &&
              kPlan.program(kPrograms[1]).rows.count <= kMaxRows);
REPRISE_ARENA unsigned char arena[kPlan.arena_bytes];

struct RowTicks {
  uint64_t start = 0;
  uint64_t ticks[2][kMaxRows] = {};

  static void before(void* state, ProgramId, uint32_t) { static_cast<RowTicks*>(state)->start = board_ticks(); }
  static void after(void* state, ProgramId program, uint32_t row) {
    RowTicks& rows = *static_cast<RowTicks*>(state);
    rows.ticks[program == kPrograms[1]][row] += board_ticks() - rows.start;
  }
};
RowTicks rows;

// Returns the ticks of 2 * turns instructions.
uint64_t ticks_of_turns(uint32_t turns) {
  const uint64_t start = board_ticks();
  __asm volatile("1: subs %0, #1\n bne 1b" : "+l"(turns) : : "cc");
  return board_ticks() - start;
}

Status measure() {
  CpuMachine machine;
  REPRISE_RETURN_IF_ERROR((choose_plan_machine<kCalls, CpuSize::kSmall>(machine)));
  const Backend backend = cpu_backend_of<kCalls, CpuSize::kSmall>(machine);
  const Workers alone = {.stack_bytes = board_stack_bytes() - board_stack_used() - kOwnStackBytes};
  Trainer trainer;
  REPRISE_RETURN_IF_ERROR(bind_proved(kPlan, backend, {.arena = {{arena}, sizeof arena}, .workers = &alone}, trainer));
  RowObserver& observer = trainer.observer;
  observer = {.state = &rows, .before = RowTicks::before, .after = RowTicks::after};

  constexpr uint32_t kTurns = 4'000'000, kEmpty = 4000;
  board_say("ticks of 8000000 instructions "), say(ticks_of_turns(kTurns));
  uint64_t& empty = rows.ticks[0][0];
  for (uint32_t i = 0; i < kEmpty; ++i) {
    void (*volatile before)(void*, ProgramId, uint32_t) = observer.before;
    void (*volatile after)(void*, ProgramId, uint32_t) = observer.after;
    before(&rows, kPrograms[0], 0);
    after(&rows, kPrograms[0], 0);
  }
  board_say("\nticks of 4000 rows of nothing "), say(empty);
  empty = 0;
  board_say("\nsteps "), say(kSteps), board_say("\n");
  uint64_t all = 0;
  for (uint64_t step = 0; step < kSteps; ++step) {
    StepReport report;
    const uint64_t start = board_ticks();
    REPRISE_RETURN_IF_ERROR(train_step(trainer, {nullptr, fill_counted, nullptr}, report));
    all += board_ticks() - start;
  }
  board_say("ticks of steps "), say(all), board_say("\n");
  for (uint32_t program = 0; program < 2; ++program) {
    for (uint32_t row = 0; row < kPlan.program(kPrograms[program]).rows.count; ++row) {
      say(uint64_t{program}), board_say(" "), say(uint64_t{row}), board_say(" "), say(rows.ticks[program][row]),
          board_say("\n");
    }
  }
  return ok_status();
}

}  // namespace

int main() { return say_outcome(measure()); }
