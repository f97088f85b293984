// Generation: computes the logits of the token that follows the given tokens. The caches keep keys
// and values from run to run.
#include "lib/assert.h"
#include "lib/program_run.h"

namespace reprise {

namespace {

// Writes `count` tokens and then padding. Also writes a document start for each row t, from which
// attention computes the row's position, t minus the start. The start is -position for a token, and
// t + 1 for padding (attention.h).
Status stage_tokens(const Trainer& trainer, const Program& program, const int32_t* tokens, uint32_t count,
                    uint64_t position) {
  constexpr uint32_t kPiece = 64;
  const Tensor &input = program.slots[program.input].tensor, &starts = program.slots[program.document_start].tensor;
  REPRISE_ASSERT(starts.elements() == input.elements(), "each token has a document start");
  const ArenaAddress base = trainer.region(Region::kProgram);
  for (uint32_t first = 0; first < input.elements(); first += kPiece) {
    int32_t token[kPiece], start[kPiece];
    const uint64_t piece = smaller_of(kPiece, input.elements() - first);
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

// Reads row `row` of the output, as f32.
Status read_logits(const Trainer& trainer, const Tensor& output, uint32_t row, float* logits) {
  constexpr uint64_t kPiece = 1024;
  const uint64_t V = output.last_dimension();
  const ArenaAddress from = trainer.region(Region::kProgram) + (output.offset + stored_bytes(output.dtype, row * V));
  if (output.dtype != DType::kBf16) return trainer.read(logits, from, V * sizeof(float));
  for (uint64_t first = 0; first < V; first += kPiece) {
    Bf16 piece[kPiece];
    const uint64_t count = smaller_of(kPiece, V - first);
    REPRISE_RETURN_IF_ERROR(trainer.read(piece, from + first * sizeof(Bf16), count * sizeof(Bf16)));
    for (uint64_t i = 0; i < count; ++i) logits[first + i] = piece[i];
  }
  return ok_status();
}

Status run_generation(const Trainer& trainer, const int32_t* tokens, uint32_t count, uint64_t position,
                      StepScalars& scalars) {
  REPRISE_RETURN_IF_ERROR(write_scalars(trainer, scalars));
  REPRISE_RETURN_IF_ERROR(stage_tokens(trainer, trainer.plan->program(ProgramId::kGenerate), tokens, count, position));
  REPRISE_RETURN_IF_ERROR(run_program(trainer, ProgramId::kGenerate));
  return copy_scalars_out(trainer, scalars);
}

}  // namespace

GenerationLimits generation_limits(const Plan& plan) {
  GenerationLimits limits;
  const Program& program = plan.program(ProgramId::kGenerate);
  if (program.rows.count == 0) return limits;
  for (const Slot& slot : program.slots) {
    const uint64_t positions = slot.tensor.shape[0];
    if (slot.use == SlotKind::kCache && (limits.positions == 0 || positions < limits.positions))
      limits.positions = positions;
  }
  limits.tokens = static_cast<uint32_t>(program.slots[program.input].tensor.elements());
  limits.vocabulary = static_cast<uint32_t>(program.slots[program.output].tensor.last_dimension());
  return limits;
}

Status generate(Trainer& trainer, const int32_t* tokens, uint32_t count, uint64_t position, float* logits) {
  const GenerationLimits limits = generation_limits(*trainer.plan);
  if (limits.tokens == 0) return {Code::kUnsupported, "the plan has no program that generates", 0};
  if (count == 0 || count > limits.tokens)
    return {Code::kUnsupported, "generation takes one token at least and as many as its input has", limits.tokens};
  if (position > trainer.generated)
    return {Code::kUnsupported, "a sequence goes on where its caches end, or before that", trainer.generated};
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

}  // namespace reprise
