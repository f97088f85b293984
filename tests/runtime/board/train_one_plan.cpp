// What a board without an operating system would run: one plan, which the compiler has proved, with the kernels that it calls and no others.
// Three steps on made-up data; prints each loss, and the kernels by name.
#include <stdio.h>

#include "plan.h"

#include "lib/cpu/cpu_plan_backend.h"
#include "lib/trainer.h"

namespace {

using namespace reprise;
using generated::kPlan;

constexpr KernelCalls kCalls = kernels_called(kPlan);
alignas(kAlignment) unsigned char memory[kPlan.arena_bytes];

// Images and labels from a counter, the same at every step.
Status fill(void*, uint64_t, uint32_t, BatchSink& sink) {
  uint32_t state = 1;
  for (uint64_t pixels = sink.input_bytes() / sizeof(float); pixels > 0; --pixels) {
    state = state * 1664525u + 1013904223u;
    const float pixel = static_cast<float>(state >> 8) * 0x1p-24f;
    sink.add(&pixel, sizeof pixel, nullptr, 0);
  }
  for (int32_t label = 0; sink.label_count() > 0; ++label) sink.add(nullptr, 0, &label, 1);
  return ok_status();
}

int fail(const Status& status) {
  fprintf(stderr, "%s (%llu)\n", status.message, static_cast<unsigned long long>(status.detail));
  return 1;
}

}  // namespace

int main() {
  CpuMachine machine;
  if (const Status status = choose_cpu_machine(machine, GemmTileChoice::kBaseline, VectorLevel::kBaseline); !status.ok()) return fail(status);
  const Backend backend = cpu_backend_of<kCalls>(machine);
  const Workers alone = {.stack_bytes = kPlan.worker_stack_bytes};
  Trainer trainer;
  const Status bound = bind_proved(kPlan, backend, {.arena = {{memory}, sizeof memory}, .workers = &alone}, trainer);
  if (!bound.ok()) return fail(bound);
  for (uint32_t k = 0; k < kKernelCount; ++k) {
    if (kCalls.called[k][0] || kCalls.called[k][1]) printf("calls %s\n", kOps[k].name);
  }
  for (int step = 0; step < 3; ++step) {
    StepReport report;
    if (const Status status = train_step(trainer, {nullptr, fill, nullptr}, report); !status.ok()) return fail(status);
    printf("loss %.6f\n", report.loss);
  }
  return 0;
}
