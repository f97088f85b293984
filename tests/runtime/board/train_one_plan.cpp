// A program for a board without an operating system. It contains one plan, which the compiler has
// proved, and only those kernels are linked that the plan calls. It runs three steps on synthetic
// data, and prints the names of the kernels and each loss.
#include <stdio.h>

#include "plan.h"

#include "lib/cpu/cpu_plan_backend.h"
#include "lib/trainer.h"
#include "ports/cortex_m/counted_batch.h"

namespace {

using namespace reprise;
using generated::kPlan;

constexpr KernelCalls kCalls = kernels_called(kPlan);
alignas(kAlignment) unsigned char memory[kPlan.arena_bytes];

int fail(const Status& status) {
  fprintf(stderr, "%s (%llu)\n", status.message, static_cast<unsigned long long>(status.detail));
  return 1;
}

}  // namespace

int main() {
  CpuMachine machine;
  if (const Status status = choose_cpu_machine(machine, GemmTileChoice::kBaseline, kCommonLevel); !status.ok())
    return fail(status);
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
    if (const Status status = train_step(trainer, {nullptr, fill_counted, nullptr}, report); !status.ok())
      return fail(status);
    printf("loss %.6f\n", report.loss);
  }
  return 0;
}
