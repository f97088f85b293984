// What a program for several ranks does beside that for one: each gradient of a micro-batch goes from every rank to all, and is added in their order.
//
//   one rank     dw of Carried (+)= gradient
//   of N ranks   own = gradient   share.start part 0 = own of rank 0 ... part N-1      (other rows run)
//                share.wait part 0   dw (+)= part 0   share.wait part 1   dw += part 1 ...
//
// In two levels a rank of several micro-batches adds their gradients by itself. When the last one has added its own, what goes from rank to rank is the
// sum:
//
//   last one     dw += gradient   own = dw   share.start ...   share.wait part 0   dw = part 0   share.wait part 1   dw += part 1 ...
//
// A gradient that several rows make, or whose kernel would begin its sums with what Carried holds (ArgumentInfo::running), is complete before it is
// shared; of one rank it is then added by a row of its own, so that the bits do not depend on how many ranks there are. Running statistics are moved
// by those of each rank in turn.
#pragma once

#include "tools/graph/rules.h"
#include "tools/graph/training_state.h"
#include "tools/lowering/owned_plan.h"

namespace reprise {

// How it is done, and memory of a program's region for it. What one rank sends comes into a part of its own; as many parts are under way as there is
// room for, and the more there are, the less steps wait for the network.
struct Sharing {
  uint32_t ranks = 0;        // 0: the recipe knows of none, and nothing is shared
  bool two_levels = false;   // a rank's own micro-batches, of which there are several, are added first
  uint64_t kept_bytes = 0;   // of gradients that several rows make: from the first to the last
  uint64_t least_bytes = 0;  // beside these: one part at a time
  uint64_t room_bytes = 0;   // that there are, at least so many
  uint64_t bytes() const { return kept_bytes + room_bytes; }
};

// With as much room as is of use. Interns the ranks' attributes: that of rank r has the number r.
Sharing plan_sharing(Graph& graph, const ChainBodies& chain, const TrainingState& state, uint32_t ranks, bool two_levels);

// The rows of a micro-batch's program, whose slots have no lifetimes yet, with what is to be shared in the region's bytes from `offset` on.
void share_gradients(OwnedProgram& program, ProgramId id, const Graph& graph, const TrainingState& state, const Sharing& sharing, uint64_t offset);

// The rows of the update, where ranks keep moments among them: what a rank updates goes to all, while others update theirs.
void spread_parameters(OwnedProgram& program, const Graph& graph, const TrainingState& state);

// What each rank sends to every other in a step, the most that one does: gradients, what running statistics are moved by, and parameters that it
// alone updates. Slices of streamed weights are not counted.
uint64_t sent_bytes(const Plan& plan);

}  // namespace reprise
