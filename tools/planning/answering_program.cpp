// Lowers the network with caches of the largest length that fits, and takes over its attributes.
#include "tools/planning/answering_program.h"

#include <algorithm>
#include <stdexcept>

#include "tools/graph/rules.h"
#include "tools/lowering/lower.h"

namespace reprise {

namespace {

// Where the network's values lie in the plan's State: the scalars, and what has a name there.
std::map<ValueId, uint32_t> places_in_state(const OwnedPlan& plan, const Graph& network) {
  std::map<std::string, uint32_t> by_name;
  for (uint32_t i = 0; i < plan.state.size(); ++i) by_name[plan.state[i].name] = i;
  std::map<ValueId, uint32_t> places = {{network.scalars, kScalarsIndex}};
  for (ValueId v = 0; v < network.values.size(); ++v) {
    const Value& value = network.values[v];
    if (value.kind != ValueKind::kParameter && value.kind != ValueKind::kBuffer && value.kind != ValueKind::kTable) continue;
    const auto found = by_name.find(value.name);
    if (found == by_name.end()) throw std::logic_error("generation: the plan has no " + value.name);
    places[v] = found->second;
  }
  return places;
}

// The pool entry of a row, put into the plan's pool.
uint32_t taken_over(AttributeTables& to, const AttributeTables& from, AttributeKind kind, uint32_t index) {
  uint32_t place = 0;
  AttributeKind at = 0;
  for_each_pool(from, [&](const auto& pool) {
    if (at++ == kind) place = to.intern(pool[index]);
  });
  return place;
}

struct Lowered {
  OwnedProgram program;
  AttributeTables attributes;
  uint64_t position_bytes = 0;  // of all caches
  size_t caches = 0;
};

Lowered lower(const OwnedPlan& plan, Graph network, const BackendRules& rules, const WeightWindow& window, uint64_t positions) {
  const GenerationCalls generation = generation_calls(network, static_cast<uint32_t>(positions));
  TrainingState state;
  state.state_index = places_in_state(plan, network);
  // As the plan stores them: a frozen weight may be narrower than its graph says.
  for (const auto& [v, place] : state.state_index) network.values[v].tensor = plan.state[place].tensor;
  Lowered lowered{lower_generation({network, {}, state, rules, window, {}, {}}, generation), network.attributes, 0, generation.caches.size()};
  for (const ValueId cache : generation.caches) lowered.position_bytes += stored_bytes(network.tensor(cache).dtype, network.tensor(cache).shape[1]);
  return lowered;
}

// A table of positions is read by row of the micro-batch, which knows nothing of the positions before it.
bool has_learned_positions(const Graph& network) {
  return std::any_of(network.nodes.begin(), network.nodes.end(), [](const Node& n) { return n.op == Op::kEmbedding && n.parameters[1] != kNoValue; });
}

}  // namespace

uint64_t add_generation(OwnedPlan& plan, const Graph& network, const BackendRules& rules, const WeightWindow& window, uint64_t most_positions) {
  if (has_learned_positions(network) || node_that_sees_ahead(network) != nullptr) return 0;
  const uint64_t tokens = network.tensor(network.input).elements(), room = plan.arena_bytes - plan.state_bytes - plan.carried_bytes;
  const Lowered least = lower(plan, network, rules, window, tokens);
  const uint64_t padding = least.caches * kAlignment;  // each cache may want as much more than its positions' bytes
  if (most_positions < tokens || least.program.bytes + padding > room || least.position_bytes == 0) return 0;
  const uint64_t more = (room - least.program.bytes - padding) / least.position_bytes;
  const uint64_t positions = std::min(most_positions, tokens + more);
  Lowered lowered = lower(plan, network, rules, window, positions);
  for (Row& row : lowered.program.rows) {
    const AttributeKind kind = kernel_info(row.op, row.pass).attribute;
    if (kind != kNoAttribute) row.attribute = taken_over(plan.attributes, lowered.attributes, kind, row.attribute);
  }
  OwnedProgram& program = plan.program(ProgramId::kGenerate);
  program = std::move(lowered.program);
  const AttributePools pools = plan.attributes.pools();
  for (const Row& row : program.rows) {
    plan.worker_stack_bytes = std::max(plan.worker_stack_bytes, rules.stack_bytes(ShapedKernelCall(kernel_call(plan, program, row), pools).shaped()));
  }
  return positions;
}

}  // namespace reprise
