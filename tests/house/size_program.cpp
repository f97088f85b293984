// The smallest program around a plan: an arena of the linker's, one worker, a step over images of zeros. `make size` says what it links
// of the library; README shows the same for a person's own data.
#include "lib/reprise.h"
#include "plan.h"

using namespace reprise;

alignas(256) static unsigned char memory[generated::kPlan.arena_bytes];

static Status fill(void*, uint64_t, uint32_t, BatchSink& sink) {
  static const float image[32 * 32 * 3] = {};
  for (const int32_t label = 3; sink.label_count() > 0;) sink.add(image, sizeof image, &label, 1);
  return ok_status();
}

int main() {
  const Workers alone = {.stack_bytes = 1 << 20};
  CpuMachine machine;
  Status status = choose_cpu_machine(machine);
  const Backend cpu = cpu_backend(machine);
  Trainer trainer;
  if (status.ok()) {
    status = bind(generated::kPlan, cpu, {.arena = {memory, sizeof memory}, .workers = &alone, .workspace = {memory, sizeof memory}},
        trainer);
  }
  StepReport report;
  if (status.ok()) status = train_step(trainer, {nullptr, fill}, report);
  return status.ok() && report.loss > 0 ? 0 : 1;
}
