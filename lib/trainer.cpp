// train_step and evaluate: batches in, programs in turn, a report out.
#include "lib/trainer.h"

#include <cmath>
#include <cstddef>

#include "lib/program_run.h"

namespace reprise {

namespace {

// `labelled` grows by the micro-batch's labels.
Status fill_batch(const Trainer& trainer, ProgramId id, const BatchSource& source, uint64_t step, uint32_t micro_batch, uint64_t& labelled) {
  const Program& program = trainer.plan->program(id);
  const Tensor &input = program.slots[program.input].tensor, &labels = program.slots[program.labels].tensor;
  const ArenaAddress base = trainer.region(Region::kProgram);
  const bool has_documents = program.document_start != kNoSlot;
  const ArenaAddress starts = has_documents ? base + program.slots[program.document_start].tensor.offset : ArenaAddress{};
  BatchSink sink(trainer.backend->host, trainer.context, base + input.offset, input.used_bytes(), base + labels.offset, labels.elements(),
                 starts);
  REPRISE_RETURN_IF_ERROR(source.fill(source.state, step, micro_batch, sink));
  labelled += sink.labelled();
  return sink.status();
}

// The labels of the step, as its source promises them.
uint64_t promised_labels(const Trainer& trainer, const BatchSource& source) {
  if (source.labelled != nullptr) return source.labelled(source.state, trainer.step);
  const Program& program = trainer.plan->program(ProgramId::kMicroFirst);
  return trainer.plan->accumulate * program.slots[program.labels].tensor.elements();
}

// Between micro-batches only their number changes: the rest is the kernels'. The loss is divided by labels that have not been seen yet: the
// promise is compared with them before the last micro-batch runs, so before a weight changes.
Status run_step(Trainer& trainer, const BatchSource& source, StepScalars& scalars) {
  scalars.step_labelled = promised_labels(trainer, source);
  if (scalars.step_labelled == 0) return {Code::kUnsupported, "a step must have a label in one of its micro-batches; the step of this number has none", trainer.step + 1};
  uint64_t labelled = 0;
  REPRISE_RETURN_IF_ERROR(write_scalars(trainer, scalars));
  for (uint32_t micro = 0; micro < trainer.plan->accumulate; ++micro) {
    const ProgramId id = micro == 0 ? ProgramId::kMicroFirst : ProgramId::kMicroAdd;
    const ArenaAddress number = trainer.state_tensor(0) + offsetof(StepScalars, micro_batch);
    REPRISE_RETURN_IF_ERROR(fill_batch(trainer, id, source, trainer.step, micro, labelled));
    if (labelled > scalars.step_labelled || (micro + 1 == trainer.plan->accumulate && labelled != scalars.step_labelled)) {
      return {Code::kUnsupported, "the source must give as many labels in a step as it says; in the step of this number it does not", trainer.step + 1};
    }
    REPRISE_RETURN_IF_ERROR(trainer.write(number, &micro, sizeof micro));
    REPRISE_RETURN_IF_ERROR(run_program(trainer, id));
  }
  REPRISE_RETURN_IF_ERROR(run_program(trainer, ProgramId::kUpdate));
  return copy_scalars_out(trainer, scalars);
}

Status run_evaluation(Trainer& trainer, const BatchSource& source, uint64_t batches, StepScalars& scalars) {
  uint64_t labelled = 0;  // the kernels count them
  REPRISE_RETURN_IF_ERROR(write_scalars(trainer, scalars));
  for (uint64_t batch = 0; batch < batches; ++batch) {
    REPRISE_RETURN_IF_ERROR(fill_batch(trainer, ProgramId::kEvaluate, source, batch, 0, labelled));
    REPRISE_RETURN_IF_ERROR(run_program(trainer, ProgramId::kEvaluate));
  }
  return copy_scalars_out(trainer, scalars);
}

}  // namespace

double learning_rate_at(const LearningRate& rate, uint64_t step) {
  constexpr double kPi = 3.141592653589793;
  if (step < rate.warmup_steps) return rate.base * static_cast<double>(step + 1) / rate.warmup_steps;
  switch (rate.kind) {
    case LearningRateKind::kConstant: return rate.base;
    case LearningRateKind::kStep: {
      double value = rate.base;
      for (const uint32_t milestone : rate.milestones) {
        if (milestone <= step) value *= rate.gamma;
      }
      return value;
    }
    case LearningRateKind::kCosine: {
      const double span = rate.steps > rate.warmup_steps ? rate.steps - rate.warmup_steps : 1;
      const double done = static_cast<double>(step - rate.warmup_steps) / span;
      return rate.base * 0.5 * (1 + std::cos(kPi * (done < 1 ? done : 1)));
    }
  }
  return rate.base;
}

Status train_step(Trainer& trainer, const BatchSource& source, StepReport& report) {
  const Plan& plan = *trainer.plan;
  trainer.generated = 0;
  StepScalars scalars = {};
  scalars.seed = plan.seed;
  scalars.step = static_cast<uint32_t>(trainer.step);
  scalars.learning_rate = static_cast<float>(learning_rate_at(plan.learning_rate, trainer.step));
  scalars.clip_factor = 1;
  REPRISE_RETURN_IF_ERROR(settle(trainer, run_step(trainer, source, scalars)));
  REPRISE_RETURN_IF_ERROR(fault_status(scalars.fault));
  report = {scalars.loss_sum, scalars.gradient_norm, scalars.learning_rate};
  if (scalars.skip != 0) {
    return std::isfinite(report.loss) ? Status{Code::kNonFinite, "the gradient is not finite", trainer.step + 1}
                                      : Status{Code::kNonFinite, "the loss is not finite", trainer.step + 1};
  }
  ++trainer.step;
  return ok_status();
}

Status evaluate(Trainer& trainer, const BatchSource& source, uint64_t batches, EvaluationReport& report) {
  if (trainer.plan->program(ProgramId::kEvaluate).rows.count == 0) return {Code::kUnsupported, "the plan has no evaluation program", 0};
  trainer.generated = 0;
  StepScalars scalars = {};
  scalars.seed = trainer.plan->seed;
  REPRISE_RETURN_IF_ERROR(settle(trainer, run_evaluation(trainer, source, batches, scalars)));
  REPRISE_RETURN_IF_ERROR(fault_status(scalars.fault));
  report.labelled = scalars.labelled;
  report.correct = scalars.correct;
  report.loss = scalars.labelled == 0 ? 0 : scalars.loss_sum / static_cast<double>(scalars.labelled);
  return ok_status();
}

}  // namespace reprise
