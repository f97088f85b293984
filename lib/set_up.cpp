// The parts of bind() other than the proof: checks of the resources, the arena's initial values,
// and the recording of programs. All faults in the resources are reported before the first step.
#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "lib/canary.h"
#include "lib/carriers.h"
#include "lib/initial_values.h"
#include "lib/portable_math.h"
#include "lib/program_run.h"
#include "lib/rng.h"
#include "lib/same_state.h"
#include "lib/stack_buffer.h"

namespace reprise {

namespace {

// Checks that every program has the slots that the host fills or reads.
Status check_staging(const Plan& plan) {
  for (const ProgramId id :
       {ProgramId::kMicroFirst, ProgramId::kMicroAdd, ProgramId::kMicroLast, ProgramId::kEvaluate}) {
    const Program& program = plan.program(id);
    const bool needed = id == ProgramId::kMicroFirst || program.rows.count > 0;
    if (needed && (program.input == kNoSlot || program.labels == kNoSlot))
      return {Code::kBadPlan, "a program must name its input and labels", 0};
  }
  const Program& generates = plan.program(ProgramId::kGenerate);
  if (generates.rows.count > 0 &&
      (generates.input == kNoSlot || generates.document_start == kNoSlot || generates.output == kNoSlot)) {
    return {Code::kBadPlan, "a program that generates must name its input, document_start and output", 0};
  }
  if (runs_in_step(plan, ProgramId::kMicroAdd) > 0 && plan.program(ProgramId::kMicroAdd).rows.count == 0) {
    return {Code::kBadPlan, "several micro-batches need the program micro_add", plan.accumulate};
  }
  return ok_status();
}

}  // namespace

void initial_values(const Plan& plan, uint32_t index, uint64_t first, uint64_t count, float* values) {
  const StateTensor& state = plan.state[index];
  constexpr double kTwoPi = 6.283185307179586;
  if (state.init == InitKind::kConstant) {
    for (uint64_t i = 0; i < count; ++i) values[i] = state.init_scale;
    return;
  }
  for (uint64_t i = 0; i < count; i += 2) {
    const PhiloxBlock block = philox(plan.seed, uint64_t{index} << 32, (first + i) / 2);
    // Two uniform numbers in (0, 1), each from 53 random bits.
    const double u = (static_cast<double>((uint64_t{block.word[0]} << 32 | block.word[1]) >> 11) + 0.5) * 0x1p-53;
    const double v = (static_cast<double>((uint64_t{block.word[2]} << 32 | block.word[3]) >> 11) + 0.5) * 0x1p-53;
    double pair[2];
    if (state.init == InitKind::kNormal) {  // Box & Muller 1958
      const double radius = std::sqrt(-2.0 * portable_log(u));
      pair[0] = radius * portable_cosine(kTwoPi * v);
      pair[1] = radius * portable_sine(kTwoPi * v);
    } else {
      pair[0] = 2 * u - 1;
      pair[1] = 2 * v - 1;
    }
    for (uint64_t k = 0; k < 2 && i + k < count; ++k)
      values[i + k] = static_cast<float>(pair[k] * static_cast<double>(state.init_scale));
  }
}

namespace {

// Rounds the numbers to bf16 in place; each number is read before it is overwritten.
void round_in_place(float* numbers, uint64_t count) {
  unsigned char* to = reinterpret_cast<unsigned char*>(numbers);
  for (uint64_t i = 0; i < count; ++i) {
    const Bf16 rounded = numbers[i];
    std::memcpy(to + i * sizeof rounded, &rounded, sizeof rounded);
  }
}

// Draws a parameter piece by piece. A piece is on the stack, in at most a quarter of the plan's
// worker_stack_bytes, and the workers fill it together. A bf16 parameter gets the same numbers as
// an f32 parameter, rounded.
Status draw_parameter(const Trainer& trainer, uint32_t index) {
  constexpr uint64_t kMax = 8192, kShare = 512;  // kMax: maximum numbers of a piece; kShare: numbers of a task
  const uint64_t on_stack = trainer.plan->worker_stack_bytes / 4 / sizeof(float) / 2 * 2;
  const uint64_t piece_floats = on_stack > kMax ? kMax : on_stack < 64 ? 64 : on_stack;
  REPRISE_STACK_BUFFER(float, piece, piece_floats);
  const StateTensor& state = trainer.plan->state[index];
  const uint64_t elements = state.tensor.elements();
  for (uint64_t first = 0; first < elements; first += piece_floats) {
    const uint64_t count = smaller_of(piece_floats, elements - first);
    parallel_for(*trainer.context.workers, static_cast<uint32_t>((count + kShare - 1) / kShare), [&](uint32_t share) {
      const uint64_t begin = share * kShare;
      initial_values(*trainer.plan, index, first + begin, smaller_of(kShare, count - begin), piece + begin);
    });
    const DType dtype = state.tensor.dtype;
    if (dtype == DType::kBf16) round_in_place(piece, count);
    REPRISE_RETURN_IF_ERROR(
        trainer.write(trainer.state_tensor(index) + stored_bytes(dtype, first), piece, stored_bytes(dtype, count)));
  }
  return ok_status();
}

// Writes zeros between the last element of a tensor and the end of its reserved bytes. Kernels that
// process several tensors of a group at once need zeros there.
Status clear_padding(const Trainer& trainer, ArenaAddress region, const Tensor& tensor) {
  const uint64_t used = tensor.used_bytes() / sizeof kCanary * sizeof kCanary;
  return fill_words(trainer, region + (tensor.offset + used), 0, tensor.bytes - used);
}

// Fills the arena after State, and the blocks in host memory, with the canary. The padding of
// Carried's tensors becomes zero.
Status initialise_behind_state(const Trainer& trainer) {
  lay_host_canary(trainer);
  const uint64_t state_bytes = trainer.plan->state_bytes;
  REPRISE_RETURN_IF_ERROR(
      fill_words(trainer, trainer.arena.base + state_bytes, kCanary, trainer.arena.bytes - state_bytes));
  for (const Tensor& tensor : trainer.plan->carried) {
    REPRISE_RETURN_IF_ERROR(clear_padding(trainer, trainer.region(Region::kCarried), tensor));
  }
  return ok_status();
}

// Reads this rank's slices of the streamed tensors from the file of weights into its shard. Does
// nothing if the plan has no shards.
Status read_shard(const Trainer& trainer) {
  const Plan& plan = *trainer.plan;
  if (plan.shard_bytes == 0) return ok_status();
  REPRISE_RETURN_IF_ERROR(trainer.backend->host.synchronise(trainer.context));
  const Disk& file = trainer.weights;
  for (const StateTensor& state : plan.state) {
    if (state.kind != StateKind::kStreamed) continue;
    const uint64_t slice = state.tensor.bytes / plan.ranks, from = state.tensor.offset + trainer.peers.rank * slice;
    REPRISE_RETURN_IF_ERROR(
        file.start_read(file.state, from, (shard_of(trainer) + state.tensor.offset / plan.ranks).for_kernels, slice));
    REPRISE_RETURN_IF_ERROR(file.wait(file.state, from));
  }
  return ok_status();
}

// Fills the arena with the canary, but clears the tensors of State and the padding of Carried's
// tensors. Offloaded tensors of State are cleared in host memory. Then writes the initial values of
// State.
Status initialise_arena(const Trainer& trainer) {
  REPRISE_RETURN_IF_ERROR(fill_words(trainer, trainer.arena.base, kCanary, trainer.plan->state_bytes));
  for (const StateTensor& state : trainer.plan->state) {
    if (state.kind == StateKind::kOffloaded)
      std::memset(trainer.host_memory.base + state.tensor.offset, 0, state.tensor.bytes);
    if (!lies_in_arena(state.kind)) continue;
    REPRISE_RETURN_IF_ERROR(fill_words(trainer, trainer.arena.base + state.tensor.offset, 0, state.tensor.bytes));
  }
  REPRISE_RETURN_IF_ERROR(initialise_behind_state(trainer));
  REPRISE_RETURN_IF_ERROR(read_shard(trainer));
  for (uint32_t i = 0; i < trainer.plan->state.count; ++i) {
    const StateTensor& state = trainer.plan->state[i];
    if (!lies_in_arena(state.kind)) continue;
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
      REPRISE_RETURN_IF_ERROR(
          fill_words(trainer, trainer.state_tensor(i), std::bit_cast<uint32_t>(state.init_scale), bytes));
    }
  }
  return ok_status();
}

// Records the programs. Records nothing if the backend has no recorder, if rows run eagerly, or if
// the host takes part in the plan's transfers, as it does with a disk.
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

// Checks that the backend has every kernel that the plan calls.
Status try_rows(const Trainer& trainer) {
  for (const Program& program : trainer.plan->programs) {
    for (const Row& row : program.rows) REPRISE_RETURN_IF_ERROR(dispatch(trainer, program, row, true));
  }
  return ok_status();
}

Status record_or_unbind(Trainer& trainer) {
  const Status recorded = record_programs(trainer);
  if (!recorded.ok()) unbind(trainer);
  return recorded;
}

}  // namespace

Status check_given(const Plan& plan, const Backend& backend, const Resources& given) {
  if (plan.format != kPlanFormat)
    return {Code::kBadPlan, "the plan's format version is not this library's; plan again", plan.format};
  if (plan.arena_bytes > given.arena.bytes)
    return {Code::kArenaTooSmall, "the arena must hold the plan's arena_bytes", plan.arena_bytes};
  if (reinterpret_cast<uintptr_t>(given.arena.base.for_kernels) % kAlignment != 0) {
    return {Code::kArenaTooSmall, "the arena must be aligned to 256 bytes", 0};
  }
  if (given.workers == nullptr)
    return {Code::kUnsupported, "bind needs Workers; empty ones are the calling thread alone", 0};
  if (std::strcmp(plan.backend, backend.rules->name) != 0)
    return {Code::kUnsupported, "the plan was made for another backend", 0};
  if (given.workers->stack_bytes < plan.worker_stack_bytes) {
    return {Code::kUnsupported, "every worker must have the plan's worker_stack_bytes of stack, and say so",
            plan.worker_stack_bytes};
  }
  REPRISE_RETURN_IF_ERROR(check_carriers(plan, given));
  return ok_status();
}

Status bind_proved(const Plan& plan, const Backend& backend, const Resources& resources, Trainer& trainer) {
  REPRISE_RETURN_IF_ERROR(check_given(plan, backend, resources));
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
  trainer.weights = resources.weights;
  trainer.host_memory = resources.host_memory;
  trainer.peers = resources.peers;
  REPRISE_RETURN_IF_ERROR(try_rows(trainer));
  REPRISE_RETURN_IF_ERROR(settle(trainer, initialise_arena(trainer)));
  return record_or_unbind(trainer);
}

Status rebind(const Plan& plan, const Resources& resources, Trainer& trainer) {
  REPRISE_RETURN_IF_ERROR(check_given(plan, *trainer.backend, resources));
  REPRISE_RETURN_IF_ERROR(check_staging(plan));
  if (!same_state(*trainer.plan, plan))
    return {Code::kUnsupported, "a plan that takes over must be of the same training and have the same State", 0};
  if (resources.arena.base.for_kernels != trainer.arena.base.for_kernels) {
    return {Code::kUnsupported, "the arena of a plan that takes over must begin where State lies", 0};
  }
  if (offloaded_bytes(plan) > 0 && resources.host_memory.base != trainer.host_memory.base) {
    return {Code::kUnsupported,
            "the host's memory of a plan that takes over must be where State's offloaded tensors lie", 0};
  }
  Trainer next = trainer;
  next.plan = &plan;
  next.arena = resources.arena;
  next.disk = resources.disk;
  next.weights = resources.weights;
  next.host_memory = resources.host_memory;
  next.peers = resources.peers;
  next.highest = next.generated = 0;
  for (void*& recording : next.recordings) recording = nullptr;
  REPRISE_RETURN_IF_ERROR(try_rows(next));
  unbind(trainer);
  trainer = next;
  REPRISE_RETURN_IF_ERROR(settle(trainer, initialise_behind_state(trainer)));
  return record_or_unbind(trainer);
}

void unbind(Trainer& trainer) {
  for (void*& recording : trainer.recordings) {
    if (recording != nullptr) trainer.backend->recorder.release(recording);
    recording = nullptr;
  }
}

}  // namespace reprise
