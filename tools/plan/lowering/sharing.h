// The additional rows of a program for several ranks. Each rank sends its gradient of a micro-batch
// to all ranks, and the ranks' gradients are added in the order of the ranks.
//
//   one rank     dw of Carried (+)= gradient
//   of N ranks   own = gradient   share.start part 0 = own of rank 0 ... part N-1  (other rows run)
//                share.wait part 0   dw (+)= part 0   share.wait part 1   dw += part 1 ...
//
// In two levels, a rank first adds the gradients of its own micro-batches. After the last one it
// sends the sum to all ranks:
//
//   last one     dw += gradient   own = dw   share.start ...
//                share.wait part 0   dw = part 0   share.wait part 1   dw += part 1 ...
//
// Two kinds of gradients are first computed completely in a tensor of their own and then added to
// Carried, even with one rank. These are gradients that several rows write, and gradients whose
// kernel starts its sums with the contents of Carried (ArgumentInfo::running). So the bits do not
// depend on the number of ranks. Running statistics are updated with the batch statistics of one
// rank after another.
#pragma once

#include "tools/plan/graph/rules.h"
#include "tools/plan/graph/training_state.h"
#include "tools/plan/lowering/owned_plan.h"

namespace reprise {

// How ranks share gradients, and the bytes that sharing needs in a program's region. The data of
// each rank arrives in a part of its own. The space decides how many parts may be in flight. With
// more parts in flight, a step waits less for the network.
struct Sharing {
  uint32_t ranks = 0;        // 0: the recipe names no ranks, and nothing is shared
  bool two_levels = false;   // each rank first adds the gradients of its own micro-batches, if there are several
  uint64_t kept_bytes = 0;   // bytes of gradients that several rows write; kept from the first row to the last
  uint64_t min_bytes = 0;  // minimum bytes in addition to kept_bytes: one part at a time
  uint64_t space_bytes = 0;   // bytes for parts and for gradients that one row writes; at least min_bytes
  uint64_t bytes() const { return kept_bytes + space_bytes; }
};

// Plans the sharing with as much space as is useful. Adds a ShareAttribute for each rank to the
// graph's pool; the attribute of rank r must get index r.
Sharing plan_sharing(Graph& graph, const ChainBodies& chain, const TrainingState& state, uint32_t ranks,
                     bool two_levels);

// Rewrites the rows of a micro-batch's program so that ranks share its gradients. The slots must
// not have lifetimes yet. Shared data is in the region's bytes from `offset` on.
void share_gradients(OwnedProgram& program, ProgramId id, const Graph& graph, const TrainingState& state,
                     const Sharing& sharing, uint64_t offset);

// Adds rows to the update if moments are distributed over ranks. The rank that updates a parameter
// sends it to all ranks while other ranks update theirs.
void share_parameters(OwnedProgram& program, const Graph& graph, const TrainingState& state);

// Returns the bytes that a rank sends to each other rank in a step, for the rank that sends the
// most. Counted are gradients, statistics, and the parameters that the rank alone updates, but not
// slices of streamed weights.
uint64_t sent_bytes(const Plan& plan);

}  // namespace reprise
