// Trains two steps with the State in flash. Reads the content of the flash from the host's file
// `flash`, if it exists (one bank or both), and writes it back at the end. Also prints the stack
// bytes of a save and of a load. A test uses this program to move a training between machines; the
// result must not change.
#include "lib/trainer.h"
#include "ports/cortex_m/board.h"
#include "ports/cortex_m/counted_batch.h"
#include "ports/cortex_m/say.h"
#include "tests/ports/boards/cortex_m/files.h"
#include "tests/ports/boards/cortex_m/plan_core.h"
#include "tests/ports/boards/cortex_m/ram_flash.h"

namespace {

using namespace reprise;
using generated::kPlan;

constexpr uint64_t kSteps = 2;
REPRISE_ARENA unsigned char arena[kPlan.arena_bytes];
RamFlash nor;

int fail(const Status& status) {
  board_say(status.message), board_say(" ("), say(status.detail), board_say(")\n");
  return 1;
}

// Returns the bytes of stack that `call` uses. Writes a pattern below the stack pointer before the
// call, and counts the bytes that the call has overwritten.
template <typename Call>
[[gnu::noinline]] uint32_t stack_of(const Call& call) {
  constexpr uint32_t kWords = 1024, kPattern = 0xa5c35a3c;
  volatile uint32_t* top;
  __asm volatile("mov %0, sp" : "=r"(top));
  for (uint32_t i = 1; i <= kWords; ++i) *(top - i) = kPattern;
  call();
  uint32_t deepest = kWords;
  while (deepest > 0 && *(top - deepest) == kPattern) --deepest;
  return 4 * deepest;
}

}  // namespace

int main() {
  nor.clear();
  (void)read_host_file("flash", nor.words, RamFlash::kBytes);
  CpuMachine machine;
  if (const Status status = choose_machine_of_plan(machine); !status.ok()) return fail(status);
  const Backend backend = plan_backend(machine);
  const Workers alone = {.stack_bytes = kPlan.worker_stack_bytes};
  Trainer trainer;
  if (const Status bound = bind_proved(kPlan, backend, {.arena = {{arena}, sizeof arena}, .workers = &alone}, trainer);
      !bound.ok())
    return fail(bound);
  const Flash flash = nor.flash();
  bool found = false;
  Status status;
  const uint32_t load_stack = stack_of([&] { status = load_from_flash(trainer, flash, found); });
  if (!status.ok()) return fail(status);
  board_say("begins behind step "), say(trainer.step);
  uint32_t save_stack = 0;
  for (uint64_t step = 0; step < kSteps; ++step) {
    StepReport report;
    if (status = train_step(trainer, {nullptr, fill_counted, nullptr}, report); !status.ok()) return fail(status);
    save_stack = stack_of([&] { status = save_to_flash(trainer, flash); });
    if (!status.ok()) return fail(status);
  }
  board_say(", ends behind step "), say(trainer.step);
  board_say("; stack of a save "), say(save_stack), board_say(", of a load "), say(load_stack), board_say("\n");
  write_host_file("flash", nor.words, RamFlash::kBytes);
  return 0;
}
