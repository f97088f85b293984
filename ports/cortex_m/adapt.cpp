// The program of `make adapt-board`: a net that a host has trained goes on from flash with samples of the board's own, and is judged before and after.
// Here as a whole application, of which a user takes other samples: those of a sensor in place of FlashSamples, and a driver in place of Nor.
#include <string.h>

#include "plan.h"

#include "lib/cpu/cpu_plan_backend.h"
#include "lib/trainer.h"
#include "ports/cortex_m/board.h"
#include "ports/cortex_m/flash_banks.h"
#include "ports/cortex_m/say.h"

// What was flashed beside the program: a bank of the host's training (`reprise bank`), and samples to learn from and to judge by, files of kind `idx`.
__asm(R"(
  .section .rodata.flashed, "a"
  .balign 8
host_bank:    .incbin "bank"
host_bank_end:
train_images: .incbin "train-images-idx3-ubyte"
train_labels: .incbin "train-labels-idx1-ubyte"
test_images:  .incbin "t10k-images-idx3-ubyte"
test_labels:  .incbin "t10k-labels-idx1-ubyte"
  .text
)");
extern "C" const unsigned char host_bank[], host_bank_end[], train_images[], train_labels[], test_images[], test_labels[];

namespace {

using namespace reprise;
using generated::kPlan;

constexpr KernelCalls kCalls = kernels_called(kPlan);
constexpr const Program& kEvaluation = kPlan.program(ProgramId::kEvaluate);
constexpr uint64_t kBatch = kEvaluation.slots[kEvaluation.labels].tensor.elements();
constexpr uint64_t kPasses = 2;            // over the samples to learn from
constexpr uint64_t kOwnStackBytes = 1024;  // of the calls between main and a kernel, beside what main has used
constexpr uint32_t kPixels = 28 * 28;
constexpr float kMean = 0.286f, kDeviation = 0.353f;  // of the recipe
REPRISE_ARENA unsigned char arena[kPlan.arena_bytes];

// Two files of kind `idx` as they lie in memory: what they hold stands behind headers of 16 and 8 bytes, and how many of it in their second word.
struct FlashSamples {
  const unsigned char *images, *labels;

  uint64_t count() const { return uint64_t{labels[4]} << 24 | uint64_t{labels[5]} << 16 | uint64_t{labels[6]} << 8 | labels[7]; }
  BatchSource source() const { return {const_cast<FlashSamples*>(this), fill, nullptr}; }

 private:
  // A step goes on where the one before it ended, and the samples come round again; a batch that is judged is a step of that number.
  static Status fill(void* state, uint64_t step, uint32_t, BatchSink& sink) {
    const FlashSamples& samples = *static_cast<const FlashSamples*>(state);
    for (uint64_t n = step * sink.label_count(); sink.label_count() > 0; ++n) {
      const uint64_t sample = n % samples.count();
      const unsigned char* const bytes = samples.images + 16 + sample * kPixels;
      for (uint32_t i = 0; i < kPixels; ++i) {
        const float pixel = (static_cast<float>(bytes[i]) / 255.0f - kMean) / kDeviation;
        sink.add(&pixel, sizeof pixel, nullptr, 0);
      }
      const int32_t label = samples.labels[8 + sample];
      sink.add(nullptr, 0, &label, 1);
    }
    return ok_status();
  }
};

// The flash that holds snapshots. No board of QEMU's has one that a program can write, so RAM behaves as one, which the host has written.
struct Nor {
  static constexpr uint32_t kSector = 4096, kBytes = 64 * kSector;
  alignas(8) unsigned char bytes[kBytes];

  void be_flashed() {
    memset(bytes, 0xff, sizeof bytes);
    memcpy(bytes, host_bank, static_cast<size_t>(host_bank_end - host_bank));
  }
  Flash flash() { return {.state = this, .erase = erase, .program = program, .base = bytes, .sector_bytes = kSector, .bytes = kBytes}; }

 private:
  static Status erase(void* state, uint32_t at) {
    memset(static_cast<Nor*>(state)->bytes + at, 0xff, kSector);
    return ok_status();
  }
  static Status program(void* state, uint32_t at, const void* words, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; ++i) static_cast<Nor*>(state)->bytes[at + i] &= static_cast<const unsigned char*>(words)[i];
    return ok_status();
  }
};
Nor nor;

// Evaluation normalises by the running averages of batch-norm, which the steps between have moved, too.
Status judge(const char* when, Trainer& trainer, const FlashSamples& samples) {
  EvaluationReport report;
  REPRISE_RETURN_IF_ERROR(evaluate(trainer, samples.source(), samples.count() / kBatch, report));
  board_say(when), board_say(": correct "), say(report.correct), board_say(" of "), say(report.labelled);
  board_say(", loss "), say_decimals(report.loss), board_say("\n");
  return ok_status();
}

// From the start of the board, or from a start after a cut of the power: nothing is left but what flash holds.
Status begin(const Backend& backend, const Workers& workers, Trainer& trainer) {
  REPRISE_RETURN_IF_ERROR(bind_proved(kPlan, backend, {.arena = {{arena}, sizeof arena}, .workers = &workers}, trainer));
  bool found = false;
  REPRISE_RETURN_IF_ERROR(load_from_flash(trainer, nor.flash(), found));
  return found ? ok_status() : Status{Code::kInputOutput, "the flash holds no whole bank", 0};
}

Status adapt() {
  const FlashSamples learned = {train_images, train_labels}, judged = {test_images, test_labels};
  CpuMachine machine;
  REPRISE_RETURN_IF_ERROR((choose_plan_machine<kCalls, CpuSize::kSmall>(machine)));
  const Backend backend = cpu_backend_of<kCalls, CpuSize::kSmall>(machine);
  const Workers alone = {.stack_bytes = board_stack_bytes() - board_stack_used() - kOwnStackBytes};
  Trainer trainer;
  nor.be_flashed();
  REPRISE_RETURN_IF_ERROR(begin(backend, alone, trainer));
  const uint64_t steps = kPasses * learned.count() / kBatch;
  REPRISE_RETURN_IF_ERROR(judge("before", trainer, judged));
  uint64_t ticks = 0;
  for (uint64_t step = 0; step < steps; ++step) {
    StepReport report;
    const uint64_t start = board_ticks();
    REPRISE_RETURN_IF_ERROR(train_step(trainer, learned.source(), report));
    ticks += board_ticks() - start;
    board_say("step "), say(trainer.step), board_say(" loss "), say_decimals(report.loss), board_say("\n");
  }
  uint64_t measured = 0;
  REPRISE_RETURN_IF_ERROR(measured_bytes(trainer, Region::kProgram, measured));
  REPRISE_RETURN_IF_ERROR(save_to_flash(trainer, nor.flash()));
  REPRISE_RETURN_IF_ERROR(begin(backend, alone, trainer));
  REPRISE_RETURN_IF_ERROR(judge("after", trainer, judged));
  board_say("arena planned "), say(kPlan.arena_bytes), board_say(" measured "), say(kPlan.state_bytes + kPlan.carried_bytes + measured);
  board_say("\nstack used "), say(board_stack_used()), board_say(" of "), say(board_stack_bytes());
  board_say("\nticks of a step "), say(ticks / steps), board_say("\n");
  return ok_status();
}

}  // namespace

int main() { return say_outcome(adapt()); }
