// What a program for several ranks does beside that for one: each gradient of a micro-batch goes from every rank to all, and is added in their order.
//
//   one rank     dw of Carried (+)= gradient
//   of N ranks   own = gradient   share.start part 0 = own of rank 0 ... part N-1      (other rows run)
//                share.wait part 0   dw (+)= part 0   share.wait part 1   dw += part 1 ...
//
// A gradient that several rows make, or whose kernel would begin its sums with what Carried holds (ArgumentInfo::running), is complete before it is
// shared; of one rank it is then added by a row of its own, so that the bits do not depend on how many ranks there are. Running statistics are moved
// by those of each rank in turn.
#pragma once

#include <algorithm>

#include "tools/graph/rules.h"
#include "tools/graph/training_state.h"
#include "tools/lowering/owned_plan.h"

namespace reprise {

// Memory of a program's region for it.
struct Sharing {
  uint32_t ranks = 0;         // 0: the recipe knows of none, and nothing is shared
  uint32_t flights = 1;       // as many of the largest may be under way together: the more, the less steps wait for the network
  uint64_t kept_bytes = 0;    // of gradients that several rows make: from the first to the last
  uint64_t flight_bytes = 0;  // of the largest that goes from rank to rank, with all that comes
  uint64_t all_bytes = 0;     // of all that do
  uint64_t bytes() const { return kept_bytes + std::max(flight_bytes, std::min(flights * flight_bytes, all_bytes)); }
};

// Interns the ranks' attributes: that of rank r has the number r.
Sharing plan_sharing(Graph& graph, const ChainBodies& chain, const TrainingState& state, uint32_t ranks);

// The rows of a micro-batch's program, whose slots have no lifetimes yet, with what is to be shared in the region's bytes from `offset` on.
// `add`: carried gradients are added to.
void share_gradients(OwnedProgram& program, const Graph& graph, const TrainingState& state, const Sharing& sharing, uint64_t offset, bool add);

// What each rank sends to every other in a step.
uint64_t sent_bytes(const Plan& plan);

}  // namespace reprise
