// bind and the walk over rows.
// Everything that can be wrong with a plan is found before the first step.
#include "lib/trainer.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <initializer_list>

#include "lib/carriers.h"
#include "lib/check.h"
#include "lib/float_mode.h"
#include "lib/rng.h"

namespace reprise {

namespace {

constexpr uint32_t kCanary = 0x5EEDFACE;

uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

Status check_plan(const Plan& plan, const Backend& backend, const Resources& given) {
  if (plan.format != kPlanFormat) return {Code::kBadPlan, "the plan's format version is not this library's; plan again", plan.format};
  if (plan.arena_bytes > given.arena.bytes) return {Code::kArenaTooSmall, "the arena must hold the plan's arena_bytes", plan.arena_bytes};
  if (reinterpret_cast<uintptr_t>(given.arena.base.for_kernels) % kAlignment != 0) {
    return {Code::kArenaTooSmall, "the arena must be aligned to 256 bytes", 0};
  }
  if (given.workers == nullptr) return {Code::kUnsupported, "bind needs Workers; empty ones are the calling thread alone", 0};
  if (std::strcmp(plan.backend, backend.rules->name) != 0) return {Code::kUnsupported, "the plan was made for another backend", 0};
  if (given.workers->stack_bytes < plan.worker_stack_bytes) {
    return {Code::kUnsupported, "every worker must have the plan's worker_stack_bytes of stack, and say so", plan.worker_stack_bytes};
  }
  REPRISE_RETURN_IF_ERROR(check_carriers(plan, given));
  const uint64_t marks_bytes = uint64_t{check_marks(plan)} * sizeof(CheckMark);
  const bool aligned = reinterpret_cast<uintptr_t>(given.workspace.base) % alignof(CheckMark) == 0;
  if (marks_bytes > given.workspace.bytes || !aligned) {
    return {Code::kArenaTooSmall, "the workspace must hold the checker's marks, aligned as they are", marks_bytes};
  }
  const Verdict verdict = check(plan, static_cast<CheckMark*>(given.workspace.base), *backend.rules);
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
  const Program& generates = plan.program(ProgramId::kGenerate);
  if (generates.rows.count > 0 && (generates.input == kNoSlot || generates.document_start == kNoSlot || generates.output == kNoSlot)) {
    return {Code::kBadPlan, "a program that generates must name its input, document_start and output", 0};
  }
  if (plan.accumulate > 1 && plan.program(ProgramId::kMicroAdd).rows.count == 0) {
    return {Code::kBadPlan, "several micro-batches need the program micro_add", plan.accumulate};
  }
  return ok_status();
}

// `count` values of a parameter from element `first` on, which is even: its own stream, keyed by the seed and its place in the state.
void draw(const StateTensor& state, uint64_t seed, uint32_t stream, uint64_t first, uint64_t count, float* values) {
  constexpr double kTwoPi = 6.283185307179586;
  if (state.init == InitKind::kConstant) {
    for (uint64_t i = 0; i < count; ++i) values[i] = state.init_scale;
    return;
  }
  for (uint64_t i = 0; i < count; i += 2) {
    const PhiloxBlock block = philox(seed, uint64_t{stream} << 32, (first + i) / 2);
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

// Through a piece on the stack, which the workers draw together. A bf16 parameter gets the same numbers, rounded.
Status draw_parameter(const Trainer& trainer, uint32_t index) {
  constexpr uint64_t kPiece = 8192, kShare = 512;  // floats at once, and of one task
  float piece[kPiece];
  Bf16 rounded[kPiece];
  const StateTensor& state = trainer.plan->state[index];
  const uint64_t elements = state.tensor.elements();
  for (uint64_t first = 0; first < elements; first += kPiece) {
    const uint64_t count = smaller(kPiece, elements - first);
    parallel_for(*trainer.context.workers, static_cast<uint32_t>((count + kShare - 1) / kShare), [&](uint32_t share) {
      const uint64_t begin = share * kShare;
      draw(state, trainer.plan->seed, index, first + begin, smaller(kShare, count - begin), piece + begin);
    });
    const DType dtype = state.tensor.dtype;
    for (uint64_t i = 0; i < count && dtype == DType::kBf16; ++i) rounded[i] = piece[i];
    const void* from = dtype == DType::kBf16 ? static_cast<const void*>(rounded) : piece;
    REPRISE_RETURN_IF_ERROR(trainer.write(trainer.state_tensor(index) + stored_bytes(dtype, first), from, stored_bytes(dtype, count)));
  }
  return ok_status();
}

Status fill_words(const Trainer& trainer, ArenaAddress to, uint32_t word, uint64_t bytes) {
  return trainer.backend->host.fill(trainer.context, to, word, bytes / sizeof word * sizeof word);
}

// Kernels that take a group of tensors at once rely on zeros between them.
Status clear_padding(const Trainer& trainer, ArenaAddress region, const Tensor& tensor) {
  const uint64_t used = tensor.used_bytes() / sizeof kCanary * sizeof kCanary;
  return fill_words(trainer, region + (tensor.offset + used), 0, tensor.bytes - used);
}

// All is canary but State's tensors, which are cleared, and the padding of Carried's; then the state gets its values.
Status initialise_arena(const Trainer& trainer) {
  REPRISE_RETURN_IF_ERROR(fill_words(trainer, trainer.arena.base, kCanary, trainer.arena.bytes));
  for (const StateTensor& state : trainer.plan->state) {
    REPRISE_RETURN_IF_ERROR(fill_words(trainer, trainer.arena.base + state.tensor.offset, 0, state.tensor.bytes));
  }
  for (const Tensor& tensor : trainer.plan->carried) {
    REPRISE_RETURN_IF_ERROR(clear_padding(trainer, trainer.region(Region::kCarried), tensor));
  }
  for (uint32_t i = 0; i < trainer.plan->state.count; ++i) {
    const StateTensor& state = trainer.plan->state[i];
    if (state.init == InitKind::kTable) {
      const float* numbers = trainer.plan->numbers.data + state.first_number;
      REPRISE_RETURN_IF_ERROR(trainer.write(trainer.state_tensor(i), numbers, state.tensor.used_bytes()));
      continue;
    }
    const bool is_bf16 = state.tensor.dtype == DType::kBf16;
    if (!is_bf16 && state.tensor.dtype != DType::kF32) continue;
    if (is_bf16 || state.init != InitKind::kConstant) {
      REPRISE_RETURN_IF_ERROR(draw_parameter(trainer, i));
    } else if (state.kind == StateKind::kParameter || state.kind == StateKind::kBuffer) {
      const uint64_t bytes = state.tensor.elements() * sizeof(float);
      REPRISE_RETURN_IF_ERROR(fill_words(trainer, trainer.state_tensor(i), std::bit_cast<uint32_t>(state.init_scale), bytes));
    }
  }
  return ok_status();
}

Status run_row(const Trainer& trainer, const Program& program, const Row& row) {
  REPRISE_RETURN_IF_ERROR(dispatch(trainer, program, row, false));
  return trainer.eager ? trainer.backend->host.synchronise(trainer.context) : ok_status();
}

Status run_rows(const Trainer& trainer, ProgramId id) {
  const Program& program = trainer.plan->program(id);
  for (uint32_t r = 0; r < program.rows.count; ++r) {
    if (trainer.observer.before != nullptr) trainer.observer.before(trainer.observer.state, id, r);
    if (Status status = run_row(trainer, program, program.rows[r]); !status.ok()) {
      status.row = uint64_t{static_cast<uint32_t>(id)} << 32 | r;
      return status;
    }
    if (trainer.observer.after != nullptr) trainer.observer.after(trainer.observer.state, id, r);
  }
  return ok_status();
}

// Denormals count as zero, for the caller and its workers alike, so that bits depend on neither.
Status run_program(const Trainer& trainer, ProgramId id) {
  void* recording = trainer.recordings[static_cast<uint32_t>(id)];
  const bool is_observed = trainer.observer.before != nullptr || trainer.observer.after != nullptr;
  if (recording != nullptr && !is_observed) return trainer.backend->recorder.replay(trainer.context, recording);
  const FloatModeScope scope(float_mode() | kFlushDenormals);
  return run_rows(trainer, id);
}

// A plan whose transfers are the host's, such as those with a disk, is not recorded.
Status record_programs(Trainer& trainer) {
  const Recorder& recorder = trainer.backend->recorder;
  if (recorder.begin == nullptr || trainer.eager || carriers_need_host(*trainer.plan)) return ok_status();
  for (uint32_t p = 0; p < kProgramCount; ++p) {
    if (trainer.plan->programs[p].rows.count == 0) continue;
    REPRISE_RETURN_IF_ERROR(recorder.begin(trainer.context));
    const Status rows = run_rows(trainer, static_cast<ProgramId>(p));
    const Status ended = recorder.end(trainer.context, &trainer.recordings[p]);
    REPRISE_RETURN_IF_ERROR(rows);
    REPRISE_RETURN_IF_ERROR(ended);
  }
  return ok_status();
}

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

Status write_scalars(const Trainer& trainer, const StepScalars& scalars) {
  return trainer.write(trainer.state_tensor(0), &scalars, sizeof scalars);
}

// Queued: `scalars` are read when the step has settled.
Status copy_scalars_out(const Trainer& trainer, StepScalars& scalars) {
  return trainer.backend->host.copy_out(trainer.context, &scalars, trainer.state_tensor(0), sizeof scalars);
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

// What the kernels found wrong in the data.
Status fault_status(const StepFault& fault) {
  switch (fault.code) {
    case DataFault::kNone: break;
    case DataFault::kToken: return {Code::kIndexOutOfRange, "a token must be at least 0 and less than the vocabulary size", fault.position};
    case DataFault::kLabel: return {Code::kIndexOutOfRange, "a label must be in [0, classes), or -100 for none", fault.position};
    case DataFault::kDocument:
      return {Code::kIndexOutOfRange, "a document must start at or before each of its positions, and not before 0",
              fault.position};
  }
  return ok_status();
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

// The tokens, then padding; each says where the sequence starts, as seen from row 0.
Status stage_tokens(const Trainer& trainer, const Program& program, const int32_t* tokens, uint32_t count, uint64_t position) {
  constexpr uint32_t kPiece = 64;
  const Tensor &input = program.slots[program.input].tensor, &starts = program.slots[program.document_start].tensor;
  const ArenaAddress base = trainer.region(Region::kProgram);
  for (uint32_t first = 0; first < input.elements(); first += kPiece) {
    int32_t token[kPiece], start[kPiece];
    const uint64_t piece = smaller(kPiece, input.elements() - first);
    for (uint32_t i = 0; i < piece; ++i) {
      const uint32_t t = first + i;
      token[i] = t < count ? tokens[t] : 0;
      start[i] = t < count ? -static_cast<int32_t>(position) : static_cast<int32_t>(t + 1);
    }
    const uint64_t at = first * sizeof(int32_t), bytes = piece * sizeof(int32_t);
    REPRISE_RETURN_IF_ERROR(trainer.write(base + (input.offset + at), token, bytes));
    REPRISE_RETURN_IF_ERROR(trainer.write(base + (starts.offset + at), start, bytes));
  }
  return ok_status();
}

// One row of the output, as f32.
Status read_logits(const Trainer& trainer, const Tensor& output, uint32_t row, float* logits) {
  constexpr uint64_t kPiece = 1024;
  const uint64_t V = output.last_dimension();
  const ArenaAddress from = trainer.region(Region::kProgram) + (output.offset + stored_bytes(output.dtype, row * V));
  if (output.dtype != DType::kBf16) return trainer.read(logits, from, V * sizeof(float));
  for (uint64_t first = 0; first < V; first += kPiece) {
    Bf16 piece[kPiece];
    const uint64_t count = smaller(kPiece, V - first);
    REPRISE_RETURN_IF_ERROR(trainer.read(piece, from + first * sizeof(Bf16), count * sizeof(Bf16)));
    for (uint64_t i = 0; i < count; ++i) logits[first + i] = piece[i];
  }
  return ok_status();
}

Status run_generation(const Trainer& trainer, const int32_t* tokens, uint32_t count, uint64_t position, StepScalars& scalars) {
  REPRISE_RETURN_IF_ERROR(write_scalars(trainer, scalars));
  REPRISE_RETURN_IF_ERROR(stage_tokens(trainer, trainer.plan->program(ProgramId::kGenerate), tokens, count, position));
  REPRISE_RETURN_IF_ERROR(run_program(trainer, ProgramId::kGenerate));
  return copy_scalars_out(trainer, scalars);
}

// Waits for all that is queued, and where something failed for what is carried too: nothing may be under way in an arena that its owner
// may take back.
Status settle(const Trainer& trainer, Status status) {
  const Status done = trainer.backend->host.synchronise(trainer.context);
  if (status.ok()) status = done;
  if (!status.ok()) settle_carriers(trainer);
  return status;
}

// The highest place of so many bytes where the canary is gone, as a distance rounded up to kAlignment; 0 where it is whole.
Status find_written(const Trainer& trainer, ArenaAddress from, uint64_t bytes, uint64_t& written) {
  uint32_t piece[1024];
  written = bytes / sizeof kCanary * sizeof kCanary;
  while (written > 0) {
    const uint64_t size = smaller(sizeof piece, written);
    REPRISE_RETURN_IF_ERROR(trainer.read(piece, from + (written - size), size));
    uint64_t words = size / sizeof kCanary;
    while (words > 0 && piece[words - 1] == kCanary) --words;
    written -= size - words * sizeof kCanary;
    if (words > 0) break;
  }
  written = align_up(written);
  return ok_status();
}

}  // namespace

Status bind(const Plan& plan, const Backend& backend, const Resources& resources, Trainer& trainer) {
  REPRISE_RETURN_IF_ERROR(check_plan(plan, backend, resources));
  REPRISE_RETURN_IF_ERROR(check_staging(plan));
  trainer = Trainer{};
  trainer.plan = &plan;
  trainer.backend = &backend;
  trainer.context.workers = resources.workers;
  trainer.context.machine = backend.machine;
  trainer.context.queue = backend.queue;
  trainer.eager = resources.eager;
  trainer.arena = resources.arena;
  trainer.context.scalars = reinterpret_cast<StepScalars*>(trainer.state_tensor(0).for_kernels);
  trainer.disk = resources.disk;
  for (const Program& program : plan.programs) {
    for (const Row& row : program.rows) REPRISE_RETURN_IF_ERROR(dispatch(trainer, program, row, true));
  }
  REPRISE_RETURN_IF_ERROR(settle(trainer, initialise_arena(trainer)));
  const Status recorded = record_programs(trainer);
  if (!recorded.ok()) unbind(trainer);
  return recorded;
}

void unbind(Trainer& trainer) {
  for (void*& recording : trainer.recordings) {
    if (recording != nullptr) trainer.backend->recorder.release(recording);
    recording = nullptr;
  }
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

GenerationLimits generation_limits(const Plan& plan) {
  GenerationLimits limits;
  const Program& program = plan.program(ProgramId::kGenerate);
  if (program.rows.count == 0) return limits;
  for (const Slot& slot : program.slots) {
    const uint64_t positions = slot.tensor.shape[0];
    if (slot.kind == SlotKind::kCache && (limits.positions == 0 || positions < limits.positions)) limits.positions = positions;
  }
  limits.tokens = static_cast<uint32_t>(program.slots[program.input].tensor.elements());
  limits.vocabulary = static_cast<uint32_t>(program.slots[program.output].tensor.last_dimension());
  return limits;
}

Status generate(Trainer& trainer, const int32_t* tokens, uint32_t count, uint64_t position, float* logits) {
  const GenerationLimits limits = generation_limits(*trainer.plan);
  if (limits.tokens == 0) return {Code::kUnsupported, "the plan has no program that generates", 0};
  if (count == 0 || count > limits.tokens) return {Code::kUnsupported, "generation takes one token at least and as many as its input has", limits.tokens};
  if (position > trainer.generated) return {Code::kUnsupported, "a sequence goes on where its caches end, or before that", trainer.generated};
  if (position > limits.positions || count > limits.positions - position) {
    return {Code::kUnsupported, "a sequence must end within the positions of the plan's caches", limits.positions};
  }
  trainer.generated = position;
  StepScalars scalars = {};
  scalars.seed = trainer.plan->seed;
  REPRISE_RETURN_IF_ERROR(settle(trainer, run_generation(trainer, tokens, count, position, scalars)));
  REPRISE_RETURN_IF_ERROR(fault_status(scalars.fault));
  const Program& program = trainer.plan->program(ProgramId::kGenerate);
  REPRISE_RETURN_IF_ERROR(read_logits(trainer, program.slots[program.output].tensor, count - 1, logits));
  trainer.generated = position + count;
  return ok_status();
}

Status measured_bytes(const Trainer& trainer, Region region, uint64_t& bytes) {
  const Plan& plan = *trainer.plan;
  if (region == Region::kDisk) return {Code::kUnsupported, "the disk has no canary", 0};
  if (region == Region::kProgram) return find_written(trainer, trainer.region(region), trainer.arena.bytes - plan.state_bytes - plan.carried_bytes, bytes);
  bytes = 0;
  const uint32_t count = region == Region::kState ? plan.state.count : plan.carried.count;
  for (uint32_t i = count; i-- > 0 && bytes == 0;) {  // the padding behind a tensor is no canary
    const Tensor& tensor = region == Region::kState ? plan.state[i].tensor : plan.carried[i];
    REPRISE_RETURN_IF_ERROR(find_written(trainer, trainer.region(region) + tensor.offset, tensor.used_bytes(), bytes));
    if (bytes > 0) bytes += tensor.offset;
  }
  return ok_status();
}

Status measured_bytes(const Trainer& trainer, uint64_t& bytes) {
  REPRISE_RETURN_IF_ERROR(measured_bytes(trainer, Region::kProgram, bytes));
  bytes += trainer.plan->state_bytes + trainer.plan->carried_bytes;
  if (bytes < trainer.highest) bytes = trainer.highest;
  return ok_status();
}

Status lay_canary(Trainer& trainer) {
  const uint64_t lasting = trainer.plan->state_bytes + trainer.plan->carried_bytes;
  uint64_t bytes = 0;
  REPRISE_RETURN_IF_ERROR(measured_bytes(trainer, bytes));
  trainer.highest = bytes;
  trainer.generated = 0;
  return fill_words(trainer, trainer.arena.base + lasting, kCanary, trainer.arena.bytes - lasting);
}

}  // namespace reprise
