// Lowers a schedule to rows: every action becomes kernel calls on slots with addresses.
// Here is where recomputation turns into repeated rows; after this nobody knows what a checkpoint is.
// It must not choose what to keep, nor where a block lives: schedule and layout have said so.
#pragma once

#include "tools/graph/held.h"
#include "tools/graph/rules.h"
#include "tools/lowering/owned_plan.h"
#include "tools/lowering/sharing.h"
#include "tools/lowering/weight_window.h"
#include "tools/graph/training_state.h"
#include "tools/layout/chain_layout.h"

namespace reprise {

struct LoweringInput {
  const Graph& graph;
  const std::vector<LinkBody>& links;
  const TrainingState& state;
  const BackendRules& rules;
  const WeightWindow& window;
  const HeldBlock& held;
  const Sharing& sharing;
};

// Where things outside the chain's own area lie in a program's region:
// [ labels | starts of documents, if any | small values | held values | what ranks share, if any | window of streamed weights, if any | chain or scratch ].
struct RegionHeader {
  uint64_t labels_bytes = 0, pairs_offset = 0, types_offset = 0;
  std::map<ValueId, uint64_t> offsets;  // of small and held values
  uint64_t sharing_offset = 0, window_offset = 0;
  uint64_t bytes = 0;
};
RegionHeader region_header(const Graph& graph, const HeldBlock& held, const WeightWindow& window, const Sharing& sharing);

// One of a micro-batch's programs.
OwnedProgram lower_training(const LoweringInput& input, const std::vector<Action>& actions, const ChainLayout& layout, ProgramId id);
OwnedProgram lower_update(const LoweringInput& input);
// The caches lie side by side behind the input, and live through all rows; the logits follow them.
OwnedProgram lower_generation(const LoweringInput& input, const GenerationCalls& generation);
OwnedProgram lower_evaluation(const LoweringInput& input, const std::vector<Call>& calls);

}  // namespace reprise
