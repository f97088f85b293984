// See state_tensors.h.
#include "tools/snapshots/state_tensors.h"

#include <algorithm>

#include "tools/graph/graph.h"
#include "tools/snapshots/reach.h"

namespace reprise {

namespace {

bool trains_adapters(const Plan& plan) {
  return std::any_of(plan.state.begin(), plan.state.end(), [](const StateTensor& state) { return is_adapter(state.name); });
}

// The trained parameters stand together, and have a norm each (lib/plan.h).
bool is_trained(const Plan& plan, const StateTensor& state) {
  const uint64_t index = static_cast<uint64_t>(&state - plan.state.begin());
  return index >= kFirstTrained && index - kFirstTrained < plan.state[kNormsIndex].tensor.elements();
}

TensorPiece piece_of(const Trainer& trainer, uint32_t index) {
  return [&trainer, index](uint64_t at, void* to, uint64_t bytes) { require_reached(trainer.read_state(index, at, to, bytes)); };
}

}  // namespace

bool belongs(const Plan& plan, const StateTensor& state, StatePart part) {
  if (part == StatePart::kOptimizer) return state.kind == StateKind::kOptimizer || state.kind == StateKind::kOffloaded;
  if (state.kind != StateKind::kParameter && state.kind != StateKind::kBuffer && state.kind != StateKind::kStreamed) return false;
  return part != StatePart::kSaved || !trains_adapters(plan) || is_trained(plan, state);
}

WantedTensor wanted(const Plan& plan, const StateTensor& state) { return {state, is_trained(plan, state)}; }

TensorSink sink_of(const Trainer& trainer, uint32_t index) {
  return [&trainer, index, at = uint64_t{0}](const void* piece, uint64_t bytes) mutable {
    require_reached(trainer.write_state(index, at, piece, bytes));
    at += bytes;
  };
}

void read_state(const Trainer& trainer, const WeightSource& source, StatePart part) {
  const Plan& plan = *trainer.plan;
  for (const StateTensor& state : plan.state) {  // all of them, before the first is changed
    if (belongs(plan, state, part)) require_sense(source, state, find_tensor(source, wanted(plan, state)));
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    const StateTensor& state = plan.state[i];
    if (belongs(plan, state, part)) read_tensor(source, find_tensor(source, wanted(plan, state)), state.tensor, sink_of(trainer, i));
  }
}

FileSum write_state(const Trainer& trainer, const std::string& path, StatePart part,
                    const std::vector<std::pair<std::string, std::string>>& metadata) {
  const Plan& plan = *trainer.plan;
  SafetensorsWriter writer(path);
  for (const auto& [key, value] : metadata) writer.add_metadata(key, value);
  for (const StateTensor& state : plan.state) {
    if (belongs(plan, state, part)) writer.declare(state.name, stored_type(state.tensor.dtype), stored_shape(state.tensor));
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    if (!belongs(plan, plan.state[i], part)) continue;
    write_tensor(plan.state[i].tensor, piece_of(trainer, i), [&writer](const void* piece, uint64_t bytes) { writer.write(piece, bytes); });
  }
  return writer.finish();
}

void give_moments(const Trainer& trainer) {
  for (uint32_t i = 0; i < trainer.plan->state.count; ++i) {
    if (trainer.plan->state[i].keeper != kEveryRank) write_tensor(trainer.plan->state[i].tensor, piece_of(trainer, i), [](const void*, uint64_t) {});
  }
}

}  // namespace reprise
