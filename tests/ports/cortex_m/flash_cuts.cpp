// A board whose power is cut after 1,000 different counts of instructions: a tiny net trains, and saves after each step; a timer's interrupt is the cut.
// All memory but the flash is scrambled then, what the flash was doing is torn, and the processor is reset. The program that starts again must find the
// last State that was saved, or the one that was being saved, and must end with the bits of a run that nobody cut.
// Here because only a processor can be stopped at any instruction. One run of QEMU makes all cuts.
#include "lib/trainer.h"
#include "ports/cortex_m/board.h"
#include "ports/cortex_m/counted_batch.h"
#include "ports/cortex_m/say.h"
#include "tests/ports/cortex_m/plan_core.h"
#include "tests/ports/cortex_m/ram_flash.h"

extern "C" {
extern uint32_t board_data_begin[], board_data_end[], board_bss_begin[], board_bss_end[], board_stack_begin[], board_stack_end[];
void board_reset();
void power_goes();
// The interrupt's own stack, for it scrambles the program's.
__attribute__((section(".arena"), aligned(8), used)) unsigned char power_stack[1024];
}

namespace {

using namespace reprise;
using generated::kPlan;

constexpr uint64_t kSteps = 4;
constexpr uint32_t kCuts = 1000, kStarted = 0x74726964;
constexpr uint32_t kTicksOf = 40;  // instructions in a tick of the timer
// After so many cuts one resets the processor itself, which takes QEMU 30 ms; the others begin anew where a reset does.
constexpr uint32_t kCutsOfReset = 50;

REPRISE_ARENA uint32_t arena[kPlan.arena_bytes / 4];

// What stays without power: the flash, and beside it the test's own notes.
struct Kept {
  RamFlash nor;
  uint32_t whole[RamFlash::kWords];  // the flash after a run that nobody cut
  uint32_t started, cut, saved;      // kStarted; the number of the cut; the last step whose save has returned
  bool resumes;
  uint32_t ticks;                    // of the whole run
  uint32_t torn, none, older, newer;  // cuts in the middle of the flash's work; what was found after a cut: nothing, `saved`, or the one behind
  uint32_t vectors[32] __attribute__((aligned(128)));
};
__attribute__((section(".arena"))) Kept kept;

volatile uint32_t& control(uint32_t address) { return *reinterpret_cast<volatile uint32_t*>(address); }
constexpr uint32_t kVectors = 0xe000ed08, kReset = 0xe000ed0c, kLazyFloats = 0xe000ef34;
constexpr uint32_t kTimer = 0xe000e010, kReload = 0xe000e014, kLeft = 0xe000e018, kMostTicks = 0xffffff;

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

// From wherever the flash says to the last step.
void train() {
  CpuMachine machine;
  require(choose_machine_of_plan(machine));
  const Backend backend = plan_backend(machine);
  const Workers alone = {.stack_bytes = kPlan.worker_stack_bytes};
  Trainer trainer;
  require(bind_proved(kPlan, backend, {.arena = {{reinterpret_cast<unsigned char*>(arena)}, sizeof arena}, .workers = &alone}, trainer));
  bool found = false;
  require(load_from_flash(trainer, kept.nor.flash(), found));
  if (kept.resumes) {
    if (trainer.step < kept.saved || trainer.step > kept.saved + 1 || found != (trainer.step > 0)) fail("another step than was saved", trainer.step);
    ++(!found ? kept.none : trainer.step == kept.saved ? kept.older : kept.newer);
  }
  while (trainer.step < kSteps) {
    StepReport report;
    require(train_step(trainer, {nullptr, fill_counted, nullptr}, report));
    require(save_to_flash(trainer, kept.nor.flash()));
    kept.saved = static_cast<uint32_t>(trainer.step);
  }
}

// The newest bank, whichever of the two it is.
const unsigned char* newest(const uint32_t* flash) {
  const unsigned char* best = nullptr;
  uint64_t sequence = 0;
  for (uint32_t b = 0; b < 2; ++b) {
    const unsigned char* const bank = reinterpret_cast<const unsigned char*>(flash) + b * RamFlash::kBank;
    const BankSeal* const seal = whole_bank(bank, RamFlash::kBank);
    if (seal != nullptr && seal->sequence >= sequence) best = bank, sequence = seal->sequence;
  }
  return best;
}

void require_same_end() {
  const unsigned char *is = newest(kept.nor.words), *wanted = newest(kept.whole);
  const uint64_t bytes = sizeof(BankSeal) + payload_bytes(kPlan);
  for (uint64_t i = sizeof(BankSeal); i < bytes; ++i) {
    if (is[i] != wanted[i]) fail("other bits than those of a run that nobody cut", i);
  }
  if (reinterpret_cast<const BankSeal*>(is)->step != kSteps) fail("another step than the last", reinterpret_cast<const BankSeal*>(is)->step);
}

void measure_whole_run() {
  kept = {};
  kept.nor.clear();
  start_timer(kMostTicks);
  train();
  kept.ticks = kMostTicks - control(kLeft);
  for (uint32_t i = 0; i < RamFlash::kWords; ++i) kept.whole[i] = kept.nor.words[i];
  kept.started = kStarted;
}

// The cut of this number comes when so much of the run is done.
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
  uint32_t* const memory[][2] = {
      {board_data_begin, board_data_end}, {board_bss_begin, board_bss_end}, {board_stack_begin, board_stack_end}, {arena, arena + kPlan.arena_bytes / 4}};
  for (const auto& [begin, end] : memory) {
    for (volatile uint32_t* word = begin; word < end; ++word) *word = random = random * 1664525u + 1013904223u;
  }
  kept.resumes = true;
  control(kTimer) = 0;
  control(kVectors) = 0;
  control(kLazyFloats) = control(kLazyFloats) & ~1u;  // no registers are to be saved where the stack was
  if (kept.cut % kCutsOfReset == 0) {
    control(kReset) = 0x05fa0004;
    for (;;) __asm volatile("dsb" ::: "memory");
  }
  // An interrupt that ends in board_reset(): what the processor takes back are R0 to R3, R12, LR, PC and xPSR.
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
  board_say("cuts "), say(kept.cut), board_say(" of a run of "), say(uint64_t{kept.ticks} * kTicksOf), board_say(" instructions");
  board_say("; in the flash's work "), say(kept.torn), board_say("; found nothing "), say(kept.none), board_say(", the older "), say(kept.older), board_say(", the newer "), say(kept.newer), board_say("\n");
  return 0;
}
