// train_step and evaluate: fill the slots with batches, run the programs in order, and report the
// results.
#include "lib/trainer.h"

#include <cmath>
#include <cstddef>

#include "lib/portable_math.h"
#include "lib/program_run.h"

namespace reprise {

namespace {

// The divisors of a step's loss: the number of its labels, and their total weight.
struct StepCounts {
  uint64_t labelled = 0;
  double weight = 0;
};

// Fills the program's slots from the source. Adds to counts.labelled the number of labels or pairs
// that the source gave (BatchSink::labelled). Adds to counts.weight the number of labels in the
// conversations of pairs (BatchSink::tokens).
Status fill_batch(const Trainer& trainer, ProgramId id, const BatchSource& source, uint64_t step, uint32_t micro_batch,
                  StepCounts& counts) {
  const Program& program = trainer.plan->program(id);
  const Tensor &input = program.slots[program.input].tensor, &labels = program.slots[program.labels].tensor;
  const ArenaAddress base = trainer.region(Region::kProgram);
  const bool has_documents = program.document_start != kNoSlot;
  const ArenaAddress starts =
      has_documents ? base + program.slots[program.document_start].tensor.offset : ArenaAddress{};
  const uint64_t start_count = has_documents ? program.slots[program.document_start].tensor.elements() : 0;
  const bool has_pairs = program.pairs != kNoSlot;
  const ArenaAddress pairs = has_pairs ? base + program.slots[program.pairs].tensor.offset : ArenaAddress{};
  const bool has_types = program.token_types != kNoSlot;
  const Tensor types = has_types ? program.slots[program.token_types].tensor : Tensor{};
  BatchSink sink(trainer.backend->host, trainer.context, base + input.offset, input.used_bytes(), base + labels.offset,
                 labels.elements(), starts, start_count, pairs,
                 has_pairs ? program.slots[program.pairs].tensor.shape[0] : 0, labels.dtype, base + types.offset,
                 has_types ? types.used_bytes() : 0);
  REPRISE_RETURN_IF_ERROR(source.fill(source.state, step, micro_batch, sink));
  counts.labelled += sink.labelled();
  counts.weight += static_cast<double>(sink.tokens());
  return sink.status();
}

// Returns the counts that the source states for the step before it gives any batch.
StepCounts promised_counts(const Trainer& trainer, const BatchSource& source) {
  const Program& program = trainer.plan->program(ProgramId::kMicroFirst);
  const uint64_t all = micro_batches_of_step(*trainer.plan) * program.slots[program.labels].tensor.elements();
  const uint64_t labelled = source.labelled != nullptr ? source.labelled(source.state, trainer.step) : all;
  return {labelled,
          source.weight != nullptr ? source.weight(source.state, trainer.step) : static_cast<double>(labelled)};
}

// Checks the number of labels or pairs that the source has given so far: at most the promised
// number, and after the last micro-batch exactly the promised number. After the last micro-batch it
// also compares the weights, if pairs are judged and the source states a weight.
Status check_counts(const Trainer& trainer, const BatchSource& source, const StepCounts& promised,
                    const StepCounts& counts, bool is_last) {
  const bool shows_weight = pair_count(*trainer.plan) > 0 && source.weight != nullptr;
  const bool has_others = counts.labelled != promised.labelled || (shows_weight && counts.weight != promised.weight);
  if (counts.labelled <= promised.labelled && !(is_last && has_others)) return ok_status();
  return {Code::kUnsupported,
          "the source must give as many labels in a step as it says; in the step of this number it does not",
          trainer.step + 1};
}

// The results of one micro-batch of a rank.
struct RankReport {
  StepScalars scalars;
  StepCounts counts;
};

// Adds the sums of one micro-batch, which started at zero, to `to`; keeps the first fault.
void add_report(const StepScalars& from, StepScalars& to) {
  to.loss_sum += from.loss_sum;
  to.labelled += from.labelled;
  to.correct += from.correct;
  for (uint32_t i = 0; i < 2; ++i) {
    to.rewards[i] += from.rewards[i];
    to.judged[i] += from.judged[i];
  }
  to.skip |= from.skip;
  if (to.fault.code == DataFault::kNone) to.fault = from.fault;
}

// Adds the results of the ranks' micro-batches in the order of the ranks; every rank does so. If
// one rank has found a fault, all ranks skip the update. Sets the sums in State to zero for the
// next micro-batch. After the last micro-batch, sets them to the sums of the complete step.
Status add_ranks(Trainer& trainer, bool is_last, StepScalars& scalars, StepCounts& counts) {
  RankReport own = {.scalars = {}, .counts = counts}, all[kMaxRanks];
  REPRISE_RETURN_IF_ERROR(copy_scalars_out(trainer, own.scalars));
  REPRISE_RETURN_IF_ERROR(trainer.backend->host.synchronise(trainer.context));
  REPRISE_RETURN_IF_ERROR(trainer.peers.start_gather(trainer.peers.state, &own, all, sizeof own));
  REPRISE_RETURN_IF_ERROR(trainer.peers.wait(trainer.peers.state, all));
  counts = {};
  for (uint32_t r = 0; r < trainer.peers.count; ++r) {
    const StepScalars& report = all[r].scalars;
    const bool is_wrong = report.fault.code != DataFault::kNone || !std::isfinite(report.loss_sum);
    if (is_wrong && trainer.found_by == kUnknownRank) trainer.found_by = r;
    add_report(report, scalars);
    counts.labelled += all[r].counts.labelled;
    counts.weight += all[r].counts.weight;
  }
  StepScalars next = scalars;
  // At the end of a step State has the number of the step's last micro-batch, as in a single
  // process.
  next.micro_batch = static_cast<uint32_t>(micro_batches_of_step(*trainer.plan)) - 1;
  if (!is_last) next.loss_sum = 0, next.labelled = next.correct = 0;
  for (uint32_t i = 0; i < 2 && !is_last; ++i) next.rewards[i] = 0, next.judged[i] = 0;
  return write_scalars(trainer, next);
}

// Runs the micro-batches of a step and the update. With one rank, the host changes only the number
// of the micro-batch between two micro-batches; the kernels keep the other scalars. With several
// ranks, add_ranks() also writes the sums.
// The source states the step's number of labels or pairs before it gives them; the loss is divided
// by this number. Before any weight changes, check_counts() compares the number with the labels or
// pairs that the source has given. Rank r of R runs the step's micro-batches r, r + R, r + 2 R, ...
Status run_step(Trainer& trainer, const BatchSource& source, StepScalars& scalars) {
  const StepCounts promised = promised_counts(trainer, source);
  scalars.step_labelled = promised.labelled;
  scalars.step_weight = promised.weight;
  if (scalars.step_labelled == 0)
    return {Code::kUnsupported,
            "a step must have a label in one of its micro-batches; the step of this number has none", trainer.step + 1};
  StepCounts counts, own;
  const bool is_alone = trainer.plan->ranks == 1;
  REPRISE_RETURN_IF_ERROR(write_scalars(trainer, scalars));
  for (uint32_t turn = 0; turn < trainer.plan->accumulate; ++turn) {
    const ProgramId id = program_of_micro_batch(*trainer.plan, turn);
    const ArenaAddress number = trainer.state_tensor(0) + offsetof(StepScalars, micro_batch);
    const uint32_t micro = turn * trainer.plan->ranks + trainer.peers.rank;
    const bool is_last = turn + 1 == trainer.plan->accumulate;
    REPRISE_RETURN_IF_ERROR(fill_batch(trainer, id, source, trainer.step, micro, own));
    if (is_alone) REPRISE_RETURN_IF_ERROR(check_counts(trainer, source, promised, counts = own, is_last));
    REPRISE_RETURN_IF_ERROR(trainer.write(number, &micro, sizeof micro));
    REPRISE_RETURN_IF_ERROR(run_program(trainer, id));
    if (is_alone) continue;
    counts = own;
    REPRISE_RETURN_IF_ERROR(add_ranks(trainer, is_last, scalars, counts));
    REPRISE_RETURN_IF_ERROR(check_counts(trainer, source, promised, counts, is_last));
  }
  REPRISE_RETURN_IF_ERROR(run_program(trainer, ProgramId::kUpdate));
  return copy_scalars_out(trainer, scalars);
}

// Evaluates the micro-batches [first, end).
Status run_evaluation(Trainer& trainer, const BatchSource& source, uint64_t first, uint64_t end, StepScalars& scalars) {
  StepCounts counts;  // not used: in an evaluation the kernels count the labels
  REPRISE_RETURN_IF_ERROR(write_scalars(trainer, scalars));
  for (uint64_t batch = first; batch < end; ++batch) {
    REPRISE_RETURN_IF_ERROR(fill_batch(trainer, ProgramId::kEvaluate, source, batch, 0, counts));
    REPRISE_RETURN_IF_ERROR(run_program(trainer, ProgramId::kEvaluate));
  }
  return copy_scalars_out(trainer, scalars);
}

Status settled_evaluation(Trainer& trainer, const BatchSource& source, uint64_t first, uint64_t end,
                          StepScalars& scalars) {
  if (trainer.plan->program(ProgramId::kEvaluate).rows.count == 0)
    return {Code::kUnsupported, "the plan has no evaluation program", 0};
  trainer.generated = 0;
  scalars = {};
  scalars.seed = trainer.plan->seed;
  REPRISE_RETURN_IF_ERROR(settle(trainer, run_evaluation(trainer, source, first, end, scalars)));
  return fault_status(scalars.fault);
}

JudgedAnswers answers_of(const StepScalars& scalars, uint64_t pairs) {
  JudgedAnswers answers;
  for (uint32_t i = 0; i < 2; ++i)
    answers.rewards[i] = scalars.judged[i] == 0 ? 0 : scalars.rewards[i] / static_cast<double>(scalars.judged[i]);
  answers.accuracy = pairs == 0 ? 0 : static_cast<double>(scalars.correct) / static_cast<double>(pairs);
  return answers;
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
      return rate.base * 0.5 * (1 + portable_cosine(kPi * (done < 1 ? done : 1)));
    }
  }
  return rate.base;
}

Status train_step(Trainer& trainer, const BatchSource& source, StepReport& report) {
  const Plan& plan = *trainer.plan;
  if (plan.learning_rate.kind == LearningRateKind::kCosine && plan.learning_rate.steps == 0) {
    return {Code::kBadPlan,
            "the cosine ends by passes over the data: give \"steps\", or set learning_rate.steps in a copy of the plan",
            0};
  }
  trainer.generated = 0;
  trainer.found_by = kUnknownRank;
  StepScalars scalars = {};
  scalars.seed = plan.seed;
  scalars.step = static_cast<uint32_t>(trainer.step);
  scalars.learning_rate = static_cast<float>(learning_rate_at(plan.learning_rate, trainer.step));
  scalars.clip_factor = 1;
  REPRISE_RETURN_IF_ERROR(settle(trainer, run_step(trainer, source, scalars)));
  const auto found = [&trainer](Status status) {
    status.rank = trainer.found_by;
    return status;
  };
  REPRISE_RETURN_IF_ERROR(found(fault_status(scalars.fault)));
  report = {scalars.loss_sum, scalars.gradient_norm, scalars.learning_rate, answers_of(scalars, scalars.step_labelled)};
  if (scalars.skip != 0) {
    return found({Code::kNonFinite,
                  std::isfinite(report.loss) ? "the gradient is not finite" : "the loss is not finite",
                  trainer.step + 1});
  }
  ++trainer.step;
  return ok_status();
}

Status evaluate(Trainer& trainer, const BatchSource& source, uint64_t batches, EvaluationReport& report) {
  StepScalars scalars;
  REPRISE_RETURN_IF_ERROR(settled_evaluation(trainer, source, 0, batches, scalars));
  report.labelled = scalars.labelled;
  report.correct = scalars.correct;
  report.loss = scalars.labelled == 0 ? 0 : scalars.loss_sum / static_cast<double>(scalars.labelled);
  if (scalars.step_weight > 0) report.loss += scalars.weighted_loss / scalars.step_weight;
  report.answers = answers_of(scalars, scalars.labelled);
  return ok_status();
}

uint64_t pair_count(const Plan& plan) {
  const Program& program = plan.program(ProgramId::kEvaluate);
  return program.pairs == kNoSlot ? 0 : program.slots[program.pairs].tensor.shape[0];
}

Status log_probabilities(Trainer& trainer, const BatchSource& source, uint64_t batch, double (*answers)[2]) {
  const Program& program = trainer.plan->program(ProgramId::kEvaluate);
  if (program.output == kNoSlot) return {Code::kUnsupported, "the plan judges no pairs", 0};
  StepScalars scalars;
  REPRISE_RETURN_IF_ERROR(settled_evaluation(trainer, source, batch, batch + 1, scalars));
  const Tensor& output = program.slots[program.output].tensor;
  return trainer.read(answers, trainer.region(Region::kProgram) + output.offset, output.used_bytes());
}

}  // namespace reprise
