// bind and the walk over rows.
// Here because everything that can be wrong with a plan is found before the first step.
// It must not know kernels: dispatch does.
#include "lib/trainer.h"

#include <cmath>
#include <cstring>
#include <initializer_list>

#include "lib/check.h"
#include "lib/float_mode.h"
#include "lib/rng.h"

namespace reprise {

namespace {

constexpr uint64_t kCanary = 0xC0DEC0DE5EEDFACEull;

Status check_plan(const Plan& plan, const Backend& backend, Arena arena, const Disk& disk) {
  if (plan.format != kPlanFormat) return {Code::kBadPlan, "the plan's format version is not this library's; plan again", plan.format};
  if (plan.arena_bytes > arena.bytes) return {Code::kArenaTooSmall, "the arena must hold the plan's arena_bytes", plan.arena_bytes};
  if (reinterpret_cast<uintptr_t>(arena.base) % kAlignment != 0) return {Code::kArenaTooSmall, "the arena must be aligned to 256 bytes", 0};
  if (std::strcmp(plan.backend, backend.rules->name) != 0) return {Code::kUnsupported, "the plan was made for another backend", 0};
  if (plan.disk_bytes > 0 && disk.start_write == nullptr) {
    return {Code::kUnsupported, "the plan keeps values on disk: bind needs a Disk of the plan's disk_bytes", plan.disk_bytes};
  }
  if (plan.disk_bytes > disk.bytes) return {Code::kUnsupported, "the disk must hold the plan's disk_bytes", plan.disk_bytes};
  const uint64_t workspace = uint64_t{check_marks(plan)} * sizeof(CheckMark);
  if (workspace > arena.bytes) return {Code::kArenaTooSmall, "the arena must hold the checker's marks", workspace};
  const Verdict verdict = check(plan, reinterpret_cast<CheckMark*>(arena.base), *backend.rules);
  if (!verdict.ok()) return {Code::kBadPlan, fault_text(verdict.fault), uint64_t{verdict.program} << 32 | verdict.row};
  return ok_status();
}

// The host must have somewhere to put a micro-batch.
Status check_staging(const Plan& plan) {
  for (const ProgramId id : {ProgramId::kMicroFirst, ProgramId::kMicroAdd, ProgramId::kEvaluate}) {
    const Program& program = plan.program(id);
    const bool needed = id == ProgramId::kMicroFirst || program.rows.count > 0;
    if (needed && (program.input == kNoSlot || program.labels == kNoSlot)) return {Code::kBadPlan, "a program must name its input and labels", 0};
  }
  if (plan.accumulate > 1 && plan.program(ProgramId::kMicroAdd).rows.count == 0) {
    return {Code::kBadPlan, "several micro-batches need the program micro_add", plan.accumulate};
  }
  return ok_status();
}

void fill_canary(unsigned char* from, const unsigned char* end) {
  for (; from < end; from += sizeof kCanary) std::memcpy(from, &kCanary, sizeof kCanary);
}

// A parameter's own stream: keyed by the seed and its place in the state.
void draw(const StateTensor& state, uint64_t seed, uint32_t stream, float* values) {
  constexpr double kTwoPi = 6.283185307179586;
  const uint64_t count = state.tensor.elements();
  for (uint64_t i = 0; i < count; i += 2) {
    const PhiloxBlock block = philox(seed, uint64_t{stream} << 32, i / 2);
    // 53 random bits each, in (0, 1).
    const double u = (static_cast<double>((uint64_t{block.word[0]} << 32 | block.word[1]) >> 11) + 0.5) * 0x1p-53;
    const double v = (static_cast<double>((uint64_t{block.word[2]} << 32 | block.word[3]) >> 11) + 0.5) * 0x1p-53;
    double pair[2];
    if (state.init == InitKind::kNormal) {  // Box & Muller 1958
      const double radius = std::sqrt(-2.0 * std::log(u));
      pair[0] = radius * std::cos(kTwoPi * v);
      pair[1] = radius * std::sin(kTwoPi * v);
    } else {
      pair[0] = 2 * u - 1;
      pair[1] = 2 * v - 1;
    }
    for (uint64_t k = 0; k < 2 && i + k < count; ++k) values[i + k] = static_cast<float>(pair[k] * static_cast<double>(state.init_scale));
  }
}

Status run_rows(Trainer& trainer, ProgramId id) {
  const Program& program = trainer.plan->program(id);
  for (uint32_t r = 0; r < program.rows.count; ++r) {
    if (trainer.observer.before != nullptr) trainer.observer.before(trainer.observer.state, id, r);
    REPRISE_RETURN_IF_ERROR(dispatch(trainer, program, program.rows[r], false));
    if (trainer.observer.after != nullptr) trainer.observer.after(trainer.observer.state, id, r);
  }
  return ok_status();
}

// Denormals count as zero, for the caller and its workers alike, so that bits depend on neither.
// A row that fails may leave transfers under way, which would write into an arena that its owner takes back.
Status run_program(Trainer& trainer, ProgramId id) {
  const FloatModeScope scope(float_mode() | kFlushDenormals);
  const Status status = run_rows(trainer, id);
  if (!status.ok() && trainer.disk.wait != nullptr) (void)trainer.disk.wait(trainer.disk.state, Disk::kEverything);
  return status;
}

Status fill_batch(const Trainer& trainer, ProgramId id, const BatchSource& source, uint64_t step, uint32_t micro_batch) {
  const Program& program = trainer.plan->program(id);
  unsigned char* base = trainer.region(Region::kProgram);
  return source.fill(source.state, step, micro_batch, base + program.slots[program.input].tensor.offset,
                     reinterpret_cast<int32_t*>(base + program.slots[program.labels].tensor.offset));
}

}  // namespace

Status bind(const Plan& plan, const Backend& backend, const Workers& workers, Arena arena, Trainer& trainer, const Disk& disk) {
  REPRISE_RETURN_IF_ERROR(check_plan(plan, backend, arena, disk));
  REPRISE_RETURN_IF_ERROR(check_staging(plan));
  trainer = Trainer{};
  trainer.plan = &plan;
  trainer.backend = &backend;
  trainer.context.workers = &workers;
  trainer.arena = arena;
  trainer.disk = disk;
  for (const Program& program : plan.programs) {
    for (const Row& row : program.rows) REPRISE_RETURN_IF_ERROR(dispatch(trainer, program, row, true));
  }
  const uint64_t lasting = plan.state_bytes + plan.carried_bytes;
  std::memset(arena.base, 0, lasting);
  fill_canary(arena.base + lasting, arena.base + arena.bytes / sizeof kCanary * sizeof kCanary);
  initialise_state(trainer);
  return ok_status();
}

void initialise_state(const Trainer& trainer) {
  parallel_for(*trainer.context.workers, trainer.plan->state.count, [&trainer](uint32_t i) {
    const StateTensor& state = trainer.plan->state[i];
    if (state.tensor.dtype != DType::kF32) return;
    float* values = static_cast<float*>(trainer.state_tensor(i));
    if (state.init != InitKind::kConstant) {
      draw(state, trainer.plan->seed, i, values);
    } else if (state.kind == StateKind::kParameter || state.kind == StateKind::kBuffer) {
      for (uint64_t e = 0; e < state.tensor.elements(); ++e) values[e] = state.init_scale;
    }
  });
}

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
  StepScalars& scalars = trainer.scalars();
  scalars = StepScalars{};
  scalars.seed = plan.seed;
  scalars.step = static_cast<uint32_t>(trainer.step);
  scalars.micro_batches = plan.accumulate;
  scalars.learning_rate = static_cast<float>(learning_rate_at(plan.learning_rate, trainer.step));
  scalars.clip_factor = 1;
  for (uint32_t micro = 0; micro < plan.accumulate; ++micro) {
    scalars.micro_batch = micro;
    const ProgramId id = micro == 0 ? ProgramId::kMicroFirst : ProgramId::kMicroAdd;
    REPRISE_RETURN_IF_ERROR(fill_batch(trainer, id, source, trainer.step, micro));
    REPRISE_RETURN_IF_ERROR(run_program(trainer, id));
  }
  REPRISE_RETURN_IF_ERROR(run_program(trainer, ProgramId::kUpdate));
  report = {scalars.loss_sum / plan.accumulate, scalars.gradient_norm, scalars.learning_rate};
  if (scalars.skip != 0) {
    return std::isfinite(report.loss) ? Status{Code::kNonFinite, "the gradient is not finite", trainer.step + 1}
                                      : Status{Code::kNonFinite, "the loss is not finite", trainer.step + 1};
  }
  ++trainer.step;
  return ok_status();
}

Status evaluate(Trainer& trainer, const BatchSource& source, uint64_t batches, EvaluationReport& report) {
  if (trainer.plan->program(ProgramId::kEvaluate).rows.count == 0) return {Code::kUnsupported, "the plan has no evaluation program", 0};
  StepScalars& scalars = trainer.scalars();
  scalars = StepScalars{};
  scalars.seed = trainer.plan->seed;
  scalars.micro_batches = 1;
  for (uint64_t batch = 0; batch < batches; ++batch) {
    REPRISE_RETURN_IF_ERROR(fill_batch(trainer, ProgramId::kEvaluate, source, batch, 0));
    REPRISE_RETURN_IF_ERROR(run_program(trainer, ProgramId::kEvaluate));
  }
  report.labelled = scalars.labelled;
  report.correct = scalars.correct;
  report.loss = scalars.labelled == 0 ? 0 : scalars.loss_sum / static_cast<double>(scalars.labelled);
  return ok_status();
}

uint64_t measured_bytes(const Trainer& trainer) {
  const uint64_t lasting = trainer.plan->state_bytes + trainer.plan->carried_bytes;
  uint64_t end = trainer.arena.bytes / sizeof kCanary * sizeof kCanary;
  while (end > lasting && std::memcmp(trainer.arena.base + end - sizeof kCanary, &kCanary, sizeof kCanary) == 0) end -= sizeof kCanary;
  return align_up(end);
}

}  // namespace reprise
