// Cuts the power of a board at 1,000 different instruction counts. A tiny net trains and saves
// after each step. A timer interrupt simulates the cut: it scrambles all memory except the flash,
// leaves the flash operation in progress incomplete, and resets the processor. The restarted
// program must find either the State that was saved last or the State that was being saved. The
// training must end with the bits of an uninterrupted run. A test on the host cannot stop a program
// at any instruction, so this program runs on a real or emulated processor. One run of QEMU makes
// all cuts.
#include "lib/trainer.h"
#include "ports/cortex_m/board.h"
#include "ports/cortex_m/counted_batch.h"
#include "ports/cortex_m/say.h"
#include "tests/ports/boards/cortex_m/plan_core.h"
#include "tests/ports/boards/cortex_m/ram_flash.h"

extern "C" {
extern uint32_t board_data_begin[], board_data_end[], board_bss_begin[], board_bss_end[], board_stack_begin[],
    board_stack_end[];
void board_reset();
void power_goes();
// A separate stack for the interrupt handler, because the handler scrambles the program's stack.
__attribute__((section(".arena"), aligned(8), used)) unsigned char power_stack[1024];
}

namespace {

using namespace reprise;
using generated::kPlan;

constexpr uint64_t kSteps = 4;
constexpr uint32_t kCuts = 1000, kStarted = 0x74726964;
constexpr uint32_t kTicksOf = 40;  // instructions per tick of the timer
// Every kCutsOfReset-th cut resets the processor, for which QEMU needs 30 ms. The other cuts save
// time: they jump to the reset handler.
constexpr uint32_t kCutsOfReset = 50;

REPRISE_ARENA uint32_t arena[kPlan.arena_bytes / 4];

// Memory that a power cut preserves: the flash, and the test's own records.
struct Kept {
  RamFlash nor;
  uint32_t whole[RamFlash::kWords];  // the flash after an uninterrupted run
  uint32_t started, cut, saved;  // kStarted after set-up; number of the cut; last step whose save has returned
  bool resumes;
  uint32_t ticks;                    // ticks of the timer in an uninterrupted run
  // `torn`: number of cuts during a flash operation. The other three count restarts. `none`: the
  // flash contained no State. `older`: it contained the State of step `saved`. `newer`: it
  // contained the State of step `saved` + 1.
  uint32_t torn, none, older, newer;
  uint32_t vectors[32] __attribute__((aligned(128)));
};
__attribute__((section(".arena"))) Kept kept;

volatile uint32_t& control(uint32_t address) { return *reinterpret_cast<volatile uint32_t*>(address); }
constexpr uint32_t kVectors = 0xe000ed08, kReset = 0xe000ed0c, kLazyFloats = 0xe000ef34;
constexpr uint32_t kTimer = 0xe000e010, kReload = 0xe000e014, kLeft = 0xe000e018, kMaxTicks = 0xffffff;

void start_timer(uint32_t ticks) {
  control(kTimer) = 0;
  control(kReload) = ticks;
  control(kLeft) = 0;
  control(kTimer) = 7;
}

[[noreturn]] void fail(const char* words, uint64_t number) {
  board_say("cut "), say(kept.cut), board_say(": "), board_say(words), board_say(" ("), say(number), board_say(")\n");
  board_end(1);
}
void require(const Status& status) {
  if (!status.ok()) fail(status.message, status.detail);
}

// Trains from the State in the flash to the last step, and saves after each step.
void train() {
  CpuMachine machine;
  require(choose_machine_of_plan(machine));
  const Backend backend = plan_backend(machine);
  const Workers alone = {.stack_bytes = kPlan.worker_stack_bytes};
  Trainer trainer;
  require(bind_proved(kPlan, backend,
                      {.arena = {{reinterpret_cast<unsigned char*>(arena)}, sizeof arena}, .workers = &alone},
                      trainer));
  bool found = false;
  require(load_from_flash(trainer, kept.nor.flash(), found));
  if (kept.resumes) {
    if (trainer.step < kept.saved || trainer.step > kept.saved + 1 || found != (trainer.step > 0))
      fail("another step than was saved", trainer.step);
    ++(!found ? kept.none : trainer.step == kept.saved ? kept.older : kept.newer);
  }
  while (trainer.step < kSteps) {
    StepReport report;
    require(train_step(trainer, {nullptr, fill_counted, nullptr}, report));
    require(save_to_flash(trainer, kept.nor.flash()));
    kept.saved = static_cast<uint32_t>(trainer.step);
  }
}

// Returns the valid bank with the highest sequence number; null if neither is valid.
const unsigned char* newest(const uint32_t* flash) {
  const unsigned char* best = nullptr;
  uint64_t sequence = 0;
  for (uint32_t b = 0; b < 2; ++b) {
    const unsigned char* const bank = reinterpret_cast<const unsigned char*>(flash) + b * RamFlash::kBank;
    const BankHeader* const seal = whole_bank(bank, RamFlash::kBank);
    if (seal != nullptr && seal->sequence >= sequence) best = bank, sequence = seal->sequence;
  }
  return best;
}

void require_same_end() {
  const unsigned char *is = newest(kept.nor.words), *wanted = newest(kept.whole);
  const uint64_t bytes = sizeof(BankHeader) + payload_bytes(kPlan);
  for (uint64_t i = sizeof(BankHeader); i < bytes; ++i) {
    if (is[i] != wanted[i]) fail("other bits than those of a run that nobody cut", i);
  }
  if (reinterpret_cast<const BankHeader*>(is)->step != kSteps)
    fail("another step than the last", reinterpret_cast<const BankHeader*>(is)->step);
}

void measure_whole_run() {
  kept = {};
  kept.nor.clear();
  start_timer(kMaxTicks);
  train();
  kept.ticks = kMaxTicks - control(kLeft);
  for (uint32_t i = 0; i < RamFlash::kWords; ++i) kept.whole[i] = kept.nor.words[i];
  kept.started = kStarted;
}

// Trains from an empty flash until the timer cuts the power: after the fraction kept.cut / kCuts of
// the ticks of an uninterrupted run.
[[noreturn]] void run_into_cut() {
  kept.nor.clear();
  kept.resumes = false;
  kept.saved = 0;
  start_timer(1 + static_cast<uint32_t>(uint64_t{kept.ticks - 2} * kept.cut / kCuts));
  train();
  fail("the run has ended before its cut", kept.ticks);
}

void take_vectors() {
  const volatile uint32_t* const of_board = reinterpret_cast<const volatile uint32_t*>(control(kVectors));
  for (uint32_t i = 0; i < 16; ++i) kept.vectors[i] = of_board[i];
  kept.vectors[15] = reinterpret_cast<uint32_t>(power_goes);
  control(kVectors) = reinterpret_cast<uint32_t>(kept.vectors);
}

}  // namespace

extern "C" {

[[noreturn]] __attribute__((used)) void cut_power() {
  uint32_t random = kept.cut * 2654435761u + 12345;
  if (kept.nor.work != RamFlash::kNone) ++kept.torn;
  kept.nor.tear(random >> 13);
  kept.nor.work = RamFlash::kNone;
  uint32_t* const memory[][2] = {{board_data_begin, board_data_end},
                                 {board_bss_begin, board_bss_end},
                                 {board_stack_begin, board_stack_end},
                                 {arena, arena + kPlan.arena_bytes / 4}};
  for (const auto& [begin, end] : memory) {
    for (volatile uint32_t* word = begin; word < end; ++word) *word = random = random * 1664525u + 1013904223u;
  }
  kept.resumes = true;
  control(kTimer) = 0;
  control(kVectors) = 0;
  control(kLazyFloats) = control(kLazyFloats) & ~1u;  // disables lazy saving of floating-point registers to the stack
  if (kept.cut % kCutsOfReset == 0) {
    control(kReset) = 0x05fa0004;
    for (;;) __asm volatile("dsb" ::: "memory");
  }
  // Returns from the interrupt to board_reset(). The processor pops R0 to R3, R12, LR, PC and xPSR
  // from this frame, of which only PC and xPSR matter.
  uint32_t* const frame = reinterpret_cast<uint32_t*>(reinterpret_cast<uint32_t>(board_stack_end) - 32);
  frame[6] = reinterpret_cast<uint32_t>(board_reset);
  frame[7] = 1u << 24;
  __asm volatile("msr msp, %0\n bx %1" ::"r"(frame), "r"(0xfffffff9) : "memory");
  __builtin_unreachable();
}

__attribute__((naked)) void power_goes() { __asm volatile("ldr r0, =power_stack + 1024\n mov sp, r0\n b cut_power"); }

}  // extern "C"

int main() {
  if (kept.started != kStarted) {
    measure_whole_run();
  } else {
    control(kTimer) = 0;
    train();
    require_same_end();
    ++kept.cut;
  }
  if (kept.cut < kCuts) {
    take_vectors();
    run_into_cut();
  }
  board_say("cuts "), say(kept.cut), board_say(" of a run of "), say(uint64_t{kept.ticks} * kTicksOf),
      board_say(" instructions");
  board_say("; in the flash's work "), say(kept.torn), board_say("; found nothing "), say(kept.none),
      board_say(", the older "), say(kept.older), board_say(", the newer "), say(kept.newer), board_say("\n");
  return 0;
}
