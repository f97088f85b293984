// Trains the compiled-in plan on synthetic data, and prints the kernel set and each step's loss
// with all bits. It uses only lib and a port, no files, zlib or JSON, so that it can be built for
// another processor.
#include <cstdio>
#include <cstdlib>

#include "lib/reprise.h"
#include "plan.h"
#include "ports/linux/linux_port.h"

namespace {

using namespace reprise;

// Fills a batch with small whole numbers, which are equal on every processor. They are also equal
// in every step, so that the loss falls.
Status fill_batch(void* state, uint64_t, uint32_t, BatchSink& sink) {
  const Program& program = static_cast<const Plan*>(state)->program(ProgramId::kMicroFirst);
  const bool images = program.slots[program.input].tensor.dtype == DType::kF32;
  uint32_t random = 12345;
  const auto next = [&random](uint32_t below) { return (random = random * 1664525u + 1013904223u) / 65536 % below; };
  while (sink.input_bytes() > 0) {
    const uint32_t number = next(images ? 256 : 31);
    const float pixel = static_cast<float>(number) / 64 - 2;
    sink.add(images ? static_cast<const void*>(&pixel) : &number, sizeof number, nullptr, 0);
  }
  while (sink.label_count() > 0) {
    const int32_t label = static_cast<int32_t>(next(4));
    sink.add(nullptr, 0, &label, 1);
  }
  return ok_status();
}

// The marks that check() needs (lib/check.h). bind refuses a plan that needs more.
CheckMark marks[1 << 16];

int fail(const Status& status) {
  std::fprintf(stderr, "%s (%llu)\n", status.message, static_cast<unsigned long long>(status.detail));
  return 1;
}

}  // namespace

// Usage: train_plan STEPS WORKERS
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Plan& plan = generated::kPlan;
  Workers workers;
  Arena arena;
  Backend backend;
  Trainer trainer;
  if (const Status status = linux_port().open_backend(plan.backend, &backend); !status.ok()) return fail(status);
  if (const Status status = linux_port().start_workers(static_cast<uint32_t>(std::atoi(argv[2])), &workers);
      !status.ok())
    return fail(status);
  if (const Status status = linux_port().acquire_arena(plan.arena_bytes + 4096, &arena); !status.ok())
    return fail(status);
  const Resources resources = {.arena = arena, .workers = &workers, .workspace = {marks, sizeof marks}};
  if (const Status status = bind(plan, backend, resources, trainer); !status.ok()) return fail(status);
  std::printf("kernels %s\n", backend.kernel_set);
  const BatchSource source = {const_cast<Plan*>(&plan), fill_batch};
  for (int step = 0; step < std::atoi(argv[1]); ++step) {
    StepReport report;
    if (const Status status = train_step(trainer, source, report); !status.ok()) return fail(status);
    std::printf("loss %.9f %a\n", report.loss, report.loss);
  }
  uint64_t measured = 0;
  if (const Status status = measured_bytes(trainer, measured); !status.ok()) return fail(status);
  linux_port().stop_workers(&workers);
  if (measured == plan.arena_bytes) return 0;
  std::fprintf(stderr, "planned %llu bytes, measured %llu\n", static_cast<unsigned long long>(plan.arena_bytes),
               static_cast<unsigned long long>(measured));
  return 1;
}
