// Measures how far memory has been written. bind() fills memory with the canary, so a word without
// the canary has been written.
#include "lib/canary.h"

#include <cstring>

#include "lib/program_run.h"
#include "lib/stack_buffer.h"

namespace reprise {

namespace {

// Finds the highest word without the canary in the `bytes` bytes at `from`. Sets `written` to the
// distance from `from` to the end of this word, rounded up to kAlignment; to 0 if every word has
// the canary.
Status find_written(const Trainer& trainer, ArenaAddress from, uint64_t bytes, uint64_t& written) {
  const uint64_t on_stack = trainer.plan->worker_stack_bytes / 4 / sizeof kCanary, piece_words = on_stack > 1024 ? 1024
                                                                                                 : on_stack < 64
                                                                                                     ? 64
                                                                                                     : on_stack;
  REPRISE_STACK_BUFFER(uint32_t, piece, piece_words);
  written = bytes / sizeof kCanary * sizeof kCanary;
  while (written > 0) {
    const uint64_t size = smaller_of(piece_words * sizeof kCanary, written);
    REPRISE_RETURN_IF_ERROR(trainer.read(piece, from + (written - size), size));
    uint64_t words = size / sizeof kCanary;
    while (words > 0 && piece[words - 1] == kCanary) --words;
    written -= size - words * sizeof kCanary;
    if (words > 0) break;
  }
  written = align_up(written);
  return ok_status();
}

// Finds the end of the highest written byte in memory of the host, counted from the start of that
// memory. Synchronises the backend first, so that no transfer is in progress.
Status find_spilled(const Trainer& trainer, uint64_t& written) {
  if (trainer.plan->spill_bytes > 0 && trainer.plan->spill_level == SpillLevel::kDisk)
    return {Code::kUnsupported, "the disk has no canary", 0};
  REPRISE_RETURN_IF_ERROR(trainer.backend->host.synchronise(trainer.context));
  uint64_t words = spills_to(*trainer.plan, SpillLevel::kHost) ? trainer.host_memory.bytes / sizeof kCanary : 0;
  for (uint32_t word = kCanary; words > 0; --words) {
    std::memcpy(&word, trainer.host_memory.base + (words - 1) * sizeof word, sizeof word);
    if (word != kCanary) break;
  }
  written = align_up(words * sizeof kCanary);
  return ok_status();
}

}  // namespace

void lay_host_canary(const Trainer& trainer) {
  if (!spills_to(*trainer.plan, SpillLevel::kHost)) return;
  const uint64_t words = trainer.host_memory.bytes / sizeof kCanary,
                 first = offloaded_bytes(*trainer.plan) / sizeof kCanary;
  for (uint64_t i = first; i < words; ++i)
    std::memcpy(trainer.host_memory.base + i * sizeof kCanary, &kCanary, sizeof kCanary);
}

Status fill_words(const Trainer& trainer, ArenaAddress to, uint32_t word, uint64_t bytes) {
  return trainer.backend->host.fill(trainer.context, to, word, bytes / sizeof word * sizeof word);
}

Status measured_bytes(const Trainer& trainer, Region region, uint64_t& bytes) {
  const Plan& plan = *trainer.plan;
  if (region == Region::kSpill) return find_spilled(trainer, bytes);
  if (region == Region::kProgram)
    return find_written(trainer, trainer.region(region), trainer.arena.bytes - plan.state_bytes - plan.carried_bytes,
                        bytes);
  bytes = 0;
  const uint32_t count = region == Region::kState ? plan.state.count : plan.carried.count;
  for (uint32_t i = count; i-- > 0 && bytes == 0;) {  // the padding after a tensor is not searched: it has no canary
    if (region == Region::kState && !lies_in_arena(plan.state[i].kind)) continue;
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
