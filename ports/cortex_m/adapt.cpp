// The program of `make adapt-board`. A net that a host has trained is loaded from flash and trained
// further with the board's own samples. It is evaluated before and after. This is a complete
// application: a user replaces FlashSamples by the samples of a sensor, and Nor by a flash driver.
#include <string.h>

#include "plan.h"

#include "lib/cpu/cpu_plan_backend.h"
#include "lib/trainer.h"
#include "ports/cortex_m/board.h"
#include "ports/cortex_m/flash_banks.h"
#include "ports/cortex_m/say.h"

// Data that is flashed with the program: a bank of the host's training (`reprise bank`), and the
// samples for training and evaluation, as files of the kind `idx`.
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
extern "C" const unsigned char host_bank[], host_bank_end[], train_images[], train_labels[], test_images[],
    test_labels[];

namespace {

using namespace reprise;
using generated::kPlan;

constexpr KernelCalls kCalls = kernels_called(kPlan);
constexpr const Program& kEvaluation = kPlan.program(ProgramId::kEvaluate);
constexpr uint64_t kBatch = kEvaluation.slots[kEvaluation.labels].tensor.elements();
constexpr uint64_t kPasses = 2;  // Passes over the training samples.
// Stack bytes for the calls between main and a kernel, in addition to the bytes that main has used.
constexpr uint64_t kOwnStackBytes = 1024;
constexpr uint32_t kPixels = 28 * 28;
constexpr float kMean = 0.286f, kDeviation = 0.353f;  // The recipe's normalisation.
REPRISE_ARENA unsigned char arena[kPlan.arena_bytes];

// Two files of the kind `idx` in memory. The images follow a header of 16 bytes, the labels a
// header of 8. The second word of a header is the number of samples.
struct FlashSamples {
  const unsigned char *images, *labels;

  uint64_t count() const {
    return uint64_t{labels[4]} << 24 | uint64_t{labels[5]} << 16 | uint64_t{labels[6]} << 8 | labels[7];
  }
  BatchSource source() const { return {const_cast<FlashSamples*>(this), fill, nullptr}; }

 private:
  // Fills a batch. A step continues after the samples of the step before it, and the samples
  // repeat. In an evaluation, `step` is the number of the batch.
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

// The flash with the snapshots. QEMU's boards have no flash that a program can write, so this is
// RAM with the content that the host would have written.
struct Nor {
  static constexpr uint32_t kSector = 4096, kBytes = 64 * kSector;
  alignas(8) unsigned char bytes[kBytes];

  void be_flashed() {
    memset(bytes, 0xff, sizeof bytes);
    memcpy(bytes, host_bank, static_cast<size_t>(host_bank_end - host_bank));
  }
  Flash flash() {
    return {.state = this, .erase = erase, .program = program, .base = bytes, .sector_bytes = kSector, .bytes = kBytes};
  }

 private:
  static Status erase(void* state, uint32_t at) {
    memset(static_cast<Nor*>(state)->bytes + at, 0xff, kSector);
    return ok_status();
  }
  static Status program(void* state, uint32_t at, const void* words, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; ++i)
      static_cast<Nor*>(state)->bytes[at + i] &= static_cast<const unsigned char*>(words)[i];
    return ok_status();
  }
};
Nor nor;

// Evaluates the net with batch-norm's running averages, which the steps of the training have
// changed.
Status judge(const char* when, Trainer& trainer, const FlashSamples& samples) {
  EvaluationReport report;
  REPRISE_RETURN_IF_ERROR(evaluate(trainer, samples.source(), samples.count() / kBatch, report));
  board_say(when), board_say(": correct "), say(report.correct), board_say(" of "), say(report.labelled);
  board_say(", loss "), say_decimals(report.loss), board_say("\n");
  return ok_status();
}

// Starts a training as after a reset or a power cut, when only the content of flash is left.
Status begin(const Backend& backend, const Workers& workers, Trainer& trainer) {
  REPRISE_RETURN_IF_ERROR(
      bind_proved(kPlan, backend, {.arena = {{arena}, sizeof arena}, .workers = &workers}, trainer));
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
  board_say("arena planned "), say(kPlan.arena_bytes), board_say(" measured "),
      say(kPlan.state_bytes + kPlan.carried_bytes + measured);
  board_say("\nstack used "), say(board_stack_used()), board_say(" of "), say(board_stack_bytes());
  board_say("\nticks of a step "), say(ticks / steps), board_say("\n");
  return ok_status();
}

}  // namespace

int main() { return say_outcome(adapt()); }
