// See state_tensors.h.
#include "tools/run/snapshots/state_tensors.h"

#include <algorithm>

#include "tools/plan/graph/graph.h"
#include "tools/run/snapshots/reach.h"

namespace reprise {

namespace {

bool trains_adapters(const Plan& plan) {
  return std::any_of(plan.state.begin(), plan.state.end(),
                     [](const StateTensor& state) { return is_adapter(state.name); });
}

// True if a tensor is a trained parameter. Trained parameters are consecutive in State, and each
// has a norm (lib/plan.h).
bool is_trained(const Plan& plan, const StateTensor& state) {
  const uint64_t index = static_cast<uint64_t>(&state - plan.state.begin());
  return index >= kFirstTrained && index - kFirstTrained < plan.state[kNormsIndex].tensor.elements();
}

TensorPiece piece_of(const Trainer& trainer, uint32_t index) {
  return [&trainer, index](uint64_t at, void* to, uint64_t bytes) {
    require_reached(trainer.read_state(index, at, to, bytes));
  };
}

// Writes a tensor whose numbers have another order in files. The whole tensor is collected in
// memory first.
void write_in_order(const Tensor& tensor, const TensorPiece& piece, const StoredForm& form, SafetensorsWriter& writer) {
  std::vector<unsigned char> numbers;
  numbers.reserve(tensor.used_bytes());
  write_tensor(tensor, piece, [&numbers](const void* from, uint64_t bytes) {
    const auto* first = static_cast<const unsigned char*>(from);
    numbers.insert(numbers.end(), first, first + bytes);
  });
  const std::vector<unsigned char> ordered = in_file_order(form, numbers, dtype_info(tensor.dtype).block_bytes);
  writer.write(ordered.data(), ordered.size());
}

}  // namespace

bool belongs(const Plan& plan, const StateTensor& state, StatePart part) {
  if (part == StatePart::kOptimizer) return state.kind == StateKind::kOptimizer || state.kind == StateKind::kOffloaded;
  if (state.kind != StateKind::kParameter && state.kind != StateKind::kBuffer && state.kind != StateKind::kStreamed)
    return false;
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
  for (const StateTensor& state : plan.state) {  // checks all tensors before the first is changed
    if (belongs(plan, state, part)) require_sense(source, state, find_tensor(source, wanted(plan, state)));
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    const StateTensor& state = plan.state[i];
    if (belongs(plan, state, part))
      read_tensor(source, find_tensor(source, wanted(plan, state)), state.tensor, sink_of(trainer, i));
  }
}

FileSum write_state(const Trainer& trainer, const std::string& path, StatePart part,
                    const std::vector<std::pair<std::string, std::string>>& metadata, const StoredForms& forms) {
  const Plan& plan = *trainer.plan;
  SafetensorsWriter writer(path);
  for (const auto& [key, value] : metadata) writer.add_metadata(key, value);
  if (!forms.empty()) writer.add_metadata(kFormsKey, "1");
  for (const StateTensor& state : plan.state) {
    const auto form = forms.find(state.name);
    const std::vector<uint64_t> shape = form == forms.end() ? stored_shape(state.tensor) : form->second.shape;
    if (belongs(plan, state, part)) writer.declare(state.name, stored_type(state.tensor.dtype), shape);
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    const StateTensor& state = plan.state[i];
    if (!belongs(plan, state, part)) continue;
    const auto form = forms.find(state.name);
    if (form != forms.end() && !form->second.order.empty()) {
      write_in_order(state.tensor, piece_of(trainer, i), form->second, writer);
    } else {
      write_tensor(state.tensor, piece_of(trainer, i),
                   [&writer](const void* piece, uint64_t bytes) { writer.write(piece, bytes); });
    }
  }
  return writer.finish();
}

void give_moments(const Trainer& trainer) {
  for (uint32_t i = 0; i < trainer.plan->state.count; ++i) {
    if (trainer.plan->state[i].owner != kEveryRank)
      write_tensor(trainer.plan->state[i].tensor, piece_of(trainer, i), [](const void*, uint64_t) {});
  }
}

}  // namespace reprise
