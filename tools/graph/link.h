// A link: a piece of the graph between two boundaries, with its forward and backward calls and its front of tapes.
// Here because schedules work on bytes and costs of links, and lowering needs to know what is behind them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lib/backend_rules.h"
#include "tools/graph/policy.h"
#include "tools/graph/rules.h"
#include "tools/schedule/chain.h"

namespace reprise {

// Price of a call; without a profile, call_price() of cost.h.
using CallPrice = std::function<double(const Graph&, const Call&)>;

// Calls of one action on one link with the values that only they use packed into one scratch block.
struct ArrangedCalls {
  struct Buffer {
    std::vector<ValueId> values;  // that share it one after another; empty: a kernel's scratch
    uint64_t bytes = 0;
    uint32_t first_call = 0, end_call = 0;  // half-open
    uint64_t offset = 0;                    // in the scratch block
    ValueId host = kNoValue;                // lies in the place of this value, which is dead by then, not in the scratch block
  };
  std::vector<Call> calls;
  std::vector<Buffer> buffers;
  std::vector<int> kernel_scratch;       // per call: index of its scratch buffer, -1 for none
  uint64_t scratch_bytes = 0;
};

// What a link keeps for its backward, beside its output.
struct TapeChoice {
  std::vector<ValueId> kept;  // inner values, packed one after another behind the output in this order
  ArrangedCalls forward, backward;
  double backward_price = 0;
  uint64_t bytes = 0;                  // output included
  uint64_t forward_scratch_bytes = 0;  // largest of the forwards that record it, with a residue held or none
};

// Inner values kept from a forward to the backward without the output, for one mode (PLANNING 5).
struct ResidueChoice {
  std::vector<ValueId> kept;  // a part of tapes[0]'s; packed one after another in this order
  uint64_t bytes = 0;
  double forward_price = 0;            // of every forward while it is held that keeps only the output
  std::vector<double> record_prices;   // of those that record, parallel to the link's tapes
  ArrangedCalls lay, held;             // the forward that lays it down; a later one that keeps only the output
  std::vector<ArrangedCalls> records;  // parallel to the link's tapes: the forward that records one while the residue is held
};

// Of so many values every combination is tried. Of a link that offers more, the smallest are kept in every tape: it is *truncated*.
constexpr size_t kMostCandidates = 12;
// Calls of the longest link of which so many are tried; of one of twice as many calls one value less.
constexpr size_t kCallsWithAllCandidates = 512;

struct LinkBody {
  std::string name;
  size_t first_node = 0, end_node = 0;
  ValueId input = kNoValue, output = kNoValue;      // output: kNoValue for the loss
  ValueId d_input = kNoValue, d_output = kNoValue;  // kNoValue where there is none
  std::vector<Call> forward, backward;              // backward without recomputation, updates of released gradients included
  double forward_price = 0;                         // of every forward but the first, which also takes statistics
  ArrangedCalls advance;                            // a forward that keeps only the output
  std::vector<TapeChoice> tapes;                    // Pareto front, the largest first; tapes[0] keeps all that backward reads
  std::vector<ResidueChoice> residues;              // entry k is mode k
  uint64_t forward_scratch_bytes = 0;               // largest of all forwards that keep no tape
  bool truncated = false;                           // its front is that of kMostCandidates values, not of all
};

struct ChainBodies {
  std::vector<LinkBody> links;
  std::vector<ValueId> weight_gradients;  // by ValueId of the parameter; kNoValue where it has none
};

// Cuts the graph at its boundaries, marks what is held (held.h), and builds the backward.
ChainBodies cut_into_links(Graph& graph);

// Fills in price, advance, the fronts of tapes and the residues of every mode: all sets of the values that could save recomputation,
// but for links that are truncated. A mode is a price per byte: each link keeps what is cheapest at that price. Links of equal signature are solved
// once. With a rule, a link has one tape, what the rule keeps, and no residue.
void solve_links(const Graph& graph, std::vector<LinkBody>& links, const BackendRules& rules, const CallPrice& price, const KeepRule& keep = {});

// How many links are truncated.
size_t truncated_links(const std::vector<LinkBody>& links);

// What the schedule sees of them.
Chain chain_of(const Graph& graph, const std::vector<LinkBody>& links);

// Packs the values of `calls` that are not in `placed` (and not outside the links) into one scratch block; a kernel that may
// work in place does so where its input dies. `hosts`: placed values whose room nobody wants any more after their last read here
// (a tape and the old gradient in a backward): values born later take it.
ArrangedCalls arrange_calls(const Graph& graph, std::vector<Call> calls, const std::vector<ValueId>& placed, const BackendRules& rules,
                            const std::vector<ValueId>& hosts = {});

}  // namespace reprise
