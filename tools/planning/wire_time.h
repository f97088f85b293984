// What the network between ranks does to a step before it runs: the rows of its programs one after another, beside one queue for all that travels.
// Here because a plan says what is under way while which rows run, so that nothing but the prices must be measured.
//
//   rows   ... dw of link 7 | dw of link 6 | dw of link 5 | waits | dw7 += rank 0's, rank 1's ...
//   wire                    | link 7's ---------------------------->| link 6's ...
#pragma once

#include <functional>
#include <string>

#include "tools/lowering/owned_plan.h"

namespace reprise {

// As `reprise profile --peers` has measured it: what a tensor of one other rank takes to arrive, while each rank sends and receives at once.
struct Wire {
  uint64_t ranks = 0;  // that it was measured with
  double message_seconds = 0, byte_seconds = 0;

  double seconds(uint64_t bytes) const { return message_seconds + byte_seconds * static_cast<double>(bytes); }
  bool operator==(const Wire&) const = default;
};

std::string wire_words(const Wire& wire);

struct WireTime {
  double step_seconds = 0;
  double wire_seconds = 0;    // in which the wire carries something
  double waited_seconds = 0;  // in which rows, or the host between two micro-batches, wait for it
  uint64_t sent_bytes = 0;    // of a rank to every other, the most that one sends
  uint64_t received_bytes = 0;  // by rank 0
};

// Of one row that computes, or transfers to a second level.
using RowSeconds = std::function<double(const OwnedProgram&, const Row&)>;

// A step as rank 0 has it, whatever the number of ranks that the wire was measured with: what the other ranks start comes in the order of the rows,
// one tensor after another, and its own, which goes out meanwhile, is there at once. So of N ranks each receives N - 1 tensors for one of its own;
// nothing is slower for more ranks but that, and ranks start together. After each micro-batch the host waits for a message of every other rank,
// the loss. `micro_batch_seconds`: of a micro-batch beside its rows.
WireTime wire_time(const OwnedPlan& plan, const Wire& wire, double micro_batch_seconds, const RowSeconds& row_seconds);

}  // namespace reprise
