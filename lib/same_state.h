// The proof that one plan can replace another between steps: both belong to one training, and State
// has the same layout in both. State depends on model and optimizer, not on the budget. The
// compiler evaluates same_state() for the plans of one executable, and rebind() evaluates it again.
#pragma once

#include "lib/plan.h"

namespace reprise {

// True if two texts that end with a zero are equal.
constexpr bool same_text(const char* a, const char* b) {
  for (; *a != 0 && *a == *b; ++a) ++b;
  return *a == *b;
}

// True if the two tensors have equal types, shapes, bytes and offsets.
constexpr bool same_tensor(const Tensor& a, const Tensor& b) {
  for (uint32_t d = 0; d < 4; ++d) {
    if (a.shape[d] != b.shape[d]) return false;
  }
  return a.offset == b.offset && a.bytes == b.bytes && a.dtype == b.dtype && a.rank == b.rank;
}

// True if the two schedules of the learning rate are equal.
constexpr bool same_rate(const LearningRate& a, const LearningRate& b) {
  if (a.milestones.count != b.milestones.count) return false;
  for (uint32_t m = 0; m < a.milestones.count; ++m) {
    if (a.milestones[m] != b.milestones[m]) return false;
  }
  return a.kind == b.kind && a.base == b.base && a.gamma == b.gamma && a.warmup_steps == b.warmup_steps &&
         a.steps == b.steps;
}

// True if both plans have the same State and need the same numbers from the host for a step. Their
// rows may differ.
constexpr bool same_state(const Plan& a, const Plan& b) {
  if (!same_text(a.backend, b.backend) || a.seed != b.seed || a.accumulate != b.accumulate || a.ranks != b.ranks ||
      !same_rate(a.learning_rate, b.learning_rate))
    return false;
  if (a.state_bytes != b.state_bytes || a.streamed_bytes != b.streamed_bytes || a.shard_bytes != b.shard_bytes ||
      a.state.count != b.state.count || a.numbers.count != b.numbers.count)
    return false;
  for (uint32_t i = 0; i < a.state.count; ++i) {
    if (!same_tensor(a.state[i].tensor, b.state[i].tensor) || a.state[i].kind != b.state[i].kind ||
        !same_text(a.state[i].name, b.state[i].name))
      return false;
    if (a.state[i].first_number != b.state[i].first_number || a.state[i].owner != b.state[i].owner) return false;
  }
  for (uint32_t i = 0; i < a.numbers.count; ++i) {
    if (a.numbers[i] != b.numbers[i]) return false;
  }
  return true;
}

}  // namespace reprise
