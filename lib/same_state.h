// Whether one plan can take over from another between steps: both are of one training, and State lies alike in both.
// Here so that the compiler says it of a program's plans and rebind says it again. State depends on model and optimizer, never on the budget;
// this is the proof of it.
#pragma once

#include "lib/plan.h"

namespace reprise {

constexpr bool same_text(const char* a, const char* b) {
  for (; *a != 0 && *a == *b; ++a) ++b;
  return *a == *b;
}

constexpr bool same_tensor(const Tensor& a, const Tensor& b) {
  for (uint32_t d = 0; d < 4; ++d) {
    if (a.shape[d] != b.shape[d]) return false;
  }
  return a.offset == b.offset && a.bytes == b.bytes && a.dtype == b.dtype && a.rank == b.rank;
}

constexpr bool same_rate(const LearningRate& a, const LearningRate& b) {
  if (a.milestones.count != b.milestones.count) return false;
  for (uint32_t m = 0; m < a.milestones.count; ++m) {
    if (a.milestones[m] != b.milestones[m]) return false;
  }
  return a.kind == b.kind && a.base == b.base && a.gamma == b.gamma && a.warmup_steps == b.warmup_steps && a.steps == b.steps;
}

// What is in State, where, and what a step does with it from without; rows are each plan's own.
constexpr bool same_state(const Plan& a, const Plan& b) {
  if (!same_text(a.backend, b.backend) || a.seed != b.seed || a.accumulate != b.accumulate || a.ranks != b.ranks || !same_rate(a.learning_rate, b.learning_rate)) return false;
  if (a.state_bytes != b.state_bytes || a.streamed_bytes != b.streamed_bytes || a.shard_bytes != b.shard_bytes || a.state.count != b.state.count || a.numbers.count != b.numbers.count) return false;
  for (uint32_t i = 0; i < a.state.count; ++i) {
    if (!same_tensor(a.state[i].tensor, b.state[i].tensor) || a.state[i].kind != b.state[i].kind || !same_text(a.state[i].name, b.state[i].name)) return false;
    if (a.state[i].first_number != b.state[i].first_number || a.state[i].keeper != b.state[i].keeper) return false;
  }
  for (uint32_t i = 0; i < a.numbers.count; ++i) {
    if (a.numbers[i] != b.numbers[i]) return false;
  }
  return true;
}

}  // namespace reprise
