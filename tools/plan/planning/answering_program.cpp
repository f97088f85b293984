// Lowers the network with caches of the largest length that fits, and copies its attributes into
// the plan.
#include "tools/plan/planning/answering_program.h"

#include <algorithm>
#include <stdexcept>

#include "tools/plan/graph/rules.h"
#include "tools/plan/lowering/lower.h"

namespace reprise {

namespace {

// Returns the State indices of the scalars and of the network's parameters, buffers and tables,
// which are found by their names. Throws std::logic_error if the plan has no tensor of a name.
std::map<ValueId, uint32_t> places_in_state(const OwnedPlan& plan, const Graph& network) {
  std::map<std::string, uint32_t> by_name;
  for (uint32_t i = 0; i < plan.state.size(); ++i) by_name[plan.state[i].name] = i;
  std::map<ValueId, uint32_t> places = {{network.scalars, kScalarsIndex}};
  for (ValueId v = 0; v < network.values.size(); ++v) {
    const Value& value = network.values[v];
    if (value.kind != ValueKind::kParameter && value.kind != ValueKind::kBuffer && value.kind != ValueKind::kTable)
      continue;
    const auto found = by_name.find(value.name);
    if (found == by_name.end()) throw std::logic_error("generation: the plan has no " + value.name);
    places[v] = found->second;
  }
  return places;
}

// Copies an attribute into the plan's pool, and returns its index there.
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
  uint64_t position_bytes = 0;  // bytes of one position in all caches
  size_t caches = 0;
};

Lowered lower(const OwnedPlan& plan, Graph network, const BackendRules& rules, const WeightWindow& window,
              uint64_t positions) {
  const GenerationCalls generation = generation_calls(network, static_cast<uint32_t>(positions));
  TrainingState state;
  state.state_index = places_in_state(plan, network);
  // Uses the plan's tensors, because a frozen weight may be stored in fewer bits in the plan than
  // in the network.
  for (const auto& [v, place] : state.state_index) network.values[v].tensor = plan.state[place].tensor;
  Lowered lowered{lower_generation({network, {}, state, rules, window, {}, {}}, generation), network.attributes, 0,
                  generation.caches.size()};
  for (const ValueId cache : generation.caches)
    lowered.position_bytes += stored_bytes(network.tensor(cache).dtype, network.tensor(cache).shape[1]);
  return lowered;
}

// True if the network has a table of positions. An embedding reads it at the token's place in the
// micro-batch, which does not count the earlier positions in the caches.
bool has_learned_positions(const Graph& network) {
  return std::any_of(network.nodes.begin(), network.nodes.end(),
                     [](const Node& n) { return n.op == Op::kEmbedding && n.parameters[1] != kNoValue; });
}

}  // namespace

uint64_t add_generation(OwnedPlan& plan, const Graph& network, const BackendRules& rules, const WeightWindow& window,
                        uint64_t max_positions) {
  if (has_learned_positions(network) || node_that_sees_ahead(network) != nullptr) return 0;
  const uint64_t tokens = network.tensor(network.input).elements(),
                 space = plan.arena_bytes - plan.state_bytes - plan.carried_bytes;
  const Lowered minimum = lower(plan, network, rules, window, tokens);
  const uint64_t padding = minimum.caches * kAlignment;  // maximum bytes that the alignment of the caches adds
  if (max_positions < tokens || minimum.program.bytes + padding > space || minimum.position_bytes == 0) return 0;
  const uint64_t more = (space - minimum.program.bytes - padding) / minimum.position_bytes;
  const uint64_t positions = std::min(max_positions, tokens + more);
  Lowered lowered = lower(plan, network, rules, window, positions);
  for (Row& row : lowered.program.rows) {
    const AttributeKind kind = kernel_info(row.op, row.pass).attribute;
    if (kind != kNoAttribute) row.attribute = taken_over(plan.attributes, lowered.attributes, kind, row.attribute);
  }
  OwnedProgram& program = plan.program(ProgramId::kGenerate);
  program = std::move(lowered.program);
  const AttributePools pools = plan.attributes.pools();
  for (const Row& row : program.rows) {
    plan.worker_stack_bytes =
        std::max(plan.worker_stack_bytes,
                 rules.stack_bytes(ShapedKernelCall(kernel_call(plan, program, row), pools).shaped()));
  }
  return positions;
}

}  // namespace reprise
