// A link: the part of the graph between two boundaries, with its forward and backward calls and its
// front of tapes. Schedules use only the bytes and costs of links; lowering uses their calls.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lib/backend_rules.h"
#include "tools/plan/graph/policy.h"
#include "tools/plan/graph/rules.h"
#include "tools/plan/schedule/chain.h"

namespace reprise {

// A function that returns the price of a call. Without a profile it is call_price() of cost.h.
using CallPrice = std::function<double(const Graph&, const Call&)>;

// Calls of one action on one link. The values that only these calls use are packed into one scratch
// block.
struct ArrangedCalls {
  struct Buffer {
    // The values that share the buffer one after another; empty: scratch of a kernel.
    std::vector<ValueId> values;
    uint64_t bytes = 0;
    uint32_t first_call = 0, end_call = 0;  // the buffer is live in calls [first_call, end_call)
    uint64_t offset = 0;                    // bytes from the start of the scratch block
    // A value that is no longer needed, whose bytes the buffer reuses. kNoValue: the buffer is in
    // the scratch block.
    ValueId host = kNoValue;
  };
  std::vector<Call> calls;
  std::vector<Buffer> buffers;
  std::vector<int> kernel_scratch;       // per call: index of its scratch buffer; -1: none
  uint64_t scratch_bytes = 0;
};

// One choice of what a link keeps for its backward, in addition to its output.
struct TapeChoice {
  std::vector<ValueId> kept;  // inner values, packed one after another after the output, in this order
  ArrangedCalls forward, backward;
  double backward_price = 0;
  uint64_t bytes = 0;                  // bytes of the tape, with the output
  // scratch of a forward that records the tape: the maximum over forwards with and without a
  // residue
  uint64_t forward_scratch_bytes = 0;
};

// Inner values that a link keeps in one mode from a forward to the backward, without the output. A
// mode is a price per byte, see solve_links() and PLANNING 5.
struct ResidueChoice {
  std::vector<ValueId> kept;  // a subset of tapes[0].kept, packed one after another in this order
  uint64_t bytes = 0;
  double forward_price = 0;            // price of a forward that starts from the residue and keeps only the output
  std::vector<double> record_prices;   // entry i: price of a forward that starts from the residue and records tapes[i]
  // lay: the forward that writes the residue. later: a forward that starts from the residue and
  // keeps only the output.
  ArrangedCalls lay, later;
  std::vector<ArrangedCalls> records;  // entry i: the forward that records tapes[i] from the residue
};

// Maximum number of values of which every combination is tried. If a link has more, its smallest
// values are in every tape: the link is *truncated*.
constexpr size_t kMaxCandidates = 12;
// Maximum calls of a link for which kMaxCandidates values are tried; each doubling of the calls
// reduces the number of values by one.
constexpr size_t kCallsWithAllCandidates = 512;

struct LinkBody {
  std::string name;
  size_t first_node = 0, end_node = 0;
  ValueId input = kNoValue, output = kNoValue;      // output: kNoValue for the loss
  ValueId d_input = kNoValue, d_output = kNoValue;  // gradients of input and output; kNoValue for none
  std::vector<Call> forward, backward;  // backward: without recomputation, with the updates of released gradients
  double forward_price = 0;  // price of a forward that is not the first; the first also computes statistics and skips
  ArrangedCalls advance;                            // a forward that keeps only the output
  std::vector<TapeChoice> tapes;  // Pareto front, the largest first; tapes[0] keeps all that the backward reads
  std::vector<ResidueChoice> residues;              // entry k is mode k
  uint64_t forward_scratch_bytes = 0;               // maximum over all forwards that keep no tape
  bool truncated = false;  // true if some values are in every tape, so that not every set was tried
};

struct ChainBodies {
  std::vector<LinkBody> links;
  std::vector<ValueId> weight_gradients;  // indexed by the parameter's ValueId; kNoValue if it is not trained
};

// Cuts the graph at its boundaries, marks skips (skips.h) and builds the backward.
ChainBodies cut_into_links(Graph& graph);

// Fills in price, advance, the front of tapes and the residues of each mode. Every set of the
// values that could save recomputation is tried, unless the link is truncated. A mode is a price
// per byte: each link keeps what is cheapest at that price. Links of equal signature are solved
// once. If `keep` is given, a link has one tape, which contains the values that `keep` selects, and
// no residue.
void solve_links(const Graph& graph, std::vector<LinkBody>& links, const BackendRules& rules, const CallPrice& price,
                 const KeepRule& keep = {});

// Returns the number of truncated links.
size_t truncated_links(const std::vector<LinkBody>& links);

// Returns the links' bytes and costs, which are the schedule's input.
Chain chain_of(const Graph& graph, const std::vector<LinkBody>& links);

// Packs the link's own values that `calls` use, except those in `placed`, into one scratch block. A
// kernel that may work in place does so if the call is the last reader of its input. `hosts`:
// placed values that are not needed after their last read here (a tape and the old gradient in a
// backward); values that are written later reuse their bytes.
ArrangedCalls arrange_calls(const Graph& graph, std::vector<Call> calls, const std::vector<ValueId>& placed,
                            const BackendRules& rules, const std::vector<ValueId>& hosts = {});

}  // namespace reprise
