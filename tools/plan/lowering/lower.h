// Lowers a schedule to rows: every action becomes kernel calls on slots with addresses. A
// recomputation becomes repeated rows here, which later stages treat as any other row. Lowering
// must not choose what is kept, nor the address of a block: schedule and layout have decided both.
#pragma once

#include "tools/plan/graph/skips.h"
#include "tools/plan/graph/rules.h"
#include "tools/plan/lowering/owned_plan.h"
#include "tools/plan/lowering/sharing.h"
#include "tools/plan/lowering/weight_window.h"
#include "tools/plan/graph/training_state.h"
#include "tools/plan/layout/chain_layout.h"

namespace reprise {

struct LoweringInput {
  const Graph& graph;
  const std::vector<LinkBody>& links;
  const TrainingState& state;
  const BackendRules& rules;
  const WeightWindow& window;
  const SkipBlock& skips;
  const Sharing& sharing;
};

// Offsets in a program's region of everything outside the chain's own area:
//   [ labels | document starts | pairs | token types | small values | skips |
//     what ranks share | window of streamed weights | chain or scratch ]
// All parts except the labels and the last one may be empty.
struct RegionHeader {
  uint64_t labels_bytes = 0, pairs_offset = 0, types_offset = 0;
  std::map<ValueId, uint64_t> offsets;  // of small values, skips and gradients of skips, by value
  uint64_t sharing_offset = 0, window_offset = 0;
  uint64_t bytes = 0;
};
RegionHeader region_header(const Graph& graph, const SkipBlock& skips, const WeightWindow& window,
                           const Sharing& sharing);

// Lowers the schedule to program `id`, one of a micro-batch's programs.
OwnedProgram lower_training(const LoweringInput& input, const std::vector<Action>& actions, const ChainLayout& layout,
                            ProgramId id);
OwnedProgram lower_update(const LoweringInput& input);
// Lowers generation. The caches are contiguous after the input, and live through all rows; the
// logits follow them.
OwnedProgram lower_generation(const LoweringInput& input, const GenerationCalls& generation);
OwnedProgram lower_evaluation(const LoweringInput& input, const std::vector<Call>& calls);

}  // namespace reprise
